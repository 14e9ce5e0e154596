"""Runs of micro-clusters whose sites differ in their sensors, come later, or are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from micro_runs import Blobs, ReadClusters, Sites, at, nobody_failed, phases, run, silent

from fedcluster_app.config import as_run_config, parse_run_config
from fedcluster_app.errors import DataError, RunError
from fedcluster_app.messages import AskMicroRound, MicroSums
from fedcluster_app.results.load import load_model
from fedcluster_app.results.summaries import load_summaries
from fedcluster_app.server_app import conduct
from fedcluster_app.transport import from_records
from fedcluster_app.wire import decode
from simulations.federation import LocalGrid

# --- sensors that differ


@pytest.fixture
def shifted(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    """Five sites of three clusters, each site set apart by an offset of its own."""
    offsets = np.array([[0, 0], [30, -20], [-25, 10], [12, 40], [-17, -30.0]])
    return csv_sites({name: blobs(seed, 40, 50, 60) + offsets[seed] for seed, name in enumerate("abcde")})


def test_offsets_of_sites_are_taken_out(shifted: list[dict[str, Any]], clusters_in: ReadClusters) -> None:
    found = run(shifted, site_offsets="auto", site_gains="auto", refine_rounds=2)
    assert found.outcome.k_hat == 3
    assert found.outcome.details["drift"]["on"]
    assert nobody_failed(found)
    (said,) = [words for words in found.outcome.words if words.startswith("offsets")][:-1]
    assert said.startswith("offsets of sites: on (BIC better by ")
    assert not [words for words in found.outcome.words if "cannot be told" in words]
    labels = [clusters_in(node["labels-path"]) for node in shifted]
    assert all(np.array_equal(one, labels[0]) for one in labels)  # cluster 2 is cluster 2 everywhere
    assert [site.details["offset_in_widths"] > 1 for site in found.outcome.sites].count(True) >= 4
    model = found.outcome.model
    assert model is not None
    rows = np.loadtxt(shifted[1]["data-path"], delimiter=",", skiprows=1)
    np.testing.assert_array_equal(model.predict(rows, site="b"), labels[1])
    with pytest.raises(DataError, match="expected one of a, b, c, d, e, got none"):
        model.predict(rows)


def test_where_they_are_not_looked_for_people_are_told(shifted: list[dict[str, Any]]) -> None:
    found = run(shifted)
    assert found.outcome.k_hat > 3
    assert [w for w in found.outcome.warnings if "held by one site alone" in w and "site-offsets" in w]


def test_a_later_site_finds_its_offset(
    shifted: list[dict[str, Any]], tmp_path: Path, clusters_in: ReadClusters
) -> None:
    folder = str(tmp_path / "drifted")
    config = parse_run_config({"method": "microcluster", "site-offsets": "auto", "output-dir": folder})
    conduct(LocalGrid(shifted[:4], as_run_config(config)), config, 1)
    before = clusters_in(shifted[0]["labels-path"])
    found = run(shifted, summaries=f"{folder}/summaries.npz", assembly="keep")
    np.testing.assert_array_equal(clusters_in(shifted[4]["labels-path"]), before)
    assert found.strategy.state.assembly.drift.offsets.shape[0] == 5
    # Site e is set apart by more than ten times the width of a cluster.
    assert found.outcome.sites[4].details["offset_in_widths"] > 10
    first = json.loads((tmp_path / "drifted" / "summary.json").read_text())["sites"]
    # Rounds have changed the width of clusters a little since the offsets of the others were told.
    for old, kept in zip(first, found.outcome.sites, strict=False):
        assert kept.details["offset_in_widths"] == pytest.approx(old["offset_in_widths"], rel=0.1)


def test_people_are_told_where_a_later_run_does_not_take_offsets_out(
    shifted: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = str(tmp_path / "drifted")
    config = parse_run_config({"method": "microcluster", "site-offsets": "auto", "output-dir": folder})
    conduct(LocalGrid(shifted[:3], as_run_config(config)), config, 1)
    stored = f"{folder}/summaries.npz"
    told = "the earlier run took offsets of sites out, this one does not"
    assert [said for said in run(shifted[:3], summaries=stored).outcome.warnings if told in said]
    again = run(shifted[:3], summaries=stored, site_offsets="auto").outcome
    assert again.details["drift"]["on"]
    assert not [said for said in again.warnings if told in said]


# --- sites that come later


@pytest.fixture
def earlier(three_sites: list[dict[str, Any]], tmp_path: Path) -> Path:
    """Folder of a run of sites a and b."""
    config = parse_run_config({"method": "microcluster", "output-dir": str(tmp_path / "earlier")})
    return conduct(LocalGrid(three_sites[:2], as_run_config(config)), config, 1)


def test_summaries_are_kept_with_the_run(earlier: Path) -> None:
    stored = load_summaries(earlier / "summaries.npz")
    assert sorted(stored.uploads) == ["a", "b"]
    assert stored.names == ("a", "b")
    model = load_model(earlier / "model.npz")
    np.testing.assert_array_equal(model.clusters.means, stored.clusters.means)
    summary = json.loads((earlier / "summary.json").read_text())
    assert summary["words"]
    assert summary["details"]["k_path"][0]["k"] == 1


def test_a_late_site_is_added_without_starting_over(earlier: Path, three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites[1:], summaries=str(earlier / "summaries.npz"))
    assert found.outcome.k_hat == 3
    assert phases(found) == ["hello", "cells", "labels"]
    assert found.trace[1].answered == ("c",)  # b is known already
    assert found.strategy.state.assembly.names == ("a", "b", "c")
    assert found.strategy.state.assembly.clusters.masses.sum() == pytest.approx(450)
    assert [w for w in found.outcome.warnings if "sites a are not here" in w]


def test_clusters_may_be_kept_as_they_were(
    earlier: Path, three_sites: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    stored = load_summaries(earlier / "summaries.npz")
    found = run(three_sites, summaries=str(earlier / "summaries.npz"), assembly="keep")
    assert found.outcome.model is not None
    np.testing.assert_array_equal(found.outcome.model.clusters.means, stored.clusters.means)
    labels = clusters_in(three_sites[2]["labels-path"])
    assert [len(set(part)) for part in np.split(labels, [40, 90])] == [1, 1, 1]
    assert "an earlier run" in found.outcome.words[0]
    # What the new site sent is there for the next run.
    assert sorted(found.outcome.summaries.uploads) == ["a", "b", "c"]  # type: ignore[union-attr]  # a run that finished has some
    assert "k_path" not in found.outcome.details


def test_kept_clusters_label_the_rows_of_old_sites_as_before(
    csv_sites: Sites, tmp_path: Path, clusters_in: ReadClusters
) -> None:
    # The clusters overlap, so that labels go by the weights: each site has one cluster in the main.
    rng = np.random.default_rng(3)
    mixed = {"a": (500, 60), "b": (60, 500), "c": (400, 100), "later": (250, 250)}
    tables = {
        name: np.concatenate([rng.normal(2.5 * j, 1.0, (n, 2)) for j, n in enumerate(sizes)])
        for name, sizes in mixed.items()
    }
    nodes = csv_sites(tables)
    config = parse_run_config({"method": "microcluster", "output-dir": str(tmp_path / "before")})
    conduct(LocalGrid(nodes[:3], as_run_config(config)), config, 1)
    before = [clusters_in(node["labels-path"]) for node in nodes[:3]]
    assert [len(set(labels)) for labels in before] == [2, 2, 2]
    found = run(nodes, summaries=str(tmp_path / "before" / "summaries.npz"), assembly="keep")
    for node, labels in zip(nodes, before, strict=False):
        np.testing.assert_array_equal(clusters_in(node["labels-path"]), labels)
    # Weights are the sites' own: by those of all they would not be.
    assert found.outcome.model is not None
    rows = tables["a"]
    assert (found.outcome.model.predict(rows) != before[0]).any()


def test_nothing_is_asked_where_all_is_known(earlier: Path, three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites[:2], summaries=str(earlier / "summaries.npz"))
    assert phases(found) == ["hello", "labels"]
    assert found.outcome.k_hat == 3


def test_summaries_of_other_columns_are_refused(earlier: Path, csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({"d": blobs(7, 30, 30)}, columns={"d": ["x", "y"]})
    with pytest.raises(RunError, match=r"made with the columns \['c0', 'c1'\], the sites have \['x', 'y'\]"):
        run(nodes, summaries=str(earlier / "summaries.npz"), min_sites=1)


def test_summaries_that_are_none_are_refused(three_sites: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        run(three_sites, summaries=str(tmp_path / "none.npz"))


def test_a_later_run_with_another_seed_goes_by_the_halves_of_the_first(
    three_sites: list[dict[str, Any]], tmp_path: Path
) -> None:
    config = parse_run_config({"seed": 5, "output-dir": str(tmp_path / "first")})
    conduct(LocalGrid(three_sites[:2], as_run_config(config)), config, 1)
    asked: list[tuple[AskMicroRound, MicroSums]] = []

    def listen(node: int, question: Message, answer: Message) -> Message:
        payload = from_records(question.content)
        if node == 1 and payload.kind == "ask.micro.round":
            heard = decode(from_records(answer.content), MicroSums, sender="b")
            asked.append((decode(payload, AskMicroRound, sender="server"), heard))
        return answer

    found = run(
        three_sites, seed=6, summaries=f"{tmp_path}/first/summaries.npz", refined_votes="on", tamper=listen
    )
    assert nobody_failed(found)
    assert load_summaries(tmp_path / "first" / "summaries.npz").seed == 5
    assert found.outcome.summaries is not None
    assert found.outcome.summaries.seed == 5
    sent = found.outcome.summaries.uploads["b"]
    for ask, sums in asked:
        for half in (0, 1):
            # The one cluster of a set that is fitted to a half has the mean of the half's rows.
            (number,) = [s for s in np.flatnonzero(ask.rows == half) if (ask.members == s).sum() == 1]
            (cluster,) = np.flatnonzero(ask.members == number)
            mean = ask.means[cluster] + sums.first[cluster] / sums.mass[cluster]
            of_half = sent.halves == half
            expected = np.average(sent.means[of_half], axis=0, weights=sent.counts[of_half])
            np.testing.assert_allclose(mean, expected, atol=1e-9)


# --- rounds without some of the sites


@pytest.mark.parametrize("refined", ["off", "on"])
def test_a_site_that_is_gone_stays_in_the_model_when_others_refine_it(
    refined: str, earlier: Path, three_sites: list[dict[str, Any]]
) -> None:
    stored = str(earlier / "summaries.npz")
    found = run(three_sites[1:], summaries=stored, refine_rounds=3, refined_votes=refined)
    assert found.strategy.state.assembly.clusters.masses.sum() == pytest.approx(450)
    assert [record.answered for record in found.trace[2:5]] == [("b", "c")] * 3


def test_a_cluster_of_a_site_that_is_gone_is_refined_with_its_micro_clusters(
    csv_sites: Sites, blobs: Blobs, tmp_path: Path
) -> None:
    nodes = csv_sites({"a": blobs(0, 60, 60), "gone": blobs(1, 60, 60) + 40.0, "c": blobs(2, 60, 60)})
    folder = str(tmp_path / "before")
    config = parse_run_config({"output-dir": folder})
    conduct(LocalGrid(nodes, as_run_config(config)), config, 1)
    found = run([nodes[0], nodes[2]], summaries=f"{folder}/summaries.npz", refine_rounds=4)
    assert found.outcome.k_hat == 4
    assert found.outcome.model is not None
    means, weights = found.outcome.model.clusters.means, found.outcome.model.clusters.weights
    np.testing.assert_allclose(np.sort(weights), [1 / 6, 1 / 6, 1 / 3, 1 / 3], atol=0.02)
    back = means * found.outcome.model.scaling.scale + found.outcome.model.scaling.center
    truth = np.array([[0.0, 0.0], [8, 8], [40, 40], [48, 48]])
    assert np.abs(back[np.argsort(back[:, 0])] - truth).max() < 0.4


def test_a_site_that_is_silent_in_a_round_is_stood_in_for(three_sites: list[dict[str, Any]]) -> None:
    found = run(three_sites, tamper=at("round", silent), refine_rounds=3)
    assert found.strategy.state.assembly.clusters.masses.sum() == pytest.approx(450)
    assert found.outcome.k_hat == 3
    assert np.diff(found.outcome.details["log_likelihood"]).min() > -0.5


def test_rounds_are_left_out_where_no_site_of_the_assembly_is_there(
    earlier: Path, csv_sites: Sites, blobs: Blobs
) -> None:
    found = run(
        csv_sites({"z": blobs(9, 40, 40)}),
        tamper=at("cells", silent, node=0),
        summaries=str(earlier / "summaries.npz"),
        refine_rounds=2,
        min_sites=1,
    )
    assert phases(found) == ["hello", "cells", "labels"]
    assert found.outcome.k_hat == 3
