"""EM on micro-clusters against ordinary EM, and against itself where the mathematics says what must hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from fedcluster_app.aggregation.micro.cells import Cells, MicroClusters, halve, micro_clusters, stack
from fedcluster_app.aggregation.micro.em import (
    Clusters,
    Shrinkage,
    by_site,
    done,
    finish,
    fit,
    from_partition,
    init,
    log_joint,
    maximise,
    step,
)

BARE = Shrinkage(0.0, 0.0)


def _rows(seed, n=300, q=3, k=3):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, q)) * 4
    labels = rng.integers(k, size=n)
    return centres[labels] + rng.normal(size=(n, q)), labels, rng


def _single_rows(X, sites=None, n_sites=1):
    n = len(X)
    sites = np.zeros(n, dtype=int) if sites is None else sites
    return Cells(sites, np.zeros(n, dtype=int), np.ones(n), X, np.zeros_like(X), n_sites)


def _random_cells(seed, sites=3, per_site=12, q=2):
    rng = np.random.default_rng(seed)
    return stack(
        {
            f"s{g}": MicroClusters(
                np.arange(per_site) % 2,
                rng.integers(5, 30, per_site).astype(float),
                rng.normal(size=(per_site, q)) + 3 * rng.integers(0, 3, size=(per_site, 1)),
                rng.random((per_site, q)) + 0.1,
            )
            for g in range(sites)
        }
    )


def test_one_row_per_cell_is_ordinary_em():
    X, labels, _ = _rows(0)
    cells = _single_rows(X)
    start = from_partition(cells, labels, BARE)
    peer = GaussianMixture(
        3,
        weights_init=start.weights[0],
        means_init=start.means,
        precisions_init=np.linalg.inv(start.covariances),
        reg_covar=0.0,
        max_iter=7,
        tol=0.0,
    )
    with pytest.warns(UserWarning, match="converge"):
        peer.fit(X)
    found = fit(cells, start, BARE, max_iter=7, tol=0.0)
    np.testing.assert_allclose(found.clusters.means, peer.means_, rtol=1e-7)
    np.testing.assert_allclose(found.clusters.covariances, peer.covariances_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.clusters.weights[0], peer.weights_, rtol=1e-6)
    assert found.log_likelihood == pytest.approx(peer.score(X) * len(X), rel=1e-9)


def test_weights_of_sites_are_each_sites_own():
    # Two sites of one row each in a cell: the M step must average over a site's rows, not over all.
    X, labels, rng = _rows(1, n=200)
    sites = rng.integers(2, size=200)
    cells = _single_rows(X, sites, 2)
    clusters = from_partition(cells, labels, BARE)
    joint = log_joint(cells, clusters)
    R = np.exp(joint - joint.max(axis=1, keepdims=True))
    R /= R.sum(axis=1, keepdims=True)
    after = maximise(cells, R, BARE, clusters.means)
    for g in (0, 1):
        np.testing.assert_allclose(after.weights[g], R[sites == g].mean(axis=0), atol=1e-8)


def test_score_of_a_cell_is_the_mean_log_density_of_its_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * [1.0, 2.0, 0.5]
    # Uncorrelated to the last digit, so that the variances say all of the covariance.
    rows -= rows.mean(axis=0)
    rows = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows.T, bias=True))).T * [1.0, 2.0, 0.5]
    upload = MicroClusters(
        np.zeros(1, dtype=int), np.array([50.0]), rows.mean(axis=0)[None], rows.var(axis=0)[None]
    )
    covariance = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])
    clusters = Clusters(
        np.array([[0.25, 0.75]]), np.ones((2, 3)), np.stack([covariance, np.eye(3)]), np.ones(2)
    )
    expected = [
        multivariate_normal(np.ones(3), each).logpdf(rows).mean() + np.log(weight)
        for each, weight in ((covariance, 0.25), (np.eye(3), 0.75))
    ]
    np.testing.assert_allclose(log_joint(stack({"a": upload}), clusters)[0], expected, rtol=1e-10)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 4))
def test_likelihood_never_falls_without_shrinkage(seed, k):
    cells = _random_cells(seed)
    labels = np.random.default_rng(seed).integers(k, size=cells.n_cells)
    labels[:k] = np.arange(k)
    # Cells have variance, so no covariance can collapse; the floor of the weights is all that could lower it.
    state = init(cells, from_partition(cells, labels, Shrinkage(0.0, 1e-9)))
    for _ in range(15):
        state = step(state, cells, BARE)
    assert (np.diff(state.trace[1:]) >= -1e-6 * abs(state.trace[-1])).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_order_of_sites_and_cells_changes_nothing(seed):
    cells = _random_cells(seed)
    rng = np.random.default_rng(seed)
    labels = np.arange(cells.n_cells) % 3
    order, names = rng.permutation(cells.n_cells), rng.permutation(cells.n_sites)
    mixed = cells.take(order)
    mixed = Cells(names[mixed.sites], mixed.halves, mixed.counts, mixed.means, mixed.variances, mixed.n_sites)
    shrinkage = Shrinkage.of(cells)
    a = fit(cells, from_partition(cells, labels, shrinkage), shrinkage, max_iter=10)
    b = fit(mixed, from_partition(mixed, labels[order], shrinkage), shrinkage, max_iter=10)
    assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-9)
    np.testing.assert_allclose(a.clusters.means, b.clusters.means, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(a.clusters.weights, b.clusters.weights[names], rtol=1e-5, atol=1e-7)


def test_a_site_that_lacks_a_cluster_has_no_weight_there():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    uploads = {}
    for name, held in (("a", (0, 1)), ("b", (1, 2)), ("c", (0, 2))):
        X = np.concatenate([centres[k] + rng.normal(size=(60, 2)) for k in held])
        halves = halve(len(X), rng, min_rows=5)
        uploads[name] = micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
    cells = stack(uploads)
    shrinkage = Shrinkage.of(cells)
    labels = np.square(cells.means[:, None] - centres).sum(axis=2).argmin(axis=1)
    found = fit(cells, from_partition(cells, labels, shrinkage), shrinkage)
    for g, lacking in enumerate((2, 0, 1)):
        assert found.clusters.weights[g, lacking] < 1e-8
        assert found.clusters.weights[g].sum() == pytest.approx(1.0)


def test_likelihood_by_site_adds_up():
    cells = _random_cells(4)
    clusters = from_partition(cells, np.arange(cells.n_cells) % 2, Shrinkage.of(cells))
    assert by_site(cells, clusters).sum() == pytest.approx(init(cells, clusters).log_likelihood)


def test_one_cluster_is_the_moments_of_all_rows():
    cells = _random_cells(5)
    found = fit(cells, from_partition(cells, np.zeros(cells.n_cells, dtype=int), BARE), BARE)
    np.testing.assert_allclose(found.clusters.covariances[0], cells.total_covariance(), rtol=1e-9)


def test_a_cluster_without_rows_stays_where_it_was():
    cells = _random_cells(6)
    R = np.zeros((cells.n_cells, 2))
    R[:, 0] = 1.0
    for shrinkage in (Shrinkage.of(cells), BARE):
        clusters = maximise(cells, R, shrinkage, np.full((2, 2), 7.0))
        np.testing.assert_array_equal(clusters.means[1], 7.0)
        np.linalg.cholesky(clusters.covariances)
        assert clusters.masses[1] == 0


def test_much_shrinkage_gives_all_clusters_one_covariance():
    cells = _random_cells(7)
    clusters = from_partition(cells, np.arange(cells.n_cells) % 3, Shrinkage(1e12, 0.0))
    np.testing.assert_allclose(clusters.covariances, np.tile(clusters.covariances[0], (3, 1, 1)), rtol=1e-6)


def test_blocks_of_cells_change_nothing(monkeypatch):
    cells = _random_cells(8)
    clusters = from_partition(cells, np.arange(cells.n_cells) % 3, Shrinkage.of(cells))
    whole = log_joint(cells, clusters)
    monkeypatch.setattr("fedcluster_app.aggregation.micro.em._BLOCK", 1)
    np.testing.assert_allclose(log_joint(cells, clusters), whole, rtol=1e-12)


def test_steps_stop_at_their_number_or_when_nothing_moves():
    cells = _random_cells(9)
    shrinkage = Shrinkage.of(cells)
    state = init(cells, from_partition(cells, np.arange(cells.n_cells) % 3, shrinkage))
    assert not done(state)
    state = step(state, cells, shrinkage)
    assert done(state, max_iter=1)
    assert finish(state).log_likelihood == state.trace[-1]
