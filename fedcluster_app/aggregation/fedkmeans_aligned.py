"""Federated k-means by aligned averages: a Lloyd step at every site, then the mean of matched centres.

The number of clusters is given and the same at all sites. A round is one client step at every site and one
`step` at the server::

    state = step(init(k), {"a": client_start(X_a, k, rng_a), ...})
    while not done(state):
        state = step(state, {"a": client_step(X_a, state.centers), ...})

Rounds at a site, state and stopping are those of `fedkmeans`; only the server differs. What a site sends are
sums over its rows, but the server needs them site by site (it matches each site's means), so secure
aggregation cannot hide them; clusters with few rows are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fedcluster_app.aggregation.fedkmeans import (
    ClusterSums,
    FedKMeansState,
    client_step,
    done,
    init,
    status,
)
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.alignment import matched
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import kmeans
from fedcluster_app.mixtures.types import FloatArray

__all__ = ["Weighting", "client_start", "client_step", "done", "init", "status", "step"]

Weighting = Literal["sites", "clusters"]


def client_start(
    X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 10, min_count: int = 2
) -> ClusterSums:
    """First upload of a site: the clusters of its own k-means.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0; with fewer than k there are at most n clusters.
    k : int, >= 1
    rng : numpy.random.Generator
    n_init : int, >= 1
        Starts of k-means, of which the best counts.
    min_count : int, >= 1
        Clusters of fewer rows are not sent; the mean of one row is that row.

    Raises ConfigError if `k` or `min_count` is below 1. **Source**: see `step`.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    return client_step(X, first_centers(X, k, rng, n_init=n_init), min_count=min_count)


def first_centers(X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 10) -> FloatArray:
    """Centres of a site's own k-means, at most min(k, n)."""
    return kmeans(X, min(k, len(X)), rng, n_init=n_init).centers if len(X) else X


def step(
    state: FedKMeansState, uploads: Mapping[str, ClusterSums], *, weighting: Weighting = "sites"
) -> FedKMeansState:
    """One server round: match every site's means with the centres, and average.

    A site that did not answer keeps its last upload; one that answers for the first time joins; the order of
    the mapping has no effect. If no site has any cluster to show, only the round is counted.

    Parameters
    ----------
    state : FedKMeansState
        From `init`, or after the last round.
    uploads : mapping of site name to ClusterSums
        Answers of this round.
    weighting : {"sites", "clusters"}
        A site counts with all rows it has shown in every cluster, and where it shows no mean (an empty
        cluster, or a withheld one) it stands for the centre as it was. Or a mean counts with its own rows:
        one round is then Lloyd's step on the pooled rows, as long as matching changes no number.

    Returns
    -------
    FedKMeansState

    Raises
    ------
    ConfigError
        If `weighting` is unknown, or a site sends more clusters than k: k must be the same at all sites.

    Notes
    -----
    Cost O(G (k² d + k³)) for G sites. **Source**: the FedKMeans baseline of arXiv:2609.19202, which aligns
    every site's centres to those of the first site and takes the size-weighted mean. Deviations: after the
    first round the centres themselves are the reference, so that it does not depend on one site's answer; in
    the first round it is the first site with the most clusters (see `_reference`).
    """
    if weighting not in ("sites", "clusters"):
        raise ConfigError(f"weighting: expected sites or clusters, got {weighting!r}")
    known = {**state.uploads, **uploads}
    known = {name: known[name] for name in sorted(known)}
    _check_counts(known, state.k)
    shown = [part for part in known.values() if len(part.counts)]
    if not shown:
        return replace(state, uploads=known, round=state.round + 1)
    means = [part.sums / part.counts[:, None] for part in shown]
    before = state.centers if len(state.centers) else _reference(means, state.k)
    sums, mass = np.zeros_like(before), np.zeros(len(before))
    for part, own in zip(shown, means, strict=True):
        partners = matched(own, before)
        weights = np.zeros(len(before))
        weights[partners] = part.counts
        filled = before.copy()
        filled[partners] = own
        if weighting == "sites":
            weights[:] = part.counts.sum()
        sums += weights[:, None] * filled
        mass += weights
    centers = np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], before)
    moved = float("inf")
    if len(state.centers):
        moved = float(np.linalg.norm(centers - before, axis=1).max())
    return FedKMeansState(state.k, centers, known, state.round + 1, moved)


def _check_counts(uploads: Mapping[str, ClusterSums], k: int) -> None:
    for name, part in uploads.items():
        if len(part.counts) > k:
            raise ConfigError(
                f"site {name}: expected at most k = {k} clusters, got {len(part.counts)}; centres are "
                "averaged with their partners at other sites, so give every site the same k"
            )


def _reference(means: Sequence[FloatArray], k: int) -> FloatArray:
    """Means to align to: the first site's of those with most, completed to k by the others' farthest.

    Completion is for federations in which every site withholds some cluster, or has fewer rows than k. With
    fewer than k distinct means in all there are as many as these.
    """
    pooled = np.concatenate(means)
    reference = np.unique(max(means, key=len), axis=0)
    while len(reference) < k:
        gaps = squared_distances(pooled, reference).min(axis=1)
        if gaps.max() == 0:
            break
        reference = np.concatenate([reference, pooled[[gaps.argmax()]]])
    return reference
