"""GTVMin at a site: the mixture to start with, and one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedcluster_app import disclosure
from fedcluster_app.cardinality.count import Count
from fedcluster_app.coupling import draws, settings_of
from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.node import NodeState, Report
from fedcluster_app.gtvmin.projection import Bounds, infeasible
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.gtvmin.starts import kmeans_start, start_from_mixture, within_variance
from fedcluster_app.gtvmin.surrogate import Neighbour
from fedcluster_app.messages import AskGTVRound, AskGTVStart, GTVMemory, GTVMixture
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import BoolArray, FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import count
from fedcluster_app.steps.rows import contributed

# Of rows that are all equal, as a share of the variance of all rows.
SMALLEST_SHARE = 1e-6
# Where even that is none; and bounds that bind nothing, while the unit of the features is not known.
SMALLEST, UNBOUND = 1e-100, 1e150


def start(site: Site, ask: AskGTVStart) -> GTVMixture:
    """Count the components unless the run says how many, and make a mixture of k-means or of ASM's count."""
    X, config = contributed(site, ask), site.config
    counted = None
    if config.mixture.components is None:
        counted = count(site, X, "asm" if config.init == "asm" else config.estimator)
    k = counted.k if counted else config.mixture.components or 1
    made = _made(site, X, k, counted)
    loss = -float(responsibilities(X, made)[1].mean())
    held_out_rows = len(X) if _parts(site, len(X)) else 0
    return _told(made, Report(loss, 0.0, 0.0, 0), k_counted=k, held_out_rows=held_out_rows)


def _made(site: Site, X: FloatArray, k: int, counted: Count | None) -> Mixture:
    """Return the mixture that the rows (n, q) start with, in the site's own unit for the time being."""
    gtv = site.config.gtv
    least = max(SMALLEST_SHARE * float(X.var(axis=0).mean()), SMALLEST)
    bounds = Bounds(gtv.weight_floor, UNBOUND, least, UNBOUND)
    most = int(1 / gtv.weight_floor)
    if site.config.init == "asm" and counted is not None and counted.k <= most:
        found = Mixture(counted.weights, counted.means, np.maximum(counted.variances, least))
        made = start_from_mixture(X, found, bounds, min_rows=site.min_count).mixture
    else:
        rng = site.rng("gtv-start")
        made = kmeans_start(X, min(k, most), rng, bounds, n_init=gtv.starts, min_rows=site.min_count).mixture
    while True:
        floor = max(gtv.variance_floor * within_variance(made), least)
        made = node.init(made, replace(bounds, variance_floor=floor)).mixture
        masses = responsibilities(X, made)[0].sum(axis=0)
        small = disclosure.smallest_below(masses, site.min_count)
        if small is None:
            return made
        # Enough rows were nearest to it, but they are others' as well.
        rest = np.delete(np.arange(made.n_components), small)
        weights = made.weights[rest] / made.weights[rest].sum()
        made = Mixture(weights, made.means[rest], made.covariances[rest])
        made = start_from_mixture(X, made, bounds, min_rows=site.min_count).mixture


def advance(site: Site, ask: AskGTVRound) -> GTVMixture:
    """Take the steps of a round against the neighbours' last mixtures.

    The site's own last mixture comes with the question, as the coordinator has it. A site that was away, or
    whose process is new, goes on from there.
    """
    X = contributed(site, ask)
    settings = settings_of(site.config.gtv, ask.alpha, X.shape[1])
    own, *others = ask.mixtures
    weights = [] if ask.edges is None else ask.edges.tolist()
    near = {
        name: Neighbour(_checked(site, name, other, settings.bounds), weight)
        for name, other, weight in zip(ask.neighbours, others, weights, strict=True)
        if weight > 0
    }
    before = node.init(own, settings.bounds)
    after = node.step(before, X, near, settings, draws(site.config.seed, site.name, ask.round, 0))
    assert after.report is not None  # a step always leaves one
    released = _held_back(X, before.mixture, after.mixture, site.min_count)
    # What is held back is cut, as a step that is halved: the round need not descend.
    cut = after.report.halvings + (released is not after.mixture)
    held_out, rows = _held_out(site, X, ask, near, settings)
    return _told(released, replace(after.report, halvings=cut), held_out=held_out, held_out_rows=rows)


