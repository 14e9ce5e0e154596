"""Lloyd against scikit-learn's KMeans, k-means++ against its law, small optima against brute force."""

from __future__ import annotations

import warnings
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedcluster_app.mixtures import kmeans, kmeans_plus_plus, lloyd


def blobs(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d)) + 20.0


@pytest.mark.parametrize(("n", "d", "k"), [(60, 1, 3), (500, 5, 8), (5000, 32, 20), (400, 64, 1)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_iter", [1, 5, 300])
def test_lloyd_is_that_of_scikit_learn(n: int, d: int, k: int, weighted: bool, max_iter: int) -> None:
    X = blobs(n, d, k)
    rng = np.random.default_rng(1)
    start, weights = X[rng.permutation(n)[:k]], rng.uniform(0, 3, size=n) if weighted else None
    result = lloyd(X, start, weights=weights, max_iter=max_iter, tol=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(k, init=start, n_init=1, max_iter=max_iter, tol=0.0, algorithm="lloyd")
        model.fit(X, sample_weight=weights)
    assert result.n_iter == model.n_iter_
    np.testing.assert_allclose(result.centers, model.cluster_centers_, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(result.labels, model.labels_)
    assert result.inertia == pytest.approx(model.inertia_, rel=1e-8)


@pytest.mark.parametrize("tol", [1e-4, 1e-2])
def test_the_tolerance_is_that_of_scikit_learn(tol: float) -> None:
    X = blobs(3000, 4, 12, seed=4)
    result = lloyd(X, X[:12], tol=tol)
    model = KMeans(12, init=X[:12], n_init=1, tol=tol, algorithm="lloyd").fit(X)
    assert result.n_iter == model.n_iter_
    assert result.converged
    np.testing.assert_allclose(result.centers, model.cluster_centers_, rtol=1e-8)
    np.testing.assert_array_equal(result.labels, model.labels_)


def test_empty_clusters_are_filled_as_in_scikit_learn() -> None:
    X = blobs(300, 3, 4, seed=5)
    start = np.vstack([X[:3], np.full((1, 3), 1e3), np.full((1, 3), 1e3 + 1)])
    result = lloyd(X, start, tol=0.0)
    model = KMeans(5, init=start, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
    order, reference = np.argsort(result.centers[:, 0]), model.cluster_centers_
    # Which of the two empty clusters takes which row is a convention; the set of centres is not.
    np.testing.assert_allclose(result.centers[order], reference[np.argsort(reference[:, 0])], rtol=1e-8)
    assert result.inertia == pytest.approx(model.inertia_, rel=1e-8)


@pytest.mark.parametrize("weights", [None, np.array([3.0, 1.0, 0.5, 2.0])])
def test_seeding_follows_the_d2_law(weights: np.ndarray | None) -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0], [4.0, 4.0]])
    mass = np.ones(4) if weights is None else weights
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    triples = list(permutations(range(4), 3))
    law = []
    for first, second, third in triples:
        odds = mass * squared[first]
        both = mass * np.minimum(squared[first], squared[second])
        law.append(mass[first] / mass.sum() * odds[second] / odds.sum() * both[third] / both.sum())
    assert sum(law) == pytest.approx(1.0)
    rng, draws = np.random.default_rng(0), 20_000
    seen = dict.fromkeys(triples, 0)
    index = {row.tobytes(): i for i, row in enumerate(X)}
    for _ in range(draws):
        centers = kmeans_plus_plus(X, 3, rng, weights=weights)
        seen[tuple(index[center.tobytes()] for center in centers)] += 1  # type: ignore[index]  # keys are tuples of two
    assert chisquare([seen[t] for t in triples], draws * np.array(law)).pvalue > 1e-3


def test_many_runs_find_the_best_of_all_partitions() -> None:
    X = np.random.default_rng(3).normal(size=(8, 2))
    best = min(
        sum(np.square(X[a == j] - X[a == j].mean(axis=0)).sum() for j in range(3))
        for a in map(np.array, product(range(3), repeat=8))
        if len(np.unique(a)) == 3
    )
    result = kmeans(X, 3, np.random.default_rng(0), n_init=50)
    assert result.inertia == pytest.approx(best, rel=1e-12)
