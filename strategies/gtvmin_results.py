"""What becomes of a run of GTVMin: models of sites, edges, the path of alpha, tables, warnings."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedcluster_app.config import RunConfig
from fedcluster_app.coupling import settings_of
from fedcluster_app.gtvmin import alpha_path
from fedcluster_app.gtvmin.alpha_path import Point
from fedcluster_app.gtvmin.edges import EdgeReport, edge_reports
from fedcluster_app.gtvmin.objective import certificate
from fedcluster_app.gtvmin.progress import Stop, status
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from fedcluster_app.streams import stream
from strategies.gtvmin_rounds import GTVRun
from strategies.labelling import SiteModel, personal_scores, personal_site_scores
from strategies.personal import absence, details_of, model_file, site_models

# Share of the potential by which the last rounds may still move without a word.
NEARLY = 1e-3
# Edges that are named to people; the summary has all.
SHOWN = 8


def models_of(state: GTVRun) -> dict[str, SiteModel]:
    """Return what every site labels its rows by."""
    assert state.identity is not None  # the exchanges before have filled them
    assert state.laid is not None
    return site_models(
        state.agreement.roster.members, state.agreed_mixtures, state.identity.labels, state.laid.graph
    )


def conclude(state: GTVRun, config: RunConfig) -> Outcome:
    """Return the outcome of a run whose exchanges are over."""
    agreement, identity, laid = state.agreement, state.identity, state.laid
    assert identity is not None  # the exchanges before have filled them
    assert laid is not None
    assert state.labelled is not None
    models = models_of(state)
    point = state.stage.held_out
    scores = {"held_out_log_likelihood": state.log_density(point)} if point.rows else {}
    return Outcome(
        status=FINISHED,
        k_hat=identity.n_clusters,
        model=model_file(agreement, models),
        sites=tuple(_site(state, models.get(name), name) for name in agreement.roster.members),
        scores=scores | personal_scores(state.labelled, models),
        details=_details(state, config),
        words=_words(state),
        warnings=(*agreement.report.warnings, *laid.warnings, *_warnings(state, config)),
    )


def _site(state: GTVRun, model: SiteModel | None, name: str) -> SiteResult:
    member = state.agreement.roster.members[name]
    details: dict[str, Any] = {}
    if name in state.mixtures and model is not None:
        point = state.stage.held_out
        details = {
            "k_counted": state.starts[name].k_counted,
            **details_of(model),
            "neighbours": sorted(state.live_graph.neighbours(name)),
        }
        if name in point.rows:
            own = Point(point.alpha, {name: point.held_out[name]}, {name: point.rows[name]})
            details["held_out_log_likelihood"] = state.log_density(own)
    if state.labelled and name in state.labelled and model is not None:
        details |= personal_site_scores(state.labelled[name], model.clusters)
    return SiteResult(
        name, "ok" if name in state.mixtures else "receives only", member.hello.rows, details=details
    )


def _details(state: GTVRun, config: RunConfig) -> dict[str, Any]:
    trace = state.stage.progress.trace
    found: dict[str, Any] = {
        "alpha": state.stage.alpha,
        "rounds": state.stage.mailbox.round,
        "unit": state.unit,
        "stopped_by": state.stopped_by,
        "alpha_path": _path(state),
        "edges": [vars(edge) for edge in _edges(state, config)],
        "edges_off": list(state.off),
        "trace": [
            vars(totals) | {"potential": totals.potential, "objective": totals.objective} for totals in trace
        ],
    }
    proof = certificate(trace) if len(trace) > 1 else None
    if proof is not None and proof.applies(_settings(state, config)):
        bound = proof.bound(config.gtv.step_size)
        found["certificate"] = {"mean_squared_mapping": proof.mean_squared_mapping, "bound": bound}
    return found


def _path(state: GTVRun) -> list[dict[str, float]]:
    """Return the curve that alpha was chosen by, with the standard error of every gap to the best."""
    points = alpha_path.at_their_best(state.seen)
    if len(points) < 2:
        return []
    best = points[alpha_path.best_of(points)]
    return [
        {
            "alpha": point.alpha,
            "held_out_log_likelihood": state.log_density(point),
            "standard_error_to_best": alpha_path.standard_error(point, best),
            "rounds": sum(other.alpha == point.alpha for other in state.seen),
        }
        for point in points
    ]


def _edges(state: GTVRun, config: RunConfig) -> tuple[EdgeReport, ...]:
    """Report on the edges between sites that have mixtures."""
    return edge_reports(
        state.mixtures, state.live_graph, _settings(state, config), partial(stream, config.seed, "gtv-edges")
    )


def _settings(state: GTVRun, config: RunConfig) -> Settings:
    return settings_of(config.gtv, state.stage.alpha, state.agreement.scaling.n_features_out)


def _words(state: GTVRun) -> tuple[str, ...]:
    point, tried = state.stage.held_out, alpha_path.at_their_best(state.seen)
    told = []
    if len(tried) > 1:
        curve = ", ".join(f"{p.alpha:g}: {state.log_density(p):.3f}" for p in tried)
        told.append(
            f"alpha {state.stage.alpha:g} chosen by the mean log-likelihood of rows held out ({curve})"
        )
        told.append(
            f"the mixtures are those after {state.stage.progress.round} rounds at it, the best of them"
        )
    elif point.rows:
        found = state.log_density(point)
        told.append(f"alpha {state.stage.alpha:g}; rows held out have mean log-likelihood {found:.3f}")
    if state.off:
        pairs = ", ".join(f"{a} - {b}" for a, b in state.off[:SHOWN])
        more = "" if len(state.off) <= SHOWN else f" and {len(state.off) - SHOWN} more"
        told.append(f"{len(state.off)} edges between unlike sites were switched off: {pairs}{more}")
    return tuple(told)


def _nearly_settled(state: GTVRun) -> bool:
    progress = state.stage.progress
    return status(progress, Stop(max_rounds=progress.round, tolerance=0.0, settled=NEARLY)) == "settled"


def _warnings(state: GTVRun, config: RunConfig) -> list[str]:
    found = []
    if state.stopped_by == "max_rounds" and not _nearly_settled(state):
        found.append(
            f"the rounds stopped at gtv-rounds={config.gtv.rounds}, loss or disagreement still moving by "
            f"more than {NEARLY:g} of their sum"
        )
    tried = alpha_path.at_their_best(state.seen)
    if len(tried) > 1 and state.stage.alpha == max(point.alpha for point in tried) > 0:
        found.append(f"alpha={state.stage.alpha:g} is the largest that was tried; give larger ones")
    if state.stopped_by == "unheard":
        found.append("the rounds ended early: no site sent a mixture that can be used")
    if not any(start.held_out_rows for start in state.starts.values()) and config.gtv.folds:
        found.append(
            f"no site has rows enough to hold gtv-folds={config.gtv.folds} parts out, so nothing says how "
            f"good alpha={state.stage.alpha:g} is; take fewer, or give alpha"
        )
    old = [name for name in state.mixtures if state.stage.mailbox.age(name) > 0]
    if old:
        found.append(
            f"sites {', '.join(old)} were silent at the end; their mixtures are older than the others'"
        )
    found += absence(state.agreement, state.mixtures, models_of(state))
    return found
