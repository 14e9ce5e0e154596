from __future__ import annotations

import io
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcluster_app.aggregation.microcluster import Clusters, MicroClusters
from fedcluster_app.config import FedGEMConfig, RunConfig, as_run_config, parse_run_config
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.results.folder import RunFolder
from fedcluster_app.results.load import load_model
from fedcluster_app.results.model import Model, cluster_labels, labels_text, write_labels
from fedcluster_app.results.outcome import FINISHED, ExchangeRecord, Outcome, SiteResult
from fedcluster_app.results.summaries import Summaries, load_summaries
from fedcluster_app.results.tables import aligned, exchange_line, plain, report, site_table, size

COLUMNS = ("temp", "mass in kg", "løn")
MEANS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
AXES = Scaling(
    np.array([1.0, 2.0, 3.0]),
    np.ones(3),
    np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
    np.array([2.0, 0.5]),
)


def model(scaling: Scaling = AXES) -> Model:
    return Model(COLUMNS, scaling, Mixture(np.full(3, 1 / 3), MEANS, np.ones(3)))


def plain_model() -> Model:
    means = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    scaling = Scaling(np.zeros(3), np.full(3, 0.1))
    return Model(COLUMNS, scaling, Mixture(np.array([0.25, 0.75]), means, np.ones((2, 3))))


def full_model() -> Model:
    """Two long clusters that lie across each other; the second is rare."""
    covariances = np.array([[[9.0, 0.0], [0.0, 0.25]], [[0.25, 0.0], [0.0, 9.0]]])
    return Model(COLUMNS, AXES, Mixture(np.array([0.9, 0.1]), np.zeros((2, 2)), covariances))


@pytest.mark.parametrize(
    "made", [model(), plain_model(), full_model()], ids=["axes", "columns", "full covariances"]
)
def test_a_model_comes_back_as_it_was(made: Model, tmp_path: Path) -> None:
    made.save(tmp_path / "model.npz")
    back = load_model(tmp_path / "model.npz")
    assert back.columns == COLUMNS
    for part in ("center", "scale", "components", "score_scale"):
        before, after = getattr(made.scaling, part), getattr(back.scaling, part)
        assert (before is None) == (after is None)
        np.testing.assert_array_equal(after, before)
    for part in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(back.clusters, part), getattr(made.clusters, part))
    X = np.random.default_rng(0).normal(size=(50, 3)) * 5
    np.testing.assert_array_equal(back.predict(X), made.predict(X))
    np.testing.assert_array_equal(back.predict(X, own_weights=True), made.predict(X, own_weights=True))


def test_full_covariances_and_a_sites_own_weights_decide() -> None:
    made, back = (
        full_model(),
        np.column_stack([AXES.score_scale * [[3.0, 0.0], [0.0, 3.0]] + [1.0, 2.0], [7, 7]]),
    )
    assert made.predict(back).tolist() == [0, 1]
    middle = np.column_stack([AXES.score_scale * np.zeros((1, 2)) + [1.0, 2.0], [7]])
    assert made.predict(middle).tolist() == [0]
    upright = np.repeat(back[1:], 99, axis=0)  # a site that has nothing but the second cluster
    rows = np.vstack([middle, upright])
    assert made.predict(rows).tolist() == [0] + [1] * 99
    assert made.predict(rows, own_weights=True).tolist() == [1] * 100
    assert made.predict(np.empty((0, 3)), own_weights=True).tolist() == []


def test_the_same_model_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model().save(tmp_path / "one.npz")
    monkeypatch.setattr("time.time", lambda: 4e9)
    model().save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert model().scaling.components is not None
    with np.load(tmp_path / "one.npz", allow_pickle=False) as file:
        assert set(file.files) == {
            *("format", "columns", "center", "scale", "components", "score_scale"),
            *("weights", "means", "covariances"),
        }


def test_rows_go_to_the_most_probable_cluster(tmp_path: Path) -> None:
    scaled = np.array([[0.1, 0.1], [3.0, 0.5], [0.0, 9.0], [2.0, -1.0]])
    X = np.column_stack([scaled * AXES.score_scale + [1.0, 2.0], np.full(4, 77.0)])
    assert model().predict(X).tolist() == [0, 1, 2, 0]  # of equals the first
    assert model().predict(X, COLUMNS).tolist() == [0, 1, 2, 0]
    assert model().predict(np.empty((0, 3))).tolist() == []
    heavy = Mixture(np.array([0.998, 0.001, 0.001]), MEANS, np.ones(3))
    assert cluster_labels(np.array([[2.5, 0.0]]), heavy).tolist() == [0]
    assert cluster_labels(np.array([[2.5, 0.0]]), model().clusters).tolist() == [1]


