"""Statistics add: over any partition, in any order, with integer weights as repeated rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.mixtures import Kind, Statistics, collect, merge, merge_all

KINDS: tuple[Kind, ...] = ("spherical", "diagonal", "full")
FAST = settings(deadline=None, derandomize=True, max_examples=60)


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a common offset, and responsibilities with hard zeros among them."""
    n, d, k = draw(st.integers(1, 25)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = draw(st.sampled_from([0.0, 1.0, -1e4]))
    R = rng.dirichlet(np.ones(k), size=n) * (rng.random((n, k)) < 0.7)
    return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, size=d) + offset, R


def assert_close(a: Statistics, b: Statistics) -> None:
    np.testing.assert_allclose(a.mass, b.mass, rtol=1e-12, atol=1e-14)
    alive = a.mass > 0
    np.testing.assert_allclose(a.means[alive], b.means[alive], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(a.scatters, b.scatters, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@given(table=tables(), cuts=st.lists(st.integers(0, 25), max_size=5))
@FAST
def test_any_partition_merges_to_the_whole(
    kind: Kind, table: tuple[np.ndarray, np.ndarray], cuts: list[int]
) -> None:
    X, R = table
    edges = [0, *sorted(min(cut, len(X)) for cut in cuts), len(X)]
    parts = [collect(X[a:b], R[a:b], kind) for a, b in pairwise(edges)]
    assert_close(merge_all(parts), collect(X, R, kind))


@pytest.mark.parametrize("kind", KINDS)
@given(table=tables(), cut=st.integers(0, 25))
@FAST
def test_merging_commutes_up_to_rounding(kind: Kind, table: tuple[np.ndarray, np.ndarray], cut: int) -> None:
    X, R = table
    a, b = collect(X[:cut], R[:cut], kind), collect(X[cut:], R[cut:], kind)
    assert_close(merge(a, b), merge(b, a))


@pytest.mark.parametrize("kind", KINDS)
@given(table=tables(), seed=st.integers(0, 2**32 - 1))
@FAST
def test_row_order_does_not_matter(kind: Kind, table: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    X, R = table
    order = np.random.default_rng(seed).permutation(len(X))
    assert_close(collect(X[order], R[order], kind), collect(X, R, kind))


@pytest.mark.parametrize("kind", KINDS)
@given(table=tables(), seed=st.integers(0, 2**32 - 1))
@FAST
def test_integer_weights_are_repeated_rows(
    kind: Kind, table: tuple[np.ndarray, np.ndarray], seed: int
) -> None:
    X, R = table
    weights = np.random.default_rng(seed).integers(0, 4, size=len(X))
    repeated = collect(np.repeat(X, weights, axis=0), np.repeat(R, weights, axis=0), kind)
    assert_close(collect(X, R * weights[:, None], kind), repeated)


@given(table=tables())
@FAST
def test_the_three_kinds_are_traces_of_one_another(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, R = table
    spherical, diagonal, full = (collect(X, R, kind).scatters for kind in KINDS)
    np.testing.assert_allclose(np.diagonal(full, axis1=1, axis2=2), diagonal, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(diagonal.sum(axis=1), spherical, rtol=1e-7, atol=1e-12)
    assert (diagonal >= 0).all()
    assert (spherical >= 0).all()
