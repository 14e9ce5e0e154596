from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.cardinality import split as split_module
from fedcluster_app.cardinality.split import leading_axis, split_component
from fedcluster_app.cardinality.tree import SplitTree, split_tree


def blobs(seed, centers, n=60):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(center, 1.0, size=(n, len(center))) for center in centers])


def centred(X):
    Y = X - X.mean(axis=0)
    return Y, (Y * Y).sum(axis=1)


@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (6, 6)])
def test_leading_axis_is_an_eigenvector(shape):
    Y, _ = centred(np.random.default_rng(1).normal(size=shape))
    eigenvalue, axis = leading_axis(Y)
    np.testing.assert_allclose(Y.T @ (Y @ axis) / shape[0], eigenvalue * axis, atol=1e-12)
    assert axis @ axis == pytest.approx(1)
    assert eigenvalue == pytest.approx(np.linalg.norm(Y, 2) ** 2 / shape[0])


def test_sign_of_the_axis_is_fixed():
    Y, _ = centred(np.random.default_rng(1).normal(size=(30, 4)))
    np.testing.assert_array_equal(leading_axis(Y)[1], leading_axis(-Y)[1])


def test_wide_tables_need_no_matrix_of_the_features():
    # d x d would be 80 GB.
    Y, squares = centred(np.random.default_rng(0).normal(size=(8, 100_000)))
    split_component(Y, squares)
    assert leading_axis(Y)[1].shape == (100_000,)


def test_two_blobs_split_into_their_rows():
    X = blobs(0, [(0, 0, 0), (20, 0, 0)])
    split = split_component(*centred(X))
    # The axis points along the larger coordinate, so child 1 is the blob on its positive side.
    np.testing.assert_array_equal(split.first, np.repeat([False, True], 60))
    assert split.mass == pytest.approx(60)


def test_child_1_comes_first_and_the_tree_is_depth_first():
    X = blobs(0, [(0, 0), (60, 0), (90, 0)])
    tree = split_tree(X, 31)
    assert len(tree.rows) == 5
    np.testing.assert_array_equal(tree.parents, [-1, 0, 1, 1, 0])
    np.testing.assert_array_equal(tree.moments.means[tree.leaves(31), 0].round(-1), [90, 60, 0])


def test_leaves_partition_the_rows_and_hold_their_moments():
    X = np.random.default_rng(0).normal(size=(400, 3))
    tree = split_tree(X, 5)
    leaves = tree.leaves(5)
    assert len(leaves) > 10
    np.testing.assert_array_equal(
        np.sort(np.concatenate([tree.rows[leaf] for leaf in leaves])), np.arange(400)
    )
    moments = tree.leaf_moments(5)
    for leaf, count, mean, variance in zip(
        leaves, moments.counts, moments.means, moments.variances, strict=True
    ):
        rows = X[tree.rows[leaf]]
        assert count == len(rows)
        np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-14)
        assert variance == pytest.approx(rows.var(axis=0).mean(), rel=1e-12)


def test_minimum_mass_is_compared_with_the_soft_mass_inclusively():
    X = blobs(0, [(0, 0), (20, 0)], n=30)
    mass = split_component(*centred(X)).mass
    assert len(split_tree(X, mass).leaves(mass)) == 2
    assert len(split_tree(X, np.nextafter(mass, 99)).rows) == 1


def test_component_below_twice_the_minimum_mass_is_final():
    X = blobs(0, [(0, 0), (20, 0)], n=10)
    assert len(split_tree(X, 10).rows) == 3
    assert len(split_tree(X, 10.5).rows) == 1


def test_leaves_of_a_hand_made_tree():
    parents = np.array([-1, 0, 1, 1, 0, 4, 4])
    # The split of node 4 survives a minimum mass that its parent's does not: its children are out of reach.
    masses = np.array([10.0, 7, 0, 0, 30, 0, 0])
    tree = SplitTree(parents, masses, moments=None, rows=())
    assert tree.leaves(5).tolist() == [2, 3, 5, 6]
    assert tree.leaves(7.5).tolist() == [1, 5, 6]
    assert tree.leaves(10).tolist() == [1, 5, 6]
    assert tree.leaves(20).tolist() == [0]


def test_gain_must_exceed_the_penalty():
    # A round cluster below the critical size has a gain, but not enough of it.
    assert split_component(*centred(np.random.default_rng(0).normal(size=(60, 64)))) is None


def test_a_dying_half_ends_the_split(monkeypatch):
    X = blobs(0, [(0, 0), (20, 0)])
    assert split_component(*centred(X)) is not None
    # No start within reach lets a half die, so the log-odds are made up.
    monkeypatch.setattr(split_module, "_log_odds", lambda Y, squares, halves: np.full(len(Y), -1e4))
    assert split_component(*centred(X)) is None


@pytest.mark.parametrize("em_steps", [1, 15])
def test_an_empty_child_is_no_split(em_steps):
    # Equal rows whose centring left a rounding error: EM sees a gain, but every row goes to the same child.
    Y = np.full((50, 2), 1e-17)
    assert split_component(Y, (Y * Y).sum(axis=1), em_steps=em_steps) is None


@pytest.mark.parametrize("n", [1, 2, 9])
def test_equal_rows_have_no_variance_at_all(n):
    tree = split_tree(np.full((n, 3), 0.1), 1)
    assert len(tree.rows) == 1
    assert tree.moments.variances[0] == 0
    np.testing.assert_array_equal(tree.moments.means[0], 0.1)


def test_a_spread_beyond_float64_beside_a_large_one_is_none():
    X = np.array([-1.0] * 10 + [1.0] * 10 + [1e-155, -1e-155] * 10)[:, None]
    moments = split_tree(X, 2).leaf_moments(2)
    assert sorted(moments.means.ravel().round()) == [-1, 0, 1]


def test_deep_trees_need_no_recursion():
    # Every split sets the largest remaining value apart: a chain.
    X = np.repeat(2.0 ** np.arange(0, 1000, 2), 2)[:, None]
    tree = split_tree(X * 2.0**-500, 2)
    assert len(tree.leaves(2)) > 50
