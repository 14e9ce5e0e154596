"""Runs of FedGEM in this process: the result is true to the data, and the same whatever the order."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedcluster_app.config import RunConfig, as_run_config, parse_run_config
from fedcluster_app.data.table import Table
from fedcluster_app.data.virtual import virtual_table
from fedcluster_app.errors import ConfigError, RunError
from fedcluster_app.messages import AskLabels
from fedcluster_app.results.folder import RunFolder
from fedcluster_app.results.load import load_model
from fedcluster_app.results.outcome import FINISHED
from fedcluster_app.results.tables import plain
from fedcluster_app.server_app import conduct
from fedcluster_app.transport import from_records
from fedcluster_app.wire import decode
from simulations.federation import LocalGrid, LocalRun, run_locally, virtual_nodes

SITES = 10
ReadClusters = Callable[[Path], NDArray[np.int64]]


def tables(config: RunConfig, sites: int = SITES) -> dict[str, Table]:
    return dict(virtual_table(config.data, number, sites) for number in range(sites))


def run(sites: int | list[dict[str, int]], folder: Path | str = "", /, **values: Any) -> LocalRun:
    settings = {key.replace("_", "-"): value for key, value in values.items() if key != "arrange"}
    arrange = {"arrange": values["arrange"]} if "arrange" in values else {}
    return run_locally(
        parse_run_config({"method": "fedgem", **settings}), sites, run_folder=str(folder), **arrange
    )


def fingerprint(one: LocalRun, folder: Path) -> tuple[bytes, str]:
    """All that a run found: the bytes of the model file, and everything else but times."""
    assert one.outcome.model is not None
    one.outcome.model.save(folder / "model.npz")
    said = dataclasses.replace(one.outcome, model=None)
    trace = [dataclasses.replace(record, seconds=0.0) for record in one.trace]
    text = [dataclasses.asdict(said), [dataclasses.asdict(record) for record in trace]]
    return (folder / "model.npz").read_bytes(), json.dumps(plain(text), sort_keys=True)


@dataclasses.dataclass(frozen=True)
class DefaultRun:
    folder: Path
    config: RunConfig
    summary: dict[str, Any]
    grid: LocalGrid
    tables: dict[str, Table]


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> DefaultRun:
    folder = tmp_path_factory.mktemp("default") / "run"
    config = parse_run_config({"method": "fedgem", "output-dir": str(folder)})
    grid = LocalGrid(virtual_nodes(SITES), as_run_config(config))
    assert conduct(grid, config, run_id=7) == folder
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return DefaultRun(folder, config, summary, grid, tables(config))


def pooled(default: DefaultRun, clusters_in: ReadClusters) -> tuple[NDArray[Any], NDArray[Any]]:
    """True classes and clusters of all rows, in order of site."""
    labels = [table.labels for table in default.tables.values() if table.labels is not None]
    found = [clusters_in(default.folder / "labels" / f"{name}.csv") for name in default.tables]
    return np.concatenate(labels), np.concatenate(found)


def test_the_run_finishes_with_a_model(default: DefaultRun) -> None:
    summary = default.summary
    assert summary["status"] == FINISHED
    low, high = summary["k_hat_bounds"]
    k_g = [site["k_g"] for site in summary["sites"]]
    assert (low, high) == (max(k_g), sum(k_g))
    assert low <= summary["k_hat"] <= high
    assert load_model(default.folder / "model.npz").clusters.n_components == summary["k_hat"]


def test_the_summary_agrees_with_itself(default: DefaultRun) -> None:
    summary = default.summary
    sites = summary["sites"]
    assert [site["name"] for site in sites] == [f"site-{number:02d}" for number in range(SITES)]
    assert [site["rows"] for site in sites] == [table.n_rows for table in default.tables.values()]
    assert {site["status"] for site in sites} == {"ok"}
    assert all(site["k_g"] <= site["k_counted"] for site in sites)
    lines = (default.folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == summary["rounds"]
    for way in ("up", "down"):
        total = summary["bytes"][way]
        assert total == sum(site[f"bytes_{way}"] for site in sites)
        assert total == sum(one[f"bytes_{way}"] for one in summary["rounds"])
    assert summary["config"] == json.loads(json.dumps(as_run_config(default.config)))
    assert (summary["run_id"], summary["seeds"]["run"]) == ("7", 42)
    details = summary["details"]
    chosen = [cut for cut in details["k_hat_path"] if cut["v"] == details["final_radius"]]
    assert [cut["k_hat"] for cut in chosen] == [summary["k_hat"]]
    assert chosen[0]["bic"] == max(cut["bic"] for cut in details["k_hat_path"])
    scores = summary["scores"]
    assert scores["personal_ari"] == pytest.approx(np.mean([site["personal_ari"] for site in sites]))
    assert scores["personal_nmi"] == pytest.approx(np.mean([site["personal_nmi"] for site in sites]))


def test_a_run_costs_three_exchanges_beyond_the_rounds(default: DefaultRun) -> None:
    phases = [one["phase"] for one in default.summary["rounds"]]
    rounds = default.summary["details"]["rounds"]
    assert phases == ["hello", "count", *(f"round {r}" for r in range(1, rounds)), "end", "labels"]
    assert len(phases) == rounds + 3
    assert rounds <= default.config.fedgem.max_rounds + 1


def test_agreement_is_that_of_the_labels_at_the_sites(default: DefaultRun, clusters_in: ReadClusters) -> None:
    true, found = pooled(default, clusters_in)
    scores = default.summary["scores"]
    assert scores["ari"] == pytest.approx(adjusted_rand_score(true, found), abs=1e-12)
    assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(true, found), abs=1e-12)
    assert scores["ari"] > 0.3  # a permutation of sites or classes would be near 0


def test_labels_at_the_sites_are_those_of_the_model_file(
    default: DefaultRun, clusters_in: ReadClusters
) -> None:
    model = load_model(default.folder / "model.npz")
    for name, table in default.tables.items():
        found = clusters_in(default.folder / "labels" / f"{name}.csv")
        np.testing.assert_array_equal(found, model.predict(table.X, table.columns))


def test_a_site_by_its_own_components(default: DefaultRun) -> None:
    """The personal scores are of each row's nearest cluster among those its site has a component in."""
    model = load_model(default.folder / "model.npz")
    labels, found, by_site = [], [], {}
    for letter, (name, table) in zip(default.grid.sent[-SITES:], default.tables.items(), strict=True):
        own = decode(from_records(letter.content), AskLabels, sender="test").own_labels
        assert own is not None
        assert table.labels is not None
        assert len(set(own.tolist())) == len(own)  # two components of one site are never joined
        X = model.scaling.apply(table.X)
        distances = np.square(X[:, None] - model.clusters.means[own][None]).sum(axis=2)
        found.append(own[distances.argmin(axis=1)])
        labels.append(table.labels)
        by_site[name] = (
            adjusted_rand_score(labels[-1], found[-1]),
            normalized_mutual_info_score(labels[-1], found[-1]),
        )
    for site in default.summary["sites"]:
        assert (site["personal_ari"], site["personal_nmi"]) == pytest.approx(by_site[site["name"]], abs=1e-12)
    true, own_clusters = np.concatenate(labels), np.concatenate(found)
    scores = default.summary["scores"]
    assert scores["own_ari"] == pytest.approx(adjusted_rand_score(true, own_clusters), abs=1e-12)
    assert scores["own_nmi"] == pytest.approx(normalized_mutual_info_score(true, own_clusters), abs=1e-12)


