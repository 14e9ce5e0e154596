"""Which rows stand behind sums that may be seen: of every component none or enough, never a few missing."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.kmeans import lloyd
from fedcluster_app.mixtures.types import FloatArray, IntArray

# A count that misses the least one by rounding is enough.
NEARLY = 1e-6
# Multiples of it, taken modulo 1, are spread evenly however many there are.
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def released(R: FloatArray, min_count: float) -> FloatArray:
    """Responsibilities whose sums over the rows others may know.

    A component of less mass than `min_count` is left out; its rows are not given to others, which it would
    widen. But all rows of a site are known as one summary, and a few that are missing from its sums could be
    had as the difference: where fewer than `min_count` would be missing, other rows are left out with them,
    spread over the table. Masses are soft, they bound effective and not distinct rows.

    Parameters
    ----------
    R : array of shape (n, k)
        Responsibilities; rows may sum to less than 1.
    min_count : float, >= 0

    Returns
    -------
    array of shape (n, k)
        With columns of components and rows that are left out all 0.
    """
    n, least = len(R), min_count - NEARLY
    seen = R.sum(axis=0) >= least
    missing = n - R[:, seen].sum()
    if seen.any() and NEARLY < missing < least:
        R = R.copy()
        order = np.argsort(np.arange(n) * _GOLDEN % 1.0, kind="stable")
    while seen.any() and NEARLY < missing < least:
        gone = missing + np.cumsum(R[order][:, seen].sum(axis=1))
        R[order[: np.searchsorted(gone, least) + 1]] = 0.0
        seen &= R.sum(axis=0) >= least
        missing = n - R[:, seen].sum()
    return np.where(seen, R, 0.0)


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
