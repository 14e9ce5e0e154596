"""What becomes of a run of the one-shot reconciliation: models of sites, tables, warnings, summaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcluster_app.aggregation.microcluster import Assembly, Clusters
from fedcluster_app.config import RunConfig
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.model import Sensors
from fedcluster_app.results.outcome import SiteResult
from fedcluster_app.results.summaries import Summaries
from strategies.labelling import SiteModel, site_scores
from strategies.microcluster_rounds import MicroRun


def mixture(clusters: Clusters, weights: FloatArray) -> Mixture:
    """Return the clusters by some weights (K,)."""
    return Mixture(weights, clusters.means, clusters.covariances)


def site_models(state: MicroRun, assembly: Assembly) -> dict[str, SiteModel]:
    """Return what every site labels its rows by: its weights, or those of all as a start to fit them.

    After rounds of EM the coordinator does not have the weights of the sites, but the same for all.
    """
    clusters = assembly.clusters
    everywhere = mixture(clusters, clusters.global_weights)
    models = {}
    for name in state.agreement.roster.members:
        offset, gain = state.drift(name)
        own = clusters.weights[assembly.names.index(name)] if name in assembly.names else None
        if own is None or np.array_equal(own, clusters.global_weights):
            models[name] = SiteModel(everywhere, offset=offset, gain=gain, fit_weights=True)
        else:
            models[name] = SiteModel(mixture(clusters, own), offset=offset, gain=gain)
    return models


def sensors(assembly: Assembly) -> Sensors | None:
    """Return the offsets and gains of sites, if such were found."""
    drift = assembly.drift
    return Sensors(assembly.names, drift.offsets, drift.gains) if drift is not None and drift.on else None


def summaries(state: MicroRun, assembly: Assembly) -> Summaries:
    """Return what a later run can start from."""
    found = assembly.drift
    return Summaries(
        columns=state.agreement.columns,
        scaling=state.agreement.scaling,
        uploads=state.micro.uploads,
        clusters=assembly.clusters,
        names=assembly.names,
        counts=state.micro.counts,
        seed=state.seed,
        drift=found if found is not None and found.on else None,
    )


def site_result(state: MicroRun, assembly: Assembly, name: str) -> SiteResult:
    """Return the row of a site: its micro-clusters, the clusters it holds, its offset, its scores."""
    rows = state.agreement.roster.members[name].hello.rows
    details: dict[str, Any] = {}
    if name in state.micro.uploads:
        details["cells"] = len(state.micro.uploads[name].counts)
    if name in state.micro.counts:
        details["k_counted"] = state.micro.counts[name]
    labelled = (state.labelled or {}).get(name)
    if labelled is not None:
        clusters = mixture(assembly.clusters, assembly.clusters.global_weights)
        if labelled.counts is not None:
            details["k_g"] = int(np.count_nonzero(labelled.counts))
        details |= site_scores(labelled, clusters)
    if assembly.drift is not None and name in assembly.names:
        details["offset_in_widths"] = float(assembly.drift.widths[assembly.names.index(name)])
    status = "ok" if name in state.agreement.roster.moments else "receives only"
    return SiteResult(name, status, rows, details=details)


def details(state: MicroRun, assembly: Assembly, config: RunConfig) -> dict[str, Any]:
    """Return the path of K, the votes and what led from them to K̂."""
    path, votes, drift, rounds = assembly.path, assembly.votes, assembly.drift, state.rounds
    rule = config.micro.k_rule if assembly.refined is None else "rows held out after federated EM"
    found: dict[str, Any] = {"k_rule": rule, "cells": _cells(state)}
    if path is not None and votes is not None:
        found |= {"votes": vars(votes), "tied": assembly.tied, "k_path": _path(assembly)}
    if assembly.refined is not None:
        found["refined_votes"] = {
            name: vars(assembly.refined)[name] for name in ("hold", "hold_1se", "hold_98")
        }
    if rounds is not None:
        found |= {"rounds": rounds.number - 1, "log_likelihood": list(rounds.log_likelihood)}
    if drift is not None:
        found["drift"] = {
            "on": drift.on,
            "bic_gain": drift.bic_gain,
            "held_out_gain": drift.held_out_gain,
            "standard_error": drift.standard_error,
            "start": drift.start,
            "offsets": dict(zip(assembly.names, drift.offsets.tolist(), strict=True)),
            "gains": dict(zip(assembly.names, drift.gains.tolist(), strict=True)),
        }
    return found


def _cells(state: MicroRun) -> int:
    return sum(len(upload.counts) for upload in state.micro.uploads.values())


def _path(assembly: Assembly) -> list[dict[str, Any]]:
    path = assembly.path
    assert path is not None
    columns = (path.k, path.log_likelihood, path.bic, path.held_out.sum(axis=1), path.separation)
    names = ("k", "log_likelihood", "bic", "held_out", "separation")
    lines = zip(*(column.tolist() for column in columns), strict=True)
    sites = [dict(zip(assembly.names, row, strict=True)) for row in path.held_out.tolist()]
    return [
        dict(zip(names, line, strict=True)) | {"held_out_by_site": told}
        for line, told in zip(lines, sites, strict=True)
    ]


def warnings(state: MicroRun, assembly: Assembly) -> tuple[str, ...]:
    """Say what went wrong with sites, and what the assembly warns of."""
    found = [*state.agreement.report.warnings, *assembly.warnings]
    if state.unheard:
        found.append("the rounds of federated EM ended early: no site sent sums that can be used")
    if state.stored is not None and state.stored.drift is not None and assembly.drift is None:
        found.append("the earlier run took offsets of sites out, this one does not; add site-offsets='auto'")
    roster = state.agreement.roster
    silent = sorted(set(roster.moments) - set(state.micro.uploads))
    if silent:
        found.append(
            f"sites {', '.join(silent)} sent no micro-clusters; the clusters are those of the others, which "
            "each of these sites weighs by its own rows"
        )
    gone = sorted(set(assembly.names) - set(roster.members))
    if gone:
        found.append(f"sites {', '.join(gone)} are not here; the clusters rest on what they sent before")
    return tuple(found)