def test_every_message_of_a_site_is_in_its_ledger(default: DefaultRun) -> None:
    for site in default.summary["sites"]:
        path = default.folder / "ledger" / f"{site['name']}.jsonl"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len(lines) == len(default.summary["rounds"])
        assert sum(line["bytes"] for line in lines) == site["bytes_up"]


def test_a_run_folder_is_not_written_twice(default: DefaultRun) -> None:
    with pytest.raises(ConfigError, match="already holds a run"):
        RunFolder(default.folder)


# --- the same bytes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_arrival_order_gives_the_same_bytes(seed: int, tmp_path: Path) -> None:
    mix = random.Random(seed)

    def shuffled(replies: list[Message]) -> list[Message]:
        mix.shuffle(replies)
        return replies

    nodes: Any = virtual_nodes(5)
    expected = fingerprint(run(nodes, fedgem_max_rounds=3), tmp_path)
    mix.shuffle(nodes)  # node ids are dealt to the sites in another order
    assert fingerprint(run(nodes, fedgem_max_rounds=3, arrange=shuffled), tmp_path) == expected


def test_a_seed_fixes_all_and_another_changes_it(tmp_path: Path) -> None:
    first, again, other = (
        fingerprint(run(3, seed=seed, fedgem_max_rounds=3), tmp_path) for seed in (5, 5, 6)
    )
    assert first == again
    assert first[0] != other[0]


