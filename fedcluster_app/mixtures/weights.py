"""The mixing weights of one site where the clusters are given: EM on weights alone."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.densities import logsumexp
from fedcluster_app.mixtures.types import FloatArray


def site_weights(
    log_densities: FloatArray, start: FloatArray, *, max_iter: int = 100, tol: float = 1e-6
) -> FloatArray:
    """Fit a site's mixing weights to its own rows, clusters fixed.

    Parameters
    ----------
    log_densities : array of shape (n, K)
        Log-density of every row under every cluster, weights left out; n may be 0.
    start : array of shape (K,)
        Weights to start from, summing to 1; a weight of 0 stays 0.
    max_iter
        Most steps.
    tol
        Stop when the mean log-likelihood per row rose by less than this.

    Returns
    -------
    array of shape (K,)
        Weights, summing to 1; the start where there is no row.

    Notes
    -----
    **Source**: EM for the weights of a mixture (Bishop, Pattern Recognition and Machine Learning, 2006,
    equation 9.26). The likelihood is concave in the weights and never falls, so any start without zeros
    leads to the same weights. Cost O(n K) per step.
    """
    weights = np.array(start, dtype=np.float64)
    if not len(log_densities):
        return weights
    before = -np.inf
    for _ in range(max_iter):
        with np.errstate(divide="ignore"):
            joint = log_densities + np.log(weights)
        total = logsumexp(joint, axis=1)
        if total.mean() - before < tol:
            break
        before = float(total.mean())
        weights = np.exp(joint - total[:, None]).mean(axis=0)
        weights /= weights.sum()
    return weights
