"""One-shot reconciliation over named sites: micro-clusters once, assembly, rounds if wanted, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster_app.aggregation import microcluster
from fedcluster_app.config import RunConfig
from fedcluster_app.errors import RunError
from fedcluster_app.messages import AskMicroClusters, MicroClustersSent, MicroSums
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED, Outcome
from fedcluster_app.results.summaries import Summaries, load_summaries
from fedcluster_app.streams import stream
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.labelling import ask_labels, global_scores
from strategies.microcluster_results import (
    details,
    mixture,
    sensors,
    site_models,
    site_result,
    summaries,
    warnings,
)
from strategies.microcluster_rounds import MicroRun, Rounds, ask_round, problem_of_sums, take_sums
from strategies.plausible import pooled

# Least rounds of the refined votes: a few more than pay for one set of clusters.
VOTE_ROUNDS = 10


class MicroCluster(SiteStrategy[MicroRun]):
    """Assemble the micro-clusters of all sites.

    A site whose micro-clusters do not come, or cannot be those of its rows, still labels its rows: it fits
    its weights of the clusters itself. ``summaries`` of an earlier run stand in for the sites in it.

    Notes
    -----
    **Source**: ours; "micro-cluster" as in BIRCH and CluStream.
    """

    def begin(self, agreement: Agreement) -> MicroRun:
        """Start with what an earlier run left, if the run names it."""
        if not self.config.micro.summaries:
            return MicroRun(agreement, self.config.seed)
        stored = _stored(self.config, agreement)
        state = MicroRun(
            agreement=replace(agreement, scaling=stored.scaling),
            seed=stored.seed,
            stored=stored,
            micro=microcluster.step(microcluster.init(), stored.uploads, stored.counts),
        )
        return state if self._missing(state) else self._assembled(state)

    def ask(self, state: MicroRun) -> Exchange | None:
        """Ask for micro-clusters once, then for rounds if there shall be some, then for labels."""
        if state.assembly is None:
            return self._ask_cells(state)
        if state.rounds is not None and state.rounds.left:
            return ask_round(state, state.rounds, self.config)
        if state.labelled is None:
            return ask_labels(state.agreement.scaling, site_models(state, state.assembly))
        return None

    def problem(self, state: MicroRun, name: str, answer: Any) -> str | None:
        """Say why summaries cannot be of the rows whose moments their site sent."""
        if isinstance(answer, MicroClustersSent):
            problem = _problem(state, name, answer)
            return problem and f"its micro-clusters were not used: {problem}"
        if isinstance(answer, MicroSums) and state.rounds is not None:
            problem = problem_of_sums(state, state.rounds, name, answer)
            return problem and f"its sums were not used: {problem}"
        return None

    def tell(self, state: MicroRun, answers: Answers) -> MicroRun:
        """Take micro-clusters, sums of a round, or labels in."""
        if state.assembly is None:
            return self._assembled(_take_cells(state, answers.values))
        if state.rounds is not None and state.rounds.left:
            return take_sums(state, state.rounds, answers.values)
        return replace(state, labelled=answers.values)

    def figures(self, state: MicroRun) -> dict[str, float]:
        """Return K̂, and the log-likelihood of the rows while rounds go on."""
        figures: dict[str, float] = {} if state.assembly is None else {"k_hat": state.assembly.k_hat}
        if state.rounds is not None and state.rounds.log_likelihood and state.labelled is None:
            figures["log_likelihood"] = state.rounds.log_likelihood[-1]
        return figures

    def conclude(self, state: MicroRun) -> Outcome:
        """Return the global clusters with all that led to them."""
        assembly, agreement = state.assembly, state.agreement
        assert assembly is not None  # the exchanges before have filled both
        assert state.labelled is not None
        clusters = mixture(assembly.clusters, assembly.clusters.global_weights)
        return Outcome(
            status=FINISHED,
            k_hat=assembly.k_hat,
            model=Model(agreement.columns, agreement.scaling, clusters, sensors(assembly)),
            summaries=summaries(state, assembly),
            sites=tuple(site_result(state, assembly, name) for name in agreement.roster.members),
            scores=global_scores(state.labelled, clusters),
            details=details(state, assembly, self.config),
            words=assembly.words + (assembly.drift.words if assembly.drift else ()),
            warnings=warnings(state, assembly),
        )

    def _missing(self, state: MicroRun) -> list[str]:
        """Return the contributors whose micro-clusters are not there."""
        return [name for name in state.agreement.roster.moments if name not in state.micro.uploads]

    def _ask_cells(self, state: MicroRun) -> Exchange:
        scaling = state.agreement.scaling
        ask = AskMicroClusters(
            scaling.center, scaling.scale, scaling.components, scaling.score_scale, seed=state.seed
        )
        asks = dict.fromkeys(self._missing(state), ask)
        sizes = {name: {"q": scaling.n_features_out} for name in asks}
        answers: dict[type, type] = {AskMicroClusters: MicroClustersSent}
        return Exchange("cells", asks, answers, sizes=sizes, must_answer=state.stored is None)

    def _assembled(self, state: MicroRun) -> MicroRun:
        """Make global clusters of what is there, and say what shall be refined."""
        micro = self.config.micro
        if not state.micro.uploads:
            raise RunError("phase 'cells': no site sent micro-clusters that can be used")
        rng = stream(self.config.seed, "assembly")
        if state.stored is not None and micro.assembly == "keep":
            old = state.stored
            kept = microcluster.keep(state.micro, old.clusters, old.names, old.drift, rng)
            return replace(state, assembly=kept)
        settings = microcluster.Settings(
            micro.k_rule, micro.site_offsets == "auto", micro.site_gains == "auto"
        )
        assembly = microcluster.finish(state.micro, settings, rng)
        votes = micro.refined_votes == "on" or (
            micro.refined_votes == "auto"
            and micro.refine_rounds > 0
            and microcluster.classes_are_small(assembly)
        )
        left = max(micro.refine_rounds, VOTE_ROUNDS) if votes else micro.refine_rounds
        if not left or not set(assembly.names) & set(state.agreement.roster.moments):
            return replace(state, assembly=assembly)
        if votes:
            sets, weights = microcluster.sets_for_votes(state.micro, assembly, rng)
        else:
            sets, weights = microcluster.sets_for_rounds(assembly)
        start = dict(zip(assembly.names, weights, strict=True))
        return replace(state, assembly=assembly, rounds=Rounds(sets, start, left))


def _stored(config: RunConfig, agreement: Agreement) -> Summaries:
    """Return the summaries that a run names, raising RunError if the sites' columns are others."""
    stored = load_summaries(Path(config.micro.summaries))
    if stored.columns != agreement.columns:
        raise RunError(
            f"summaries {config.micro.summaries}: made with the columns {list(stored.columns)}, the sites "
            f"have {list(agreement.columns)}; run without summaries"
        )
    return stored


def _take_cells(state: MicroRun, answers: Mapping[str, MicroClustersSent]) -> MicroRun:
    """Add the micro-clusters of an exchange."""
    uploads = {
        name: microcluster.MicroClusters(
            answer.halves, answer.counts.astype(np.float64), answer.means, answer.variances
        )
        for name, answer in answers.items()
    }
    counts = {name: answer.k_counted for name, answer in answers.items() if answer.k_counted}
    return replace(state, micro=microcluster.step(state.micro, uploads, counts))


def _problem(state: MicroRun, name: str, answer: MicroClustersSent) -> str | None:
    greeted = state.greeted(name)
    if answer.k_counted > greeted.rows:
        return f"the site counted {answer.k_counted} clusters of {greeted.rows:g} rows"
    return greeted.problem(pooled(answer.counts.astype(np.float64), answer.means, answer.variances))
