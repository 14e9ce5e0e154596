"""The batched split tree on awkward tables, its memory, and the cap on leaves."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fedcluster_app.cardinality import asm, batch
from fedcluster_app.cardinality.asm import count_asm
from fedcluster_app.cardinality.batch import batched_split_tree
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.tree import split_tree
from fedcluster_app.errors import DataError


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def framed(X):
    return frame_of(X).apply(X)


def leaf_rows(tree, min_mass):
    return [np.sort(tree.rows[leaf]).tolist() for leaf in tree.leaves(min_mass)]


def assert_same_tree(X, min_mass, **parameters):
    plain, fast = (grow(X, min_mass, **parameters) for grow in (split_tree, batched_split_tree))
    np.testing.assert_array_equal(fast.parents, plain.parents)
    np.testing.assert_allclose(fast.masses, plain.masses, rtol=1e-9)
    np.testing.assert_array_equal(fast.moments.counts, plain.moments.counts)
    np.testing.assert_allclose(fast.moments.means, plain.moments.means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast.moments.variances, plain.moments.variances, rtol=1e-9, atol=1e-24)
    for ours, theirs in zip(fast.rows, plain.rows, strict=True):
        np.testing.assert_array_equal(np.sort(ours), theirs)
    return fast


@pytest.mark.parametrize("X", [[[3.0]], [[3.0, 4.0], [3.0, 5.0]], np.full((50, 2), 0.1)])
def test_one_row_two_rows_equal_rows_stay_whole(X):
    tree = assert_same_tree(np.asarray(X), 2)
    assert len(tree.rows) == 1


def test_equal_rows_have_no_variance_at_all():
    # Of padded components too: the second and third atom wait for one stack.
    atoms = np.repeat(normal(5, 3), [40, 31, 22, 21, 20], axis=0)
    tree = assert_same_tree(framed(atoms), 5)
    leaves = tree.leaf_moments(5)
    assert len(leaves.counts) == 5
    np.testing.assert_array_equal(leaves.variances, 0)


@pytest.mark.parametrize(
    "X",
    [
        np.repeat(normal(300, 4), 2, axis=0),
        np.concatenate([np.full((100, 4), 0.1), normal(100, 4) + 5]),
        np.column_stack([normal(200, 3), np.full((200, 5), 7.0)]),
        normal(20, 200),
        np.concatenate([normal(20, 200), normal(20, 200, 1) + 2]),
        np.concatenate([normal(60, 90), normal(150, 90, 1) + 2, normal(130, 90, 1) - 2]),
        1e150 * np.concatenate([normal(60, 3), normal(60, 3, 1) + 9]),
        1e-150 * np.concatenate([normal(60, 3), normal(60, 3, 1) + 9]),
        1e9 + np.concatenate([normal(60, 3), normal(60, 3, 1) + 9]),
        np.concatenate([normal(5000, 4), normal(20, 4, 1) + 40]),
        np.concatenate([normal(2000, 4), normal(20, 4, 1) + 40, normal(20, 4, 2) - 40]),
        np.concatenate([normal(100, 3), normal(100, 3, 1) + 12, np.full((1, 3), 1e6)]),
        normal(1500, 1),
    ],
    ids=[
        "doubled rows",
        "half equal",
        "constant columns",
        "few rows",
        "few rows, two groups",
        "rows and features alike",
        "1e150",
        "1e-150",
        "offset 1e9",
        "far group",
        "two far groups",
        "gross outlier",
        "one column",
    ],
)
@pytest.mark.parametrize("min_mass", [1, 5, 20])
def test_awkward_tables_give_the_plain_tree(X, min_mass):
    assert_same_tree(framed(X), min_mass)


def test_wide_tables_need_no_matrix_of_the_features():
    # d x d would be 80 GB.
    assert len(batched_split_tree(normal(8, 100_000), 2).rows) == 1


def test_the_size_of_stacks_does_not_matter(monkeypatch):
    X = normal(900, 3)
    whole = batched_split_tree(X, 5)
    monkeypatch.setattr(batch, "STACK_ENTRIES", 1)
    single = batched_split_tree(X, 5)
    assert len(single.rows) > 100
    np.testing.assert_array_equal(single.parents, whole.parents)
    np.testing.assert_allclose(single.masses, whole.masses, rtol=1e-9)
    assert leaf_rows(single, 5) == leaf_rows(whole, 5)


def test_same_table_gives_the_same_bytes():
    first, second = (batched_split_tree(normal(700, 4), 5) for _ in range(2))
    assert first.masses.tobytes() == second.masses.tobytes()
    assert first.moments.means.tobytes() == second.moments.means.tobytes()


def test_row_order_does_not_matter():
    X = normal(700, 4)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = batched_split_tree(X[order], 5)
    assert [np.sort(order[shuffled.rows[leaf]]).tolist() for leaf in shuffled.leaves(5)] == leaf_rows(
        batched_split_tree(X, 5), 5
    )


def test_leaves_list_their_rows_in_order_and_the_table_is_left_alone():
    X = normal(400, 3)
    before = X.copy()
    tree = batched_split_tree(X, 5)
    np.testing.assert_array_equal(X, before)
    assert all((np.diff(tree.rows[leaf]) > 0).all() for leaf in tree.leaves(5))


def peak_of(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_a_few_tables():
    X = normal(20_000, 32)
    assert peak_of(lambda: batched_split_tree(X, 20)) < 3 * X.nbytes
    fit = lambda: count_asm(X, np.random.default_rng(0), alphas=[1.5], min_masses=[20])  # noqa: E731  # called twice, on one line
    assert peak_of(fit) < 4 * X.nbytes


def test_a_grid_survives_more_leaves_than_merging_holds(monkeypatch):
    X = np.concatenate([normal(300, 2), normal(300, 2, 1) + 12])
    grid = {"alphas": [1.0, 2.0], "min_masses": [5, 200]}
    chosen = count_asm(X, np.random.default_rng(0), **grid)
    for most in (10, 1):
        monkeypatch.setattr(asm, "MOST_LEAVES", most)
        capped = count_asm(X, np.random.default_rng(0), **grid)
        # With all leaves too many, the fewest are the count.
        assert capped.k == 2
        assert capped.chosen["min_mass"] == 200
    assert chosen.k == 2


def test_a_fixed_fit_with_too_many_leaves_is_refused(monkeypatch):
    monkeypatch.setattr("fedcluster_app.cardinality.merge.MOST_LEAVES", 10)
    with pytest.raises(DataError, match="raise min_mass"):
        count_asm(normal(500, 2), np.random.default_rng(0), alphas=[1.0], min_masses=[5])
