"""Squared Euclidean distances that survive large offsets and near-coincident points."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.types import FloatArray, IntArray

# Below this share of |x|² + |y|² the expansion has lost about six of its sixteen digits.
_CANCELLED = 1e-6
# Entries that are worked on at a time: 1 MB, which stays in the cache.
_BLOCK = 1 << 17


def squared_distances(X: FloatArray, Y: FloatArray) -> FloatArray:
    """Squared Euclidean distance between every row of `X` and every row of `Y`.

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (k, d), k >= 1

    Returns
    -------
    array of shape (n, k)
        Never negative, exactly 0 for equal rows, relative error about 1e-9 or better.

    Notes
    -----
    **Source**: |x - y|² = |x|² - 2 x·y + |y|², one matrix product (as scikit-learn's
    ``euclidean_distances``). Two deviations keep its digits: both sides are first centred on the mean
    of `Y`, so that a common offset does not cancel, and the few entries that still cancel are
    recomputed from the differences. Cost O(n k d).
    """
    origin = Y.mean(axis=0)
    Xc, Yc = X - origin, Y - origin
    x, y = np.einsum("ij,ij->i", Xc, Xc)[:, None], np.einsum("ij,ij->i", Yc, Yc)
    products = -2.0 * Yc.T
    squared: FloatArray = np.empty((len(X), len(Y)))
    step = max(1, _BLOCK // len(Y))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        block = np.matmul(Xc[rows], products, out=squared[rows])
        scale = x[rows] + y
        block += scale
        scale *= _CANCELLED
        _recompute(block, np.flatnonzero(block <= scale), X[rows], Y)
    return squared


def _recompute(squared: FloatArray, entries: IntArray, X: FloatArray, Y: FloatArray) -> None:
    """Set some entries, numbered along the rows, of squared distances (n, k) from the differences."""
    step = max(1, _BLOCK // X.shape[1])
    for start in range(0, len(entries), step):
        i, j = np.divmod(entries[start : start + step], len(Y))
        difference = X[i] - Y[j]
        squared[i, j] = np.einsum("ij,ij->i", difference, difference)
