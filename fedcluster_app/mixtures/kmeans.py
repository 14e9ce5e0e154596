"""Weighted k-means: plain k-means++ seeding and Lloyd's iteration, seeded by a Generator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray, IntArray

# Entries of one block of scores: small enough for the cache, large enough to hide the call.
_BLOCK = 1 << 17


@dataclass(frozen=True, eq=False)
class KMeansResult:
    """A k-means partition.

    Attributes
    ----------
    centers : array of shape (k, d)
    labels : int array of shape (n,)
        Nearest centre of each row; the lowest index wins a tie.
    inertia : float
        Weighted sum of squared distances to the own centre.
    n_iter : int
        Number of Lloyd iterations.
    converged : bool
        False if `max_iter` ended the run.
    """

    centers: FloatArray
    labels: IntArray
    inertia: float
    n_iter: int
    converged: bool


def kmeans_plus_plus(
    X: FloatArray, k: int, rng: np.random.Generator, *, weights: FloatArray | None = None
) -> FloatArray:
    """Draw k rows as centres, each with probability proportional to weight times squared distance.

    Parameters
    ----------
    X : array of shape (n, d)
    k : int, 1 <= k <= number of rows of positive weight
    rng : numpy.random.Generator
        Gives exactly k uniform numbers.
    weights : array of shape (n,), optional
        Non-negative; a row of weight w counts like w equal rows.

    Returns
    -------
    array of shape (k, d)
        Rows of `X`. With fewer than k distinct rows the remaining centres repeat values, but no row
        is drawn twice.

    Raises
    ------
    ValueError
        If fewer than k rows have a positive weight.

    Notes
    -----
    **Source**: Arthur and Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007,
    section 2.2. One trial per centre as in the paper, not scikit-learn's greedy variant: the
    distribution stays the published one. Cost O(n k d).
    """
    mass = np.ones(X.shape[0]) if weights is None else weights
    available = int(np.count_nonzero(mass > 0))
    if not 1 <= k <= available:
        raise ValueError(f"k: expected 1 to {available} (rows of positive weight), got {k}")
    chosen = np.empty(k, dtype=np.int64)
    nearest = np.ones(X.shape[0])
    for j in range(k):
        odds = mass * nearest
        if not odds.any():
            odds = mass.astype(np.float64)
            odds[chosen[:j]] = 0.0
        chosen[j] = _draw(odds, rng)
        difference = X - X[chosen[j]]
        squared = np.einsum("ij,ij->i", difference, difference)
        nearest = squared if j == 0 else np.minimum(nearest, squared)
    return X[chosen]


def _draw(odds: FloatArray, rng: np.random.Generator) -> int:
    """Index drawn with probability proportional to `odds`; never one of odds 0."""
    cumulative = np.cumsum(odds)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def lloyd(
    X: FloatArray,
    centers: FloatArray,
    *,
    weights: FloatArray | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> KMeansResult:
    """Lloyd's iteration from given centres.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    centers : array of shape (k, d)
        Start.
    weights : array of shape (n,), optional
        Non-negative, not all 0; a row of weight w counts like w equal rows.
    max_iter : int, >= 1
    tol : float, >= 0
        Stop when the squared movement of all centres together is at most `tol` times the mean variance
        of the features. Unchanged labels always stop.

    Returns
    -------
    KMeansResult
        Labels belong to the returned centres.

    Notes
    -----
    **Source**: Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28 (1982); stopping
    rules and the treatment of empty clusters (the row farthest from its centre becomes the centre) as
    in scikit-learn's ``KMeans``. Deviation: the variance behind `tol` is weighted, so that weights and
    repeated rows agree. Cost O(n k d) per iteration.
    """
    mass = np.ones(X.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
    origin = mass @ X / mass.sum()
    Xc, current = X - origin, centers - origin
    columns = np.ascontiguousarray((mass[:, None] * Xc).T)
    threshold = tol * float((mass @ np.square(Xc) / mass.sum()).mean())
    labels = np.full(X.shape[0], -1, dtype=np.int64)
    stable = converged = False
    n_iter = 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        previous, before = labels, current
        labels = _nearest(Xc, before)
        current = _update(Xc, mass, columns, labels, before)
        stable = np.array_equal(labels, previous)
        converged = stable or float(np.square(current - before).sum()) <= threshold
    if not stable:
        labels = _nearest(Xc, current)
    inertia = float(mass @ _own_squared(Xc, current, labels))
    return KMeansResult(current + origin, labels, inertia, n_iter, converged)


def _nearest(X: FloatArray, centers: FloatArray) -> IntArray:
    """Index of the nearest centre; |x|² is the same for all centres and left out."""
    labels = np.empty(X.shape[0], dtype=np.int64)
    slopes, offsets = -2.0 * centers.T, np.einsum("ij,ij->i", centers, centers)
    block = max(1, _BLOCK // centers.shape[0])
    for start in range(0, X.shape[0], block):
        scores = X[start : start + block] @ slopes
        scores += offsets
        np.argmin(scores, axis=1, out=labels[start : start + block])
    return labels


def _update(
    X: FloatArray, weights: FloatArray, columns: FloatArray, labels: IntArray, centers: FloatArray
) -> FloatArray:
    """Weighted means of the clusters; an empty cluster takes the row farthest from its centre.

    `columns` (d, n) is weights times X, one contiguous row per feature: a bincount over it is several
    times faster than a product with the (n, k) membership matrix.
    """
    sums, mass = _totals(columns, weights, labels, centers.shape[0])
    empty = np.flatnonzero(mass == 0)
    if empty.size:
        labels = _refill(X, weights, labels, centers, empty)
        sums, mass = _totals(columns, weights, labels, centers.shape[0])
    means: FloatArray = np.where(mass[:, None] > 0, sums / np.where(mass > 0, mass, 1.0)[:, None], centers)
    return means


def _totals(
    columns: FloatArray, weights: FloatArray, labels: IntArray, k: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted sums (k, d) and masses (k,) of the clusters."""
    totals = [np.bincount(labels, weights=w, minlength=k).astype(np.float64) for w in (*columns, weights)]
    return np.stack(totals[:-1], axis=1), totals[-1]


