"""What a pooling node lets out: by brute force, from released things alone, and nothing of hidden rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.gtvmin import pool
from fedcluster_app.gtvmin.niw import moments_of, row_moments, summaries_of
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_model import Models, Rows, lone, rows_of
from fedcluster_app.gtvmin.pool_release import Release, Shown, mixture_of, release, shown
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolState
from fedcluster_app.gtvmin.pool_weights import draw_weights
from fedcluster_app.mixtures import Mixture

FAST = settings(deadline=None, derandomize=True, max_examples=200)
ALL = PoolSettings(min_count=0.0)
CENTERS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 7.0]])
A0 = ALL.concentration
NOTHING = Release(np.zeros((3, 3, 3)), np.zeros((3, 0)), np.zeros((0, 0)))


def table(seed: int, *sizes: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.repeat(CENTERS[: len(sizes)], sizes, axis=0) + rng.normal(size=(sum(sizes), 2)) + [3.0, -2.0]


def by_label(rows: Rows, labels: np.ndarray) -> Models:
    """Models of the three groups, with covariances of the rows."""
    own = np.array([row_moments(rows.X[labels == c]).sum(axis=0) for c in range(3)])[None]
    counts, means, covariances = summaries_of(own)
    one = np.ones(1)
    return lone(
        counts / counts.sum(), means, covariances + 0.1 * np.eye(2), np.eye(2)[None], one, one, own, one
    )


def released_by(models: Models, rows: Rows, least: float) -> Release:
    return release(models, rows, replace(ALL, min_count=least))


def told(models: Models, rows: Rows, least: float) -> np.ndarray:
    return released_by(models, rows, least).moments


def pooled(*sizes: int, min_count: float = 5.0) -> tuple[PoolState, np.ndarray, Rows]:
    """A node of clusters of these sizes, after a round with two neighbours that have all three."""
    X, chosen = table(0, *sizes), replace(ALL, min_count=min_count)
    heard = {
        name: pool.message(pool.init(table(seed, 30, 30, 30), 3, chosen, np.random.default_rng(seed)))
        for seed, name in ((1, "b"), (2, "c"))
    }
    state = pool.init(X, 3, chosen, np.random.default_rng(5))
    return pool.step(state, X, heard, chosen, np.random.default_rng(6)), X, rows_of(X)


@given(
    sizes=st.lists(st.integers(0, 14), min_size=3, max_size=3).filter(lambda sizes: sum(sizes) >= 3),
    seed=st.integers(0, 9),
    least=st.integers(1, 6),
)
@FAST
def test_nothing_small_is_released_and_nothing_small_is_missing(
    sizes: list[int], seed: int, least: int
) -> None:
    X = table(seed, *sizes)
    rows = rows_of(X)
    models = pool.init(X, 3, ALL, np.random.default_rng(seed)).models
    counts = told(models, rows, float(least))[:, 0, 0]
    assert ((counts == 0) | (counts >= least - 1e-6)).all()
    missing, small = len(X) - counts.sum(), models.own[0, :, 0, 0] < least - 1e-6
    if not counts.any():
        return
    assert abs(missing) < 1e-6 or missing >= least - 1e-6
    if not small.any():
        np.testing.assert_array_equal(told(models, rows, float(least)), told(models, rows, 0.0))
    elif (counts > 0).sum() == (~small).sum():
        # No more rows are left out than that takes, but for a part of one.
        assert missing < max(models.own[0, small, 0, 0].sum(), least) + 1 + 0.1


def test_a_few_rows_are_not_missing_alone() -> None:
    X = table(0, 40, 30, 2)
    rows = rows_of(X)
    models = by_label(rows, np.repeat([0, 1, 2], [40, 30, 2]))
    own = told(models, rows, 5.0)
    assert own[2, 0, 0] == 0
    assert own[:, 0, 0].sum() == pytest.approx(67, abs=0.1)
    # What is missing is of two rows around (0, 7) and three of other clusters.
    rest = row_moments(rows.X).sum(axis=0) - own.sum(axis=0)
    assert rest[0, 0] == pytest.approx(5, abs=0.1)
    assert np.linalg.norm(rest[0, 1:] / rest[0, 0] + rows.origin - [3.0, 5.0]) > 2.0
    # Enough that are missing may be missing alone.
    models = by_label(rows, np.repeat([0, 1, 2, 2], [40, 20, 10, 2]))
    kept = told(models, rows, 12.5)
    assert not kept[2].any()
    assert kept[:, 0, 0].sum() == pytest.approx(72 - 12.5, abs=1.1)
    np.testing.assert_array_equal(told(models, rows, 1.0), told(models, rows, 0.0))


def test_rows_of_junk_are_no_difference_either() -> None:
    X = np.concatenate([table(0, 40, 30), [[60.0, 60.0], [-60.0, 70.0]]])
    rows = rows_of(X, uniform=True)
    models = replace(by_label(rows, np.repeat([0, 1, -1], [40, 30, 2])), junk=np.array([0.03]))
    junk = len(X) - told(models, rows, 0.0)[:, 0, 0].sum()
    assert junk == pytest.approx(2.0, abs=0.5)
    missing = len(X) - told(models, rows, 5.0)[:, 0, 0].sum()
    assert 5.0 - 1e-6 <= missing < 6.1
    np.testing.assert_array_equal(told(models, rows, 0.5), told(models, rows, 0.0))


def test_what_is_said_is_of_the_nodes_own_rows() -> None:
    X = table(0, 20, 12, 9)
    rows, labels = rows_of(X), np.repeat([0, 1, 2], [20, 12, 9])
    state = PoolState(by_label(rows, labels), rows.origin, NOTHING, {}, {}, 0.0)
    said = pool.message(replace(state, release=released_by(state.models, rows, 9.0)))
    np.testing.assert_allclose(said.counts, [20, 12, 9])
    np.testing.assert_allclose(said.means, [X[labels == c].mean(axis=0) for c in range(3)], rtol=1e-4)
    np.testing.assert_allclose(
        said.covariances, [np.cov(X[labels == c].T, bias=True) for c in range(3)], rtol=1e-4
    )
    said = pool.message(replace(state, release=released_by(state.models, rows, 10.0)))
    assert said.counts[2] == 0
    assert not said.means[2].any()
    assert not said.covariances[2].any()


def seen_of(models: Models, rows: Rows, least: float) -> Shown:
    return shown(models, told(models, rows, least), rows, A0)


def reference(own: np.ndarray, lent: np.ndarray, spread: float, s: float, origin: np.ndarray) -> Shown:
    """The mixture of totals by the formulas of the specification, component by component."""
    totals, d = own + lent, own.shape[1] - 1
    scatters, counts = np.zeros((len(totals), d, d)), totals[:, 0, 0]
    for c, moments in enumerate(totals):
        if counts[c] > 0:
            scatters[c] = moments[1:, 1:] - np.outer(moments[0, 1:], moments[0, 1:]) / counts[c]
    size = counts.sum()
    within = scatters.sum(axis=0) / max(size - (counts > 1).sum(), size / 2) + 1e-3 * spread / d * np.eye(d)
    weights = draw_weights(own[None, :, 0, 0], lent[None, :, 0, 0], A0)[0][0]
    places = [c for c in range(len(totals)) if counts[c] >= 0.5]
    means = np.array([totals[c, 0, 1:] / counts[c] + origin for c in places])
    covariances = np.array([(s * within + scatters[c]) / (s + counts[c]) for c in places])
    return Shown(Mixture(weights[places] / weights[places].sum(), means, covariances), np.array(places))


def assert_same(found: Shown, expected: Shown) -> None:
    np.testing.assert_array_equal(found.places, expected.places)
    for part in ("weights", "means", "covariances"):
        np.testing.assert_allclose(
            getattr(found.mixture, part), getattr(expected.mixture, part), atol=1e-9, err_msg=part
        )


def test_where_all_may_be_seen_it_is_the_nodes_own_mixture() -> None:
    state, _, rows = pooled(40, 30, 20, min_count=0.0)
    models, found = state.models, seen_of(state.models, rows, 0.0)
    np.testing.assert_array_equal(found.places, [0, 1, 2])
    np.testing.assert_allclose(found.mixture.means, state.mixture.means, atol=1e-12)
    np.testing.assert_allclose(found.mixture.weights, state.mixture.weights, atol=1e-12)
    # The common covariance alone is renewed: S = (s W + scatter) / (s + n).
    s, counts = models.strength[0], models.totals[0, :, 0, 0]
    totals = models.totals[0]
    expected = reference(models.own[0], totals - models.own[0], rows.spread, s, rows.origin)
    moved = found.mixture.covariances - state.mixture.covariances
    drawn = moved * ((s + counts) / s)[:, None, None]
    np.testing.assert_allclose(drawn, np.broadcast_to(drawn[0], drawn.shape), atol=1e-9)
    assert_same(found, expected)


def reader(summary: Summary, models: Models, X: np.ndarray) -> Shown:
    """The same mixture, by one who has only what was said and what the neighbours sent."""
    greeting = np.trace(np.cov(X.T, bias=True))  # all rows together are known from the greeting
    seen = summary.counts[:, None] > 0
    own = moments_of(summary.counts, (summary.means - X.mean(axis=0)) * seen, summary.covariances)
    if not (own[:, 0, 0] + models.discount[0] * models.borrowed[0, :, 0, 0] >= 0.5).any():
        own[0] = len(X) * moments_of(np.ones(1), np.zeros((1, X.shape[1])), np.cov(X.T, bias=True)[None])[0]
    return reference(
        own, models.discount[0] * models.borrowed[0], greeting, models.strength[0], X.mean(axis=0)
    )


@pytest.mark.parametrize(
    ("sizes", "hidden"),
    [((40, 30, 20), 0), ((40, 30, 2), 1), ((40, 3, 3), 2), ((40, 2, 4), 2), ((3, 3, 3), 3)],
)
def test_the_mixture_is_a_function_of_what_is_known_alone(sizes: tuple[int, ...], hidden: int) -> None:
    state, X, rows = pooled(*sizes)
    said = pool.message(state)
    assert (said.counts == 0).sum() == hidden
    assert_same(seen_of(state.models, rows, 5.0), reader(said, state.models, X))


def test_a_hidden_component_is_seen_as_neighbours_alone_have_it() -> None:
    state, _, rows = pooled(40, 3, 3)
    found, lent = seen_of(state.models, rows, 5.0), state.models.borrowed[0]
    hidden = state.models.own[0, found.places, 0, 0] < 5.0
    assert hidden.sum() == 2
    for position, c in enumerate(found.places):
        if hidden[position]:
            np.testing.assert_allclose(
                found.mixture.means[position], lent[c, 0, 1:] / lent[c, 0, 0] + rows.origin
            )


def test_a_node_alone_with_small_components_is_one_gaussian() -> None:
    X = table(0, 3, 3, 3)
    rows = rows_of(X)
    state = pool.init(X, 3, ALL, np.random.default_rng(0))
    found = seen_of(state.models, rows, 5.0)
    np.testing.assert_array_equal(found.places, [0])
    np.testing.assert_allclose(found.mixture.weights, [1.0])
    np.testing.assert_allclose(found.mixture.means[0], X.mean(axis=0))
    # (s W + n C) / (s + n), W the same rows' covariance about one mean, and the ridge.
    n, s, C = len(X), state.models.strength[0], np.cov(X.T, bias=True)
    within = n * C / (n - 1) + 1e-3 * np.trace(C) / 2 * np.eye(2)
    np.testing.assert_allclose(found.mixture.covariances[0], (s * within + n * C) / (s + n))


def test_components_that_nothing_stands_behind_are_not_shown() -> None:
    X = table(0, 12)
    rows = rows_of(X)
    own = np.zeros((1, 3, 3, 3))
    own[0, 1] = row_moments(rows.X).sum(axis=0)
    one = np.ones(1)
    models = lone(
        np.full((1, 3), 1 / 3),
        np.zeros((1, 3, 2)),
        np.tile(np.eye(2), (1, 3, 1, 1)),
        np.eye(2)[None],
        one,
        one,
        own,
        one,
    )
    found = shown(models, own[0], rows, A0)
    np.testing.assert_array_equal(found.places, [1])
    assert found.mixture.weights.sum() == pytest.approx(1.0)


def test_a_mixture_is_made_of_what_was_released() -> None:
    X = table(0, 20, 12, 9)
    labels, d = np.repeat([0, 1, 2], [20, 12, 9]), 2
    groups = [X[labels == c] for c in (0, 1)]
    said = Summary(
        np.array([20.0, 0.0, 12.0]),
        np.array([groups[0].mean(axis=0), [0, 0], groups[1].mean(axis=0)]),
        np.array([np.cov(groups[0].T, bias=True), np.zeros((2, 2)), np.cov(groups[1].T, bias=True)]),
    )
    found = mixture_of(said)
    assert found is not None
    np.testing.assert_array_equal(found.places, [0, 2])
    np.testing.assert_allclose(found.mixture.weights, [20 / 32, 12 / 32])
    np.testing.assert_allclose(found.mixture.means, said.means[[0, 2]])
    scatters = [len(group) * np.cov(group.T, bias=True) for group in groups]
    spread = np.trace(np.cov(np.concatenate(groups).T, bias=True))
    within = sum(scatters) / (32 - 2) + 1e-3 * spread / d * np.eye(d)
    for covariance, scatter, group in zip(found.mixture.covariances, scatters, groups, strict=True):
        np.testing.assert_allclose(covariance, ((d + 1) * within + scatter) / (d + 1 + len(group)))


def test_nothing_released_is_no_mixture() -> None:
    assert mixture_of(Summary(np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3, 3)))) is None


def test_one_point_is_a_mixture_too() -> None:
    found = mixture_of(Summary(np.array([1.0]), np.array([[2.0, 3.0]]), np.zeros((1, 2, 2))))
    assert found is not None
    np.testing.assert_allclose(found.mixture.means, [[2.0, 3.0]])
    assert np.linalg.eigvalsh(found.mixture.covariances[0]).min() > 0


def test_covariances_of_no_rows_are_refused() -> None:
    crooked = np.array([[[1.0, 9.0], [9.0, 1.0]]])
    with pytest.raises(ValueError, match="positive definite"):
        mixture_of(Summary(np.array([50.0]), np.zeros((1, 2)), crooked))


def like(rows: Rows, rng: np.random.Generator, k: int) -> Models:
    """Models of k components near the clusters, or two of one."""
    means = rows.X[rng.choice(len(rows.X), k, replace=False)] + 0.3 * rng.normal(size=(k, 2))
    one, width = np.ones(1), rng.uniform(0.3, 3.0)
    return lone(
        np.full((1, k), 1 / k),
        means[None],
        np.tile(width * np.eye(2), (1, k, 1, 1)),
        np.eye(2)[None],
        one,
        one,
        np.zeros((1, k, 3, 3)),
        one,
    )


@given(seed=st.integers(0, 10_000), least=st.integers(1, 6))
@FAST
def test_a_guarded_node_tells_nothing_that_differs_by_a_few_rows(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    rows, told = rows_of(table(seed, 14, 9, 7)), []
    chosen, last = replace(ALL, min_count=float(least), guard=True), None
    models = like(rows, rng, 4)
    for turn in range(4):
        if turn % 2:  # a little later, and then something else
            models = replace(models, means=models.means + 0.05 * rng.normal(size=models.means.shape))
        else:
            models = like(rows, rng, int(rng.integers(2, 5)))
        last = release(models, rows, chosen, last)
        told.append(last.shares)
        counts = last.shares.sum(axis=1)
        assert ((counts == 0) | (counts >= least - 1e-6)).all()
        np.testing.assert_allclose(last.moments[:, 0, 0], counts, atol=1e-9)
    for number, now in enumerate(told):
        away = np.abs(1 - now.sum(axis=0)).sum()
        assert away < 1e-6 or away >= least - 1e-6
        if not number:
            continue
        earlier = np.concatenate(told[:number])
        parts = told[number - 1]
        sums = np.array([np.sum(some, axis=0) for some in subsets(parts)])
        for column in now[now.any(axis=1)]:
            known = np.abs(column - np.concatenate([sums, earlier])).sum(axis=1).min() < 1e-9
            apart = np.abs(column - earlier[earlier.any(axis=1)]).sum(axis=1)
            assert known or apart.min(initial=np.inf) >= least - 1e-6


def subsets(parts: np.ndarray) -> list[list[np.ndarray]]:
    """All sets of shares that are told, the empty one too."""
    found: list[list[np.ndarray]] = [[np.zeros(parts.shape[1])]]
    for part in parts:
        found += [[*some, part] for some in found]
    return found


def test_what_is_joined_is_told_as_the_sum_of_its_parts() -> None:
    X = table(0, 30, 30, 30)
    rows = rows_of(X)
    chosen = replace(ALL, min_count=5.0, guard=True)
    labels = np.repeat([0, 1, 2], 30)
    first = release(by_label(rows, labels), rows, chosen)
    moved = labels.copy()
    moved[:2] = 1  # two rows go over, and two clusters become one
    own = np.array([row_moments(rows.X[np.isin(moved, part)]).sum(axis=0) for part in ((0, 2), (1,))])[None]
    counts, means, covariances = summaries_of(own)
    one = np.ones(1)
    joined = lone(counts / counts.sum(), means, covariances, np.eye(2)[None], one, one, own, one)
    second = release(joined, rows, chosen, first)
    np.testing.assert_allclose(second.moments[0], first.moments[0] + first.moments[2], atol=1e-9)
    np.testing.assert_array_equal(second.moments[1], first.moments[1])
    open_ = release(joined, rows, replace(chosen, guard=False), first)
    assert not np.allclose(open_.moments[1], first.moments[1], atol=1e-3)
