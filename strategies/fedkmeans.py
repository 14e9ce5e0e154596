"""Federated k-means of Garst and Reinders over named sites: sums in rounds, then labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import fedkmeans
from fedcluster_app.aggregation.fedkmeans import ClusterSums, FedKMeansState
from fedcluster_app.errors import DataError
from fedcluster_app.messages import AskFedKMeans, FedKMeansSums
from fedcluster_app.streams import stream
from strategies.base import Agreement
from strategies.global_rounds import Found, GlobalRounds, centres
from strategies.rounds import Run


class FedKMeans(GlobalRounds[FedKMeansState]):
    """Sums of every round; a site that is silent takes part with its last ones.

    Notes
    -----
    **Source**: Garst and Reinders, Federated k-means clustering, arXiv:2310.01195.
    """

    ask_type: type[AskFedKMeans] = AskFedKMeans

    def first(self, agreement: Agreement) -> FedKMeansState:
        """Start without centres."""
        if self.config.fedkmeans.start == "kmeans++":
            agreement.roster.refuse_unsafe("fedkmeans-start='kmeans++' sends seeds, which are rows")
        return fedkmeans.init(self.config.k)

    def question(self, run: Run[FedKMeansState]) -> tuple[Any, type, dict[str, int]]:
        """Send the centres as they stand."""
        centers = run.kernel.centers if len(run.kernel.centers) else None
        return self.ask_type(**vars(run.agreement.scaling), centers=centers), FedKMeansSums, {}

    def problem(self, state: Run[FedKMeansState], name: str, answer: Any) -> str | None:
        """Say why sums cannot be of the site's rows."""
        if not isinstance(answer, FedKMeansSums):
            return None
        if len(answer.counts) > self.config.k:
            return f"its sums were not used: {len(answer.counts)} clusters"
        held = answer.counts > 0
        counts = answer.counts[held].astype(np.float64)
        means = answer.sums[held] / counts[:, None]
        bare = self.config.fedkmeans.start == "kmeans++" and not len(state.kernel.centers)
        problem = state.greeted(name).problem_of_part(np.ones(len(means)) if bare else counts, means)
        return problem and f"its sums were not used: {problem}"

    def take(self, run: Run[FedKMeansState], answers: Mapping[str, Any]) -> FedKMeansState:
        """Cluster the means of all sites."""
        rng = stream(self.config.seed, "fedkmeans", run.rounds)
        return self.shown(fedkmeans.step(run.kernel, sums_of(answers), rng))

    def shown(self, kernel: FedKMeansState) -> FedKMeansState:
        """Return the state if there are centres; DataError if no site has anything to show."""
        if not len(kernel.centers):
            raise DataError(f"no site has a cluster of {self.least_rows} rows; lower k={kernel.k}")
        return kernel

    @property
    def least_rows(self) -> int:
        """Rows of the smallest cluster that is sent, where a site's owner does not want more."""
        return max(self.config.min_count, self.config.fedkmeans.least_rows)

    def stopped_by(self, kernel: FedKMeansState) -> str:
        """Stop when no centre moves."""
        settings = self.config.fedkmeans
        return fedkmeans.status(kernel, tolerance=settings.tolerance, max_rounds=settings.rounds)

    def found(self, kernel: FedKMeansState) -> Found:
        """Return the centres as they stand."""
        return centres(kernel.centers)

    def warnings_of(self, kernel: FedKMeansState, found: Any) -> tuple[str, ...]:
        """Say where there are fewer centres than were wanted."""
        if len(found) == kernel.k:
            return ()
        return (f"only {len(found)} distinct means came, so there are fewer clusters than k={kernel.k}",)


def sums_of(answers: Mapping[str, FedKMeansSums]) -> dict[str, ClusterSums]:
    """Return the sums of every site, without the clusters that it withholds."""
    held = {name: answer.counts > 0 for name, answer in answers.items()}
    return {
        name: ClusterSums(answer.sums[held[name]], answer.counts[held[name]])
        for name, answer in answers.items()
    }
