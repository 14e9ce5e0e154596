"""Which rows may part from each other, where sums over clusters are sent in several rounds."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.types import IntArray


def together(labels: IntArray, groups: IntArray, min_count: int) -> tuple[IntArray, IntArray]:
    """Keep rows together that would part from their group in smaller numbers than `min_count`.

    Whoever sees the sums of two rounds sees their difference: of the rows that changed their clusters. With
    this every sum, and every difference of sums of any rounds, is one of whole groups.

    Parameters
    ----------
    labels : (n,) int array
        Cluster of every row in this round, or -1 if it is in none of the sums.
    groups : (n,) int array
        Groups of rows that were in one cluster in every round so far; all 0 before the first, when what is
        known are the moments of all rows.
    min_count : int, >= 1
        Groups have no fewer rows, if all rows are as many.

    Returns
    -------
    labels : (n,) int array
        The same, but rows that are too few to part have the label of most of their group.
    groups : (n,) int array
        Groups after this round.

    Notes
    -----
    **Source**: ours.
    """
    labels = labels.copy()
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        counts = np.bincount(labels[rows] + 1)
        few = counts < min_count
        labels[rows[few[labels[rows] + 1]]] = counts.argmax() - 1
    return labels, np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)[1].reshape(-1)
