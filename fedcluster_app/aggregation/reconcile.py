"""FedGEM's last stage: final radii, the choice of their factor, global clusters and centres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcluster_app.aggregation.balls import Components, site_of_component, split_by_site
from fedcluster_app.aggregation.grouping import PairOrder, cluster_labels, merging_pairs, pair_order
from fedcluster_app.aggregation.rounds import FedGEMState
from fedcluster_app.aggregation.scan import Pairs, cross_site_pairs
from fedcluster_app.aggregation.selection import Path, merge_path
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.types import FloatArray, IntArray

RadiusReading = Literal["squared", "length"]

DEFAULT_FACTOR = 1.0
COLLAPSED = 0.05


@dataclass(frozen=True, eq=False)
class Reconciliation:
    """The global clusters.

    Parameters
    ----------
    k_hat : int
        Their number K.
    labels : mapping of site name to (k,) int array
        Cluster of each component, numbered by first appearance in (site name, component) order.
    centers : (K, d) array
        Plain means of the members' means.
    final_radius : float
        The radius factor v that was used.
    path : Path
        Count and score for every v of the nearest-first list, whatever the order that was used.
    bounds : (int, int)
        The least and the largest count that is possible: max K_g and sum K_g.
    collapsed : tuple of str
        Sites where two means or more ended at (almost) one point: their distance is at most 5 % of the
        site's standard deviation. Unit variance is too wide for these rows; see `collapse_ratio`.
    """

    k_hat: int
    labels: Mapping[str, IntArray]
    centers: FloatArray
    final_radius: float
    path: Path
    bounds: tuple[int, int]
    collapsed: tuple[str, ...]


def finish(
    state: FedGEMState,
    components: Mapping[str, Components],
    *,
    final_radius: Literal["bic"] | float = "bic",
    radius_is: RadiusReading = "squared",
    order: PairOrder = "nearest",
    fallback: Mapping[str, tuple[int, float]] | None = None,
) -> Reconciliation:
    """Give every component its global cluster.

    Component k of site g gets the size e = v R_min_g / (pi_k sqrt(N_g)), with R_min_g the smallest distance
    between two of the site's means after the last round. Pairs of different sites that touch are merged
    unless the clusters hold a common site. A site with one component has no R_min_g: it takes the smallest
    of the others', and if there is none twice its own standard deviation per dimension.

    Parameters
    ----------
    state : FedGEMState
        State after the last round.
    components : mapping of site name to Components
        Last uploads. A site of `state` that is not here takes part with the centres of its last balls, as
        equal components that are as wide as the others on average.
    final_radius : "bic" or float >= 0
        v, or the choice by `spherical_bic` among all cuts of the one merge list (1 when no site sent
        statistics).
    radius_is : {"squared", "length"}
        Whether e is the squared radius (as in the authors' code, and in every published v) or the radius.
    order : {"nearest", "released"}
        See `pair_order`; ``released`` has no nested list, so it needs a fixed v.
    fallback : mapping of site name to (rows, spread)
        For the sites that are silent in this exchange.

    Returns
    -------
    Reconciliation

    Raises
    ------
    ConfigError
        For an unknown option, a negative or NaN factor, or "bic" with the released order.
    DataError
        When there is no component at all, or nothing is known of a silent site.

    Notes
    -----
    Cost O(m^2 d + m^2 log m) for m components in all. **Source**: Ibrahim, Gebraeel and Xie,
    arXiv:2601.21160, final aggregation. Deviations: nearest pairs first; v from the data; the K_g = 1 rule
    (there the radius is infinite); the plain mean as centre (there members count with order-dependent
    multiplicity).
    """
    _check(final_radius, order)
    last = _last_uploads(state, components, fallback or {})
    parts = {name: upload.means for name, upload in last.items()}
    site = site_of_component(parts)
    means = np.concatenate(list(parts.values())) if parts else np.zeros((0, 0))
    if len(means) == 0:
        raise DataError("final grouping: expected at least one component of one site, got none")
    gaps = {name: _gaps(state.means.get(name, part)) for name, part in parts.items()}

    pairs = cross_site_pairs(means, site)
    factors = _touch_factors(pairs, _unit_sizes(last, gaps), radius_is)
    merges = merging_pairs(pairs, _within(pair_order(factors, "nearest"), factors, np.inf), site)
    path = merge_path(
        factors[merges],
        pairs.first[merges],
        pairs.second[merges],
        site,
        np.concatenate([upload.counts for upload in last.values()]),
        np.concatenate([upload.centers for upload in last.values()]),
        np.concatenate([upload.scatters for upload in last.values()]),
    )
    v = _factor(final_radius, path)
    if order != "nearest":
        merges = merging_pairs(pairs, _within(pair_order(factors, order), factors, v), site)
    used = _within(merges, factors, v)
    labels = cluster_labels(pairs.first[used], pairs.second[used], site)
    sizes = np.bincount(labels)
    centers = np.zeros((len(sizes), means.shape[1]))
    np.add.at(centers, labels, means)
    return Reconciliation(
        k_hat=len(sizes),
        labels=split_by_site(labels, parts),
        centers=centers / sizes[:, None],
        final_radius=v,
        path=path,
        bounds=(max(map(len, parts.values())), len(site)),
        collapsed=tuple(n for n, gap in gaps.items() if len(gap) and gap.min() <= COLLAPSED * last[n].spread),
    )


def _check(final_radius: Literal["bic"] | float, order: PairOrder) -> None:
    if final_radius == "bic":
        if order == "released":
            raise ConfigError(
                "final radius: bic chooses among the nested groupings of the nearest order, and the released "
                "order has none; give a number or use the nearest order"
            )
    elif isinstance(final_radius, str) or not final_radius >= 0:
        raise ConfigError(f"final radius: expected bic or a number >= 0, got {final_radius!r}")


def _last_uploads(
    state: FedGEMState, components: Mapping[str, Components], fallback: Mapping[str, tuple[int, float]]
) -> dict[str, Components]:
    """Order the uploads by site name, with the last balls in place of those that did not come."""
    last = {}
    known = sum(int(upload.counts.sum()) for upload in components.values())
    scatter = sum(float(upload.counts @ upload.scatters) for upload in components.values()) / max(known, 1)
    for name in sorted({*state.balls, *components}):
        if name in components:
            last[name] = components[name]
        elif name in fallback:
            means = state.balls[name].means
            rows, spread = fallback[name]
            # Without counts its clusters would merge with any other at no cost.
            counts = np.full(len(means), rows // max(len(means), 1) if known else 0, dtype=np.int64)
            last[name] = Components(means, counts, means, np.full(len(means), scatter), spread, rows)
        else:
            raise DataError(
                f"site {name!r}: silent in the last exchange, and its rows and spread are not known"
            )
    return last


def _gaps(means: FloatArray) -> FloatArray:
    """Distances between the means of one site; empty for K_g = 1."""
    return cross_site_pairs(means, np.arange(len(means))).distance


def _unit_sizes(last: Mapping[str, Components], gaps: Mapping[str, FloatArray]) -> FloatArray:
    """Size of every component at v = 1, with uniform weights pi_k = 1 / K_g."""
    smallest = min((gap.min() for gap in gaps.values() if len(gap)), default=None)
    sizes = []
    for name, upload in last.items():
        lone = 2 * upload.spread if smallest is None else smallest
        k = len(upload.means)
        gap = gaps[name].min() if len(gaps[name]) else lone
        sizes.append(np.full(k, gap * k / np.sqrt(max(upload.rows, 1))))
    return np.concatenate(sizes)


def _touch_factors(pairs: Pairs, sizes: FloatArray, radius_is: RadiusReading) -> FloatArray:
    """Factor v at which each pair touches: 0 for coinciding centres, infinite for balls of size 0."""
    if radius_is == "squared":
        sizes = np.sqrt(sizes)
    elif radius_is != "length":
        raise ConfigError(f"final radius reading: expected squared or length, got {radius_is!r}")
    reach = sizes[pairs.first] + sizes[pairs.second]
    factors = np.where(pairs.distance > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):  # a factor too large to write down is never reached
        np.divide(pairs.distance, reach, out=factors, where=(pairs.distance > 0) & (reach > 0))
        return np.square(factors) if radius_is == "squared" else factors


def _within(positions: IntArray, factors: FloatArray, v: float) -> IntArray:
    """Those of the pairs that touch at v; balls of size 0 never grow."""
    reached = factors[positions]
    return positions[np.isfinite(reached) & (reached <= v)]


def _factor(final_radius: Literal["bic"] | float, path: Path) -> float:
    if final_radius != "bic":
        return float(final_radius)
    best = path.best()
    return DEFAULT_FACTOR if np.isnan(best) else best
