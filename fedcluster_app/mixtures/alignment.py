"""Which component of one site is which of another: the assignment of least squared distance."""

from __future__ import annotations

from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray


def matched(means: FloatArray, reference: FloatArray) -> IntArray:
    """Partner of every mean among the reference means, no two with the same.

    Parameters
    ----------
    means : array of shape (c, d), c <= k
    reference : array of shape (k, d)

    Returns
    -------
    int array of shape (c,)
        Positions in `reference`; the sum of squared distances to the partners is the least possible.

    Notes
    -----
    **Source**: Kuhn, The Hungarian method for the assignment problem (1955). Cost O(c k d + c² k).
    """
    from scipy.optimize import linear_sum_assignment

    partners: IntArray = linear_sum_assignment(squared_distances(means, reference))[1]
    return partners
