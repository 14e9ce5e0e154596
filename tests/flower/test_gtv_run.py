"""GTVMin over sites in one process: a site hears only its neighbours, and the rounds are those in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gtv_runs import asked, rounds, run
from numpy.typing import NDArray

from fedcluster_app import coupling
from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import network
from fedcluster_app.gtvmin.graph import Graph, from_edges
from fedcluster_app.messages import AskLabels
from fedcluster_app.results.load import load_model
from fedcluster_app.server_app import strategy_of
from simulations.federation import LocalRun
from strategies.gtvmin import GTVMin

Blobs = Callable[..., NDArray[np.float64]]
Sites = Callable[..., list[dict[str, Any]]]
ReadClusters = Callable[[Path], NDArray[np.int64]]


@pytest.fixture
def four_sites(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    """Sites a to d of three clusters; c and d lack one."""
    sizes = {"a": (40, 50, 60), "b": (30, 30, 30), "c": (40, 0, 40), "d": (0, 60, 30)}
    tables = {name: blobs(seed, *sizes[name]) for seed, name in enumerate(sizes)}
    return csv_sites(tables, labels={"a": np.repeat([0, 1, 2], [40, 50, 60]), "b": np.repeat([0, 1, 2], 30)})


def scaled_rows(nodes: list[dict[str, Any]], one: LocalRun) -> dict[str, NDArray[np.float64]]:
    """Rows of every site as its steps see them."""
    scaling = next(iter(rounds(one)[0].values())).scaling
    return {
        node["site-name"]: scaling.apply(
            np.genfromtxt(node["data-path"], delimiter=",", skip_header=1, usecols=(0, 1))
        )
        for node in nodes
    }


def last_models(one: LocalRun) -> dict[str, Any]:
    return {name: post.content.mixture for name, post in one.strategy.state.stage.mailbox.posts.items()}


@pytest.mark.parametrize("update", ["gradient", "em"])
@pytest.mark.parametrize("discrepancy", ["mmd", "kl", "euclidean"])
def test_messages_give_what_the_network_in_memory_gives(
    four_sites: list[dict[str, Any]], discrepancy: str, update: str
) -> None:
    nodes = [node | {"min-count": 1} for node in four_sites]
    one = run(nodes, discrepancy=discrepancy, update=update, gtv_folds=2, alpha=0.7, min_count=1)
    first, config = rounds(one)[0], one.strategy.config
    tables = scaled_rows(four_sites, one)
    graph = one.strategy.state.laid.graph
    settings = coupling.settings_of(config.gtv, 0.7, 2)
    found = last_models(one)
    state = network.init({name: ask.mixtures[0] for name, ask in first.items()}, graph, settings)

    def draws(number: int, receiver: str, sender: str) -> np.random.Generator:
        return coupling.draws(config.seed, receiver, number + 1, 0)(sender)

    for _ in range(config.gtv.rounds):
        state = network.step(state, tables, graph, settings, draws)
    for name, node in state.nodes.items():
        for part in ("weights", "means", "covariances"):
            np.testing.assert_allclose(
                getattr(found[name], part), getattr(node.mixture, part), rtol=0, atol=1e-12
            )
    assert one.trace[-2].figures["potential"] == pytest.approx(state.progress.trace[-1].potential, abs=1e-9)


def test_a_site_hears_its_neighbours_and_nobody_else(
    four_sites: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,0.5\nc,d,2\n")
    one = run(four_sites, graph=str(path), gtv_folds=2)
    graph = from_edges([("a", "b", 1.0), ("b", "c", 0.5), ("c", "d", 2.0)])
    own = [{name: ask.mixtures[0] for name, ask in asks.items()} for asks in rounds(one)]
    for number, asks in enumerate(rounds(one)):
        assert list(asks) == ["a", "b", "c", "d"]
        for name, ask in asks.items():
            assert dict(zip(ask.neighbours, ask.edges, strict=True)) == dict(graph.neighbours(name))
            # What a site hears of a neighbour is what that one starts the same round from: nothing newer.
            for heard, other in zip(ask.mixtures[1:], ask.neighbours, strict=True):
                np.testing.assert_array_equal(heard.means, own[number][other].means)
                np.testing.assert_array_equal(heard.covariances, own[number][other].covariances)
    labels = dict(asked(one, AskLabels))
    for name, ask in labels.items():
        np.testing.assert_allclose(ask.means, last_models(one)[name].means * one.strategy.state.unit)


@pytest.mark.parametrize("discrepancy", ["mmd", "kl", "euclidean"])
def test_without_coupling_every_site_is_alone_bit_for_bit(
    four_sites: list[dict[str, Any]], discrepancy: str
) -> None:
    coupled = last_models(run(four_sites, alpha=0.0, discrepancy=discrepancy, graph="complete"))
    alone = last_models(run(four_sites, alpha=0.0, discrepancy="mmd", graph="ring"))
    for name, models in coupled.items():
        np.testing.assert_array_equal(models.means, alone[name].means)
        np.testing.assert_array_equal(models.covariances, alone[name].covariances)


def test_the_order_of_arrival_changes_nothing(four_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    saved = []
    for turn, arrange in enumerate((lambda replies: replies, lambda replies: replies[::-1])):
        nodes = four_sites if turn == 0 else four_sites[::-1]
        one = run(nodes, alpha="0.1,1", gtv_folds=2, gtv_path_rounds=2, discrepancy="kl", arrange=arrange)
        one.outcome.model.save(tmp_path / f"{turn}.npz")
        saved.append(((tmp_path / f"{turn}.npz").read_bytes(), one.outcome.details["alpha_path"]))
    assert saved[0] == saved[1]


def test_alpha_is_chosen_by_rows_held_out_and_the_curve_is_told(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites, alpha="0,0.5,50", gtv_folds=3, gtv_path_rounds=2)
    details = one.outcome.details
    curve = {point["alpha"]: point["held_out_log_likelihood"] for point in details["alpha_path"]}
    assert details["alpha"] == max(curve, key=curve.__getitem__)
    assert [point["alpha"] for point in details["alpha_path"]] == [0, 0.5, 50]
    assert [point["rounds"] for point in details["alpha_path"]] == [2, 2, 2]
    assert "chosen by the mean log-likelihood of rows held out" in one.outcome.words[0]
    assert one.outcome.scores["held_out_log_likelihood"] >= max(curve.values()) - 1e-9
    # What is reported is what the sites have: the best round, not the last.
    # Every alpha starts from the same mixtures, and the best once more, for as long as it gets better.
    turns = [asks["a"].turn for asks in rounds(one)]
    starts = [rounds(one)[turns.index(turn)]["a"].mixtures[0].means for turn in sorted(set(turns))]
    assert len(starts) == 4
    for start in starts[1:]:
        np.testing.assert_array_equal(start, starts[0])
    # What is reported is what the sites have: the best round, not the last.
    figures = [record.figures for record in one.trace if "mapping" in record.figures]
    final = [figure["held_out"] for figure in figures[6:]]
    assert one.outcome.scores["held_out_log_likelihood"] == pytest.approx(max(final))


def test_clusters_are_numbered_alike_at_all_sites(
    four_sites: list[dict[str, Any]], clusters_in: ReadClusters, tmp_path: Path
) -> None:
    one = run(four_sites, components="auto", estimator="consensus", gtv_rounds=10)
    outcome = one.outcome
    assert outcome.status == "finished"
    assert outcome.k_hat == 3
    found = {node["site-name"]: clusters_in(node["labels-path"]) for node in four_sites}
    usual = [int(np.bincount(found["a"][part]).argmax()) for part in np.split(np.arange(150), [40, 90])]
    assert sorted(usual) == [0, 1, 2]
    for name, sizes in {"b": (30, 30, 30), "c": (40, 0, 40), "d": (0, 60, 30)}.items():
        truth = np.repeat(usual, sizes)
        assert (found[name] == truth).mean() > 0.95
    sites = {site.name: site.details for site in outcome.sites}
    assert {name: site["k_g"] for name, site in sites.items()} == {"a": 3, "b": 3, "c": 2, "d": 2}
    assert sites["a"]["personal_ari"] > 0.95
    assert outcome.scores["ari"] > 0.95
    assert 0 <= outcome.scores["center_error"] < 1
    outcome.model.save(tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    for node in four_sites:
        rows = np.genfromtxt(node["data-path"], delimiter=",", skip_header=1, usecols=(0, 1))
        np.testing.assert_array_equal(model.predict(rows, site=node["site-name"]), found[node["site-name"]])


def test_each_site_may_start_from_its_own_count_by_asm(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites, init="asm", components="auto")
    counted = {site.name: site.details["k_counted"] for site in one.outcome.sites}
    assert set(counted) == set("abcd")
    assert all(2 <= k <= 6 for k in counted.values())
    with pytest.raises(ConfigError, match="init='asm' starts from the components that a site counted"):
        run(four_sites, init="asm", components=3)


def test_a_site_with_few_rows_labels_by_its_neighbours(
    csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters
) -> None:
    nodes = csv_sites({"a": blobs(0, 40, 50, 60), "b": blobs(1, 30, 30, 30), "few": blobs(2, 1, 1, 1)})
    one = run(nodes, graph="complete")
    status = {site.name: site.status for site in one.outcome.sites}
    assert status == {"a": "ok", "b": "ok", "few": "receives only"}
    assert all("few" not in asks for asks in rounds(one))
    assert all("few" not in ask.neighbours for asks in rounds(one) for ask in asks.values())
    assert len(set(clusters_in(nodes[2]["labels-path"]).tolist())) == 3


@pytest.mark.parametrize("graph", ["ring", "complete", "erdos-renyi", "nearest", "sbm"])
def test_graphs_by_rule(four_sites: list[dict[str, Any]], graph: str) -> None:
    one = run(four_sites, graph=graph, graph_nearest=1, graph_blocks=2, gtv_rounds=1)
    laid: Graph = one.strategy.state.laid.graph
    assert laid.names == ("a", "b", "c", "d")
    least = {"ring": 4, "complete": 6, "erdos-renyi": 4, "nearest": 2, "sbm": 2}[graph]
    assert len(laid.edges) >= least
    if graph == "sbm":
        assert {("a", "b"), ("c", "d")} <= set(laid.edges)


def test_a_graph_file_may_name_sites_that_are_away(four_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"edges": [["a", "b"], ["b", "gone"], ["gone", "c"]]}))
    one = run(four_sites, graph=str(path))
    assert one.strategy.state.laid.graph.edges == (("a", "b"),)
    told = "; ".join(one.outcome.warnings)
    assert "the graph names sites gone, which are not here" in told
    assert "sites c, d have no neighbour here" in told


def test_graphs_that_cannot_be_laid_are_refused(four_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"graph expected one of erdos-renyi, ring, .*got 'circle'"):
        parse_run_config({"graph": "circle"})
    with pytest.raises(ConfigError, match="cannot read"):
        run(four_sites, graph=str(tmp_path / "none.csv"))
    (tmp_path / "two.csv").write_text("source,target\na,b\nc,d\n")
    with pytest.raises(ConfigError, match="expected one connected graph, got 2 parts"):
        run(four_sites, graph=str(tmp_path / "two.csv"))
    with pytest.raises(ConfigError, match="graph-blocks: expected at most 4"):
        run(four_sites, graph="sbm", graph_blocks=9)


def test_unlike_sites_fade_from_each_other(csv_sites: Sites, blobs: Blobs) -> None:
    near = {name: blobs(seed, 60, 60, 60) for seed, name in enumerate("abc")}
    far = {name: blobs(seed, 60, 60, 60) + np.array([60.0, -60.0]) for seed, name in enumerate("xyz")}
    one = run(csv_sites(near | far), graph="complete", edge_weights="mmd", gtv_rounds=6)
    off = {tuple(edge) for edge in one.outcome.details["edges_off"]}
    assert off == {(a, x) for a in "abc" for x in "xyz"}
    assert any("9 edges between unlike sites were switched off" in sentence for sentence in one.outcome.words)
    assert all(set(ask.neighbours) <= set("abc") for name, ask in rounds(one)[-1].items() if name in "abc")


def test_a_strength_that_must_diverge_is_refused(four_sites: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="Euclidean gradient steps could diverge"):
        run(four_sites, discrepancy="euclidean", alpha=1000.0, gtv_guard="off", graph="complete")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"gtv-folds": 1}, "gtv-folds expected 0 or at least 2, got 1"),
        ({"gtv-folds": 0}, "gtv-folds=0 leaves no rows to choose alpha by"),
        ({"gtv-folds": 0, "alpha": "0.1,1"}, "gtv-folds=0 leaves no rows to choose alpha by"),
        ({"components": 60}, r"components \* gtv-weight-floor <= 1"),
        ({"alpha": -1.0}, "alpha expected 'auto' or a number of at least 0"),
        ({"discrepancy": "l2"}, "discrepancy expected one of mmd, kl, euclidean"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_run_config({"method": "gtvmin", **values})


def test_what_leaves_a_site_is_in_its_ledger(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites, gtv_folds=2)
    lines = [json.loads(line) for line in Path(four_sites[0]["ledger-path"]).read_text().splitlines()]
    assert [line["message"] for line in lines] == ["hello", *["gtv.mixture"] * 5, "labelled"]
    assert set(lines[1]["arrays"]) == {"weights", "means", "covariances"}
    scores = {"k_counted", "loss", "coupling", "mapping", "halvings", "held_out", "held_out_rows"}
    assert set(lines[1]["scalars"]) == {"wire", "kind", *scores}
    assert lines[1]["arrays"]["covariances"]["shape"][1] == 3
    up = {site.name: site.bytes_up for site in one.outcome.sites}
    # Bytes of every site and exchange add up both ways.
    for record in one.trace:
        assert sum(down for down, _ in record.by_site.values()) == record.bytes_down
        assert sum(up for _, up in record.by_site.values()) == record.bytes_up
    for name, total in up.items():
        assert total == sum(record.by_site[name][1] for record in one.trace)
    assert sum(line["bytes"] for line in lines) == pytest.approx(up["a"], rel=0.01)


def test_trace_and_edges_are_reported(four_sites: list[dict[str, Any]]) -> None:
    details = run(four_sites, gtv_local_steps=1, gtv_rounds=5, gtv_guard="off").outcome.details
    assert details["stopped_by"] == "max_rounds"
    assert details["rounds"] == 5
    potentials = [totals["potential"] for totals in details["trace"]]
    assert len(potentials) == 5
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(potentials))
    assert details["certificate"]["mean_squared_mapping"] <= details["certificate"]["bound"]
    assert [tuple(edge["ends"]) for edge in details["edges"]] == [
        ("a", "b"),
        ("a", "d"),
        ("b", "c"),
        ("c", "d"),
    ]
    assert all(edge["disagreement"] >= 0 and min(edge["pulls"]) >= 0 for edge in details["edges"])


def test_the_server_class_is_found_by_its_name() -> None:
    assert strategy_of(parse_run_config({"method": "gtvmin"})) is GTVMin
    with pytest.raises(ConfigError, match=r"method 'gtvmin' takes init = kmeans \| asm, got 'kmeans\+\+'"):
        strategy_of(parse_run_config({"method": "gtvmin", "init": "kmeans++"}))


def test_one_site_alone(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites[:1], graph="erdos-renyi", min_sites=1)
    assert one.outcome.k_hat == 3
    assert one.outcome.warnings == ()


def test_without_edges_alpha_is_not_sought(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites[:1], graph="erdos-renyi", min_sites=1, alpha="auto", gtv_folds=2)
    assert one.outcome.details["rounds"] == 4
    assert one.outcome.details["alpha"] == 1


def test_sites_of_one_row_take_part(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {
        "a": blobs(0, 20, 20, 20),
        "b": blobs(1, 20, 20, 20),
        "one": [[0.0, 0.0]],
        "same": [[8.0, 8.0]] * 9,
    }
    nodes = [node | {"min-count": 1} for node in csv_sites(tables)]
    one = run(nodes, min_count=1, graph="complete")
    assert {site.status for site in one.outcome.sites} == {"ok"}
    assert set(one.outcome.model.mixtures) == {"a", "b", "one", "same"}


def test_early_stop_when_nothing_moves(four_sites: list[dict[str, Any]]) -> None:
    one = run(four_sites, gtv_rounds=60, gtv_settled=1e-3)
    assert one.outcome.details["stopped_by"] == "settled"
    assert one.outcome.details["rounds"] < 60
    slow = run(four_sites, gtv_rounds=3, gtv_tolerance=1e6)
    assert slow.outcome.details["stopped_by"] == "converged"
