from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import merge
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.errors import DataError


def components(means, variances, counts=None):
    means = np.asarray(means, dtype=float).reshape(len(variances), -1)
    counts = np.ones(len(means)) if counts is None else counts
    return Moments(np.asarray(counts, dtype=float), means, np.asarray(variances, dtype=float))


def merged(leaves, alpha, order="ratio"):
    (survivors,) = merge_path(leaves, [alpha], order)
    return survivors


def test_merged_moments_are_those_of_the_pooled_rows():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(n, 3)) + i for i, n in enumerate((30, 11, 5))]
    pooled = np.concatenate(groups)
    leaves = components(
        [g.mean(axis=0) for g in groups],
        [g.var(axis=0).mean() for g in groups],
        [len(g) for g in groups],
    )
    result = merged(leaves, 100.0)
    assert result.counts == [46]
    np.testing.assert_allclose(result.means, [pooled.mean(axis=0)], rtol=1e-13)
    np.testing.assert_allclose(result.variances, [pooled.var(axis=0).mean()], rtol=1e-13)


@pytest.mark.parametrize("order", ["ratio", "distance"])
def test_ratio_must_be_strictly_below_alpha(order):
    # Ratio 4 / (1 + 1) = 2.
    leaves = components([0, 4], [1, 1])
    assert len(merged(leaves, 2.0, order).counts) == 2
    assert len(merged(leaves, np.nextafter(2.0, 3), order).counts) == 1


def test_zero_spread_joins_only_where_means_coincide():
    leaves = components([0, 0, 1e-9, 5], [0, 0, 0, 0])
    result = merged(leaves, 1e6)
    np.testing.assert_array_equal(result.counts, [2, 1, 1])
    np.testing.assert_array_equal(result.variances, 0)


def test_survivors_stay_in_leaf_order():
    leaves = components([0, 10, 0.1, 30, 10.1], [1, 1, 1, 1, 1])
    result = merged(leaves, 1.0)
    np.testing.assert_allclose(result.means.ravel(), [0.05, 10.05, 30])
    np.testing.assert_array_equal(result.counts, [2, 2, 1])


def test_ties_go_to_the_smallest_pair():
    # Pairs (0, 1), (1, 2), (2, 3) tie exactly at ratio 1; after (0, 1), only (2, 3) is left below 1.1.
    result = merged(components([0, 2, 4, 6], [1, 1, 1, 1]), 1.1)
    np.testing.assert_array_equal(result.means.ravel(), [1, 5])
    np.testing.assert_array_equal(result.counts, [2, 2])


def test_path_of_an_alpha_ends_at_the_first_ratio_that_reaches_it():
    # The first merge, of ratio 1.5, swells the spread so much that the next ratio is lower. An alpha between
    # the two must not take the second merge.
    leaves = components([[0, 0], [3, 0], [1.5, 2.65]], [1, 1, 1])
    first = 3 / 2
    joined = merged(leaves, 1.5001)
    assert len(joined.counts) == 1
    second = 2.65 / (np.sqrt(0.5 + 0.5 + 0.25 * 9 / 2) + 1)
    assert second < first
    assert len(merged(leaves, (first + second) / 2).counts) == 3


def test_grid_is_one_path_in_ratio_order():
    rng = np.random.default_rng(3)
    leaves = components(rng.normal(size=(30, 2)) * 3, rng.uniform(0.1, 1, 30), rng.integers(5, 50, 30))
    alphas = [0.2, 0.5, 1.0, 1.5, 2.0, 3.0]
    for together, alpha in zip(merge_path(leaves, alphas), alphas, strict=True):
        alone = merged(leaves, alpha)
        np.testing.assert_array_equal(together.counts, alone.counts)
        np.testing.assert_array_equal(together.means, alone.means)
        np.testing.assert_array_equal(together.variances, alone.variances)


def test_orders_differ_where_the_nearest_pair_is_not_the_least_ratio():
    # Distances 1 and 1.02, ratios 0.83 and 0.82; either merge puts the third component out of reach.
    leaves = components([0, 1, 2.02], [0.36, 0.36, 0.4225])
    np.testing.assert_allclose(merged(leaves, 1.0, "ratio").means.ravel(), [0, 1.51])
    np.testing.assert_allclose(merged(leaves, 1.0, "distance").means.ravel(), [0.5, 2.02])


def test_distance_order_starts_from_the_leaves_for_every_alpha():
    # At 0.82 the nearest pair is not eligible, at 1 it is: the second path does not contain the first.
    leaves = components([0, 1, 2.02], [0.36, 0.36, 0.4225])
    small, large = merge_path(leaves, [0.82, 1.0], "distance")
    np.testing.assert_allclose(small.means.ravel(), [0, 1.51])
    np.testing.assert_allclose(large.means.ravel(), [0.5, 2.02])


def test_input_is_not_changed_and_one_component_is_fine():
    leaves = components([0, 0.1], [1, 1])
    merged(leaves, 5.0)
    np.testing.assert_array_equal(leaves.means.ravel(), [0, 0.1])
    assert merged(components([3], [0]), 1.0).counts == [1]


def test_too_many_leaves_are_refused(monkeypatch):
    monkeypatch.setattr(merge, "MOST_LEAVES", 2)
    with pytest.raises(DataError, match="raise min_mass"):
        merged(components([0, 1, 2], [1, 1, 1]), 1.0)