def test_columns_are_checked() -> None:
    X = np.zeros((2, 3))
    with pytest.raises(
        DataError, match=r"new rows: column 1 is 'mass in kg', expected 'temp'.*another order"
    ):
        model().predict(X, ("mass in kg", "temp", "løn"))
    with pytest.raises(DataError, match=r"new rows: has 2 columns, expected 3: 'løn' is missing.*made with"):
        model().predict(X[:, :2], COLUMNS[:2])
    for wrong in (np.zeros((2, 4)), np.zeros(3)):
        with pytest.raises(DataError, match=r"expected shape \(rows, 3\), got \("):
            model().predict(wrong)


def arrays_of(made: Model, folder: Path) -> dict[str, Any]:
    made.save(folder / "good.npz")
    with np.load(folder / "good.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": np.array(2)}, "format 2, expected 1; use a newer fedcluster"),
        ({"format": None}, "not the model of a fedcluster run .*format"),
        ({"means": None}, "not the model of a fedcluster run .*means"),
        ({"weights": np.array([0.5, 0.5, 0.5])}, "not the model of a fedcluster run .*a sum of 1"),
        ({"covariances": np.zeros(3)}, "not the model of a fedcluster run .*positive variances"),
        ({"means": np.full((3, 2), np.nan)}, "not the model of a fedcluster run .*finite"),
        ({"means": np.array([[{}]])}, "not the model of a fedcluster run .*allow_pickle=False"),
        ({"center": np.zeros(2)}, r"Model.scaling.center: expected shape \(3,\), got \(2,\)"),
        ({"scale": np.zeros((3, 1))}, r"Model.scaling.scale: expected shape \(3,\), got \(3, 1\)"),
        ({"components": np.eye(3)}, r"Model.scaling.components: expected shape \(3, 2\), got \(3, 3\)"),
        ({"score_scale": np.ones(3)}, r"Model.scaling.score_scale: expected shape \(2,\), got \(3,\)"),
        ({"components": None}, "Model: expected 3 features, one per column, got 2"),
    ],
)
def test_an_archive_that_is_no_model_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    arrays = {**arrays_of(model(), tmp_path), **change}
    path = tmp_path / "model.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DataError, match=reason) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"model {path}: ")


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model().save(path)
    whole, single = path.read_bytes(), io.BytesIO()
    np.save(single, np.ones(3))
    wrong = [b"", b"row,cluster\n", whole[:-30], whole[:300], single.getvalue(), pickle.dumps({"a": 1})]
    wrong += [whole.replace(b"center.npy", b"centre.npy", 1), b"PK\x03\x04" + bytes(40)]
    for content in wrong:
        path.write_bytes(content)
        with pytest.raises(DataError, match="not the model of a fedcluster run"):
            load_model(path)
    with pytest.raises(DataError, match="not the model of a fedcluster run"):
        load_model(tmp_path)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file; a run leaves model.npz in its folder"):
        load_model(tmp_path / "model.npz")


def test_labels_are_written_whole_in_the_order_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "labels.csv"
    write_labels(path, np.array([3, 0, 3]))
    assert path.read_text() == labels_text(np.array([3, 0, 3])) == "row,cluster\n0,3\n1,0\n2,3\n"
    write_labels(path, np.array([], dtype=np.int64))
    assert path.read_text() == "row,cluster\n"
    assert [item.name for item in path.parent.iterdir()] == ["labels.csv"]


def record(number: int = 1, **changes: Any) -> ExchangeRecord:
    made = ExchangeRecord(
        exchange=number,
        phase="round 3",
        answered=("a", "b"),
        late=(),
        failed={},
        bytes_down=1234,
        bytes_up=999,
        by_site={"a": (617, 500), "b": (617, 499)},
        seconds=0.25,
        figures={"k_hat": 7, "movement": 0.01234},
    )
    return replace(made, **changes)


