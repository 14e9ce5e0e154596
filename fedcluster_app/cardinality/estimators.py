"""ASM-S as scikit-learn estimators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcluster_app.cardinality.asm import Fit, fit_asm
from fedcluster_app.cardinality.selection import ALPHAS, MIN_MASSES
from fedcluster_app.mixtures.densities import log_joint, responsibilities
from fedcluster_app.mixtures.types import FloatArray, IntArray


class _SphericalMixture(ClusterMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators do with a fit: keep it in the table's units, and label and score new rows."""

    _fit: Fit

    def _keep(self, X: FloatArray, fit: Fit) -> None:
        count = fit.count()
        self._fit = fit
        self.n_components_ = count.k
        self.weights_, self.means_, self.variances_ = count.weights, count.means, count.variances
        self.labels_ = self._labels(X)

    def predict(self, X: ArrayLike) -> IntArray:
        """Component (n,) with the largest posterior probability for each row."""
        return self._labels(self._checked(X))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Posterior probabilities (n, k) of the components for each row."""
        R, _ = responsibilities(self._fit.frame.apply(self._checked(X)), self._fit.mixture())
        return R

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log-density (n,) of each row under the mixture, in the table's units.

        Components without spread enter with a variance of 1e-12 of the whole table's.
        """
        _, log_likelihood = responsibilities(self._fit.frame.apply(self._checked(X)), self._fit.mixture())
        # The frame measures in units of 2**exponent, in each of the d directions.
        units = self.n_features_in_ * self._fit.frame.exponent * math.log(2)
        density: FloatArray = log_likelihood - units
        return density

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-density of the rows."""
        return float(self.score_samples(X).mean())

    def _labels(self, X: FloatArray) -> IntArray:
        labels: IntArray = log_joint(self._fit.frame.apply(X), self._fit.mixture()).argmax(axis=1)
        return labels

    def _checked(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        table: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)
        return table


class AdaptiveSplitMerge(_SphericalMixture):
    """Adaptive split-merge clustering (ASM-S) with a given merge ratio and minimum mass.

    Finds the number of spherical Gaussian components: every component is split in two while the likelihood
    gain exceeds a BIC penalty, then components that are close for their spreads are merged.

    Parameters
    ----------
    alpha : float, > 0
        Components merge while distance of means < alpha (s_i + s_j), with s the per-dimension spread.
    min_mass : int, >= 1
        Least number of rows (soft) of a child. Choose it below the smallest group worth finding.
    delta : float, > 0
        Start of a split's means, in standard deviations along the leading axis.
    em_steps : int, >= 1
        EM iterations of a split.
    order : {"ratio", "distance"}
        Which pair of components merges first.

    Attributes
    ----------
    n_components_ : int
    weights_ (k,), means_ (k, d), variances_ (k,)
        From hard assignment; a variance is 0 where all rows of a component are equal.
    labels_ : (n,) int
        ``predict`` of the training rows, the most probable component. Near a border this can be another
        component than the one whose moments the row was counted in.
    n_features_in_ : int

    Notes
    -----
    The method is deterministic. It does not change with a shift, a rotation or one scale for all features
    (bit for bit for a power of two), but the features' relative scales matter: one with values a million
    times larger decides alone. Standardise first unless the units are comparable. Constant features never
    separate rows but count in the penalty, and doubled rows count double.

    One gross outlier can hide all structure: the best split of the whole table sets the outlier apart, fails
    the minimum mass, and the table stays one component. Remove such rows first.

    References
    ----------
    Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762. What its summary leaves open is reconstructed.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (100, 4)), rng.normal(9, 1, (100, 4))])
    >>> AdaptiveSplitMerge().fit(X).n_components_
    2
    """

    def __init__(
        self,
        alpha: float = 2.0,
        min_mass: int = 10,
        delta: float = 1.0,
        em_steps: int = 15,
        order: str = "ratio",
    ) -> None:
        self.alpha = alpha
        self.min_mass = min_mass
        self.delta = delta
        self.em_steps = em_steps
        self.order = order

    def fit(self, X: ArrayLike, y: None = None) -> AdaptiveSplitMerge:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table: FloatArray = validate_data(self, X, dtype=np.float64)
        fit = fit_asm(
            table,
            # A grid of one cell holds nothing out, so nothing is drawn.
            np.random.default_rng(0),
            alphas=[self.alpha],
            min_masses=[self.min_mass],
            delta=self.delta,
            em_steps=self.em_steps,
            order=self.order,
        )
        self._keep(table, fit)
        return self


class AdaptiveSplitMergeCV(_SphericalMixture):
    """Adaptive split-merge clustering with merge ratio and minimum mass chosen on held-out rows.

    A random fifth of the rows is held out, every cell of the grid is fitted to the rest, and the cell whose
    labels have the largest mean silhouette on the held-out rows wins; of equals the one with fewer
    components, then the larger alpha, then the larger minimum mass. **The fit that was scored is kept**:
    components and their number are those of the 80 %, not of a second fit to all rows, which can have
    another number.

    Parameters
    ----------
    alphas : sequence of float
        Merge ratios of the grid.
    min_masses : sequence of int
        Minimum masses of the grid.
    delta, em_steps, order
        See :class:`AdaptiveSplitMerge`.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows.

    Attributes
    ----------
    best_alpha_, best_min_mass_
        The chosen cell. With fewer than 13 rows nothing is held out: the largest alpha and the smallest
        minimum mass are fitted to all rows. A grid of one cell is fitted to all rows, too.
    best_score_ : float
        Its mean silhouette on the held-out rows; -1 when no cell has one, nan when nothing was held out.
    grid_scores_, grid_n_components_ : (t, a) or None
        Scores and numbers of components of all cells, t minimum masses by a alphas, both increasing; None
        when nothing was held out.
    n_components_, weights_, means_, variances_, labels_, n_features_in_
        See :class:`AdaptiveSplitMerge`; ``labels_`` are of all rows.

    Notes
    -----
    A single cluster has no silhouette, so the selection hardly ever returns one component. Of a table with
    more than 30000 rows, 30000 are drawn first.

    References
    ----------
    Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762. What its summary leaves open is reconstructed.
    """

    def __init__(
        self,
        alphas: Sequence[float] = ALPHAS,
        min_masses: Sequence[int] = MIN_MASSES,
        delta: float = 1.0,
        em_steps: int = 15,
        order: str = "ratio",
        random_state: Any = None,
    ) -> None:
        self.alphas = alphas
        self.min_masses = min_masses
        self.delta = delta
        self.em_steps = em_steps
        self.order = order
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> AdaptiveSplitMergeCV:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table: FloatArray = validate_data(self, X, dtype=np.float64)
        fit = fit_asm(
            table,
            np.random.default_rng(self.random_state),
            alphas=self.alphas,
            min_masses=self.min_masses,
            delta=self.delta,
            em_steps=self.em_steps,
            order=self.order,
        )
        self._keep(table, fit)
        self.best_alpha_, self.best_min_mass_ = fit.alpha, fit.min_mass
        selection = fit.selection
        self.best_score_ = selection.score if selection else math.nan
        self.grid_scores_ = selection.scores if selection else None
        self.grid_n_components_ = selection.counts if selection else None
        return self
