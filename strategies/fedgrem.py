"""FedGrEM over named sites: a gradient step at every site, mixtures drawn together at the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fedcluster_app.coupling import grem_of
from fedcluster_app.gtvmin import fedgrem
from fedcluster_app.gtvmin.fedgrem import GrEMState, SiteModel
from fedcluster_app.gtvmin.projection import infeasible
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.messages import AskGrEMRound, GrEMMixture
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.mixture import Mixture
from strategies import labelling
from strategies.aligned_rounds import AlignedRounds, Begun
from strategies.base import Agreement
from strategies.rounds import Run


class FedGrEM(AlignedRounds[GrEMState]):
    """Every site has a mixture of its own; one that is silent takes part with its last.

    Notes
    -----
    **Source**: Tian, Weng and Feng, arXiv:2310.15330.
    """

    answers: ClassVar[Mapping[type, type]] = {AskGrEMRound: GrEMMixture}

    def begun(self, agreement: Agreement, starts: Mapping[str, Start], start: Mixture) -> GrEMState:
        """Begin with the starts, matched."""
        return fedgrem.init(starts, self.k)

    def question(self, kernel: Begun[GrEMState], agreed: Mapping[str, Any], name: str) -> AskGrEMRound:
        """Send a site its mixture."""
        assert kernel.state is not None  # these are the rounds after the start
        return AskGrEMRound(**agreed, **stacked([fedgrem.model_for(kernel.state, name)]))

    def problem(self, state: Run[Begun[GrEMState]], name: str, answer: Any) -> str | None:
        """Say why a mixture cannot come of the one that was sent, and of the site's rows."""
        if not isinstance(answer, GrEMMixture) or state.kernel.state is None:
            return super().problem(state, name, answer)
        sent = fedgrem.model_for(state.kernel.state, name)
        problem = infeasible(answer.mixture, self.bounds)
        whole, least = self.greeted(state, name), self.config.min_count
        floor = max(self.bounds.variance_floor, 1.0)  # of the published preset: all its covariances are 1
        problem = problem or whole.problem_of_places(answer.means, sent.means)
        problem = problem or whole.problem_of_step(answer.mixture.covariances, sent, least, floor)
        return problem and f"its mixture was not used: {problem}"

    def advance(self, run: Run[Begun[GrEMState]], answers: Mapping[str, Any]) -> GrEMState:
        """Draw the mixtures together."""
        assert run.kernel.state is not None  # these are the rounds after the start
        members = run.agreement.roster.members
        sent = {name: SiteModel(answer.mixture, members[name].hello.rows) for name, answer in answers.items()}
        return fedgrem.step(run.kernel.state, sent, grem_of(self.config.fedgrem, self.bounds))

    def status(self, state: GrEMState) -> str:
        """Stop when no mixture moves."""
        settings = self.config.fedgrem
        return fedgrem.status(state, tolerance=settings.tolerance, max_rounds=settings.rounds)

    def figures_of(self, kernel: Begun[GrEMState]) -> dict[str, float]:
        """Return how far a mixture moved, and how strongly they are drawn together."""
        if kernel.state is None or not kernel.state.round:
            return {}
        moved = super(AlignedRounds, self).figures_of(kernel.state)  # type: ignore[arg-type]  # it reads one figure
        return {**moved, "penalty": kernel.state.strength}

    def mixtures(self, run: Run[Begun[GrEMState]]) -> Mapping[str, labelling.SiteModel]:
        """Return every site's mixture; a site that sent none has what the others have in common."""
        state = run.kernel.state
        assert state is not None  # the rounds are over
        return {
            name: labelling.SiteModel(fedgrem.model_for(state, name)) for name in run.agreement.roster.members
        }
