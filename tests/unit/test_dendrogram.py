from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality.dendrogram import cuts, merges
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.tree import Moments, split_tree


@pytest.fixture(scope="module")
def leaves():
    return split_tree(np.random.default_rng(0).normal(size=(300, 3)), 5).leaf_moments(5)


@pytest.mark.parametrize("order", ["ratio", "distance"])
@pytest.mark.parametrize("alpha", [0.6, 1.0, 1.3])
def test_merges_are_those_of_the_path(leaves, order, alpha):
    (left,) = merge_path(leaves, [alpha], order)
    steps = list(merges(leaves, alpha, order))
    assert len(steps) == len(leaves.counts) - len(left.counts)
    assert all(step.ratio < alpha and step.kept < step.gone for step in steps)
    survivors = sorted(set(range(len(leaves.counts))) - {step.gone for step in steps})
    last = {step.kept: step.variance for step in steps}
    np.testing.assert_allclose([last.get(i, leaves.variances[i]) for i in survivors], left.variances)


def test_ratio_is_distance_over_sum_of_spreads():
    pair = Moments(np.array([3.0, 1.0]), np.array([[0.0, 0], [3, 4]]), np.array([4.0, 9.0]))
    (step,) = merges(pair)
    assert step == (0, 1, 1.0, pytest.approx(0.75 * 4 + 0.25 * 9 + 3 / 16 * 25 / 2))


def test_cuts_hold_every_count_once(leaves):
    found = cuts(leaves, 10)
    assert [len(cut.counts) for cut in found] == list(range(10, 0, -1))
    (left,) = merge_path(leaves, [1.0])
    same = cuts(leaves, len(leaves.counts))[len(leaves.counts) - len(left.counts)]
    np.testing.assert_array_equal(same.means, left.means)


def test_components_apart_without_spread_stay_apart():
    points = Moments(np.ones(3), np.array([[0.0], [1], [1]]), np.zeros(3))
    assert [len(cut.counts) for cut in cuts(points, 3)] == [3, 2]
    assert [step[:3] for step in merges(points)] == [(1, 2, 0.0)]
