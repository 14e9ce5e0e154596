from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster_app.aggregation.microcluster import Clusters, Drift, MicroClusters
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.results.summaries import Summaries, load_summaries

COLUMNS = ("temp", "mass in kg", "løn")
AXES = Scaling(np.arange(3.0), np.ones(3), np.eye(3)[:, :2], np.array([2.0, 0.5]))


def cells(k: int, seed: int) -> MicroClusters:
    rng = np.random.default_rng(seed)
    return MicroClusters(
        np.arange(k) % 2, rng.integers(5, 12, k).astype(float), rng.normal(size=(k, 2)), rng.random((k, 2))
    )


def clusters(sites: int = 2, k: int = 3) -> Clusters:
    rng = np.random.default_rng(sites)
    weights = rng.dirichlet(np.ones(k), size=sites)
    return Clusters(weights, rng.normal(size=(k, 2)), np.tile(np.eye(2), (k, 1, 1)), np.arange(1.0, k + 1))


def summaries(**changes: Any) -> Summaries:
    uploads = {"Ålesund": cells(3, 0), "b": cells(1, 1), "late": cells(2, 2)}
    made = Summaries(COLUMNS, AXES, uploads, clusters(), ("b", "Ålesund"), 7, {"b": 4})
    return replace(made, **changes)


def drifting() -> Summaries:
    rng = np.random.default_rng(5)
    return summaries(
        drift=Drift(True, rng.normal(size=(2, 2)), np.ones((2, 2)), np.array([0.5, 1.5])),
        scaling=Scaling(np.zeros(2), np.ones(2)),
        columns=("a", "b"),
    )


@pytest.mark.parametrize("made", [summaries(), drifting()], ids=["axes", "drift"])
def test_summaries_come_back_as_they_were(made: Summaries, tmp_path: Path) -> None:
    path = tmp_path / "summaries.npz"
    made.save(path)
    back = load_summaries(path)
    assert (back.columns, back.names, back.counts) == (made.columns, made.names, {"b": 4})
    assert back.seed == 7
    assert list(back.uploads) == sorted(made.uploads)
    pairs = [(made.scaling, back.scaling), (made.clusters, back.clusters)]
    pairs += [(made.uploads[name], back.uploads[name]) for name in made.uploads]
    for before, after in pairs:
        assert set(vars(before)) == set(vars(after))
        for name, part in vars(before).items():
            np.testing.assert_array_equal(getattr(after, name), part, strict=part is not None)
    assert (back.drift is None) == (made.drift is None)
    if made.drift and back.drift:
        assert back.drift.on
        for name in ("offsets", "gains", "widths"):
            np.testing.assert_array_equal(getattr(back.drift, name), getattr(made.drift, name))


def test_the_same_content_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    made = summaries()
    made.save(one)
    monkeypatch.setattr("time.time", lambda: 4e9)
    replace(made, uploads=dict(reversed(made.uploads.items()))).save(two)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": np.array(2)}, "format 2, expected 1; use a newer fedcluster"),
        ({"format": None}, "not the summaries .*format"),
        ({"seed": None}, "not the summaries .*seed"),
        ({"seed": np.array([1, 2])}, "not the summaries"),
        ({"seed": np.array(-1)}, "expected a seed of 0 or more, got -1"),
        ({"sites": None}, "not the summaries .*sites"),
        ({"sites": np.array(["b", "b", "late"])}, "expected every site once"),
        ({"sites": np.array(["b", "late"])}, "not the summaries"),
        ({"names": np.array(["b", "c"])}, "sites c have no micro-clusters"),
        ({"names": np.array(["b"])}, r"clusters.weights: expected shape \(1, 3\), got \(2, 3\)"),
        ({"cells": np.array([3, 1, 3])}, "expected 7 micro-clusters in all"),
        ({"cells": np.array([0, 4, 2])}, "at least one at every site"),
        ({"cell_counts": np.zeros(6)}, "expected positive counts"),
        ({"cell_counts": np.full(6, np.nan)}, "counts: expected finite numbers"),
        ({"cell_variances": -np.ones((6, 2))}, "no negative variance"),
        ({"cell_halves": np.full(6, 2)}, "expected halves 0 and 1"),
        ({"cell_means": np.ones((6, 3))}, r"site .*means: expected shape \(\d, 2\)"),
        ({"cluster_weights": np.ones((2, 3))}, "expected a sum of 1 at every site"),
        ({"cluster_means": np.ones((2, 2))}, r"clusters.means: expected shape \(3, 2\), got \(2, 2\)"),
        ({"cluster_covariances": -np.tile(np.eye(2), (3, 1, 1))}, "positive definite"),
        ({"cluster_masses": np.array([-1.0, 1.0, 1.0])}, "Mixture.weights"),
        ({"center": np.zeros(2)}, r"scaling.center: expected shape \(3,\), got \(2,\)"),
        ({"scale": None}, "not the summaries .*scale"),
        ({"components": None}, r"scaling.score_scale: expected shape \(3,\), got \(2,\)"),
        ({"scale": np.array([1.0, 0.0, 1.0])}, "expected positive scales"),
        ({"offsets": np.zeros((2, 2))}, "gains"),
        (
            {"offsets": np.zeros((2, 2)), "gains": np.ones((2, 3)), "widths": np.zeros(2)},
            r"drift.gains: expected shape \(2, 2\), got \(2, 3\)",
        ),
        ({"counted": np.array([1, 2])}, "not the summaries"),
        ({"columns": np.array([{}])}, "allow_pickle=False"),
    ],
)
def test_an_archive_that_is_something_else_is_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "summaries.npz"
    summaries().save(path)
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    kept = {name: part for name, part in {**arrays, **change}.items() if part is not None}
    np.savez(path, **kept)
    with pytest.raises(DataError, match=reason) as caught:
        load_summaries(path)
    assert str(caught.value).startswith(f"summaries {path}: ")


def test_a_file_that_is_not_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "summaries.npz"
    with pytest.raises(DataError, match=r"no such file; method='microcluster' leaves summaries\.npz"):
        load_summaries(path)
    summaries().save(path)
    whole = path.read_bytes()
    for content in (b"", b"row,cluster\n", whole[:-30], whole[:300]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not the summaries of a fedcluster run"):
            load_summaries(path)
    with pytest.raises(DataError, match="not the summaries of a fedcluster run"):
        load_summaries(tmp_path)
