"""Squared Euclidean distance of two mixtures after matching their components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks, Pull
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Target:
    """Where all neighbours of a node together pull it during one round.

    Attributes
    ----------
    degrees : array of shape (k, 1 + d + d²)
        Sum of edge weights that pull each number of each component.
    mean : array of shape (k, 1 + d + d²)
        Weighted mean of what they pull it to.
    spread : float
        Weighted sum of squares that remains at the mean.
    """

    degrees: FloatArray
    mean: FloatArray
    spread: float


def discrepancy(p: Blocks, q: Blocks) -> float:
    """Least sum of squared distances between the triples (weight, mean, covariance) of matched components.

    Parameters
    ----------
    p, q : Blocks
        Of the same d; the counts may differ. A component that is left over is compared with an empty one in
        its place, which costs its squared weight.

    Returns
    -------
    float, >= 0
        Symmetric, and independent of the order of the components. A left-over component whose weight vanishes
        costs nothing; with equal counts nothing is left over, and its mean and covariance are compared.

    Notes
    -----
    **Source**: arXiv:2609.19202, the Euclidean discrepancy; different counts are an extension.
    An empty component has no shape, so it takes that of its partner. Compared with a covariance of 0 instead,
    a component that no neighbour has would be pulled down to the variance floor. Cost O(k² d² + k³).
    """
    i, j = match(p, q)
    left_over = np.square(np.delete(p.weights, i)).sum() + np.square(np.delete(q.weights, j)).sum()
    return float(np.square(_flat(p)[i] - _flat(q)[j]).sum() + left_over)


def match(p: Blocks, q: Blocks) -> tuple[IntArray, IntArray]:
    """Best one-to-one matching of components on the full triples.

    Returns
    -------
    i, j : int arrays of shape (min(k_p, k_q),)
        Component i[n] of p belongs to component j[n] of q; i is sorted.
    """
    return _matchings(p, [q])[0]


def freeze(own: Blocks, neighbours: Sequence[Blocks], weights: Sequence[float]) -> Target:
    """Match every neighbour once and sum up where they pull.

    Parameters
    ----------
    own : Blocks
        The node's parameters at the start of the round.
    neighbours : sequence of Blocks, at least one
    weights : sequence of float
        Edge weights, without alpha.

    Notes
    -----
    Cost O(j (k² d² + k³)) for j neighbours, once a round.
    """
    k, d = own.means.shape
    goals = np.zeros((len(neighbours), k, 1 + d + d * d))
    # A component without a partner is pulled to an empty one in its place: in its weight alone.
    strengths = np.zeros_like(goals)
    strengths[:, :, 0] = 1.0
    left_over = 0.0
    for n, (i, j) in enumerate(_matchings(own, neighbours)):
        goals[n, i] = _flat(neighbours[n])[j]
        strengths[n, i] = 1.0
        left_over += weights[n] * float(np.square(np.delete(neighbours[n].weights, j)).sum())
    strengths *= np.asarray(weights)[:, None, None]
    degrees = strengths.sum(axis=0)
    mean = (strengths * goals).sum(axis=0) / np.where(degrees > 0, degrees, 1.0)
    return Target(degrees, mean, float((strengths * np.square(goals - mean)).sum()) + left_over)


def pull(target: Target, theta: Blocks) -> Pull:
    """Value and gradient of the weighted sum of squared distances to the frozen, matched neighbours.

    Notes
    -----
    The sum of squares to many points is one to their mean plus a constant, so a step costs O(k d²) whatever
    the number of neighbours.
    """
    k, d = theta.means.shape
    difference = _flat(theta) - target.mean
    slope = target.degrees * difference
    value = float(np.vdot(slope, difference)) + target.spread
    slope *= 2.0
    gradient = Blocks(slope[:, 0], slope[:, 1 : 1 + d], slope[:, 1 + d :].reshape(k, d, d))
    return Pull(value, gradient, 0.5 * value, 2.0 * float(target.degrees.max()))


def shift(target: Target, start: Blocks, theta: Blocks) -> float:
    """Weighted sum over the neighbours of the squared way from the round's start, component by component."""
    return float((target.degrees * np.square(_flat(theta) - _flat(start))).sum())


def _flat(theta: Blocks) -> FloatArray:
    """Triples as rows (k, 1 + d + d²)."""
    covariances = theta.covariances.reshape(len(theta.weights), -1)
    return np.concatenate([theta.weights[:, None], theta.means, covariances], axis=1)


def _matchings(own: Blocks, others: Sequence[Blocks]) -> list[tuple[IntArray, IntArray]]:
    """Match one mixture with each of several, from one matrix of squared distances."""
    from scipy.optimize import linear_sum_assignment

    costs = squared_distances(_flat(own), np.concatenate([_flat(other) for other in others]))
    ends = np.cumsum([len(other.weights) for other in others])[:-1]
    found = []
    for other, cost in zip(others, np.split(costs, ends, axis=1), strict=True):
        # What is matched needs no empty partner; on the smaller side everything is matched.
        if len(other.weights) > len(own.weights):
            cost = cost - np.square(other.weights)
        elif len(other.weights) < len(own.weights):
            cost = cost - np.square(own.weights)[:, None]
        found.append(linear_sum_assignment(cost))
    return found
