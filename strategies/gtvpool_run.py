"""Where a run of evidence-gated pooling stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedcluster_app.gtvmin import identity, pool_identity
from fedcluster_app.gtvmin.identity import Identity
from fedcluster_app.gtvmin.pool_release import Shown, mixture_of
from fedcluster_app.messages import Labelled, PoolEnd, PoolSummary
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from strategies.base import Agreement
from strategies.graphs import Laid
from strategies.labelling import SiteModel
from strategies.mailbox import Mailbox
from strategies.personal import site_models


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

    @cached_property
    def own(self) -> dict[str, Shown]:
        """The mixture of what each site released of its own rows, where that is anything."""
        made = {name: mixture_of(post.content.summary) for name, post in self.mailbox.posts.items()}
        return {name: found for name, found in made.items() if found is not None}

    @cached_property
    def shown(self) -> dict[str, Shown]:
        """What every site came to, and of those that have not said so what they released."""
        ends = self.ends or {}
        said = {name: Shown(end.mixture, end.places) for name, end in ends.items()}
        return dict(sorted((self.own | said).items()))

    @cached_property
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
