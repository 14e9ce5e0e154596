"""GTV-Pool over sites in one process: a site hears its neighbours alone; the rounds are those in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gtv_runs import asked
from numpy.typing import NDArray
from pool_runs import rounds, run

from fedcluster_app import coupling
from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import pool_network
from fedcluster_app.gtvmin.graph import from_edges
from fedcluster_app.messages import AskLabels, AskPoolEnd, AskPoolStart
from fedcluster_app.results.load import load_model
from fedcluster_app.results.tables import exchange_line, report
from fedcluster_app.server_app import strategy_of
from fedcluster_app.streams import stream
from simulations.federation import LocalRun
from strategies.gtvpool import GTVPool

Blobs = Callable[..., NDArray[np.float64]]
Sites = Callable[..., list[dict[str, Any]]]
ReadClusters = Callable[[Path], NDArray[np.int64]]
SIZES = {"a": (40, 50, 60), "b": (30, 30, 30), "c": (40, 0, 40), "d": (0, 60, 30)}


@pytest.fixture
def four_sites(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    """Sites a to d of three clusters; c and d lack one."""
    tables = {name: blobs(seed, *SIZES[name]) for seed, name in enumerate(SIZES)}
    return csv_sites(tables, labels={name: np.repeat([0, 1, 2], SIZES[name]) for name in SIZES})


def table_of(node: dict[str, Any]) -> NDArray[np.float64]:
    return np.genfromtxt(node["data-path"], delimiter=",", skip_header=1, usecols=(0, 1))


def details(one: LocalRun) -> dict[str, Any]:
    return {site.name: site.details for site in one.outcome.sites}


def status(one: LocalRun) -> dict[str, str]:
    return {site.name: site.status for site in one.outcome.sites}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"components": "auto"},
        {"pool_mode": "full", "pool_uniform": "on"},
        {"pool_mode": "fast", "seed": 3},
    ],
)
def test_messages_give_what_the_network_in_memory_gives(
    four_sites: list[dict[str, Any]], values: dict[str, Any]
) -> None:
    one = run(four_sites, min_count=6, **values)
    config, scaling = one.strategy.config, one.strategy.state.agreement.scaling
    tables = {node["site-name"]: scaling.apply(table_of(node)) for node in four_sites}
    graph, settings = one.strategy.state.laid.graph, coupling.pooling_of(config.pool, 6)

    def draws(number: int, name: str) -> np.random.Generator:
        return stream(config.seed, name, "pool", number)

    state = pool_network.init(tables, config.mixture.components, graph, draws, settings)
    for number, asks in enumerate(rounds(one)):
        for name, ask in asks.items():
            for other, summary in ask.summaries.items():
                np.testing.assert_allclose(summary.counts, state.mail[other].counts, atol=1e-9)
                np.testing.assert_allclose(summary.means, state.mail[other].means, atol=1e-9)
            assert set(ask.neighbours) == set(graph.neighbours(name)), number
        state = pool_network.step(state, tables, graph, draws, settings)
    for name, result in pool_network.finish(state, tables, graph, settings).items():
        end = one.strategy.state.ends[name]
        np.testing.assert_array_equal(end.places, result.places)
        for part in ("weights", "means", "covariances"):
            found, expected = getattr(end.mixture, part), getattr(result.mixture, part)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
            np.testing.assert_array_equal(getattr(one.outcome.model.mixtures[name], part), found)
        assert details(one)[name]["trust"] == pytest.approx(result.rates, abs=1e-3)
        assert end.evidence == pytest.approx(result.evidence, abs=1e-3)
        tables_there = np.concatenate([result.attachments[other] for other in one.strategy.state.heard[name]])
        np.testing.assert_allclose(end.attached, tables_there[:, result.places], atol=1e-9)
    assert one.outcome.details["rounds"] == 4


def test_a_site_hears_its_neighbours_and_nobody_else(
    four_sites: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,0.5\nc,d,2\n")
    one = run(four_sites, graph=str(path))
    graph = from_edges([("a", "b", 1.0), ("b", "c", 0.5), ("c", "d", 2.0)])
    assert set(dict(asked(one, AskPoolStart))) == set("abcd")
    everywhere = [*rounds(one), dict(asked(one, AskPoolEnd))]
    assert len(everywhere) == 5
    for asks in everywhere:
        assert list(asks) == ["a", "b", "c", "d"]
        told: dict[str, Any] = {}
        for name, ask in asks.items():
            assert set(ask.neighbours) == set(graph.neighbours(name))
            # All that hear a site hear the same of it, and no rows but its own.
            for other, summary in ask.summaries.items():
                assert summary.counts.sum() <= sum(SIZES[other]) + 1e-9
                np.testing.assert_array_equal(told.setdefault(other, summary).means, summary.means)
    for name, ask in asked(one, AskLabels):
        np.testing.assert_array_equal(ask.means, one.outcome.model.mixtures[name].means)
        assert len(ask.means) == details(one)[name]["components"]


def test_the_order_of_arrival_changes_nothing(four_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    saved = []
    for turn, arrange in enumerate((lambda replies: replies, lambda replies: replies[::-1])):
        nodes = four_sites if turn == 0 else four_sites[::-1]
        one = run(nodes, components="auto", graph="complete", arrange=arrange)
        one.outcome.model.save(tmp_path / f"{turn}.npz")
        saved.append(((tmp_path / f"{turn}.npz").read_bytes(), one.outcome.details, details(one)))
    assert saved[0] == saved[1]


@pytest.mark.parametrize("values", [{"pool_rounds": "auto"}, {"pool_mode": "full"}])
def test_clusters_are_numbered_alike_at_all_sites(
    four_sites: list[dict[str, Any]], clusters_in: ReadClusters, tmp_path: Path, values: dict[str, Any]
) -> None:
    one = run(four_sites, graph="complete", components="auto", **values)
    outcome = one.outcome
    assert outcome.status == "finished"
    assert outcome.k_hat == 3
    assert outcome.scores["ari"] == pytest.approx(1.0)
    found = {node["site-name"]: clusters_in(node["labels-path"]) for node in four_sites}
    # Number 0 has most rows: 160 around 16, then 140 around 8, and 110 around 0.
    usual = [2, 1, 0]
    for name, sizes in SIZES.items():
        np.testing.assert_array_equal(found[name], np.repeat(usual, sizes))
    sites = details(one)
    assert sites["a"]["k_g"] == 3
    assert sites["a"]["personal_ari"] == pytest.approx(1.0)
    assert 0 <= outcome.scores["center_error"] < 1
    outcome.model.save(tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    for node in four_sites:
        predicted = model.predict(table_of(node), site=node["site-name"])
        np.testing.assert_array_equal(predicted, found[node["site-name"]])


def test_pooling_brings_a_small_site_near_the_mixture_of_all(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {"few": blobs(9, 7, 7, 7)} | {name: blobs(seed, 90, 90, 90) for seed, name in enumerate("abc")}
    nodes = csv_sites(tables)
    one = run(nodes, graph="complete")
    helped, scaling = one.outcome.model.mixtures["few"], one.strategy.state.agreement.scaling
    centres = scaling.apply(np.array([[0.0, 0.0], [8.0, 8.0], [16.0, 16.0]]))
    own = scaling.apply(np.stack([part.mean(axis=0) for part in np.split(tables["few"], 3)]))

    def error(means: NDArray[np.float64]) -> float:
        return float(np.abs(means[means[:, 0].argsort()] - centres).max())

    assert error(helped.means) < 0.5 * error(own)


def test_one_component_beside_nine(csv_sites: Sites, blobs: Blobs) -> None:
    many = blobs(0, *[20] * 9)
    nodes = csv_sites({"nine": many, "one": blobs(1, 60), "two": blobs(2, 0, 30, 0, 40)})
    for components in ("auto", 1):
        one = run(nodes, components=components, graph="complete")
        assert status(one) == dict.fromkeys(("nine", "one", "two"), "ok")
        if components == 1:
            assert {site["k_g"] for site in details(one).values()} == {1}
    one = run(nodes, components="auto", pool_rounds="auto", graph="complete")
    assert details(one)["nine"]["k_g"] >= 7
    assert one.outcome.k_hat >= 7


def test_a_site_with_few_rows_labels_by_its_neighbours(
    csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters
) -> None:
    nodes = csv_sites({"a": blobs(0, 40, 50, 60), "b": blobs(1, 30, 30, 30), "few": blobs(2, 1, 1, 1)})
    one = run(nodes, graph="complete")
    assert status(one) == {"a": "ok", "b": "ok", "few": "receives only"}
    for asks in (*rounds(one), dict(asked(one, AskPoolEnd))):
        assert "few" not in asks
        assert all("few" not in ask.neighbours for ask in asks.values())
    few, first = clusters_in(nodes[2]["labels-path"]), clusters_in(nodes[0]["labels-path"])
    np.testing.assert_array_equal(few, [np.bincount(part).argmax() for part in np.split(first, [40, 90])])


def test_nothing_of_too_few_rows_leaves_a_site(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {"a": blobs(0, 40, 50, 4), "b": blobs(1, 30, 3, 30), "c": blobs(2, 30, 30, 30)}
    one = run(csv_sites(tables), graph="complete")
    withheld = {"a": 0, "b": 0, "c": 0}
    for asks in (*rounds(one), dict(asked(one, AskPoolEnd))):
        for ask in asks.values():
            for other, summary in ask.summaries.items():
                small = summary.counts < 5 - 1e-6
                assert not summary.counts[small].any()
                assert not summary.means[small].any()
                assert not summary.covariances[small].any()
                missing = len(tables[other]) - summary.counts.sum()
                assert abs(missing) < 1e-6 or missing > 5 - 1e-6
                withheld[other] += int(small.sum())
    assert withheld["a"] > 0 < withheld["b"]
    assert withheld["c"] == 0
    # All three clusters are still found at every site, where need be by neighbours.
    assert one.outcome.k_hat == 3


def test_the_sites_own_least_count_counts_too(three_sites: list[dict[str, Any]]) -> None:
    nodes = [three_sites[0] | {"min-count": 45}, *three_sites[1:]]
    one = run(nodes, graph="complete")
    counts = rounds(one)[0]["b"].summaries["a"].counts
    # 40 may not be seen, and with 40 alone missing they would be the difference.
    assert np.count_nonzero(counts) == 2
    assert counts.sum() == pytest.approx(150 - 45, abs=1.0)


@pytest.mark.parametrize("graph", ["ring", "complete", "erdos-renyi", "nearest", "sbm"])
def test_graphs_by_rule(four_sites: list[dict[str, Any]], graph: str) -> None:
    one = run(four_sites, graph=graph, graph_nearest=1, graph_blocks=2, pool_rounds=1)
    laid = one.strategy.state.laid.graph
    assert laid.names == ("a", "b", "c", "d")
    least = {"ring": 4, "complete": 6, "erdos-renyi": 4, "nearest": 2, "sbm": 2}[graph]
    assert len(laid.edges) >= least
    assert [tuple(edge["sites"]) for edge in one.outcome.details["edges"]] == list(laid.edges)
    for name, ask in rounds(one)[0].items():
        assert set(ask.neighbours) == set(laid.neighbours(name))


def test_a_graph_file_may_name_sites_that_are_away(four_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"edges": [["a", "b"], ["b", "gone"], ["gone", "c"]]}))
    one = run(four_sites, graph=str(path))
    assert one.strategy.state.laid.graph.edges == (("a", "b"),)
    told = "; ".join(one.outcome.warnings)
    assert "the graph names sites gone, which are not here" in told
    assert "sites c, d have no neighbour here" in told
    assert status(one) == dict.fromkeys("abcd", "ok")
    assert details(one)["c"]["trust"] == {}
    assert details(one)["c"]["uses"] == []
    with pytest.raises(ConfigError, match="cannot read"):
        run(four_sites, graph=str(tmp_path / "none.csv"))


def test_trust_and_uses_are_told(csv_sites: Sites, blobs: Blobs) -> None:
    near = {name: blobs(seed, 60, 60, 60) for seed, name in enumerate("ab")}
    far = {name: blobs(seed, 60, 60, 60) + np.array([60.0, -60.0]) for seed, name in enumerate("xy")}
    one = run(csv_sites(near | far), graph="complete")
    sites = details(one)
    for name, kin, strangers in (("a", "b", "xy"), ("x", "y", "ab")):
        assert set(sites[name]["trust"]) == {kin, *strangers}
        assert sites[name]["trust"][kin] > 0.9
        assert max(sites[name]["trust"][other] for other in strangers) < 0.1
        used = sites[name]["uses"]
        assert {use["neighbour"] for use in used} == {kin}
        assert sorted(use["component"] for use in used) == sorted(use["own"] for use in used) == [0, 1, 2]
        mixtures = one.outcome.model.mixtures
        for use in used:
            assert 0.9 < use["probability"] <= 1
            there, here = mixtures[kin].means[use["component"]], mixtures[name].means[use["own"]]
            np.testing.assert_allclose(there, here, atol=0.1)
            assert sites[name]["clusters"][use["own"]] == sites[kin]["clusters"][use["component"]]
    edges = {tuple(edge["sites"]): edge["trust"] for edge in one.outcome.details["edges"]}
    assert edges["a", "b"] == [sites["a"]["trust"]["b"], sites["b"]["trust"]["a"]]
    assert one.outcome.k_hat == 6
    told = next(sentence for sentence in one.outcome.words if "without a common component" in sentence)
    assert told.startswith("4 edges join")
    assert "a - x, a - y, b - x, b - y" in told
    assert "4 edges join sites" in report(one.outcome)


def test_what_leaves_a_site_is_in_its_ledger(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites)
    lines = [json.loads(line) for line in Path(four_sites[0]["ledger-path"]).read_text().splitlines()]
    assert [line["message"] for line in lines] == ["hello", *["pool.summary"] * 5, "pool.end", "labelled"]
    assert set(lines[1]["arrays"]) == {"counts", "means", "covariances"}
    assert set(lines[1]["scalars"]) == {"wire", "kind", "change", "evidence"}
    assert lines[1]["arrays"]["covariances"]["shape"] == [3, 3]
    assert set(lines[6]["arrays"]) == {
        *("weights", "means", "covariances", "counts", "places"),
        *("trust", "attached"),
    }
    up = {site.name: site.bytes_up for site in one.outcome.sites}
    for record in one.trace:
        assert sum(down for down, _ in record.by_site.values()) == record.bytes_down
        assert sum(up for _, up in record.by_site.values()) == record.bytes_up
    assert sum(line["bytes"] for line in lines) == pytest.approx(up["a"], rel=0.01)


def test_every_exchange_has_its_figures(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites)
    phases = [record.phase for record in one.trace]
    assert phases == ["hello", "start", *(f"round {number}" for number in range(1, 5)), "end", "labels"]
    inside = one.trace[1:-1]
    assert all(set(record.figures) == {"evidence", "change"} for record in inside)
    assert inside[0].figures["change"] == 0
    # What neighbours are worth: the same rows are told better once they are heard.
    assert inside[-1].figures["evidence"] > inside[0].figures["evidence"]
    assert "log evidence of a row" in exchange_line(inside[0])
    assert "moved" in exchange_line(inside[0])
    assert one.trace[-1].figures == {"k_hat": one.outcome.k_hat}
    rows = sum(sum(sizes) for sizes in SIZES.values())
    mean = sum(details(one)[name]["evidence"] * sum(SIZES[name]) for name in SIZES) / rows
    assert mean == pytest.approx(inside[-1].figures["evidence"], abs=0.05)


def test_the_server_class_is_found_by_its_name() -> None:
    assert strategy_of(parse_run_config({"method": "gtvpool"})) is GTVPool
    with pytest.raises(ConfigError, match=r"method 'gtvpool' takes init = kmeans, got 'asm'"):
        strategy_of(parse_run_config({"method": "gtvpool", "init": "asm"}))


def test_one_site_alone(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites[:1], graph="erdos-renyi", min_sites=1, components="auto")
    assert one.outcome.k_hat == 3
    assert one.outcome.warnings == ()
    assert one.outcome.details == {"rounds": 0, "stopped_by": "no edge", "edges": []}
    assert one.outcome.scores["ari"] == pytest.approx(1.0)


def test_sites_of_one_row_take_part(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {
        "a": blobs(0, 20, 20, 20),
        "b": blobs(1, 20, 20, 20),
        "one": [[0.0, 0.0]],
        "same": [[8.0, 8.0]] * 9,
    }
    nodes = [node | {"min-count": 1} for node in csv_sites(tables)]
    for graph in ("complete", "nearest"):
        one = run(nodes, min_count=1, graph=graph, components="auto")
        assert {site.status for site in one.outcome.sites} == {"ok"}
        assert set(one.outcome.model.mixtures) == {"a", "b", "one", "same"}


@pytest.mark.parametrize("values", [(0.1, 0.1, 0.1), (0.1, 0.3, 1 / 3)])
def test_a_column_may_be_constant(csv_sites: Sites, blobs: Blobs, values: tuple[float, ...]) -> None:
    tables = {
        name: np.column_stack([blobs(seed, 20, 20, 20), np.full(60, value)])
        for (seed, name), value in zip(enumerate("abc"), values, strict=True)
    }
    one = run(csv_sites(tables), graph="complete")
    assert status(one) == dict.fromkeys("abc", "ok")
    assert not any(record.failed for record in one.trace)
    assert set(one.outcome.model.mixtures) == set("abc")


def test_early_stop_when_nothing_moves(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites, pool_rounds=60, pool_tolerance=0.05)
    assert one.outcome.details["stopped_by"] == "settled"
    # Not before round 5, and after two quiet rounds.
    assert 5 <= one.outcome.details["rounds"] < 20
    quiet = [record.figures["change"] for record in one.trace[2:-2]]
    assert len(quiet) == one.outcome.details["rounds"]
    assert max(quiet[-2:]) < 0.05
    short = run(four_sites, pool_rounds=2)
    assert (short.outcome.details["stopped_by"], short.outcome.details["rounds"]) == ("max_rounds", 2)


@pytest.mark.parametrize(("mode", "most"), [("fast", 4), ("lean", 8)])
def test_a_mode_has_its_rounds(four_sites: list[dict[str, Any]], mode: str, most: int) -> None:
    one = run(four_sites, pool_mode=mode, pool_rounds="auto")
    assert one.outcome.details["rounds"] == most
