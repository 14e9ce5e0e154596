"""FedGenGMM over named sites: their mixtures once, a mixture of rows drawn from them, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcluster_app.aggregation import fedgengmm
from fedcluster_app.messages import AskFedGenGMM, SiteGaussians
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.streams import stream
from strategies.gaussians import problem_of_groups
from strategies.global_rounds import Found, GlobalRounds
from strategies.one_upload import OneUpload
from strategies.rounds import Run

Uploads = Mapping[str, Statistics]


class FedGenGMM(OneUpload[Statistics], GlobalRounds[Uploads]):
    """One mixture for all sites, by which every row is labelled.

    Notes
    -----
    **Source**: Pettersson, Liang and Andresen, Federated Gaussian mixture models, arXiv:2506.01780.
    """

    ask_type = AskFedGenGMM
    answer_type = SiteGaussians
    word = "mixtures"

    def problem(self, state: Run[Uploads], name: str, answer: Any) -> str | None:
        """Say why components cannot be of the site's rows."""
        return problem_of_groups(state, name, answer) if isinstance(answer, SiteGaussians) else None

    def kept(self, answer: Any) -> Statistics:
        """Keep the components."""
        stats: Statistics = answer.statistics
        return stats

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many components the site counted and sent."""
        told = {"k_counted": answer.k_counted} if answer.k_counted else {}
        return {**told, "components": int((answer.counts > 0).sum())}

    def found(self, kernel: Uploads) -> Found:
        """Fit the mixture to rows drawn from those of all sites."""
        settings, rng = self.config.fedgengmm, stream(self.config.seed, "fedgengmm")
        result = fedgengmm.server_step(
            kernel, self.config.k, rng, draws=settings.draws, n_init=settings.starts
        )
        return Found(result.mixture)
