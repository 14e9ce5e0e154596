"""The projection against general-purpose optimisation and against every possible active set."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.projection import Bounds, project_covariances, project_weights


def brute_force(v: np.ndarray, floor: float) -> np.ndarray:
    """Best of all points with some entries at the floor and the others moved by one amount."""
    k, best, least = len(v), None, np.inf
    for size in range(1, k + 1):
        for free in map(list, combinations(range(k), size)):
            p = np.full(k, floor)
            p[free] = v[free] + (1 - (k - size) * floor - v[free].sum()) / size
            if p.min() >= floor - 1e-15 and np.square(p - v).sum() < least:
                best, least = p, np.square(p - v).sum()
    assert best is not None
    return best


@pytest.mark.parametrize("k", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("floor", [0.0, 0.02, 0.11])
@pytest.mark.parametrize("scale", [0.05, 0.3, 5.0])
def test_weights_against_every_active_set(k: int, floor: float, scale: float) -> None:
    rng = np.random.default_rng(k)
    for _ in range(5):
        v = 1 / k + scale * rng.normal(size=k)
        np.testing.assert_allclose(project_weights(v, floor), brute_force(v, floor), atol=1e-13)


def test_weights_against_a_quadratic_programme() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        v = rng.normal(size=5)
        found = minimize(
            lambda p, v=v: np.square(p - v).sum(),
            np.full(5, 0.2),
            jac=lambda p, v=v: 2 * (p - v),
            bounds=[(0.02, 1)] * 5,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(5)},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(project_weights(v, 0.02), found.x, atol=1e-6)


def test_clipping_and_dividing_is_another_point() -> None:
    v = np.array([0.9, 0.4, -0.3])
    clipped = np.maximum(v, 0.02)
    assert np.abs(project_weights(v, 0.02) - clipped / clipped.sum()).max() > 0.02


def test_covariances_against_a_search_over_factors() -> None:
    rng = np.random.default_rng(3)
    S = rng.normal(size=(1, 3, 3))
    symmetric = 0.5 * (S[0] + S[0].T)

    def distance(flat: np.ndarray) -> float:
        root = flat.reshape(3, 3)
        return float(np.square(root @ root.T + 0.1 * np.eye(3) - symmetric).sum())

    starts = [minimize(distance, rng.normal(size=9), options={"gtol": 1e-9}) for _ in range(4)]
    best = min(starts, key=lambda found: found.fun)
    root = best.x.reshape(3, 3)
    projected = project_covariances(S, 0.1, 100.0)[0]
    np.testing.assert_allclose(projected, root @ root.T + 0.1 * np.eye(3), atol=1e-4)


def test_one_infeasible_matrix_leaves_the_others_alone() -> None:
    good, bad = np.array([[1.0, 0.2], [0.2, 2.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    projected = project_covariances(np.stack([good, bad, good]), 0.1, 50.0)
    np.testing.assert_array_equal(projected[[0, 2]], [good, good])
    np.testing.assert_allclose(np.linalg.eigvalsh(projected[1]), [0.1, 3.0], rtol=1e-12)
    high = project_covariances(np.diag([7.0, 1.0])[None], 0.1, 5.0)
    np.testing.assert_allclose(high[0], np.diag([5.0, 1.0]), atol=1e-14)


def test_bounds_are_checked_and_a_floor_that_is_too_high_says_so() -> None:
    with pytest.raises(ConfigError, match="weight floor: expected more than 0"):
        Bounds(weight_floor=0.0)
    with pytest.raises(ConfigError, match=r"variance ceiling: expected more than the floor 0\.01"):
        Bounds(variance_ceiling=0.01)
    with pytest.raises(ConfigError, match=r"at most 1/51 = 0\.01961 for 51 components"):
        Bounds().check_components(51)
    Bounds().check_components(50)
