"""Federated k-means by averages of matched centres over named sites: sums in rounds, then labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcluster_app.aggregation import fedkmeans_aligned
from fedcluster_app.aggregation.fedkmeans import FedKMeansState
from fedcluster_app.messages import AskFedKMeansAligned
from strategies.base import Agreement
from strategies.fedkmeans import FedKMeans, sums_of
from strategies.rounds import Run


class FedKMeansAligned(FedKMeans):
    """Centres of a round are averages of those of the sites, matched one to one.

    Notes
    -----
    **Source**: the baseline FedKMeans of arXiv:2609.19202.
    """

    ask_type = AskFedKMeansAligned

    def first(self, agreement: Agreement) -> FedKMeansState:
        """Start without centres."""
        return fedkmeans_aligned.init(self.config.k)

    def take(self, run: Run[FedKMeansState], answers: Mapping[str, Any]) -> FedKMeansState:
        """Average the means of all sites with their partners."""
        weighting = self.config.aligned.weighting
        return self.shown(fedkmeans_aligned.step(run.kernel, sums_of(answers), weighting=weighting))

    @property
    def least_rows(self) -> int:
        """Rows of the smallest cluster that is sent, where a site's owner does not want more."""
        return self.config.min_count

    def stopped_by(self, kernel: FedKMeansState) -> str:
        """Stop when no centre moves."""
        settings = self.config.aligned
        return fedkmeans_aligned.status(kernel, tolerance=settings.tolerance, max_rounds=settings.rounds)
