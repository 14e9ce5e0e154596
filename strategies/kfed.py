"""k-FED over named sites: local centres once, grouped into the wanted number of clusters, then labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import kfed
from fedcluster_app.messages import AskKFed, LocalCentersSent
from fedcluster_app.mixtures.types import FloatArray
from strategies.global_rounds import Found, GlobalRounds, centres
from strategies.one_upload import OneUpload
from strategies.rounds import Run


class CentresOnce(OneUpload[FloatArray], GlobalRounds[Mapping[str, FloatArray]]):
    """What methods share to which a site sends its local centres, once."""

    ask_type: type = AskKFed
    answer_type = LocalCentersSent
    word = "centres"

    def problem(self, state: Run[Mapping[str, FloatArray]], name: str, answer: Any) -> str | None:
        """Say why centres cannot be means of ``min-count`` rows each."""
        if not isinstance(answer, LocalCentersSent):
            return None
        masses = np.full(len(answer.centers), float(self.config.min_count))
        problem = state.greeted(name).problem_of_part(masses, answer.centers)
        return problem and f"its centres were not used: {problem}"

    def kept(self, answer: Any) -> FloatArray:
        """Keep the centres."""
        centers: FloatArray = answer.centers
        return centers

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many clusters the site sought and sent."""
        return {"k_counted": answer.k_counted, "components": len(answer.centers)}


class KFed(CentresOnce):
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
        return centres(result.centers, result.labels)
