"""FedGenGMM: local mixtures are sent once, and a mixture is fitted to rows drawn from their union.

Sites may differ in their numbers of components; all get the same model::

    result = server_step({"a": client_step(X_a, k_a, rng_a), ...}, k, rng)
    mixture_a = result.mixture

Mixtures of single sites are not sums over the sites, so they cannot be securely aggregated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.gaussians import kmeans_statistics, pooled_start, stacked, sums_of
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures import em
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.sampling import sample
from fedcluster_app.mixtures.statistics import Statistics, mixture_from
from fedcluster_app.mixtures.types import FloatArray

# Rows drawn for each component and feature, at least.
_DRAWS = 100


@dataclass(frozen=True, eq=False)
class FedGenGMMResult:
    """The global model, and what it was made from.

    Parameters
    ----------
    mixture : Mixture
        Of k components with full covariances.
    union : Mixture
        Components of all sites in order of site name, weighted by their rows.
    draws : int
        Rows drawn from the union.
    """

    mixture: Mixture
    union: Mixture
    draws: int


def best_fit(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int = 5,
    reg_covar: float = 1e-6,
    tol: float = 1e-3,
    max_iter: int = 100,
) -> Mixture:
    """Of the EM runs from `n_init` single k-means starts, the one of largest likelihood (first wins a tie).

    Parameters
    ----------
    X : (n, d) array, n >= 1
    k : int, >= 1
        With fewer rows there is a component per row.
    rng : numpy.random.Generator
    n_init : int, >= 1
    reg_covar, tol, max_iter
        Of EM; defaults are scikit-learn's, whose GaussianMixture starts from the clusters' own covariances.

    Raises ConfigError if `n_init` is below 1.
    """
    if n_init < 1:
        raise ConfigError(f"starts: expected at least 1, got {n_init}")
    starts = (pooled_start(kmeans_statistics(X, k, rng, n_init=1), reg_covar) for _ in range(n_init))
    runs = (em.fit(X, start, tol=tol, max_iter=max_iter, reg_covar=reg_covar) for start in starts)
    return max(runs, key=lambda run: run.log_likelihood).mixture


def client_step(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int = 5,
    min_count: float = 2,
    reg_covar: float = 1e-6,
    tol: float = 1e-3,
    max_iter: int = 100,
) -> Statistics:
    """Upload of a site: the mixture of its rows, as statistics.

    Parameters
    ----------
    X : (n, d) array
        The site's rows, n >= 0.
    k : int, >= 1
        The site's own number of components; with fewer rows there is one per row.
    rng : numpy.random.Generator
    n_init, reg_covar, tol, max_iter
        See `best_fit`.
    min_count : float, >= 0
        Components whose responsibilities sum to less are withheld (mass 0).

    Returns
    -------
    Statistics
        Mass, mean and scatter of each component under the fitted mixture; of no components without rows.

    Raises
    ------
    ConfigError
        If `k` or `n_init` is below 1.

    Notes
    -----
    Cost O(n_init max_iter n k d^2). **Source**: Pettersson, Liang and Andresen, Federated Gaussian mixture
    models, arXiv:2506.01780. Withholding is ours.
    """
    if not len(X):
        return kmeans_statistics(X, k, rng)
    fitted = best_fit(X, k, rng, n_init=n_init, reg_covar=reg_covar, tol=tol, max_iter=max_iter)
    return sums_of(X, responsibilities(X, fitted)[0], min_count)


def server_step(
    uploads: Mapping[str, Statistics],
    k: int,
    rng: np.random.Generator,
    *,
    draws: int | None = None,
    n_init: int = 5,
    reg_covar: float = 1e-6,
    tol: float = 1e-3,
    max_iter: int = 100,
) -> FedGenGMMResult:
    """Draw rows from the union of the sites' mixtures and fit k components to them.

    Parameters
    ----------
    uploads : mapping of site name to Statistics
        Their order has no effect.
    k : int, >= 1
    rng : numpy.random.Generator
        Of the drawn rows and the starts.
    draws : int, optional
        Rows to draw; by default as many as the sites hold, but at least 100 k d.
    n_init, reg_covar, tol, max_iter
        See `best_fit`; the ridge is added to the variances of the union too.

    Raises
    ------
    ConfigError
        If `k`, `draws` or `n_init` is below 1.
    DataError
        If no site sent a component.

    Notes
    -----
    Cost O(n_init max_iter draws k d^2). **Source**: Pettersson, Liang and Andresen, arXiv:2506.01780. The
    default number of draws is ours.
    """
    if k < 1 or (draws is not None and draws < 1):
        raise ConfigError(f"k and draws: expected at least 1, got {k} and {draws}")
    sent = stacked(uploads[name] for name in sorted(uploads))
    if sent is None:
        raise DataError("components of all sites: expected at least one, got none; lower the minimum count")
    union = mixture_from(sent, ridge=reg_covar)
    if draws is None:
        draws = max(round(float(sent.mass.sum())), _DRAWS * k * union.n_features)
    X, _ = sample(union, draws, rng)
    fitted = best_fit(X, k, rng, n_init=n_init, reg_covar=reg_covar, tol=tol, max_iter=max_iter)
    return FedGenGMMResult(fitted, union, draws)
