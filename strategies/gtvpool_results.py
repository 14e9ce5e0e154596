"""What becomes of a run of evidence-gated pooling: models, trust, who used what of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from strategies.graphs import part_of
from strategies.gtvpool_run import PoolRun, models_of
from strategies.labelling import SiteModel, personal_scores, personal_site_scores
from strategies.personal import absence, details_of, model_file

# Probability from which it is told that a site uses a neighbour's component, and from which it is its own.
USED, SHARED = 0.01, 0.5
# How far a mixture may still move at the end of the rounds without a word.
NEARLY = 0.1
# Edges that are named to people; the summary has all.
SHOWN = 8


def conclude(state: PoolRun, min_count: int) -> Outcome:
    """Return the outcome of a run whose exchanges are over."""
    agreement, found, laid = state.agreement, state.identity, state.laid
    assert found is not None  # the exchanges before have filled them
    assert laid is not None
    assert state.labelled is not None
    models, edges = models_of(state), _edges(state)
    return Outcome(
        status=FINISHED,
        k_hat=found.n_clusters,
        model=model_file(agreement, models),
        sites=tuple(_site(state, models.get(name), name, min_count) for name in agreement.roster.members),
        scores=personal_scores(state.labelled, models),
        details={
            "rounds": state.mailbox.round,
            "stopped_by": state.stopped_by,
            "edges": edges,
        },
        words=_words(state, edges),
        warnings=(*agreement.report.warnings, *laid.warnings, *_warnings(state, models)),
    )


def _site(state: PoolRun, model: SiteModel | None, name: str, min_count: int) -> SiteResult:
    rows, details = state.agreement.roster.members[name].hello.rows, dict[str, Any]()
    if name in state.mailbox.posts and model is not None:
        end = (state.ends or {}).get(name)
        told = end or state.mailbox.posts[name].content
        details = {
            **details_of(model),
            "evidence": told.evidence / rows,
            "withheld_rows": _withheld(state, name),
            "trust": {} if end is None or end.trust is None else _by_name(state.heard[name], end.trust),
            "uses": _uses(state, name),
        }
    if state.labelled and name in state.labelled and model is not None:
        details |= personal_site_scores(state.labelled[name], model.clusters)
    return SiteResult(name, "ok" if name in state.mixtures else "receives only", rows, details=details)


def _withheld(state: PoolRun, name: str) -> float:
    """Return how many rows of a site are in no component that it told of."""
    missing = state.agreement.roster.members[name].hello.rows - state.mailbox.posts[name].content.counts.sum()
    return max(0.0, round(float(missing), 3))


def _by_name(names: tuple[str, ...], values: FloatArray) -> dict[str, float]:
    return dict(zip(names, values.round(3).tolist(), strict=True))


def _uses(state: PoolRun, name: str) -> list[dict[str, Any]]:
    """Return which components of neighbours a site takes for its own: places in both, and numbers."""
    assert state.identity is not None
    found, labels = [], state.identity.labels
    for other, table in state.tables(name).items():
        for there, place in enumerate(state.shown[other].places):
            found += [
                {
                    "neighbour": other,
                    "component": there,
                    "own": here,
                    "clusters": [int(labels[other][there]), int(labels[name][here])],
                    "probability": round(float(table[place, here]), 3),
                }
                for here in np.flatnonzero(table[place] > USED).tolist()
            ]
    return found


def _edges(state: PoolRun) -> list[dict[str, Any]]:
    """Return every edge between sites that have mixtures: trust of either end, and common components."""
    assert state.laid is not None
    trust, common = {}, {}
    for name, end in (state.ends or {}).items():
        if end.trust is not None:
            trust[name] = _by_name(state.heard[name], end.trust)
        common[name] = {
            other: int((np.nan_to_num(table).sum(axis=1) > SHARED).sum())
            for other, table in state.tables(name).items()
        }
    return [
        {
            "sites": [a, b],
            "trust": [trust.get(a, {}).get(b), trust.get(b, {}).get(a)],
            "shared": [common.get(a, {}).get(b), common.get(b, {}).get(a)],
        }
        for a, b in state.laid.graph.edges
        if a in state.mailbox.posts and b in state.mailbox.posts
    ]


def _words(state: PoolRun, edges: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    told = ["K̂ counts Gaussian pieces: clusters of odd shape are several, and close ones may be one"]
    unlike = [" - ".join(edge["sites"]) for edge in edges if set(edge["shared"]) <= {0, None}]
    if unlike and state.ends:
        more = "" if len(unlike) <= SHOWN else f" and {len(unlike) - SHOWN} more"
        verb = "edge joins" if len(unlike) == 1 else "edges join"
        told.append(
            f"{len(unlike)} {verb} sites without a common component: {', '.join(unlike[:SHOWN])}{more}"
        )
    withheld = {name: _withheld(state, name) for name in state.mailbox.posts}
    if hidden := [f"{name} {rows:.0f}" for name, rows in withheld.items() if rows > SHARED]:
        told.append(
            f"rows in components too small to be told of, and left out with them: {', '.join(hidden)}"
        )
    return tuple(told)


def _warnings(state: PoolRun, models: Mapping[str, SiteModel]) -> list[str]:
    found = []
    assert state.laid is not None
    last = {name: moved[-1] for name, moved in state.changes.items() if moved}
    restless = sorted(name for name, moved in last.items() if moved > NEARLY)
    if state.stopped_by == "max_rounds" and restless:
        found.append(
            f"the rounds are over, mixtures of {', '.join(restless)} still moved (by up to "
            f"{max(last.values()):.2g}); try pool-mode='full'"
        )
    if state.stopped_by == "unheard":
        found.append("the rounds ended early: no site sent components that can be used")
    parts = len(part_of(state.laid.graph, state.mailbox.posts).islands)
    if parts > 1:
        found.append(
            f"no edge joins {parts} parts of the graph, so clusters that they share count several times"
        )
    if alone := sorted(set(state.own) - set(state.ends or {})):
        found.append(
            f"sites {', '.join(alone)} did not say what they came to; their mixtures are of what they "
            "released of their own rows"
        )
    return found + absence(state.agreement, state.mixtures, models)
