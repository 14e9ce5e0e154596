from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Shrinkage, fit, from_partition
from fedcluster_app.aggregation.micro.merge import merge
from fedcluster_app.aggregation.micro.path import fit_all, fit_k, starts, whitening


def cells_around(centres, sites, seed=0):
    rng = np.random.default_rng(seed)
    means = np.asarray(centres, dtype=float) + 0.3 * rng.normal(size=(len(centres), 2))
    m = len(means)
    return Cells(np.asarray(sites), np.arange(m) % 2, np.full(m, 10.0), means, np.full((m, 2), 0.5), 2)


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


def test_fragments_of_one_cluster_are_joined():
    labels = np.repeat([0, 1, 2, 3], 8)
    cells = cells_around(np.repeat([[0.0, 0.0], [0.5, 0.0], [9.0, 0.0], [9.0, 0.5]], 8, axis=0), labels % 2)
    R = merge(cells, np.eye(4)[labels], 2, Shrinkage.of(cells))
    np.testing.assert_allclose(R.sum(axis=1), 1)
    assert same_partition(R.argmax(axis=1), labels // 2)


def test_clusters_of_the_same_site_are_joined_sooner():
    # Three clusters in a row, evenly spaced; two neighbours are at one site, the third at the other.
    labels = np.repeat([0, 1, 2], 10)
    centres = np.repeat([[0.0, 0.0], [4.0, 0.0], [8.0, 0.0]], 10, axis=0)
    for sites, joined in (([0, 0, 1], [0, 0, 1]), ([0, 1, 1], [0, 1, 1])):
        cells = cells_around(centres, np.repeat(sites, 10))
        R = merge(cells, np.eye(3)[labels], 2, Shrinkage.of(cells))
        assert same_partition(R.argmax(axis=1), np.repeat(joined, 10))


def test_nothing_to_join_and_clusters_without_rows():
    labels = np.repeat([0, 1], 6)
    cells = cells_around(np.repeat([[0.0, 0.0], [5.0, 0.0]], 6, axis=0), labels)
    R = np.eye(2)[labels]
    assert merge(cells, R, 2, Shrinkage.of(cells)) is R
    empty = np.column_stack([R, np.zeros(12)])
    assert same_partition(merge(cells, empty, 2, Shrinkage.of(cells)).argmax(axis=1), labels)


@pytest.mark.parametrize("seed", range(3))
def test_starts_from_above_never_lose_likelihood(seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2.0, size=(6, 2))[rng.integers(6, size=60)]
    cells = cells_around(centres, rng.integers(2, size=60), seed)
    scale, shrinkage, ks = whitening(cells), Shrinkage.of(cells), np.arange(1, 10)
    where = starts(cells, (np.ones_like(scale), scale), rng)
    found = fit_all(cells, where, ks, shrinkage)
    assert list(found) == list(ks)
    for k in ks:
        assert found[k].log_likelihood >= fit_k(cells, where, int(k), shrinkage).log_likelihood


def test_one_cluster_needs_no_start_from_above():
    cells = cells_around(np.zeros((10, 2)), np.arange(10) % 2)
    scale, shrinkage = whitening(cells), Shrinkage.of(cells)
    where = starts(cells, (scale,), np.random.default_rng(0))
    two = fit(cells, from_partition(cells, np.arange(10) % 2, shrinkage), shrinkage)
    assert fit_k(cells, where, 1, shrinkage, above=two).clusters.k == 1
