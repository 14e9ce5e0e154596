"""Scores of one mixture: how many components it really uses, and how far its means are from the truth."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.types import FloatArray


def effective_components(weights: FloatArray) -> float:
    """Exponential of the entropy of the weights.

    Parameters
    ----------
    weights : array of shape (k,)
        Not negative, summing to 1; weights of 0 do not count.

    Returns
    -------
    float from 1 to k
        k for equal weights, 1 if one component has all the weight.

    Notes
    -----
    **Source**: the perplexity; arXiv:2609.19202 reports it as K_eff.
    """
    present = weights[weights > 0]
    return float(np.exp(-(present @ np.log(present))))


def center_error(means: FloatArray, truth: FloatArray) -> float:
    """Mean Euclidean distance between means and true means, matched so that it is least.

    Parameters
    ----------
    means : array of shape (k, d), k >= 1
    truth : array of shape (k', d), k' >= 1
        Where the counts differ, the means that are left over on the larger side are not looked at: the count
        is another score.

    Returns
    -------
    float, >= 0
        Independent of the order on either side.

    Raises
    ------
    ValueError
        If the numbers of features differ.

    Notes
    -----
    **Source**: arXiv:2609.19202, mean error (the Hungarian method on distances, not on their squares). Cost
    O(k k' d + k³).
    """
    from scipy.optimize import linear_sum_assignment

    if means.shape[1] != truth.shape[1]:
        raise ValueError(f"means: expected {truth.shape[1]} features as in the truth, got {means.shape[1]}")
    distances = np.linalg.norm(means[:, None] - truth, axis=2)
    return float(distances[linear_sum_assignment(distances)].mean())
