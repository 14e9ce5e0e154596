"""k-FED: one upload of local k-means centres, grouped at the server into a given number of clusters.

A site sends its centres and nothing else, once::

    sent = client_step(X, k_local, rng)                                # at every site
    result = server_step({"a": sent_a.centers, "b": sent_b.centers}, k)
    labels_a = result.labels["a"][sent_a.labels]                       # at site a

Centres are not sums over the sites, so they cannot be securely aggregated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcluster_app.aggregation.balls import split_by_site
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.kmeans import KMeansResult, kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.types import FloatArray, IntArray

Start = Literal["projected", "kmeans++"]
Farthest = Literal["nearest", "mean"]


@dataclass(frozen=True, eq=False)
class LocalCenters:
    """A site's work: the upload, and what stays at home.

    Parameters
    ----------
    centers : (k, d) array
        What is sent. At a site with at most k rows these are the rows themselves.
    counts : (k,) int array
        Rows of each centre, on which a minimum count can be checked; not part of the method's upload.
    labels : (n,) int array
        Centre of each row; never leaves the site.
    """

    centers: FloatArray
    counts: IntArray
    labels: IntArray


@dataclass(frozen=True, eq=False)
class KFedResult:
    """Global clusters.

    Parameters
    ----------
    centers : (k, d) array
        Means of the grouped local centres; k is the wanted number, or that of distinct centres.
    labels : mapping of site name to (k_g,) int array
        Global cluster of each local centre, in order of site name.
    """

    centers: FloatArray
    labels: Mapping[str, IntArray]


def client_step(
    X: FloatArray, k: int, rng: np.random.Generator, *, start: Start = "projected", max_iter: int = 300
) -> LocalCenters:
    """Cluster a site's rows into k by spectral projection, a three-to-one split and Lloyd's iteration.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0.
    k : int, >= 1
        The site's number of clusters; sites may differ.
    rng : numpy.random.Generator
        Source of the seeds.
    start : {"projected", "kmeans++"}
        Lloyd's start: the published one, or bare k-means++ seeds of the rows (what FedGEM's comparison runs).
    max_iter : int, >= 1
        Of Lloyd's iteration.

    Returns
    -------
    LocalCenters
        Of min(k, n) centres.

    Raises
    ------
    ConfigError
        If `k` is below 1 or `start` unknown.

    Notes
    -----
    Cost O(n d min(n, d) + n k d max_iter). **Source**: Dennis, Li and Smith, Heterogeneity for the win:
    one-shot federated clustering, ICML 2021, algorithm 1 (Awasthi and Sheffet 2012). Deviations: an exact
    singular value decomposition instead of a randomised one, so that equal seeds give equal bytes; sites may
    differ in k. As in the authors' code, seeds are k-means++ and not a 10-approximation.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if start not in ("projected", "kmeans++"):
        raise ConfigError(f"start: expected projected or kmeans++, got {start!r}")
    n = len(X)
    if n <= k:
        return LocalCenters(X.copy(), np.ones(n, dtype=np.int64), np.arange(n))
    seeds = _projected_start(X, k, rng) if start == "projected" else kmeans_plus_plus(X, k, rng)
    return local_centers(lloyd(X, seeds, max_iter=max_iter))


def local_centers(fitted: KMeansResult) -> LocalCenters:
    """Centres of a k-means run that have rows; coinciding rows can leave one with none, to say nothing."""
    counts = np.bincount(fitted.labels, minlength=len(fitted.centers))
    filled = np.flatnonzero(counts)
    return LocalCenters(fitted.centers[filled], counts[filled], np.searchsorted(filled, fitted.labels))