def test_the_seed_reaches_the_sites_own_streams(tmp_path: Path, csv_sites: Any, blobs: Any) -> None:
    """Real sites hold the same rows under every seed, so what differs is drawn at the sites."""
    overlapping = np.random.default_rng(0).normal(size=(200, 2))
    nodes = csv_sites({"a": overlapping[:120], "b": overlapping[120:]})
    one, same, other = (fingerprint(run(nodes, init="kmeans++", seed=s), tmp_path)[0] for s in (1, 1, 2))
    assert one == same
    assert one != other


# --- variants


def test_the_oracle_counts_the_classes_at_a_site() -> None:
    config = parse_run_config({"method": "fedgem", "estimator": "oracle"})
    one = run_locally(config, 5)
    classes = [
        len(np.unique(table.labels)) for table in tables(config, 5).values() if table.labels is not None
    ]
    assert [site.details["k_counted"] for site in one.outcome.sites] == classes


@pytest.mark.parametrize("init", ["kmeans", "kmeans++", "asm-means"])
def test_every_start_finishes(init: str, tmp_path: Path) -> None:
    one = run(3, init=init)
    assert one.outcome.status == FINISHED
    assert one.outcome.k_hat is not None
    starts = [site.details["k_counted"] for site in one.outcome.sites]
    assert starts == [site.details["k_counted"] for site in run(3).outcome.sites]  # only the means differ


def test_a_start_that_the_method_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"takes init = kmeans \| kmeans\+\+ \| asm-means, got 'asm'"):
        run(3, init="asm")


def test_a_fixed_radius_cuts_the_path_there() -> None:
    chosen = run(3, fedgem_max_rounds=3)
    path = chosen.outcome.details["k_hat_path"]
    middle = next(cut for cut in path[1:-1] if cut["v"] != chosen.outcome.details["final_radius"])
    for cut in (path[0], middle, path[-1]):
        one = run(3, fedgem_max_rounds=3, fedgem_final_radius=cut["v"])
        assert (one.outcome.k_hat, one.outcome.details["final_radius"]) == (cut["k_hat"], cut["v"])
        assert one.outcome.details["k_hat_path"] == path
    low, high = chosen.outcome.bounds or (0, 0)
    assert run(3, fedgem_max_rounds=3, fedgem_final_radius=0.0).outcome.k_hat == high
    assert (
        run(3, fedgem_max_rounds=3, fedgem_final_radius=float("inf")).outcome.k_hat
        == path[-1]["k_hat"]
        >= low
    )


def test_the_released_order_needs_a_radius() -> None:
    with pytest.raises(ConfigError, match="fedgem-order='released'"):
        run(4, fedgem_order="released")
    one = run(4, fedgem_order="released", fedgem_final_radius=1.0)
    low, high = one.outcome.bounds or (0, 0)
    assert low <= (one.outcome.k_hat or -1) <= high


def test_the_rounds_stop_when_nothing_moves() -> None:
    one = run(4, fedgem_tolerance=0.2)
    details = one.outcome.details
    assert details["stopped_by"] == "converged"
    assert details["movement"] <= 0.2
    assert details["rounds"] < 11
    assert run(4, fedgem_max_rounds=0).outcome.details["rounds"] == 1


def test_a_failed_run_leaves_its_reason(tmp_path: Path) -> None:
    settings = {"output-dir": str(tmp_path / "run"), "data": "/no/such/table.csv", "join-timeout": 0.3}
    config = parse_run_config(settings)
    with pytest.raises(RunError, match="0 sites can take part"):
        conduct(LocalGrid(virtual_nodes(2), as_run_config(config)), config, run_id=1)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"].startswith("failed: 0 sites can take part")
    assert "there is no data file" in summary["status"]
    assert summary["k_hat"] is None
    assert [(site["name"], site["rows"]) for site in summary["sites"]] == [("site-00", 0), ("site-01", 0)]
    assert all("set aside" in site["status"] for site in summary["sites"])
    assert not (tmp_path / "run" / "model.npz").exists()
