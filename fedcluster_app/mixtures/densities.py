"""Log-densities and responsibilities of a Gaussian mixture, in the log domain throughout."""

from __future__ import annotations

import numpy as np

from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray


def log_densities(X: FloatArray, mixture: Mixture) -> FloatArray:
    """Log-density of every row under every component, without the weights.

    Parameters
    ----------
    X : array of shape (n, d)
    mixture : Mixture with k components in d dimensions

    Returns
    -------
    array of shape (n, k)
        log N(x_i; m_k, S_k) = -(d log 2π + log det S_k + (x_i - m_k)ᵀ S_k⁻¹ (x_i - m_k)) / 2.

    Notes
    -----
    **Source**: the normal density; full matrices through the inverse of their Cholesky factor, as in
    scikit-learn's ``GaussianMixture``. Cost O(n k d), for full matrices O(n k d²).
    """
    result, log_det = _MAHALANOBIS[mixture.kind](X, mixture.means, mixture.covariances)
    result += mixture.n_features * np.log(2.0 * np.pi) + log_det
    result *= -0.5
    return result


def log_joint(X: FloatArray, mixture: Mixture) -> FloatArray:
    """Log of weight times density, shape (n, k); -inf for components of weight 0."""
    joint = log_densities(X, mixture)
    with np.errstate(divide="ignore"):
        joint += np.log(mixture.weights)
    return joint


def logsumexp(a: FloatArray, axis: int = -1) -> FloatArray:
    """Log of the sum of exponentials along an axis, safe against overflow.

    Parameters
    ----------
    a : array
        May hold -inf; a slice of nothing but -inf gives -inf.
    axis : int
        The axis that disappears.
    """
    peak = a.max(axis=axis, keepdims=True)
    peak[np.isneginf(peak)] = 0.0
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(np.exp(a - peak).sum(axis=axis)) + peak.squeeze(axis)
    return total


def responsibilities(X: FloatArray, mixture: Mixture) -> tuple[FloatArray, FloatArray]:
    """Posterior probability of each component for each row (the E step).

    Parameters
    ----------
    X : array of shape (n, d)
    mixture : Mixture with k components in d dimensions

    Returns
    -------
    R : array of shape (n, k)
        Softmax of the log joint; rows sum to 1.
    log_likelihood : array of shape (n,)
        Log-density of each row under the whole mixture.

    Notes
    -----
    **Source**: Bishop, Pattern Recognition and Machine Learning (2006), equation 9.23.
    """
    joint = log_joint(X, mixture)
    log_likelihood = logsumexp(joint, axis=1)
    return np.exp(joint - log_likelihood[:, None]), log_likelihood


def _spherical(X: FloatArray, means: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    mahalanobis = squared_distances(X, means)
    mahalanobis /= variances
    return mahalanobis, means.shape[1] * np.log(variances)


def _diagonal(X: FloatArray, means: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    mahalanobis = np.empty((X.shape[0], means.shape[0]))
    scales = 1.0 / np.sqrt(variances)
    for j, (mean, scale) in enumerate(zip(means, scales, strict=True)):
        white = X - mean
        white *= scale
        mahalanobis[:, j] = np.einsum("ij,ij->i", white, white)
    return mahalanobis, np.log(variances).sum(axis=1)


def _full(X: FloatArray, means: FloatArray, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
    mahalanobis = np.empty((X.shape[0], means.shape[0]))
    factors = np.linalg.cholesky(covariances)
    for j, (mean, whitener) in enumerate(zip(means, np.linalg.inv(factors), strict=True)):
        white = (X - mean) @ whitener.T
        mahalanobis[:, j] = np.einsum("ij,ij->i", white, white)
    return mahalanobis, 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)


# Squared Mahalanobis distances (n, k) and log determinants (k,) by kind of covariance.
_MAHALANOBIS = {"spherical": _spherical, "diagonal": _diagonal, "full": _full}