def outcome(**changes: Any) -> Outcome:
    details = {
        "k_g": 3,
        "k_counted": 4,
        "chosen": {"alpha": 1.25, "min_mass": 20.0},
        "held_out_silhouette": 0.5,
    }
    made = Outcome(
        status=FINISHED,
        k_hat=3,
        bounds=(3, 5),
        model=model(),
        sites=(
            SiteResult("a", "ok", 120, 1500, 20, details),
            SiteResult("bee", "receives only", 2, 900, 10, {"held_out_silhouette": math.nan}),
        ),
        scores={"simplified_silhouette": 0.4, "davies_bouldin": math.nan},
        details={"movement": math.inf, "path": [{"v": 0.0, "bic": math.nan}]},
        warnings=("look here",),
    )
    return replace(made, **changes)


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_run_folder_has_the_whole_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "new" / "run")
    folder.note(record())
    folder.note(record(2, phase="end", failed={"b": "søvn"}, figures={"movement": math.nan}))
    config = RunConfig(min_count=7, fedgem=FedGEMConfig(final_radius=math.inf))
    folder.write(outcome(), config, run_id=2**64 - 1)
    assert sorted(item.name for item in folder.path.iterdir()) == [
        "model.npz",
        "rounds.jsonl",
        "summary.json",
    ]
    summary = strict((folder.path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["k_hat"], summary["k_hat_bounds"]) == ("finished", 3, [3, 5])
    assert isinstance(summary["sites"], list)
    assert summary["sites"][0] == {
        "name": "a",
        "status": "ok",
        "rows": 120,
        "bytes_down": 1500,
        "bytes_up": 20,
        **outcome().sites[0].details,
    }
    assert summary["sites"][1]["held_out_silhouette"] is None
    assert summary["scores"] == {"simplified_silhouette": 0.4, "davies_bouldin": None}
    assert summary["details"] == {"movement": None, "path": [{"v": 0.0, "bic": None}]}
    assert summary["config"] == as_run_config(config)
    assert parse_run_config(summary["config"]) == config
    assert summary["run_id"] == "18446744073709551615"
    assert summary["seeds"]["run"] == 42
    assert set(summary["versions"]) == {"fedcluster", "python", "flwr", "numpy", "scipy", "scikit-learn"}
    assert summary["bytes"] == {"down": 2468, "up": 1998}
    assert summary["timings"]["by_exchange"] == {"1 round 3": 0.25, "2 end": 0.25}
    assert summary["warnings"] == ["look here"]
    lines = (folder.path / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    assert summary["rounds"] == [strict(line) for line in lines]
    X = np.random.default_rng(1).normal(size=(9, 3))
    np.testing.assert_array_equal(load_model(folder.path / "model.npz").predict(X), model().predict(X))


def test_every_exchange_is_on_disk_at_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for number in (1, 2, 3):
        folder.note(record(number))
        lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
        assert [strict(line)["exchange"] for line in lines] == list(range(1, number + 1))
        assert not (tmp_path / "summary.json").exists()
    assert strict(lines[0]) == {
        "exchange": 1,
        "phase": "round 3",
        "answered": ["a", "b"],
        "late": [],
        "failed": {},
        "bytes_down": 1234,
        "bytes_up": 999,
        "by_site": {"a": [617, 500], "b": [617, 499]},
        "seconds": 0.25,
        "figures": {"k_hat": 7, "movement": 0.01234},
    }


def test_summaries_and_words_are_kept_with_the_run(tmp_path: Path) -> None:
    cells = MicroClusters(np.zeros(2, int), np.full(2, 7.0), np.ones((2, 2)), np.ones((2, 2)))
    found = full_model().clusters
    clusters = Clusters(found.weights[None], found.means, found.covariances, np.array([9.0, 5.0]))
    kept = Summaries(COLUMNS, AXES, {"a": cells}, clusters, ("a",), 0)
    RunFolder(tmp_path).write(
        outcome(summaries=kept, bounds=None, words=("so it is",)), RunConfig(), run_id=1
    )
    summary = strict((tmp_path / "summary.json").read_text())
    assert (summary["k_hat_bounds"], summary["words"]) == (None, ["so it is"])
    assert load_summaries(tmp_path / "summaries.npz").names == ("a",)


def test_a_failed_run_leaves_a_summary_and_no_model(tmp_path: Path) -> None:
    RunFolder(tmp_path).write(Outcome("failed: no site"), RunConfig(), run_id=1)
    summary = strict((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["k_hat"], summary["sites"]) == ("failed: no site", None, [])
    assert not (tmp_path / "model.npz").exists()


def test_a_folder_with_a_run_is_left_alone(tmp_path: Path) -> None:
    RunFolder(tmp_path).write(outcome(), RunConfig(), run_id=1)
    before = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"output-dir: .* already holds a run; choose another folder"):
        RunFolder(tmp_path)
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "under", tmp_path / ("long" * 100)):
        with pytest.raises(
            ConfigError, match=r"output-dir: cannot write to .* \(.+\); choose another folder"
        ):
            RunFolder(path)


def test_sizes_for_people() -> None:
    texts = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 15_349: "15.3 kB", 2.5e6: "2.5 MB", 7e12: "7000.0 GB"}
    assert {number: size(number) for number in texts} == texts


