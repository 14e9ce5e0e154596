"""Merging of a node's own components on evidence: how pooling finds their number."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from fedcluster_app.gtvmin.niw import Prior, log_evidence
from fedcluster_app.gtvmin.pool_bound import bound
from fedcluster_app.gtvmin.pool_local import components, iterate, quadratic_forms, update_prior
from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.gtvmin.pool_model import Models, Rows, joined, narrowed, prior
from fedcluster_app.gtvmin.pool_rows import responsibilities
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Iterations after a merge and after a removal.
_MERGE_STEPS, _REMOVAL_STEPS = 3, 2
# Pairs that are merged on trial, nats that each may lose as it is, iterations before and after the prior.
_TRIALS, _LOSS, _TRIAL_STEPS = 3, 10.0, 2
# A component of fewer rows, own and attached, is removed.
_LEAST_TOTAL = 0.5


def pruned(
    models: Models,
    rows: Rows,
    inbox: Inbox,
    settings: PoolSettings,
    *,
    alone: bool = False,
    on_trial: bool = False,
) -> Models:
    """Return the model with components merged while that raises the bound, and the empty ones removed.

    Parameters
    ----------
    models : Models
        A batch of one.
    rows : Rows
    inbox : Inbox
    settings : PoolSettings
    alone : bool
        Before anything was received. Then a merge of k components pays ln k more, as if the bound were that
        of unlabelled components: two small clusters that a site cannot tell apart by itself wait for what
        the neighbours say.
    on_trial : bool
        Also merge what raises the bound only once all else has followed; see `merged_on_trial`.

    Notes
    -----
    **Source**: this project's pooling with unknown k, its merge sweep; similar in form to the merge moves of
    Hughes and Sudderth, Memoized online variational inference for Dirichlet process mixtures (2013). Cost
    O(n k² + k² d³) a merge.
    """
    groups = merge_groups(models, rows, settings, alone=alone)
    if groups.shape[1] < len(groups):
        models = _settled(summed(models, groups, settings), rows, inbox, settings, _MERGE_STEPS)
    if on_trial:
        models = merged_on_trial(models, rows, inbox, settings)
    totals = models.totals[0, :, 0, 0]
    alive = totals >= min(_LEAST_TOTAL, totals.max())
    if not alive.all():
        models = _settled(narrowed(models, alive), rows, inbox, settings, _REMOVAL_STEPS)
    return models


def merge_groups(models: Models, rows: Rows, settings: PoolSettings, *, alone: bool) -> FloatArray:
    """Which components of a batch of one belong together: 0 or 1, (k, groups); parameters of `pruned`."""
    R, own, lent = _shared(models, rows)
    law, groups = prior(models, rows), np.eye(len(own))
    while (k := groups.shape[1]) > 1:
        mine, theirs = (np.tensordot(groups.T, part, 1) for part in (own, lent))
        attached = models.attached[0] @ groups
        gains = merge_gains(R @ groups, attached, mine, theirs, law, settings.concentration)
        best = int(gains.argmax())
        if gains[best] <= (np.log(k) if alone else 0.0):
            break
        groups = groups @ _pair(k, best)
    return groups


def merged_on_trial(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> Models:
    """Merge pairs that lose little as they are and win once all else has followed; parameters of `pruned`.

    Notes
    -----
    This project's; not in its first description. Summaries that match a whole cluster match none of its
    pieces, and the pieces make the common covariance small: with both as they are, pieces seem right. So the
    best pairs are merged on trial, everything is fitted anew with and without, the prior among it, and the
    bounds are compared. Without neighbours that merges clusters that are close, so it is left to the rounds.
    It is where small components are released that neighbours confirm each other's pieces, and this is needed;
    else it is worth a few thousandths of a nat per row. Cost of four iterations of up to four models a merge.
    """
    while models.weights.shape[1] > 1:
        merged = likely_merges(models, rows, settings, loss=_LOSS)
        if merged is None:
            break
        tried = renewed(joined(models, merged), rows, inbox, settings)
        best = int(bound(tried, rows, inbox).argmax())
        if best == 0:
            break
        models = tried.taken([best])
        models = narrowed(models, models.active[0])
    return models


def likely_merges(models: Models, rows: Rows, settings: PoolSettings, *, loss: float) -> Models | None:
    """Merge each of the three best pairs of a batch of one that lose less than so many nats, if there are."""
    k, (R, own, lent) = models.weights.shape[1], _shared(models, rows)
    law = prior(models, rows)
    gains = merge_gains(R, models.attached[0], own, lent, law, settings.concentration)
    likely = np.argsort(-gains, kind="stable")[:_TRIALS]
    merged = [summed(models, _pair(k, int(pair)), settings) for pair in likely[gains[likely] > -loss]]
    return reduce(joined, merged) if merged else None


def renewed(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> Models:
    """Iterate before and after the prior is renewed, the discount aside: bounds at different ones differ."""
    models = _settled(models, rows, inbox, settings, _TRIAL_STEPS)
    models = replace(update_prior(models, rows, inbox, settings), discount=models.discount)
    return _settled(models, rows, inbox, settings, _TRIAL_STEPS)


def _settled(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, steps: int) -> Models:
    for _ in range(steps):
        models = iterate(models, rows, inbox, settings, plug_in=False)
    return models


def _shared(models: Models, rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Responsibilities (n, k) of a batch of one, and the moments of its components: own, lent."""
    forms = quadratic_forms(models.means, models.covariances)
    R = responsibilities(models.weights, forms, models.junk, rows)[0][0, : forms.shape[1]].T
    own = (R.T @ rows.moments).reshape(models.own[0].shape)
    return R, own, models.discount[0] * models.borrowed[0]


