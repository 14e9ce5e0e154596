"""Starts of pooling: the fit to own rows alone, and other starts once neighbours have spoken."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

import numpy as np

from fedcluster_app.gtvmin.niw import summaries_of
from fedcluster_app.gtvmin.pool_flat import joined_pieces, merged_on_path
from fedcluster_app.gtvmin.pool_local import (
    common_covariance,
    components,
    judged,
    own_evidence,
    refit,
    run_pass,
)
from fedcluster_app.gtvmin.pool_merge import pruned
from fedcluster_app.gtvmin.pool_message import Inbox, receive
from fedcluster_app.gtvmin.pool_model import Models, Rows, joined, lone, narrowed, padded
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_together import Program, Request
from fedcluster_app.mixtures.kmeans import kmeans_runs
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Counts, rows behind the covariances, means, covariances.
_Start: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
# Share of the uniform component at the start.
_JUNK = 0.03
# A start's weights are its counts plus this.
_SMOOTHING = 0.2
# Local fit: runs of k-means of which the best is a start, and others that all are.
_BEST_OF, _SINGLE_RUNS = 5, 5
# Of known k: pieces per component of one more start, in which they are joined.
_PIECES = 3
# Iterations of a look, in all, after each prior; starts that go on after the look.
_LOOK, _LOCAL_STEPS, _PRIOR_STEPS = 5, 20, 8
_LOCAL_KEPT = 2
# Of unknown k: components that a site starts with, and rows of each from which it starts with more.
_FEW, _ROWS_EACH = 10, 5
# Decimals of evidence, in nats, to which starts are compared.
_EQUAL = 6
# Trust from which a neighbour's components are a start.
_WORTH_TRYING = 0.3
# Of the iterations of another start, this many are scored by its densities.
_PLUG_IN_STEPS = 4


def local_fit(rows: Rows, k: int | None, settings: PoolSettings, rng: np.random.Generator) -> Program[Models]:
    """Fit without neighbours, a batch of one.

    Parameters
    ----------
    rows : Rows
    k : int, >= 1, or None
        A site with fewer rows gets one component per row. None for what remains of too many after merging.
    settings : PoolSettings
    rng : numpy.random.Generator
        For k-means.

    Notes
    -----
    **Source**: this project's pooling, round 0: six k-means starts, a look at each, the two of most evidence
    go on, and the best has its prior updated twice. What makes it right for flat clusters was added later:
    of known k a seventh start, `joined_pieces`, and of unknown k `merged_on_path` in the end.
    """
    free = k is None
    k = most_components(len(rows.X), settings) if k is None else min(k, len(rows.X))
    nobody = receive({}, rows, settings.count_cap)
    runs = kmeans_runs(rows.X, k, rng, n_init=_BEST_OF + _SINGLE_RUNS)
    best = min(runs[:_BEST_OF], key=lambda run: run.inertia)
    labels = [run.labels for run in (best, *runs[_BEST_OF:])]
    if not free and (pieces := min(_PIECES * k, len(rows.X) // 2)) > k > 1:
        cut = kmeans_runs(rows.X, pieces, rng, n_init=1)[0]
        labels.append(joined_pieces(rows, cut.labels, k))
    models = _labelled(rows, np.stack(labels), k)
    models = yield Request(run_pass, models, rows, nobody, settings, (_LOOK,))
    models = _best(models, rows, _LOCAL_KEPT)
    models = yield Request(run_pass, models, rows, nobody, settings, (_LOCAL_STEPS - _LOOK,))
    models = _best(models, rows, 1)
    for _ in range(2):
        models = yield Request(refit, models, rows, nobody, settings, (_PRIOR_STEPS,))
        if free:
            models = pruned(models, rows, nobody, settings, alone=True)
    return merged_on_path(models, rows, nobody, settings) if free else models


def most_components(n: int, settings: PoolSettings) -> int:
    """Return the number that n rows of unknown k start with: ten, or more where that leaves five rows each.

    Notes
    -----
    **Source**: this project's pooling, with 10 for 50 rows of two features, 15 for 108 of ten. By rows it is
    one rule for both; more than 10 for 50 rows gave more pieces in the end.
    """
    return max(1, min(settings.most_components, max(_FEW, n // _ROWS_EACH), n // 2))


def improved(
    current: Models,
    rows: Rows,
    inbox: Inbox,
    settings: PoolSettings,
    rng: np.random.Generator,
    *,
    fresh_rates: bool,
    free: bool,
) -> Program[Models]:
    """Return the current model, or another start if it raises the evidence of the own rows enough.

    Parameters
    ----------
    current : Models
        A batch of one.
    rows : Rows
    inbox : Inbox
    settings : PoolSettings
    rng : numpy.random.Generator
    fresh_rates : bool
        Other starts begin with trust one half in every edge.
    free : bool
        Other starts have numbers of components of their own, and are merged before they are compared.

    Notes
    -----
    **Source**: this project's pooling, candidates, in successive halving. The bound on everything would
    choose starts that explain foreign summaries; the evidence of the own rows cannot.
    """
    starts = _other_starts(current, rows, inbox, settings, rng, fresh_rates=fresh_rates, free=free)
    if not len(starts.weights):
        return current
    first, until, last = settings.start_steps
    seen = min(first, _PLUG_IN_STEPS)
    starts = yield Request(run_pass, starts, rows, inbox, settings, (first, seen))
    starts = _best(starts, rows, settings.kept_starts)
    starts = yield Request(run_pass, starts, rows, inbox, settings, (until - first, _PLUG_IN_STEPS - seen))
    both = joined(current, _best(starts, rows, 1))
    both = yield Request(run_pass, both, rows, inbox, settings, (last, 0))
    if free:
        each = [narrowed(both.taken([i]), both.active[i]) for i in (0, 1)]
        both = joined(*(pruned(one, rows, inbox, settings, on_trial=True) for one in each))
    evidence = own_evidence(both, rows)
    chosen = both.taken([1 if evidence[1] > evidence[0] + settings.margin else 0])
    return narrowed(chosen, chosen.active[0])


def _best(models: Models, rows: Rows, kept: int) -> Models:
    """Models of most own evidence, the best first.

    Starts that came to the same model differ by rounding, in which a run in company differs too: of them the
    first is taken.
    """
    evidence = own_evidence(models, rows).round(_EQUAL)
    return models.taken(np.argsort(-evidence, kind="stable")[:kept])


def _labelled(rows: Rows, labels: IntArray, k: int) -> Models:
    """Models of the clusters of labellings (b, n)."""
    (b, n), d = labels.shape, rows.X.shape[1]
    hot = (labels[:, None, :] == np.arange(k)[:, None]).astype(np.float64)
    own = (hot.reshape(b * k, n) @ rows.moments).reshape(b, k, d + 1, d + 1)
    within, strength = common_covariance(own, rows.spread), np.full(b, d + 1.0)
    means, covariances = components(own, within, strength)
    weights = own[..., 0, 0] + _SMOOTHING
    weights /= weights.sum(axis=1, keepdims=True)
    return lone(weights, means, covariances, within, strength, np.ones(b), own, np.full(b, _JUNK))


def _other_starts(
    current: Models,
    rows: Rows,
    inbox: Inbox,
    settings: PoolSettings,
    rng: np.random.Generator,
    *,
    fresh_rates: bool,
    free: bool,
) -> Models:
    """Every trusted neighbour's components, and k-means on rows and received means: a batch, maybe empty.

    A site of too few rows has a common covariance so small that nobody is like it. Where no neighbour is
    trusted all are tried, with the common covariance of what they sent.
    """
    k, trusted = current.weights.shape[1], current.rates[0] > _WORTH_TRYING
    if not trusted.any() and len(inbox.moments):
        trusted = np.ones_like(trusted)
        within = common_covariance(inbox.moments[None], rows.spread)
        current = judged(replace(current, within=within), rows, inbox)
    reliable = trusted[inbox.edges]
    senders = [edge for edge in np.flatnonzero(trusted) if (inbox.edges == edge).any()]
    limit, points, n = settings.most_components, [], len(rows.X)
    for edge in senders:
        said = inbox.moments[inbox.edges == edge]
        points.append(_of_neighbour(said, rows, min(len(said), limit) if free else k, rng))
    for heard in [np.ones_like(reliable)] if reliable.all() else [np.ones_like(reliable), reliable]:
        # Of unknown k, every third run looks for one more.
        more = [free and number % 3 == 2 and k < min(limit, n) for number in range(settings.kmeans_starts)]
        for one, runs in groupby(more):
            points += _of_means(inbox.moments[heard], rows, k + one, rng, len(list(runs)))
    if not points:
        return current.taken([])
    sizes = np.array([len(counts) for counts, *_ in points])
    places = max(k, sizes.max())
    base = padded(current, places).taken([0] * len(points))
    counts, behind, means, spreads = (
        np.stack([_extended(part, places) for part in parts]) for parts in zip(*points, strict=True)
    )
    weights = counts + _SMOOTHING * (np.arange(places) < sizes[:, None])
    # k-means starts have no covariances of their own: scatter 0 of 0 rows leaves the common one.
    s, heavy = base.strength[:, None, None, None], behind[:, :, None, None]
    covariances = (s * base.within[:, None] + heavy * spreads) / (s + heavy)
    return replace(
        base,
        weights=weights / weights.sum(axis=1, keepdims=True),
        means=means,
        covariances=covariances,
        rates=np.full_like(base.rates, 0.5) if fresh_rates else base.rates,
    )


def _extended(part: FloatArray, places: int) -> FloatArray:
    """Part of a start (k, ...) with zeros in the empty places."""
    return np.concatenate([part, np.zeros((places - len(part), *part.shape[1:]))])


def _of_neighbour(moments: FloatArray, rows: Rows, k: int, rng: np.random.Generator) -> _Start:
    """Start from a neighbour's components: counts, rows behind the covariances, means, covariances.

    The k largest; where there are fewer, own rows drawn at random fill up.
    """
    largest = np.sort(np.argsort(-moments[:, 0, 0], kind="stable")[:k])
    counts, means, covariances = summaries_of(moments[largest])
    missing = k - len(counts)
    d = rows.X.shape[1]
    drawn = rows.X[rng.choice(len(rows.X), size=missing, replace=False)]
    counts = np.concatenate([counts, np.zeros(missing)])
    means = np.concatenate([means, drawn])
    return counts, counts, means, np.concatenate([covariances, np.zeros((missing, d, d))])


def _of_means(moments: FloatArray, rows: Rows, k: int, rng: np.random.Generator, runs: int) -> list[_Start]:
    """Return starts from k-means on own rows and received means, these with the weight of their counts."""
    heard, means, _ = summaries_of(moments)
    (n, d), points = rows.X.shape, np.concatenate([rows.X, means])
    found = kmeans_runs(points, k, rng, n_init=runs, weights=np.concatenate([np.ones(n), heard]))
    counts = [np.bincount(run.labels[:n], minlength=k).astype(np.float64) for run in found]
    nothing, none = np.zeros(k), np.zeros((k, d, d))
    return [(own, nothing, run.centers, none) for own, run in zip(counts, found, strict=True)]
