from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient

import fedcluster_app.site as site_module
from fedcluster_app import __version__
from fedcluster_app.cardinality import asm
from fedcluster_app.client import SiteClient
from fedcluster_app.data.readers import read_table
from fedcluster_app.data.scaling import Scaling, symmetric_matrix
from fedcluster_app.messages import (
    AskFedGEMEnd,
    AskFedGEMRound,
    AskFedGEMStart,
    AskHello,
    AskLabels,
    FedGEMBalls,
    FedGEMEnd,
    FedGEMMemory,
    FedGEMStart,
    Hello,
    Labelled,
    Refusal,
)
from fedcluster_app.metrics.additive import score_sums
from fedcluster_app.metrics.agreement import contingency_table
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.packing import flatten, listed, unflatten, unlisted
from fedcluster_app.results.model import Model
from fedcluster_app.site import file_stem
from fedcluster_app.steps import fedgem as fedgem_step
from fedcluster_app.transport import Memory
from fedcluster_app.wire import Payload, decode, encode

CENTERS = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])
START = AskFedGEMStart(np.zeros(2), np.ones(2), None, None)


def blobs(*sizes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows around as many far corners as there are sizes, in mixed order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return CENTERS[labels] + rng.normal(size=(len(labels), 2)), labels


def write_csv(path: Path, X: np.ndarray, labels: np.ndarray) -> str:
    names = ["ash", "elm", "fir", "oak"]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", "tree", "b"])
        table.writerows(
            [repr(a), names[label], repr(b)] for (a, b), label in zip(X.tolist(), labels, strict=True)
        )
    return str(path)


def context(node: dict[str, Any], **run: Any) -> Context:
    config = {name.replace("_", "-"): value for name, value in run.items()}
    return Context(7, 101, node, RecordDict(), config)


@pytest.fixture
def real(tmp_path: Path) -> Callable[..., Context]:
    """Make a real site with its own csv."""

    def make(
        X: np.ndarray,
        labels: np.ndarray,
        node: dict[str, Any] | None = None,
        *,
        name: str = "ward",
        **run: Any,
    ) -> Context:
        path = write_csv(tmp_path / f"{name}.csv", X, labels)
        own = {"site-name": name, "data-path": path, "label-column": "tree"}
        return context({**own, **(node or {})}, **run)

    return make


@pytest.fixture
def virtual(tmp_path: Path) -> Callable[..., Context]:
    """Make the one virtual site of a file, whose classes it counts if not told otherwise."""

    def make(X: np.ndarray, labels: np.ndarray, **run: Any) -> Context:
        path = tmp_path / "all.npz"
        np.savez(path, X=X, y=labels)
        given = {"data": str(path), "partition": "iid", "estimator": "oracle", "pca": 0, **run}
        return context({"partition-id": 0, "num-partitions": 1}, **given)

    return make


def hello(where: Context, folder: str = "") -> Any:
    said = SiteClient(where).get_properties(flatten(encode(AskHello(folder))))
    return decode(unflatten(said), Hello, Refusal, sender="site")


def fit(where: Context, ask: object, *answers: type) -> Any:
    arrays, _, scalars = SiteClient(where).fit(*listed(encode(ask)))
    return decode(unlisted(arrays, scalars), *answers, sender="site")


def start(where: Context, ask: AskFedGEMStart = START) -> FedGEMStart:
    return fit(where, ask, FedGEMStart)


def refusal(where: Context, ask: object) -> str:
    said = fit(where, ask, Refusal)
    return str(said.reason)


def ask_labels(centers: np.ndarray, own: list[int] | None = None) -> AskLabels:
    k = len(centers)
    members = None if own is None else np.array(own)
    return AskLabels(
        center=np.zeros(2),
        scale=np.ones(2),
        components=None,
        score_scale=None,
        weights=np.full(k, 1 / k),
        means=centers,
        covariances=np.ones((k, 1)),
        offset=None,
        gain=None,
        fit_weights=False,
        own_labels=members,
        names=None,
    )


def evaluate(where: Context, ask: AskLabels) -> tuple[float, int, Labelled]:
    loss, rows, said = SiteClient(where).evaluate(*listed(encode(ask)))
    return loss, rows, decode(unflatten(said), Labelled, sender="site")


def ledger(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# Who the site is


def test_it_is_flowers_numpy_client(real: Callable[..., Context]) -> None:
    assert isinstance(SiteClient(real(*blobs(9))), NumPyClient)


def test_a_real_site_introduces_itself(real: Callable[..., Context]) -> None:
    X, labels = blobs(20, 30)
    said = hello(real(X, labels))
    assert (said.site, said.version, said.rows, said.columns) == ("ward", __version__, 50, ("a", "b"))
    assert said.partitions == 0
    np.testing.assert_allclose(said.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(said.scatter, ((X - X.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-12)
    assert said.scatter_triangle is None


def test_a_virtual_site_introduces_itself(virtual: Callable[..., Context]) -> None:
    said = hello(virtual(*blobs(20, 30)))
    assert (said.site, said.rows, said.columns) == ("site-00", 50, ("x0", "x1"))
    assert said.partitions == 1


def test_second_moments_are_full_only_when_axes_will_be_taken(real: Callable[..., Context]) -> None:
    X, labels = blobs(20, 30)
    said = hello(real(X, labels, pca=1))
    assert said.scatter is None
    np.testing.assert_allclose(
        symmetric_matrix(said.scatter_triangle, 2), np.cov(X.T, bias=True) * 50, rtol=1e-12
    )
    assert hello(real(X, labels, pca=2)).scatter_triangle is None


def test_the_three_calls_answer_alike(real: Callable[..., Context]) -> None:
    where, asked = real(*blobs(20, 30)), encode(AskHello(""))
    properties = unflatten(SiteClient(where).get_properties(flatten(asked)))
    arrays, rows, scalars = SiteClient(where).fit(*listed(asked))
    loss, count, metrics = SiteClient(where).evaluate(*listed(asked))
    assert (loss, rows, count) == (0.0, 50, 50)
    for other in (unlisted(arrays, scalars), unflatten(metrics)):
        assert flatten(other) == flatten(properties)


# A whole run at one site


@pytest.mark.parametrize("kind", ["real", "virtual"])
def test_a_site_from_hello_to_labels(
    kind: str, tmp_path: Path, own_home: Path, request: pytest.FixtureRequest
) -> None:
    X, labels = blobs(40, 30, 20)
    where = request.getfixturevalue(kind)(X, labels)
    assert hello(where, str(tmp_path / "run")).rows == 90
    started = start(where)
    assert (started.k_counted, started.means.shape, started.radii.shape) == (3, (3, 2), (3,))
    assert started.spread == pytest.approx(np.sqrt(X.var(axis=0).mean()))
    assert started.collapse_ratio == pytest.approx(np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1])
    votes = ["asm", "dendrogram", "kmeans", "leaves"]
    assert list(started.choices()) == (votes if kind == "real" else [])
    assert np.isnan(started.silhouette) == (kind == "virtual")
    balls = fit(where, AskFedGEMRound(1, started.means), FedGEMBalls)
    end = fit(where, AskFedGEMEnd(balls.means), FedGEMEnd)
    assert sorted(end.counts.tolist()) == [20, 30, 40]
    order = np.argsort(-end.counts)
    np.testing.assert_allclose(
        end.centers[order], [X[labels == label].mean(axis=0) for label in range(3)], atol=1e-9
    )
    ask = ask_labels(CENTERS[:3], own=[0, 1])
    loss, rows, said = evaluate(where, ask)
    found = Model(("a", "b"), Scaling(np.zeros(2), np.ones(2)), Mixture(ask.weights, ask.means, np.ones(3)))
    expected = found.predict(X)
    sums = score_sums(X, expected, CENTERS[:3])
    assert (rows, loss) == (90, pytest.approx(sums.within.sum() / 90))
    for got, wanted in (
        (said.counts, sums.rows),
        (said.within, sums.within),
        (said.distances, sums.distance),
        (said.silhouettes, sums.silhouette),
        (said.contingency, contingency_table(labels, expected, shape=(3, 3))),
    ):
        np.testing.assert_array_equal(got, wanted)
    assert said.class_names == (("ash", "elm", "fir") if kind == "real" else ("0", "1", "2"))
    # The rows of the third class have no component of their own here, and go to the nearest that has one.
    assert said.own_contingency.shape == (3, 3)
    assert said.own_contingency[:, 2].tolist() == [0, 0, 0]
    assert said.own_contingency.sum(axis=1).tolist() == [40, 30, 20]
    home = tmp_path / "run" if kind == "virtual" else own_home / "sites"
    name = "site-00" if kind == "virtual" else "ward"
    text = "row,cluster\n" + "".join(f"{row},{label}\n" for row, label in enumerate(expected))
    assert (home / "labels" / f"{name}.csv").read_text() == text
    lines = ledger(home / "ledger" / f"{name}.jsonl")
    assert [line["message"] for line in lines] == [
        *("hello", "fedgem.start", "fedgem.balls", "fedgem.end", "labelled")
    ]
    assert {(line["run"], line["site"], line["rows"], line["min_count"]) for line in lines} == {
        ("7", name, 90, 5)
    }
    assert (tmp_path / "run").exists() == (kind == "virtual")
    assert own_home.exists() == (kind == "real")


def test_the_same_questions_give_the_same_bytes(real: Callable[..., Context]) -> None:
    X, labels = blobs(40, 30, 20)
    first, second = (start(real(X, labels, init=init)) for init in ("kmeans++", "kmeans++"))
    assert flatten(encode(first)) == flatten(encode(second))


def test_a_start_from_the_counted_means(virtual: Callable[..., Context]) -> None:
    X, labels = blobs(40, 30)
    where = virtual(X, labels, estimator="asm", asm_merge_ratio=3.0, asm_min_mass=10, init="asm-means")
    started = start(where)
    assert (started.k_counted, started.chosen) == (2, ("alpha=3.0", "min_mass=10"))
    assert np.isnan(started.silhouette)
    truth = np.array([X[labels == label].mean(axis=0) for label in range(2)])
    np.testing.assert_allclose(started.means[np.argsort(started.means[:, 0])], truth, atol=1e-6)


def test_own_files_go_where_the_owner_says(
    real: Callable[..., Context], tmp_path: Path, own_home: Path
) -> None:
    labels_path, ledger_path = tmp_path / "mine" / "l.csv", tmp_path / "log" / "left.jsonl"
    node = {"labels-path": str(labels_path), "ledger-path": str(ledger_path)}
    where = real(*blobs(20, 30), node)
    hello(where, str(tmp_path / "run"))
    evaluate(where, ask_labels(CENTERS[:2]))
    assert labels_path.read_text().count("\n") == 51
    assert [line["message"] for line in ledger(ledger_path)] == ["hello", "labelled"]
    assert not own_home.exists()
    assert not (tmp_path / "run").exists()


def test_own_data_make_a_real_site_of_a_virtual_one(
    real: Callable[..., Context], tmp_path: Path, own_home: Path
) -> None:
    where = real(*blobs(20), {"partition-id": 0, "num-partitions": 1})
    said = hello(where, str(tmp_path / "run"))
    assert (said.site, said.rows, said.partitions) == ("ward", 20, 0)
    assert not (tmp_path / "run").exists()
    assert ledger(own_home / "sites" / "ledger" / "ward.jsonl")


def test_a_virtual_site_without_a_run_folder_writes_at_home(
    virtual: Callable[..., Context], own_home: Path
) -> None:
    where = virtual(*blobs(20))
    hello(where)
    evaluate(where, ask_labels(CENTERS[:1]))
    assert (own_home / "sites" / "labels" / "site-00.csv").exists()


def test_file_names_are_safe_and_differ() -> None:
    assert file_stem("ward-3_b.x") == "ward-3_b.x"
    assert file_stem("Ålesund") == "Ålesund"
    odd = ["a/b", "a\\b", "a b", "..", "../a", ".a", "a:b", "", "a\nb"]
    stems = [file_stem(name) for name in odd]
    assert len({*stems, "a_b", "a"}) == len(odd) + 2
    assert not any(set(stem) & set("/\\ :\n") or stem.startswith(".") for stem in stems)


def test_a_site_without_true_classes_counts_none(real: Callable[..., Context]) -> None:
    X, labels = blobs(20, 30)
    where = real(X, labels)
    where.node_config["data-path"] = str(Path(str(where.node_config["data-path"])).with_name("bare.csv"))
    np.savetxt(where.node_config["data-path"], X, delimiter=",", header="a,b", comments="")
    where.node_config["label-column"] = ""
    _, _, said = evaluate(where, ask_labels(CENTERS[:2], own=[1, 0]))
    assert (said.class_names, said.contingency, said.own_contingency) == ((), None, None)
    assert said.counts.tolist() == [20, 30]


def test_settings_reach_the_arithmetic(
    virtual: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, Any] = {}

    def noted(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            used[name] = options | {"last": args[-1]}
            return kernel(*args, **options)

        return call

    monkeypatch.setattr(asm, "count_asm", noted("count", asm.count_asm))
    monkeypatch.setattr(fedgem_step, "initial_means", noted("init", fedgem_step.initial_means))
    monkeypatch.setattr(fedgem_step, "client_step", noted("step", fedgem_step.client_step))
    X, labels = blobs(40, 30)
    count = {"estimator": "asm", "asm_order": "distance", "asm_merge_ratio": "2,3", "asm_min_mass": "9,4"}
    fedgem = {"init": "kmeans++", "fedgem_radius": "gem", "fedgem_local_steps": 3, "fedgem_variance": "unit"}
    start(virtual(X, labels, **count, **fedgem))
    del used["count"]["last"], used["step"]["last"]
    assert used == {
        "count": {"alphas": (2.0, 3.0), "min_masses": (4, 9), "order": "distance"},
        "init": {"last": "kmeans++"},
        "step": {"variance": 1.0, "radius_rule": "gem", "local_steps": 3},
    }


def test_an_outlier_takes_no_mean(real: Callable[..., Context]) -> None:
    X, labels = blobs(60, 50, 40)
    where = real(np.vstack([X, [[1e4, 1e4]]]), np.r_[labels, 0])
    started = start(where)
    assert (started.k_counted, len(started.means)) == (3, 3)


# Minimum counts


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every step that the site makes."""
    made: list[Any] = []

    def spy(*args: Any, **options: Any) -> Any:
        made.append(real_step(*args, **options))
        return made[-1]

    real_step = fedgem_step.client_step
    monkeypatch.setattr(fedgem_step, "client_step", spy)
    return made


def test_small_components_are_dissolved_before_the_first_upload(
    virtual: Callable[..., Context], steps: list[Any]
) -> None:
    where = virtual(*blobs(40, 4, 30, 2))
    started = start(where)
    assert (started.k_counted, len(started.means), len(started.radii)) == (4, 2, 2)
    assert [len(step.mass) for step in steps] == [4, 3, 2]
    assert steps[-1].mass.sum() == pytest.approx(76)
    np.testing.assert_array_equal(steps[-1].balls.means, started.means)
    balls = fit(where, AskFedGEMRound(1, started.means), FedGEMBalls)
    assert balls.means.shape == (2, 2)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("init", ["kmeans", "kmeans++"])
def test_nothing_too_small_is_released_at_the_start(
    seed: int, init: str, virtual: Callable[..., Context], steps: list[Any]
) -> None:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(60, 2)) * 3, rng.integers(12, size=60)
    min_count = int(rng.integers(1, 15))
    started = start(virtual(X, labels, min_count=min_count, init=init))
    assert started.k_counted == len(np.unique(labels))
    assert 1 <= len(started.means) <= started.k_counted
    released = steps[-1]
    assert released.mass.min() > min_count - 1e-6
    np.testing.assert_array_equal(released.balls.means, started.means)
    np.testing.assert_array_equal(released.balls.radii, started.radii)


def test_a_minimum_of_one_keeps_what_was_counted(virtual: Callable[..., Context]) -> None:
    started = start(virtual(*blobs(40, 4, 30, 2), min_count=1))
    assert started.k_counted == len(started.means) == 4


def test_a_component_that_shrinks_is_sent_as_it_last_was(virtual: Callable[..., Context]) -> None:
    X, labels = blobs(40, 30)
    where = virtual(X, labels)
    started = start(where)
    nudged = started.means + np.array([4.0, 0.0])
    before = fit(where, AskFedGEMRound(1, nudged), FedGEMBalls)
    assert (before.radii > 0).all()
    assert (before.means != started.means).all()
    small = before.means.copy()
    small[1] = [500.0, 500.0]
    after = fit(where, AskFedGEMRound(2, small), FedGEMBalls)
    assert after.radii[0] > 0
    assert after.radii[1] == 0
    np.testing.assert_array_equal(after.means[1], before.means[1])  # not as at the start
    assert np.abs(after.means[0] - X.mean(axis=0)).max() < 1e-9  # all rows went to the other
    back = fit(where, AskFedGEMRound(3, before.means), FedGEMBalls)
    assert (back.radii > 0).all()
    gone = fit(where, AskFedGEMEnd(small), FedGEMEnd)
    np.testing.assert_array_equal(gone.means[1], back.means[1])


def test_rows_of_too_small_a_component_count_to_the_others(
    virtual: Callable[..., Context], steps: list[Any]
) -> None:
    rng = np.random.default_rng(3)
    X = np.vstack([0.3 * rng.normal(size=(60, 2)), [[4.0, 0.1], [4.0, -0.1], [4.1, 0.0]]])
    where = virtual(X, np.zeros(63, dtype=np.int64))
    # Between the two groups: soft mass enough, but few rows are nearest to it.
    means = np.array([[0.0, 0.0], [2.0, 0.0]])
    Memory(where).save(FedGEMMemory(np.zeros(2), np.ones(2), None, None, means, 1.0))
    end = fit(where, AskFedGEMEnd(means), FedGEMEnd)
    assert steps[-1].mass.min() > 5
    assert end.means.shape == (2, 2)
    nearest = np.linalg.norm(X[:, None] - end.means, axis=2).argmin(axis=1)
    few, many = np.argsort(np.bincount(nearest, minlength=2))
    assert 0 < np.bincount(nearest)[few] < 5
    assert (end.counts[few], end.scatters[few], end.centers[few].tolist()) == (0, 0.0, [0.0, 0.0])
    # All rows are in: what was left out could be had as the difference to the site's totals.
    assert end.counts[many] == len(X)
    np.testing.assert_allclose(end.centers[many], X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        end.scatters[many], np.square(X - X.mean(axis=0)).sum(axis=1).mean(), rtol=1e-12
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_summaries_are_of_all_rows(seed: int, virtual: Callable[..., Context]) -> None:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(60, 2)) * 3, rng.integers(12, size=60)
    where = virtual(X, labels, min_count=6)
    end = fit(where, AskFedGEMEnd(start(where).means), FedGEMEnd)
    assert end.counts.sum() == 60
    assert end.counts[end.counts > 0].min() >= 6


def test_a_site_takes_its_own_variance_where_it_is_smaller(
    virtual: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []
    real_step = fedgem_step.client_step

    def noted(*args: Any, variance: float, **options: Any) -> Any:
        taken.append(variance)
        return real_step(*args, variance=variance, **options)

    monkeypatch.setattr(fedgem_step, "client_step", noted)
    X, labels = blobs(400, 300)
    for scale, variance in ((0.1, 0.01), (10.0, 1.0)):
        where = virtual(X * scale, labels)
        begun = start(where)
        fit(where, AskFedGEMRound(1, begun.means), FedGEMBalls)
        assert taken[-2:] == [pytest.approx(variance, rel=0.1)] * 2
    start(virtual(X * 0.1, labels, fedgem_variance="unit"))
    assert taken[-1] == 1.0
    start(virtual(np.ones((20, 2)), np.zeros(20, dtype=np.int64)))
    assert taken[-1] == 1e-6


def test_scores_of_too_few_rows_are_zero(real: Callable[..., Context]) -> None:
    X, labels = blobs(40, 30, 4)
    _, _, said = evaluate(real(X, labels), ask_labels(CENTERS))
    assert said.counts.tolist() == [40, 30, 0, 0]
    for part in (said.within, said.distances, said.silhouettes):
        assert (part[:2] > 0).all()
        assert part[2:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["real", "virtual"])
@pytest.mark.parametrize("rows", [0, 1, 2, 4])
def test_a_site_with_too_few_rows_only_receives(
    rows: int, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = request.getfixturevalue(kind)(*blobs(rows))
    said = hello(where, str(tmp_path))
    assert (said.rows, said.mean, said.scatter, said.scatter_triangle) == (rows, None, None, None)
    reason = refusal(where, START)
    assert reason.endswith(f"has {rows} rows, fewer than min-count=5; it only receives")
    loss, count, labelled = evaluate(where, ask_labels(CENTERS[:2], own=[0, 1]))
    assert (loss, count) == (0.0, rows)
    assert set(encode(labelled).arrays) == set()
    assert labelled.class_names == ()
    if kind == "virtual":
        assert (tmp_path / "labels" / "site-00.csv").read_text().count("\n") == rows + 1


@pytest.mark.parametrize("rows", [1, 2])
def test_the_smallest_sites_take_part_where_they_may(rows: int, virtual: Callable[..., Context]) -> None:
    where = virtual(*blobs(rows), min_count=1, estimator="asm")
    assert hello(where).mean is not None
    started = start(where)
    assert (started.k_counted, len(started.means)) == (1, 1)
    assert fit(where, AskFedGEMEnd(started.means), FedGEMEnd).counts.tolist() == [rows]


def test_a_sites_own_floor_is_above_the_runs(real: Callable[..., Context], own_home: Path) -> None:
    X, labels = blobs(40, 30, 20)
    strict = real(X, labels, {"min-count": 25}, min_count=2)
    started = start(strict)
    assert (started.k_counted, len(started.means)) == (3, 2)
    _, _, said = evaluate(strict, ask_labels(CENTERS[:3]))
    assert said.counts.tolist() == [40, 30, 0]
    lax = real(X, labels, {"min-count": 2}, min_count=25)
    assert len(start(lax).means) == 2
    closed = real(X, labels, {"min-count": 91})
    assert hello(closed).mean is None
    assert "fewer than min-count=91" in refusal(closed, START)
    lines = ledger(own_home / "sites" / "ledger" / "ward.jsonl")
    assert [line["min_count"] for line in lines] == [25, 25, 25, 91, 91]


# Refusals


def test_a_wrong_setting_is_refused_by_the_site(real: Callable[..., Context], own_home: Path) -> None:
    said = hello(real(*blobs(20), pca="ten"))
    assert (said.site, said.reason) == ("ward", "run config: pca expected a whole number, got 'ten'")
    said = hello(context({"data-path": "/srv/a.csv"}))
    assert said.site == ""
    assert "a site with data-path needs a stable name" in said.reason
    # Which ledger? The site does not know its settings.
    assert not own_home.exists()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "site 'ward': column 'b' has 1 of 3 values missing or not finite (33.3 %)"),
        ("nan", "site 'ward': column 'b' has 1 of 3 values missing or not finite (33.3 %)"),
        ("inf", "site 'ward': column 'b' has 1 of 3 values missing or not finite (33.3 %)"),
        ("red", "site 'ward': column 'b' has 1 of 3 values that are not numbers (33.3 %)"),
    ],
)
def test_a_bad_column_is_named_and_its_values_are_not(
    bad: str, reason: str, tmp_path: Path, own_home: Path
) -> None:
    path = tmp_path / "ward.csv"
    path.write_text(f"a,b\n77.25,1\n78.25,2\n79.25,{bad}\n")
    where = context({"site-name": "ward", "data-path": str(path)}, min_count=1)
    said = hello(where)
    assert said.site == "ward"
    assert said.reason.startswith(reason)
    assert not any(value in said.reason for value in ("77.25", "78.25", "79.25", "red"))
    (line,) = ledger(own_home / "sites" / "ledger" / "ward.jsonl")
    assert (line["message"], line["rows"], line["scalars"]["reason"]) == ("refusal", 0, said.reason)


def test_a_virtual_site_with_a_bad_column_still_says_who_it_is(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("site,temp\nwest,1\neast,\nwest,2\neast,3\n")
    where = context({"partition-id": 0, "num-partitions": 2}, data=str(path))
    said = hello(where, str(tmp_path / "run"))
    assert (said.site, "column 'temp' has 1 of 2 values missing" in said.reason) == ("east", True)
    assert ledger(tmp_path / "run" / "ledger" / "east.jsonl")


def test_a_file_that_goes_away_is_missed_in_words(real: Callable[..., Context]) -> None:
    where = real(*blobs(20))
    start(where)
    os.remove(where.node_config["data-path"])
    reason = refusal(where, AskFedGEMRound(1, np.zeros((1, 2))))
    assert reason.startswith("site 'ward': there is no data file")


def test_only_simulations_read_the_true_classes(
    real: Callable[..., Context], virtual: Callable[..., Context]
) -> None:
    X, labels = blobs(20, 30)
    assert "estimator 'oracle' reads the true classes" in refusal(real(X, labels, estimator="oracle"), START)
    where = virtual(X, labels)
    np.savez(where.run_config["data"], X=X)
    assert "use another estimator" in refusal(where, START)


def test_a_site_without_memory_of_the_run_says_so(real: Callable[..., Context]) -> None:
    where = real(*blobs(20, 30))
    for ask in (AskFedGEMRound(3, np.zeros((2, 2))), AskFedGEMEnd(np.zeros((2, 2)))):
        reason = refusal(where, ask)
        assert reason == "site 'ward': has no memory of this run; it may have been restarted"


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2, 3)])
def test_means_of_another_shape_are_refused(shape: tuple[int, int], real: Callable[..., Context]) -> None:
    where = real(*blobs(20, 30))
    assert start(where).means.shape == (2, 2)
    for ask in (AskFedGEMRound(1, np.zeros(shape)), AskFedGEMEnd(np.zeros(shape))):
        assert refusal(where, ask) == f"site 'ward': got means of shape {shape}, expected (2, 2)"


def test_a_question_that_is_none_is_refused(real: Callable[..., Context]) -> None:
    where = real(*blobs(20))

    def reason(payload: Payload) -> str:
        arrays, rows, scalars = SiteClient(where).fit(*listed(payload))
        assert rows == 0
        return str(decode(unlisted(arrays, scalars), Refusal, sender="site").reason)

    assert "coordinator: expected message ask.hello or ask.bounds or" in reason(
        encode(FedGEMBalls(np.zeros((1, 2)), np.zeros(1)))
    )
    old = encode(AskHello(""))
    old.scalars["wire"] = 0
    assert reason(old) == "coordinator: wire version 0, expected 1; use the same fedcluster"
    broken = encode(START)
    broken.arrays["scale"] = np.array([1.0, np.nan])
    assert reason(broken) == "coordinator: ask.fedgem.start.scale: has 1 entries that are NaN or infinite"


def test_nothing_leaves_if_the_ledger_cannot_be_written(real: Callable[..., Context], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    where = real(*blobs(20), {"ledger-path": str(tmp_path / "file" / "ledger.jsonl")})
    reason = refusal(where, AskHello(""))
    assert "cannot write its ledger" in reason
    assert "nothing is sent" in reason


# The table is read once


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the tables that were read, with a cache of its own."""
    paths: list[str] = []

    def counted(path: str, **options: Any) -> Any:
        paths.append(os.path.basename(path))
        return read_table(path, **options)

    monkeypatch.setattr(site_module, "read_table", counted)
    monkeypatch.setattr(site_module, "_CACHE", site_module._Cache(2**20))
    return paths


def whole_run(where: Context) -> bytes:
    hello(where)
    started = start(where)
    fit(where, AskFedGEMRound(1, started.means), FedGEMBalls)
    fit(where, AskFedGEMRound(2, started.means), FedGEMBalls)
    end = fit(where, AskFedGEMEnd(started.means), FedGEMEnd)
    _, _, said = evaluate(where, ask_labels(CENTERS[:2]))
    return b"".join(part.tobytes() for value in (end, said) for part in encode(value).arrays.values())


def test_a_run_reads_the_table_once(real: Callable[..., Context], reads: list[str]) -> None:
    X, labels = blobs(20, 30)
    where = real(X, labels)
    first = whole_run(where)
    assert reads == ["ward.csv"]
    again = Context(8, 102, where.node_config, RecordDict(), where.run_config)
    assert whole_run(again) == first
    assert reads == ["ward.csv"]


def test_a_file_that_changes_is_read_again(real: Callable[..., Context], reads: list[str]) -> None:
    where = real(*blobs(20, 30))
    assert hello(where).rows == 50
    path = where.node_config["data-path"]
    write_csv(Path(path), *blobs(15, 25))
    os.utime(path, ns=(1, 1))
    assert hello(where).rows == 40
    assert len(reads) == 2
    fit(where, START, FedGEMStart)
    os.utime(path, ns=(2, 2))
    write_csv(Path(path), *blobs(15, 26))
    assert evaluate(where, ask_labels(CENTERS[:2]))[1] == 41
    assert len(reads) == 3


def test_a_virtual_sites_file_that_changes_is_read_again(
    virtual: Callable[..., Context], reads: list[str]
) -> None:
    where = virtual(*blobs(20, 30))
    start(where)
    np.savez(where.run_config["data"], X=np.ones((8, 2)), y=np.zeros(8, dtype=np.int64))
    os.utime(where.run_config["data"], ns=(1, 1))
    assert start(where).means.tolist() == [[1.0, 1.0]]
    assert hello(where).rows == 8


def test_another_scaling_gives_other_rows(real: Callable[..., Context], reads: list[str]) -> None:
    where = real(*blobs(40, 30))
    plain = start(where)
    twice = start(where, AskFedGEMStart(np.zeros(2), np.full(2, 0.5), None, None))
    turned = start(where, AskFedGEMStart(np.zeros(2), np.ones(2), np.eye(2)[::-1].copy(), None))
    assert twice.spread == pytest.approx(2 * plain.spread)
    assert turned.spread == pytest.approx(plain.spread)
    np.testing.assert_allclose(np.sort(turned.means[:, 1]), np.sort(plain.means[:, 0]))
    assert reads == ["ward.csv"]


def test_the_cache_is_bounded(
    real: Callable[..., Context], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (real(*blobs(40, 30), name=name) for name in ("one", "two"))
    size = 70 * 2 * 8  # a table, and as much again for its scaled rows
    monkeypatch.setattr(site_module, "_CACHE", site_module._Cache(4 * size))
    for _ in range(3):
        assert start(one).means.shape == start(two).means.shape == (2, 2)
    assert reads == ["one.csv", "two.csv"]
    reads.clear()
    monkeypatch.setattr(site_module, "_CACHE", site_module._Cache(2 * size))
    for _ in range(3):
        assert start(one).means.shape == start(two).means.shape == (2, 2)
    assert reads == ["one.csv", "two.csv"] * 3


def test_rounds_do_not_read_a_table_that_is_too_large_to_keep(
    real: Callable[..., Context], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "_CACHE", site_module._Cache(70 * 2 * 8))
    where = real(*blobs(40, 30))
    means = start(where).means
    for number in (1, 2, 3):
        fit(where, AskFedGEMRound(number, means), FedGEMBalls)
    assert reads == ["ward.csv"]


def test_the_least_recently_used_goes_first() -> None:
    cache = site_module._Cache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert [cache.get(name) for name in "abc"] == [1, None, 3]
    cache.put("whale", 4, 100)
    assert [cache.get(name) for name in ("a", "c", "whale")] == [None, None, 4]