def test_columns_are_aligned() -> None:
    assert aligned([["site", "n", "status"], ["a", "10", "ok"], ["longer", "9", "missed it"]]) == (
        "site     n  status\na       10  ok\nlonger   9  missed it"
    )


def test_the_table_shows_what_the_method_said() -> None:
    assert site_table(outcome()) == (
        "site  rows  K_g  counted                  chosen  held-out sil.    down    up  status\n"
        "a      120    3        4  alpha=1.25 min_mass=20            0.5  1.5 kB  20 B  ok\n"
        "bee      2    -        -                       -              -   900 B  10 B  receives only"
    )
    assert site_table(Outcome("failed: x")) == "site  rows  down  up  status"


def test_an_exchange_on_one_line_with_its_failures_below() -> None:
    assert exchange_line(record()) == (
        "round 3    K̂    7  moved  0.0123  sites: 2 answered, 0 late, 0 failed  1.2 kB down, 999 B up"
    )
    likely = exchange_line(record(figures={"log_likelihood": -9.65503}))
    assert likely.startswith("round 3    log-likelihood of a row  -9.6550  sites: 2 answered")
    assert "-9.6550  moved  0.0120  sites" in exchange_line(
        record(figures={"log_likelihood": -9.65503, "movement": 0.012})
    )
    text = exchange_line(record(late=("c",), failed={"d": "no rows"}, figures={}))
    first, failed, late = text.splitlines()
    assert "K̂    -  moved       -  sites: 2 answered, 1 late, 1 failed" in first
    assert (failed, late) == ("    d failed: no rows", "    c did not answer in time")


def test_a_report_ends_with_warnings_and_the_status() -> None:
    text = report(outcome())
    assert "K̂ = 3 global clusters (at least 3 = max K_g, at most 5 = sum K_g)" in text
    assert "simplified silhouette (-1 to 1, high is good): 0.4" in text
    assert "Davies-Bouldin (low is good): -" in text
    assert "true classes" not in text
    assert text.splitlines()[-2:] == ["warning: look here", "status: finished"]
    scores = {"ari": 0.75, "nmi": 0.5, "own_ari": 1.0, "own_nmi": 1.0}
    lines = report(outcome(scores=scores, warnings=())).splitlines()
    assert "against the true classes, which this data set happens to have:" in lines
    assert "  global labels, pooled rows: ARI 0.75, NMI 0.5" in lines
    assert "  global labels by each site's own components: ARI 1, NMI 1" in lines
    assert not any("mean over sites" in line for line in lines)
    assert report(Outcome("failed: x")).endswith("status: failed: x")


def test_a_report_without_bounds_has_the_words_under_the_count() -> None:
    lines = report(outcome(bounds=None, words=("one", "two"))).splitlines()
    place = lines.index("K̂ = 3 global clusters")
    assert lines[place + 1 : place + 3] == ["  one", "  two"]
    assert "K̂ = 1 global cluster" in report(outcome(bounds=None, k_hat=1)).splitlines()
    site = SiteResult("a", "ok", 120, details={"cells": 12, "k_g": 3})
    assert site_table(outcome(sites=(site,))).splitlines()[0].split() == [
        "site",
        "rows",
        "cells",
        "K_g",
        "down",
        "up",
        "status",
    ]


def test_plain_values_are_strict_json() -> None:
    mixed = {"a": (1, math.nan), 2: [math.inf, {"b": -math.inf}], "c": np.float64(0.5), "d": None, "e": True}
    assert strict(json.dumps(plain(mixed))) == {
        "a": [1, None],
        "2": [None, {"b": None}],
        "c": 0.5,
        "d": None,
        "e": True,
    }
