"""Agreement of two labelings, from counts alone, so that the tables of several sites add up."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedcluster_app.mixtures.types import FloatArray, IntArray


def contingency_table(a: ArrayLike, b: ArrayLike, *, shape: tuple[int, int] | None = None) -> IntArray:
    """Count the rows in every pair of labels.

    Parameters
    ----------
    a, b : arrays of shape (n,)
        Labels of the same rows, of any sortable type.
    shape : (ra, cb), optional
        Then labels are integers and label l counts in row (column) l, so that tables of different sites
        can be added. By default the labels that occur, in sorted order.

    Returns
    -------
    int array of shape (ra, cb)

    Raises
    ------
    ValueError
        If the labelings differ in length or, with `shape`, a label is out of range.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"labels: expected two arrays of shape (n,), got {a.shape} and {b.shape}")
    if shape is None:
        values_a, a = np.unique(a, return_inverse=True)
        values_b, b = np.unique(b, return_inverse=True)
        shape = (values_a.size, values_b.size)
    else:
        for name, labels, size in (("a", a, shape[0]), ("b", b, shape[1])):
            if labels.size and not 0 <= labels.min() <= labels.max() < size:
                raise ValueError(
                    f"{name}: expected labels 0 to {size - 1}, got {labels.min()} to {labels.max()}"
                )
    flat = a.astype(np.int64) * shape[1] + b.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).astype(np.int64, copy=False).reshape(shape)


def adjusted_rand_index(table: IntArray) -> float:
    """Rand index of two labelings, corrected for chance.

    Parameters
    ----------
    table : int array of shape (ra, cb)
        Contingency counts; empty rows and columns change nothing.

    Returns
    -------
    float
        1 for equal partitions (also when there is nothing to compare), near 0 by chance, at least -0.5.

    Notes
    -----
    **Source**: Hubert and Arabie, Comparing partitions, Journal of Classification 2 (1985), in the pair
    counts of scikit-learn's ``adjusted_rand_score``. Exact integers up to the one division.
    """
    n = int(table.sum())
    # Python integers: the products of pair counts outgrow 64 bits from about 50,000 rows.
    both = int(np.square(table).sum()) - n
    only_b = int(np.square(table.sum(axis=0)).sum()) - n - both
    only_a = int(np.square(table.sum(axis=1)).sum()) - n - both
    neither = n * n - n - both - only_a - only_b
    if only_a == 0 and only_b == 0:
        return 1.0
    chance = (both + only_a) * (only_a + neither) + (both + only_b) * (only_b + neither)
    return 2 * (both * neither - only_a * only_b) / chance


def normalized_mutual_info(table: IntArray) -> float:
    """Mutual information of two labelings over the arithmetic mean of their entropies.

    Parameters
    ----------
    table : int array of shape (ra, cb)
        Contingency counts; empty rows and columns change nothing.

    Returns
    -------
    float in [0, 1]
        1 if both labelings have one cluster (or there is nothing to compare), 0 if only one has.

    Notes
    -----
    **Source**: Strehl and Ghosh, JMLR 3 (2002), with the arithmetic mean of scikit-learn's
    ``normalized_mutual_info_score``.
    """
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    split_a, split_b = np.count_nonzero(rows) > 1, np.count_nonzero(columns) > 1
    if not (split_a and split_b):
        return 0.0 if split_a or split_b else 1.0
    i, j = np.nonzero(table)
    n, counts = float(table.sum()), table[i, j]
    # Terms within rounding of 0 are dropped, so that independent labelings give 0 and not 1e-17.
    terms = counts / n * (np.log(counts / rows[i]) + np.log(n / columns[j]))
    terms[np.abs(terms) < np.finfo(np.float64).eps] = 0.0
    information = max(0.0, float(terms.sum()))
    return min(1.0, 2.0 * information / (_entropy(rows / n) + _entropy(columns / n)))


def _entropy(shares: FloatArray) -> float:
    present = shares[shares > 0]
    return -float(present @ np.log(present))
