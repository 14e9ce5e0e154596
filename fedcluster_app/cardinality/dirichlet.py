"""Counting by a Dirichlet process mixture: the components that variational inference leaves with rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows, moments_of
from fedcluster_app.cardinality.selection import checked_axis, choose, floor_of
from fedcluster_app.cardinality.split import VARIANCE_FLOOR
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.mixtures.types import FloatArray

#: Concentrations tried by default; 0.02 is scikit-learn's own for 50 components.
CONCENTRATIONS = (0.001, 0.02, 1.0)
#: Largest number of components by default, and the rows that each must have on average.
K_MAX = 50
ROWS_PER_COMPONENT = 10


def count_dirichlet(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    concentrations: Sequence[float] = CONCENTRATIONS,
    k_max: int = K_MAX,
) -> Count:
    """Count the used components of a truncated Dirichlet process mixture of spherical Gaussians.

    The concentration is chosen on held-out rows. The truncation is ``min(k_max, n // 10)``; a component is
    used when it is the most probable one of at least one row.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows and the seed of the start, which is one for all concentrations.
    concentrations : sequence
        The grid: numbers > 0; of equal scores the smallest is preferred.
    k_max : int, >= 1
        Largest number of components.

    Returns
    -------
    Count
        With the used components' weights, means and variances, which the prior of the variance pulls towards
        that of the table: they are above 0 for equal rows, too.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    DataError
        As :func:`~fedcluster_app.cardinality.selection.choose`.

    Notes
    -----
    **Source**: Blei and Jordan, Variational inference for Dirichlet process mixtures, Bayesian Analysis 1
    (2006), by scikit-learn's ``BayesianGaussianMixture`` with its defaults: at most 100 iterations from
    k-means++ seeds, converged or not. It is compared to ASM-S in Goyal, Tarun, Senapathi and Raman,
    arXiv:2609.36762; the truncation and the grid are ours. Rows are scaled to unit variance first, so that
    the variance scikit-learn adds is relative.
    """
    return fit_dirichlet(X, rng, concentrations=concentrations, k_max=k_max).count()


def fit_dirichlet(
    X: FloatArray, rng: np.random.Generator, *, concentrations: Sequence[float], k_max: int
) -> Fit:
    """:func:`count_dirichlet`, which describes the parameters, before it is mapped back from its frame."""
    concentrations = checked_axis("concentration", concentrations, 0)
    checked_axis("k_max", [k_max], 1, whole=True)

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        truncation = min(int(k_max), len(rows.X) // ROWS_PER_COMPONENT)
        seed = int(rng.integers(2**31))
        return [
            Candidate(cell, _used_components(rows.X, truncation, cell["concentration"], seed))
            for cell in cells
        ]

    return choose(X, rng, [{"concentration": value} for value in concentrations], fit)


def _used_components(X: FloatArray, truncation: int, concentration: float, seed: int) -> Moments:
    """Components of the truncated process that at least one row belongs to."""
    if truncation < 2 or not np.ptp(X, axis=0).any():
        return moments_of(Rows(X), np.zeros(len(X), dtype=np.int64))
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import BayesianGaussianMixture

    variance = floor_of(X) / VARIANCE_FLOOR
    Z = X / math.sqrt(variance)
    model = BayesianGaussianMixture(
        n_components=truncation,
        covariance_type="spherical",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=concentration,
        init_params="k-means++",
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        used = np.unique(model.fit(Z).predict(Z))
    return Moments(
        len(X) * model.weights_[used] / model.weights_[used].sum(),
        model.means_[used] * math.sqrt(variance),
        model.covariances_[used] * variance,
    )
