"""Sufficient statistics of a mixture that add over rows and sites without losing digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.mixture import Kind, Mixture
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False)
class Statistics:
    """Mass, mean and centred second moments of k components.

    Attributes
    ----------
    mass : array of shape (k,)
        Sum of responsibilities; may be 0.
    means : array of shape (k, d)
        Weighted means; arbitrary (but finite) where the mass is 0.
    scatters : array of shape (k,), (k, d) or (k, d, d)
        Weighted sum of squared deviations from the mean: over all features (spherical), per feature
        (diagonal), or as a matrix (full). Always about the mean, never raw squares.
    """

    mass: FloatArray
    means: FloatArray
    scatters: FloatArray


def collect(X: FloatArray, R: FloatArray, kind: Kind) -> Statistics:
    """Statistics of the rows under responsibilities.

    Parameters
    ----------
    X : array of shape (n, d), n >= 0
    R : array of shape (n, k)
        Non-negative; multiply its rows by weights for weighted data. A column of ones gives the moments
        of the table.
    kind : "spherical", "diagonal" or "full"

    Returns
    -------
    Statistics

    Notes
    -----
    **Source**: Bishop (2006), equations 9.24 to 9.27, before the division by the mass. Means are taken
    about a common point and scatters about the means, so an offset of 1e9 costs no digits and a
    constant column has scatter exactly 0. Cost O(n k d), full O(n k d²).
    """
    k, d = R.shape[1], X.shape[1]
    if X.shape[0] == 0:
        shape = {"spherical": (k,), "diagonal": (k, d), "full": (k, d, d)}[kind]
        return Statistics(np.zeros(k), np.zeros((k, d)), np.zeros(shape))
    mass = R.sum(axis=0)
    origin = X.mean(axis=0)
    means = origin + R.T @ (X - origin) / np.where(mass > 0, mass, 1.0)[:, None]
    return Statistics(mass, means, _SCATTERS[kind](X, R, means))


def _spherical(X: FloatArray, R: FloatArray, means: FloatArray) -> FloatArray:
    scatters: FloatArray = np.einsum("ik,ik->k", R, squared_distances(X, means))
    return scatters


def _diagonal(X: FloatArray, R: FloatArray, means: FloatArray) -> FloatArray:
    scatters = np.empty_like(means)
    for j, mean in enumerate(means):
        deviation = X - mean
        np.square(deviation, out=deviation)
        scatters[j] = R[:, j] @ deviation
    return scatters


def _full(X: FloatArray, R: FloatArray, means: FloatArray) -> FloatArray:
    scatters = np.empty((*means.shape, means.shape[1]))
    for j, mean in enumerate(means):
        # The root on both sides makes the product symmetric to the last bit.
        deviation = (X - mean) * np.sqrt(R[:, j, None])
        scatters[j] = deviation.T @ deviation
    return scatters


_SCATTERS = {"spherical": _spherical, "diagonal": _diagonal, "full": _full}


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Statistics of two disjoint sets of rows together; the components correspond by index.

    Notes
    -----
    **Source**: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances (1979), equation 2.1: S = S_a + S_b + (n_a n_b / n) δ δᵀ with δ the difference of the
    means. Equal means merge to exactly that mean, a component of mass 0 changes nothing.
    """
    mass = a.mass + b.mass
    share = b.mass / np.where(mass > 0, mass, 1.0)
    shift = b.means - a.means
    # Without rows on the left the mean is the right one itself, not a sum that rounds to it.
    means = np.where(a.mass[:, None] > 0, a.means + share[:, None] * shift, b.means)
    return Statistics(mass, means, a.scatters + b.scatters + _between(a.mass * share, shift, a.scatters.ndim))


def _between(mass: FloatArray, shift: FloatArray, ndim: int) -> FloatArray:
    """Reduced mass times squared shift, in the layout of the scatters."""
    between: FloatArray
    if ndim == 1:
        between = mass * np.square(shift).sum(axis=1)
    elif ndim == 2:
        between = mass[:, None] * np.square(shift)
    else:
        between = mass[:, None, None] * (shift[:, :, None] * shift[:, None, :])
    return between


def about(stats: Statistics, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return full statistics as sums about a point (d,) of each component, which add over sites.

    Returns
    -------
    mass, first, second : arrays of shape (k,), (k, d) and (k, d, d)
        Sums of responsibilities, of these times the deviations from the point, and of these times the outer
        products of the deviations; all 0 where the mass is.
    """
    shift = np.where(stats.mass[:, None] > 0, stats.means - points, 0.0)
    second = stats.scatters + stats.mass[:, None, None] * (shift[:, :, None] * shift[:, None, :])
    return stats.mass, stats.mass[:, None] * shift, second


def centred(mass: FloatArray, first: FloatArray, second: FloatArray, points: FloatArray) -> Statistics:
    """Undo `about`; a component without mass has its point as mean."""
    shift = first / np.where(mass > 0, mass, 1.0)[:, None]
    scatters = second - mass[:, None, None] * (shift[:, :, None] * shift[:, None, :])
    return Statistics(mass, points + shift, scatters)


def merge_all(parts: Sequence[Statistics]) -> Statistics:
    """Merge from left to right. The caller fixes the order (sites by name), so the bytes are fixed.

    Raises ValueError if there is nothing to merge.
    """
    if not parts:
        raise ValueError("merge_all: expected at least one Statistics, got none")
    return reduce(merge, parts)


def mixture_from(stats: Statistics, *, ridge: float = 0.0, fallback: Mixture | None = None) -> Mixture:
    """Maximum-likelihood mixture of the statistics (the M step).

    Parameters
    ----------
    stats : Statistics
        With positive total mass.
    ridge : float, >= 0
        Added to every variance (to the diagonal of full matrices), as scikit-learn's ``reg_covar``.
    fallback : Mixture, optional
        Gives mean and covariance of components without mass; their weight is 0.

    Raises
    ------
    ValueError
        If a covariance is not positive definite (too few distinct rows: give a `ridge`), or a component
        has no mass and there is no `fallback`.

    Notes
    -----
    **Source**: Bishop (2006), equations 9.24 to 9.26. A spherical variance is the scatter over d times
    the mass.
    """
    dead = stats.mass <= 0
    if dead.any() and fallback is None:
        raise ValueError(f"mass: expected positive values or a fallback, got 0 at {np.flatnonzero(dead)}")
    k, d = stats.means.shape
    divisor = np.where(dead, 1.0, stats.mass).reshape((k,) + (1,) * (stats.scatters.ndim - 1))
    if stats.scatters.ndim == 1:
        covariances = stats.scatters / (d * divisor) + ridge
    elif stats.scatters.ndim == 2:
        covariances = stats.scatters / divisor + ridge
    else:
        covariances = stats.scatters / divisor + ridge * np.eye(d)
    means = stats.means
    if fallback is not None and dead.any():
        means = np.where(dead[:, None], fallback.means, means)
        covariances[dead] = fallback.covariances[dead]
    return Mixture(stats.mass / stats.mass.sum(), means, covariances)
