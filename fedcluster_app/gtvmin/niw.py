"""Evidence of Gaussian summaries under a normal-inverse-Wishart prior, in closed form and batched.

A summary of rows is kept as its moment matrix, the sum of (1, x)(1, x)ᵀ with shape (d + 1, d + 1): the count
in the corner, the sum of the rows beside it, their raw second moments below. Summaries then add and scale as
arrays, and everything a Gaussian says about them is one inner product. Raw moments lose digits far from the
origin, so a caller centres its rows first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray

_LOG_2, _LOG_PI = float(np.log(2.0)), float(np.log(np.pi))
# Least and largest prior weight of the mean, in rows.
_KAPPA_RANGE = (1e-3, 1.0)


@dataclass(frozen=True, eq=False, slots=True)
class Prior:
    """Normal-inverse-Wishart law of a component: mu | S ~ N(0, S / kappa), S ~ IW(psi, nu).

    Attributes
    ----------
    kappa : array of shape (...)
        Positive.
    nu : array of shape (...)
        More than d - 1.
    psi : array of shape (..., d, d)
        Symmetric positive definite.
    """

    kappa: FloatArray
    nu: FloatArray
    psi: FloatArray


def prior_of(within: FloatArray, strength: FloatArray, spread: float) -> Prior:
    """Prior whose mean covariance is a given matrix.

    Parameters
    ----------
    within : array of shape (..., d, d)
        Covariance of the rows of a component, W.
    strength : array of shape (...)
        How many rows W counts for, s > 0.
    spread : float, > 0
        Trace of the covariance of all rows of the site.

    Returns
    -------
    Prior
        psi = s W, nu = d + 1 + s, kappa = tr W over the spread, within 0.001 and 1: then the means vary by
        about as much as the site's rows.
    """
    d = within.shape[-1]
    kappa = np.clip(np.trace(within, axis1=-2, axis2=-1) / spread, *_KAPPA_RANGE)
    kappa = np.broadcast_to(kappa, strength.shape)
    return Prior(kappa, d + 1.0 + strength, strength[..., None, None] * within)


def row_moments(X: FloatArray) -> FloatArray:
    """Moment matrix (n, d + 1, d + 1) of every row of an array (n, d)."""
    augmented = np.concatenate([np.ones((len(X), 1)), X], axis=1)
    moments: FloatArray = augmented[:, :, None] * augmented[:, None, :]
    return moments


def moments_of(counts: FloatArray, means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Moment matrices of summaries.

    Parameters
    ----------
    counts : array of shape (k,)
        Non-negative.
    means : array of shape (k, d)
    covariances : array of shape (k, d, d)
        With the count as divisor.

    Returns
    -------
    array of shape (k, d + 1, d + 1)
    """
    moments = row_moments(means)
    moments[:, 1:, 1:] += covariances
    return counts[:, None, None] * moments


