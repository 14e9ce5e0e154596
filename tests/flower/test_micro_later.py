"""Runs of micro-clusters whose sites differ in their sensors, come later, or are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from micro_runs import Blobs, ReadClusters, Sites, at, phases, run, silent

from fedcluster_app.config import as_run_config, parse_run_config
from fedcluster_app.errors import DataError, RunError
from fedcluster_app.results.model import load_model
from fedcluster_app.results.summaries import load_summaries
from fedcluster_app.server_app import conduct
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
    assert not [w for w in found.outcome.warnings if "its sums were not used" in w]
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
