"""k-FED over named sites: local centres once, grouped into the wanted number of clusters, then labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import kfed
from fedcluster_app.messages import AskKFed, LocalCentersSent
from fedcluster_app.mixtures.types import FloatArray
from strategies.base import Agreement
from strategies.global_rounds import Found, GlobalRounds
from strategies.rounds import Run


class OneUpload(GlobalRounds[Mapping[str, FloatArray]]):
    """What methods share to which a site sends its local centres, once."""

    ask_type: type = AskKFed

    def first(self, agreement: Agreement) -> Mapping[str, FloatArray]:
        """Start without centres."""
        return {}

    def phase(self, run: Run[Mapping[str, FloatArray]]) -> str:
        """Say what is asked."""
        return "centres"

    def question(self, run: Run[Mapping[str, FloatArray]]) -> tuple[Any, type, dict[str, int]]:
        """Ask for the centres."""
        return self.ask_type(**vars(run.agreement.scaling)), LocalCentersSent, {}

    def problem(self, state: Run[Mapping[str, FloatArray]], name: str, answer: Any) -> str | None:
        """Say why centres cannot be means of ``min-count`` rows each."""
        if not isinstance(answer, LocalCentersSent):
            return None
        masses = np.full(len(answer.centers), float(self.config.min_count))
        problem = state.greeted(name).problem_of_part(masses, answer.centers)
        return problem and f"its centres were not used: {problem}"

    def take(
        self, run: Run[Mapping[str, FloatArray]], answers: Mapping[str, Any]
    ) -> Mapping[str, FloatArray]:
        """Keep the centres of every site."""
        return {name: answer.centers for name, answer in answers.items()}

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many clusters the site sought and sent."""
        return {"k_counted": answer.k_counted, "k_g": len(answer.centers)}

    def stopped_by(self, kernel: Mapping[str, FloatArray]) -> str:
        """Stop after the one exchange."""
        return "one upload" if kernel else "running"


class KFed(OneUpload):
    """k-FED.

    Notes
    -----
    **Source**: Dennis, Li and Smith, Heterogeneity for the win, ICML 2021. Deviation: there a row has the
    label of its local centre, here of the nearest global one, as a new row of any site has.
    """

    def found(self, kernel: Mapping[str, FloatArray]) -> Found:
        """Group the centres."""
        settings = self.config.kfed
        result = kfed.server_step(kernel, self.config.k, farthest=settings.farthest, max_iter=settings.steps)
        return Found(result.centers, result.labels)
