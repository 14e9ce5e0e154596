"""Runs of micro-clusters whose sites are silent, crash, or send what cannot be of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from micro_runs import (
    Blobs,
    ReadClusters,
    Sites,
    at,
    changed,
    crash,
    from_round,
    nobody_failed,
    phases,
    run,
    silent,
)

from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import RunError
from fedcluster_app.results.outcome import FINISHED
from simulations.federation import LocalRun, run_locally, virtual_nodes


def refused(one: LocalRun, phase: str) -> str:
    """Why site b's answer was not used in the first exchange of a phase, having been heard in all before."""
    here = next(record for record in one.trace if record.phase.startswith(phase))
    assert all("b" in record.answered for record in one.trace[: here.exchange - 1])
    assert sorted(here.failed) == ["b"]
    # The site's row says the same, and the warnings need not.
    status = one.outcome.sites[1].status
    assert status.startswith("missed ")
    assert status.endswith(f": {here.failed['b']}")
    assert not [said for said in one.outcome.warnings if "not used" in said]
    return here.failed["b"]


# --- sites that are not heard


def test_a_silent_site_fits_its_own_weights(
    three_sites: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    found = run(three_sites, tamper=at("cells", silent))
    assert found.outcome.k_hat == 3
    assert found.strategy.state.assembly.names == ("a", "c")
    assert "sites b sent no micro-clusters" in found.outcome.warnings[0]
    labels = clusters_in(three_sites[1]["labels-path"])
    assert [len(set(part)) for part in np.split(labels, [40, 90])] == [1, 1, 1]
    assert found.outcome.sites[1].status.startswith("missed cells")


@pytest.mark.parametrize("phase", ["cells", "round", "labels"])
@pytest.mark.parametrize("fault", [silent, crash, changed("means", lambda m: m * np.nan)])
def test_a_fault_is_named_and_the_run_goes_on(
    phase: str, fault: Any, three_sites: list[dict[str, Any]]
) -> None:
    if fault not in (silent, crash):
        fault = changed({"cells": "means", "round": "first", "labels": "within"}[phase], lambda m: m * np.nan)
    found = run(three_sites, tamper=at(phase, fault), refine_rounds=2)
    assert found.outcome.status == FINISHED
    assert found.outcome.k_hat == 3
    missed = [record for record in found.trace if "b" in record.late or "b" in record.failed]
    assert {record.phase.split()[0] for record in missed} == {phase}
    assert found.outcome.sites[1].status.startswith("missed")


@pytest.mark.parametrize("settings", [{"refine_rounds": 4}, {"refined_votes": "on"}])
def test_the_rounds_end_where_nobody_is_heard(
    settings: dict[str, Any], csv_sites: Sites, blobs: Blobs
) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("ab")})
    found = run(nodes, tamper=from_round(3, silent, 0, 1), **settings)
    assert found.outcome.status == FINISHED
    assert phases(found) == ["hello", "cells", "round 1", "round 2", "round 3", "labels"]
    assert found.outcome.details["rounds"] == 2
    assert [said for said in found.outcome.warnings if "ended early: no site sent sums" in said]
    assert all(site.status == "missed round 3: no answer in time" for site in found.outcome.sites)
    assert ("refined_votes" in found.outcome.details) == ("refined_votes" in settings)
    assert found.outcome.k_hat == 3


def test_rounds_that_never_were_decide_nothing(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("ab")})
    found = run(nodes, tamper=from_round(1, silent, 0, 1), refined_votes="on").outcome
    assert found.k_hat == 3
    assert found.details["k_rule"] == "median"
    assert "refined_votes" not in found.details
    assert not [said for said in found.words if "after federated EM" in said]
    assert [said for said in found.warnings if "ended early: no site sent sums" in said]


def test_the_rounds_go_on_where_one_of_two_is_heard(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("ab")})
    found = run(nodes, tamper=from_round(3, silent, 1), refine_rounds=4)
    assert found.outcome.status == FINISHED
    assert [record.answered for record in found.trace[2:6]] == [("a", "b")] * 2 + [("a",)] * 2
    assert found.outcome.sites[1].status == "missed 2 exchanges from round 3 on: no answer in time"
    assert not [said for said in found.outcome.warnings if "ended early" in said]
    with pytest.raises(RunError, match=r"phase 'round 3': 1 of 2 sites answered, quorum is 2\. b: no "):
        run(nodes, tamper=from_round(3, silent, 1), refine_rounds=4, quorum=2)


