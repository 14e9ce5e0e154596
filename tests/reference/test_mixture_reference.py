"""Densities, responsibilities and score against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp as scipy_logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.mixture import GaussianMixture

from fedcluster_app.mixtures import (
    Mixture,
    log_densities,
    log_joint,
    logsumexp,
    responsibilities,
    squared_distances,
)

KINDS = {"spherical": "spherical", "diagonal": "diag", "full": "full"}


def random_mixture(kind: str, k: int, d: int, rng: np.random.Generator) -> Mixture:
    factors = rng.normal(size=(k, d, d)) / np.sqrt(d) + np.eye(d)
    covariances = {
        "spherical": rng.uniform(0.2, 3, size=k),
        "diagonal": rng.uniform(0.2, 3, size=(k, d)),
        "full": factors @ factors.transpose(0, 2, 1),
    }[kind]
    return Mixture(rng.dirichlet(np.ones(k)), 2 * rng.normal(size=(k, d)), covariances)


def dressed(mixture: Mixture) -> GaussianMixture:
    """A scikit-learn mixture with the given parameters, without fitting."""
    model = GaussianMixture(mixture.n_components, covariance_type=KINDS[mixture.kind])
    model.weights_, model.means_ = mixture.weights, mixture.means
    model.covariances_ = mixture.covariances
    if mixture.kind == "full":
        lower = np.linalg.cholesky(mixture.covariances)
        model.precisions_cholesky_ = np.linalg.inv(lower).transpose(0, 2, 1)
    else:
        model.precisions_cholesky_ = 1 / np.sqrt(mixture.covariances)
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (300, 5, 3), (500, 64, 12)])
def test_densities_responsibilities_and_score_are_those_of_scikit_learn(
    kind: str, n: int, d: int, k: int
) -> None:
    rng = np.random.default_rng(n + d)
    mixture, X = random_mixture(kind, k, d, rng), 3 * rng.normal(size=(n, d))
    model = dressed(mixture)
    R, log_likelihood = responsibilities(X, mixture)
    np.testing.assert_allclose(log_joint(X, mixture), model._estimate_weighted_log_prob(X), rtol=1e-10)
    np.testing.assert_allclose(R, model.predict_proba(X), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(log_likelihood, model.score_samples(X), rtol=1e-10)
    assert log_likelihood.mean() == pytest.approx(model.score(X), rel=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_log_densities_are_those_of_scipy(kind: str) -> None:
    rng = np.random.default_rng(0)
    mixture, X = random_mixture(kind, 4, 6, rng), 3 * rng.normal(size=(200, 6))
    ours = log_densities(X, mixture)
    for j in range(4):
        covariance = mixture.covariances[j]
        if kind != "full":
            covariance = np.diag(np.broadcast_to(covariance, (6,)))
        theirs = multivariate_normal(mixture.means[j], covariance).logpdf(X)
        np.testing.assert_allclose(ours[:, j], theirs, rtol=1e-11)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_logsumexp_is_that_of_scipy(axis: int) -> None:
    a = np.random.default_rng(0).normal(size=(50, 7)) * 500
    a[a < -700] = -np.inf
    np.testing.assert_allclose(logsumexp(a, axis=axis), scipy_logsumexp(a, axis=axis), rtol=1e-13)


def test_squared_distances_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(300, 16)), rng.normal(size=(9, 16))
    np.testing.assert_allclose(squared_distances(X, Y), euclidean_distances(X, Y, squared=True), rtol=1e-11)
