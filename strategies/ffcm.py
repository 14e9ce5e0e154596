"""Federated fuzzy c-means of Stallmann and Wilbik over named sites: sums in rounds, then labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import ffcm
from fedcluster_app.aggregation.ffcm import Average, FFCMState, FuzzySums
from fedcluster_app.errors import DataError
from fedcluster_app.messages import AskFFCM, FFCMSums
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from strategies.base import Agreement
from strategies.global_rounds import Found, GlobalRounds, centres
from strategies.plausible import greeted
from strategies.rounds import Run

# Standard deviations about the mean between which centres start, where columns are not in [0, 1].
REACH = 2.0
# Centres closer than this along every feature (scaled units) are said to coincide.
SAME_DIGITS = 3


class FFCM(GlobalRounds[FFCMState]):
    """Support-weighted means of the sites' centres; a site that is silent takes part with its last sums.

    Notes
    -----
    **Source**: Stallmann and Wilbik, arXiv:2201.07316. Deviation: they scale all columns to [0, 1], where the
    centres start at random; here that is ``scaling='minmax'``, and with any other scaling centres start
    within two standard deviations of the mean.
    """

    average: Average = "avg1"

    def first(self, agreement: Agreement) -> FFCMState:
        """Draw the centres to start from."""
        k, rng, q = self.config.k, stream(self.config.seed, "ffcm"), agreement.scaling.n_features_out
        if self.config.scaling == "minmax":
            return ffcm.init(k, np.zeros(q), np.ones(q), rng)
        whole = greeted(agreement.moments, agreement.scaling)
        reach = REACH * np.sqrt(whole.variance)
        return ffcm.init(k, whole.mean - reach, whole.mean + reach, rng)

    def question(self, run: Run[FFCMState]) -> tuple[Any, type, dict[str, int]]:
        """Send the centres as they stand."""
        ask = AskFFCM(**vars(run.agreement.scaling), centers=run.kernel.centers)
        return ask, FFCMSums, {"m": self.config.k}

    def problem(self, state: Run[FFCMState], name: str, answer: Any) -> str | None:
        """Say why sums cannot be of the site's rows."""
        if not isinstance(answer, FFCMSums):
            return None
        held = answer.supports > 0
        means = answer.sums[held] / answer.supports[held][:, None]
        problem = state.greeted(name).problem_of_part(answer.supports[held], means)
        return problem and f"its sums were not used: {problem}"

    def take(self, run: Run[FFCMState], answers: Mapping[str, Any]) -> FFCMState:
        """Make new centres of the sums of all sites."""
        sent = {name: FuzzySums(answer.sums, answer.supports) for name, answer in answers.items()}
        rng = stream(self.config.seed, "ffcm", run.rounds)
        kernel = ffcm.step(run.kernel, sent, rng, average=self.average)
        if not ffcm.supported(kernel, average=self.average).any():
            raise DataError(
                f"no site has min-count={self.config.min_count} rows of any centre; lower k={self.config.k}"
            )
        return kernel

    def stopped_by(self, kernel: FFCMState) -> str:
        """Stop when the centres rest."""
        settings = self.config.ffcm
        return ffcm.status(kernel, tolerance=settings.tolerance, max_rounds=settings.rounds)

    def found(self, kernel: FFCMState) -> Found:
        """Return the centres that have rows; the others are where chance has put them."""
        return centres(kernel.centers[ffcm.supported(kernel, average=self.average)])

    def warnings_of(self, kernel: FFCMState, found: FloatArray) -> tuple[str, ...]:
        """Say if centres were drawn to one place, as where columns are many, or never moved."""
        told = []
        distinct = len(np.unique(found.round(SAME_DIGITS), axis=0))
        if distinct < len(found):
            told.append(
                f"only {distinct} of {len(found)} centres are in different places; memberships are too even "
                f"for {found.shape[1]} columns: lower ffcm-fuzzifier={self.config.ffcm.fuzzifier:g}, or pca"
            )
        if idle := len(kernel.centers) - len(found):
            told.append(
                f"{idle} centres that no site has min-count={self.config.min_count} rows of were left out; "
                "lower k"
            )
        return tuple(told)


class FFCMAvg2(FFCM):
    """The same with k-means over the centres of all sites."""

    average: Average = "avg2"
