"""The rivals of ASM-S as scikit-learn estimators, their hyper-parameters chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from fedcluster_app.cardinality.dirichlet import CONCENTRATIONS, fit_dirichlet
from fedcluster_app.cardinality.dirichlet import K_MAX as MOST_COMPONENTS
from fedcluster_app.cardinality.estimator_base import CountEstimator, DensityEstimator
from fedcluster_app.cardinality.gmeans import K_MAX, SIGNIFICANCES, fit_gmeans
from fedcluster_app.cardinality.kmeans_count import KS, fit_kmeans
from fedcluster_app.cardinality.oracle import fit_oracle
from fedcluster_app.cardinality.xmeans import K_MAXES, MIN_SIZES, fit_xmeans
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import IntArray


class XMeans(CountEstimator):
    """X-means: k-means that splits clusters while the BIC of two beats that of one.

    A random fifth of the rows is held out, every cell of the grid is fitted to the rest, and the cell whose
    labels have the largest mean silhouette on the held-out rows wins. A grid of one cell is fitted to all
    rows; the clustering itself is deterministic.

    Parameters
    ----------
    k_maxes : sequence of int, >= 1
        Largest numbers of clusters of the grid, never exceeded.
    min_sizes : sequence of float, >= 1
        Least sizes of a half of a split.
    k_min : {1, 2}
        Clusters to start from.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows.

    Attributes
    ----------
    n_components_ : int
    weights_ (k,), means_ (k, d), variances_ (k,)
        Of the clusters of the rows that were not held out.
    labels_ : (n,) int
        Nearest mean of each training row.
    best_params_ : dict
        The chosen cell.
    best_score_ : float
        Its mean silhouette on the held-out rows; -1 when no cell has one, nan when nothing was held out.
    n_features_in_ : int

    References
    ----------
    Pelleg and Moore, X-means: extending k-means with efficient estimation of the number of clusters, ICML
    2000. See :func:`~fedcluster_app.cardinality.xmeans.count_xmeans` for what deviates.
    """

    def __init__(
        self,
        k_maxes: Sequence[int] = K_MAXES,
        min_sizes: Sequence[float] = MIN_SIZES,
        k_min: int = 2,
        random_state: Any = None,
    ) -> None:
        self.k_maxes = k_maxes
        self.min_sizes = min_sizes
        self.k_min = k_min
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> XMeans:
        """Fit to the rows of X (n, d), n >= 1; a row of weight w counts like w equal rows."""
        table = self._table(X)
        fit = fit_xmeans(
            table,
            np.random.default_rng(self.random_state),
            k_maxes=self.k_maxes,
            min_sizes=self.min_sizes,
            k_min=self.k_min,
            weights=self._weights(sample_weight, table),
        )
        self._keep_selected(table, fit)
        return self


class GMeans(CountEstimator):
    """G-means: k-means that splits clusters whose rows are not Gaussian on the line through their halves.

    Parameters
    ----------
    significances : sequence of float
        Levels of the Anderson-Darling test of the grid: some of 1e-4, 1e-3 and 1e-2.
    k_max : int, >= 1
        Largest number of clusters.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows; see :class:`XMeans`.

    Attributes
    ----------
    n_components_, weights_, means_, variances_, labels_, best_params_, best_score_, n_features_in_
        See :class:`XMeans`.

    References
    ----------
    Hamerly and Elkan, Learning the k in k-means, NIPS 2003. See
    :func:`~fedcluster_app.cardinality.gmeans.count_gmeans` for what deviates.
    """

    def __init__(
        self,
        significances: Sequence[float] = SIGNIFICANCES,
        k_max: int = K_MAX,
        random_state: Any = None,
    ) -> None:
        self.significances = significances
        self.k_max = k_max
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> GMeans:
        """Fit to the rows of X (n, d), n >= 1; a row of weight w counts like w equal rows."""
        table = self._table(X)
        fit = fit_gmeans(
            table,
            np.random.default_rng(self.random_state),
            significances=self.significances,
            k_max=self.k_max,
            weights=self._weights(sample_weight, table),
        )
        self._keep_selected(table, fit)
        return self


class DirichletProcessCount(DensityEstimator):
    """The used components of a truncated Dirichlet process mixture of spherical Gaussians.

    Parameters
    ----------
    concentrations : sequence of float, > 0
        Concentrations of the grid.
    k_max : int, >= 1
        Largest number of components; it is also at most a tenth of the rows.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows and the start; see :class:`XMeans`.

    Attributes
    ----------
    n_components_, weights_, means_, variances_, labels_, best_params_, best_score_, n_features_in_
        See :class:`XMeans`; the components are those of the mixture, and labels the most probable ones.

    References
    ----------
    Blei and Jordan, Variational inference for Dirichlet process mixtures, Bayesian Analysis 1 (2006), by
    scikit-learn's ``BayesianGaussianMixture``.
    """

    def __init__(
        self,
        concentrations: Sequence[float] = CONCENTRATIONS,
        k_max: int = MOST_COMPONENTS,
        random_state: Any = None,
    ) -> None:
        self.concentrations = concentrations
        self.k_max = k_max
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> DirichletProcessCount:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table = self._table(X)
        fit = fit_dirichlet(
            table,
            np.random.default_rng(self.random_state),
            concentrations=self.concentrations,
            k_max=self.k_max,
        )
        self._keep_selected(table, fit)
        return self


class KMeansSilhouette(CountEstimator):
    """The k-means whose labels have the largest silhouette on held-out rows.

    Parameters
    ----------
    ks : sequence of int, >= 1
        Numbers of clusters of the grid.
    n_init : int, >= 1
        Runs of k-means for each.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows and the seeds; see :class:`XMeans`.

    Attributes
    ----------
    n_components_, weights_, means_, variances_, labels_, best_params_, best_score_, n_features_in_
        See :class:`XMeans`.

    References
    ----------
    Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20 (1987).
    """

    def __init__(self, ks: Sequence[int] = KS, n_init: int = 5, random_state: Any = None) -> None:
        self.ks = ks
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> KMeansSilhouette:
        """Fit to the rows of X (n, d), n >= 1; a row of weight w counts like w equal rows in k-means."""
        table = self._table(X)
        fit = fit_kmeans(
            table,
            np.random.default_rng(self.random_state),
            ks=self.ks,
            n_init=self.n_init,
            weights=self._weights(sample_weight, table),
        )
        self._keep_selected(table, fit)
        return self


class OracleCount(DensityEstimator):
    """One component for each of the labels that it is given: for comparisons, where labels exist.

    Attributes
    ----------
    n_components_, weights_, means_, variances_
        One for the rows of each label, in sorted order of the labels; see :class:`XMeans`.
    labels_ : (n,) int
        Most probable component of each training row, which need not be that of its label.
    n_features_in_ : int
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> OracleCount:
        """Fit to the rows of X (n, d), n >= 1, and their labels y (n,), integers or strings."""
        table = self._table(X)
        if y is None:
            raise DataError("OracleCount requires y to be passed, but the target y is None")
        labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None), warn=True)
        check_consistent_length(table, labels)
        self._keep(table, fit_oracle(table, labels))
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike) -> IntArray:
        """Fit, and return ``labels_``."""
        return self.fit(X, y).labels_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