def server_step(
    centers: Mapping[str, FloatArray], k: int, *, farthest: Farthest = "nearest", max_iter: int = 300
) -> KFedResult:
    """Group the sites' centres into k clusters: farthest-first start, then Lloyd's iteration.

    The start is one site's centres, which the method takes to lie in different clusters: of the sites with
    the most centres, but no more than k, the first by name. If every site has more than k, it is the first
    centre of the first site by name. The order of the mapping has no effect.

    Parameters
    ----------
    centers : mapping of site name to (k_g, d) array
        Uploads; k_g may differ and be 0.
    k : int, >= 1
        Wanted number of global clusters.
    farthest : {"nearest", "mean"}
        The centre added next has the largest distance to its nearest chosen one (published), or the largest
        mean distance to all chosen ones (FedGEM's comparison).
    max_iter : int, >= 1
        Of Lloyd's iteration: to convergence as the authors' code, or 1 as in the paper.

    Returns
    -------
    KFedResult

    Raises
    ------
    ConfigError
        If `k` is below 1 or `farthest` unknown.
    DataError
        If fewer than k centres came.

    Notes
    -----
    Cost O(m k d max_iter) for m centres in all. **Source**: Dennis, Li and Smith, ICML 2021, algorithm 2.
    Deviations: the authors' code starts from the first device's centres, however many; it asserts more than k
    centres, here k are enough; a centre equal to a chosen one is never added (``mean`` could pick it again),
    so coinciding centres give fewer clusters and never an empty one.
    """
    if k < 1:
        raise ConfigError(f"k: expected at least 1, got {k}")
    if farthest not in ("nearest", "mean"):
        raise ConfigError(f"farthest: expected nearest or mean, got {farthest!r}")
    parts = {name: centers[name] for name in sorted(centers)}
    received = sum(len(part) for part in parts.values())
    if received < k:
        raise DataError(
            f"centres of all sites: expected at least k = {k}, got {received}; raise the local k or lower k"
        )
    stacked = np.concatenate(list(parts.values()))
    chosen = _farthest_first(stacked, k, _first_site(parts, k), farthest)
    fitted = lloyd(stacked, stacked[chosen], max_iter=max_iter)
    return KFedResult(fitted.centers, split_by_site(fitted.labels, parts))


def _projected_start(X: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Means, in d dimensions, of the projected rows three times nearer to one seed than to any other."""
    axes = np.linalg.svd(X, full_matrices=False)[2][:k]
    projected = X @ axes.T
    squared = squared_distances(projected, kmeans_plus_plus(projected, k, rng))
    start = np.empty((k, projected.shape[1]))
    for r in range(k):
        others = np.delete(squared, r, axis=1).min(axis=1, initial=np.inf)
        # Never empty: the seed's own row has distance 0. Three in distance is nine in its square.
        start[r] = projected[9.0 * squared[:, r] <= others].mean(axis=0)
    back: FloatArray = start @ axes
    return back


def _first_site(parts: Mapping[str, FloatArray], k: int) -> IntArray:
    """Positions, among the stacked centres, of those that are chosen without a look at distances."""
    sizes = np.array([len(part) for part in parts.values()])
    starts = np.cumsum(sizes) - sizes
    fitting = np.where(sizes <= k, sizes, 0)
    best = int(fitting.argmax())
    if fitting[best] == 0:
        return np.zeros(1, dtype=np.int64)
    return np.arange(starts[best], starts[best] + sizes[best])


def _farthest_first(centers: FloatArray, k: int, first: IntArray, farthest: Farthest) -> IntArray:
    """Positions of up to k distinct centres, beginning with the distinct ones of `first`."""
    chosen: list[int] = []
    nearest, total = np.full(len(centers), np.inf), np.zeros(len(centers))
    candidates = first.tolist()
    while len(chosen) < k and nearest.max() > 0:
        if candidates:
            position = candidates.pop(0)
            if nearest[position] == 0:
                continue
        else:
            score = np.where(nearest > 0, nearest if farthest == "nearest" else total, -1.0)
            position = int(score.argmax())
        chosen.append(position)
        distance = np.sqrt(squared_distances(centers, centers[[position]])[:, 0])
        nearest, total = np.minimum(nearest, distance), total + distance
    return np.array(chosen, dtype=np.int64)
