"""Columns scaled to [0, 1]: by declared bounds, or by extremes that only sites send whose owners allow it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from micro_runs import Blobs, Sites, changed
from rival_runs import at, run

from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import ConfigError, RunError
from fedcluster_app.results.model import Model
from simulations.federation import LocalRun


def scaling(one: LocalRun) -> tuple[list[float], list[float]]:
    assert isinstance(one.outcome.model, Model)
    found = one.outcome.model.scaling
    assert found.components is None
    return found.center.tolist(), (found.center + found.scale).tolist()


@pytest.fixture
def nodes(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    return csv_sites({name: blobs(seed, 40, 50, 60) * [1.0, 5.0] for seed, name in enumerate("ab")})


def test_declared_bounds_go_to_zero_and_one(nodes: list[dict[str, Any]]) -> None:
    one = run("ffcm-avg1", nodes, scaling="minmax", bounds="-5,25;-25,125")
    assert scaling(one) == ([-5.0, -25.0], [25.0, 125.0])
    assert one.outcome.k_hat == 3
    assert scaling(run("kfed", nodes, scaling="minmax", bounds="-30,130")) == ([-30.0] * 2, [130.0] * 2)
    assert [record.phase for record in one.trace][:2] == ["hello", "round 1"]
    assert not any("outside" in warning for warning in one.outcome.warnings)


def test_no_principal_axes_are_taken_then() -> None:
    one = run("kfed", 3, scaling="minmax", bounds="0,16", k=5)
    assert scaling(one) == ([0.0] * 64, [16.0] * 64)
    config = parse_run_config({"scaling": "minmax", "bounds": "0,16"})
    assert (config.axes, config.axes_share) == (0, 1.0)


def test_extremes_leave_only_if_every_site_allows_it(nodes: list[dict[str, Any]]) -> None:
    open_nodes = [{**node, "allow-unsafe": True} for node in nodes]
    with pytest.raises(RunError, match=r"bounds='data' sends the extremes of every column.*; missing at b$"):
        run("kfed", [open_nodes[0], nodes[1]], scaling="minmax", bounds="data")
    for node in nodes:
        assert "bounds" not in Path(node["ledger-path"]).read_text()
    one = run("kfed", open_nodes, scaling="minmax", bounds="data")
    tables = [np.loadtxt(node["data-path"], delimiter=",", skiprows=1) for node in nodes]
    X = np.concatenate(tables)
    low, high = scaling(one)
    np.testing.assert_allclose(low, X.min(axis=0))
    np.testing.assert_allclose(high, X.max(axis=0))
    said = [json.loads(line)["message"] for line in Path(nodes[0]["ledger-path"]).read_text().splitlines()]
    assert said[-4:] == ["hello", "bounds", "local.centers", "labelled"]
    assert one.trace[1].phase == "bounds"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-1e30, 1e30, "they lie where its rows cannot"),
        (1e3, -1e3, "its mean does not lie between them"),
        (30.0, 40.0, "its mean does not lie between them"),
        (8.0, 11.0, "its rows scatter more than they allow"),
    ],
)
def test_extremes_that_cannot_be_are_named_and_not_used(
    low: float, high: float, said: str, csv_sites: Sites, blobs: Blobs
) -> None:
    tables = {name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abc")}
    nodes = [{**node, "allow-unsafe": True} for node in csv_sites(tables)]

    def lie(question: Message, answer: Message) -> Message:
        answer = changed("low", lambda part: np.full_like(part, low))(question, answer)
        return changed("high", lambda part: np.full_like(part, high))(question, answer)

    one = run("kfed", nodes, scaling="minmax", bounds="data", tamper=at(1, lie, 1, last=1))
    assert said in one.trace[1].failed["b"]
    assert one.outcome.k_hat == 3
    found = np.concatenate([tables[name] for name in "ac"])
    np.testing.assert_allclose(scaling(one), [found.min(axis=0), found.max(axis=0)])
    with pytest.raises(RunError, match=f"site 'b': its extremes were not used: {said}"):
        run("kfed", nodes, scaling="minmax", bounds="data", tamper=at(1, lie, 1, last=1), quorum=3)


def test_constant_columns_and_means_outside(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: np.insert(blobs(seed, 40, 50, 60), 1, 7.0, axis=1) for seed, name in enumerate("ab")}
    nodes = [{**node, "allow-unsafe": True} for node in csv_sites(tables)]
    assert run("kfed", nodes, scaling="minmax", bounds="data").outcome.k_hat == 3
    one = run("kfed", nodes, scaling="minmax", bounds="0,16;0,5;0,16")
    assert any("the mean lies outside the bounds of 'c1'" in warning for warning in one.outcome.warnings)


def test_bounds_of_another_number_of_columns(nodes: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="bounds expected 1 pair or 2, one a column, got 3"):
        run("kfed", nodes, scaling="minmax", bounds="0,1;0,1;0,1")


@pytest.mark.parametrize(
    "bounds", ["1", "1,0", "0,1,2", "0,1;", "low,high", "0,inf", "nan,1", "0,0", ";", "data,data"]
)
def test_bounds_that_are_none(bounds: str) -> None:
    with pytest.raises(ConfigError, match=r"bounds expected 'low,high' \(low < high\)"):
        parse_run_config({"scaling": "minmax", "bounds": bounds})


def test_minmax_and_bounds_go_together() -> None:
    for values in ({"scaling": "minmax"}, {"bounds": "0,1"}):
        with pytest.raises(ConfigError, match="scaling='minmax' and bounds go together"):
            parse_run_config(values)
