from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.cardinality import (
    AdaptiveSplitMerge,
    anisotropy,
    count_asm,
    critical_size,
    split_gain_rate,
)
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.tree import split_tree

seeds = st.integers(0, 2**32 - 1)
calm = settings(deadline=None, derandomize=True, max_examples=40)


@st.composite
def tables(draw):
    rng = np.random.default_rng(draw(seeds))
    n, d, k = draw(st.integers(1, 150)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    centers = 6 * rng.normal(size=(k, d))
    return rng.normal(size=(n, d)) + centers[rng.integers(k, size=n)]


models = st.builds(
    AdaptiveSplitMerge,
    alpha=st.sampled_from([0.5, 1.0, 1.5, 2.5]),
    min_mass=st.sampled_from([2, 5, 12]),
    order=st.sampled_from(["ratio", "distance"]),
)


def partition(labels):
    """Sets of row numbers, whatever the labels are called."""
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@calm
@given(tables(), models, seeds)
def test_row_order_does_not_matter_to_a_fixed_fit(X, model, seed):
    order = np.random.default_rng(seed).permutation(len(X))
    labels = model.fit(X).labels_
    shuffled = np.empty(len(X), dtype=int)
    shuffled[order] = model.fit(X[order]).labels_
    np.testing.assert_array_equal(shuffled, labels)


@calm
@given(tables(), models, st.sampled_from([1.0, -300.0, 1e6]))
def test_shift_moves_the_means_only(X, model, shift):
    model.fit(X)
    labels, means, variances = model.labels_, model.means_, model.variances_
    model.fit(X + shift)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.means_, means + shift, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(model.variances_, variances, rtol=1e-6, atol=1e-12)


@calm
@given(tables(), models, st.integers(-450, 450))
def test_power_of_two_changes_no_bit(X, model, power):
    # Multiples of 2^-20: the table's own digits leave room for the means to be mapped back exactly.
    X = np.round(X * 2**20) / 2**20
    model.fit(X)
    labels, means, variances = model.labels_, model.means_, model.variances_
    model.fit(np.ldexp(X, power))
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_array_equal(model.means_, np.ldexp(means, power))
    np.testing.assert_array_equal(model.variances_, np.ldexp(variances, 2 * power))


@calm
@given(tables(), st.integers(-450, 450), seeds)
def test_power_of_two_changes_no_bit_of_a_selection(X, power, seed):
    count, scaled = (count_asm(table, np.random.default_rng(seed)) for table in (X, np.ldexp(X, power)))
    assert (count.k, count.chosen, count.status) == (scaled.k, scaled.chosen, scaled.status)
    np.testing.assert_array_equal(count.silhouette, scaled.silhouette)


@calm
@given(tables(), models, seeds)
def test_rotation_keeps_the_count_and_the_partition(X, model, seed):
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(X.shape[1],) * 2))
    model.fit(X)
    groups, k = partition(model.labels_), model.n_components_
    model.fit(X @ rotation)
    assert model.n_components_ == k
    assert partition(model.labels_) == groups


@calm
@given(tables(), models)
def test_components_hold_all_rows_and_the_variance_of_the_table(X, model):
    model.fit(X)
    assert len(model.weights_) == model.n_components_ <= len(X)
    np.testing.assert_allclose(model.weights_.sum(), 1)
    np.testing.assert_allclose(model.weights_ @ model.means_, X.mean(axis=0), atol=1e-9)
    between = ((model.means_ - X.mean(axis=0)) ** 2).mean(axis=1)
    np.testing.assert_allclose(model.weights_ @ (model.variances_ + between), X.var(axis=0).mean(), atol=1e-9)


@calm
@given(tables(), st.sampled_from(["ratio", "distance"]))
def test_counts_fall_with_minimum_mass_and_in_ratio_order_with_alpha(X, order):
    tree = split_tree(X, 2)
    leaves = [len(tree.leaves(min_mass)) for min_mass in (2, 3, 5, 9, 20, 80)]
    assert leaves == sorted(leaves, reverse=True)
    counts = [
        len(path.counts) for path in merge_path(tree.leaf_moments(2), [0.3, 0.8, 1.3, 2.0, 50.0], order)
    ]
    assert leaves[0] >= counts[0]
    assert min(counts) >= 1
    if order == "ratio":
        assert counts == sorted(counts, reverse=True)


@calm
@given(tables())
def test_anisotropy_is_between_one_and_d(X):
    r = anisotropy(X)
    assert 1 <= r <= X.shape[1]
    np.testing.assert_allclose(anisotropy(3 * X + 5), r, rtol=1e-6)


@calm
@given(st.integers(1, 200), st.floats(1, 50), st.floats(1, 50))
def test_elongated_clusters_split_sooner(d, r, other):
    low, high = sorted((min(r, d), min(other, d)))
    assert split_gain_rate(low, d) <= split_gain_rate(high, d)
    assert critical_size(low, d) >= critical_size(high, d)
