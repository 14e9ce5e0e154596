"""Rounds of federated EM: sums of sites add up to EM on all rows, and what is too small does not leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro.cells import stack
from fedcluster_app.aggregation.micro.em import Clusters, Shrinkage
from fedcluster_app.aggregation.micro.refine import (
    ALL,
    add_up,
    advance,
    cell_sums,
    gather,
    is_possible,
    site_sums,
)
from fedcluster_app.mixtures import em
from fedcluster_app.mixtures.densities import log_joint, logsumexp
from fedcluster_app.mixtures.mixture import Mixture

BARE = Shrinkage(0.0, 0.0)


def _any(mass):
    return mass > 0


def _at_least(rows):
    return lambda mass: mass > rows - 1e-6


def _rows(seed, n=240):
    rng = np.random.default_rng(seed)
    return np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def _clusters(k=3, sites=1, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(k, 2)) * 3
    return Clusters(np.full((sites, k), 1 / k), means, np.tile(2.0 * np.eye(2), (k, 1, 1)), np.ones(k))


def test_one_site_makes_an_ordinary_em_step():
    X, clusters = _rows(0), _clusters()
    sets = gather([(ALL, clusters)])
    weights = clusters.weights[0]
    mixture = Mixture(weights, clusters.means, clusters.covariances)
    state = em.init(mixture)
    for _ in range(4):
        sums, weights = site_sums(X, np.zeros(len(X), int), sets, weights, _any)
        before = sets
        sets = advance(sets, add_up([sums]), BARE)
        state = em.step(state, X)
        np.testing.assert_allclose(sets.means, state.mixture.means, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(sets.covariances, state.mixture.covariances, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(weights, state.mixture.weights, rtol=1e-6)
        assert sums.log_likelihood[0] == pytest.approx(state.log_likelihood * len(X))
        assert before is not sets


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_likelihood_never_falls_without_shrinkage(seed):
    rng = np.random.default_rng(seed)
    parts = [_rows(seed + g, n=80) for g in range(3)]
    clusters = _clusters(seed=seed, sites=3)
    sets, weights, trace = gather([(ALL, clusters)]), list(clusters.weights), []
    for _ in range(6):
        sums = []
        for g, X in enumerate(parts):
            made, weights[g] = site_sums(X, rng.integers(2, size=80), sets, weights[g], _any)
            sums.append(made)
        total = add_up(sums)
        trace.append(total.log_likelihood[0])
        sets = advance(sets, total, Shrinkage(0.0, 1e-9))
    assert (np.diff(trace) >= -1e-5).all()


def test_sums_add_over_any_split_of_the_rows():
    X, clusters = _rows(3), _clusters()
    sets = gather([(ALL, clusters)])
    halves = np.zeros(len(X), int)
    whole, _ = site_sums(X, halves, sets, clusters.weights[0], _any)
    parts = [
        site_sums(X[a:b], halves[a:b], sets, clusters.weights[0], _any)[0] for a, b in ((0, 17), (17, 240))
    ]
    together = add_up(parts)
    for name in ("mass", "first", "second", "log_likelihood"):
        np.testing.assert_allclose(getattr(together, name), getattr(whole, name), rtol=1e-9, atol=1e-9)


def test_each_half_is_scored_on_the_other():
    X, clusters = _rows(4), _clusters()
    halves = np.arange(len(X)) % 2
    sets = gather([(ALL, clusters), (0, clusters), (1, clusters)])
    weights = np.tile(clusters.weights[0], 3)
    sums, _ = site_sums(X, halves, sets, weights, _any)
    mixture = Mixture(clusters.weights[0], clusters.means, clusters.covariances)
    for number, half in ((1, 0), (2, 1)):
        inside = logsumexp(log_joint(X[halves == half], mixture), axis=1).sum()
        outside = logsumexp(log_joint(X[halves != half], mixture), axis=1).sum()
        assert sums.log_likelihood[number] == pytest.approx(inside)
        assert sums.held_out[number] == pytest.approx(outside)
        assert sums.mass[sets.of(number)].sum() == pytest.approx(120)
    assert sums.held_out[0] == 0
    assert sums.mass[sets.of(0)].sum() == pytest.approx(240)


def test_a_cluster_of_too_few_rows_gives_them_to_the_others():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(3, 2)) + 50])
    clusters = Clusters(
        np.full((1, 2), 0.5), np.array([[0.0, 0.0], [50.0, 50.0]]), np.tile(np.eye(2), (2, 1, 1)), np.ones(2)
    )
    sets = gather([(ALL, clusters)])
    sums, weights = site_sums(X, np.zeros(43, int), sets, clusters.weights[0], _at_least(5))
    np.testing.assert_allclose(sums.mass, [43, 0])
    assert not sums.first[1].any()
    assert not sums.second[1].any()
    assert 0 < weights[1] < 1e-9
    # It may come back: with four rows allowed to count, it is there again.
    again, _ = site_sums(X, np.zeros(43, int), sets, weights, _at_least(3))
    np.testing.assert_allclose(again.mass, [40, 3], atol=1e-6)


def test_if_all_clusters_are_small_the_largest_takes_every_row():
    X, clusters = _rows(5, n=6), _clusters()
    sums, _ = site_sums(X, np.zeros(6, int), gather([(ALL, clusters)]), clusters.weights[0], _at_least(6))
    assert sorted(sums.mass.round(9)) == [0, 0, 6]


def test_a_half_of_too_few_rows_sends_nothing():
    X, clusters = _rows(6, n=8), _clusters()
    halves = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    sets = gather([(0, clusters), (1, clusters)])
    sums, weights = site_sums(X, halves, sets, np.tile(clusters.weights[0], 2), _at_least(5))
    assert sums.mass[sets.of(0)].sum() == pytest.approx(6)
    assert not sums.mass[sets.of(1)].any()
    assert sums.log_likelihood[1] == sums.held_out[1] == 0
    np.testing.assert_array_equal(weights[sets.of(1)], clusters.weights[0])


def test_sets_do_not_touch_each_other():
    X, a, b = _rows(7), _clusters(2, seed=1), _clusters(4, seed=2)
    halves = np.zeros(len(X), int)
    both = gather([(ALL, a), (ALL, b)])
    sums, weights = site_sums(X, halves, both, np.concatenate([a.weights[0], b.weights[0]]), _any)
    moved = advance(both, add_up([sums]), Shrinkage(3.0, 0.01))
    for number, clusters in enumerate((a, b)):
        alone = gather([(ALL, clusters)])
        single, own = site_sums(X, halves, alone, clusters.weights[0], _any)
        single_moved = advance(alone, add_up([single]), Shrinkage(3.0, 0.01))
        np.testing.assert_allclose(moved.means[both.of(number)], single_moved.means)
        np.testing.assert_allclose(moved.covariances[both.of(number)], single_moved.covariances)
        np.testing.assert_allclose(weights[both.of(number)], own)


def test_sums_that_no_rows_can_have_are_told():
    X, clusters = _rows(8), _clusters()
    sums, _ = site_sums(X, np.zeros(len(X), int), gather([(ALL, clusters)]), clusters.weights[0], _any)
    assert is_possible(sums)
    assert not is_possible(replace(sums, first=sums.first * 100))
    assert not is_possible(replace(sums, second=-sums.second))
    assert not is_possible(replace(sums, mass=-sums.mass))


def _uploads(sites=4, seed=0, rows=160):
    uploads, tables = {}, {}
    for g in range(sites):
        rng = np.random.default_rng([seed, g])
        X = _rows(seed + g, n=rows)
        halves = microcluster.halve(rows, rng, min_rows=5)
        uploads[f"s{g}"] = microcluster.micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
        tables[f"s{g}"] = X, halves
    return uploads, tables


def _rounds(assembly, sets, weights, tables, n):
    own = dict(zip(assembly.names, weights, strict=True))
    for _ in range(n):
        sums = {}
        for name, (X, halves) in tables.items():
            sums[name], own[name] = site_sums(X, halves, sets, own[name], _at_least(5))
        sets = advance(sets, add_up(list(sums.values())), assembly.shrinkage)
    return sets, list(sums.values())


def test_rounds_refine_the_clusters_of_the_assembly():
    uploads, tables = _uploads()
    state = microcluster.step(microcluster.init(), uploads)
    assembly = microcluster.finish(state, microcluster.Settings(), np.random.default_rng(0))
    assert assembly.k_hat == 3
    sets, weights = microcluster.sets_for_rounds(assembly)
    assert weights.shape == (4, 3)
    sets, sums = _rounds(assembly, sets, weights, tables, 5)
    after = microcluster.after_rounds(assembly, sets, sums)
    truth = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    gaps = np.square(after.clusters.means[:, None] - truth).sum(axis=2)
    assert np.sqrt(gaps.min(axis=0)).max() < 0.3
    assert after.clusters.masses.sum() == pytest.approx(640)
    assert after.k_hat == 3
    assert after.refined is None


def test_rows_vote_after_rounds():
    uploads, tables = _uploads()
    state = microcluster.step(microcluster.init(), uploads)
    assembly = microcluster.finish(state, microcluster.Settings(k_rule="bic"), np.random.default_rng(0))
    sets, weights = microcluster.sets_for_votes(state, assembly, np.random.default_rng(0))
    assert set(sets.rows.tolist()) == {ALL, 0, 1}
    assert weights.shape == (4, len(sets.means))
    np.testing.assert_allclose(weights.sum(axis=1), len(sets.rows))
    sets, sums = _rounds(assembly, sets, weights, tables, 3)
    after = microcluster.after_rounds(assembly, sets, sums)
    # Three clusters, on the coarse grid 1, 2, 5, 10...: two are too few, five lose nothing.
    assert after.k_hat == after.refined.fewest == 5
    assert after.tied[0] == 5
    assert "after federated EM" in after.words[-1]


def test_micro_clusters_of_single_rows_give_the_sums_of_the_rows():
    X, clusters = _rows(9), _clusters()
    halves = np.arange(len(X)) % 2
    sets = gather([(ALL, clusters), (0, clusters), (1, clusters)])
    weights = np.tile(clusters.weights[0], 3)
    cells = stack({"a": microcluster.MicroClusters(halves, np.ones(len(X)), X, np.zeros_like(X))})
    found, after = cell_sums(cells, sets, weights)
    expected, own = site_sums(X, halves, sets, weights, _any)
    for name, part in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), part, rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(after, own)


def test_sums_of_micro_clusters_hold_all_the_rows_and_their_variance():
    uploads, tables = _uploads(sites=1)
    X, _ = tables["s0"]
    clusters = _clusters()
    sets = gather([(ALL, clusters)])
    sums, _ = cell_sums(stack(uploads), sets, clusters.weights[0])
    assert is_possible(sums)
    assert sums.mass.sum() == pytest.approx(len(X))
    total = sums.first.sum(axis=0) + sums.mass @ clusters.means
    np.testing.assert_allclose(total, X.sum(axis=0), rtol=1e-9, atol=1e-9)
    raw = np.einsum("mii->mi", sums.second) + 2 * sums.first * clusters.means
    raw = (raw + sums.mass[:, None] * np.square(clusters.means)).sum(axis=0)
    np.testing.assert_allclose(raw, np.square(X).sum(axis=0), rtol=1e-9)
