"""Silhouette widths in NumPy, from rows or from a distance matrix that is reused."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Entries of one block of distances: 32 MB, so that memory stays O(n) for long tables.
_BLOCK = 1 << 22


def silhouette_samples(X: FloatArray, labels: ArrayLike) -> FloatArray:
    """Silhouette width of every row.

    Parameters
    ----------
    X : array of shape (n, d)
    labels : array of shape (n,)
        At least two different values.

    Returns
    -------
    array of shape (n,), values in [-1, 1]
        (b - a) / max(a, b), a the mean distance to the other rows of the own cluster, b the least mean
        distance to another cluster; 0 for a row alone in its cluster.

    Raises
    ------
    ValueError
        If all rows have one label: the silhouette is then undefined.

    Notes
    -----
    **Source**: Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20 (1987), as scikit-learn's
    ``silhouette_samples``. Deviation: n clusters of one row each give zeros and no error, so that a
    search over counts needs no exception. Cost O(n² d) time, O(n) memory.
    """
    codes, counts = _encode(labels)
    n = X.shape[0]
    sums = np.empty((n, counts.size))
    member = _membership(codes, counts.size)
    block = max(1, _BLOCK // n)
    for start in range(0, n, block):
        distances = squared_distances(X[start : start + block], X)
        np.sqrt(distances, out=distances)
        sums[start : start + block] = distances @ member
    return _widths(sums, codes, counts)


def silhouette_score(X: FloatArray, labels: ArrayLike) -> float:
    """Mean of `silhouette_samples`."""
    return float(silhouette_samples(X, labels).mean())


def silhouette_from_distances(distances: FloatArray, labels: ArrayLike) -> FloatArray:
    """Silhouette width of every row from the distance matrix, to score many labelings of the same rows.

    Parameters
    ----------
    distances : array of shape (n, n)
        Distances (not squared): symmetric, with a zero diagonal.
    labels : array of shape (n,)
        At least two different values.

    Returns
    -------
    array of shape (n,)
        As `silhouette_samples`; cost O(n²), whatever the number of clusters.
    """
    codes, counts = _encode(labels)
    by_cluster = np.argsort(codes, kind="stable")
    ones = np.ones(codes.size)
    sums = np.empty((counts.size, codes.size))
    # Every row of the matrix is read once; a product with the membership matrix would cost O(n² k).
    for cluster, end in enumerate(np.cumsum(counts)):
        size = counts[cluster]
        sums[cluster] = ones[:size] @ distances[by_cluster[end - size : end]]
    return _widths(sums.T, codes, counts)


def _encode(labels: ArrayLike) -> tuple[IntArray, IntArray]:
    """Labels as 0 .. k-1, and the rows of each."""
    _, codes, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    if counts.size < 2:
        raise ValueError(f"labels: the silhouette needs at least 2 clusters, got {counts.size}")
    return codes.astype(np.int64, copy=False), counts.astype(np.int64, copy=False)


def _membership(codes: IntArray, k: int) -> FloatArray:
    member = np.zeros((codes.size, k))
    member[np.arange(codes.size), codes] = 1.0
    return member


def _widths(sums: FloatArray, codes: IntArray, counts: IntArray) -> FloatArray:
    """Widths from the sum of distances of each row to each cluster; overwrites `sums`."""
    rows = np.arange(codes.size)
    own = counts[codes]
    a = sums[rows, codes] / np.maximum(own - 1, 1)
    sums /= counts
    sums[rows, codes] = np.inf
    b = sums.min(axis=1)
    largest = np.maximum(a, b)
    defined = (own > 1) & (largest > 0)
    return np.where(defined, (b - a) / np.where(defined, largest, 1.0), 0.0)
