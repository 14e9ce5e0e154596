"""Micro-clusters of a site, and those of all sites together."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.aggregation.micro.cells import MicroClusters, halve, micro_clusters, stack


def _made(X, seed=0, min_rows=5, rows_per_cell=10, most=20):
    rng = np.random.default_rng(seed)
    halves = halve(len(X), rng, min_rows=min_rows)
    return halves, micro_clusters(X, halves, rng, min_rows=min_rows, rows_per_cell=rows_per_cell, most=most)


@pytest.mark.parametrize(("n", "ones"), [(0, 0), (5, 0), (9, 0), (10, 5), (11, 5), (200, 100)])
def test_halves_are_of_one_size_or_there_is_only_one(n, ones):
    halves = halve(n, np.random.default_rng(0), min_rows=5)
    assert halves.shape == (n,)
    assert halves.sum() == ones


@pytest.mark.parametrize("n", [5, 6, 11, 47, 300, 1000])
def test_every_row_is_in_one_cell_and_no_cell_is_small(n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    halves, made = _made(X)
    assert made.counts.min() >= 5
    for half in np.unique(halves):
        mine = made.halves == half
        rows = X[halves == half]
        assert made.counts[mine].sum() == len(rows)
        np.testing.assert_allclose(made.counts[mine] @ made.means[mine], rows.sum(axis=0), atol=1e-9)
        # Within and between together are the scatter of the rows.
        second = made.counts[mine] @ (made.variances[mine] + np.square(made.means[mine]))
        np.testing.assert_allclose(second, np.square(rows).sum(axis=0), rtol=1e-10)
        assert mine.sum() <= min(20, max(1, len(rows) // 10))


def test_a_cell_of_few_rows_goes_to_its_neighbour():
    # Two tight groups and a row far off: k-means gives it a cell, which must not stay.
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 30, [[15.0, 300.0]]])
    made = micro_clusters(X, np.zeros(41, dtype=int), rng, min_rows=5, rows_per_cell=5, most=20)
    assert made.counts.min() >= 5
    assert made.counts.sum() == 41
    assert made.variances[:, 1].max() > 1000  # the lost row is in somebody's variance


def test_equal_rows_make_cells_without_variance():
    _, made = _made(np.ones((60, 2)))
    assert made.counts.sum() == 60
    assert not made.variances.any()
    np.testing.assert_array_equal(made.means, 1.0)


def test_min_rows_of_one_keeps_every_cell_that_has_a_row():
    X = np.arange(12.0)[:, None] ** 3
    made = micro_clusters(
        X, np.zeros(12, dtype=int), np.random.default_rng(0), min_rows=1, rows_per_cell=1, most=20
    )
    assert made.counts.sum() == 12
    assert len(made.counts) == 12
    assert not made.variances.any()


def test_the_seed_alone_decides():
    X = np.random.default_rng(0).normal(size=(120, 4))
    for a, b in zip(*(vars(_made(X, seed=5)[1]).values() for _ in range(2)), strict=True):
        np.testing.assert_array_equal(a, b)


def _upload(k, q=2, seed=0):
    rng = np.random.default_rng(seed)
    return MicroClusters(
        np.arange(k) % 2, rng.integers(5, 20, k).astype(float), rng.normal(size=(k, q)), rng.random((k, q))
    )


def test_sites_are_stacked_in_order_of_name():
    uploads = {"b": _upload(3, seed=1), "a": _upload(2), "c": _upload(1, seed=2)}
    cells = stack(uploads)
    np.testing.assert_array_equal(cells.sites, [0, 0, 1, 1, 1, 2])
    np.testing.assert_array_equal(cells.means[2:5], uploads["b"].means)
    again = stack(dict(sorted(uploads.items())))
    np.testing.assert_array_equal(cells.counts, again.counts)
    assert (cells.n_sites, cells.n_cells, cells.n_features) == (3, 6, 2)


def test_a_part_keeps_its_sites():
    cells = stack({"a": _upload(2), "b": _upload(3, seed=1)})
    part = cells.take(cells.halves == 1)
    assert part.n_sites == 2
    np.testing.assert_array_equal(part.sites, [0, 1])


def test_nothing_cannot_be_stacked():
    with pytest.raises(ValueError, match="expected the micro-clusters of one site at least"):
        stack({})


def test_total_covariance_is_that_of_the_rows_where_cells_are_single_rows():
    X = np.random.default_rng(0).normal(size=(50, 3))
    cells = stack({"a": MicroClusters(np.zeros(50, dtype=int), np.ones(50), X, np.zeros((50, 3)))})
    np.testing.assert_allclose(cells.total_covariance(), np.cov(X.T, bias=True), atol=1e-12)
    np.testing.assert_array_equal(cells.within_variance(), 0.0)


def test_total_variance_is_that_of_the_rows_whatever_the_cells():
    X = np.random.default_rng(0).normal(size=(300, 3))
    cells = stack({"a": _made(X)[1]})
    np.testing.assert_allclose(np.diagonal(cells.total_covariance()), X.var(axis=0), rtol=1e-10)
