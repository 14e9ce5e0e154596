"""A node's rounds: settings that are refused, the guard, EM steps, and small or strange sites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.gtvmin import Bounds, Neighbour, Report, Settings, descent, kmeans_start, mmd, node
from fedcluster_app.gtvmin.blocks import Blocks, blocks, mixture_of
from fedcluster_app.gtvmin.descent import _em_path, _search, descend, gradient_mapping
from fedcluster_app.gtvmin.projection import project
from fedcluster_app.gtvmin.surrogate import evaluate, freeze
from fedcluster_app.mixtures import Mixture, em

WIDE = Bounds(weight_floor=1e-9, variance_floor=1e-9)
DISCREPANCIES = ["mmd", "kl", "euclidean"]


def draws(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def two_clusters(rng: np.random.Generator, n: int = 60, d: int = 2) -> np.ndarray:
    return rng.normal(size=(n, d)) + 4 * (np.arange(n) % 2)[:, None]


def near(rng: np.random.Generator, *counts: int, d: int = 2) -> dict[str, Neighbour]:
    found = {}
    for i, k in enumerate(counts):
        X = two_clusters(rng, 50, d) + 0.3 * i
        found[f"n{i}"] = Neighbour(kmeans_start(X, k, rng, Bounds()).mixture, 1.0 + i)
    return found


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"discrepancy": "tv"}, "discrepancy: expected one of euclidean, kl, mmd"),
        ({"update": "newton"}, "update: expected one of gradient, em"),
        ({"alpha": -1.0}, "alpha: expected a number of at least 0"),
        ({"alpha": float("inf")}, "alpha: expected a number of at least 0"),
        ({"step_size": 0.0}, "step size: expected a number above 0"),
        ({"alpha": "auto"}, "alpha: expected a number, got 'auto'"),
        ({"step_size": None}, "step size: expected a number, got None"),
        ({"local_steps": 2.5}, "local steps: expected a whole number, got 2.5"),
        ({"samples": True}, "samples: expected a whole number, got True"),
        ({"local_steps": 0}, "local steps: expected at least 1"),
        ({"samples": 0}, "samples: expected at least 1"),
        ({"bandwidths": ()}, "bandwidths: expected at least one number"),
        ({"bandwidths": (1.0, 0.0)}, "bandwidths: expected at least one number, all above 0"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Settings(**change)


def test_an_alpha_that_can_diverge_is_refused_with_its_bound() -> None:
    plain = Settings(discrepancy="euclidean", guard=False)
    with pytest.raises(ConfigError, match=r"1 / \(2 × step size × largest degree\) = 4\.167, got 4"):
        replace(plain, alpha=4.2).check_degree(6.0)
    replace(plain, alpha=4.1).check_degree(6.0)
    for harmless in ({"guard": True}, {"update": "em"}, {"discrepancy": "mmd"}, {"discrepancy": "kl"}):
        replace(plain, alpha=10.0, **harmless).check_degree(6.0)
    rng = np.random.default_rng(0)
    state = node.init(kmeans_start(two_clusters(rng), 2, rng, Bounds()).mixture, Bounds())
    with pytest.raises(ConfigError, match="could diverge"):
        node.step(state, two_clusters(rng), near(rng, 2, 2), replace(plain, alpha=10.0))


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_neighbour_of_no_weight_in_the_sense_of_the_graph_is_refused(weight: float) -> None:
    mixture = near(np.random.default_rng(0), 1)["n0"].mixture
    with pytest.raises(ConfigError, match="weight of a neighbour: expected a number of at least 0"):
        Neighbour(mixture, weight)
    assert Neighbour(mixture, 0.0).weight == 0


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
@pytest.mark.parametrize("update", ["gradient", "em"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 30.0])
def test_with_the_guard_the_surrogate_never_rises(discrepancy: str, update: str, alpha: float) -> None:
    rng = np.random.default_rng(2)
    X, others = two_clusters(rng), near(rng, 2, 3)
    settings = Settings(discrepancy=discrepancy, update=update, alpha=alpha, local_steps=4)
    theta = blocks(node.init(kmeans_start(X, 3, rng, Bounds()).mixture, settings.bounds).mixture)
    surrogate = freeze(X, theta, others, settings, draws)
    before = evaluate(surrogate, theta)
    for _ in range(3):
        theta, _ = descend(surrogate, theta, before, settings)
        after = evaluate(surrogate, theta)
        assert after.value <= before.value + 1e-10
        before = after


@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean"])
def test_the_shift_is_the_weighted_distance_from_the_start_of_the_round(discrepancy: str) -> None:
    rng = np.random.default_rng(13)
    X, others = two_clusters(rng), near(rng, 2, 2)
    settings = Settings(discrepancy=discrepancy)
    start, other = (blocks(kmeans_start(X + i, 2, rng, Bounds()).mixture) for i in range(2))
    shift = freeze(X, start, others, settings).shift
    assert shift is not None
    assert shift(start) == pytest.approx(0.0, abs=1e-13)
    if discrepancy == "mmd":
        expected = 3.0 * mmd.discrepancy(start, other)
    else:
        pairs = zip(vars_of(start), vars_of(other), strict=True)
        expected = 3.0 * sum(np.square(a - b).sum() for a, b in pairs)
    assert shift(other) == pytest.approx(expected, rel=1e-12)


def vars_of(theta: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return theta.weights, theta.means, theta.covariances


@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean"])
def test_the_way_of_a_round_leaves_the_neighbours_room_to_move(discrepancy: str) -> None:
    rng = np.random.default_rng(14)
    X, others = two_clusters(rng), near(rng, 2)
    settings = Settings(discrepancy=discrepancy, update="em", alpha=300.0)
    start = blocks(kmeans_start(X + 1, 2, rng, Bounds()).mixture)
    surrogate = freeze(X, start, others, settings)
    assert surrogate.shift is not None
    before = evaluate(surrogate, start)
    after, halvings = descend(surrogate, start, before, settings)
    assert halvings > 0
    fall = before.value - evaluate(surrogate, after).value
    assert 0 < 300.0 * surrogate.shift(after) <= 0.9 * fall


def test_a_search_that_fails_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(15)
    X = two_clusters(rng)
    theta = blocks(kmeans_start(X, 2, rng, Bounds()).mixture)
    worse = blocks(kmeans_start(X + 9, 2, rng, Bounds()).mixture)
    surrogate = freeze(X, theta, {}, Settings())
    monkeypatch.setattr(descent, "_gradient_path", lambda *_: lambda _: worse)
    after, halvings = descend(surrogate, theta, evaluate(surrogate, theta), Settings())
    assert after is theta
    assert halvings == 20


def test_plain_steps_of_kl_stay_feasible_however_strong_the_coupling() -> None:
    rng = np.random.default_rng(16)
    X = two_clusters(rng)
    state = node.init(kmeans_start(X, 2, rng, Bounds()).mixture, Bounds())
    for _ in range(3):
        settings = Settings(discrepancy="kl", alpha=1e12, guard=False)
        state = node.step(state, X, near(rng, 2), settings, draws)
    assert state.mixture.weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_guard_says_how_often_it_halved() -> None:
    rng = np.random.default_rng(3)
    X = two_clusters(rng)
    state = node.init(kmeans_start(X, 2, rng, Bounds()).mixture, Bounds())
    calm = node.step(state, X, near(rng, 2), Settings(discrepancy="euclidean")).report
    wild = node.step(state, X, near(rng, 2), Settings(discrepancy="euclidean", alpha=500.0)).report
    assert calm is not None
    assert wild is not None
    assert calm.halvings == 0
    assert wild.halvings >= 3


def test_em_alone_is_the_em_of_the_mixture_module_about_the_old_mean() -> None:
    rng = np.random.default_rng(4)
    X = two_clusters(rng, 200)
    start = kmeans_start(X, 2, rng, WIDE).mixture
    state = node.init(start, WIDE)
    settings = Settings(update="em", local_steps=1, bounds=WIDE)
    expected = em.step(em.init(start), X).mixture
    after = node.step(state, X, {}, settings).mixture
    shift = expected.means - start.means
    np.testing.assert_allclose(after.weights, expected.weights, atol=1e-12)
    np.testing.assert_allclose(after.means, expected.means, atol=1e-12)
    between = shift[:, :, None] * shift[:, None, :]
    np.testing.assert_allclose(after.covariances, expected.covariances + between, atol=1e-12)
    for _ in range(300):
        state = node.step(state, X, {}, replace(settings, local_steps=5))
    fixed = em.fit(X, start, tol=1e-14, max_iter=3000, reg_covar=0.0).mixture
    np.testing.assert_allclose(state.mixture.means, fixed.means, atol=1e-5)
    np.testing.assert_allclose(state.mixture.covariances, fixed.covariances, atol=1e-5)


def test_em_with_kl_is_em_on_own_and_drawn_rows() -> None:
    rng = np.random.default_rng(5)
    X, others = two_clusters(rng), near(rng, 2, 2)
    settings = Settings(discrepancy="kl", update="em", local_steps=1, alpha=0.5, bounds=WIDE)
    theta = blocks(kmeans_start(X, 2, rng, WIDE).mixture)
    surrogate = freeze(X, theta, others, settings, draws)
    after, _ = descend(surrogate, theta, evaluate(surrogate, theta), settings)
    pooled = em.step(em.init(mixture_of(theta)), surrogate.rows.T, weights=surrogate.row_weights).mixture
    np.testing.assert_allclose(after.means, pooled.means, atol=1e-12)
    np.testing.assert_allclose(after.weights, pooled.weights, atol=1e-12)
    assert surrogate.row_weights.sum() == pytest.approx(1 + 0.5 * (1 + 2))


def test_em_with_a_euclidean_coupling_takes_the_mean_under_a_gaussian_prior() -> None:
    rng = np.random.default_rng(6)
    X = two_clusters(rng)
    other = kmeans_start(two_clusters(rng) + 1, 1, rng, WIDE).mixture
    settings = Settings(discrepancy="euclidean", update="em", local_steps=1, alpha=2.0, bounds=WIDE)
    start = kmeans_start(X, 1, rng, WIDE).mixture
    surrogate = freeze(X, blocks(start), {"o": Neighbour(other, 3.0)}, settings)
    at = evaluate(surrogate, blocks(start))
    after = _em_path(blocks(start), at, surrogate, settings)(1.0)
    precision = np.linalg.inv(start.covariances[0])
    pull = 2 * 2.0 * 3.0
    expected = np.linalg.solve(
        precision + pull * np.eye(2), precision @ X.mean(axis=0) + pull * other.means[0]
    )
    np.testing.assert_allclose(after.means[0], expected, atol=1e-10)


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
@pytest.mark.parametrize("update", ["gradient", "em"])
@pytest.mark.parametrize(
    ("n", "k", "d"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 5, 2), (40, 1, 3), (40, 4, 1)]
)
def test_small_sites_and_single_components_work(
    discrepancy: str, update: str, n: int, k: int, d: int
) -> None:
    rng = np.random.default_rng([n, k, d])
    X = two_clusters(rng, n, d)
    settings = Settings(discrepancy=discrepancy, update=update)
    state = node.init(kmeans_start(X, k, rng, settings.bounds).mixture, settings.bounds)
    for _ in range(3):
        state = node.step(state, X, near(rng, 1, 3, d=d), settings, draws)
    mixture = state.mixture
    assert mixture.n_components == min(k, n)
    assert np.linalg.eigvalsh(mixture.covariances).min() >= settings.bounds.variance_floor - 1e-12
    assert mixture.weights.min() >= settings.bounds.weight_floor - 1e-12
    assert state.round == 3


@pytest.mark.parametrize("update", ["gradient", "em"])
def test_equal_rows_and_a_constant_column_end_on_the_floor(update: str) -> None:
    settings = Settings(update=update)
    rng = np.random.default_rng(7)
    equal = np.ones((9, 2))
    column = np.column_stack([rng.normal(size=30), np.zeros(30)])
    for X in (equal, column):
        state = node.init(kmeans_start(X, 2, rng, settings.bounds).mixture, settings.bounds)
        for _ in range(4):
            state = node.step(state, X, near(rng, 2), settings)
        assert np.isfinite(state.mixture.means).all()
        assert np.linalg.eigvalsh(state.mixture.covariances).min() == pytest.approx(0.01, rel=0.5)


def test_the_mapping_is_zero_at_a_fixed_point_and_only_there() -> None:
    rng = np.random.default_rng(8)
    X = two_clusters(rng, 100)
    settings = Settings(update="em")
    state = node.init(kmeans_start(X, 2, rng, settings.bounds).mixture, settings.bounds)
    mappings = []
    for _ in range(100):
        state = node.step(state, X, {}, settings)
        assert state.report is not None
        mappings.append(state.report.mapping)
    assert mappings[0] > 1e-3
    assert mappings[-1] < 1e-8
    theta = blocks(state.mixture)
    assert gradient_mapping(theta, evaluate(freeze(X, theta, {}, settings), theta), 0.02, Bounds()) < 1e-8
    elsewhere = evaluate(freeze(X + 1, theta, {}, settings), theta)
    assert gradient_mapping(theta, elsewhere, 0.02, Bounds()) > 0.1


def test_the_mapping_is_the_gradient_where_no_bound_is_near() -> None:
    rng = np.random.default_rng(9)
    X = two_clusters(rng)
    theta = blocks(kmeans_start(X, 2, rng, WIDE).mixture)
    settings = Settings(bounds=WIDE)
    at = evaluate(freeze(X, theta, {}, settings), theta)
    slope = at.gradient.weights - at.gradient.weights.mean()
    squares = sum(np.square(part).sum() for part in (slope, at.gradient.means, at.gradient.covariances))
    assert gradient_mapping(theta, at, 1e-4, WIDE) == pytest.approx(np.sqrt(squares), rel=1e-8)


def test_a_start_is_made_feasible_and_full() -> None:
    start = Mixture(np.array([0.999, 0.001]), np.array([[0.0, 0.0], [300.0, 0.0]]), np.array([1e-5, 1e5]))
    mixture = node.init(start, Bounds()).mixture
    assert mixture.kind == "full"
    expected = project(blocks(start), Bounds())
    np.testing.assert_array_equal(mixture.weights, expected.weights)
    np.testing.assert_allclose(mixture.means[1], [50.0, 0.0])
    with pytest.raises(ConfigError, match="for 2 components"):
        node.init(start, Bounds(weight_floor=0.6))


def test_what_cannot_be_a_round_is_refused() -> None:
    rng = np.random.default_rng(10)
    X = two_clusters(rng)
    state = node.init(kmeans_start(X, 2, rng, Bounds()).mixture, Bounds())
    with pytest.raises(DataError, match="a site without rows"):
        node.step(state, X[:0], {}, Settings())
    with pytest.raises(DataError, match="rows: expected 2 features as in the model, got 1"):
        node.step(state, X[:, :1], {}, Settings())
    with pytest.raises(DataError, match="neighbour n0: expected 2 features, got 3"):
        node.step(state, X, near(rng, 2, d=3), Settings())
    with pytest.raises(ConfigError, match="needs a random stream"):
        node.step(state, X, near(rng, 2), Settings(discrepancy="kl"))


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
def test_the_order_of_the_neighbours_changes_no_bit(discrepancy: str) -> None:
    rng = np.random.default_rng(11)
    X, others = two_clusters(rng), near(rng, 2, 3, 2)
    settings = Settings(discrepancy=discrepancy)
    state = node.init(kmeans_start(X, 2, rng, Bounds()).mixture, Bounds())
    one = node.step(state, X, others, settings, draws)
    two = node.step(state, X, dict(reversed(others.items())), settings, draws)
    np.testing.assert_array_equal(one.mixture.means, two.mixture.means)
    np.testing.assert_array_equal(one.mixture.covariances, two.mixture.covariances)
    assert one.report == two.report
    assert isinstance(one.report, Report)


def test_a_node_stays_where_no_fraction_of_a_step_helps() -> None:
    rng = np.random.default_rng(12)
    X = two_clusters(rng)
    theta = blocks(kmeans_start(X, 2, rng, Bounds()).mixture)
    worse = blocks(kmeans_start(X + 9, 2, rng, Bounds()).mixture)
    surrogate = freeze(X, theta, {}, Settings())
    at = evaluate(surrogate, theta)
    stayed, there, fraction = _search(surrogate, theta, at, lambda _: worse, 1.0)
    assert stayed is theta
    assert there is at
    assert fraction < 1e-5
