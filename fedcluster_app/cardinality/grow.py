"""Growing k-means, which X-means and G-means share: split clusters and refit all, until none should split.

The two differ in how they judge a proposed split; see :mod:`~fedcluster_app.cardinality.xmeans` and
:mod:`~fedcluster_app.cardinality.gmeans`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedcluster_app.cardinality.count import Rows, moments_of
from fedcluster_app.cardinality.split import NO_VARIANCE, leading_axis
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.mixtures.kmeans import lloyd
from fedcluster_app.mixtures.types import FloatArray, IntArray


class Halves(NamedTuple):
    """One cluster cut in two by k-means.

    ``rows`` are its rows, centred on ``mean`` (d,); ``centers`` (2, d) and ``labels`` (n,) are in their
    coordinates; ``masses`` (2,) count the rows of the halves, ``within`` is their sum of squares about the
    two centres and ``total`` that about the one mean.
    """

    rows: Rows
    mean: FloatArray
    centers: FloatArray
    labels: IntArray
    masses: FloatArray
    within: float
    total: float


class Proposal(NamedTuple):
    """A split of a cluster: how much speaks for it, the rows of the lighter half, and the centres (2, d)."""

    strength: float
    mass: float
    centers: FloatArray


Propose = Callable[[Rows], Proposal | None]


def halve(rows: Rows) -> Halves | None:
    """Cut a cluster in two: k-means from ``c +- u sqrt(2 lambda / pi)``, or None when its rows are equal.

    (lambda, u) is the leading eigenpair of the covariance; the start is where the means of the two halves of
    a Gaussian cluster lie. No randomness: the same rows have the same halves.

    Notes
    -----
    **Source**: Hamerly and Elkan, Learning the k in k-means, NIPS 2003, section 2.
    """
    masses = rows.masses
    n, d = masses.sum(), rows.X.shape[1]
    origin = rows.X[0]
    Y = rows.X - origin
    offset = masses @ Y / n
    Y -= offset
    total = float(masses @ np.einsum("ij,ij->i", Y, Y))
    if total <= NO_VARIANCE * n * d:
        return None
    scatter, axis = leading_axis(np.sqrt(masses)[:, None] * Y)
    start = math.sqrt(2 / math.pi * scatter * len(Y) / n) * axis
    cut = lloyd(Y, np.stack([start, -start]), weights=rows.weights)
    sizes = np.bincount(cut.labels, weights=masses, minlength=2).astype(np.float64)
    return Halves(Rows(Y, rows.weights), origin + offset, cut.centers, cut.labels, sizes, cut.inertia, total)


def grow(
    rows: Rows,
    propose: Propose,
    known: dict[bytes, Proposal | None],
    *,
    threshold: float,
    min_size: float,
    k_maxes: Sequence[int],
    from_two: bool = False,
) -> list[Moments]:
    """Clusters for each largest number of them, from one growing partition.

    All clusters that should split do so at once, then Lloyd's iteration refits all centres. Where a largest
    number leaves room for some splits only, the strongest are made. Until then the partition does not look
    at that number, so one path serves them all.

    Parameters
    ----------
    rows : Rows, n >= 1
    propose : callable
        Proposes the split of a cluster's rows.
    known : dict
        Proposals by the cluster's rows, filled here; calls for the same rows may share it.
    threshold, min_size : float
        A split is made when its strength is above the one and its lighter half has at least the other.
    k_maxes : increasing, >= 1
        Never exceeded.
    from_two : bool
        Whether the first split needs no strength.

    Returns
    -------
    list of Moments
        One per largest number.
    """
    found: dict[int, Moments] = {}
    labels, clusters = _refit(rows, rows.masses @ rows.X / rows.masses.sum())
    while True:
        k = len(clusters.counts)
        least = -math.inf if from_two and k == 1 else threshold
        splits = {
            j: proposal
            for j, proposal in enumerate(_proposals(rows, labels, propose, known))
            if proposal and proposal.strength > least and proposal.mass >= min_size
        }
        strongest = sorted(splits, key=lambda j: -splits[j].strength)
        for k_max in k_maxes:
            if k_max not in found and k_max < k + len(splits):
                chosen = {j: splits[j] for j in strongest[: max(k_max - k, 0)]}
                found[k_max] = _refit(rows, _split_centers(clusters.means, chosen))[1] if chosen else clusters
        if not splits or len(found) == len(k_maxes):
            break
        labels, grown = _refit(rows, _split_centers(clusters.means, splits))
        if len(grown.counts) <= k:  # duplicates emptied clusters as fast as they were made
            break
        clusters = grown
    return [found.get(k_max, clusters) for k_max in k_maxes]


def _proposals(
    rows: Rows, labels: IntArray, propose: Propose, known: dict[bytes, Proposal | None]
) -> list[Proposal | None]:
    """Proposal for every cluster, made once for the same rows."""
    groups = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    keys = [group.tobytes() for group in groups]
    for key, group in zip(keys, groups, strict=True):
        if key not in known:
            known[key] = propose(rows.take(group))
    return [known[key] for key in keys]


def _split_centers(centers: FloatArray, splits: dict[int, Proposal]) -> FloatArray:
    """Centres with those that split replaced by their halves'."""
    return np.concatenate(
        [np.delete(centers, list(splits), axis=0), *(proposal.centers for proposal in splits.values())]
    )


def _refit(rows: Rows, centers: FloatArray) -> tuple[IntArray, Moments]:
    """Labels 0 .. k-1 (n,) and clusters after Lloyd's iteration; empty clusters are gone."""
    labels = lloyd(rows.X, np.atleast_2d(centers), weights=rows.weights).labels
    _, labels = np.unique(labels, return_inverse=True)
    return labels, moments_of(rows, labels)
