"""Weighted k-means: plain k-means++ seeding and Lloyd's iteration, seeded by a Generator.

Several runs on the same rows go side by side, each to the very result that it has alone.
"""

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
    seeds: FloatArray = _seeds(X, k, 1, rng, weights)[0]
    return seeds


def _seeds(
    X: FloatArray, k: int, runs: int, rng: np.random.Generator, weights: FloatArray | None
) -> FloatArray:
    """Draw centres (runs, k, d); the uniform numbers of one run come before those of the next."""
    if runs < 1:
        raise ValueError(f"n_init: expected at least 1, got {runs}")
    n = X.shape[0]
    mass = np.ones(n) if weights is None else weights
    available = int(np.count_nonzero(mass > 0))
    if not 1 <= k <= available:
        raise ValueError(f"k: expected 1 to {available} (rows of positive weight), got {k}")
    uniform = rng.random((runs, k))
    chosen, nearest = np.empty((runs, k), dtype=np.int64), np.ones((runs, n))
    for j in range(k):
        cumulative = (mass * nearest).cumsum(axis=1)
        for run in np.flatnonzero(cumulative[:, -1] == 0.0):
            left = mass.astype(np.float64)
            left[chosen[run, :j]] = 0.0
            cumulative[run] = left.cumsum()
        # The drawn row is the first whose sum is above the drawn share: never one of odds 0.
        share = uniform[:, j, None] * cumulative[:, -1:]
        chosen[:, j] = (cumulative <= share).sum(axis=1)
        difference = X - X[chosen[:, j], None]
        squared = np.einsum("rij,rij->ri", difference, difference)
        nearest = squared if j == 0 else np.minimum(nearest, squared)
    return X[chosen]


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
    return _lloyd(X, centers[None], weights, max_iter, tol)[0]


def _lloyd(
    X: FloatArray, starts: FloatArray, weights: FloatArray | None, max_iter: int = 300, tol: float = 1e-4
) -> list[KMeansResult]:
    """Lloyd's iteration from starts (runs, k, d); a run that is over leaves the batch."""
    mass = np.ones(X.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
    origin = mass @ X / mass.sum()
    Xc, current = X - origin, starts - origin
    columns = np.vstack([(mass[:, None] * Xc).T, mass])
    threshold = tol * float((mass @ np.square(Xc) / mass.sum()).mean())
    labels = np.full((len(starts), X.shape[0]), -1, dtype=np.int64)
    running, results, n_iter = np.arange(len(starts)), {}, 0
    while running.size:
        n_iter += 1
        previous, before = labels, current
        labels = _nearest(Xc, before)
        current = _update(Xc, columns, labels, before)
        stable = (labels == previous).all(axis=1)
        converged = stable | (np.square(current - before).sum(axis=(1, 2)) <= threshold)
        over = converged if n_iter < max_iter else np.ones_like(converged)
        for at in np.flatnonzero(over):
            centers, settled = current[at], bool(converged[at])
            own = labels[at] if stable[at] else _nearest(Xc, centers[None])[0]
            inertia = float(mass @ _own_squared(Xc, centers, own))
            results[running[at]] = KMeansResult(centers + origin, own, inertia, n_iter, settled)
        if over.any():
            running, labels, current = running[~over], labels[~over], current[~over]
    return [results[run] for run in range(len(starts))]


def _nearest(X: FloatArray, centers: FloatArray) -> IntArray:
    """Index (runs, n) of the nearest of the centres (runs, k, d); |x|² is the same for all and left out."""
    (runs, k, d), n = centers.shape, X.shape[0]
    labels = np.empty((runs, n), dtype=np.int64)
    slopes, offsets = -2.0 * centers.reshape(-1, d).T, np.einsum("rij,rij->ri", centers, centers).ravel()
    block = max(1, _BLOCK // (runs * k))
    for start in range(0, n, block):
        scores = X[start : start + block] @ slopes
        scores += offsets
        labels[:, start : start + block] = scores.reshape(-1, runs, k).argmin(axis=2).T
    return labels


def _update(X: FloatArray, columns: FloatArray, labels: IntArray, centers: FloatArray) -> FloatArray:
    """Weighted means of the clusters; an empty cluster takes the row farthest from its centre.

    `columns` (d + 1, n) is weights times X and the weights, one contiguous row each: a bincount over it is
    several times faster than a product with the (n, k) membership matrix.
    """
    totals = _totals(columns, labels, centers.shape[1])
    for run in np.flatnonzero((totals[-1] == 0).any(axis=1)):
        empty = np.flatnonzero(totals[-1, run] == 0)
        filled = _refill(X, columns[-1], labels[run], centers[run], empty)
        totals[:, [run]] = _totals(columns, filled[None], centers.shape[1])
    mass = totals[-1, :, :, None]
    means: FloatArray = np.where(
        mass > 0, np.moveaxis(totals[:-1], 0, 2) / np.where(mass > 0, mass, 1.0), centers
    )
    return means


def _totals(columns: FloatArray, labels: IntArray, k: int) -> FloatArray:
    """Add up (d + 1, runs, k), by run and cluster, the columns."""
    runs = len(labels)
    places = (labels + k * np.arange(runs)[:, None]).ravel()
    sums = [np.bincount(places, weights=np.tile(one, runs), minlength=runs * k) for one in columns]
    return np.array(sums, dtype=np.float64).reshape(len(columns), runs, k)


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
    runs = _lloyd(X, _seeds(X, k, n_init, rng, weights), weights, max_iter, tol)
    return min(runs, key=lambda run: run.inertia)


def kmeans_runs(
    X: FloatArray, k: int, rng: np.random.Generator, *, n_init: int, weights: FloatArray | None = None
) -> list[KMeansResult]:
    """All the runs of which `kmeans`, told no more than this, takes the best."""
    return _lloyd(X, _seeds(X, k, n_init, rng, weights), weights)