def summaries_of(moments: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return counts (...), means (..., d), covariances (..., d, d) of moment matrices; 0 without rows."""
    counts = moments[..., 0, 0]
    divisor = np.where(counts > 0, counts, 1.0)
    means = moments[..., 0, 1:] / divisor[..., None]
    covariances = moments[..., 1:, 1:] / divisor[..., None, None] - means[..., :, None] * means[..., None, :]
    return counts, means, covariances


def log_evidence(moments: FloatArray, prior: Prior) -> FloatArray:
    """Log of the marginal density of rows, all of one Gaussian, given only their moment matrix.

    Parameters
    ----------
    moments : array of shape (..., d + 1, d + 1)
        Of any number of rows, also a fraction or none (log evidence 0).
    prior : Prior
        Its leading axes are the first ones of the moments; the rest is broadcast.

    Returns
    -------
    array of shape (...)

    Notes
    -----
    **Source**: Murphy, Machine Learning: A Probabilistic Perspective (2012), equation 4.214 and section
    4.6.3.2: with n rows, kappa' = kappa + n, nu' = nu + n and psi' = psi + scatter about 0 minus
    (sum x)(sum x)ᵀ / kappa', -(n d / 2) ln π + ln Γ_d(nu'/2) - ln Γ_d(nu/2) + (nu/2) ln |psi| -
    (nu'/2) ln |psi'| + (d/2) ln(kappa / kappa'). The determinant of psi' is that of diag(kappa, psi) plus the
    moment matrix, over kappa'. Its pivots cannot be below those of the prior, which they are held to: that
    is exact, and mends the rounding of moments that were subtracted. Cost O(d³) each.
    """
    d = prior.psi.shape[-1]
    free = (1,) * (moments.ndim - 2 - prior.kappa.ndim)
    kappa0, nu0 = prior.kappa.reshape(prior.kappa.shape + free), prior.nu.reshape(prior.nu.shape + free)
    base = np.zeros((*kappa0.shape, d + 1, d + 1))
    base[..., 0, 0] = kappa0
    base[..., 1:, 1:] = prior.psi.reshape(*kappa0.shape, d, d)
    floors = _pivots(base)
    count = moments[..., 0, 0]
    logs, base_logs = np.log(_pivots(base + moments, floors)), np.log(floors)
    result: FloatArray = log_gamma_ratio(nu0, count, d) - 0.5 * d * _LOG_PI * count
    result += 0.5 * nu0 * base_logs[1:].sum(axis=0) - 0.5 * (nu0 + count) * logs[1:].sum(axis=0)
    result += 0.5 * d * (base_logs[0] - logs[0])
    return result


def log_bayes_factor(first: FloatArray, second: FloatArray, prior: Prior) -> FloatArray:
    """Log of the odds that two summaries are of one Gaussian and not of two; shapes as in `log_evidence`."""
    apart = log_evidence(first, prior) + log_evidence(second, prior)
    factor: FloatArray = log_evidence(first + second, prior) - apart
    return factor


def log_predictive(added: FloatArray, known: FloatArray, prior: Prior) -> FloatArray:
    """Log density of a whole summary given another of the same Gaussian; shapes as in `log_evidence`."""
    predictive: FloatArray = log_evidence(known + added, prior) - log_evidence(known, prior)
    return predictive


def log_gamma_ratio(nu: FloatArray, count: FloatArray, d: int) -> FloatArray:
    """Compute ln Γ_d((nu + count) / 2) - ln Γ_d(nu / 2) for the multivariate gamma function.

    Notes
    -----
    **Source**: the product formula of Γ_d, its factors taken in pairs by Legendre's duplication formula
    Γ(z) Γ(z + 1/2) = 2^(1 - 2z) √π Γ(2z): half the evaluations.
    """
    return _log_gamma(nu + count, d) - _log_gamma(nu, d)


def _log_gamma(nu: FloatArray, d: int) -> FloatArray:
    """Sum over a < d of ln Γ((nu - a) / 2), up to a constant of d."""
    from scipy.special import gammaln

    total: FloatArray = np.zeros_like(nu)
    for a in range(0, d - 1, 2):
        total = total + gammaln(nu - a - 1.0) - nu * _LOG_2
    if d % 2:
        total = total + gammaln(0.5 * (nu - d + 1.0))
    return total


def _pivots(matrices: FloatArray, floors: FloatArray | None = None) -> FloatArray:
    """Return the pivots (d, ...) of symmetric matrices (..., d, d), held to floors of the same kind.

    Elimination without a library call: one batch of small matrices is a few long vectors here.
    """
    order = (matrices.ndim - 2, matrices.ndim - 1, *range(matrices.ndim - 2))
    A = np.array(matrices.transpose(order), order="C")
    for j in range(len(A)):
        if floors is not None:
            np.maximum(A[j, j], floors[j], out=A[j, j, ...])
        if j + 1 < len(A):
            column = A[j + 1 :, j]
            A[j + 1 :, j + 1 :] -= (column / A[j, j])[:, None] * column
    pivots: FloatArray = np.einsum("jj...->j...", A)
    return pivots
