"""The batched split tree against the plain one, component by component, on many random tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.cardinality import asm
from fedcluster_app.cardinality.asm import ALPHAS, MIN_MASSES, count_asm
from fedcluster_app.cardinality.batch import batched_split_tree
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.tree import split_tree


def table(seed, n, d, groups, *, elongated=False, heavy=False):
    """A framed table of groups of equal or unequal size."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(groups, 2.0))
    rows = rng.standard_t(4, size=(n, d)) if heavy else rng.normal(size=(n, d))
    if elongated:
        rows[:, 0] *= 4
        rows = rows @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = rows + 4 * rng.normal(size=(groups, d))[rng.choice(groups, size=n, p=share)]
    return frame_of(X).apply(X)


def assert_same(X, min_mass, **parameters):
    plain, fast = (grow(X, min_mass, **parameters) for grow in (split_tree, batched_split_tree))
    np.testing.assert_array_equal(fast.parents, plain.parents)
    np.testing.assert_allclose(fast.masses, plain.masses, rtol=1e-9)
    for ours, theirs in zip(fast.rows, plain.rows, strict=True):
        np.testing.assert_array_equal(np.sort(ours), theirs)
    np.testing.assert_allclose(fast.moments.means, plain.moments.means, atol=1e-13)
    np.testing.assert_allclose(fast.moments.variances, plain.moments.variances, rtol=1e-9)
    return plain, fast


@pytest.mark.parametrize(
    ("n", "d", "groups", "kind"),
    [
        (500, 2, 1, {}),
        (2000, 8, 1, {}),
        (2000, 8, 10, {}),
        (3000, 16, 10, {}),
        (1500, 64, 10, {}),
        (1000, 8, 5, {"elongated": True}),
        (1000, 32, 3, {"elongated": True}),
        (1200, 5, 6, {"heavy": True}),
        (40, 60, 2, {}),
        (150, 100, 3, {"elongated": True}),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_same_tree_and_same_merges(n, d, groups, kind, seed):
    X = table(seed, n, d, groups, **kind)
    plain, fast = assert_same(X, 5)
    for min_mass in MIN_MASSES:
        paths = (merge_path(tree.leaf_moments(min_mass), ALPHAS) for tree in (plain, fast))
        for theirs, ours in zip(*paths, strict=True):
            np.testing.assert_array_equal(ours.counts, theirs.counts)
            np.testing.assert_allclose(ours.means, theirs.means, atol=1e-12)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 300),
    d=st.integers(1, 40),
    groups=st.integers(1, 6),
    elongated=st.booleans(),
    heavy=st.booleans(),
    min_mass=st.sampled_from([1, 2, 5, 12.5]),
    delta=st.sampled_from([0.5, 1.0, 2.0]),
    em_steps=st.sampled_from([1, 4, 15]),
)
def test_same_tree_on_any_table(seed, n, d, groups, elongated, heavy, min_mass, delta, em_steps):
    X = table(seed, n, d, groups, elongated=elongated, heavy=heavy)
    assert_same(X, min_mass, delta=delta, em_steps=em_steps)


@pytest.mark.parametrize(
    ("n", "d", "groups", "kind"),
    [
        (300, 4, 3, {}),
        (800, 8, 5, {}),
        (600, 16, 4, {"elongated": True}),
        (500, 6, 3, {"heavy": True}),
        (90, 120, 3, {}),
    ],
)
@pytest.mark.parametrize("order", ["ratio", "distance"])
def test_same_cell_is_selected(n, d, groups, kind, order, monkeypatch):
    X = table(7, n, d, groups, **kind)
    fast = count_asm(X, np.random.default_rng(0), order=order)
    monkeypatch.setattr(asm, "batched_split_tree", split_tree)
    plain = count_asm(X, np.random.default_rng(0), order=order)
    assert fast.chosen == plain.chosen
    assert fast.k == plain.k
    assert fast.silhouette == pytest.approx(plain.silhouette, abs=1e-12)
