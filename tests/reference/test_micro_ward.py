"""Ward's agglomeration against SciPy, against brute force, and against repeated points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cut_tree, linkage

from fedcluster_app.aggregation.micro.cells import MicroClusters, stack
from fedcluster_app.aggregation.micro.ward import merge_list, supercells


def _same_partition(a, b):
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


@pytest.mark.parametrize(("n", "q"), [(2, 1), (3, 2), (40, 1), (150, 6)])
def test_unit_masses_give_scipys_tree(n, q):
    X = np.random.default_rng(n).normal(size=(n, q))
    tree, expected = merge_list(X, np.ones(n)), linkage(X, "ward")
    # SciPy's height is the root of twice the cost.
    np.testing.assert_allclose(np.sqrt(2 * tree.costs), expected[:, 2], rtol=1e-9)
    for k in {1, 2, 3, n // 2 + 1, n}:
        if k <= n:
            assert _same_partition(tree.cut(k), cut_tree(expected, n_clusters=[k]).ravel())


def _greedy(X, masses, k):
    """Merge the cheapest pair until k groups are left, trying all pairs each time."""
    groups = [[i] for i in range(len(X))]

    def cost(a, b):
        ma, mb = masses[a].sum(), masses[b].sum()
        gap = masses[a] @ X[a] / ma - masses[b] @ X[b] / mb
        return ma * mb / (ma + mb) * (gap @ gap)

    while len(groups) > k:
        pairs = [(cost(a, b), i, j) for i, a in enumerate(groups) for j, b in enumerate(groups) if i < j]
        _, i, j = min(pairs)
        groups[i] += groups.pop(j)
    labels = np.empty(len(X), dtype=int)
    for number, group in enumerate(groups):
        labels[group] = number
    return labels


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 14), q=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_masses_give_what_brute_force_gives(n, q, seed):
    rng = np.random.default_rng(seed)
    X, masses = rng.normal(size=(n, q)), rng.integers(1, 30, n).astype(float)
    tree = merge_list(X, masses)
    for k in range(1, n + 1):
        assert _same_partition(tree.cut(k), _greedy(X, masses, k))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 12), seed=st.integers(0, 10**6))
def test_a_heavy_point_is_as_many_points_in_one_place(n, seed):
    rng = np.random.default_rng(seed)
    X, masses = rng.normal(size=(n, 2)), rng.integers(1, 4, n)
    rows = np.repeat(np.arange(n), masses)
    heavy, many = merge_list(X, masses.astype(float)), merge_list(X[rows], np.ones(len(rows)))
    np.testing.assert_allclose(many.costs[-(n - 1) :], heavy.costs, rtol=1e-9)
    for k in range(1, n + 1):
        assert _same_partition(heavy.cut(k)[rows], many.cut(k))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(n=st.integers(2, 30), seed=st.integers(0, 10**6))
def test_order_of_points_changes_nothing(n, seed):
    rng = np.random.default_rng(seed)
    X, masses, order = rng.normal(size=(n, 2)), rng.random(n) + 0.5, rng.permutation(n)
    a, b = merge_list(X, masses), merge_list(X[order], masses[order])
    np.testing.assert_allclose(a.costs, b.costs, rtol=1e-9)
    for k in (1, 2, n // 2 + 1):
        assert _same_partition(a.cut(k)[order], b.cut(k))


def test_groups_are_numbered_as_they_appear():
    tree = merge_list(np.array([[0.0], [10.0], [0.1], [10.1], [50.0]]), np.ones(5))
    np.testing.assert_array_equal(tree.cut(3), [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(tree.cut(5), np.arange(5))


def test_equal_points_and_a_single_one():
    assert merge_list(np.zeros((1, 2)), np.ones(1)).cut(1).tolist() == [0]
    tree = merge_list(np.zeros((6, 2)), np.ones(6))
    np.testing.assert_array_equal(tree.costs, 0.0)
    assert sorted(np.unique(tree.cut(k)).size for k in range(1, 7)) == [1, 2, 3, 4, 5, 6]


def test_supercells_keep_far_groups_apart():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 3)) * 100
    truth = np.repeat(np.arange(5), 400)
    X = centres[truth] + rng.normal(size=(2000, 3))
    n = len(X)
    cells = stack({"a": MicroClusters(np.zeros(n, dtype=int), np.ones(n), X, np.ones((n, 3)))})
    groups = supercells(cells, 60, rng)
    assert groups.max() + 1 <= 60
    assert set(np.unique(groups)) == set(range(groups.max() + 1))
    assert all(len(set(truth[groups == group])) == 1 for group in np.unique(groups))
