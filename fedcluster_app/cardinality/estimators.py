"""ASM-S as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcluster_app.cardinality.asm import ALPHAS, MIN_MASSES
from fedcluster_app.cardinality.estimator_base import AnyArray
from fedcluster_app.cardinality.explained import ExplainedSplitMerge


class AdaptiveSplitMerge(ExplainedSplitMerge):
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
    split_score : {"q", "mixture"}
        "q" is the published gain of a split; "mixture", the gain in log-likelihood, splits a round cluster
        hardly ever.
    covariance : {"spherical", "diagonal", "full"}
        Of the two halves of a split; components stay spherical.
    alpha_unit : {"one", "leaves"}
        With "leaves" alpha is a multiple of 0.8 sqrt(median anisotropy of the leaves), the ratio at which the
        halves of one cluster join.
    set_aside : float, 0 or above 1
        Leave rows that are alone and farther than this many median distances out of the fit, and label them
        afterwards; 10 is a good value, 0 keeps all.
    guard : bool
        Count one component when a full-covariance mixture tree on three principal scores does not split.
    report : bool
        Keep `split_report_`, at the cost of about two more fits.

    Attributes
    ----------
    n_components_ : int
    weights_ (k,), means_ (k, d), variances_ (k,)
        From hard assignment; a variance is 0 where all rows of a component are equal.
    labels_ : (n,) int
        ``predict`` of the training rows, the most probable component. Near a border this can be another
        component than the one whose moments the row was counted in.
    n_features_in_ : int
    split_report_ : SplitReport or None
        Every decision and merge, see :mod:`~fedcluster_app.cardinality.report`; only with ``report=True``,
        and None when the guard decided.

    Warns
    -----
    FragmentationWarning
        With ``report=True``, when components are certain to be fragments for their size and anisotropy.

    Notes
    -----
    The method is deterministic. It does not change with a shift, a rotation or one scale for all features
    (bit for bit for a power of two), but the features' relative scales matter: one with values a million
    times larger decides alone. Standardise first unless the units are comparable. Constant features never
    separate rows but count in the penalty, and doubled rows count double.

    One gross outlier can hide all structure: the best split of the whole table sets the outlier apart, fails
    the minimum mass, and the table stays one component. `set_aside` removes such rows first.

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
        split_score: str = "q",
        covariance: str = "spherical",
        alpha_unit: str = "one",
        set_aside: float = 0.0,
        guard: bool = False,
        report: bool = False,
    ) -> None:
        self.alpha = alpha
        self.min_mass = min_mass
        self.delta = delta
        self.em_steps = em_steps
        self.order = order
        self.split_score = split_score
        self.covariance = covariance
        self.alpha_unit = alpha_unit
        self.set_aside = set_aside
        self.guard = guard
        self.report = report

    def fit(self, X: ArrayLike, y: None = None) -> AdaptiveSplitMerge:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table = self._table(X)
        # A grid of one cell holds nothing out, so nothing is drawn.
        fit = self._fit_grid(table, np.random.default_rng(0), [self.alpha], [self.min_mass])
        self._keep(table, fit)
        return self


class AdaptiveSplitMergeCV(ExplainedSplitMerge):
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
    delta, em_steps, order, split_score, covariance, alpha_unit, set_aside, guard, report
        See :class:`AdaptiveSplitMerge`.
    random_state : None, int or numpy.random.Generator
        Draws the held-out rows.

    Attributes
    ----------
    best_alpha_, best_min_mass_
        The chosen cell. With fewer than 13 rows nothing is held out: the largest alpha and the smallest
        minimum mass are fitted to all rows. A grid of one cell is fitted to all rows, too. nan when the guard
        decided.
    best_params_ : dict
        The same by name.
    best_score_ : float
        Its mean silhouette on the held-out rows; -1 when no cell has one, nan when nothing was held out.
    grid_scores_, grid_n_components_ : (t, a) or None
        Scores and numbers of components of all cells, t minimum masses by a alphas, both increasing; None
        when nothing was held out.
    split_report_ : SplitReport or None
        Of the fit that was kept; see :class:`AdaptiveSplitMerge`.
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
        split_score: str = "q",
        covariance: str = "spherical",
        alpha_unit: str = "one",
        set_aside: float = 0.0,
        guard: bool = False,
        report: bool = False,
        random_state: Any = None,
    ) -> None:
        self.alphas = alphas
        self.min_masses = min_masses
        self.delta = delta
        self.em_steps = em_steps
        self.order = order
        self.split_score = split_score
        self.covariance = covariance
        self.alpha_unit = alpha_unit
        self.set_aside = set_aside
        self.guard = guard
        self.report = report
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> AdaptiveSplitMergeCV:
        """Fit to the rows of X (n, d), n >= 1; y is not used."""
        table = self._table(X)
        rng = np.random.default_rng(self.random_state)
        fit = self._fit_grid(table, rng, self.alphas, self.min_masses)
        self._keep_selected(table, fit)
        self.best_alpha_ = fit.candidate.chosen.get("alpha", np.nan)
        self.best_min_mass_ = fit.candidate.chosen.get("min_mass", np.nan)
        self.grid_scores_ = self._as_grid(fit.scores)
        self.grid_n_components_ = self._as_grid(fit.counts)
        return self

    def _as_grid(self, values: AnyArray | None) -> AnyArray | None:
        """Values of the cells, which are listed from the largest alpha and minimum mass down, as a table."""
        if values is None:
            return None
        return values.reshape(len(set(self.alphas)), -1)[::-1, ::-1].T
