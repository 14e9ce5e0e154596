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


def run_pass(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings, steps: int) -> Models:
    """Iterate, with the plug-in score first: totals are never older than the pass."""
    for number in range(steps):
        models = iterate(models, rows, inbox, settings, plug_in=number == 0)
    return models


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
    **Source**: this project's pooling, steps a to h. Cost O(b (n + J) k d²), with evidence O(b J k d³) more.
    """
    forms = quadratic_forms(models.means, models.covariances)
    own, evidence_of_rows, junk = assign(models.weights, forms, models.junk, rows)
    attached, rates = models.attached, models.rates
    if len(inbox.moments):
        scores = np.where(models.active[:, None], _plug_in(forms, inbox), -np.inf)
        if not plug_in:
            scores = _left_out(models, inbox, scores, prior(models, rows))
        allowed = supported(rates, own[..., 0, 0], None if plug_in else attached, inbox)
        scores = np.where(allowed, scores, -np.inf)
        attached, rates = attach(
            scores, models.separate, rates, inbox, settings.rate_prior, models.active.sum(axis=1)
        )
    flat = inbox.moments.reshape(len(inbox.moments), rows.moments.shape[1])
    borrowed = (attached.swapaxes(1, 2) @ flat).reshape(own.shape)
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
    counts = totals[..., 0, 0]
    alive = counts >= _ALIVE
    means = np.where(alive[..., None], totals[..., 0, 1:] / np.where(alive, counts, 1.0)[..., None], 0.0)
    scatters = totals[..., 1:, 1:] - counts[..., None, None] * (means[..., :, None] * means[..., None, :])
    scatters = np.where(alive[..., None, None], scatters, 0.0)
    s = strength[:, None, None, None]
    covariances = (s * within[:, None] + scatters) / (s + (alive * counts)[..., None, None])
    return means, 0.5 * (covariances + covariances.swapaxes(-1, -2))


def update_prior(models: Models, rows: Rows, inbox: Inbox, settings: PoolSettings) -> Models:
    """Renew the common covariance, and by evidence its strength and the discount.

    Notes
    -----
    **Source**: this project's pooling, the prior update (in place of a floor on the covariances) and step j,
    the own rows' evidence given a power prior on everything borrowed.
    """
    totals = models.totals
    within = common_covariance(totals, rows.spread)
    grid = np.asarray(settings.strengths)
    law = prior_of(within[:, None], np.broadcast_to(grid, (len(within), len(grid))), rows.spread)
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
    return replace(models, separate=log_evidence(inbox.moments[None], prior(models, rows)))


def common_covariance(totals: FloatArray, spread: float) -> FloatArray:
    """Pooled covariance within the components, (b, d, d), of totals (b, k, d + 1, d + 1)."""
    counts, d = totals[..., 0, 0], totals.shape[-1] - 1
    first = totals[..., 0, 1:]
    divisor = np.where(counts >= _ALIVE, counts, np.inf)[..., None, None]
    scatters = totals[..., 1:, 1:] - first[..., :, None] * first[..., None, :] / divisor
    size = counts.sum(axis=1)
    freedom = np.maximum(size - (counts > 1.0).sum(axis=1), 0.5 * size)
    within: FloatArray = scatters.sum(axis=1) / freedom[:, None, None]
    within += _RIDGE * spread / d * np.eye(d)
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
    whiteners, log_dets = factors(covariances)
    precisions = whiteners.swapaxes(-1, -2) @ whiteners
    slopes = np.einsum("...pq,...q->...p", precisions, means)
    forms = np.empty((*means.shape[:-1], d + 1, d + 1))
    forms[..., 0, 0] = np.einsum("...p,...p->...", slopes, means) + log_dets + d * _LOG_2PI
    forms[..., 0, 1:] = forms[..., 1:, 0] = -slopes
    forms[..., 1:, 1:] = precisions
    return forms


def _plug_in(forms: FloatArray, inbox: Inbox) -> FloatArray:
    """Log density (b, J, k) of the rows behind received components under the models as they are."""
    b, k = forms.shape[:2]
    flat = inbox.moments.reshape(len(inbox.moments), -1) @ forms.reshape(b * k, -1).T
    return -0.5 * flat.reshape(-1, b, k).transpose(1, 0, 2)


def _left_out(models: Models, inbox: Inbox, densities: FloatArray, law: Prior) -> FloatArray:
    """Log predictive (b, J, k) of received components given all else that is in the components.

    Only of pairs that could matter; by the densities all others are so much worse that their evidence, most
    of the work for many features, changes no more than the sixth digit.
    """
    behind = densities.max(axis=2, keepdims=True) - _FAR * inbox.counts[:, None]
    near = (densities >= behind) | (models.attached > _ATTACHED)
    scores = np.full(near.shape, -np.inf)
    share, totals = models.discount[:, None, None] * models.attached, models.totals
    for b, pairs in enumerate(near):
        j, c = np.nonzero(pairs)
        received = inbox.moments[j]
        others = totals[b, c] - share[b, j, c, None, None] * received
        # One call for both evidences: at these sizes the calls are what takes the time.
        both = np.stack([others, others + received])
        evidence = log_evidence(both, Prior(law.kappa[b], law.nu[b], law.psi[b]))
        scores[b, j, c] = evidence[1] - evidence[0]
    return scores
