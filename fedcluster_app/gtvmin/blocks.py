"""Parameters of a mixture, or a gradient in them, as three blocks of numbers without checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """A point or a direction in the space of the parameters.

    Norms are Euclidean on the stack of all three blocks, so an off-diagonal entry of a covariance counts
    twice; gradients take its entries as d² free numbers, which fits that geometry and is symmetric.

    Attributes
    ----------
    weights : array of shape (k,)
    means : array of shape (k, d)
    covariances : array of shape (k, d, d)
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray


def blocks(mixture: Mixture) -> Blocks:
    """Parameters of a mixture of any kind, with its covariances written out as matrices."""
    k, d = mixture.means.shape
    covariances = mixture.covariances
    if mixture.kind != "full":
        covariances = covariances.reshape(k, -1, 1) * np.eye(d)
    return Blocks(mixture.weights, mixture.means, covariances)


def mixture_of(theta: Blocks) -> Mixture:
    """Mixture with feasible parameters."""
    return Mixture(theta.weights, theta.means, theta.covariances)


def moved(theta: Blocks, direction: Blocks, step: float) -> Blocks:
    """Point at `step` times the direction from theta."""
    return Blocks(
        theta.weights + step * direction.weights,
        theta.means + step * direction.means,
        theta.covariances + step * direction.covariances,
    )


def squared_distance(a: Blocks, b: Blocks) -> float:
    """Squared Euclidean distance of two stacks."""
    difference = moved(a, b, -1.0)
    parts = (difference.weights, difference.means, difference.covariances)
    return float(sum(np.vdot(part, part) for part in parts))


@dataclass(frozen=True, eq=False, slots=True)
class Pull:
    """Coupling of one node to all its frozen neighbours together, without the factor alpha.

    Attributes
    ----------
    value : float
        Weighted sum of the discrepancies to the neighbours, up to a constant within a round.
    gradient : Blocks
        Of the value in the node's own parameters.
    share : float
        The node's share of the network's coupling: over all nodes the shares add up to the weighted sum of
        the discrepancies over unordered edges.
    curvature : float
        Second derivative of the value in every direction, if it is a quadratic; else 0. For MMD 0 too:
        its curvature changes sign from place to place, and a bound that always holds would make all steps
        crawl; steps "em" are shortened by the guard instead, which costs evaluations.
    """

    value: float
    gradient: Blocks
    share: float
    curvature: float = 0.0
