"""The local iteration of pooling: own rows and attached summaries, for several models of a node at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcluster_app.gtvmin.likelihood import factors
from fedcluster_app.gtvmin.niw import Prior, log_evidence, log_predictive, prior_of
from fedcluster_app.gtvmin.pool_attach import attach, supported
from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.gtvmin.pool_model import Models, Rows, prior
from fedcluster_app.gtvmin.pool_rows import assign
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures.types import FloatArray

_LOG_2PI = float(np.log(2.0 * np.pi))
# Least count of a component that has a mean of its own.
_ALIVE = 1e-3
# Share of the spread that the common covariance never falls below, in every direction.
_RIDGE = 1e-3
# Nats per row by which a pair may be behind the best one, and attachment from which it counts regardless.
_FAR, _ATTACHED = 30.0, 1e-4
# Of the cofactors of two features.
_SIGNS = np.array([[1.0, -1.0], [-1.0, 1.0]])


def run_pass(
    models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, steps: int, plug_in: int = 1
) -> Models:
    """Iterate, in the first iterations with the plug-in score: totals are never older than the pass."""
    for number in range(steps):
        models = iterate(models, rows, inbox, settings, plug_in=number < plug_in)
    return models


def refit(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, steps: int) -> Models:
    """Renew the prior, then iterate."""
    return run_pass(update_prior(models, rows, inbox, settings), rows, inbox, settings, steps)


def attend(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, steps: int) -> Models:
    """Iterate on what came, before and after the prior is renewed."""
    models = run_pass(judged(models, rows, inbox), rows, inbox, settings, steps)
    return refit(models, rows, inbox, settings, steps)


def iterate(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, *, plug_in: bool) -> Models:
    """One local iteration: responsibilities, attachments, means and covariances, weights.

    Parameters
    ----------
    models : Models
    rows : Rows
    inbox : Inbox
    settings : PoolSettings
    plug_in : bool
        Score received components by the models' densities; else by the evidence given all rows and other
        attachments of a component.

    Returns
    -------
    Models

    Notes
    -----
    **Source**: this project's pooling, steps a to h; the support rule counts own rows alone in all iterations
    that score by densities, not in the first alone. Cost O(b (n + J) k d²), with evidence O(b J k d³) more.
    """
    forms = quadratic_forms(models.means, models.covariances)
    own, evidence_of_rows, junk = assign(models.weights, forms, models.junk, rows)
    attached, rates = models.attached, models.rates
    if inbox.moments.shape[-3]:
        scores = np.where(models.active[:, None], _plug_in(forms, inbox), -np.inf)
        if not plug_in:
            scores = _left_out(models, inbox, scores, prior(models, rows))
        allowed = supported(rates, own[..., 0, 0], None if plug_in else attached, inbox)
        scores = np.where(allowed, scores, -np.inf)
        attached, rates = attach(
            scores, models.separate, rates, inbox, settings.rate_prior, models.active.sum(axis=1)
        )
    borrowed = (attached.swapaxes(1, 2) @ inbox.flat).reshape(own.shape)
    counted = models.discount[:, None, None, None] * borrowed
    weights, evidence = draw_weights(
        own[..., 0, 0], counted[..., 0, 0], settings.concentration, models.active
    )
    means, covariances = components(own + counted, models.within, models.strength)
    return replace(
        models,
        weights=weights,
        means=means,
        covariances=covariances,
        rates=rates,
        attached=attached,
        own=own,
        borrowed=borrowed,
        row_evidence=evidence_of_rows + evidence,
        junk=junk,
    )


def components(totals: FloatArray, within: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (b, k, d) and covariances (b, k, d, d) of totals, drawn to a common covariance.

    Notes
    -----
    **Source**: this project's pooling, step g: S = (s W + scatter) / (s + count). A component without rows
    sits at the origin with W.
    """
    alive = totals[..., 0, 0] >= _ALIVE
    totals = totals * alive[..., None, None]
    counts, sums = totals[..., 0, 0], totals[..., 0, 1:]
    means = sums / np.maximum(counts, _ALIVE)[..., None]
    scatters = totals[..., 1:, 1:] - means[..., :, None] * sums[..., None, :]
    s = strength[:, None, None, None]
    covariances = (s * within[:, None] + scatters) / (s + counts[..., None, None])
    return means, covariances


