"""The projection is the nearest feasible point: feasible, idempotent, and no feasible point is nearer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin.blocks import Blocks
from fedcluster_app.gtvmin.projection import (
    Bounds,
    certified,
    project,
    project_covariances,
    project_means,
    project_weights,
)

FAST = settings(deadline=None, derandomize=True, max_examples=80)
seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([1e-3, 0.1, 1.0, 30.0])
BOUNDS = Bounds(weight_floor=0.02, mean_radius=4.0, variance_floor=0.1, variance_ceiling=3.0)


def anywhere(seed: int, scale: float) -> tuple[Blocks, np.random.Generator]:
    rng = np.random.default_rng(seed)
    k, d = rng.integers(1, 8), rng.integers(1, 6)
    S = scale * rng.normal(size=(k, d, d))
    return Blocks(scale * rng.normal(size=k), 5 * scale * rng.normal(size=(k, d)), S), rng


def feasible(theta: Blocks, rng: np.random.Generator) -> Blocks:
    """Some feasible point of the same shape."""
    k, d = theta.means.shape
    weights = BOUNDS.weight_floor + (1 - k * BOUNDS.weight_floor) * rng.dirichlet(np.ones(k))
    means = rng.normal(size=(k, d))
    means *= (BOUNDS.mean_radius * rng.random(k) / np.linalg.norm(means, axis=1))[:, None]
    basis = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
    values = rng.uniform(BOUNDS.variance_floor, BOUNDS.variance_ceiling, size=(k, d))
    return Blocks(weights, means, (basis * values[:, None]) @ basis.transpose(0, 2, 1))


@given(seed=seeds, scale=scales)
@FAST
def test_the_projection_is_feasible_and_idempotent(seed: int, scale: float) -> None:
    theta, _ = anywhere(seed, scale)
    once = project(theta, BOUNDS)
    values = np.linalg.eigvalsh(once.covariances)
    assert abs(once.weights.sum() - 1) <= 1e-12
    assert once.weights.min() >= BOUNDS.weight_floor - 1e-12
    assert np.linalg.norm(once.means, axis=1).max() <= BOUNDS.mean_radius * (1 + 1e-12)
    assert values.min() >= BOUNDS.variance_floor - 1e-12
    assert values.max() <= BOUNDS.variance_ceiling + 1e-12
    np.testing.assert_array_equal(once.covariances, once.covariances.transpose(0, 2, 1))
    again = project(once, BOUNDS)
    np.testing.assert_allclose(again.weights, once.weights, atol=1e-14)
    np.testing.assert_allclose(again.means, once.means, rtol=1e-14)
    np.testing.assert_allclose(again.covariances, once.covariances, atol=1e-13)


@given(seed=seeds, scale=scales)
@FAST
def test_no_feasible_point_is_nearer(seed: int, scale: float) -> None:
    theta, rng = anywhere(seed, scale)
    nearest, other = project(theta, BOUNDS), feasible(theta, rng)
    for name in ("weights", "means", "covariances"):
        v, p, z = (getattr(blocks, name) for blocks in (theta, nearest, other))
        assert np.vdot(z - p, v - p) <= 1e-10 * (1 + np.square(v).sum())


@given(seed=seeds, scale=scales)
@FAST
def test_relabelling_commutes_with_the_projection(seed: int, scale: float) -> None:
    theta, rng = anywhere(seed, scale)
    order = rng.permutation(len(theta.weights))
    moved = project(Blocks(theta.weights[order], theta.means[order], theta.covariances[order]), BOUNDS)
    there = project(theta, BOUNDS)
    np.testing.assert_allclose(moved.weights, there.weights[order], atol=1e-14)
    np.testing.assert_array_equal(moved.means, there.means[order])
    np.testing.assert_allclose(moved.covariances, there.covariances[order], atol=1e-13)


@given(seed=seeds)
@FAST
def test_feasible_points_keep_their_bits(seed: int) -> None:
    theta, rng = anywhere(seed, 1.0)
    inside = feasible(theta, rng)
    np.testing.assert_array_equal(project_means(inside.means, BOUNDS.mean_radius), inside.means)
    symmetric = rotated(rng, rng.uniform(0.55, 1.9, size=theta.means.shape))
    np.testing.assert_array_equal(project_covariances(symmetric, 0.5, 2.0), symmetric)


@given(seed=seeds, outside=st.sampled_from([0.499, 2.01]))
@FAST
def test_the_certificate_is_given_to_what_it_can_see_and_never_lies(seed: int, outside: float) -> None:
    rng = np.random.default_rng(seed)
    k, d = rng.integers(1, 8), rng.integers(1, 4)
    values = rng.uniform(0.55, 2 / d, size=(k, d))
    assert certified(rotated(rng, values), 0.5, 2.0)
    values[rng.integers(k), rng.integers(d)] = outside
    assert not certified(rotated(rng, values), 0.5, 2.0)


def rotated(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Symmetric matrices (k, d, d) with given eigenvalues (k, d)."""
    k, d = values.shape
    basis = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
    S = (basis * values[:, None]) @ basis.transpose(0, 2, 1)
    return 0.5 * (S + S.transpose(0, 2, 1))


@given(seed=seeds, far=st.sampled_from([1e6, 1e12, 1e200]))
@FAST
def test_huge_weights_keep_the_sum(seed: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    v = far * rng.normal(size=rng.integers(1, 8))
    p = project_weights(v, 0.02)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p[v.argmax()] == pytest.approx(1 - 0.02 * (len(v) - 1), rel=1e-3)


@given(seed=seeds, scale=scales)
@FAST
def test_a_floor_of_one_over_k_leaves_one_point(seed: int, scale: float) -> None:
    v = anywhere(seed, scale)[0].weights
    np.testing.assert_allclose(project_weights(v, 1 / len(v)), 1 / len(v), rtol=1e-13)
