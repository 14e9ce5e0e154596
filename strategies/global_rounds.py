"""What methods share that ask all sites the same in every round and end with one set of centres."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedcluster_app.errors import DataError, RunError
from fedcluster_app.messages import Labelled
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.labelling import SiteModel, ask_labels, by_nearest, global_scores, site_scores
from strategies.plausible import Totals, greeted

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Found:
    """Global centres (K, q), and the one that each local centre of a site is in, where sites have some."""

    centers: FloatArray
    own: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class GlobalRun(Generic[K]):
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
    clusters, own : Mixture and mapping, or None
        What the rounds have found; None while they go on.
    labelled : mapping of site name to Labelled, or None
        Filled by the last exchange.
    """

    agreement: Agreement
    kernel: K
    sites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: int = 0
    clusters: Mixture | None = None
    own: Mapping[str, IntArray] = field(default_factory=dict)
    labelled: Mapping[str, Labelled] | None = None

    def greeted(self, name: str) -> Totals:
        """Return what follows from the moments that a site greeted with."""
        return greeted(self.agreement.roster.moments[name], self.agreement.scaling)


class GlobalRounds(SiteStrategy[GlobalRun[K]]):
    """Rounds with every site that has enough rows, then labels by the nearest centre.

    A method says what it asks, how it takes answers in, when it stops, and what it has found. A site that is
    silent in a round is not waited for; what then stands for it is the method's affair.
    """

    @abstractmethod
    def first(self, agreement: Agreement) -> K:
        """Return the state of the arithmetic before the first round."""

    @abstractmethod
    def question(self, run: GlobalRun[K]) -> tuple[Any, type, dict[str, int]]:
        """Return what every site is asked now, the type of its answer, and known sizes of that."""

    @abstractmethod
    def take(self, run: GlobalRun[K], answers: Mapping[str, Any]) -> K:
        """Return the state of the arithmetic after a round; DataError ends the run."""

    @abstractmethod
    def stopped_by(self, kernel: K) -> str:
        """Return the rule that has ended the rounds, or "running"."""

    @abstractmethod
    def found(self, kernel: K) -> Found:
        """Return what the rounds have found; DataError ends the run."""

    def phase(self, run: GlobalRun[K]) -> str:
        """Return the word for the next exchange."""
        return f"round {run.rounds + 1}"

    def asked(self, run: GlobalRun[K]) -> Iterable[str]:
        """Return the sites that are asked in a round, by default all that have enough rows."""
        return run.agreement.roster.moments

    def figures_of(self, kernel: K) -> dict[str, float]:
        """Return what a round's line says, besides the count."""
        movement = getattr(kernel, "movement", np.inf)
        return {"movement": float(movement)} if np.isfinite(movement) else {}

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Return what there is to say of a site that has answered."""
        return {}

    def warnings_of(self, kernel: K, found: FloatArray) -> tuple[str, ...]:
        """Return what the method warns of; ``found`` are the centres."""
        return ()

    def begin(self, agreement: Agreement) -> GlobalRun[K]:
        """Start with nothing heard."""
        return GlobalRun(agreement, self.first(agreement))

    def ask(self, state: GlobalRun[K]) -> Exchange | None:
        """Ask for rounds until they are over, then for labels."""
        if state.clusters is None:
            ask, answer, known = self.question(state)
            asks = dict.fromkeys(self.asked(state), ask)
            sizes = {name: {"q": state.agreement.scaling.n_features_out, **known} for name in asks}
            return Exchange(self.phase(state), asks, {type(ask): answer}, sizes=sizes)
        if state.labelled is None:
            models = {
                name: SiteModel(state.clusters, state.own.get(name))
                for name in state.agreement.roster.members
            }
            return ask_labels(state.agreement.scaling, models)
        return None

    def tell(self, state: GlobalRun[K], answers: Answers) -> GlobalRun[K]:
        """Take a round or the labels in."""
        if state.clusters is not None:
            return replace(state, labelled=answers.values)
        told = {name: self.site_details(answer) for name, answer in answers.values.items()}
        sites = {**state.sites, **{name: {**state.sites.get(name, {}), **new} for name, new in told.items()}}
        try:
            kernel = self.take(state, answers.values)
            state = replace(state, kernel=kernel, sites=sites, rounds=state.rounds + 1)
            if self.stopped_by(kernel) == "running":
                return state
            found = self.found(kernel)
        except DataError as error:
            raise RunError(f"phase {self.phase(state)!r}: {error}") from error
        return replace(state, clusters=by_nearest(found.centers), own=found.own)

    def figures(self, state: GlobalRun[K]) -> dict[str, float]:
        """Return K̂ once it is found, and what the method says of a round."""
        if state.clusters is None:
            return self.figures_of(state.kernel)
        return {"k_hat": state.clusters.n_components}

    def conclude(self, state: GlobalRun[K]) -> Outcome:
        """Return the global clusters with all that led to them."""
        clusters, agreement = state.clusters, state.agreement
        assert clusters is not None  # the exchanges before have filled both
        assert state.labelled is not None
        return Outcome(
            status=FINISHED,
            k_hat=clusters.n_components,
            model=Model(agreement.columns, agreement.scaling, clusters),
            sites=tuple(self._site(state, name) for name in agreement.roster.members),
            scores=global_scores(state.labelled, clusters),
            details={
                "rounds": getattr(state.kernel, "round", state.rounds),
                "stopped_by": self.stopped_by(state.kernel),
                **self.figures_of(state.kernel),
            },
            warnings=self._warnings(state, clusters.means),
        )

    def _site(self, state: GlobalRun[K], name: str) -> SiteResult:
        details = dict(state.sites.get(name, {}))
        if state.labelled and state.clusters and name in state.labelled:
            details |= site_scores(state.labelled[name], state.clusters)
        few = name not in state.agreement.roster.moments
        rows = state.agreement.roster.members[name].hello.rows
        return SiteResult(name, "receives only" if few else "ok", rows, details=details)

    def _warnings(self, state: GlobalRun[K], centers: FloatArray) -> tuple[str, ...]:
        told = [*state.agreement.report.warnings, *self.warnings_of(state.kernel, centers)]
        if self.stopped_by(state.kernel) == "max_rounds":
            told.append("the rounds stopped at the most that are allowed, not by themselves")
        silent = sorted(set(state.agreement.roster.moments) - set(state.sites))
        if silent:
            told.append(f"sites {', '.join(silent)} were never heard; the clusters are those of the others")
        return tuple(told)
