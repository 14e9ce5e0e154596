"""What the scikit-learn estimators of ASM-S share: the fit with its options, and why it came out so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy

import numpy as np

from fedcluster_app.cardinality.asm import fit_asm
from fedcluster_app.cardinality.count import Fit
from fedcluster_app.cardinality.estimator_base import DensityEstimator
from fedcluster_app.cardinality.outliers import within_reach
from fedcluster_app.cardinality.report import FragmentationWarning, explain
from fedcluster_app.cardinality.selection import hold_out
from fedcluster_app.cardinality.variant import Variant
from fedcluster_app.mixtures.types import FloatArray


class ExplainedSplitMerge(DensityEstimator):
    """Fits, and says why on request."""

    delta: float
    em_steps: int
    order: str
    split_score: str
    covariance: str
    alpha_unit: str
    set_aside: float
    guard: bool
    report: bool

    def _fit_grid(
        self,
        table: FloatArray,
        rng: np.random.Generator,
        alphas: Sequence[float],
        min_masses: Sequence[int],
    ) -> Fit:
        variant = Variant(self.split_score, self.covariance, self.alpha_unit, self.set_aside, self.guard)
        before = deepcopy(rng)
        fit = fit_asm(
            table,
            rng,
            alphas=alphas,
            min_masses=min_masses,
            delta=self.delta,
            em_steps=self.em_steps,
            order=self.order,
            variant=variant,
        )
        if self.report:
            self._report(table, before, variant, fit)
        return fit

    def _report(self, table: FloatArray, rng: np.random.Generator, variant: Variant, fit: Fit) -> None:
        """Explain the fit, with the generator as it was before; warn of fragments."""
        self.split_report_ = None
        chosen = fit.candidate.chosen
        if not chosen:
            return
        rows = table[within_reach(table, variant.set_aside)] if variant.set_aside else table
        if fit.scores is not None:
            rows = rows[hold_out(len(rows), rng)[0]]
        self.split_report_ = explain(
            fit.frame.apply(rows),
            chosen["alpha"] * chosen.get("alpha_unit", 1.0),
            chosen["min_mass"],
            delta=self.delta,
            em_steps=self.em_steps,
            order=self.order,
            criterion=variant.criterion,
            unit=2.0**fit.frame.exponent,
        )
        if self.split_report_.warning:
            warnings.warn(self.split_report_.warning, FragmentationWarning, stacklevel=4)
