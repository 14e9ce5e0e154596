"""FedGEM at a site: count and start, one round, the last upload."""

from __future__ import annotations

from dataclasses import replace

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
from fedcluster_app.steps.rows import contributed

# Of rows that all lie on their means there is no variance to take.
SMALLEST_VARIANCE = 1e-6


def start(site: Site, ask: AskFedGEMStart) -> FedGEMStart:
    """Count the clusters, make the first step, and dissolve what is too small to be released."""
    X = contributed(site, ask)
    counted = count(site, X, site.config.estimator)
    init = site.config.init
    if init in ("kmeans", "kmeans++"):
        # A gross outlier that took no part in the count must not take one of its means.
        rows = X if counted.kept is None else X[counted.kept]
        means = initial_means(rows, counted.k, site.rng("init"), init)
    else:
        means = counted.means
    variance = _variance(site, X, means)
    step = _released_step(site, X, means, variance)
    site.memory.save(
        FedGEMMemory(ask.center, ask.scale, ask.components, ask.score_scale, step.balls.means, variance)
    )
    return FedGEMStart(
        k_counted=counted.k,
        chosen=tuple(f"{name}={value}" for name, value in counted.chosen.items()),
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
    """Make the last step, and summarise the rows of every component that has enough of them.

    Rows of a component that is too small count to the nearest of the others: were they left out, they could
    be had as the difference to the site's totals.
    """
    X, balls = _continued_step(site, ask.means)
    k, q = balls.means.shape
    kept = np.arange(k)
    summaries = hard_summaries(X, balls.means)
    while (small := disclosure.smallest_below(summaries[0], site.min_count)) is not None:
        kept = np.delete(kept, small)
        summaries = hard_summaries(X, balls.means[kept])
    counts, centers, scatters = np.zeros(k, dtype=np.int64), np.zeros((k, q)), np.zeros(k)
    counts[kept], centers[kept], scatters[kept] = summaries
    return FedGEMEnd(balls.means, counts, centers, scatters)


def _variance(site: Site, X: FloatArray, means: FloatArray) -> float:
    """Return the fixed variance of the site's components: 1, or that of the rows about their nearest mean.

    With variance 1 the means of narrower clusters run together. A site's own variance is used only where it
    is smaller, so that nothing changes where 1 was right.
    """
    if site.config.fedgem.variance == "unit":
        return 1.0
    counts, _, scatters = hard_summaries(X, means)
    return float(np.clip(counts @ scatters / X.size, SMALLEST_VARIANCE, 1.0))


def _step(site: Site, X: FloatArray, means: FloatArray, variance: float) -> ClientStep:
    fedgem = site.config.fedgem
    return client_step(
        X, means, variance=variance, radius_rule=fedgem.radius_rule, local_steps=fedgem.local_steps
    )


def _released_step(site: Site, X: FloatArray, means: FloatArray, variance: float) -> ClientStep:
    """Step from ``means`` without the components that too few rows stand behind: their rows join the rest."""
    step = _step(site, X, means, variance)
    while (small := disclosure.smallest_below(step.mass, site.min_count)) is not None:
        means = np.delete(means, small, axis=0)
        step = _step(site, X, means, variance)
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
    X = site.rows(memory.scaling)
    step = _step(site, X, means, memory.variance)
    released, radii = disclosure.hold_back(
        step.balls.means, step.balls.radii, step.mass, memory.released, site.min_count
    )
    site.memory.save(replace(memory, released=released))
    return X, Balls(released, radii)
