"""What coordinator and sites both derive from the settings of methods with mixtures at the sites."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcluster_app.gtvmin.fedgrem_settings import PUBLISHED, TUNED, GrEMSettings
from fedcluster_app.gtvmin.mmd import BANDWIDTHS
from fedcluster_app.gtvmin.pool_settings import FAST, FULL, PoolSettings
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.gtvmin.surrogate import Draws
from fedcluster_app.options import GTVConfig, PoolConfig
from fedcluster_app.rival_options import GrEMConfig
from fedcluster_app.streams import stream

# The paper's 50 and 100 never act on its data, but would on columns that nobody scaled.
MEAN_RADIUS, VARIANCE_CEILING = 1e6, 1e6
# Least weight of a component, as a share of 1 / k, in methods that need none.
LEAST_SHARE = 0.01
PRESETS = {"tuned": TUNED, "published": PUBLISHED}


def bounds_of(gtv: GTVConfig) -> Bounds:
    """Return the feasible set of a run's mixtures."""
    return Bounds(gtv.weight_floor, MEAN_RADIUS, gtv.variance_floor, VARIANCE_CEILING)


def bandwidths_of(n_features: int) -> tuple[float, ...]:
    """Return the kernels' bandwidths: the paper's in its two dimensions, and as distances grow with more."""
    return tuple(bandwidth * math.sqrt(n_features / 2) for bandwidth in BANDWIDTHS)


def settings_of(gtv: GTVConfig, alpha: float, n_features: int) -> Settings:
    """Return the settings of a node's steps at one strength of the coupling."""
    return Settings(
        discrepancy=gtv.discrepancy,
        alpha=alpha,
        update=gtv.update,
        step_size=gtv.step_size,
        local_steps=gtv.local_steps,
        guard=gtv.guard == "on",
        samples=gtv.samples,
        bandwidths=bandwidths_of(n_features),
        bounds=bounds_of(gtv),
    )


def pooling_of(pool: PoolConfig, min_count: int) -> PoolSettings:
    """Return the settings of pooling at a site that releases nothing of fewer rows than ``min_count``."""
    mode = {"lean": PoolSettings(), "fast": FAST, "full": FULL}[pool.mode]
    return replace(
        mode,
        min_count=float(min_count),
        max_rounds=mode.max_rounds if pool.rounds is None else pool.rounds,
        tolerance=pool.tolerance,
        uniform=pool.uniform == "on",
        guard=pool.guard == "on",
    )


def wide_bounds(k: int, variance_floor: float) -> Bounds:
    """Return the feasible set of mixtures of k components in methods that need none, but for what vanishes.

    Features are in units of the usual spread of rows about their component.
    """
    return Bounds(LEAST_SHARE / k, MEAN_RADIUS, variance_floor, VARIANCE_CEILING)


def grem_of(fedgrem: GrEMConfig, bounds: Bounds) -> GrEMSettings:
    """Return the settings of FedGrEM: a preset, with what else is given."""
    given = {name: getattr(fedgrem, name) for name in ("step_size", "penalty", "decay", "passes")}
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(PRESETS[fedgrem.preset], bounds=bounds, **changes)


def draws(seed: int, receiver: str, number: int, part: int) -> Draws:
    """Return the random streams of a receiver in a round: one for every neighbour that it draws rows of.

    Parameters
    ----------
    seed
        The run's seed.
    receiver
        Name of the site that draws.
    number
        Round.
    part
        Which of the site's mixtures draws: 0 of all rows, then without each part of them.
    """

    def of(sender: str) -> np.random.Generator:
        return stream(seed, receiver, "gtv-draws", number, part, sender)

    return of
