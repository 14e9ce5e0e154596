"""Rounds of the network against Algorithm 1 written out with loops over rows, components and neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import multivariate_normal

from fedcluster_app.gtvmin import Bounds, Settings, from_edges, kl, network
from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.gtvmin.mmd import BANDWIDTHS
from fedcluster_app.mixtures import Mixture

Theta = tuple[np.ndarray, np.ndarray, np.ndarray]
GRAPH = from_edges([("a", "b", 1.0), ("b", "c", 0.5), ("a", "c", 2.0), ("c", "d")])
STEP = 0.02


def negative_log_likelihood_slope(theta: Theta, rows: np.ndarray, weight: float) -> Theta:
    weights, means, covariances = theta
    slopes = np.zeros_like(weights), np.zeros_like(means), np.zeros_like(covariances)
    for x in rows:
        joint = np.array(
            [
                w * multivariate_normal(m, S).pdf(x)
                for w, m, S in zip(weights, means, covariances, strict=True)
            ]
        )
        for c, held in enumerate(joint / joint.sum()):
            inverse = np.linalg.inv(covariances[c])
            solved = inverse @ (x - means[c])
            slopes[0][c] -= weight * held / weights[c]
            slopes[1][c] -= weight * held * solved
            slopes[2][c] += 0.5 * weight * held * (inverse - np.outer(solved, solved))
    return slopes


def mmd_slope(theta: Theta, other: Theta) -> Theta:
    def partial(q: Theta) -> Theta:
        slopes = np.zeros_like(theta[0]), np.zeros_like(theta[1]), np.zeros_like(theta[2])
        for c, (w, m, S) in enumerate(zip(*theta, strict=True)):
            for w2, m2, S2 in zip(*q, strict=True):
                for s in BANDWIDTHS:
                    whole = S + S2 + s * s * np.eye(len(m))
                    inverse = np.linalg.inv(whole)
                    u = inverse @ (m - m2)
                    kernel = s ** len(m) / np.sqrt(np.linalg.det(whole)) * np.exp(-0.5 * (m - m2) @ u)
                    slopes[0][c] += w2 * kernel
                    slopes[1][c] -= w * w2 * kernel * u
                    slopes[2][c] += 0.5 * w * w2 * kernel * (np.outer(u, u) - inverse)
        return slopes

    own, crossed = partial(theta), partial(other)
    return tuple(2 * (a - b) for a, b in zip(own, crossed, strict=True))


def euclidean_slope(theta: Theta, other: Theta, order: np.ndarray) -> Theta:
    return tuple(2 * (a - b[order]) for a, b in zip(theta, other, strict=True))


def matching(theta: Theta, other: Theta) -> np.ndarray:
    k = len(theta[0])
    cost = [
        [sum(np.square(a[c] - b[e]).sum() for a, b in zip(theta, other, strict=True)) for e in range(k)]
        for c in range(k)
    ]
    return linear_sum_assignment(np.array(cost))[1]


def project(theta: Theta, bounds: Bounds) -> Theta:
    weights, means, covariances = theta
    low, high = weights.min() - 2, weights.max()
    for _ in range(100):
        middle = 0.5 * (low + high)
        if np.maximum(weights - middle, bounds.weight_floor).sum() > 1:
            low = middle
        else:
            high = middle
    clipped = []
    for S in covariances:
        values, vectors = np.linalg.eigh(0.5 * (S + S.T))
        clipped.append(vectors @ np.diag(np.clip(values, bounds.variance_floor, 100.0)) @ vectors.T)
    return np.maximum(weights - high, bounds.weight_floor), means, np.array(clipped)


def naive_round(
    models: dict[str, Theta], tables: dict[str, np.ndarray], settings: Settings, number: int
) -> dict[str, Theta]:
    after = {}
    for name, X in tables.items():
        theta, near = models[name], GRAPH.neighbours(name)
        orders = {other: matching(theta, models[other]) for other in near}
        for _ in range(settings.local_steps):
            slope = negative_log_likelihood_slope(theta, X, 1 / len(X))
            for other, weight in near.items():
                if settings.discrepancy == "mmd":
                    pull = mmd_slope(theta, models[other])
                elif settings.discrepancy == "euclidean":
                    pull = euclidean_slope(theta, models[other], orders[other])
                else:
                    neighbour = blocks(Mixture(*models[other]))
                    rows, _ = kl.draw([neighbour], [stream(number, name, other)], settings.samples)
                    pull = negative_log_likelihood_slope(theta, rows.T, 1 / settings.samples)
                slope = tuple(s + settings.alpha * weight * p for s, p in zip(slope, pull, strict=True))
            stepped = tuple(t - STEP * s for t, s in zip(theta, slope, strict=True))
            theta = project(stepped, settings.bounds)
        after[name] = theta
    return after


def stream(number: int, receiver: str, sender: str) -> np.random.Generator:
    return np.random.default_rng([number, ord(receiver), ord(sender)])


@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean", "kl"])
def test_three_rounds_agree_with_the_loops(discrepancy: str) -> None:
    rng = np.random.default_rng(8)
    tables = {name: rng.normal(size=(12, 2)) + 3 * rng.integers(2, size=(12, 1)) for name in GRAPH.names}
    models = {}
    for name in tables:
        roots = 0.3 * rng.normal(size=(2, 2, 2))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.6 * np.eye(2)
        means = np.array([[0.0, 0.0], [3.0, 3.0]]) + rng.normal(size=(2, 2))
        models[name] = (rng.dirichlet([8.0, 8.0]), means, covariances)
    settings = Settings(
        discrepancy=discrepancy, alpha=0.7, step_size=STEP, local_steps=2, guard=False, samples=5
    )
    state = network.init({name: Mixture(*theta) for name, theta in models.items()}, GRAPH, settings)
    for number in range(3):
        state = network.step(state, tables, GRAPH, settings, stream)
        models = naive_round(models, tables, settings, number)
    for name, theta in models.items():
        found = state.nodes[name].mixture
        np.testing.assert_allclose(found.weights, theta[0], atol=1e-10)
        np.testing.assert_allclose(found.means, theta[1], atol=1e-10)
        np.testing.assert_allclose(found.covariances, theta[2], atol=1e-10)
