"""The discrepancies against simulation, numerical integration and exhaustive search."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks, mixture_of
from fedcluster_app.mixtures import log_densities, sample, squared_distances


def some_blocks(rng: np.random.Generator, k: int, d: int, spread: float = 2.0) -> Blocks:
    roots = 0.7 * rng.normal(size=(k, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(d)
    return Blocks(rng.dirichlet(np.full(k, 3.0)), spread * rng.normal(size=(k, d)), covariances)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_mmd_against_monte_carlo(d: int) -> None:
    rng = np.random.default_rng(d)
    p, q = some_blocks(rng, 3, d), some_blocks(rng, 2, d)
    m = 20_000
    x, x2 = (sample(mixture_of(p), m, rng)[0] for _ in range(2))
    y, y2 = (sample(mixture_of(q), m, rng)[0] for _ in range(2))

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        squared = np.square(a - b).sum(axis=1)
        return sum(np.exp(-squared / (2 * s * s)) for s in mmd.BANDWIDTHS)

    draws = kernel(x, x2) - kernel(x, y2) - kernel(x2, y) + kernel(y, y2)
    error = draws.std() / np.sqrt(m)
    assert abs(draws.mean() - mmd.discrepancy(p, q)) < 3 * error
    assert error < 0.03


@pytest.mark.parametrize("width", [0.3, 1.0, 5.0])
def test_mmd_of_two_normals_against_integration(width: float) -> None:
    p = Blocks(np.ones(1), np.array([[0.4]]), np.array([[[0.5]]]))
    q = Blocks(np.ones(1), np.array([[-1.0]]), np.array([[[2.0]]]))

    def inner(a: Blocks, b: Blocks) -> float:
        gap, spread = a.means[0, 0] - b.means[0, 0], a.covariances[0, 0, 0] + b.covariances[0, 0, 0]
        density = norm(gap, np.sqrt(spread)).pdf
        return quad(lambda t: np.exp(-t * t / (2 * width**2)) * density(t), -30, 30, points=[0, gap])[0]

    expected = inner(p, p) - 2 * inner(p, q) + inner(q, q)
    assert mmd.discrepancy(p, q, (width,)) == pytest.approx(expected, rel=1e-8)


def test_kl_of_two_normals_against_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    p, q = some_blocks(rng, 1, 3, 0.5), some_blocks(rng, 1, 3, 0.5)
    gap, S = p.means[0] - q.means[0], p.covariances[0]
    ratio = np.linalg.solve(S, q.covariances[0])
    exact = 0.5 * (np.trace(ratio) + gap @ np.linalg.solve(S, gap) - 3 - np.log(np.linalg.det(ratio)))
    draws = [kl.discrepancy(p, q, np.random.default_rng(i), 200) for i in range(200)]
    assert abs(np.mean(draws) - exact) < 3 * np.std(draws) / np.sqrt(200)


def test_drawn_rows_have_the_shares_means_and_covariances_of_their_mixture() -> None:
    rng = np.random.default_rng(4)
    near = [
        Blocks(
            np.array([0.7, 0.3]), np.array([[-20.0, 0.0], [20.0, 5.0]]), some_blocks(rng, 2, 2).covariances
        ),
        Blocks(np.ones(1), np.array([[0.0, 90.0]]), some_blocks(rng, 1, 2).covariances),
    ]
    rows, density = kl.draw(near, [np.random.default_rng(i) for i in range(2)], 20_000)
    first, second = rows.T[:20_000], rows.T[20_000:]
    left = first[:, 0] < 0
    assert left.mean() == pytest.approx(0.7, abs=0.01)
    np.testing.assert_allclose(first[left].mean(axis=0), [-20, 0], atol=0.05)
    np.testing.assert_allclose(np.cov(first[left].T), near[0].covariances[0], atol=0.08)
    np.testing.assert_allclose(np.cov(second.T), near[1].covariances[0], atol=0.08)
    expected = np.log(np.exp(log_densities(first, mixture_of(near[0]))) @ near[0].weights)
    np.testing.assert_allclose(density[:20_000], expected, rtol=1e-9)
    np.testing.assert_allclose(density[20_000:], log_densities(second, mixture_of(near[1]))[:, 0], rtol=1e-12)


@pytest.mark.parametrize(("k", "other"), [(1, 1), (3, 3), (4, 4), (2, 4), (4, 2), (1, 3)])
def test_matching_against_every_assignment(k: int, other: int) -> None:
    rng = np.random.default_rng([k, other])
    for _ in range(5):
        # Close together, so that weights and covariances decide and the nearest choice is often taken.
        p, q = some_blocks(rng, k, 2, 0.3), some_blocks(rng, other, 2, 0.3)
        small, large = (p, q) if k <= other else (q, p)

        def triples(t: Blocks) -> np.ndarray:
            return np.hstack([t.weights[:, None], t.means, t.covariances.reshape(len(t.weights), -1)])

        cost = squared_distances(triples(small), triples(large))
        totals = []
        for chosen in permutations(range(len(large.weights)), len(small.weights)):
            left_over = np.delete(large.weights, chosen)
            totals.append(cost[range(len(chosen)), list(chosen)].sum() + np.square(left_over).sum())
        assert euclidean.discrepancy(p, q) == pytest.approx(min(totals), rel=1e-9)
