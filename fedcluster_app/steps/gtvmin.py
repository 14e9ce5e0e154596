"""GTVMin at a site: the mixtures to start with, and one round."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedcluster_app import disclosure
from fedcluster_app.cardinality.count import Count
from fedcluster_app.coupling import bounds_of, draws, settings_of
from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin import node
from fedcluster_app.gtvmin.node import Report
from fedcluster_app.gtvmin.projection import Bounds, infeasible
from fedcluster_app.gtvmin.starts import kmeans_start, start_from_mixture, within_variance
from fedcluster_app.gtvmin.surrogate import Neighbour
from fedcluster_app.messages import AskGTVRound, AskGTVStart, GTVModels
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import BoolArray, FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import count
from fedcluster_app.steps.rows import contributed

# Of rows that are all equal, in scaled units.
SMALLEST_VARIANCE = 1e-6


class Fitted(NamedTuple):
    """A mixture, what is known of the rows it is of, and the rows (n,) that it is not of."""

    mixture: Mixture
    report: Report
    left_out: BoolArray


def start(site: Site, ask: AskGTVStart) -> GTVModels:
    """Count the components unless the run says how many, and make mixtures of k-means or of ASM's count."""
    X, config = contributed(site, ask), site.config
    counted = None
    if config.gtv.components is None:
        counted = count(site, X, "asm" if config.init == "asm" else config.estimator)
    k = counted.k if counted else config.gtv.components or 1
    fitted = []
    for part, left_out in enumerate(_parts(site, len(X))):
        rows = X[~left_out]
        made = _made(site, rows, part, k, counted)
        loss = -float(responsibilities(rows, made)[1].mean())
        fitted.append(Fitted(made, Report(loss, 0.0, 0.0, 0), left_out))
    return _told(X, fitted, k)


def _made(site: Site, rows: FloatArray, part: int, k: int, counted: Count | None) -> Mixture:
    """Return the mixture that some rows (n, q) start with.

    The unit in which variances have their floor is not known yet: it is the site's own for the time being.
    """
    gtv, bounds = site.config.gtv, replace(bounds_of(site.config.gtv), variance_floor=SMALLEST_VARIANCE)
    if site.config.init == "asm" and counted is not None:
        variances = np.maximum(counted.variances, SMALLEST_VARIANCE)
        found = Mixture(counted.weights, counted.means, variances)
        made = start_from_mixture(rows, found, bounds, min_rows=site.min_count).mixture
    else:
        most, rng = min(k, int(1 / gtv.weight_floor)), site.rng("gtv-start", part)
        made = kmeans_start(rows, most, rng, bounds, n_init=gtv.starts, min_rows=site.min_count).mixture
    floor = max(gtv.variance_floor * within_variance(made), SMALLEST_VARIANCE)
    return node.init(made, replace(bounds, variance_floor=floor)).mixture


def advance(site: Site, ask: AskGTVRound) -> GTVModels:
    """Take the steps of a round with every mixture, each beside its neighbours' of the same part.

    What a site must know of the rounds before is in the question: its last mixtures, as the coordinator has
    them. A site that was away, or whose process is new, goes on from there.
    """
    X = contributed(site, ask)
    settings = settings_of(site.config.gtv, ask.alpha, X.shape[1])
    parts, mixtures = _parts(site, len(X)), ask.mixtures
    if len(mixtures) != len(parts) * (1 + len(ask.neighbours)):
        raise DataError(
            f"site {site.name!r}: got {len(mixtures)} mixtures, expected {len(parts)} of its own and as many "
            f"of each of {len(ask.neighbours)} neighbours"
        )
    weights = [] if ask.edges is None else ask.edges.tolist()
    fitted = []
    for part, left_out in enumerate(parts):
        own, *others = mixtures[part :: len(parts)]
        near = {
            name: Neighbour(_checked(site, name, other, settings.bounds), weight)
            for name, other, weight in zip(ask.neighbours, others, weights, strict=True)
            if weight > 0
        }
        streams = draws(site.config.seed, site.name, ask.round, part)
        before = node.init(own, settings.bounds)
        after = node.step(before, X[~left_out], near, settings, streams)
        assert after.report is not None  # a step always leaves one
        released = _held_back(X[~left_out], before.mixture, after.mixture, site.min_count)
        fitted.append(Fitted(released, after.report, left_out))
    return _told(X, fitted)


def _checked(site: Site, name: str, mixture: Mixture, bounds: Bounds) -> Mixture:
    """Return a neighbour's mixture, raising DataError if no site can have come to it."""
    if problem := infeasible(mixture, bounds):
        raise DataError(f"site {site.name!r}: the mixture of {name!r} that came cannot be used: {problem}")
    return mixture


def _parts(site: Site, n: int) -> list[BoolArray]:
    """Return the rows (n,) left out of every mixture: none, then each of ``gtv-folds`` random parts in turn.

    Where a part would have fewer rows than ``min-count`` nothing is left out: the site still takes part in
    the others' comparisons.
    """
    folds = site.config.gtv.folds
    nothing = np.zeros(n, dtype=bool)
    if not folds or n // folds < site.min_count:
        return [nothing] * (1 + folds)
    part_of = site.rng("gtv-folds").permutation(n) % folds
    return [nothing, *(part_of == fold for fold in range(folds))]


def _held_back(X: FloatArray, own: Mixture, after: Mixture, min_count: int) -> Mixture:
    """Keep mean and covariance of every component that has come to stand on fewer rows (n, q) than it may."""
    if min_count <= 1:
        return after
    large = disclosure.large_enough(responsibilities(X, after)[0].sum(axis=0), min_count)
    if large.all():
        return after
    means = np.where(large[:, None], after.means, own.means)
    return Mixture(after.weights, means, np.where(large[:, None, None], after.covariances, own.covariances))


def _told(X: FloatArray, fitted: list[Fitted], k_counted: int = 0) -> GTVModels:
    scores = [
        float(responsibilities(X[one.left_out], one.mixture)[1].sum()) if one.left_out.any() else 0.0
        for one in fitted
    ]
    return GTVModels(
        k_counted=k_counted,
        **stacked([one.mixture for one in fitted]),
        loss=np.array([one.report.loss for one in fitted]),
        coupling=np.array([one.report.coupling for one in fitted]),
        mapping=np.array([one.report.mapping for one in fitted]),
        halvings=np.array([one.report.halvings for one in fitted]),
        held_out=np.array(scores),
        held_out_rows=np.array([int(one.left_out.sum()) for one in fitted]),
    )
