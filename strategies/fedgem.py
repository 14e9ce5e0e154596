"""FedGEM over named sites: count, reconcile in rounds, group once, label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcluster_app.aggregation import fedgem
from fedcluster_app.aggregation.fedgem import Balls, Components, FedGEMState, Reconciliation
from fedcluster_app.config import RunConfig
from fedcluster_app.messages import (
    AskFedGEMEnd,
    AskFedGEMRound,
    AskFedGEMStart,
    FedGEMBalls,
    FedGEMEnd,
    FedGEMStart,
    Labelled,
)
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.labelling import SiteModel, ask_labels, by_nearest, global_scores, site_scores


@dataclass(frozen=True, eq=False)
class FedGEMRun:
    """Where a run stands; ``final``, ``clusters`` and ``labelled`` are filled by the last exchanges."""

    agreement: Agreement
    starts: Mapping[str, FedGEMStart] = field(default_factory=dict)
    rounds: FedGEMState = field(default_factory=fedgem.init)
    final: Reconciliation | None = None
    clusters: Mixture | None = None
    labelled: Mapping[str, Labelled] | None = None
    missed_end: tuple[str, ...] = ()


class FedGEM(SiteStrategy[FedGEMRun]):
    """Reconcile local counts into global clusters.

    One exchange carries the count and the first step; then come the rounds, one more step with summaries of
    the components, and the labels. A site that was silent so far is asked to start in any later round; one
    that falls silent takes part with its last balls.

    Notes
    -----
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, with counts estimated at the sites as in Goyal,
    Tarun, Senapathi and Raman, arXiv:2609.36762.
    """

    def begin(self, agreement: Agreement) -> FedGEMRun:
        """Start with nothing known but the scaling."""
        return FedGEMRun(agreement)

    def ask(self, state: FedGEMRun) -> Exchange | None:
        """Ask for rounds until they are over, then for the last upload, then for labels."""
        if not self._rounds_over(state):
            return self._ask_round(state)
        if state.final is None or state.clusters is None:
            asks = {name: AskFedGEMEnd(means) for name, means in state.rounds.means.items()}
            return Exchange("end", asks, {AskFedGEMEnd: FedGEMEnd}, sizes=_sizes(state.rounds.means))
        if state.labelled is None:
            clusters, own = state.clusters, state.final.labels
            models = {name: SiteModel(clusters, own.get(name)) for name in state.agreement.roster.members}
            return ask_labels(state.agreement.scaling, models)
        return None

    def tell(self, state: FedGEMRun, answers: Answers) -> FedGEMRun:
        """Take a round, the last upload, or the labels in."""
        if not self._rounds_over(state):
            came = {name: value for name, value in answers.values.items() if isinstance(value, FedGEMStart)}
            balls = {name: Balls(value.means, value.radii) for name, value in answers.values.items()}
            rounds = fedgem.step(state.rounds, balls, order=self.config.fedgem.order)
            return replace(state, starts={**state.starts, **came}, rounds=rounds)
        if state.final is None:
            final = self._group(state, answers.values)
            missed = tuple(sorted(set(state.starts) - set(answers.values)))
            return replace(state, final=final, clusters=by_nearest(final.centers), missed_end=missed)
        return replace(state, labelled=answers.values)

    def figures(self, state: FedGEMRun) -> dict[str, float]:
        """Return K̂ as it stands, and how far the means moved last."""
        if state.final is not None:
            return {"k_hat": state.final.k_hat}
        movement = state.rounds.movement
        figures: dict[str, float] = {"k_hat": state.rounds.k_hat}
        return figures | ({"movement": movement} if np.isfinite(movement) else {})

    def conclude(self, state: FedGEMRun) -> Outcome:
        """Return the global clusters with all that led to them."""
        final, clusters, agreement = state.final, state.clusters, state.agreement
        assert final is not None  # the exchanges before have filled all three
        assert clusters is not None
        assert state.labelled is not None
        path = zip(final.path.v.tolist(), final.path.k_hat.tolist(), final.path.bic.tolist(), strict=True)
        return Outcome(
            status=FINISHED,
            k_hat=final.k_hat,
            bounds=final.bounds,
            model=Model(agreement.columns, agreement.scaling, clusters),
            sites=tuple(self._site(state, name) for name in agreement.roster.members),
            scores=global_scores(state.labelled, clusters),
            details={
                "rounds": state.rounds.round,
                "stopped_by": self._status(state),
                "movement": state.rounds.movement,
                "final_radius": final.final_radius,
                "k_hat_path": [{"v": v, "k_hat": k, "bic": bic} for v, k, bic in path],
            },
            warnings=_warnings(state, self.config, self._status(state)),
        )

    def _status(self, state: FedGEMRun) -> str:
        settings = self.config.fedgem
        # The paper's T counts the rounds of the loop; one comes before it.
        return fedgem.status(state.rounds, tolerance=settings.tolerance, max_rounds=settings.max_rounds + 1)

    def _rounds_over(self, state: FedGEMRun) -> bool:
        return self._status(state) != "running"

    def _ask_round(self, state: FedGEMRun) -> Exchange:
        scaling = state.agreement.scaling
        asks: dict[str, Any] = {}
        for name in state.agreement.roster.moments:
            if name in state.starts:
                asks[name] = AskFedGEMRound(state.rounds.round, state.rounds.means[name])
            else:
                asks[name] = AskFedGEMStart(
                    scaling.center, scaling.scale, scaling.components, scaling.score_scale
                )
        sizes = {name: {"q": scaling.n_features_out} for name in asks} | _sizes(state.rounds.means)
        phase = f"round {state.rounds.round}" if state.starts else "count"
        answers = {AskFedGEMStart: FedGEMStart, AskFedGEMRound: FedGEMBalls}
        return Exchange(phase, asks, answers, sizes=sizes)

    def _group(self, state: FedGEMRun, ends: Mapping[str, FedGEMEnd]) -> Reconciliation:
        members = state.agreement.roster.members
        facts = {name: (members[name].hello.rows, start.spread) for name, start in state.starts.items()}
        components = {
            name: Components(end.means, end.counts, end.centers, end.scatters, facts[name][1], facts[name][0])
            for name, end in ends.items()
        }
        settings = self.config.fedgem
        return fedgem.finish(
            state.rounds,
            components,
            final_radius="bic" if settings.final_radius is None else settings.final_radius,
            radius_is=settings.radius_is,
            order=settings.order,
            fallback=facts,
        )

    def _site(self, state: FedGEMRun, name: str) -> SiteResult:
        rows = state.agreement.roster.members[name].hello.rows
        start = state.starts.get(name)
        details: dict[str, Any] = {}
        if start is not None:
            details = {
                "k_counted": start.k_counted,
                "k_g": len(start.means),
                "chosen": start.choices(),
                "held_out_silhouette": start.silhouette,
                "collapse_ratio": start.collapse_ratio,
            }
        if state.labelled and state.clusters and name in state.labelled:
            details = site_scores(state.labelled[name], state.clusters) | details
        few = name not in state.agreement.roster.moments
        return SiteResult(name, "receives only" if few else "ok", rows, details=details)


def _sizes(means: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {name: {"k": part.shape[0], "q": part.shape[1]} for name, part in means.items()}


def _warnings(state: FedGEMRun, settings: RunConfig, stopped_by: str) -> tuple[str, ...]:
    assert state.final is not None
    found = list(state.agreement.report.warnings)
    unit = settings.fedgem.variance == "unit"
    narrow = [name for name, start in state.starts.items() if start.collapse_ratio < 1]
    if unit and narrow:
        found.append(
            f"sites {', '.join(narrow)} spread less than the unit variance, so their means may collapse; "
            "try fedgem-variance='local'"
        )
    if state.final.collapsed:
        remedy = "try fedgem-variance='local'" if unit else "these sites may have counted too many clusters"
        found.append(f"two or more means of sites {', '.join(state.final.collapsed)} coincide; {remedy}")
    if stopped_by == "max_rounds":
        found.append(
            f"the rounds stopped at fedgem-max-rounds={settings.fedgem.max_rounds}, means still moving by "
            f"{state.rounds.movement:.3g} (fedgem-tolerance={settings.fedgem.tolerance:g})"
        )
    if state.final.k_hat == state.final.bounds[0] and len(state.starts) > 1:
        found.append(
            "k_hat is at its floor, the largest count of one site: two components of a site are never joined"
        )
    if state.missed_end:
        found.append(
            f"sites {', '.join(state.missed_end)} missed the last upload; "
            "the sizes of their clusters are assumed"
        )
    silent = sorted(set(state.agreement.roster.moments) - set(state.starts))
    if silent:
        found.append(f"sites {', '.join(silent)} never sent a count; the clusters are those of the others")
    return tuple(found)
