"""FedGEM at a site: count and start, one round, the last upload."""

from __future__ import annotations

import numpy as np

from fedcluster_app import disclosure
from fedcluster_app.aggregation.fedgem import (
    Balls,
    ClientStep,
    client_step,
    collapse_ratio,
    hard_summaries,
    initial_means,
)
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.messages import (
    AskFedGEMEnd,
    AskFedGEMRound,
    AskFedGEMStart,
    FedGEMBalls,
    FedGEMEnd,
    FedGEMMemory,
    FedGEMStart,
)
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import count


def start(site: Site, ask: AskFedGEMStart) -> FedGEMStart:
    """Count the clusters, make the first step, and dissolve what is too small to be released."""
    scaling = Scaling(ask.center, ask.scale, ask.components, ask.score_scale)
    X = site.rows(scaling)
    if len(X) < site.min_count:
        raise DataError(
            f"site {site.name!r}: has {len(X)} rows, fewer than min-count={site.min_count}; it only receives"
        )
    counted = count(site, X)
    init = site.config.init
    if init in ("kmeans", "kmeans++"):
        means = initial_means(X, counted.k, site.rng("init"), init)
    else:
        means = counted.means
    step = _released_step(site, X, means)
    site.memory.save(FedGEMMemory(ask.center, ask.scale, ask.components, ask.score_scale, step.balls.means))
    return FedGEMStart(
        k_counted=counted.k,
        merge_ratio=counted.alpha,
        min_mass=int(counted.min_mass),
        silhouette=counted.silhouette,
        spread=float(np.sqrt(X.var(axis=0).mean())),
        collapse_ratio=collapse_ratio(X),
        means=step.balls.means,
        radii=step.balls.radii,
    )


def advance(site: Site, ask: AskFedGEMRound) -> FedGEMBalls:
    """Make one step from the means that came."""
    _, balls = _continued_step(site, ask.means)
    return FedGEMBalls(balls.means, balls.radii)


def end(site: Site, ask: AskFedGEMEnd) -> FedGEMEnd:
    """Make the last step, and summarise the rows nearest to every component that has enough of them."""
    X, balls = _continued_step(site, ask.means)
    counts, centers, scatters = hard_summaries(X, balls.means)
    large = disclosure.large_enough(counts, site.min_count)
    return FedGEMEnd(
        means=balls.means,
        counts=np.where(large, counts, 0),
        centers=np.where(large[:, None], centers, 0.0),
        scatters=np.where(large, scatters, 0.0),
    )


def _step(site: Site, X: FloatArray, means: FloatArray) -> ClientStep:
    fedgem = site.config.fedgem
    return client_step(X, means, radius_rule=fedgem.radius_rule, local_steps=fedgem.local_steps)


def _released_step(site: Site, X: FloatArray, means: FloatArray) -> ClientStep:
    """Step from ``means`` without the components that too few rows stand behind: their rows join the rest."""
    step = _step(site, X, means)
    while (small := disclosure.smallest_below(step.mass, site.min_count)) is not None:
        means = np.delete(means, small, axis=0)
        step = _step(site, X, means)
    return step


def _continued_step(site: Site, means: FloatArray) -> tuple[FloatArray, Balls]:
    """Step from the coordinator's means, holding back components that have become too small."""
    memory = site.memory.load(FedGEMMemory)
    if memory is None:
        raise DataError(f"site {site.name!r}: has no memory of this run; it may have been restarted")
    if means.shape != memory.released.shape:
        raise DataError(
            f"site {site.name!r}: got means of shape {means.shape}, expected {memory.released.shape}"
        )
    X = site.rows(Scaling(memory.center, memory.scale, memory.components, memory.score_scale))
    step = _step(site, X, means)
    released, radii = disclosure.hold_back(
        step.balls.means, step.balls.radii, step.mass, memory.released, site.min_count
    )
    site.memory.save(
        FedGEMMemory(memory.center, memory.scale, memory.components, memory.score_scale, released)
    )
    return X, Balls(released, radii)
