"""What becomes of a run of GTVMin: models of sites, edges, the path of alpha, tables, warnings."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedcluster_app.config import RunConfig
from fedcluster_app.coupling import settings_of
from fedcluster_app.gtvmin import alpha_path
from fedcluster_app.gtvmin.edges import EdgeReport, edge_reports
from fedcluster_app.gtvmin.objective import certificate
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.metrics.mixtures import effective_components
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from fedcluster_app.results.personal import PersonalModels
from fedcluster_app.streams import stream
from strategies.gtvmin_rounds import GTVRun
from strategies.labelling import SiteModel, personal_scores, personal_site_scores


def site_models(state: GTVRun) -> dict[str, SiteModel]:
    """Return what every site labels its rows by: its mixture, or if it has none its neighbours' together."""
    identity, mixtures, laid = state.identity, state.mixtures, state.laid
    assert identity is not None
    assert laid is not None
    models = {}
    for name in state.agreement.roster.members:
        if name in mixtures:
            models[name] = SiteModel(mixtures[name], names=identity.labels[name])
            continue
        near = {other: w for other, w in laid.graph.neighbours(name).items() if other in mixtures}
        near = near or dict.fromkeys(mixtures, 1.0)
        total = sum(near.values())
        parts = [mixtures[other] for other in near]
        union = Mixture(
            np.concatenate([part.weights * w / total for part, w in zip(parts, near.values(), strict=True)]),
            np.concatenate([part.means for part in parts]),
            np.concatenate([part.covariances for part in parts]),
        )
        models[name] = SiteModel(union, names=np.concatenate([identity.labels[other] for other in near]))
    return models


def conclude(state: GTVRun, config: RunConfig, stopped_by: str) -> Outcome:
    """Return the outcome of a run whose exchanges are over."""
    agreement, identity, laid = state.agreement, state.identity, state.laid
    assert identity is not None  # the exchanges before have filled them
    assert laid is not None
    assert state.labelled is not None
    models = site_models(state)
    point = state.stage.held_out
    mixtures = {name: model.clusters for name, model in models.items()}
    names = {name: model.names for name, model in models.items() if model.names is not None}
    scores = {"held_out_log_likelihood": point.mean} if point.rows else {}
    return Outcome(
        status=FINISHED,
        k_hat=identity.n_clusters,
        model=PersonalModels(agreement.columns, agreement.scaling, mixtures, names),
        sites=tuple(_site(state, models[name], name) for name in agreement.roster.members),
        scores=scores | personal_scores(state.labelled, models),
        details=_details(state, config, stopped_by),
        words=_words(state),
        warnings=(*agreement.report.warnings, *laid.warnings, *_warnings(state, config, stopped_by)),
    )


def _site(state: GTVRun, model: SiteModel, name: str) -> SiteResult:
    member = state.agreement.roster.members[name]
    details: dict[str, Any] = {}
    if name in state.mixtures:
        point = state.stage.held_out
        details = {
            "k_counted": state.k_counted.get(name),
            "k_g": model.clusters.n_components,
            "k_eff": effective_components(model.clusters.weights),
            "clusters": [] if model.names is None else model.names.tolist(),
            "neighbours": sorted(state.live_graph.neighbours(name)),
        }
        if name in point.rows:
            details["held_out_log_likelihood"] = point.held_out[name] / point.rows[name]
    if state.labelled and name in state.labelled:
        details |= personal_site_scores(state.labelled[name], model.clusters)
    return SiteResult(
        name, "ok" if name in state.mixtures else "receives only", member.hello.rows, details=details
    )


def _details(state: GTVRun, config: RunConfig, stopped_by: str) -> dict[str, Any]:
    trace = state.stage.progress.trace
    found: dict[str, Any] = {
        "alpha": state.stage.alpha,
        "rounds": len(state.seen),
        "stopped_by": stopped_by,
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
    best = state.stage.held_out
    return [
        {
            "alpha": point.alpha,
            "held_out_log_likelihood": point.mean,
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
        curve = ", ".join(f"{p.alpha:g}: {p.mean:.3f}" for p in tried)
        told.append(
            f"alpha {state.stage.alpha:g} chosen by the mean log-likelihood of rows held out ({curve})"
        )
    elif point.rows:
        told.append(f"alpha {state.stage.alpha:g}; rows held out have mean log-likelihood {point.mean:.3f}")
    if state.off:
        pairs = ", ".join(f"{a} - {b}" for a, b in state.off)
        told.append(f"{len(state.off)} edges between unlike sites were switched off: {pairs}")
    return tuple(told)


def _warnings(state: GTVRun, config: RunConfig, stopped_by: str) -> list[str]:
    found = []
    if stopped_by == "max_rounds" and len(alpha_path.at_their_best(state.seen)) == 1:
        found.append(
            f"the rounds stopped at gtv-rounds={config.gtv.rounds}; mixtures still move "
            f"(gtv-tolerance={config.gtv.tolerance:g}, gtv-settled={config.gtv.settled:g})"
        )
    if not state.stage.held_out.rows and config.gtv.folds:
        found.append("no site has rows enough to hold a part out, so nothing says how good this is")
    old = [name for name in state.mixtures if state.stage.mailbox.age(name) > 0]
    if old:
        found.append(
            f"sites {', '.join(old)} were silent at the end; their mixtures are older than the others'"
        )
    silent = sorted(set(state.agreement.roster.moments) - set(state.mixtures))
    if silent:
        found.append(f"sites {', '.join(silent)} never sent a mixture; they label by their neighbours'")
    return found
