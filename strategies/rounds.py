"""What methods share that go through rounds with the sites, and then let these label their rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedcluster_app.errors import DataError, RunError
from fedcluster_app.messages import Labelled
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from fedcluster_app.results.personal import PersonalModels
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.labelling import SiteModel, ask_labels
from strategies.plausible import Totals, greeted

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Run(Generic[K]):
    """Where a run stands.

    Attributes
    ----------
    agreement : Agreement
    kernel : K
        The state of the method's own arithmetic.
    sites : mapping of site name to details
        What there is to say of every site that was heard.
    rounds : int
        Exchanges so far.
    models : mapping of site name to SiteModel, or None
        What sites label by, as the rounds have found it; None while they go on.
    labelled : mapping of site name to Labelled, or None
        Filled by the last exchange.
    heard : bool
        False if the rounds ended because nobody answered.
    """

    agreement: Agreement
    kernel: K
    sites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: int = 0
    models: Mapping[str, SiteModel] | None = None
    labelled: Mapping[str, Labelled] | None = None
    heard: bool = True

    def greeted(self, name: str) -> Totals:
        """Return what follows from the moments that a site greeted with."""
        return greeted(self.agreement.roster.moments[name], self.agreement.scaling)


class Rounds(SiteStrategy[Run[K]]):
    """Rounds with every site that has enough rows, then labels.

    A method says what it asks, how it takes answers in, when it stops, and what it has found. A site that is
    silent in a round is not waited for; what then stands for it is the method's affair.
    """

    @abstractmethod
    def first(self, agreement: Agreement) -> K:
        """Return the state of the arithmetic before the first round."""

    @abstractmethod
    def exchange(self, run: Run[K]) -> Exchange:
        """Return what the sites are asked now."""

    @abstractmethod
    def take(self, run: Run[K], answers: Mapping[str, Any]) -> K:
        """Return the state of the arithmetic after a round; DataError ends the run."""

    @abstractmethod
    def stopped_by(self, kernel: K) -> str:
        """Return the rule that has ended the rounds, or "running"."""

    @abstractmethod
    def models(self, run: Run[K]) -> Mapping[str, SiteModel]:
        """Return what sites label by once the rounds are over; DataError ends the run."""

    @abstractmethod
    def k_hat(self, models: Mapping[str, SiteModel]) -> int:
        """Return the number of clusters over all sites."""

    @abstractmethod
    def model(self, agreement: Agreement, models: Mapping[str, SiteModel]) -> Model | PersonalModels:
        """Return what is written to the model file."""

    @abstractmethod
    def scores(self, labelled: Mapping[str, Labelled], models: Mapping[str, SiteModel]) -> dict[str, float]:
        """Return the scores over all sites."""

    @abstractmethod
    def scores_of_site(self, answer: Labelled, model: SiteModel) -> Mapping[str, Any]:
        """Return the scores of one site."""

    @abstractmethod
    def warnings(self, run: Run[K], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Return what the method warns of."""

    def phase(self, run: Run[K]) -> str:
        """Return the word for the next exchange."""
        return f"round {run.rounds + 1}"

    def figures_of(self, kernel: K) -> dict[str, float]:
        """Return what a round's line says, besides the count."""
        movement = getattr(kernel, "movement", np.inf)
        return {"movement": float(movement)} if np.isfinite(movement) else {}

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Return what there is to say of a site that has answered."""
        return {}

    def details_of(self, run: Run[K]) -> dict[str, Any]:
        """Return what the summary has of the method, besides the last figures."""
        return {}

    def begin(self, agreement: Agreement) -> Run[K]:
        """Start with nothing heard."""
        return Run(agreement, self.first(agreement))

    def ask(self, state: Run[K]) -> Exchange | None:
        """Ask for rounds until they are over, then for labels."""
        if state.models is None:
            return self.exchange(state)
        return None if state.labelled is not None else ask_labels(state.agreement.scaling, state.models)

    def tell(self, state: Run[K], answers: Answers) -> Run[K]:
        """Take a round or the labels in."""
        if state.models is not None:
            return replace(state, labelled=answers.values)
        told = {name: self.site_details(answer) for name, answer in answers.values.items()}
        sites = {**state.sites, **{name: {**state.sites.get(name, {}), **new} for name, new in told.items()}}
        phase = self.phase(state)
        try:
            kernel = self.take(state, answers.values)
            state = replace(state, kernel=kernel, sites=sites, rounds=state.rounds + 1)
            return (
                state if self.stopped_by(kernel) == "running" else replace(state, models=self.models(state))
            )
        except DataError as error:
            raise RunError(f"phase {phase!r}: {error}") from error

    def figures(self, state: Run[K]) -> dict[str, float]:
        """Return K̂ once it is found, and what the method says of a round."""
        return self.figures_of(state.kernel) if state.models is None else {"k_hat": self.k_hat(state.models)}

    def conclude(self, state: Run[K]) -> Outcome:
        """Return what was found with all that led to it."""
        models, agreement = state.models, state.agreement
        assert models is not None  # the exchanges before have filled both
        assert state.labelled is not None
        return Outcome(
            status=FINISHED,
            k_hat=self.k_hat(models),
            model=self.model(agreement, models),
            sites=tuple(self._site(state, models.get(name), name) for name in agreement.roster.members),
            scores=self.scores(state.labelled, models),
            details={
                "rounds": getattr(state.kernel, "round", state.rounds),
                "stopped_by": self.stopped_by(state.kernel) if state.heard else "unheard",
                **self.figures_of(state.kernel),
                **self.details_of(state),
            },
            warnings=(*agreement.report.warnings, *self.warnings(state, models), *self._warnings(state)),
        )

    def _site(self, state: Run[K], model: SiteModel | None, name: str) -> SiteResult:
        details = dict(state.sites.get(name, {}))
        if model is not None and state.labelled and name in state.labelled:
            details |= self.scores_of_site(state.labelled[name], model)
        few = name not in state.agreement.roster.moments
        rows = state.agreement.roster.members[name].hello.rows
        return SiteResult(name, "receives only" if few else "ok", rows, details=details)

    def _warnings(self, state: Run[K]) -> list[str]:
        told = []
        if not state.heard:
            told.append("the rounds ended early: no site sent anything that can be used")
        if self.stopped_by(state.kernel) == "max_rounds":
            told.append("the rounds stopped at the most that are allowed, not by themselves")
        silent = sorted(set(state.agreement.roster.moments) - set(state.sites))
        if silent:
            told.append(f"sites {', '.join(silent)} were never heard; the clusters are those of the others")
        return told


class AskAll(Rounds[K]):
    """Rounds in which all sites are asked the same.

    Once there is something to label by, a round that nobody answers ends them with what there is; with a
    quorum above 1 the run stops.
    """

    @abstractmethod
    def question(self, run: Run[K]) -> tuple[Any, type, dict[str, int]]:
        """Return what every site is asked now, the type of its answer, and known sizes of that."""

    def asked(self, run: Run[K]) -> Iterable[str]:
        """Return the sites that are asked in a round, by default all that have enough rows."""
        return run.agreement.roster.moments

    def ready(self, run: Run[K]) -> bool:
        """Tell whether there is something to end with, by default after the first round."""
        return run.rounds > 0

    def tell(self, state: Run[K], answers: Answers) -> Run[K]:
        """Take a round or the labels in, or end the rounds if nobody answers."""
        if state.models is None and not answers.values and self.ready(state):
            return replace(state, heard=False, models=self.models(state))
        return super().tell(state, answers)

    def exchange(self, run: Run[K]) -> Exchange:
        """Ask all sites the same."""
        ask, answer, known = self.question(run)
        asks, q = dict.fromkeys(self.asked(run), ask), run.agreement.scaling.n_features_out
        sizes = {name: {"q": q, "t": q * (q + 1) // 2, **known} for name in asks}
        must = self.config.quorum > 1 or not self.ready(run)
        return Exchange(self.phase(run), asks, {type(ask): answer}, sizes=sizes, must_answer=must)
