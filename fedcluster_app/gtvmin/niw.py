"""Evidence of Gaussian summaries under a normal-inverse-Wishart prior, in closed form and batched.

A summary of rows is kept as its moment matrix, the sum of (1, x)(1, x)ᵀ with shape (d + 1, d + 1): the count
in the corner, the sum of the rows beside it, their raw second moments below. Summaries then add and scale as
arrays, and everything a Gaussian says about them is one inner product. Raw moments lose digits far from the
origin, so a caller centres its rows first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray, IntArray

_LOG_2, _LOG_PI = float(np.log(2.0)), float(np.log(np.pi))
# Least and largest prior weight of the mean, in rows.
_KAPPA_RANGE = (1e-3, 1.0)
_BEFORE_AND_AFTER = np.array([0.0, 1.0])[:, None, None]


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


def prior_of(within: FloatArray, strength: FloatArray, spread: float | FloatArray) -> Prior:
    """Prior whose mean covariance is a given matrix.

    Parameters
    ----------
    within : array of shape (..., d, d)
        Covariance of the rows of a component, W.
    strength : array of shape (...)
        How many rows W counts for, s > 0.
    spread : float or array of shape (...), > 0
        Trace of the covariance of all rows of the site.

    Returns
    -------
    Prior
        psi = s W, nu = d + 1 + s, kappa = tr W over the spread, within 0.001 and 1: then the means vary by
        about as much as the site's rows.
    """
    d = within.shape[-1]
    share = np.einsum("...ii->...", within) / spread
    kappa = np.broadcast_to(np.minimum(np.maximum(share, _KAPPA_RANGE[0]), _KAPPA_RANGE[1]), strength.shape)
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
    base, nu = _base(prior, moments.ndim - 2)
    floors = _pivots(base)
    evidence: FloatArray = _log_integral(_pivots(base + moments, floors), nu, moments[..., 0, 0])
    evidence -= _log_integral(floors, nu, np.zeros(()))
    return evidence


def log_bayes_factor(first: FloatArray, second: FloatArray, prior: Prior) -> FloatArray:
    """Log of the odds that two summaries are of one Gaussian and not of two; shapes as in `log_evidence`."""
    apart = log_evidence(first, prior) + log_evidence(second, prior)
    factor: FloatArray = log_evidence(first + second, prior) - apart
    return factor


def log_predictive(
    added: FloatArray, known: FloatArray, prior: Prior, which: IntArray | None = None
) -> FloatArray:
    """Log density of a whole summary given another of the same Gaussian; shapes as in `log_evidence`.

    With ``which``, the prior of each summary has this place in a list of priors.
    """
    # The prior's own integral cancels; one call for the others, as in small batches the calls take the time.
    both = known[..., None, :, :] + _BEFORE_AND_AFTER * added[..., None, :, :]
    base, nu = _base(prior, both.ndim - 2)
    floors = _pivots(base)
    if which is not None:
        base, nu, floors = base[which], nu[which], floors[:, which]
    integrals = _log_integral(_pivots(base + both, floors), nu, both[..., 0, 0])
    predictive: FloatArray = integrals[..., 1] - integrals[..., 0]
    return predictive


def log_gamma(nu: FloatArray, d: int) -> FloatArray:
    """Compute ln Γ_d(nu / 2) of the multivariate gamma function, up to a constant of d.

    Notes
    -----
    **Source**: the product formula of Γ_d, its factors taken in pairs by Legendre's duplication formula
    Γ(z) Γ(z + 1/2) = 2^(1 - 2z) √π Γ(2z): half the evaluations.
    """
    from scipy.special import gammaln

    total: FloatArray = gammaln(0.5 * (nu - d + 1.0)) if d % 2 else np.zeros(())
    for a in range(0, d - 1, 2):
        total = total + (gammaln(nu - a - 1.0) - _LOG_2 * nu)
    return total


def _base(prior: Prior, axes: int) -> tuple[FloatArray, FloatArray]:
    """Matrices diag(kappa, psi) and nu, with so many leading axes that they broadcast to moments."""
    d, shape = prior.psi.shape[-1], prior.kappa.shape + (1,) * (axes - prior.kappa.ndim)
    base = np.zeros((*shape, d + 1, d + 1))
    base[..., 0, 0] = prior.kappa.reshape(shape)
    base[..., 1:, 1:] = prior.psi.reshape(*shape, d, d)
    return base, prior.nu.reshape(shape)


def _log_integral(pivots: FloatArray, nu: FloatArray, count: FloatArray) -> FloatArray:
    """Log of the integral of likelihood times prior without its constant, from the pivots of both."""
    logs, d = np.log(pivots), len(pivots) - 1
    integral: FloatArray = log_gamma(nu + count, d) - 0.5 * (nu + count) * logs[1:].sum(axis=0)
    integral -= 0.5 * d * (logs[0] + _LOG_PI * count)
    return integral


def _pivots(matrices: FloatArray, floors: FloatArray | None = None) -> FloatArray:
    """Return the pivots (d, ...) of symmetric matrices (..., d, d), held to floors of the same kind.

    Elimination without a library call: one batch of small matrices is a few long vectors here.
    """
    order = (matrices.ndim - 2, matrices.ndim - 1, *range(matrices.ndim - 2))
    A = np.array(matrices.transpose(order), order="C")
    d = len(A)
    for j in range(d):
        if floors is not None:
            np.maximum(A[j, j], floors[j], out=A[j, j, ...])
        if j + 1 < d:
            column = A[j + 1 :, j]
            A[j + 1 :, j + 1 :] -= (column / A[j, j])[:, None] * column
    pivots: FloatArray = A.reshape(d * d, *A.shape[2:])[:: d + 1]
    return pivots
