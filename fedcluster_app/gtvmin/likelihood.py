"""Negative log-likelihood of weighted rows with its gradient in all blocks, all components in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.mixtures.types import FloatArray

_LOG_2PI = float(np.log(2.0 * np.pi))
# Entries of one block of whitened rows: small enough for the cache, large enough to hide the calls.
_BLOCK = 1 << 15


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """Negative log-likelihood at a point.

    Attributes
    ----------
    value : float
    gradient : Blocks
    mass : array of shape (k,)
        Weighted responsibilities, summed over the rows.
    log_likelihood : array of shape (n,)
        Log-density of every row under the mixture.
    """

    value: float
    gradient: Blocks
    mass: FloatArray
    log_likelihood: FloatArray


def fit_of(theta: Blocks, rows: FloatArray, row_weights: FloatArray) -> Fit:
    """Value and gradient of -sum_r w_r ln p(x_r).

    Parameters
    ----------
    theta : Blocks
        k components in d dimensions; weights > 0, covariances positive definite.
    rows : array of shape (d, n)
        Transposed: long contiguous axes are what makes this fast for few features.
    row_weights : array of shape (n,)

    Returns
    -------
    Fit

    Notes
    -----
    **Source**: gradient of the mixture's log-density in whitened form, y = L⁻¹ (x - mu) with Sigma = L Lᵀ:
    -N / pi; -L⁻ᵀ sum w g y; ½ L⁻ᵀ (N I - sum w g y yᵀ) L⁻¹, with responsibilities g and N = sum w g. The
    entries of pi and Sigma count as free numbers (see `Blocks`). A row far from every component has
    responsibilities all the same, since they are made in the log domain. Cost O(n k d²).
    """
    k, d = theta.means.shape
    whiteners, log_dets = factors(theta.covariances)
    mass, first, second = np.zeros(k), np.zeros((k, d, 1)), np.zeros((k, d, d))
    log_likelihood = np.empty(len(row_weights))
    step = max(1, _BLOCK // (k * d))
    for start in range(0, len(row_weights), step):
        part = slice(start, start + step)
        white = whiteners @ (rows[:, part] - theta.means[:, :, None])
        R, log_likelihood[part] = _posterior(weighted_log_densities(theta.weights, white, log_dets))
        R *= row_weights[part]
        mass += R.sum(axis=1)
        first += white @ R[:, :, None]
        second += (white * R[:, None, :]) @ white.transpose(0, 2, 1)
    back = whiteners.transpose(0, 2, 1)
    gradient = Blocks(
        -mass / theta.weights,
        -(back @ first)[:, :, 0],
        0.5 * (back @ (mass[:, None, None] * np.eye(d) - second) @ whiteners),
    )
    return Fit(-float(row_weights @ log_likelihood), gradient, mass, log_likelihood)


def factors(covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse Cholesky factors (..., d, d) of matrices and the log determinants (...) of the matrices."""
    lower = np.linalg.cholesky(covariances)
    log_dets: FloatArray = 2.0 * np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.linalg.inv(lower), log_dets


def weighted_log_densities(weights: FloatArray, white: FloatArray, log_dets: FloatArray) -> FloatArray:
    """Log of weight times density (..., k, n) of whitened deviations (..., k, d, n)."""
    constants = np.log(weights) - 0.5 * (log_dets + white.shape[-2] * _LOG_2PI)
    joint: FloatArray = np.square(white).sum(axis=-2)
    joint *= -0.5
    joint += constants[..., None]
    return joint


def _posterior(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Responsibilities (k, n) and log-densities (n,) of the log joint, which is overwritten."""
    peak = joint.max(axis=0)
    joint -= peak
    density = np.exp(joint, out=joint)
    total = density.sum(axis=0)
    density /= total
    return density, np.log(total) + peak