# --- what cannot be of a site's rows


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("counts", lambda c: c * 10**9, "rows, the site said 150"),
        ("means", lambda m: m + 1e6, "their mean is not that of the site's rows"),
        ("means", lambda m: m[::-1], "their mean is not that of the site's rows"),
        ("variances", lambda v: v * 1e12, "their variance is not that of the site's rows"),
        ("variances", lambda v: v * 0, "their variance is not that of the site's rows"),
        ("k_counted", lambda k: 151, "the site counted 151 clusters of 150 rows"),
    ],
)
def test_cells_that_are_not_of_the_sites_rows_are_not_used(
    field: str, change: Any, reason: str, three_sites: list[dict[str, Any]]
) -> None:
    found = run(three_sites, tamper=at("cells", changed(field, change)))
    assert found.outcome.k_hat == 3
    assert found.strategy.state.assembly.names == ("a", "c")
    said = refused(found, "cells")
    assert said.startswith("site 'b': its micro-clusters were not used: ")
    assert reason in said
    assert [said for said in found.outcome.warnings if "sites b sent no micro-clusters" in said]


def test_a_count_of_a_million_does_not_decide(three_sites: list[dict[str, Any]]) -> None:
    settings = {"count_vote": "consensus", "k_rule": "bic"}
    assert run(three_sites, **settings).outcome.k_hat == 3
    found = run(three_sites, tamper=at("cells", changed("k_counted", lambda k: 10**6)), **settings)
    assert found.outcome.k_hat == 3
    assert "counted 1000000 clusters of 150 rows" in refused(found, "cells")
    assert [site.details.get("k_counted") for site in found.outcome.sites] == [3, None, 3]


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("mass", lambda m: m * 1e9, "rows, the site said 150"),
        ("first", lambda f: f + 1.0, "their mean is not that"),
        ("second", lambda s: s * 1e6, "their variance is not that"),
        ("second", lambda s: -s, "no rows can have them"),
        ("log_likelihood", lambda x: x + 1e6, "no rows of its micro-clusters can have these log-likelihoods"),
        ("held_out", lambda x: x + 1e6, "no rows of its micro-clusters can have these log-likelihoods"),
    ],
)
def test_sums_that_are_not_of_the_sites_rows_are_not_used(
    field: str, change: Any, reason: str, three_sites: list[dict[str, Any]]
) -> None:
    found = run(three_sites, tamper=at("round", changed(field, change)), refine_rounds=2)
    assert found.outcome.k_hat == 3
    # What it sent first stands in for it.
    assert found.strategy.state.assembly.clusters.masses.sum() == pytest.approx(450)
    said = refused(found, "round")
    assert said.startswith("site 'b': its sums were not used: ")
    assert reason in said


@pytest.mark.parametrize("most", [3e3, 1e9])
def test_a_site_that_votes_for_many_clusters_with_its_rows_is_named(
    most: float, three_sites: list[dict[str, Any]]
) -> None:
    honest = run(three_sites, refined_votes="on")
    assert nobody_failed(honest)
    lie = changed("held_out", lambda x: x + np.linspace(0, most, len(x)))
    found = run(three_sites, refined_votes="on", tamper=at("round", lie))
    assert "no rows of its micro-clusters can have these log-likelihoods" in refused(found, "round")
    assert found.outcome.k_hat == honest.outcome.k_hat
    assert found.outcome.details["refined_votes"]["hold"] <= 10


@pytest.mark.parametrize("settings", [{"refine_rounds": 5}, {"refined_votes": "on"}])
@pytest.mark.parametrize("shape", ["apart", "overlapping", "small", "tiny", "heavy tails"])
def test_nobody_who_is_honest_is_refused(
    shape: str, settings: dict[str, Any], csv_sites: Sites, blobs: Blobs
) -> None:
    tables = {name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abc")}
    if shape == "overlapping":
        closer = np.repeat([0, -6.0, -12.0], [40, 50, 60])[:, None]
        tables = {name: table + closer for name, table in tables.items()}
    if shape == "small":
        # Micro-clusters mix classes here: their variances along the axes say little of narrow clusters.
        tables = {name: blobs(seed, 9, 8, 7) for seed, name in enumerate("abc")}
    if shape == "tiny":
        # Site d has too few rows of every cluster, and so sends no sums: its micro-clusters say more.
        tables["d"] = blobs(9, 3, 3, 3)
    if shape == "heavy tails":
        rng = np.random.default_rng(0)
        tables = {name: rng.standard_t(2, size=(150, 2)) + table for name, table in tables.items()}
    found = run(csv_sites(tables), **settings)
    assert nobody_failed(found)
    assert {site.status for site in found.outcome.sites} == {"ok"}


@pytest.mark.parametrize("settings", [{}, {"refined-votes": "on"}])
def test_nobody_is_refused_on_real_data(settings: dict[str, Any]) -> None:
    config = parse_run_config({"method": "microcluster", "data": "digits", **settings})
    found = run_locally(config, virtual_nodes(10))
    assert phases(found)[2].startswith("round")
    assert nobody_failed(found)


def test_nobody_sends_anything_that_can_be_used(csv_sites: Sites, blobs: Blobs) -> None:
    with pytest.raises(
        RunError, match=r"phase 'cells': 0 of 1 sites answered, quorum is 1\. a: site 'a': its micro-clusters"
    ):
        run(
            csv_sites({"a": blobs(0, 40, 40)}),
            tamper=at("cells", changed("means", lambda m: m + 1.0), node=0),
            min_sites=1,
        )
