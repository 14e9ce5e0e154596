"""Exact Euclidean projection of a mixture's parameters onto the set of feasible ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

# Relative to a bound: what projecting in another order of operations may differ by.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Bounds:
    """What every component must satisfy.

    Attributes
    ----------
    weight_floor : float, > 0
        Least weight of a component. The paper gives no value, yet it decides whether the Kullback-Leibler
        coupling collapses: its figures come back with 0.02 to 0.05.
    mean_radius : float, > 0
        Largest length of a mean.
    variance_floor, variance_ceiling : float, 0 < floor < ceiling
        Range of the eigenvalues of a covariance, in squared units of the features. On scaled data a floor of
        0.05 to 0.1 serves better than the 0.01 of the paper's experiments.

    Raises
    ------
    ConfigError
        If a value is out of range.

    Notes
    -----
    **Source**: arXiv:2609.19202, the set W; the values are reconstructed from its figures.
    """

    weight_floor: float = 0.02
    mean_radius: float = 50.0
    variance_floor: float = 0.01
    variance_ceiling: float = 100.0

    def __post_init__(self) -> None:
        for name in ("weight_floor", "mean_radius", "variance_floor"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ConfigError(f"{name.replace('_', ' ')}: expected more than 0, got {value!r}")
        if not self.variance_floor < self.variance_ceiling:
            raise ConfigError(
                f"variance ceiling: expected more than the floor {self.variance_floor:g}, "
                f"got {self.variance_ceiling!r}"
            )

    def check_components(self, k: int) -> None:
        """Raise ConfigError if k components cannot all have the least weight."""
        if k * self.weight_floor > 1.0:
            raise ConfigError(
                f"weight floor: expected at most 1/{k} = {1 / k:.4g} for {k} components, "
                f"got {self.weight_floor:g}; lower it or use fewer components"
            )


def project(theta: Blocks, bounds: Bounds) -> Blocks:
    """Nearest feasible parameters; blockwise, which is exact because the set is a product.

    Parameters
    ----------
    theta : Blocks
        Any finite numbers; a covariance need not be symmetric.
    bounds : Bounds
        With k times the weight floor at most 1.

    Returns
    -------
    Blocks

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1. Not clip-and-renormalise, which is no projection and breaks
    Proposition 1.
    """
    return Blocks(
        project_weights(theta.weights, bounds.weight_floor),
        project_means(theta.means, bounds.mean_radius),
        project_covariances(theta.covariances, bounds.variance_floor, bounds.variance_ceiling),
    )


def project_weights(v: FloatArray, floor: float) -> FloatArray:
    """Nearest point of {p : p_c >= floor, sum p = 1}.

    Parameters
    ----------
    v : array of shape (k,)
    floor : float, 0 <= floor <= 1/k

    Returns
    -------
    array of shape (k,)

    Notes
    -----
    **Source**: the sort-based projection onto the simplex (Held, Wolfe and Crowder, Validation of subgradient
    optimization, 1974), shifted by the floor. Cost O(k log k).
    """
    k = v.shape[0]
    # The projection does not see a common shift; without one a huge entry would cancel the rest.
    above = v - v.max()
    total = 1.0 - k * floor
    # With every component above the floor the threshold is one division; nearly all steps end here.
    moved: FloatArray = above - (above.sum() - total) / k
    if moved.min() < 0:
        descending = np.sort(above)[::-1]
        thresholds = (np.cumsum(descending) - total) / np.arange(1, k + 1)
        active = np.flatnonzero(descending > thresholds)
        # Without an active entry the set is one point, and rounding decided the comparison.
        moved = np.maximum(above - thresholds[active[-1] if active.size else 0], 0.0)
    moved += floor
    return moved


def project_means(means: FloatArray, radius: float) -> FloatArray:
    """Means (k, d), those longer than the radius shortened to it."""
    length = np.sqrt(np.square(means).sum(axis=1))
    if (length <= radius).all():
        return means
    scale: FloatArray = radius / np.maximum(length, radius)
    return means * scale[:, None]


def project_covariances(S: FloatArray, floor: float, ceiling: float) -> FloatArray:
    """Nearest symmetric matrices with eigenvalues from floor to ceiling, in the Frobenius norm.

    Parameters
    ----------
    S : array of shape (k, d, d)
        Any finite matrices.
    floor, ceiling : float

    Returns
    -------
    array of shape (k, d, d)
        Exactly symmetric. A matrix that is feasible keeps its bits.

    Notes
    -----
    A Cholesky factor of S - floor I exists, and the trace is at most the ceiling, only if S is feasible: this
    certificate saves the eigendecomposition in nearly all steps. Cost O(k d³).
    """
    symmetric: FloatArray = 0.5 * (S + S.transpose(0, 2, 1))
    if certified(symmetric, floor, ceiling):
        return symmetric
    values, vectors = np.linalg.eigh(symmetric)
    outside = (values[:, 0] < floor) | (values[:, -1] > ceiling)
    clipped = np.clip(values[outside], floor, ceiling)
    basis = vectors[outside]
    rebuilt = (basis * clipped[:, None, :]) @ basis.transpose(0, 2, 1)
    symmetric[outside] = 0.5 * (rebuilt + rebuilt.transpose(0, 2, 1))
    return symmetric


def infeasible(mixture: Mixture, bounds: Bounds) -> str | None:
    """Say where a mixture that came from elsewhere leaves the feasible set by more than rounding, or None."""
    if mixture.kind != "full":
        return f"expected full covariances, got {mixture.kind} ones"
    if mixture.weights.min() < bounds.weight_floor * (1 - _ROUNDING):
        return f"a weight is {mixture.weights.min():.3g}, expected at least {bounds.weight_floor:g}"
    length = float(np.sqrt(np.square(mixture.means).sum(axis=1)).max())
    if length > bounds.mean_radius * (1 + _ROUNDING):
        return f"a mean has length {length:.3g}, expected at most {bounds.mean_radius:g}"
    floor, ceiling = bounds.variance_floor * (1 - _ROUNDING), bounds.variance_ceiling * (1 + _ROUNDING)
    if certified(mixture.covariances, floor, ceiling):
        return None
    values = np.linalg.eigvalsh(mixture.covariances)
    if values.min() >= floor and values.max() <= ceiling:
        return None
    return (
        f"variances reach from {values.min():.3g} to {values.max():.3g}, expected "
        f"{bounds.variance_floor:g} to {bounds.variance_ceiling:g}"
    )


def certified(S: FloatArray, floor: float, ceiling: float) -> bool:
    """Whether symmetric matrices (k, d, d) are all feasible by Cholesky and trace; False proves nothing."""
    if (np.trace(S, axis1=1, axis2=2) > ceiling).any():
        return False
    try:
        np.linalg.cholesky(S - floor * np.eye(S.shape[1]))
    except np.linalg.LinAlgError:
        return False
    return True
