"""Rounds of federated EM: sums of sites add up to EM on all rows, and what is too small does not leave."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro.cells import stack
from fedcluster_app.aggregation.micro.em import Clusters, Shrinkage, fit, from_partition
from fedcluster_app.aggregation.micro.path import starts, whitening
from fedcluster_app.aggregation.micro.refine import (
    ALL,
    add_up,
    advance,
    cell_sums,
    gather,
    is_possible,
    site_sums,
)
from fedcluster_app.aggregation.micro.rounds import cell_bounds
from fedcluster_app.aggregation.micro.votes import Votes
from fedcluster_app.mixtures import em
from fedcluster_app.mixtures.densities import log_joint, logsumexp
from fedcluster_app.mixtures.mixture import Mixture
from strategies.microcluster_rounds import _departure
from strategies.plausible import Totals

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


def _far_apart(*sizes):
    """Return rows of clusters 50 apart on a line, and these clusters."""
    rng = np.random.default_rng(0)
    means = 50.0 * np.arange(len(sizes))[:, None] * np.ones(2)
    X = np.concatenate([mean + rng.normal(size=(n, 2)) for mean, n in zip(means, sizes, strict=True)])
    k = len(sizes)
    return X, Clusters(np.full((1, k), 1 / k), means, np.tile(np.eye(2), (k, 1, 1)), np.ones(k))


def test_too_few_rows_in_all_give_themselves_to_the_others():
    X, clusters = _far_apart(40, 3)
    sets = gather([(ALL, clusters)])
    sums, weights = site_sums(X, np.zeros(43, int), sets, clusters.weights[0], _at_least(5))
    np.testing.assert_allclose(sums.mass, [43, 0])
    assert not sums.first[1].any()
    assert not sums.second[1].any()
    # The site knows better, and with three rows allowed to count it says so.
    np.testing.assert_allclose(weights, [40 / 43, 3 / 43], atol=1e-6)
    again, _ = site_sums(X, np.zeros(43, int), sets, weights, _at_least(3))
    np.testing.assert_allclose(again.mass, [40, 3], atol=1e-6)


def test_clusters_of_too_few_rows_are_left_out_where_together_they_have_enough():
    X, clusters = _far_apart(40, 3, 4)
    sets, halves = gather([(ALL, clusters)]), np.zeros(47, int)
    sums, weights = site_sums(X, halves, sets, clusters.weights[0], _at_least(5))
    full, _ = site_sums(X, halves, sets, clusters.weights[0], _any)
    np.testing.assert_allclose(sums.mass, [40, 0, 0], atol=1e-6)
    for name in ("first", "second"):
        np.testing.assert_array_equal(getattr(sums, name)[0], getattr(full, name)[0])
        assert not getattr(sums, name)[1:].any()
    assert sums.log_likelihood[0] == full.log_likelihood[0]
    np.testing.assert_allclose(weights, np.array([40, 3, 4]) / 47, atol=1e-6)


def test_if_all_clusters_are_small_nothing_of_the_set_is_sent():
    X, clusters = _far_apart(3, 3)
    sums, weights = site_sums(
        X, np.zeros(6, int), gather([(ALL, clusters)]), clusters.weights[0], _at_least(5)
    )
    assert not any(part.any() for part in (sums.mass, sums.first, sums.second))
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 9), n=st.integers(5, 60), least=st.integers(1, 8))
def test_neither_what_is_sent_nor_what_is_left_out_has_too_few_rows(seed, k, n, least):
    X, clusters = _rows(seed, n=n), _clusters(k, seed=seed)
    sums, _ = site_sums(X, np.zeros(n, int), gather([(ALL, clusters)]), clusters.weights[0], _at_least(least))
    left = n - sums.mass.sum()
    for mass in (*sums.mass, left):
        assert abs(mass) < 1e-9 or mass > least - 1e-5


def test_clusters_that_are_small_at_most_sites_keep_their_shape():
    rng = np.random.default_rng(0)
    truth = 8.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    clusters = Clusters(np.full((1, 4), 0.25), truth + 1, np.tile(4.0 * np.eye(2), (4, 1, 1)), np.ones(4))
    sets = gather([(ALL, clusters)])
    weights = np.full((40, 4), 0.25)
    # Each site has one large class, and three of three rows.
    tables = [np.repeat(truth, np.where(np.arange(4) == g % 4, 20, 3), axis=0) for g in range(40)]
    tables = [X + rng.normal(size=X.shape) for X in tables]
    for _ in range(5):
        parts = []
        for g, X in enumerate(tables):
            part, weights[g] = site_sums(X, np.zeros(len(X), int), sets, weights[g], _at_least(5))
            parts.append(part)
        sets = advance(sets, add_up(parts), BARE)
    # Had the classes of three rows been given to the large one, it would be some 14 wide and not 1.
    np.testing.assert_allclose(sets.means, truth, atol=0.25)
    np.testing.assert_allclose(sets.covariances, np.tile(np.eye(2), (4, 1, 1)), atol=0.35)


def test_a_half_of_too_few_rows_sends_nothing():
    X, clusters = _rows(6, n=8), _clusters(1)
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


def test_sums_that_leave_rows_out_must_leave_what_can_be_rows():
    X, clusters = _far_apart(40, 3, 4)
    sums, _ = site_sums(X, np.zeros(47, int), gather([(ALL, clusters)]), clusters.weights[0], _at_least(5))
    expected = Totals(47.0, X.mean(axis=0), X.var(axis=0))
    mean = clusters.means[0] + sums.first[0] / 40
    variance = np.diagonal(sums.second[0]) / 40 - np.square(sums.first[0] / 40)
    told = Totals(40.0, mean, variance)
    assert _departure(expected, told) is None
    assert "no 7 rows can be" in _departure(expected, replace(told, mean=mean + 60))
    assert "no 7 rows can be" in _departure(expected, replace(told, variance=variance + 1e4))
    assert "they hold 48 rows" in _departure(expected, replace(told, rows=48.0))
    # Where nothing is left out, all must agree.
    assert _departure(expected, expected) is None
    assert "mean" in _departure(expected, replace(expected, mean=expected.mean + 1))


def test_a_set_of_which_no_site_has_enough_rows_ends_as_it_was():
    uploads, tables = _uploads()
    state = microcluster.step(microcluster.init(), uploads)
    assembly = microcluster.finish(state, microcluster.Settings(), np.random.default_rng(0))
    sets, weights = microcluster.sets_for_rounds(assembly)
    X, halves = tables["s0"]
    nothing, _ = site_sums(X, halves, sets, weights[0], _at_least(159))
    assert not nothing.mass.any()
    after = microcluster.after_rounds(assembly, advance(sets, nothing, assembly.shrinkage), [nothing])
    np.testing.assert_array_equal(after.clusters.means, assembly.clusters.means)
    np.testing.assert_allclose(after.clusters.global_weights, 1 / 3)


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


@pytest.mark.parametrize(
    ("hold", "k_hat", "small"), [(1, 1, True), (2, 3, True), (4, 1, True), (4, 3, False), (3, 2, False)]
)
def test_rows_are_asked_where_cells_see_one_cluster_or_two(hold, k_hat, small):
    assembly = SimpleNamespace(votes=Votes(k_hat, hold, 1, hold, None, None), k_hat=k_hat)
    assert microcluster.classes_are_small(assembly) == small
    assert not microcluster.classes_are_small(SimpleNamespace(votes=None, k_hat=1))


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
    # Three clusters: the coarse grid 1, 2, 5, 10 has them because micro-clusters made them likely.
    assert after.k_hat == after.refined.careful(4) == 3
    assert after.tied[0] == 3
    assert after.words[0].startswith(
        "of 1, 2, 3, 5, 10, 15 clusters, after federated EM at each, rows held out"
    )
    assert "votes: hold " in after.words[1]
    assert "micro-clusters alone made it 3" in after.words[1]
    assert len(after.words) == 2


def test_sets_for_votes_start_from_cuts_of_ward_trees_alone():
    uploads, _ = _uploads()
    state = microcluster.step(microcluster.init(), uploads)
    assembly = microcluster.finish(state, microcluster.Settings(), np.random.default_rng(0))
    sets, _ = microcluster.sets_for_votes(state, assembly, np.random.default_rng(0))
    cells = stack(uploads)
    scale = whitening(cells)
    for rows, part, scales, steps in (
        (ALL, cells, (np.ones(2), scale), 25),
        (1, cells.take(cells.halves == 1), (scale,), 12),
    ):
        shrinkage = Shrinkage.of(part)
        cuts = [starts(part, (one,), np.random.default_rng(0)).cuts(5)[0] for one in scales]
        fits = [fit(part, from_partition(part, cut, shrinkage), shrinkage, max_iter=steps) for cut in cuts]
        expected = max(fits, key=lambda found: found.log_likelihood).clusters
        number = next(n for n, half in enumerate(sets.rows) if half == rows and sets.of(n).sum() == 5)
        np.testing.assert_allclose(sets.means[sets.of(number)], expected.means, rtol=1e-9, atol=1e-9)


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


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), narrow=st.floats(-4, 1))
def test_log_likelihoods_of_rows_are_within_the_bounds_of_their_micro_clusters(seed, k, narrow):
    rng = np.random.default_rng(seed)
    X = _rows(seed, n=60) @ np.array([[1.0, 1.0], [0.0, 10.0**narrow]])
    halves = microcluster.halve(60, rng, min_rows=5)
    made = microcluster.micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=15, most=3)
    turns = np.linalg.qr(rng.normal(size=(k, 2, 2)))[0]
    covariances = turns * 10.0 ** rng.uniform(-3, 1, size=(k, 1, 2)) @ np.swapaxes(turns, 1, 2)
    clusters = Clusters(np.full((1, k), 1 / k), X[:k] + rng.normal(size=(k, 2)), covariances, np.ones(k))
    sets = gather([(ALL, clusters), (0, clusters), (1, clusters)])
    weights = rng.dirichlet(np.full(k, 0.2), size=3).ravel() + 1e-9
    low, high = cell_bounds(stack({"a": made}), sets)
    sums, _ = site_sums(X, halves, sets, weights, _any)
    told = np.stack([sums.log_likelihood, sums.held_out])
    assert (low <= told + 1e-6).all()
    assert (told <= high + 1e-6).all()
    assert low[1, 0] == high[1, 0] == 0


def test_the_upper_bound_is_reached_by_rows_that_are_all_at_the_peak():
    X, clusters = np.ones((20, 2)), _clusters(1)
    clusters = replace(clusters, means=np.ones((1, 2)))
    made = microcluster.MicroClusters(np.zeros(2, int), np.full(2, 10.0), np.ones((2, 2)), np.zeros((2, 2)))
    sets = gather([(ALL, clusters), (1, clusters)])
    _, high = cell_bounds(stack({"a": made}), sets)
    sums, _ = site_sums(X, np.zeros(20, int), sets, np.ones(2), _at_least(5))
    assert high[0, 0] == pytest.approx(sums.log_likelihood[0])
    # A half without rows has nothing to say.
    assert not high[:, 1].any()
    assert sums.log_likelihood[1] == sums.held_out[1] == 0
