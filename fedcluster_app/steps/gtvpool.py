"""Evidence-gated pooling at a site: the fit to its own rows, a round, and the end."""

from __future__ import annotations

import numpy as np

from fedcluster_app.coupling import pooling_of
from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin import pool
from fedcluster_app.gtvmin.pool_model import lone
from fedcluster_app.gtvmin.pool_release import Release
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolState
from fedcluster_app.messages import AskPoolEnd, AskPoolRound, AskPoolStart, PoolEnd, PoolMemory, PoolSummary
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import contributed

# Of what is told of all rows, the withheld among them: enough to read, too few to try a guess of a row on.
DECIMALS = 3


def start(site: Site, ask: AskPoolStart) -> PoolSummary:
    """Fit the mixture that the rounds begin with."""
    X, settings = contributed(site, ask), _settings(site)
    return _told(site, _begun(site, X, settings))


def advance(site: Site, ask: AskPoolRound) -> PoolSummary:
    """Take a round against what the neighbours last said."""
    X, settings = contributed(site, ask), _settings(site)
    state = _kept(site, X, settings)
    if state.round >= settings.max_rounds:
        raise DataError(
            f"site {site.name!r}: has taken all {settings.max_rounds} rounds that the run may have"
        )
    state = pool.step(state, X, ask.summaries, settings, site.rng("pool", ask.round))
    return _told(site, state)


def end(site: Site, ask: AskPoolEnd) -> PoolEnd:
    """Judge what the neighbours said last, and say what has become of the mixture."""
    X, settings = contributed(site, ask), _settings(site)
    state = _kept(site, X, settings)
    if not state.round:  # it lost its memory, or has no neighbour: a fit alone is of too many components
        state = pool.step(state, X, ask.summaries, settings, site.rng("pool", ask.round))
    found = pool.finish(state, X, ask.summaries, settings)
    tables = [found.attachments[name] for name in ask.neighbours]
    mixture = found.mixture
    return PoolEnd(
        weights=mixture.weights,
        means=mixture.means,
        covariances=lower_triangle(mixture.covariances),
        counts=found.counts,
        places=found.places,
        trust=np.array([found.rates[name] for name in ask.neighbours]) if tables else None,
        attached=np.concatenate(tables)[:, found.places] if tables else None,
        evidence=round(found.evidence, DECIMALS),
    )


def _settings(site: Site) -> PoolSettings:
    return pooling_of(site.config.pool, site.min_count)


def _begun(site: Site, X: FloatArray, settings: PoolSettings) -> PoolState:
    return pool.init(X, site.config.mixture.components, settings, site.rng("pool", 0))


def _told(site: Site, state: PoolState) -> PoolSummary:
    """Remember the state, and say what may be known of it."""
    own = state.models
    names = tuple(state.rates)
    site.memory.save(
        PoolMemory(
            weights=own.weights[0],
            means=own.means[0],
            covariances=own.covariances[0],
            within=own.within[0],
            strength=float(own.strength[0]),
            discount=float(own.discount[0]),
            own=own.own[0],
            junk=float(own.junk[0]),
            told=state.release.moments,
            shares=state.release.shares,
            before=state.release.before if len(state.release.before) else None,
            origin=state.origin,
            neighbours=names,
            trust=np.array([state.rates[name] for name in names]) if names else None,
            evidence=state.evidence,
            changes=np.array(state.changes) if state.changes else None,
        )
    )
    said = pool.message(state)
    return PoolSummary(
        counts=said.counts,
        means=said.means,
        covariances=lower_triangle(said.covariances),
        change=round(state.changes[-1], DECIMALS) if state.changes else 0.0,
        evidence=round(state.evidence, DECIMALS),
    )


def _kept(site: Site, X: FloatArray, settings: PoolSettings) -> PoolState:
    """Return the state after the last round; a site whose process lost it begins anew."""
    kept = site.memory.load(PoolMemory)
    if kept is None:
        return _begun(site, X, settings)
    models = lone(
        kept.weights[None],
        kept.means[None],
        kept.covariances[None],
        kept.within[None],
        np.array([kept.strength]),
        np.array([kept.discount]),
        kept.own[None],
        np.array([kept.junk]),
    )
    trust = [] if kept.trust is None else kept.trust.tolist()
    changes = () if kept.changes is None else tuple(kept.changes.tolist())
    rates = dict(zip(kept.neighbours, trust, strict=True))
    free = site.config.mixture.components is None
    before = np.zeros((0, len(X))) if kept.before is None else kept.before
    release = Release(kept.told, kept.shares, before)
    return PoolState(models, kept.origin, release, rates, {}, kept.evidence, changes, free)