def _refill(
    X: FloatArray, weights: FloatArray, labels: IntArray, centers: FloatArray, empty: IntArray
) -> IntArray:
    """Labels after the rows farthest from their centres moved to the empty clusters."""
    squared = np.where(weights > 0, _own_squared(X, centers, labels), 0.0)
    farthest = np.argsort(-squared, kind="stable")[: empty.size]
    labels = labels.copy()
    labels[farthest] = empty[: farthest.size]
    return labels


def _own_squared(X: FloatArray, centers: FloatArray, labels: IntArray) -> FloatArray:
    difference = X - centers[labels]
    squared: FloatArray = np.einsum("ij,ij->i", difference, difference)
    return squared


def kmeans(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int = 5,
    weights: FloatArray | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> KMeansResult:
    """Best of `n_init` runs of Lloyd's iteration from k-means++ seeds, by inertia (first wins a tie).

    Parameters are those of `kmeans_plus_plus` and `lloyd`; raises ValueError like the former, and if
    `n_init` is below 1.
    """
    if n_init < 1:
        raise ValueError(f"n_init: expected at least 1, got {n_init}")
    runs = (
        lloyd(X, kmeans_plus_plus(X, k, rng, weights=weights), weights=weights, max_iter=max_iter, tol=tol)
        for _ in range(n_init)
    )
    return min(runs, key=lambda run: run.inertia)


def dissolved(
    X: FloatArray, centers: FloatArray, labels: IntArray, min_count: float
) -> tuple[FloatArray, IntArray]:
    """Give up clusters of too few rows, the smallest first, and iterate again from the other centres.

    Parameters
    ----------
    X : array of shape (n, d), n >= 1
    centers : array of shape (k, d)
    labels : int array of shape (n,)
    min_count : float
        Least rows of a cluster; the last one stays whatever it has.

    Returns
    -------
    centers, labels
        Of the clusters that are left.
    """
    while True:
        counts = np.bincount(labels, minlength=len(centers))
        smallest = int(np.argmin(counts))
        if counts[smallest] >= min_count or len(centers) == 1:
            return centers, labels
        again = lloyd(X, np.delete(centers, smallest, axis=0))
        centers, labels = again.centers, again.labels
