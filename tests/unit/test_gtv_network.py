"""Rounds of the network: synchrony, independence at alpha = 0, F and its potential, Proposition 1, stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import (
    Bounds,
    Certificate,
    Graph,
    Neighbour,
    Progress,
    Report,
    Settings,
    Stop,
    Totals,
    advance,
    certificate,
    complete,
    edge_discrepancies,
    erdos_renyi,
    from_edges,
    kmeans_start,
    measure,
    network,
    node,
    ring,
    status,
    total,
)
from fedcluster_app.mixtures import Mixture

DISCREPANCIES = ["mmd", "kl", "euclidean"]
Tables = dict[str, np.ndarray]


def draws(number: int, receiver: str, sender: str) -> np.random.Generator:
    return np.random.default_rng([number, *receiver.encode(), *sender.encode()])


def problem(
    n_sites: int, k: int, *, d: int = 2, rows: int = 40, seed: int = 0, edge_weight: float = 1.0
) -> tuple[Tables, dict[str, Mixture], Graph]:
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(k, d))
    names = [f"s{i}" for i in range(n_sites)]
    tables = {name: centers[rng.integers(k, size=rows)] + rng.normal(size=(rows, d)) for name in names}
    starts = {name: kmeans_start(X, k, rng, Bounds()).mixture for name, X in tables.items()}
    graph = erdos_renyi(names, 0.5, rng)
    return tables, starts, Graph(graph.names, graph.edges, (edge_weight,) * len(graph.edges))


def assert_same(a: Mixture, b: Mixture) -> None:
    for name in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
@pytest.mark.parametrize("update", ["gradient", "em"])
def test_alpha_zero_is_every_site_alone_bit_for_bit(discrepancy: str, update: str) -> None:
    tables, starts, graph = problem(4, 3)
    settings = Settings(discrepancy=discrepancy, update=update, alpha=0.0)
    result = network.run(tables, starts, graph, settings, draws, Stop(max_rounds=6))
    for name, X in tables.items():
        alone = node.init(starts[name], settings.bounds)
        for _ in range(6):
            alone = node.step(alone, X, {}, settings)
        assert_same(result.mixtures[name], alone.mixture)
    assert result.trace[-1].coupling == 0


def test_a_round_uses_the_models_of_the_round_before() -> None:
    tables, starts, graph = problem(5, 2)
    settings = Settings(alpha=2.0)
    before = network.step(network.init(starts, graph, settings), tables, graph, settings)
    after = network.step(before, tables, graph, settings)
    for name, X in tables.items():
        near = {
            other: Neighbour(before.nodes[other].mixture, weight)
            for other, weight in graph.neighbours(name).items()
        }
        assert_same(after.nodes[name].mixture, node.step(before.nodes[name], X, near, settings).mixture)


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
def test_relabelling_the_components_of_one_site_changes_nothing(discrepancy: str) -> None:
    tables, starts, graph = problem(4, 3)
    settings = Settings(discrepancy=discrepancy)
    own, order = starts["s1"], np.array([2, 0, 1])
    relabelled = Mixture(own.weights[order], own.means[order], own.covariances[order])
    one = network.run(tables, starts, graph, settings, draws, Stop(max_rounds=4))
    two = network.run(tables, {**starts, "s1": relabelled}, graph, settings, draws, Stop(max_rounds=4))
    for name in tables:
        a, b = one.mixtures[name], two.mixtures[name]
        same = order if name == "s1" else np.arange(3)
        np.testing.assert_allclose(a.means[same], b.means, atol=1e-9)
        np.testing.assert_allclose(a.weights[same], b.weights, atol=1e-9)
        np.testing.assert_allclose(a.covariances[same], b.covariances, atol=1e-9)


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
def test_the_order_of_the_sites_and_of_the_rows_does_not_matter(discrepancy: str) -> None:
    tables, starts, graph = problem(4, 2)
    settings = Settings(discrepancy=discrepancy)
    one = network.run(tables, starts, graph, settings, draws, Stop(max_rounds=3))
    backwards = (dict(reversed(tables.items())), dict(reversed(starts.items())))
    two = network.run(*backwards, graph, settings, draws, Stop(max_rounds=3))
    rows = {name: X[::-1] for name, X in tables.items()}
    three = network.run(rows, starts, graph, settings, draws, Stop(max_rounds=3))
    for name in tables:
        assert_same(one.mixtures[name], two.mixtures[name])
        np.testing.assert_allclose(one.mixtures[name].means, three.mixtures[name].means, atol=1e-10)
    assert one.trace == two.trace


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
def test_totals_of_the_reports_are_the_definition(discrepancy: str) -> None:
    tables, starts, graph = problem(5, 2, edge_weight=0.5)
    settings = Settings(discrepancy=discrepancy, alpha=0.8)
    state = network.init(starts, graph, settings)
    for number in range(3):
        mixtures = {name: own.mixture for name, own in state.nodes.items()}
        expected = measure(tables, mixtures, graph, settings, lambda i, j, number=number: draws(number, i, j))
        state = network.step(state, tables, graph, settings, draws)
        found = state.progress.trace[-1]
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert found.coupling == pytest.approx(expected.coupling, rel=1e-9)
        assert found.objective == pytest.approx(expected.objective, rel=1e-9)
        assert found.potential == pytest.approx(expected.potential, rel=1e-9)
    assert expected.objective - expected.potential == pytest.approx(0.8 * expected.coupling)
    assert np.isnan(expected.mapping)


def test_f_counts_every_edge_from_both_ends() -> None:
    tables, starts, graph = problem(4, 2, edge_weight=0.5)
    settings = Settings(alpha=0.8)
    between = dict(zip(graph.edges, edge_discrepancies(starts, graph, settings), strict=True))
    rows = sum(
        weight * between[min(name, other), max(name, other)]
        for name in graph.names
        for other, weight in graph.neighbours(name).items()
    )
    measured = measure(tables, starts, graph, settings)
    assert measured.objective == pytest.approx(measured.loss + 0.8 * rows, rel=1e-12)


def test_proposition_1_holds_for_the_potential() -> None:
    tables, starts, graph = problem(6, 3)
    settings = Settings(step_size=0.01, local_steps=1, guard=False)
    state = network.init(starts, graph, settings)
    for _ in range(301):
        state = network.step(state, tables, graph, settings)
    trace = state.progress.trace
    potential = np.array([totals.potential for totals in trace])
    squared = np.square([totals.mapping for totals in trace])[:-1]
    assert (potential[:-1] - potential[1:] >= 0.005 * squared - 1e-13).all()
    checks = [certificate(trace[: t + 2]) for t in range(len(trace) - 1)]
    assert all(check.holds(0.01) for check in checks)
    assert checks[-1].mean_squared_mapping == pytest.approx(squared.mean())
    assert 0.2 * checks[-1].bound(0.01) < checks[-1].mean_squared_mapping <= checks[-1].bound(0.01)


def test_f_itself_may_rise_while_the_potential_falls() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(40, 1)), rng.normal(size=(40, 1)) + 3
    start = Mixture(np.ones(1), np.array([[1.5]]), np.ones((1, 1, 1)))
    graph, settings = ring(["a", "b"]), Settings(local_steps=1, guard=False, alpha=0.5)
    state = network.init({"a": start, "b": start}, graph, settings)
    for _ in range(60):
        state = network.step(state, {"a": left, "b": right}, graph, settings)
    objective = np.array([totals.objective for totals in state.progress.trace])
    potential = np.array([totals.potential for totals in state.progress.trace])
    assert (np.diff(potential) <= 1e-13).all()
    assert (np.diff(objective) > 1e-6).any()


def test_a_certificate_that_does_not_hold_says_so() -> None:
    assert not Certificate(first=5.0, last=4.9, squared=30.0, rounds=2).holds(0.01)
    assert Certificate(first=5.0, last=4.0, squared=30.0, rounds=2).holds(0.01)
    empty = Certificate(first=5.0, last=5.0)
    assert empty.holds(0.01)
    assert np.isnan(empty.bound(0.01))
    assert np.isnan(empty.mean_squared_mapping)


def test_a_certificate_knows_what_it_applies_to() -> None:
    tables, starts, graph = problem(4, 2)
    plain = Settings(local_steps=1, step_size=0.01)
    certificates = {}
    for alpha in (1.0, 300.0):
        settings = replace(plain, alpha=alpha)
        certificates[alpha] = certificate(
            network.run(tables, starts, graph, settings, stop=Stop(max_rounds=5)).trace
        )
    assert certificates[1.0].halvings == 0 < certificates[300.0].halvings
    assert not certificates[300.0].applies(plain)
    assert certificates[1.0].applies(plain)
    assert certificates[1.0].applies(replace(plain, discrepancy="euclidean"))
    for change in ({"discrepancy": "kl"}, {"local_steps": 2}, {"update": "em"}):
        assert not certificates[1.0].applies(replace(plain, **change))


def test_the_certificate_holds_for_the_euclidean_discrepancy_too() -> None:
    tables, starts, graph = problem(5, 3)
    settings = Settings(discrepancy="euclidean", local_steps=1, step_size=0.005, guard=False)
    trace = network.run(tables, starts, graph, settings, stop=Stop(max_rounds=60, tolerance=0.0)).trace
    for t in range(2, len(trace)):
        check = certificate(trace[:t])
        assert check.applies(settings)
        assert check.holds(0.005)


@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean"])
@pytest.mark.parametrize("update", ["gradient", "em"])
def test_a_stronger_coupling_brings_neighbours_together(discrepancy: str, update: str) -> None:
    tables, starts, graph = problem(4, 2)
    spreads = []
    for alpha in (0.0, 0.3, 3.0):
        settings = Settings(discrepancy=discrepancy, update=update, alpha=alpha)
        result = network.run(tables, starts, graph, settings)
        spreads.append(edge_discrepancies(result.mixtures, graph, settings).sum())
    assert spreads[0] > 1.5 * spreads[1]
    assert spreads[1] > 1.5 * spreads[2]


def test_kl_brings_neighbours_together() -> None:
    tables, starts, graph = problem(4, 2)
    spreads = []
    for alpha in (0.0, 1.0):
        result = network.run(tables, starts, graph, Settings(discrepancy="kl", alpha=alpha), draws)
        spreads.append(edge_discrepancies(result.mixtures, graph, Settings()).sum())
    assert spreads[0] > 1.5 * spreads[1]


@pytest.mark.parametrize("discrepancy", DISCREPANCIES)
def test_one_site_two_sites_and_unequal_counts(discrepancy: str) -> None:
    settings = Settings(discrepancy=discrepancy)
    tables, starts, _ = problem(1, 2)
    alone = network.run(tables, starts, ring(tables), settings, draws, Stop(max_rounds=2))
    assert alone.status == "max_rounds"
    tables, starts, graph = problem(2, 3, rows=3)
    assert graph.edges == (("s0", "s1"),)
    network.run(tables, starts, graph, settings, draws, Stop(max_rounds=3))
    tables, starts, graph = problem(3, 1, d=1)
    rng = np.random.default_rng(0)
    for k, name in enumerate(tables, start=1):
        starts[name] = kmeans_start(tables[name], k, rng, settings.bounds).mixture
    result = network.run(tables, starts, complete(tables), settings, draws, Stop(max_rounds=5))
    assert [mixture.n_components for mixture in result.mixtures.values()] == [1, 2, 3]


def test_an_island_is_not_moved_by_the_others() -> None:
    tables, starts, _ = problem(4, 2)
    settings = Settings(alpha=5.0)
    whole = from_edges([("s0", "s1"), ("s2", "s3")], connected=False)
    result = network.run(tables, starts, whole, settings, stop=Stop(max_rounds=3))
    pair = {name: tables[name] for name in ("s0", "s1")}
    half = network.run(
        pair, {name: starts[name] for name in pair}, ring(pair), settings, stop=Stop(max_rounds=3)
    )
    for name in pair:
        assert_same(result.mixtures[name], half.mixtures[name])


def two_sites(start: float) -> tuple[Tables, dict[str, Mixture]]:
    """One component each, apart by twice the start; the rows of both lie around it."""
    rng = np.random.default_rng(5)
    tables = {"a": rng.normal(size=(40, 2)) - start, "b": rng.normal(size=(40, 2)) + start}
    return tables, {name: kmeans_start(X, 1, rng, Bounds()).mixture for name, X in tables.items()}


def test_the_bound_on_alpha_is_where_two_sites_turn_from_approach_to_flight() -> None:
    tables, starts = two_sites(0.2)
    graph, gaps = ring(tables), {}
    for share in (0.9, 1.1):
        wide = Bounds(mean_radius=1e12, variance_ceiling=1e12)
        settings = Settings(
            discrepancy="euclidean", alpha=share * 25.0, guard=False, local_steps=1, bounds=wide
        )
        state = network.NetworkState({name: node.init(starts[name], wide) for name in graph.names})
        for _ in range(60):
            # The node's own check is what is on trial here.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Settings, "check_degree", lambda *_: None)
                state = network.step(state, tables, graph, settings)
        gaps[share] = state.progress.trace[-1].coupling
    assert gaps[0.9] < 0.1
    assert gaps[1.1] > 1e4
    network.init(starts, graph, Settings(discrepancy="euclidean", alpha=24.9, guard=False))
    with pytest.raises(ConfigError, match="= 25, got 25"):
        network.init(starts, graph, Settings(discrepancy="euclidean", alpha=25.0, guard=False))


STAR = [("s0", f"s{i}") for i in range(1, 5)]


@pytest.mark.parametrize("graph", [ring([f"s{i}" for i in range(5)]), from_edges(STAR), ring(["s0", "s1"])])
@pytest.mark.parametrize("update", ["gradient", "em"])
@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean"])
@pytest.mark.parametrize("alpha", [1.0, 30.0, 500.0])
def test_with_the_guard_the_potential_never_rises(
    graph: Graph, update: str, discrepancy: str, alpha: float
) -> None:
    rng = np.random.default_rng(3)
    centers = 4 * rng.normal(size=(2, 2))
    tables = {
        name: centers[rng.integers(2, size=30)] + 2 * rng.normal(size=2) + rng.normal(size=(30, 2))
        for name in graph.names
    }
    starts = {name: kmeans_start(X, 2, rng, Bounds(), n_init=2).mixture for name, X in tables.items()}
    for steps in (1, 5):
        settings = Settings(discrepancy=discrepancy, update=update, alpha=alpha, local_steps=steps)
        state = network.init(starts, graph, settings)
        for _ in range(12):
            state = network.step(state, tables, graph, settings)
        potential = np.array([totals.potential for totals in state.progress.trace])
        assert (np.diff(potential) <= 1e-12 * np.abs(potential[:-1])).all()
        measured = measure(tables, network.finish(state, Stop()).mixtures, graph, settings).potential
        assert measured <= potential[-1] * (1 + 1e-12)


@pytest.mark.parametrize("update", ["gradient", "em"])
def test_with_the_guard_strongly_coupled_neighbours_do_not_change_places(update: str) -> None:
    tables, starts = two_sites(2.0)
    settings = Settings(discrepancy="euclidean", update=update, alpha=45.0)
    result = network.run(tables, starts, ring(tables), settings, stop=Stop(tolerance=0.0))
    pooled = np.concatenate(list(tables.values())).mean(axis=0)
    for mixture in result.mixtures.values():
        np.testing.assert_allclose(mixture.means[0], pooled, atol=0.3)


def test_sites_and_graph_must_agree_and_alpha_must_not_diverge() -> None:
    _, starts, graph = problem(3, 2)
    with pytest.raises(ConfigError, match="differing in s2, s9"):
        network.init(
            {**{k: v for k, v in starts.items() if k != "s2"}, "s9": starts["s0"]}, graph, Settings()
        )
    with pytest.raises(ConfigError, match="could diverge"):
        network.init(starts, graph, Settings(discrepancy="euclidean", alpha=15.0, guard=False))
    with pytest.raises(ConfigError, match="random stream for every edge"):
        edge_discrepancies(starts, graph, Settings(discrepancy="kl"))


def reports(loss: float, coupling: float, *mappings: float) -> dict[str, Report]:
    n = len(mappings)
    return {f"s{i}": Report(loss / n, coupling / n, mapping, 0) for i, mapping in enumerate(mappings)}


def test_totals_add_up_in_any_order() -> None:
    some = reports(6.0, 1.5, 3.0, 4.0)
    totals = total(some, 2.0)
    assert totals == Totals(loss=6.0, coupling=1.5, alpha=2.0, mapping=5.0)
    assert total(dict(reversed(some.items())), 2.0) == totals
    assert (totals.potential, totals.objective) == (9.0, 12.0)


def test_rounds_stop_by_the_largest_mapping_with_patience() -> None:
    stop = Stop(max_rounds=10, tolerance=0.1, patience=2)
    progress = Progress()
    assert status(progress, stop) == "running"
    progress = advance(progress, reports(1, 1, 0.05, 0.2), 1.0)
    progress = advance(progress, reports(1, 1, 0.05, 0.05), 1.0)
    assert status(progress, stop) == "running"
    progress = advance(progress, reports(1, 1, 0.05, 0.1), 1.0)
    assert status(progress, stop) == "converged"
    assert status(progress, replace(stop, tolerance=0.01, max_rounds=3)) == "max_rounds"


def test_rounds_stop_when_loss_and_disagreement_have_settled() -> None:
    stop = Stop(max_rounds=99, tolerance=0, settled=0.01, patience=2)
    progress = Progress()
    for loss, coupling in ((50.0, 10.0), (40.0, 10.0), (40.1, 10.1)):
        progress = advance(progress, reports(loss, coupling, 9.0), 2.0)
    assert status(progress, stop) == "running"
    assert status(advance(progress, reports(40.2, 10.8, 9.0), 2.0), stop) == "running"
    settled = advance(progress, reports(40.2, 10.0, 9.0), 2.0)
    assert status(settled, stop) == "settled"
    assert status(settled, replace(stop, settled=0.0)) == "running"
    for change in ({"max_rounds": -1}, {"patience": 0}, {"tolerance": float("nan")}):
        with pytest.raises(ConfigError, match="expected at least"):
            replace(stop, **change)
    for change in ({"max_rounds": 2.5}, {"patience": True}):
        with pytest.raises(ConfigError, match="expected a whole number"):
            replace(stop, **change)
    with pytest.raises(ConfigError, match="settled: expected a number, got 'no'"):
        replace(stop, settled="no")


def test_a_converged_run_says_so() -> None:
    tables, starts, graph = problem(3, 1)
    result = network.run(tables, starts, graph, Settings(), stop=Stop(max_rounds=400))
    assert result.status == "converged"
    assert len(result.trace) < 400
