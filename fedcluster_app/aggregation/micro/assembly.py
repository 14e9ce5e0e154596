"""From the micro-clusters of all sites to global clusters and their number: init, step, finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster_app.aggregation.micro import votes as voting
from fedcluster_app.aggregation.micro.cells import Cells, MicroClusters, stack
from fedcluster_app.aggregation.micro.drift import Drift, align, find_drift, offset_widths
from fedcluster_app.aggregation.micro.em import Clusters, Shrinkage
from fedcluster_app.aggregation.micro.late import join
from fedcluster_app.aggregation.micro.offsets import Alignment
from fedcluster_app.aggregation.micro.path import (
    Path,
    fit_k,
    follow,
    grid,
    largest_k,
    starts,
    whitening,
)
from fedcluster_app.aggregation.micro.votes import Rule, Votes
from fedcluster_app.mixtures.types import IntArray

# A cluster of which one site holds more than this is that site's alone.
ALONE = 0.95
# Rows in a micro-cluster; people are told of fewer.
FEW_ROWS = 10


@dataclass(frozen=True)
class Settings:
    """How the coordinator assembles.

    Attributes
    ----------
    k_rule
        See :func:`~fedcluster_app.aggregation.micro.votes.decide`.
    site_offsets, site_gains : bool
        Whether sites' sensors may differ by an offset, and by a gain besides.
    """

    k_rule: Rule = "median"
    site_offsets: bool = False
    site_gains: bool = False


@dataclass(frozen=True, eq=False)
class MicroState:
    """What has come in: micro-clusters, and counts of sites that counted, by site name."""

    uploads: Mapping[str, MicroClusters] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Assembly:
    """The global clusters and how their number came about.

    Attributes
    ----------
    names : tuple of str
        Sites in order of name: rows of the weights, offsets and gains.
    clusters : Clusters
    path : Path or None
    votes : Votes or None
        None where the clusters were kept as they were.
    refined : Votes or None
        Held-out votes of rows after rounds of federated EM.
    drift : Drift or None
        Offsets and gains of sites; None if they were not looked for.
    shrinkage : Shrinkage
    words : tuple of str
        How sure the number is, for people; what there is to say about drift is in ``drift``.
    warnings : tuple of str
    """

    names: tuple[str, ...]
    clusters: Clusters
    path: Path | None
    votes: Votes | None
    drift: Drift | None
    shrinkage: Shrinkage
    words: tuple[str, ...]
    warnings: tuple[str, ...]
    refined: Votes | None = None

    @property
    def k_hat(self) -> int:
        """Number of global clusters."""
        return self.clusters.k

    @property
    def tied(self) -> tuple[int, int] | None:
        """Least and largest number of clusters that the held-out rows cannot tell apart."""
        votes = self.refined or self.votes
        return None if votes is None else votes.tied(len(self.names))


def init() -> MicroState:
    """Return the state before any site has sent its micro-clusters."""
    return MicroState()


def step(
    state: MicroState, uploads: Mapping[str, MicroClusters], counts: Mapping[str, int] | None = None
) -> MicroState:
    """Take micro-clusters in; a site that comes late is added, one that sends again replaces what it sent."""
    return MicroState({**state.uploads, **uploads}, {**state.counts, **(counts or {})})


def finish(state: MicroState, settings: Settings, rng: np.random.Generator) -> Assembly:
    """Assemble the micro-clusters of all sites.

    Parameters
    ----------
    state
        With one site at least; the order of sites is that of their names.
    settings
    rng
        Used where there are so many micro-clusters that they are joined before they are.

    Raises
    ------
    ValueError
        If no site has sent anything.

    Notes
    -----
    **Source**: ours. Cost O(K M q²) for some 75 steps at each of some 20 numbers K, and O(M² q) once, M at
    most 4,000 there.
    """
    names = tuple(sorted(state.uploads))
    counts = [state.counts.get(name, 0) for name in names]
    drift = None
    if settings.site_offsets:
        drift = find_drift(stack(state.uploads), rng, gains=settings.site_gains)
    cells = aligned(state, drift)
    path = follow(cells, grid(largest_k(cells, counts)), rng)
    votes = voting.cast(path, counts)
    k_hat = min(voting.decide(votes, settings.k_rule, cells.n_sites), int(path.k[-1]))
    clusters = _clusters(cells, path, k_hat, rng)
    return Assembly(
        names=names,
        clusters=clusters,
        path=path,
        votes=votes,
        drift=drift,
        shrinkage=Shrinkage.of(cells),
        words=voting.in_words(votes, path.k.tolist(), k_hat, cells.n_sites),
        warnings=_warnings(cells, clusters, drift) + count_warnings(votes, path.k, clusters.k),
    )


def keep(
    state: MicroState,
    clusters: Clusters,
    names: tuple[str, ...],
    drift: Drift | None,
    rng: np.random.Generator,
) -> Assembly:
    """Return the clusters of an earlier assembly as they were, with weights and offsets of new sites.

    Parameters
    ----------
    state
        Micro-clusters of old and new sites.
    clusters, names, drift
        Of the earlier assembly.
    rng
    """
    cells, everybody = stack(state.uploads), tuple(sorted(state.uploads))
    old = [everybody.index(name) for name in names]
    new = ~np.isin(np.arange(len(everybody)), old)
    weights = np.tile(clusters.global_weights, (len(everybody), 1))
    weights[old] = clusters.weights
    alignment = None if drift is None else _for_all(drift, len(everybody), old)
    weights, alignment = join(cells, replace(clusters, weights=weights), new, alignment, rng)
    if drift is not None and alignment is not None:
        widths = offset_widths(alignment.offsets, clusters)
        drift = replace(drift, offsets=alignment.offsets, gains=alignment.gains, widths=widths)
    return Assembly(
        names=everybody,
        clusters=replace(clusters, weights=weights),
        path=None,
        votes=None,
        drift=drift,
        shrinkage=Shrinkage.of(cells),
        words=("the clusters are those of an earlier run",),
        warnings=(),
    )


def _for_all(drift: Drift, n_sites: int, old: list[int]) -> Alignment:
    q = drift.offsets.shape[1]
    offsets, gains = np.zeros((n_sites, q)), np.ones((n_sites, q))
    offsets[old], gains[old] = drift.offsets, drift.gains
    return Alignment(offsets, gains)


def aligned(state: MicroState, drift: Drift | None) -> Cells:
    """Return the micro-clusters of all sites, offsets and gains taken out where they were found."""
    cells = stack(state.uploads)
    return cells if drift is None or not drift.on else align(cells, drift)


def _clusters(cells: Cells, path: Path, k: int, rng: np.random.Generator) -> Clusters:
    """Return the clusters of a path at K, fitted anew if K is not on its grid."""
    if k in path.fits:
        return path.fits[k].clusters
    scale = whitening(cells)
    where = starts(cells, (np.ones_like(scale), scale), rng)
    above = path.fits[int(path.k[path.k > k].min())]
    return fit_k(cells, where, k, Shrinkage.of(cells), above=above).clusters


def count_warnings(votes: Votes, tried: IntArray, k_hat: int) -> tuple[str, ...]:
    """Say why the number of clusters may not be right; ``tried`` (m,) ascends."""
    found = []
    if tried[-1] == 1:
        found.append(
            "too few sites have rows for two halves of micro-clusters, so no other count than 1 was tried"
        )
    if votes.hold <= 2 and len(tried) > 2:
        found.append(
            f"held-out rows favour {voting.number(votes.hold)}: either there are no more, or the classes of "
            "a site have too few rows for micro-clusters, where rows after rounds of federated EM see more"
        )
    if k_hat == tried[-1] > 1:
        found.append(f"k_hat is the largest number that was tried, {k_hat}: there may be more clusters")
    return tuple(found)


def _warnings(cells: Cells, clusters: Clusters, drift: Drift | None) -> tuple[str, ...]:
    found = []
    if cells.n_rows < FEW_ROWS * cells.n_cells:
        found.append(
            f"{cells.n_rows / cells.n_cells:.1f} rows in a micro-cluster are few: their means tell more of "
            "single rows, and less of classes"
        )
    if drift is None and cells.n_sites > 2:
        mass = clusters.weights * cells.by_site(cells.counts)[:, None]
        alone = int((mass.max(axis=0) > ALONE * mass.sum(axis=0)).sum())
        if 2 * alone > clusters.k > 1:
            found.append(
                f"{alone} of {clusters.k} clusters are held by one site alone: sensors that differ between "
                "sites look like that; try site-offsets='auto'"
            )
    return tuple(found)
