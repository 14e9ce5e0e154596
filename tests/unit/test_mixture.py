"""The Mixture value, its densities and its samples: closed identities and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.mixtures import (
    Mixture,
    log_densities,
    log_joint,
    logsumexp,
    responsibilities,
    sample,
    squared_distances,
)

FULL = np.array([[[2.0, 0.6], [0.6, 1.0]], [[0.5, -0.2], [-0.2, 0.3]]])
COVARIANCES = {
    "spherical": np.array([2.0, 0.3]),
    "diagonal": np.array([[2.0, 1.0], [0.5, 0.3]]),
    "full": FULL,
}


def two_components(kind: str) -> Mixture:
    return Mixture(np.array([0.3, 0.7]), np.array([[0.0, 0.0], [2.0, -1.0]]), COVARIANCES[kind])


@pytest.mark.parametrize("kind", COVARIANCES)
def test_kind_and_sizes_follow_from_the_shapes(kind: str) -> None:
    mixture = two_components(kind)
    assert (mixture.kind, mixture.n_components, mixture.n_features) == (kind, 2, 2)


def test_arrays_are_copied_converted_and_frozen() -> None:
    means = np.array([[0, 0], [1, 1]], dtype=np.float32)
    mixture = Mixture(np.array([0.5, 0.5]), means, np.ones(2, dtype=int))
    means[0, 0] = 9.0
    assert mixture.means[0, 0] == 0.0
    assert mixture.means.dtype == mixture.covariances.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        mixture.weights[0] = 1.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("weights", [0.5, 0.5, 0.0], r"weights: expected shape \(2,\).*got shape \(3,\)"),
        ("weights", [0.5, 0.6], "weights: expected a sum of 1, got 1.1"),
        ("weights", [1.5, -0.5], "weights: expected no negative value, got minimum -0.5"),
        ("weights", [np.nan, 1.0], "weights: expected finite values, got 1 NaN"),
        ("means", [0.0, 1.0], r"means: expected shape \(k, d\)"),
        ("means", np.empty((0, 2)), r"means: expected shape \(k, d\)"),
        ("means", [[0.0, np.inf], [1.0, 1.0]], "means: expected finite"),
        ("covariances", [1.0, 0.0], "covariances: expected positive variances, got minimum 0"),
        ("covariances", [[1.0, 1.0], [1.0, -1.0]], "covariances: expected positive variances"),
        ("covariances", [[1.0], [1.0]], r"covariances: expected shape \(2,\), \(2, 2\) or \(2, 2, 2\)"),
        ("covariances", [np.eye(2), [[1.0, 0.5], [0.0, 1.0]]], "covariances: expected symmetric"),
        ("covariances", [np.eye(2), [[1.0, 2.0], [2.0, 1.0]]], "positive definite.*least eigenvalue -1"),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, value: object, message: str) -> None:
    fields = {"weights": [0.5, 0.5], "means": [[0.0, 0.0], [1.0, 1.0]], "covariances": [1.0, 1.0]}
    with pytest.raises(ValueError, match=message):
        Mixture(**{**fields, field: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("kind", COVARIANCES)
def test_density_at_the_mean_is_the_normalising_constant(kind: str) -> None:
    mixture = two_components(kind)
    at_own_mean = np.diag(log_densities(mixture.means, mixture))
    volume = {"spherical": [4.0, 0.09], "diagonal": [2.0, 0.15], "full": np.linalg.det(FULL)}[kind]
    np.testing.assert_allclose(at_own_mean, -np.log(2 * np.pi) - 0.5 * np.log(volume), rtol=1e-14)


def test_the_three_kinds_agree_on_a_common_covariance() -> None:
    rng = np.random.default_rng(0)
    X, means, weights = rng.normal(size=(50, 4)), rng.normal(size=(3, 4)), np.full(3, 1 / 3)
    variances = np.array([0.5, 1.0, 2.0])
    per_feature = np.repeat(variances[:, None], 4, axis=1)
    spherical = log_densities(X, Mixture(weights, means, variances))
    diagonal = log_densities(X, Mixture(weights, means, per_feature))
    full = log_densities(X, Mixture(weights, means, variances[:, None, None] * np.eye(4)))
    np.testing.assert_allclose(diagonal, spherical, rtol=1e-13)
    np.testing.assert_allclose(full, spherical, rtol=1e-13)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_gradient_of_the_log_likelihood_is_the_responsibility_weighted_pull(kind: str) -> None:
    mixture = two_components(kind)
    X = np.random.default_rng(1).normal(size=(20, 2))
    R, _ = responsibilities(X, mixture)
    cov = {
        "spherical": mixture.covariances.reshape(-1, 1, 1) * np.eye(2),
        "diagonal": np.array([np.diag(row) for row in COVARIANCES["diagonal"]]),
        "full": FULL,
    }[kind]
    pull = np.einsum("kij,nkj->nki", np.linalg.inv(cov), mixture.means - X[:, None, :])
    expected = np.einsum("nk,nki->ni", R, pull)
    h = 1e-5
    for j in range(2):
        e = h * np.eye(2)[j]
        numeric = (responsibilities(X + e, mixture)[1] - responsibilities(X - e, mixture)[1]) / (2 * h)
        np.testing.assert_allclose(numeric, expected[:, j], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_far_rows_stay_finite_and_responsibilities_sum_to_one(kind: str) -> None:
    X = np.array([[1e6, -1e6], [0.0, 0.0], [-1e8, 1e8]])
    R, log_likelihood = responsibilities(X, two_components(kind))
    assert np.isfinite(log_likelihood).all()
    np.testing.assert_allclose(R.sum(axis=1), 1.0, rtol=1e-12)


def test_a_component_of_weight_zero_takes_no_row() -> None:
    mixture = Mixture(np.array([0.0, 1.0]), np.array([[0.0], [5.0]]), np.ones(2))
    R, log_likelihood = responsibilities(np.array([[0.0], [5.0]]), mixture)
    np.testing.assert_array_equal(R, [[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(log_likelihood, log_densities(np.array([[0.0], [5.0]]), mixture)[:, 1])
    assert np.isneginf(log_joint(np.array([[0.0]]), mixture)[0, 0])


def test_one_component_is_responsible_for_everything() -> None:
    mixture = Mixture(np.array([1.0]), np.zeros((1, 3)), np.array([2.0]))
    R, _ = responsibilities(np.random.default_rng(0).normal(size=(7, 3)), mixture)
    np.testing.assert_array_equal(R, np.ones((7, 1)))


def test_logsumexp_of_nothing_and_of_huge_values() -> None:
    a = np.array([[-np.inf, -np.inf], [1000.0, 1000.0], [-np.inf, -2000.0]])
    np.testing.assert_allclose(logsumexp(a, axis=1), [-np.inf, 1000 + np.log(2), -2000.0])
    np.testing.assert_allclose(logsumexp(a[1:], axis=0), [1000.0, 1000.0])
    assert a[0, 0] == -np.inf


def test_squared_distances_keep_their_digits_far_from_the_origin_and_close_together() -> None:
    rng = np.random.default_rng(0)
    # Integers on a large offset are exact in float64, so the true distances are known exactly.
    X, Y = rng.integers(-50, 50, size=(40, 6)) * 1.0, rng.integers(-50, 50, size=(30, 6)) * 1.0
    exact = ((X[:, None] - Y) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(X + 1e12, Y + 1e12), exact, rtol=1e-12)
    # Two tight groups a million apart: no common centre helps, the differences do.
    tight = np.concatenate([X * 1e-3, Y * 1e-3 + 1e6])
    exact = ((tight[:, None] - tight) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(tight, tight), exact, rtol=1e-8)
    assert (np.diag(squared_distances(tight, tight)) == 0).all()


@pytest.mark.parametrize("kind", COVARIANCES)
def test_samples_have_the_moments_of_the_mixture(kind: str) -> None:
    mixture, n = two_components(kind), 40_000
    X, labels = sample(mixture, n, np.random.default_rng(5))
    assert abs((labels == 1).mean() - 0.7) < 4 * np.sqrt(0.21 / n)
    for j in range(2):
        own = X[labels == j]
        cov = np.cov(own.T)
        true = np.broadcast_to(mixture.covariances[j], (2,)) if kind != "full" else np.diag(FULL[j])
        cross = FULL[j, 0, 1] if kind == "full" else 0.0
        size = len(own)
        assert (np.abs(own.mean(axis=0) - mixture.means[j]) < 5 * np.sqrt(true / size)).all()
        assert (np.abs(np.diag(cov) - true) < 5 * true * np.sqrt(2 / size)).all()
        assert abs(cov[0, 1] - cross) < 5 * np.sqrt((true[0] * true[1] + cross**2) / size)


def test_weights_that_sum_to_one_within_the_tolerance_can_be_sampled() -> None:
    mixture = Mixture(np.array([0.5, 0.5 + 9e-7]), np.zeros((2, 1)), np.ones(2))
    assert set(sample(mixture, 50, np.random.default_rng(0))[1]) == {0, 1}


def test_sampling_is_seeded_and_may_draw_nothing() -> None:
    mixture = two_components("full")
    first, second = (sample(mixture, 10, np.random.default_rng(3)) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1].tobytes() == second[1].tobytes()
    X, labels = sample(mixture, 0, np.random.default_rng(3))
    assert X.shape == (0, 2)
    assert labels.shape == (0,)
