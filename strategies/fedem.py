"""FedEM over named sites: shared components, weights of every site's own, sums in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import fedem
from fedcluster_app.aggregation.fedem import FedEMState
from fedcluster_app.messages import AskFedEMRound, AskFedEMStart, GaussianSums, SiteGaussians
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.streams import stream
from strategies.base import Agreement
from strategies.gaussians import in_use, problem_of_groups, problem_of_sums, sums_of
from strategies.labelling import SiteModel
from strategies.personal_rounds import PersonalRounds
from strategies.rounds import AskAll, Run


class FedEM(PersonalRounds[FedEMState | None], AskAll[FedEMState | None]):
    """Sums of every round; a site that is silent takes part with its last ones.

    Weights stay at the sites between rounds. In the end the coordinator has them of the counts that a site
    sent last; a site that was never heard has those of all.

    Notes
    -----
    **Source**: Marfoq, Neglia, Bellet, Kameni and Vidal, Federated multi-task learning under a mixture of
    distributions, NeurIPS 2021.
    """

    def first(self, agreement: Agreement) -> None:
        """Start without components."""

    def phase(self, run: Run[FedEMState | None]) -> str:
        """Say what is asked: clusters, then rounds."""
        return "start" if run.kernel is None else f"round {len(run.kernel.trace) + 1}"

    def question(self, run: Run[FedEMState | None]) -> tuple[Any, type, dict[str, int]]:
        """Ask for clusters, then send the components as they stand."""
        scaling, kernel = vars(run.agreement.scaling), run.kernel
        if kernel is None:
            return AskFedEMStart(**scaling), SiteGaussians, {}
        ask = AskFedEMRound(**scaling, **stacked([kernel.components]))
        return ask, GaussianSums, {"s": 1, "k": kernel.components.n_components}

    def problem(self, state: Run[FedEMState | None], name: str, answer: Any) -> str | None:
        """Say why clusters or sums cannot be of the site's rows."""
        if isinstance(answer, SiteGaussians):
            return problem_of_groups(state, name, answer)
        if isinstance(answer, GaussianSums) and state.kernel is not None:
            return problem_of_sums(state, name, answer, [state.kernel.components], own_weights=True)
        return None

    def ready(self, run: Run[FedEMState | None]) -> bool:
        """Tell whether there are components."""
        return run.kernel is not None

    def take(self, run: Run[FedEMState | None], answers: Mapping[str, Any]) -> FedEMState:
        """Group the clusters, or make the M step."""
        if run.kernel is None:
            starts = {name: answer.statistics for name, answer in answers.items()}
            return fedem.init(starts, self.config.k, stream(self.config.seed, "fedem"))
        shared = [run.kernel.components]
        return fedem.step(
            run.kernel, {name: sums_of(run, name, answer, shared)[0] for name, answer in answers.items()}
        )

    def stopped_by(self, kernel: FedEMState | None) -> str:
        """Stop when the likelihood settles."""
        if kernel is None or not kernel.trace:
            return "running"
        settings = self.config.fedem
        return fedem.status(kernel, tolerance=settings.tolerance, max_rounds=settings.rounds)

    def models(self, run: Run[FedEMState | None]) -> Mapping[str, SiteModel]:
        """Give every site the components with its own weights."""
        assert run.kernel is not None  # there was a round
        shared, uploads = run.kernel.components, run.kernel.uploads
        found = {
            name: fedem.client_finish(
                shared, fedem.weights_of(uploads[name], shared) if name in uploads else shared.weights
            )
            for name in run.agreement.roster.members
        }
        numbers = np.arange(shared.n_components)
        return in_use({name: (mixture, numbers) for name, mixture in found.items()})

    def figures_of(self, kernel: FedEMState | None) -> dict[str, float]:
        """Return the mean log-likelihood of a row, before the last M step."""
        return {} if kernel is None or not kernel.trace else {"log_likelihood": kernel.log_likelihood}

    def details_of(self, run: Run[FedEMState | None]) -> dict[str, Any]:
        """Return how the likelihood went."""
        assert run.kernel is not None  # there was a round
        return {"rounds": len(run.kernel.trace), "trace": list(run.kernel.trace)}

    def warnings(self, run: Run[FedEMState | None], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Say where there are fewer components than were wanted, or some that nobody has."""
        assert run.kernel is not None  # there was a round
        shared, told = run.kernel.components, []
        if shared.n_components < self.config.k:
            told.append(
                f"sites had only {shared.n_components} different clusters, fewer than k={self.config.k}"
            )
        if idle := int((shared.weights == 0).sum()):
            told.append(
                f"{idle} components are behind no site's min-count={self.config.min_count} rows; lower k"
            )
        return tuple(told)