def _pair(k: int, number: int) -> FloatArray:
    """Make groups (k, k - 1), one of them the pair with that number in the order of `merge_gains`."""
    a, b = (int(places[number]) for places in np.triu_indices(k, 1))
    groups = np.eye(k)
    groups[b, a] = 1.0
    return np.delete(groups, b, axis=1)


def merge_gains(
    shares: FloatArray,
    attached: FloatArray,
    own: FloatArray,
    lent: FloatArray,
    law: Prior,
    concentration: float,
) -> FloatArray:
    """By how much the bound rises when two components become one and nothing else changes.

    Parameters
    ----------
    shares : array of shape (n, k)
        Responsibilities of the own rows.
    attached : array of shape (J, k)
        Of the received components.
    own, lent : arrays of shape (k, d + 1, d + 1)
        Moments of the own rows; of what is attached, discounted.
    law : Prior
        A batch of one.
    concentration : float, > 0
        See `draw_weights`.

    Returns
    -------
    array of shape (k (k - 1) / 2,)
        Of the pairs in the order of ``np.triu_indices(k, 1)``.

    Notes
    -----
    **Source**: this project's pooling with unknown k, the exact difference of the bound: evidence of the
    totals, entropies of responsibilities and attachments, the prior 1 / k of each attachment, and evidence of
    the own counts.
    """
    k = len(own)
    a, b = np.triu_indices(k, 1)
    totals = own + lent
    apart = log_evidence(totals[None], law)[0]
    gains: FloatArray = log_evidence((totals[a] + totals[b])[None], law)[0] - apart[a] - apart[b]
    gains -= _entropy_lost(shares) + _entropy_lost(attached)
    gains += attached.sum() * np.log(k / (k - 1.0))
    counts, base = own[:, 0, 0], lent[:, 0, 0]
    _, before = draw_weights(counts[None], base[None], concentration)
    active = np.arange(k) != b[:, None]
    _, after = draw_weights(_moved(counts, a, b), _moved(base, a, b), concentration, active)
    gains += after - before
    return gains


def summed(models: Models, groups: FloatArray, settings: PoolSettings) -> Models:
    """Model, a batch of one, whose components are groups (k, groups) of those of another."""
    own, borrowed = (np.tensordot(groups.T, part[0], 1)[None] for part in (models.own, models.borrowed))
    lent = models.discount[0] * borrowed
    means, covariances = components(own + lent, models.within, models.strength)
    weights, _ = draw_weights(own[..., 0, 0], lent[..., 0, 0], settings.concentration)
    return replace(
        models,
        weights=weights,
        means=means,
        covariances=covariances,
        attached=models.attached @ groups,
        own=own,
        borrowed=borrowed,
    )


def _entropy_lost(shares: FloatArray) -> FloatArray:
    """Entropy by which shares (n, k) fall when two columns become one, for all pairs of columns."""
    from scipy.special import entr

    own = entr(shares).sum(axis=0)
    lost = [np.zeros(0)]
    for a in range(len(own) - 1):
        both = entr(shares[:, [a]] + shares[:, a + 1 :]).sum(axis=0)
        lost.append(own[a] + own[a + 1 :] - both)
    return np.concatenate(lost)


def _moved(counts: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
    """Move the count (k,) of the second place of each pair to the first, (pairs, k)."""
    moved = np.tile(counts, (len(a), 1))
    at = np.arange(len(a))
    moved[at, a] += counts[b]
    moved[at, b] = 0.0
    return moved
