"""Invariances of pooling: order of rows, neighbours and components, units and place, any message at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin import pool
from fedcluster_app.gtvmin.niw import Prior, log_evidence, row_moments
from fedcluster_app.gtvmin.pool_message import Summary, receive, summarised
from fedcluster_app.gtvmin.pool_model import rows_of
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolState

FAST = settings(deadline=None, derandomize=True, max_examples=25)
seeds = st.integers(0, 2**32 - 1)
# Other starts draw from a stream in the order of what came, so they are left out where orders change.
PLAIN = PoolSettings(min_count=0.0, start_rounds=())


def problem(seed: int) -> tuple[np.ndarray, dict[str, Summary], np.random.Generator]:
    rng = np.random.default_rng(seed)
    d, k, e = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    centers = 4 * rng.normal(size=(k, d))

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(n) % k
        return centers[labels] + rng.normal(size=(n, d)), labels

    received = {}
    for i in range(e):
        X, labels = rows(15 * k)
        moments = np.stack([row_moments(X[labels == c]).sum(axis=0) for c in range(k)])
        received[f"s{i}"] = summarised(moments, np.full(d, 9.0 * (i == 3)))
    return rows(15 * k)[0], received, rng


def start(X: np.ndarray, k: int, seed: int) -> PoolState:
    return pool.init(X, k, PLAIN, np.random.default_rng(seed))


def shuffled(summary: Summary, order: np.ndarray) -> Summary:
    return Summary(summary.counts[order], summary.means[order], summary.covariances[order])


@given(seed=seeds)
@FAST
def test_the_order_of_neighbours_and_their_components_does_not_matter(seed: int) -> None:
    X, received, rng = problem(seed)
    k = len(received["s0"].counts)
    state = start(X, k, seed)
    orders = {name: rng.permutation(k) for name in received}
    names = rng.permutation(sorted(received)).tolist()
    one = pool.step(state, X, received, PLAIN, rng)
    other = pool.step(state, X, {n: shuffled(received[n], orders[n]) for n in names}, PLAIN, rng)
    np.testing.assert_allclose(other.mixture.means, one.mixture.means, atol=1e-7)
    np.testing.assert_allclose(other.mixture.covariances, one.mixture.covariances, atol=1e-7)
    for name in received:
        assert abs(other.rates[name] - one.rates[name]) < 1e-7
        np.testing.assert_allclose(other.attachments[name], one.attachments[name][orders[name]], atol=1e-7)


@given(seed=seeds)
@FAST
def test_the_order_of_own_components_does_not_matter(seed: int) -> None:
    X, received, rng = problem(seed)
    state = start(X, len(received["s0"].counts), seed)
    order = rng.permutation(state.mixture.n_components)
    own = state.models
    turned = replace(
        own,
        weights=own.weights[:, order],
        means=own.means[:, order],
        covariances=own.covariances[:, order],
        own=own.own[:, order],
        borrowed=own.borrowed[:, order],
    )
    one = pool.step(state, X, received, PLAIN, rng)
    other = pool.step(replace(state, models=turned), X, received, PLAIN, rng)
    np.testing.assert_allclose(other.mixture.means, one.mixture.means[order], atol=1e-7)
    np.testing.assert_allclose(other.mixture.weights, one.mixture.weights[order], atol=1e-7)


@given(seed=seeds, scale=st.floats(0.2, 50.0), place=st.floats(-100.0, 100.0))
@FAST
def test_units_and_place_do_not_matter(seed: int, scale: float, place: float) -> None:
    X, received, rng = problem(seed)
    state = start(X, len(received["s0"].counts), seed)
    there = {
        name: Summary(said.counts, scale * said.means + place, scale**2 * said.covariances)
        for name, said in received.items()
    }
    one = pool.step(state, X, received, PLAIN, rng)
    own = state.models
    models = replace(
        own, means=scale * own.means, covariances=scale**2 * own.covariances, within=scale**2 * own.within
    )
    moved = replace(state, models=models, origin=scale * state.origin + place)
    other = pool.step(moved, scale * X + place, there, PLAIN, rng)
    np.testing.assert_allclose((other.mixture.means - place) / scale, one.mixture.means, atol=1e-5)
    np.testing.assert_allclose(other.mixture.weights, one.mixture.weights, atol=1e-6)
    for name, rate in one.rates.items():
        assert abs(other.rates[name] - rate) < 1e-6


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(data=st.data(), seed=seeds)
@FAST
def test_no_message_breaks_a_node(data: st.DataObject, seed: int) -> None:
    X, received, rng = problem(seed)
    d, k = X.shape[1], len(received["s0"].counts)

    def drawn(*shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(data.draw(st.lists(numbers, min_size=size, max_size=size))).reshape(shape)

    bad = Summary(drawn(2), drawn(2, d), drawn(2, d, d))
    state = start(X, k, seed)
    lively = replace(PLAIN, start_rounds=(1,))
    after = pool.step(state, X, {**received, "bad": bad}, lively, rng)
    mixture = after.mixture  # checks finite values, weights and definiteness
    assert np.isclose(mixture.weights.sum(), 1.0)
    said = pool.message(after)
    assert np.isclose(said.counts.sum(), len(X))
    counts = receive({**received, "bad": bad}, rows_of(X), 20.0).counts
    assert counts.max() <= 20.0 * len(X) + 1e-9


@given(seed=seeds, split=st.integers(1, 9))
@FAST
def test_evidence_of_parts_in_any_order(seed: int, split: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    root = rng.normal(size=(d, d))
    prior = Prior(
        np.array(rng.uniform(0.01, 1)), np.array(d + rng.uniform(0.5, 9)), root @ root.T + np.eye(d)
    )
    rows = row_moments(3 * rng.normal(size=(10, d)))
    a, b = rows[:split].sum(axis=0), rows[split:].sum(axis=0)
    both = log_evidence(a + b, prior)
    shuffled_rows = rows[rng.permutation(10)].sum(axis=0)
    assert abs(both - log_evidence(shuffled_rows, prior)) < 1e-9
    spread = log_evidence(
        np.stack([a, b, a + b]), Prior(*(np.array([p] * 3) for p in (prior.kappa, prior.nu, prior.psi)))
    )
    assert abs(spread[2] - both) < 1e-9
