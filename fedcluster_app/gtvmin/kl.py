"""Kullback-Leibler divergence of a neighbour's mixture from the own one, on rows drawn from the neighbour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.gtvmin.likelihood import factors, weighted_log_densities
from fedcluster_app.mixtures.densities import logsumexp
from fedcluster_app.mixtures.types import FloatArray


def discrepancy(p: Blocks, q: Blocks, rng: np.random.Generator, samples: int = 50) -> float:
    """Monte-Carlo estimate of KL(q ‖ p).

    Parameters
    ----------
    p, q : Blocks
        Own mixture and neighbour, of the same d; the counts may differ.
    rng : numpy.random.Generator
    samples : int, >= 1
        Rows drawn from q.

    Returns
    -------
    float
        Mean of ln q - ln p over the rows; exactly 0 for p = q, else it may be negative by chance.

    Notes
    -----
    **Source**: arXiv:2609.19202, the KL discrepancy: the neighbour is the sampling distribution.
    """
    rows, log_q = draw([q], [rng], samples)
    return float((log_q - log_density(p, rows)).mean())


def draw(
    neighbours: Sequence[Blocks], rngs: Sequence[np.random.Generator], samples: int
) -> tuple[FloatArray, FloatArray]:
    """Rows from each neighbour, with their log-density under the one that they came from.

    Parameters
    ----------
    neighbours : sequence of j Blocks
    rngs : sequence of j generators
        One for each neighbour, so that a missing neighbour changes no other's rows.
    samples : int, >= 1
        Rows of each neighbour.

    Returns
    -------
    rows : array of shape (d, j * samples)
    log_density : array of shape (j * samples,)

    Notes
    -----
    Components are put in a fixed order first: relabelling them changes no row. All neighbours go through in
    one batch, padded to the largest count with components of weight 0.
    """
    weights, means, covariances = _stacked(neighbours)
    d = means.shape[2]
    uniforms = np.stack([rng.random(samples) for rng in rngs])
    noise = np.stack([rng.standard_normal((samples, d)) for rng in rngs])
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    labels = (uniforms[:, :, None] >= cumulative[:, None, :-1]).sum(axis=2)
    which = np.arange(len(neighbours))[:, None]
    lower = np.linalg.cholesky(covariances)
    rows = means[which, labels] + (lower[which, labels] @ noise[:, :, :, None])[:, :, :, 0]
    batch = rows.transpose(0, 2, 1)
    return batch.transpose(1, 0, 2).reshape(d, -1), _log_density(weights, means, covariances, batch).reshape(
        -1
    )


def log_density(theta: Blocks, rows: FloatArray) -> FloatArray:
    """Log-density (n,) of rows (d, n) under a mixture."""
    return _log_density(theta.weights, theta.means, theta.covariances, rows)


def _log_density(
    weights: FloatArray, means: FloatArray, covariances: FloatArray, rows: FloatArray
) -> FloatArray:
    """Log-density (..., n) of rows (..., d, n) under mixtures with the same leading axes."""
    whiteners, log_dets = factors(covariances)
    white = whiteners @ (rows[..., None, :, :] - means[..., None])
    with np.errstate(divide="ignore"):
        joint = weighted_log_densities(weights, white, log_dets)
    return logsumexp(joint, axis=-2)


def _stacked(neighbours: Sequence[Blocks]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights (j, k), means (j, k, d) and covariances (j, k, d, d), components in order and padded."""
    k, d = max(len(other.weights) for other in neighbours), neighbours[0].means.shape[1]
    weights, means = np.zeros((len(neighbours), k)), np.zeros((len(neighbours), k, d))
    covariances = np.broadcast_to(np.eye(d), (len(neighbours), k, d, d)).copy()
    for n, other in enumerate(neighbours):
        # Means decide first: unlike weights, which often tie, they differ by more than rounding.
        flat = other.covariances.reshape(len(other.weights), -1)
        order = np.lexsort((*flat.T, other.weights, *other.means.T[::-1]))
        weights[n, : len(order)] = other.weights[order]
        means[n, : len(order)] = other.means[order]
        covariances[n, : len(order)] = other.covariances[order]
    return weights, means, covariances
