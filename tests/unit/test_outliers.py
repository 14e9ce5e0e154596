from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import outliers
from fedcluster_app.cardinality.outliers import within_reach


def test_only_rows_beyond_ten_median_distances_are_set_aside():
    X = np.array([-2.0, -1, -1, 0, 1, 1, 10, 10.0001])[:, None]
    # The middle is 0.5, the distances from it are 2.5, 1.5, 1.5, .5, .5, .5, 9.5, 9.5: median 1.5.
    assert within_reach(X).all()
    assert within_reach(X, 6).tolist() == [True] * 6 + [False] * 2
    # A limit that equals a distance keeps the row.
    assert within_reach(X, 9.5 / 1.5 * (1 + 1e-12)).tolist() == [True] * 7 + [False]


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e300])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_gross_outliers_at_any_scale(scale, count):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 5)), rng.normal(size=(count, 5)) * 1e6]) * scale
    np.testing.assert_array_equal(within_reach(X), np.arange(100 + count) < 100)


@pytest.mark.parametrize(("size", "stays"), [(4, False), (5, True), (30, True)])
def test_far_rows_that_are_together_are_a_group(size, stays):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (100, 3)), rng.normal(300, 1, (size, 3))])
    assert within_reach(X)[:100].all()
    assert (within_reach(X)[100:] == stays).all()


def test_many_far_rows_are_compared_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (100, 3)), rng.normal(300, 1, (40, 3)), [[-500.0, 0, 0]]])
    monkeypatch.setattr(outliers, "_BLOCK_ENTRIES", 100)
    np.testing.assert_array_equal(within_reach(X), np.arange(141) < 140)


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_and_separated_clusters_stay(seed):
    rng = np.random.default_rng(seed)
    assert within_reach(rng.standard_t(4, size=(500, 8))).all()
    assert within_reach(np.concatenate([rng.normal(0, 1, (300, 3)), rng.normal(15, 1, (100, 3))])).all()


def test_nothing_to_compare_with():
    X = np.zeros((9, 2))
    assert within_reach(X).all()
    X[:4] = np.random.default_rng(0).normal(size=(4, 2))
    assert within_reach(X).all()
    assert within_reach(np.array([[1e308, -1e308], [-1e308, 1e308]])).all()


@pytest.mark.parametrize("farthest", [1, 0, -3, float("nan")])
def test_impossible_limit(farthest):
    with pytest.raises(ValueError, match="above 1"):
        within_reach(np.ones((3, 1)), farthest)
