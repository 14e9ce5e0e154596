"""Where a run of evidence-gated pooling stands, and what becomes of it: models, trust, who used what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcluster_app.gtvmin import identity, pool_identity
from fedcluster_app.gtvmin.identity import Identity
from fedcluster_app.gtvmin.pool_release import Shown, mixture_of
from fedcluster_app.messages import Labelled, PoolEnd, PoolSummary
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from strategies.base import Agreement
from strategies.graphs import Laid
from strategies.labelling import SiteModel, personal_scores, personal_site_scores
from strategies.mailbox import Mailbox
from strategies.personal import absence, details_of, model_file, site_models

# Probability from which it is told that a site uses a neighbour's component, and trust that is worth a name.
USED, TRUSTED = 0.01, 0.5
# Edges that are named to people; the summary has all.
SHOWN = 8


@dataclass(frozen=True, eq=False)
class PoolRun:
    """Where a run stands.

    Attributes
    ----------
    agreement : Agreement
    mailbox : Mailbox of PoolSummary
    laid : Laid, optional
        The graph, once it can be laid.
    changes : mapping of site name to tuple of float
        How far each mixture moved in the rounds that the site answered.
    stopped_by : str
        Why the rounds ended, or "running".
    ends : mapping of site name to PoolEnd, optional
        What sites came to, once they were asked.
    heard : mapping of site name to tuple of str
        Neighbours that each site judged in the end.
    identity : Identity, optional
        Numbers of the components over all sites.
    labelled : mapping of site name to Labelled, optional
    """

    agreement: Agreement
    mailbox: Mailbox[PoolSummary]
    laid: Laid | None = None
    changes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    stopped_by: str = "running"
    ends: Mapping[str, PoolEnd] | None = None
    heard: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    identity: Identity | None = None
    labelled: Mapping[str, Labelled] | None = None

    @property
    def own(self) -> dict[str, Shown]:
        """The mixture of what each site released of its own rows, where that is anything."""
        made = {name: mixture_of(post.content.summary) for name, post in self.mailbox.posts.items()}
        return {name: found for name, found in made.items() if found is not None}

    @property
    def shown(self) -> dict[str, Shown]:
        """What every site came to, and of those that have not said so what they released."""
        ends = self.ends or {}
        said = {name: Shown(end.mixture, end.places) for name, end in ends.items()}
        return dict(sorted((self.own | said).items()))

    @property
    def mixtures(self) -> dict[str, Mixture]:
        """The mixtures of the same sites."""
        return {name: found.mixture for name, found in self.shown.items()}

    def tables(self, name: str) -> dict[str, FloatArray]:
        """Return a site's acceptance of each neighbour's components (k there, k here); NaN if withheld.

        A neighbour is left out whose last summary got lost: what was judged are other components of it.
        """
        end = (self.ends or {}).get(name)
        if end is None or end.attached is None:
            return {}
        sizes = [len(self.mailbox.posts[other].content.counts) for other in self.heard[name]]
        parts = np.split(end.attached, np.cumsum(sizes)[:-1])
        seen = {other: self.mailbox.posts[other].content.counts > 0 for other in self.heard[name]}
        return {
            other: np.where(seen[other][:, None], part, np.nan)
            for other, part in zip(self.heard[name], parts, strict=True)
            if self._known(other)
        }

    def _known(self, name: str) -> bool:
        """Tell whether a site's end is of its components as they were last heard of."""
        end = (self.ends or {}).get(name)
        return end is None or np.array_equal(end.counts, self.mailbox.posts[name].content.counts)


def identity_of(state: PoolRun) -> Identity:
    """Give the components of all mixtures numbers, by what neighbours accept of each other."""
    shown = state.shown
    rows = {name: state.agreement.roster.members[name].hello.rows for name in shown}
    if shown and not state.ends:
        return identity.identify(state.mixtures, rows)  # nobody has judged anything
    masses = {name: rows[name] * found.mixture.weights for name, found in shown.items()}
    judged = {
        name: {
            other: table[found.places]
            for other, table in state.tables(name).items()
            if (found := shown.get(other)) is not None
        }
        for name in shown
    }
    return pool_identity.identify(judged, masses)


