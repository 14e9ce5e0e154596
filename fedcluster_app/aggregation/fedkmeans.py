"""Federated k-means of Garst and Reinders: local Lloyd steps, and k-means over the sites' means.

The number of clusters is given. A round is one `client_step` at every site and one `step` at the server::

    state = step(init(k), {"a": client_start(X_a, k, rng_a), ...}, rng)
    while not done(state):
        state = step(state, {"a": client_step(X_a, state.centers), ...}, rng)

What a site sends are sums over its rows, but a round needs them site by site (the server clusters the sites'
means), so secure aggregation cannot hide them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans, kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.types import FloatArray, IntArray

Status = Literal["running", "converged", "max_rounds"]
Start = Literal["kmeans", "kmeans++"]


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """One site's upload: sums and numbers of the rows of its clusters.

    Parameters
    ----------
    sums : (c, d) array
        Sum of the rows of each cluster; c is at most k, and 0 at a site without rows.
    counts : (c,) int array
        Rows of each cluster; the server passes over one of 0 (withheld).
    """

    sums: FloatArray
    counts: IntArray


@dataclass(frozen=True, eq=False)
class FedKMeansState:
    """The server's memory between rounds.

    Parameters
    ----------
    k : int
        Wanted number of clusters.
    centers : (c, d) array
        What the sites get: k centres, or fewer while fewer distinct means have come; (0, 0) before any.
    uploads : mapping of site name to ClusterSums
        The last upload of every site, in order of site name.
    round : int
        Server steps taken.
    movement : float
        Largest displacement of a centre in the last step; infinite when their number changed.
    """

    k: int
    centers: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    uploads: Mapping[str, ClusterSums] = field(default_factory=dict)
    round: int = 0
    movement: float = float("inf")


def client_start(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    start: Start = "kmeans",
    local_steps: int = 1,
    min_count: int = 2,
) -> ClusterSums:
    """First upload of a site: min(k, n) clusters of its own.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0.
    k : int, >= 1
    rng : numpy.random.Generator
    start : {"kmeans", "kmeans++"}
        Lloyd steps from k-means++ seeds, or the seeds alone with the numbers of rows nearest to them (as in
        FedGEM's comparison). Seeds are single rows: with them, rows leave the site.
    local_steps, min_count : int, >= 1
        See `client_step`; bare seeds take no steps.

    Raises ConfigError if `start` is unknown or a number below 1.

    Notes
    -----
    Cost O(n k d local_steps). **Source**: Garst and Reinders, Federated k-means clustering,
    arXiv:2310.01195, algorithm 1 (initialisation), with the privacy threshold p = 2. Deviation: see
    `client_step`.
    """
    if start not in ("kmeans", "kmeans++"):
        raise ConfigError(f"start: expected kmeans or kmeans++, got {start!r}")
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if len(X) == 0:
        return ClusterSums(np.empty((0, X.shape[1])), np.empty(0, dtype=np.int64))
    seeds = first_centers(X, k, rng)
    if start == "kmeans":
        return client_step(X, seeds, local_steps=local_steps, min_count=min_count)
    counts = np.bincount(_nearest(X, seeds), minlength=len(seeds))
    return _large_enough(counts[:, None] * seeds, counts, min_count)


def client_step(
    X: FloatArray, centers: FloatArray, *, local_steps: int = 1, min_count: int = 2
) -> ClusterSums:
    """One round at a site: drop the centres without rows, take Lloyd steps from the others, add up.

    Parameters
    ----------
    X : (n, d) array
    centers : (k, d) array
        Global centres; the site may have fewer rows, or none.
    local_steps : int, >= 1
        Lloyd steps; many run to convergence (FedGEM's comparison).
    min_count : int, >= 1
        Clusters of fewer rows are not sent: p = 2 in the paper, since a mean of one row is that row. If
        fewer rows in all are not sent, they go to the nearest of the other clusters.

    Returns
    -------
    ClusterSums
        Of the rows as the last step assigned them.

    Raises ConfigError if a number is below 1.

    Notes
    -----
    Cost O(n k d local_steps). **Source**: Garst and Reinders, arXiv:2310.01195, algorithm 1. Deviation: means
    and counts are those of one assignment, so that their product is a sum of rows and one site alone takes
    exactly Lloyd's step; the authors' code counts the rows again after the means have moved. And a few rows
    that are not sent are never all that is missing: whoever knows the mean of all rows could take the rest
    from it.
    """
    return sums_by(X, assign(X, centers, local_steps=local_steps, min_count=min_count))


def assign(X: FloatArray, centers: FloatArray, *, local_steps: int = 1, min_count: int = 2) -> IntArray:
    """Cluster of every row after the steps of `client_step`, -1 if that is not sent; (n,) int array."""
    if local_steps < 1:
        raise ConfigError(f"local steps: expected at least 1, got {local_steps}")
    if min_count < 1:
        raise ConfigError(f"minimum count: expected at least 1, got {min_count}")
    if len(X) == 0 or len(centers) == 0:
        return np.full(len(X), -1)
    labels = _nearest(X, centers)
    if local_steps > 1:
        centers = lloyd(X, centers[np.unique(labels)], max_iter=local_steps - 1).centers
        labels = _nearest(X, centers)
    counts = np.bincount(labels, minlength=len(centers))
    large = counts >= min_count
    if 0 < counts[~large].sum() < min_count and large.any():
        return np.flatnonzero(large)[_nearest(X, centers[large])]
    return np.where(large[labels], labels, -1)


def sums_by(X: FloatArray, labels: IntArray) -> ClusterSums:
    """Add up the rows (n, d) by their labels (n,), without those of -1."""
    sent = np.unique(labels[labels >= 0])
    members = (labels[:, None] == sent).astype(np.float64)
    return ClusterSums(members.T @ X, members.sum(axis=0).astype(np.int64))


def first_centers(X: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Seeds from which a site's first clusters are made: min(k, n) rows, which do not leave."""
    return kmeans_plus_plus(X, min(k, len(X)), rng)


def init(k: int) -> FedKMeansState:
    """State before the first round. Raises ConfigError if `k` is below 1."""
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    return FedKMeansState(k)


def step(
    state: FedKMeansState,
    uploads: Mapping[str, ClusterSums],
    rng: np.random.Generator,
    *,
    n_init: int = 5,
) -> FedKMeansState:
    """One server round: k-means over the means of all sites, each counted as many times as it has rows.

    A site that did not answer keeps its last upload; one that answers for the first time joins; the order of
    the mapping has no effect. If no site has any cluster to show, only the round is counted.

    Parameters
    ----------
    state : FedKMeansState
    uploads : mapping of site name to ClusterSums
        Answers of this round.
    rng : numpy.random.Generator
    n_init : int, >= 1
        Runs of k-means, of which the best is kept.

    Notes
    -----
    Cost O(m k d) per iteration for m means in all. **Source**: Garst and Reinders, arXiv:2310.01195,
    algorithm 1. Deviations: new centres take the numbers of the old ones nearest to them (Hungarian
    algorithm), so that a movement is defined and a label keeps its meaning; with fewer than k distinct means
    there are as many centres as distinct means, where the authors' code fails.
    """
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    filled = [_large_enough(part.sums, part.counts, 1) for part in known.values() if part.counts.any()]
    if not filled:
        return replace(state, uploads=known, round=state.round + 1)
    counts = np.concatenate([part.counts for part in filled])
    means = np.concatenate([part.sums for part in filled]) / counts[:, None]
    k = min(state.k, len(np.unique(means, axis=0)))
    weights = counts.astype(np.float64)
    centers = _renumbered(kmeans(means, k, rng, n_init=n_init, weights=weights).centers, state.centers)
    movement = float("inf")
    if centers.shape == state.centers.shape:
        movement = float(np.linalg.norm(centers - state.centers, axis=1).max())
    return FedKMeansState(state.k, centers, known, state.round + 1, movement)


def status(state: FedKMeansState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> Status:
    """Tell which stopping rule has fired: ``converged``, ``max_rounds``, or none yet (``running``).

    Parameters
    ----------
    state : FedKMeansState
        State after a round.
    tolerance : float
        Converged when no centre moved by more than this. Negative: never, as in the authors' code.
    max_rounds : int
        Server steps; 100 in the authors' code, 20 in FedGEM's comparison.
    """
    if state.movement <= tolerance:
        return "converged"
    return "max_rounds" if state.round >= max_rounds else "running"


def done(state: FedKMeansState, *, tolerance: float = 1e-4, max_rounds: int = 100) -> bool:
    """Whether the rounds are over; see `status`."""
    return status(state, tolerance=tolerance, max_rounds=max_rounds) != "running"


def _nearest(X: FloatArray, centers: FloatArray) -> IntArray:
    labels: IntArray = squared_distances(X, centers).argmin(axis=1)
    return labels


def _large_enough(sums: FloatArray, counts: IntArray, min_count: int) -> ClusterSums:
    sent = counts >= min_count
    return ClusterSums(sums[sent], counts[sent])


def _renumbered(centers: FloatArray, before: FloatArray) -> FloatArray:
    """Put each centre at the position of the earlier one that it is matched with."""
    if centers.shape != before.shape:
        return centers
    from scipy.optimize import linear_sum_assignment

    renumbered: FloatArray = centers[linear_sum_assignment(squared_distances(before, centers))[1]]
    return renumbered
