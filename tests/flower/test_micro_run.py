"""Runs of micro-clusters in this process: true to the data, whatever comes, whenever it comes."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from micro_runs import Blobs, ReadClusters, Sites, phases, run

from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.results.outcome import FINISHED
from fedcluster_app.results.tables import plain, report
from simulations.federation import LocalRun


def fingerprint(one: LocalRun, folder: Path) -> tuple[bytes, bytes, str]:
    """All that a run found, but for times."""
    assert one.outcome.model is not None
    assert one.outcome.summaries is not None
    one.outcome.model.save(folder / "model.npz")
    one.outcome.summaries.save(folder / "summaries.npz")
    said = dataclasses.asdict(dataclasses.replace(one.outcome, model=None, summaries=None))
    trace = [dataclasses.asdict(dataclasses.replace(record, seconds=0.0)) for record in one.trace]
    text = json.dumps(plain([said, trace]), sort_keys=True)
    return (folder / "model.npz").read_bytes(), (folder / "summaries.npz").read_bytes(), text


# --- what a run is


def test_one_upload_finds_the_clusters(three_sites: list[dict[str, Any]], clusters_in: ReadClusters) -> None:
    found = run(three_sites)
    outcome = found.outcome
    assert outcome.status == FINISHED
    assert phases(found) == ["hello", "cells", "labels"]
    assert (outcome.k_hat, outcome.bounds, outcome.warnings) == (3, None, ())
    assert outcome.model is not None
    np.testing.assert_allclose(
        np.sort(outcome.model.clusters.weights), [40 / 150, 50 / 150, 60 / 150], atol=0.02
    )
    for node in three_sites:
        labels = clusters_in(node["labels-path"])
        assert [len(set(part)) for part in np.split(labels, [40, 90])] == [1, 1, 1]
        assert len(set(labels)) == 3
    path = outcome.details["k_path"]
    assert [line["k"] for line in path][:3] == [1, 2, 3]
    assert set(path[2]) == {"k", "log_likelihood", "bic", "held_out", "separation", "held_out_by_site"}
    assert sum(path[2]["held_out_by_site"].values()) == pytest.approx(path[2]["held_out"])
    assert outcome.details["votes"]["bic"] == outcome.details["votes"]["hold"] == 3
    assert outcome.words
    text = report(outcome)
    assert "K̂ = 3 global clusters\n" in text
    assert outcome.words[0] in text


def test_a_site_that_lacks_a_cluster_weighs_it_nothing(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({"a": blobs(0, 60, 60), "b": blobs(1, 60, 60), "c": blobs(2, 60, 60) + 8.0})
    found = run(nodes)
    assert found.outcome.k_hat == 3
    weights = found.strategy.state.assembly.clusters.weights
    assert np.sort(weights, axis=1)[:, 0].max() < 1e-6
    assert [site.details["k_g"] for site in found.outcome.sites] == [2, 2, 2]


def test_no_cell_has_fewer_rows_than_either_floor(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 3, 60) for seed, name in enumerate("ab")})
    nodes[1]["min-count"] = 12
    found = run(nodes, min_count=7)
    counts = {name: cells.counts for name, cells in found.strategy.state.micro.uploads.items()}
    assert counts["a"].min() >= 7
    assert counts["b"].min() >= 12
    assert all(part.sum() == 103 for part in counts.values())


def test_the_ledger_holds_what_was_sent(three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites, refine_rounds=2)
    for node, site in zip(three_sites, found.outcome.sites, strict=True):
        lines = [json.loads(line) for line in Path(node["ledger-path"]).read_text().splitlines()]
        kinds = ["hello", "micro.clusters", "micro.sums", "micro.sums", "labelled"]
        assert [line["message"] for line in lines] == kinds
        assert set(lines[1]["arrays"]) == {"halves", "counts", "means", "variances"}
        assert sum(line["bytes"] for line in lines) == site.bytes_up


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "settings", [{"refine_rounds": 2}, {"refined_votes": "on"}, {"site_offsets": "auto"}]
)
def test_any_arrival_order_gives_the_same_bytes(
    seed: int, settings: dict[str, Any], csv_sites: Sites, blobs: Blobs, tmp_path: Path
) -> None:
    mix = random.Random(seed)

    def shuffled(replies: list[Message]) -> list[Message]:
        mix.shuffle(replies)
        return replies

    tables = {name: blobs(number, 30, 40, 35) for number, name in enumerate("abcd")}
    if "site_offsets" in settings:
        tables = {name: table + 9.0 * number for number, (name, table) in enumerate(tables.items())}
    nodes = csv_sites(tables)
    first = run(nodes, **settings)
    if "site_offsets" in settings:
        assert first.outcome.details["drift"]["on"]
    expected = fingerprint(first, tmp_path)
    mix.shuffle(nodes)
    assert fingerprint(run(nodes, arrange=shuffled, **settings), tmp_path) == expected


def test_another_seed_gives_other_cells(three_sites: list[dict[str, Any]]) -> None:
    a, b = (run(three_sites, seed=seed).strategy.state.micro.uploads["a"].means for seed in (1, 2))
    assert a.shape != b.shape or not np.array_equal(a, b)


# --- rounds of federated EM


def test_rounds_raise_the_likelihood(three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites, refine_rounds=4)
    assert phases(found) == ["hello", "cells", "round 1", "round 2", "round 3", "round 4", "labels"]
    trace = found.outcome.details["log_likelihood"]
    assert len(trace) == found.outcome.details["rounds"] == 4
    assert np.diff(trace).min() > -0.05  # the shrinkage may cost a little
    assert found.outcome.k_hat == 3


def test_rows_may_vote_on_the_number(three_sites: list[dict[str, Any]]) -> None:
    outcome = run(three_sites, refined_votes="on", refine_rounds=2).outcome
    # The coarse grid 1, 2, 5, 10 has what micro-clusters made likely besides.
    assert outcome.details["refined_votes"]["hold_98"] == outcome.k_hat == 3
    assert outcome.details["k_rule"] == "rows held out after federated EM"
    assert outcome.details["rounds"] == 10
    assert outcome.details["log_likelihood"] == []  # there is no one set that it would be of
    first, second = outcome.words
    assert first.startswith("of 1, 2, 3, 5, 10 clusters, after federated EM at each, rows held out ")
    assert "3" in first.split("rows held out")[1]
    assert "clearly" not in first  # the next that was tried is 5
    assert "micro-clusters alone made it 3" in second
    # Nothing is left of what was said when micro-clusters alone had voted.
    before = run(three_sites).outcome
    assert before.details["k_rule"] == "median"
    assert not set(before.words) & set(outcome.words)
    assert not [said for said in outcome.warnings if "micro-clusters, where rows after rounds" in said]


def test_warnings_of_the_count_are_those_of_the_rows(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 60, 60) for seed, name in enumerate("abc")})
    cells, rows = (run(nodes, refined_votes=how).outcome for how in ("off", "on"))
    assert (cells.k_hat, rows.k_hat) == (2, 2)
    for said in (cells.warnings, rows.warnings):
        assert len([part for part in said if part.startswith("held-out rows favour 2 clusters:")]) == 1
    assert "1, 2, 5" in rows.words[0]


@pytest.mark.parametrize(
    ("refined", "wanted", "rounds"),
    [("auto", 0, 0), ("auto", 3, 10), ("auto", 12, 12), ("on", 0, 10), ("off", 0, 0), ("off", 3, 3)],
)
def test_votes_of_rows_have_ten_rounds_or_more(
    refined: str, wanted: int, rounds: int, csv_sites: Sites, blobs: Blobs
) -> None:
    # Of one cluster micro-clusters may have mixed classes, so that "auto" asks the rows.
    nodes = csv_sites({name: blobs(seed, 60) for seed, name in enumerate("abc")})
    found = run(nodes, refined_votes=refined, refine_rounds=wanted)
    assert phases(found) == ["hello", "cells", *(f"round {n + 1}" for n in range(rounds)), "labels"]
    assert ("refined_votes" in found.outcome.details) == (refined != "off" and rounds > 0)
    assert found.outcome.k_hat == 1


def test_rows_are_not_asked_where_cells_are_sure(three_sites: list[dict[str, Any]]) -> None:
    assert phases(run(three_sites, refined_votes="auto")) == ["hello", "cells", "labels"]


# --- tables of all kinds


@pytest.mark.parametrize("rows", [1, 4, 5, 9, 10])
def test_small_sites(rows: int, csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters) -> None:
    tables = {"a": blobs(0, 60, 60), "b": blobs(1, 60, 60), "small": blobs(2, rows)}
    nodes = csv_sites(tables)
    found = run(nodes, min_sites=3)
    assert found.outcome.k_hat == 2
    assert len(clusters_in(nodes[2]["labels-path"])) == rows
    sent = found.strategy.state.micro.uploads.get("small")
    if rows < 5:
        assert sent is None
        assert found.outcome.sites[2].status == "receives only"
    else:
        assert sent.counts.sum() == rows
        assert len(sent.counts) == (2 if rows == 10 else 1)
    assert len(set(clusters_in(nodes[2]["labels-path"]))) == 1


def test_one_site_and_one_cluster(csv_sites: Sites, blobs: Blobs) -> None:
    found = run(csv_sites({"a": blobs(0, 200)}), min_sites=1)
    assert found.outcome.k_hat == 1
    assert "K̂ = 1 global cluster\n" in report(found.outcome)


@pytest.mark.parametrize("pca", [0, 2])
def test_a_constant_column(pca: int, csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: np.insert(blobs(seed, 60, 60, 60), 1, 7.0, axis=1) for seed, name in enumerate("abc")}
    found = run(csv_sites(tables), pca=pca)
    assert found.outcome.status == FINISHED
    assert found.outcome.k_hat == 3


def test_counts_of_sites_may_vote(three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites, count_vote="consensus")
    assert [site.details["k_counted"] for site in found.outcome.sites] == [3, 3, 3]
    assert found.outcome.details["votes"]["count"] in (3, 4)


def test_settings_that_go_together() -> None:
    with pytest.raises(ConfigError, match="site-offsets='auto'"):
        parse_run_config({"site-gains": "auto"})
    with pytest.raises(ConfigError, match="assembly='keep' expected clusters to keep"):
        parse_run_config({"assembly": "keep"})