def update_prior(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> Models:
    """Renew the common covariance, and by evidence its strength and the discount.

    Notes
    -----
    **Source**: this project's pooling, the prior update (in place of a floor on the covariances) and step j,
    the own rows' evidence given a power prior on everything borrowed.
    """
    totals = models.totals
    within = common_covariance(totals, rows.spread)
    grid, spread = np.asarray(settings.strengths), np.reshape(rows.spread, (-1, 1))
    law = prior_of(within[:, None], np.broadcast_to(grid, (len(within), len(grid))), spread)
    evidence = log_evidence(totals[:, None], law).sum(axis=2)
    moved = replace(models, within=within, strength=grid[evidence.argmax(axis=1)])
    if not models.attached.shape[1]:
        return moved
    shares = np.asarray(settings.discounts)
    lent = shares[:, None, None, None] * models.borrowed[:, None]
    gain = log_predictive(models.own[:, None], lent, prior(moved, rows)).sum(axis=2)
    return judged(replace(moved, discount=shares[gain.argmax(axis=1)]), rows, inbox)


def judged(models: Models, rows: Rows, inbox: Inbox) -> Models:
    """Models that know how much evidence each received component has by itself, under their prior."""
    received = inbox.moments.reshape(-1, *inbox.moments.shape[-3:])
    return replace(models, separate=log_evidence(received, prior(models, rows)))


def common_covariance(totals: FloatArray, spread: float | FloatArray) -> FloatArray:
    """Pooled covariance within the components, (b, d, d), of totals (b, k, d + 1, d + 1)."""
    counts, d = totals[..., 0, 0], totals.shape[-1] - 1
    first = totals[..., 0, 1:]
    divisor = np.where(counts >= _ALIVE, counts, np.inf)[..., None, None]
    scatters = totals[..., 1:, 1:] - first[..., :, None] * first[..., None, :] / divisor
    size = counts.sum(axis=1)
    freedom = np.maximum(size - (counts > 1.0).sum(axis=1), 0.5 * size)
    within: FloatArray = scatters.sum(axis=1) / freedom[:, None, None]
    within += _RIDGE / d * np.reshape(spread, (-1, 1, 1)) * np.eye(d)
    return within


def own_evidence(models: Models, rows: Rows) -> FloatArray:
    """Log evidence of the own rows given everything attached, (b,): what starts are compared by.

    Foreign components that explain each other cannot raise it.
    """
    lent = models.discount[:, None, None, None] * models.borrowed
    evidence: FloatArray = log_predictive(models.own, lent, prior(models, rows)).sum(axis=1)
    evidence += models.row_evidence
    return evidence


def quadratic_forms(means: FloatArray, covariances: FloatArray) -> FloatArray:
    """Matrices Q (..., d + 1, d + 1): the log density of the rows behind moments M is -<Q, M> / 2."""
    d = means.shape[-1]
    precisions, log_dets = _inverses(covariances)
    slopes = (precisions @ means[..., None])[..., 0]
    forms = np.empty((*means.shape[:-1], d + 1, d + 1))
    forms[..., 0, 0] = (slopes * means).sum(axis=-1) + log_dets + d * _LOG_2PI
    forms[..., 0, 1:] = forms[..., 1:, 0] = -slopes
    forms[..., 1:, 1:] = precisions
    return forms


def _inverses(covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverses and log determinants of symmetric positive definite matrices; of two features by formula."""
    if covariances.shape[-1] == 2:
        dets = covariances[..., 0, 0] * covariances[..., 1, 1] - covariances[..., 0, 1] ** 2
        adjugates = _SIGNS * covariances[..., ::-1, ::-1]
        return adjugates / dets[..., None, None], np.log(dets)
    whiteners, log_dets = factors(covariances)
    return whiteners.swapaxes(-1, -2) @ whiteners, log_dets


def _plug_in(forms: FloatArray, inbox: Inbox) -> FloatArray:
    """Log density (b, J, k) of the rows behind received components under the models as they are."""
    densities: FloatArray = -0.5 * inbox.flat @ forms.reshape(*forms.shape[:2], -1).swapaxes(1, 2)
    return densities


def _left_out(models: Models, inbox: Inbox, densities: FloatArray, law: Prior) -> FloatArray:
    """Log predictive (b, J, k) of received components given all else that is in the components.

    Only of pairs that could matter; by the densities all others are so much worse that their evidence, most
    of the work for many features, changes no more than the sixth digit.
    """
    behind = densities.max(axis=2, keepdims=True) - _FAR * inbox.counts[..., None]
    near = (densities >= behind) | (models.attached > _ATTACHED)
    b, j, c = np.nonzero(near)
    moments = inbox.moments
    received = np.broadcast_to(moments, (len(near), *moments.shape[-3:]))[b, j]
    share = (models.discount[:, None, None] * models.attached)[near]
    others = models.totals[b, c] - share[:, None, None] * received
    scores = np.full(near.shape, -np.inf)
    scores[near] = log_predictive(received, others, law, which=b)
    return scores
