"""What methods share whose sites all have k components: their local fits come first, and are matched once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from fedcluster_app.coupling import wide_bounds
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.aligned import align
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.messages import AskLocal, LocalMixture
from fedcluster_app.mixtures.mixture import Mixture
from strategies.base import Agreement
from strategies.exchange import Exchange
from strategies.gtvmin_rounds import in_units, unit_of
from strategies.labelling import SiteModel
from strategies.personal_rounds import PersonalRounds
from strategies.plausible import Totals, greeted
from strategies.rounds import Run

S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class Begun(Generic[S]):
    """A method's own state, once there are starts, and the unit of the features in its rounds.

    Attributes
    ----------
    state : S, optional
    unit : float
    start : Mixture, optional
        What the sites' starts are together, in that unit.
    rounds : int
        Exchanges since the start.
    heard : bool
        Whether anybody answered in the last exchange.
    """

    state: S | None = None
    unit: float = 1.0
    start: Mixture | None = None
    rounds: int = 0
    heard: bool = True

    @property
    def round(self) -> int:
        """Rounds of the method's own count."""
        return int(getattr(self.state, "round", 0))


class AlignedRounds(PersonalRounds[Begun[S]]):
    """One exchange with local fits, then the rounds of a method, in units of the spread within components."""

    answers: ClassVar[Mapping[type, type]]

    @abstractmethod
    def begun(self, agreement: Agreement, starts: Mapping[str, Start], start: Mixture) -> S:
        """Return the method's state before its first round."""

    @abstractmethod
    def question(self, kernel: Begun[S], agreed: Mapping[str, Any], name: str) -> Any:
        """Return what a site is asked in a round, or None if it is left alone; ``agreed`` is the scaling."""

    @abstractmethod
    def advance(self, run: Run[Begun[S]], answers: Mapping[str, Any]) -> S:
        """Return the method's state after a round."""

    @abstractmethod
    def status(self, state: S) -> str:
        """Return the rule that has ended the rounds, or "running"."""

    @abstractmethod
    def mixtures(self, run: Run[Begun[S]]) -> Mapping[str, SiteModel]:
        """Return what sites label by, in the unit of the rounds."""

    def sizes(self, kernel: Begun[S], name: str) -> dict[str, int]:
        """Return known sizes of a site's answer in a round."""
        return {}

    @property
    def k(self) -> int:
        """Components of every site."""
        return self.config.components

    @property
    def bounds(self) -> Bounds:
        """Feasible set of the rounds."""
        return wide_bounds(self.k, self.config.lonely.variance_floor)

    def first(self, agreement: Agreement) -> Begun[S]:
        """Start with nothing heard."""
        return Begun()

    def phase(self, run: Run[Begun[S]]) -> str:
        """Say what is asked: starts, then rounds."""
        return "start" if run.kernel.state is None else f"round {run.kernel.rounds + 1}"

    def exchange(self, run: Run[Begun[S]]) -> Exchange:
        """Ask for local fits, then for rounds."""
        kernel, names = run.kernel, run.agreement.roster.moments
        agreed, q = vars(self.scaling(run)), run.agreement.scaling.n_features_out
        size = {"q": q, "t": q * (q + 1) // 2}
        if kernel.state is None:
            asks: dict[str, Any] = dict.fromkeys(names, AskLocal(**agreed))
            return Exchange("start", asks, {AskLocal: LocalMixture}, sizes=dict.fromkeys(names, size))
        asks = {name: self.question(kernel, agreed, name) for name in names}
        asks = {name: ask for name, ask in asks.items() if ask is not None}
        sizes = {name: {**size, "k": self.k, **self.sizes(kernel, name)} for name in asks}
        # Once there are mixtures a run goes on, or ends with those it has.
        must = self.config.quorum > 1
        return Exchange(self.phase(run), asks, self.answers, sizes=sizes, must_answer=must)

    def problem(self, state: Run[Begun[S]], name: str, answer: Any) -> str | None:
        """Say why a start cannot be of the site's rows."""
        if not isinstance(answer, LocalMixture):
            return None
        floor = self.config.lonely.variance_floor
        problem = self.greeted(state, name).problem_of_mixture(answer.mixture, floor)
        if len(answer.weights) > self.k:
            problem = f"{len(answer.weights)} components, expected at most {self.k}"
        return problem and f"its mixture was not used: {problem}"

    def take(self, run: Run[Begun[S]], answers: Mapping[str, Any]) -> Begun[S]:
        """Match the starts, or take a round in."""
        kernel = run.kernel
        if kernel.state is not None:
            state = self.advance(run, answers) if answers else kernel.state
            return replace(kernel, state=state, rounds=kernel.rounds + 1, heard=bool(answers))
        found = {name: answer.mixture for name, answer in answers.items()}
        unit = unit_of(run.agreement, found)
        members = run.agreement.roster.members
        starts = {
            name: _start(in_units(mixture, unit), members[name].hello.rows, self.bounds)
            for name, mixture in found.items()
        }
        start = align(starts, self.k).pooled
        return Begun(self.begun(run.agreement, starts, start), unit, start)

    def stopped_by(self, kernel: Begun[S]) -> str:
        """Stop when nothing moves, or nobody answers."""
        if kernel.state is None:
            return "running"
        return self.status(kernel.state) if kernel.heard else "unheard"

    def models(self, run: Run[Begun[S]]) -> Mapping[str, SiteModel]:
        """Return the sites' mixtures in the features of the agreed scaling."""
        back = 1 / run.kernel.unit
        return {
            name: replace(model, clusters=in_units(model.clusters, back))
            for name, model in self.mixtures(run).items()
        }

    def warnings(self, run: Run[Begun[S]], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Say if the rounds broke off."""
        return () if run.kernel.heard else ("the rounds ended early: no site sent anything that can be used",)

    def scaling(self, run: Run[Begun[S]]) -> Scaling:
        """Return the scaling to the features of the rounds."""
        return run.agreement.scaling.in_units(run.kernel.unit)

    def greeted(self, run: Run[Begun[S]], name: str) -> Totals:
        """Return what follows from a site's moments, in these features."""
        return greeted(run.agreement.roster.moments[name], self.scaling(run))


def _start(mixture: Mixture, rows: int, bounds: Bounds) -> Start:
    """Return a feasible start of so many rows."""
    made = node.init(mixture, bounds).mixture
    return Start(made, np.diff(np.rint(rows * np.cumsum(made.weights)), prepend=0.0).astype(np.int64))
