"""The EM loop: never downhill, federated step equal to the pooled one, explicit status."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.mixtures import Mixture, collect, em, merge_all, responsibilities, sample

COVARIANCES = {
    "spherical": np.ones(3),
    "diagonal": np.ones((3, 2)),
    "full": np.stack([np.eye(2)] * 3),
}
KINDS = tuple(COVARIANCES)


def rows(n: int = 300) -> np.ndarray:
    truth = Mixture(np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0], [4.0, 1.0], [0.0, 5.0]]), np.ones(3))
    return sample(truth, n, np.random.default_rng(0))[0]


def start(kind: str) -> Mixture:
    return Mixture(np.full(3, 1 / 3), np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), COVARIANCES[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_likelihood_never_falls(kind: str) -> None:
    result = em.fit(rows(), start(kind), tol=0.0, max_iter=60, reg_covar=0.0)
    assert (np.diff(result.trace) > -1e-12).all()
    assert result.trace[-1] > result.trace[0] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_trace_holds_the_log_likelihood_before_each_step(kind: str) -> None:
    X = rows()
    state = em.init(start(kind))
    assert np.isneginf(state.log_likelihood)
    for _ in range(3):
        before = responsibilities(X, state.mixture)[1].mean()
        state = em.step(state, X)
        assert state.log_likelihood == pytest.approx(before, rel=1e-14)
    assert state.n_iter == 3


@pytest.mark.parametrize("kind", KINDS)
def test_merged_statistics_of_sites_make_the_pooled_step(kind: str) -> None:
    X = rows()
    pooled = em.step(em.init(start(kind)), X, reg_covar=1e-3)
    parts, total = [], 0.0
    for part in np.array_split(X, [7, 7, 100]):  # one site has no row
        R, log_likelihood = responsibilities(part, start(kind))
        parts.append(collect(part, R, start(kind).kind))
        total += log_likelihood.sum()
    federated = em.step_from_statistics(
        em.init(start(kind)), merge_all(parts), total / len(X), reg_covar=1e-3
    )
    assert federated.log_likelihood == pytest.approx(pooled.log_likelihood, rel=1e-13)
    for name in ("weights", "means", "covariances"):
        np.testing.assert_allclose(
            getattr(federated.mixture, name), getattr(pooled.mixture, name), rtol=1e-11, atol=1e-12
        )


@pytest.mark.parametrize("kind", KINDS)
def test_weights_count_like_repeated_rows(kind: str) -> None:
    X, weights = rows(60), np.random.default_rng(1).integers(0, 4, size=60)
    weighted = em.fit(X, start(kind), weights=weights.astype(float), max_iter=10, tol=0.0)
    repeated = em.fit(np.repeat(X, weights, axis=0), start(kind), max_iter=10, tol=0.0)
    np.testing.assert_allclose(weighted.trace, repeated.trace, rtol=1e-11)
    np.testing.assert_allclose(weighted.mixture.means, repeated.mixture.means, rtol=1e-9, atol=1e-10)


def test_status_says_why_it_stopped() -> None:
    X = rows()
    assert em.fit(X, start("spherical"), max_iter=2).status == "max_iter"
    converged = em.fit(X, start("spherical"), tol=1e-4, max_iter=500)
    assert converged.status == "converged"
    assert converged.n_iter < 500
    assert (
        abs(converged.trace[-1] - converged.trace[-2])
        < 1e-4
        <= abs(converged.trace[-2] - converged.trace[-3])
    )


def test_one_component_is_fitted_in_one_step() -> None:
    X = rows(50)
    one = Mixture(np.array([1.0]), np.array([[9.0, 9.0]]), np.array([1.0]))
    state = em.step(em.init(one), X)
    np.testing.assert_allclose(state.mixture.means[0], X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(state.mixture.covariances[0], X.var(axis=0).mean(), rtol=1e-13)


def test_a_component_far_from_all_rows_dies_quietly() -> None:
    lost = Mixture(np.array([0.5, 0.5]), np.array([[0.0, 0.0], [1e6, 1e6]]), np.ones(2))
    result = em.fit(rows(), lost, max_iter=5)
    np.testing.assert_array_equal(result.mixture.weights, [1.0, 0.0])
    np.testing.assert_array_equal(result.mixture.means[1], [1e6, 1e6])


def test_collapse_is_an_error_without_a_ridge_and_fine_with_one() -> None:
    X = np.ones((5, 2))
    one = Mixture(np.array([1.0]), np.zeros((1, 2)), np.array([1.0]))
    with pytest.raises(ValueError, match="positive variances"):
        em.step(em.init(one), X)
    assert em.step(em.init(one), X, reg_covar=1e-6).mixture.covariances[0] == 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_same_input_same_bytes(kind: str) -> None:
    first, second = (em.fit(rows(), start(kind)).mixture for _ in range(2))
    for name in ("weights", "means", "covariances"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
