"""EM step for step against scikit-learn's GaussianMixture from the same start."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from fedcluster_app.mixtures import Mixture, em, responsibilities, sample

KINDS = {"spherical": "spherical", "diagonal": "diag", "full": "full"}


def case(kind: str, n: int, d: int, k: int) -> tuple[np.ndarray, Mixture]:
    """Overlapping clusters with a common offset, and a poor start."""
    rng = np.random.default_rng(d)
    truth = Mixture(rng.dirichlet(np.full(k, 5.0)), 2 * rng.normal(size=(k, d)), rng.uniform(0.5, 2, size=k))
    X = sample(truth, n, rng)[0] @ (np.eye(d) + 0.3 * rng.normal(size=(d, d))) + 50.0
    shape = {"spherical": (k,), "diagonal": (k, d)}
    covariances = np.ones(shape[kind]) if kind in shape else np.tile(np.eye(d), (k, 1, 1))
    return X, Mixture(np.full(k, 1 / k), X[rng.permutation(n)[:k]], 2.0 * covariances)


def reference(X: np.ndarray, start: Mixture, **settings: float) -> GaussianMixture:
    precisions = np.linalg.inv(start.covariances) if start.kind == "full" else 1 / start.covariances
    model = GaussianMixture(
        start.n_components,
        covariance_type=KINDS[start.kind],
        weights_init=start.weights,
        means_init=start.means,
        precisions_init=precisions,
        init_params="random_from_data",
        random_state=0,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def assert_same(result: em.EMResult, model: GaussianMixture, X: np.ndarray) -> None:
    assert result.n_iter == model.n_iter_
    assert result.log_likelihood == pytest.approx(model.lower_bound_, rel=1e-8)
    np.testing.assert_allclose(result.mixture.weights, model.weights_, rtol=1e-8)
    np.testing.assert_allclose(result.mixture.means, model.means_, rtol=1e-8)
    np.testing.assert_allclose(result.mixture.covariances, model.covariances_, rtol=1e-8, atol=1e-8)
    R, log_likelihood = responsibilities(X, result.mixture)
    np.testing.assert_allclose(R, model.predict_proba(X), atol=1e-8)
    assert log_likelihood.mean() == pytest.approx(model.score(X), rel=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "k"), [(400, 3, 4), (600, 12, 5)])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_the_same_number_of_steps_gives_the_same_mixture(
    kind: str, n: int, d: int, k: int, steps: int
) -> None:
    X, start = case(kind, n, d, k)
    result = em.fit(X, start, tol=0.0, max_iter=steps, reg_covar=1e-3)
    assert_same(result, reference(X, start, tol=0.0, max_iter=steps, reg_covar=1e-3), X)
    assert result.status == "max_iter"


@pytest.mark.parametrize("kind", KINDS)
def test_convergence_is_declared_at_the_same_step_at_the_same_place(kind: str) -> None:
    X, start = case(kind, 400, 3, 4)
    result = em.fit(X, start, tol=1e-7, max_iter=2000)
    assert_same(result, reference(X, start, tol=1e-7, max_iter=2000, reg_covar=1e-6), X)
    assert result.status == "converged"
