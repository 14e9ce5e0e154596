"""Starts of a node: clusters of k-means or of a given mixture, with too few rows, and with none."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.gtvmin import Bounds, kmeans_start, start_from_labels, start_from_mixture
from fedcluster_app.mixtures import Mixture

BOUNDS = Bounds()


def test_shares_means_and_covariances_are_those_of_the_clusters() -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(90, 2)), np.repeat([5, 2, 9], [40, 30, 20])
    start = start_from_labels(X, labels, BOUNDS)
    np.testing.assert_array_equal(start.counts, [30, 40, 20])
    np.testing.assert_allclose(start.mixture.weights, np.array([30, 40, 20]) / 90, rtol=1e-12)
    for c, label in enumerate([2, 5, 9]):
        own = X[labels == label]
        np.testing.assert_allclose(start.mixture.means[c], own.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(start.mixture.covariances[c], np.cov(own.T, bias=True), rtol=1e-10)


def test_a_single_row_takes_the_pooled_covariance() -> None:
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(19, 2)), [[30.0, 30.0]]])
    start = start_from_labels(X, np.repeat([0, 1], [19, 1]), BOUNDS)
    pooled = np.cov(X[:19].T, bias=True) * 19 / 20
    np.testing.assert_allclose(start.mixture.covariances[1], pooled, rtol=1e-10)
    np.testing.assert_allclose(start.mixture.means[1], [30.0, 30.0])


def test_nothing_but_single_rows_starts_on_the_floor() -> None:
    X = 2 * np.arange(9.0).reshape(3, 3)
    start = kmeans_start(X, 5, np.random.default_rng(0), BOUNDS)
    np.testing.assert_array_equal(start.counts, [1, 1, 1])
    np.testing.assert_allclose(start.mixture.covariances, np.broadcast_to(0.01 * np.eye(3), (3, 3, 3)))
    np.testing.assert_array_equal(np.sort(start.mixture.means, axis=0), X)


def test_two_rows_in_ten_dimensions_have_a_covariance_that_can_be_factorised() -> None:
    X = np.random.default_rng(2).normal(size=(20, 10))
    start = start_from_labels(X, np.repeat(np.arange(10), 2), BOUNDS)
    assert np.linalg.eigvalsh(start.mixture.covariances).min() >= 0.01 - 1e-12


def test_equal_rows_make_one_component() -> None:
    start = kmeans_start(np.ones((8, 2)), 3, np.random.default_rng(3), BOUNDS)
    assert start.counts.sum() == 8
    np.testing.assert_allclose(start.mixture.means, 1.0)


def test_more_starts_are_never_worse() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(100, 2)) + 6 * rng.integers(4, size=(100, 1))
    spreads = []
    for n_init in (1, 10):
        start = kmeans_start(X, 4, np.random.default_rng(5), BOUNDS, n_init=n_init)
        traces = np.trace(start.mixture.covariances, axis1=1, axis2=2)
        spreads.append(traces @ start.counts)
    assert spreads[1] <= spreads[0] + 1e-9


def test_small_clusters_are_dissolved_into_the_nearest() -> None:
    X = np.concatenate([np.zeros((10, 1)), np.full((2, 1), 3.0), np.full((9, 1), 7.0), [[8.5]]])
    X[:10, 0] += np.linspace(-0.1, 0.1, 10)
    labels = np.repeat([0, 1, 2, 3], [10, 2, 9, 1])
    start = start_from_labels(X, labels, BOUNDS, min_rows=5)
    np.testing.assert_array_equal(start.counts, [12, 10])
    np.testing.assert_allclose(start.mixture.means[1], (9 * 7 + 8.5) / 10)
    alone = start_from_labels(X, labels, BOUNDS, min_rows=100)
    np.testing.assert_array_equal(alone.counts, [22])
    assert start_from_labels(X, labels, BOUNDS, min_rows=1).counts.tolist() == [10, 2, 9, 1]


def test_a_count_found_before_becomes_a_mixture_with_full_covariances() -> None:
    rng = np.random.default_rng(6)
    roots = np.array([[[1.0, 0.9], [0.0, 0.3]]])
    X = np.concatenate([rng.normal(size=(60, 2)) @ roots[0], rng.normal(size=(40, 2)) + 9])
    found = Mixture(np.array([0.3, 0.5, 0.2]), np.array([[0.0, 0.0], [9.0, 9.0], [99.0, 0.0]]), np.ones(3))
    start = start_from_mixture(X, found, BOUNDS)
    np.testing.assert_array_equal(start.counts, [60, 40])
    assert start.mixture.kind == "full"
    np.testing.assert_allclose(start.mixture.covariances[0], np.cov(X[:60].T, bias=True), rtol=1e-10)


def test_no_rows_and_too_many_components_are_refused() -> None:
    empty = np.empty((0, 2))
    with pytest.raises(DataError, match="at least one to start from"):
        kmeans_start(empty, 2, np.random.default_rng(0), BOUNDS)
    with pytest.raises(DataError, match="at least one to start from"):
        start_from_mixture(empty, Mixture(np.ones(1), np.zeros((1, 2)), np.ones(1)), BOUNDS)
    with pytest.raises(ConfigError, match="lower it or use fewer components"):
        start_from_labels(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60), BOUNDS)
