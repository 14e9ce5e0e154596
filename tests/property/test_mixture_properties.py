"""Invariances of densities and responsibilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures import Mixture, log_densities, responsibilities, squared_distances

KINDS = ("spherical", "diagonal", "full")
FAST = settings(deadline=None, derandomize=True, max_examples=60)
seeds = st.integers(0, 2**32 - 1)


def random_case(kind: str, seed: int) -> tuple[np.ndarray, Mixture, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n, d, k = rng.integers(1, 20), rng.integers(1, 5), rng.integers(1, 4)
    factors = rng.normal(size=(k, d, d)) + 2 * np.eye(d)
    covariances = {
        "spherical": rng.uniform(0.1, 5, size=k),
        "diagonal": rng.uniform(0.1, 5, size=(k, d)),
        "full": factors @ factors.transpose(0, 2, 1) + 0.1 * np.eye(d),
    }[kind]
    mixture = Mixture(rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)) * 3, covariances)
    return rng.normal(size=(n, d)) * 3, mixture, rng


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@FAST
def test_responsibilities_are_a_distribution_that_explains_the_log_likelihood(kind: str, seed: int) -> None:
    X, mixture, _ = random_case(kind, seed)
    R, log_likelihood = responsibilities(X, mixture)
    assert (R >= 0).all()
    np.testing.assert_allclose(R.sum(axis=1), 1.0, rtol=1e-12)
    density = np.exp(log_densities(X, mixture)) @ mixture.weights
    np.testing.assert_allclose(np.exp(log_likelihood), density, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@FAST
def test_a_common_shift_changes_nothing(kind: str, seed: int) -> None:
    X, mixture, rng = random_case(kind, seed)
    shift = rng.normal(size=X.shape[1]) * 1e3
    moved = Mixture(mixture.weights, mixture.means + shift, mixture.covariances)
    np.testing.assert_allclose(
        log_densities(X + shift, moved), log_densities(X, mixture), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@FAST
def test_components_and_rows_may_be_permuted(kind: str, seed: int) -> None:
    X, mixture, rng = random_case(kind, seed)
    rows, order = rng.permutation(len(X)), rng.permutation(mixture.n_components)
    shuffled = Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order])
    R, log_likelihood = responsibilities(X, mixture)
    R_shuffled, ll_shuffled = responsibilities(X[rows], shuffled)
    np.testing.assert_allclose(R_shuffled, R[rows][:, order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ll_shuffled, log_likelihood[rows], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["spherical", "full"])
@given(seed=seeds)
@FAST
def test_a_rotation_changes_nothing(kind: str, seed: int) -> None:
    X, mixture, rng = random_case(kind, seed)
    Q, _ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))
    covariances = mixture.covariances if kind == "spherical" else Q.T @ mixture.covariances @ Q
    rotated = Mixture(mixture.weights, mixture.means @ Q, covariances)
    np.testing.assert_allclose(log_densities(X @ Q, rotated), log_densities(X, mixture), rtol=1e-8)


@given(
    seed=seeds,
    offset=st.floats(-1e12, 1e12),
    scale=st.sampled_from([1e-150, 1e-3, 1.0, 1e5, 1e150]),
)
@FAST
def test_squared_distances_equal_the_sum_of_squared_differences(
    seed: int, offset: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(rng.integers(1, 15), rng.integers(1, 6))) + offset) * scale
    Y = X[rng.integers(len(X), size=rng.integers(1, 8))]
    Y = Y + rng.choice([0.0, 1e-7, 1.0], size=(len(Y), 1)) * scale * rng.normal(size=Y.shape)
    exact = ((X[:, None] - Y) ** 2).sum(axis=2)
    squared = squared_distances(X, Y)
    np.testing.assert_allclose(squared, exact, rtol=1e-8)
    assert (squared[exact == 0] == 0).all()
