"""Invariances of the three discrepancies: symmetry, zero at equality, any numbering of the components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin import euclidean, kl, mmd
from fedcluster_app.gtvmin.blocks import Blocks

FAST = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**32 - 1)


def some_blocks(rng: np.random.Generator, d: int) -> Blocks:
    k = int(rng.integers(1, 6))
    roots = rng.normal(size=(k, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(d)
    return Blocks(rng.dirichlet(np.ones(k)), 3 * rng.normal(size=(k, d)), covariances)


def relabelled(theta: Blocks, rng: np.random.Generator) -> Blocks:
    order = rng.permutation(len(theta.weights))
    return Blocks(theta.weights[order], theta.means[order], theta.covariances[order])


def pair(seed: int) -> tuple[Blocks, Blocks, np.random.Generator]:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    return some_blocks(rng, d), some_blocks(rng, d), rng


@pytest.mark.parametrize("value", [euclidean.discrepancy, mmd.discrepancy])
@given(seed=seeds)
@FAST
def test_symmetric_zero_at_equality_and_blind_to_numbering(value, seed: int) -> None:
    p, q, rng = pair(seed)
    between = value(p, q)
    assert between >= 0
    assert value(q, p) == pytest.approx(between, rel=1e-10, abs=1e-13)
    assert value(relabelled(p, rng), relabelled(q, rng)) == pytest.approx(between, rel=1e-10, abs=1e-13)
    assert value(p, relabelled(p, rng)) == pytest.approx(0.0, abs=1e-13)


@given(seed=seeds)
@FAST
def test_kl_draws_the_same_rows_whatever_the_numbering(seed: int) -> None:
    p, q, rng = pair(seed)
    one, density = kl.draw([q, p], [np.random.default_rng(1), np.random.default_rng(2)], 20)
    two, again = kl.draw(
        [relabelled(q, rng), relabelled(p, rng)], [np.random.default_rng(1), np.random.default_rng(2)], 20
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(density, again)
    alone, _ = kl.draw([p], [np.random.default_rng(2)], 20)
    np.testing.assert_array_equal(alone, one[:, 20:])
    assert kl.discrepancy(p, p, rng) == pytest.approx(0.0, abs=1e-10)
    first, second = (kl.discrepancy(t, q, np.random.default_rng(3)) for t in (p, relabelled(p, rng)))
    assert first == pytest.approx(second, rel=1e-10, abs=1e-10)


@given(seed=seeds)
@FAST
def test_kl_draws_the_same_rows_where_weights_and_means_tie(seed: int) -> None:
    p, _, rng = pair(seed)
    k, d = p.means.shape
    tied = Blocks(np.full(k, 1 / k), np.zeros((k, d)), p.covariances)
    one, two = (kl.draw([t], [np.random.default_rng(1)], 20)[0] for t in (tied, relabelled(tied, rng)))
    np.testing.assert_array_equal(one, two)
    # Shares that differ by rounding alone leave the order of the components, and so the rows, as they are.
    even = Blocks(tied.weights, p.means, p.covariances)
    nudged = Blocks(even.weights * (1 + 1e-15 * rng.choice([-1, 1], size=k)), p.means, p.covariances)
    one, two = (kl.draw([t], [np.random.default_rng(1)], 20)[0] for t in (even, nudged))
    np.testing.assert_allclose(one, two, atol=1e-12)


@given(seed=seeds)
@FAST
def test_mmd_is_bounded_and_splitting_a_component_changes_nothing(seed: int) -> None:
    p, q, _ = pair(seed)
    value = mmd.discrepancy(p, q)
    assert value <= 2 * len(mmd.BANDWIDTHS)
    share = np.concatenate([0.3 * p.weights[:1], 0.7 * p.weights[:1], p.weights[1:]])
    split = Blocks(
        share,
        np.concatenate([p.means[:1], p.means]),
        np.concatenate([p.covariances[:1], p.covariances]),
    )
    assert mmd.discrepancy(split, q) == pytest.approx(value, rel=1e-10, abs=1e-13)


@given(seed=seeds)
@FAST
def test_an_empty_component_costs_nothing(seed: int) -> None:
    p, q, _ = pair(seed)
    padded = Blocks(
        np.append(p.weights, 0.0),
        np.concatenate([p.means, p.means[:1] + 50]),
        np.concatenate([p.covariances, 9 * p.covariances[:1]]),
    )
    assert euclidean.discrepancy(p, padded) == pytest.approx(0.0, abs=1e-10)
    assert mmd.discrepancy(padded, q) == pytest.approx(mmd.discrepancy(p, q), abs=1e-12)


@given(seed=seeds)
@FAST
def test_the_pull_of_neighbours_is_blind_to_their_numbering_and_adds_up(seed: int) -> None:
    p, q, rng = pair(seed)
    other = some_blocks(rng, p.means.shape[1])
    for freeze_all, pull in (
        (lambda near, w: mmd.freeze(near, w), mmd.pull),
        (lambda near, w: euclidean.freeze(p, near, w), euclidean.pull),
    ):
        both = pull(freeze_all([q, other], [0.5, 2.0]), p)
        again = pull(freeze_all([relabelled(other, rng), relabelled(q, rng)], [2.0, 0.5]), p)
        single = [pull(freeze_all([q], [0.5]), p), pull(freeze_all([other], [2.0]), p)]
        assert both.value == pytest.approx(again.value, rel=1e-9, abs=1e-12)
        assert both.value == pytest.approx(single[0].value + single[1].value, rel=1e-9, abs=1e-12)
        for name in ("weights", "means", "covariances"):
            whole = getattr(both.gradient, name)
            parts = sum(getattr(one.gradient, name) for one in single)
            np.testing.assert_allclose(whole, parts, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(whole, getattr(again.gradient, name), rtol=1e-8, atol=1e-10)
