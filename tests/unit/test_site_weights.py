"""The weights of one site, clusters fixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures.densities import log_densities, logsumexp
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.mixtures.weights import site_weights


def densities(seed: int, n: int, k: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    clusters = Mixture(np.full(k, 1 / k), rng.normal(size=(k, 2)) * 2, np.full(k, 1.0))
    return log_densities(rng.normal(size=(n, 2)) * 2, clusters)


def likelihood(table: FloatArray, weights: FloatArray) -> float:
    with np.errstate(divide="ignore"):
        return float(logsumexp(table + np.log(weights), axis=1).mean())


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), k=st.integers(1, 6), steps=st.integers(0, 8))
def test_the_likelihood_never_falls(seed: int, n: int, k: int, steps: int) -> None:
    table, start = densities(seed, n, k), np.random.default_rng(seed).dirichlet(np.ones(k))
    before, after = (site_weights(table, start, max_iter=number, tol=0.0) for number in (steps, steps + 1))
    assert likelihood(table, after) >= likelihood(table, before) - 1e-12
    assert after.sum() == pytest.approx(1.0, abs=1e-12)
    assert (after >= 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_two_clusters_get_the_weights_of_a_search(seed: int) -> None:
    table = densities(seed, 80, 2)
    grid = np.linspace(0.0, 1.0, 10_001)
    values = [likelihood(table, np.array([w, 1 - w])) for w in grid]
    found = site_weights(table, np.array([0.5, 0.5]), max_iter=10_000, tol=0.0)
    assert found[0] == pytest.approx(grid[int(np.argmax(values))], abs=2e-4)
    # The stop by itself leaves next to nothing.
    assert likelihood(table, site_weights(table, np.array([0.5, 0.5]))) > max(values) - 1e-4


def test_any_start_without_zeros_leads_to_the_same_weights() -> None:
    table = densities(3, 200, 3)
    a, b = (
        site_weights(table, np.array(start), max_iter=10_000, tol=0.0)
        for start in ([1 / 3] * 3, [0.9, 0.09, 0.01])
    )
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_weight_of_zero_stays_and_the_start_is_not_changed() -> None:
    start = np.array([0.0, 1.0, 0.0])
    np.testing.assert_array_equal(site_weights(densities(0, 50, 3), start), start)
    start = np.array([0.2, 0.8])
    site_weights(densities(0, 50, 2), start)
    assert start.tolist() == [0.2, 0.8]


def test_no_row_leaves_the_start() -> None:
    found = site_weights(np.empty((0, 3)), np.array([0.2, 0.3, 0.5]))
    assert found.tolist() == [0.2, 0.3, 0.5]


def test_clusters_far_apart_weigh_their_share_of_the_rows() -> None:
    clusters = Mixture(np.full(2, 0.5), np.array([[0.0], [100.0]]), np.ones(2))
    X = np.array([[0.0], [1.0], [100.0], [-1.0], [0.5]])
    np.testing.assert_allclose(site_weights(log_densities(X, clusters), clusters.weights), [0.8, 0.2])