def models_of(state: PoolRun) -> dict[str, SiteModel]:
    """Return what every site labels its rows by."""
    assert state.identity is not None  # the exchanges before have filled them
    assert state.laid is not None
    return site_models(
        state.agreement.roster.members, state.mixtures, state.identity.labels, state.laid.graph
    )


def conclude(state: PoolRun) -> Outcome:
    """Return the outcome of a run whose exchanges are over."""
    agreement, found, laid = state.agreement, state.identity, state.laid
    assert found is not None  # the exchanges before have filled them
    assert laid is not None
    assert state.labelled is not None
    models = models_of(state)
    return Outcome(
        status=FINISHED,
        k_hat=found.n_clusters,
        model=model_file(agreement, models),
        sites=tuple(_site(state, models.get(name), name) for name in agreement.roster.members),
        scores=personal_scores(state.labelled, models),
        details={
            "rounds": state.mailbox.round,
            "stopped_by": state.stopped_by,
            "edges": _edges(state),
        },
        words=_words(state),
        warnings=(*agreement.report.warnings, *laid.warnings, *_warnings(state, models)),
    )


def _site(state: PoolRun, model: SiteModel | None, name: str) -> SiteResult:
    rows, details = state.agreement.roster.members[name].hello.rows, dict[str, Any]()
    if name in state.mailbox.posts and model is not None:
        end = (state.ends or {}).get(name)
        told = end or state.mailbox.posts[name].content
        details = {
            **details_of(model),
            "evidence": told.evidence / rows,
            "trust": {} if end is None or end.trust is None else _by_name(state.heard[name], end.trust),
            "uses": _uses(state, name),
        }
    if state.labelled and name in state.labelled and model is not None:
        details |= personal_site_scores(state.labelled[name], model.clusters)
    return SiteResult(name, "ok" if name in state.mixtures else "receives only", rows, details=details)


def _by_name(names: tuple[str, ...], values: FloatArray) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _uses(state: PoolRun, name: str) -> list[dict[str, Any]]:
    """Return which components of neighbours a site takes for its own, by their places in both mixtures."""
    found = []
    for other, table in state.tables(name).items():
        places = state.shown[other].places
        for there, place in enumerate(places):
            found += [
                {
                    "neighbour": other,
                    "component": there,
                    "own": here,
                    "probability": float(table[place, here]),
                }
                for here in np.flatnonzero(table[place] > USED).tolist()
            ]
    return found


def _edges(state: PoolRun) -> list[dict[str, Any]]:
    """Return every edge between sites that have mixtures, with the trust of either end in the other."""
    assert state.laid is not None
    trust = {
        name: _by_name(state.heard[name], end.trust)
        for name, end in (state.ends or {}).items()
        if end.trust is not None
    }
    return [
        {"sites": [a, b], "trust": [trust.get(a, {}).get(b), trust.get(b, {}).get(a)]}
        for a, b in state.laid.graph.edges
        if {a, b} <= set(state.mailbox.posts)
    ]


def _words(state: PoolRun) -> tuple[str, ...]:
    told = []
    ends = state.ends or {}
    distrust = [
        f"{a} - {b}"
        for a, b, here, there in ((*edge["sites"], *edge["trust"]) for edge in _edges(state))
        if max(here or 0.0, there or 0.0) < TRUSTED and (here is not None or there is not None)
    ]
    if ends:
        told.append("a mixture is of a site's own rows and of what neighbours sent that is likely the same")
    if distrust:
        more = "" if len(distrust) <= SHOWN else f" and {len(distrust) - SHOWN} more"
        told.append(
            f"{len(distrust)} edges join sites with mostly different components, and carry little: "
            f"{', '.join(distrust[:SHOWN])}{more}"
        )
    return tuple(told)


def _warnings(state: PoolRun, models: Mapping[str, SiteModel]) -> list[str]:
    found = []
    if state.stopped_by == "unheard":
        found.append("the rounds ended early: no site sent components that can be used")
    if alone := sorted(set(state.own) - set(state.ends or {})):
        found.append(
            f"sites {', '.join(alone)} did not say what they came to; their mixtures are of what they "
            "released of their own rows"
        )
    return found + absence(state.agreement, state.mixtures, models)