def _held_out(
    site: Site, X: FloatArray, ask: AskGTVRound, near: Mapping[str, Neighbour], settings: Settings
) -> tuple[float, int]:
    """Take the same steps with the mixtures that were made without each part of the rows, and score those.

    These mixtures stay here: beside the one of all rows they would give single rows away, as differences.
    """
    parts = _parts(site, len(X))
    if not parts:
        return 0.0, 0
    kept = site.memory.load(GTVMemory)
    starts = (
        kept.mixtures[len(parts) :] if kept else _starts(site, X, parts, ask.mixtures[0], settings.bounds)
    )
    now = kept.mixtures[: len(parts)] if kept and kept.turn == ask.turn else starts
    after = []
    for number, (part, mixture) in enumerate(zip(parts, now, strict=True), start=1):
        streams = draws(site.config.seed, site.name, ask.round, number)
        stepped = node.step(NodeState(mixture), X[~part], near, settings, streams).mixture
        after.append(_held_back(X[~part], mixture, stepped, site.min_count))
    site.memory.save(GTVMemory(ask.turn, **stacked([*after, *starts])))
    scores = [responsibilities(X[part], mixture)[1].sum() for part, mixture in zip(parts, after, strict=True)]
    return float(sum(scores)), len(X)


def _starts(
    site: Site, X: FloatArray, parts: list[BoolArray], own: Mixture, bounds: Bounds
) -> tuple[Mixture, ...]:
    """Return the mixtures that start without each part, made as the site's own was."""
    gtv, least = site.config.gtv, site.min_count
    if site.config.init == "asm":
        return tuple(start_from_mixture(X[~part], own, bounds, min_rows=least).mixture for part in parts)
    k = own.n_components
    return tuple(
        kmeans_start(X[~part], k, site.rng("gtv-start", f), bounds, n_init=gtv.starts, min_rows=least).mixture
        for f, part in enumerate(parts)
    )


def _checked(site: Site, name: str, mixture: Mixture, bounds: Bounds) -> Mixture:
    """Return a neighbour's mixture, raising DataError if no site can have come to it."""
    if problem := infeasible(mixture, bounds):
        raise DataError(f"site {site.name!r}: the mixture of {name!r} that came cannot be used: {problem}")
    return mixture


def _parts(site: Site, n: int) -> list[BoolArray]:
    """Return the ``gtv-folds`` random parts (n,) of the rows that are held out in turn.

    There are none where a part would have fewer rows than ``min-count``.
    """
    folds = site.config.gtv.folds
    if not folds or n // folds < site.min_count:
        return []
    part_of = site.rng("gtv-folds").permutation(n) % folds
    return [part_of == fold for fold in range(folds)]


def _held_back(X: FloatArray, before: Mixture, after: Mixture, min_count: int) -> Mixture:
    """Keep components that stand on too few rows (n, q), before or after; the others share the rest."""
    if min_count <= 1:
        return after
    masses = [responsibilities(X, mixture)[0].sum(axis=0) for mixture in (before, after)]
    large = disclosure.large_enough(np.minimum(*masses), min_count)
    if large.all():
        return after
    weights = before.weights.copy()
    if large.any():
        weights[large] = after.weights[large] * before.weights[large].sum() / after.weights[large].sum()
        if weights.min() < min(before.weights.min(), after.weights.min()):  # under the floor
            weights = before.weights
    means = np.where(large[:, None], after.means, before.means)
    covariances = np.where(large[:, None, None], after.covariances, before.covariances)
    return Mixture(weights, means, covariances)


def _told(
    mixture: Mixture, report: Report, *, k_counted: int = 0, held_out: float = 0.0, held_out_rows: int = 0
) -> GTVMixture:
    return GTVMixture(
        k_counted=k_counted,
        weights=mixture.weights,
        means=mixture.means,
        covariances=lower_triangle(mixture.covariances),
        loss=report.loss,
        coupling=report.coupling,
        mapping=report.mapping,
        halvings=report.halvings,
        held_out=held_out,
        held_out_rows=held_out_rows,
    )
