"""Sites that fail, fall silent, lie, leave, or hold odd tables: the run goes on and says what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedcluster_app.config import RunConfig, as_run_config, parse_run_config
from fedcluster_app.errors import RunError
from fedcluster_app.messages import Refusal
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.outcome import FINISHED
from fedcluster_app.server_app import strategy_of
from fedcluster_app.transport import ARRAYS, SCALARS, from_records, to_records
from fedcluster_app.wire import Payload, encode
from simulations.federation import LocalGrid, LocalRun, virtual_nodes
from strategies.base import SiteStrategy

Fault = Callable[[Message, Message], Message | None]
Tamper = Callable[[int, Message, Message], Message | None]
Blobs = Callable[..., NDArray[np.float64]]
Sites = Callable[..., list[dict[str, Any]]]
ReadClusters = Callable[[Path | str], NDArray[np.int64]]

PHASES = {
    "hello": "ask.hello",
    "count": "ask.fedgem.start",
    "round": "ask.fedgem.round",
    "end": "ask.fedgem.end",
    "labels": "ask.labels",
}
FIELD = {"hello": "mean", "count": "means", "round": "means", "end": "means", "labels": "within"}
NOT_NEGATIVE = {"hello": "scatter", "count": "radii", "round": "radii", "end": "scatters", "labels": "counts"}


def settings(**values: Any) -> RunConfig:
    short = {
        "method": "fedgem",
        "pca": 0,
        "join-timeout": 0.3,
        "round-timeout": 0.1,
        "fedgem-max-rounds": 3,
        "fedgem-tolerance": 0.0,
        "fedgem-variance": "unit",  # so that means still move in round 3
    }
    return parse_run_config(short | {key.replace("_", "-"): value for key, value in values.items()})


def attempt(
    nodes: int | Sequence[dict[str, Any]],
    folder: Path | None = None,
    *,
    tamper: Tamper | None = None,
    **values: Any,
) -> LocalRun:
    """Run to the end, whatever it is; ``run_locally`` gives no outcome of a run that failed."""
    config = settings(**values)
    faults = {"tamper": tamper} if tamper else {}
    configs = virtual_nodes(nodes) if isinstance(nodes, int) else nodes
    grid = LocalGrid(configs, as_run_config(config), **faults)
    strategy: SiteStrategy[Any] = strategy_of(config)(
        config, run_folder=str(folder or ""), say=lambda line: None
    )
    with suppress(RunError):
        strategy.start(grid)
    return LocalRun(strategy.outcome, strategy.trace, strategy, grid)


def status_of(run: LocalRun) -> dict[str, str]:
    return {site.name: site.status for site in run.outcome.sites}


def model_bytes(run: LocalRun, folder: Path) -> bytes:
    assert run.outcome.model is not None
    run.outcome.model.save(folder / "model.npz")
    return (folder / "model.npz").read_bytes()


def in_phase(
    phase: str, fault: Fault, *, nodes: Sequence[int] = (1,), times: int = 1, skip: int = 0
) -> Tamper:
    """Apply a fault at some nodes to answers of one phase: ``times`` of them, after the first ``skip``."""
    seen = dict.fromkeys(nodes, 0)

    def tamper(node: int, question: Message, answer: Message) -> Message | None:
        if node not in seen or from_records(question.content).kind != PHASES[phase]:
            return answer
        seen[node] += 1
        return fault(question, answer) if skip < seen[node] <= skip + times else answer

    return tamper


def both(*tampers: Tamper) -> Tamper:
    def tamper(node: int, question: Message, answer: Message) -> Message | None:
        for one in tampers:
            if answer is not None:
                answer = one(node, question, answer)  # type: ignore[assignment]  # None ends the loop
        return answer

    return tamper


# --- faults


def silent(question: Message, answer: Message) -> None:
    return None


def crash(question: Message, answer: Message) -> Message:
    raise MemoryError("out of memory")


def refuse(question: Message, answer: Message) -> Message:
    return Message(to_records(encode(Refusal("b", "site 'b': the disk is full"))), reply_to=question)


def edited(question: Message, answer: Message, edit: Callable[[Payload], None]) -> Message:
    payload = from_records(answer.content)
    edit(payload)
    return Message(to_records(payload), reply_to=question)


def with_array(fields: dict[str, str], change: Callable[[FloatArray], Any]) -> Callable[[str], Fault]:
    def make(phase: str) -> Fault:
        def edit(payload: Payload) -> None:
            payload.arrays[fields[phase]] = change(payload.arrays[fields[phase]].copy())

        return lambda question, answer: edited(question, answer, edit)

    return make


def first_entry(value: float) -> Callable[[FloatArray], FloatArray]:
    def change(values: FloatArray) -> FloatArray:
        values.flat[0] = value
        return values

    return change


def wrong_kind(phase: str) -> Fault:
    other = "fedgem.balls" if phase != "round" else "fedgem.start"

    def edit(payload: Payload) -> None:
        payload.scalars["kind"] = other

    return lambda question, answer: edited(question, answer, edit)


def broken_bytes(data: Callable[[bytes], bytes]) -> Callable[[str], Fault]:
    def make(phase: str) -> Fault:
        def fault(question: Message, answer: Message) -> Message:
            arrays: Any = answer.content[ARRAYS]
            good = arrays[FIELD[phase]]
            arrays[FIELD[phase]] = Array(good.dtype, good.shape, good.stype, data(good.data))
            return answer

        return fault

    return make


def wrong_records(question: Message, answer: Message) -> Message:
    records = {ARRAYS: ConfigRecord({"means": 1}), SCALARS: answer.content[SCALARS]}
    return Message(RecordDict(records), reply_to=question)


HUGE = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }\n"
FAULTS: dict[str, tuple[Callable[[str], Fault], str]] = {
    "refusal": (lambda phase: refuse, "the disk is full"),
    "crash": (lambda phase: crash, "the ClientApp failed: MemoryError: out of memory"),
    "NaN": (with_array(FIELD, first_entry(np.nan)), "NaN or infinite"),
    "infinite": (with_array(FIELD, first_entry(np.inf)), "NaN or infinite"),
    "negative": (with_array(NOT_NEGATIVE, first_entry(-1.0)), "at least 0"),
    "longer": (with_array(NOT_NEGATIVE, lambda values: np.concatenate([values, values])), "expected shape"),
    "nested": (with_array(FIELD, lambda values: values[None]), "expected shape"),
    "empty": (with_array(NOT_NEGATIVE, lambda values: values[:0]), "expected shape"),
    "float32": (with_array(FIELD, lambda values: values.astype(np.float32)), "expected float64"),
    "wrong kind": (wrong_kind, "expected message"),
    "cut": (broken_bytes(lambda data: data[:-9]), "cannot be read"),
    "no array": (broken_bytes(lambda data: b"PK\x03\x04 what"), "cannot be read"),
    "mad header": (broken_bytes(lambda data: data[:10] + b"{(\n" + data[13:]), "cannot be read"),
    "boundless": (
        broken_bytes(lambda data: data[:8] + len(HUGE).to_bytes(2, "little") + HUGE),
        "cannot be read",
    ),
    "no records": (lambda phase: lambda q, a: Message(RecordDict(), reply_to=q), "wire version None"),
    "wrong records": (lambda phase: wrong_records, "expected records"),
}


@pytest.fixture
def three(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    """Sites a, b, c: three clusters each, far apart."""
    return csv_sites({name: blobs(seed, 20, 25, 30) for seed, name in enumerate("abc")})


@pytest.mark.parametrize("phase", ["count", "round", "end", "labels"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_any_phase_is_named_and_the_run_goes_on(
    name: str, phase: str, three: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    make, reason = FAULTS[name]
    run = attempt(three, tamper=in_phase(phase, make(phase)))
    assert run.outcome.status == FINISHED
    assert run.outcome.k_hat == 3
    assert run.outcome.bounds == (3, 9)  # the site is in, by its last ball or by a later answer
    faulty = [record for record in run.trace if record.failed or record.late]
    assert [record.phase.split()[0] for record in faulty] == [phase]
    assert list(faulty[0].failed) == ["b"]
    assert "site 'b'" in faulty[0].failed["b"]
    assert reason in faulty[0].failed["b"]
    assert faulty[0].answered == ("a", "c")
    missed = f"missed {faulty[0].phase}: {faulty[0].failed['b']}"
    assert status_of(run) == {"a": "ok", "b": missed, "c": "ok"}
    after = run.trace[faulty[0].exchange :]
    assert all(record.answered == ("a", "b", "c") for record in after)
    for node in three:
        assert len(clusters_in(node["labels-path"])) == 75


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_greeting_sets_the_site_aside(name: str, three: list[dict[str, Any]]) -> None:
    make, reason = FAULTS[name]
    run = attempt(three, tamper=in_phase("hello", make("hello")))
    assert run.outcome.status == FINISHED
    assert run.outcome.bounds == (3, 6)
    (who, why), *others = run.trace[0].failed.items()
    assert (who, others) == ("b" if name == "refusal" else "node 102", [])
    assert reason in why
    assert status_of(run) == {"a": "ok", "c": "ok", who: f"set aside: {why}"}
    assert all(record.answered == ("a", "c") for record in run.trace)


@pytest.mark.parametrize("phase", PHASES)
def test_a_silent_site_is_late_and_may_come_back(phase: str, three: list[dict[str, Any]]) -> None:
    run = attempt(three, tamper=in_phase(phase, silent))
    assert run.outcome.status == FINISHED
    late = [record for record in run.trace if record.late]
    assert [record.phase.split()[0] for record in late] == [phase]
    assert not any(record.failed for record in run.trace)
    if phase == "hello":
        assert late[0].late == ("node 102",)
        assert status_of(run)["node 102"] == "set aside: never answered"
    else:
        assert late[0].late == ("b",)
        assert run.outcome.bounds == (3, 9)
        assert all(record.answered == ("a", "b", "c") for record in run.trace if record not in late)


def test_the_last_ball_stands_in_for_a_silent_site(three: list[dict[str, Any]], tmp_path: Path) -> None:
    """To be silent in a round is to say again what was said in the round before."""
    kept: list[Payload] = []

    def say_again(node: int, question: Message, answer: Message) -> Message:
        if node == 1 and from_records(question.content).kind == PHASES["round"]:
            kept.append(from_records(answer.content))
            if len(kept) in (2, 3):
                return Message(to_records(kept[0]), reply_to=question)
        return answer

    away = attempt(three, tamper=in_phase("round", silent, skip=1, times=2))
    assert [record.phase for record in away.trace if record.late] == ["round 2", "round 3"]
    again = attempt(three, tamper=say_again)
    assert not any(record.late for record in again.trace)
    assert model_bytes(away, tmp_path) == model_bytes(again, tmp_path)
    assert model_bytes(away, tmp_path) != model_bytes(attempt(three), tmp_path)


def test_a_site_that_is_silent_at_the_count_joins_in_a_later_round(three: list[dict[str, Any]]) -> None:
    run = attempt(three, tamper=in_phase("count", silent, times=2))
    assert [record.late for record in run.trace] == [(), ("b",), ("b",), (), (), (), ()]
    asked = [
        from_records(letter.content).kind for letter in run.grid.sent if letter.metadata.dst_node_id == 102
    ]
    assert asked == [
        PHASES["hello"],
        *[PHASES["count"]] * 3,
        PHASES["round"],
        PHASES["end"],
        PHASES["labels"],
    ]
    assert run.outcome.bounds == (3, 9)
    assert run.outcome.sites[1].details["k_g"] == 3


def test_a_site_that_never_counts_is_only_labelled(
    three: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    run = attempt(three, tamper=in_phase("count", silent, times=99))
    assert run.outcome.status == FINISHED
    assert run.outcome.bounds == (3, 6)
    assert "sites b never sent a count; the clusters are those of the others" in run.outcome.warnings
    assert len(clusters_in(three[1]["labels-path"])) == 75
    assert "k_counted" not in run.outcome.sites[1].details


def test_a_site_that_leaves_in_round_3(three: list[dict[str, Any]]) -> None:
    gone = [in_phase("round", silent, skip=2, times=99), *(in_phase(p, silent) for p in ("end", "labels"))]
    run = attempt(three, tamper=both(*gone))
    assert run.outcome.status == FINISHED
    assert run.outcome.k_hat == 3
    assert run.outcome.bounds == (3, 9)
    assert [record.phase for record in run.trace if record.late == ("b",)] == [
        "round 3",
        "end",
        "labels",
    ]
    assert status_of(run)["b"] == "missed 3 exchanges from round 3 on: no answer in time"
    assert any("sites b missed the last upload" in warning for warning in run.outcome.warnings)
    assert run.outcome.scores["rows_scored"] == 150


def test_a_site_that_was_restarted_says_so(three: list[dict[str, Any]]) -> None:
    """Its state is lost, so it cannot go on; the others can."""
    nodes: list[LocalGrid] = []

    def forget(node: int, question: Message, answer: Message) -> Message:
        if node == 1 and from_records(question.content).kind == PHASES["count"]:
            for name in list(nodes[0]._contexts[102].state):
                del nodes[0]._contexts[102].state[name]
        return answer

    config = settings()
    nodes.append(LocalGrid(three, as_run_config(config), tamper=forget))
    strategy = strategy_of(config)(config, say=lambda line: None)
    strategy.start(nodes[0])
    assert strategy.outcome.status == FINISHED
    assert "no memory of this run" in strategy.trace[2].failed["b"]
    assert strategy.outcome.bounds == (3, 9)


@pytest.mark.parametrize("phase", PHASES)
def test_all_silent_in_a_phase(phase: str, three: list[dict[str, Any]]) -> None:
    run = attempt(three, tamper=in_phase(phase, silent, nodes=(0, 1, 2)))
    if phase == "labels":
        assert run.outcome.status == FINISHED
        assert run.outcome.model is not None
        assert run.outcome.scores == {}
        assert run.trace[-1].late == ("a", "b", "c")
        return
    assert run.outcome.model is None
    if phase == "hello":
        assert run.outcome.status.startswith("failed: 0 sites can take part")
        return
    assert run.trace[-1].phase.split()[0] == phase
    assert run.outcome.status == (
        f"failed: phase {run.trace[-1].phase!r}: 0 of 3 sites answered, quorum is 1. "
        "a: no answer within 0.1 s; b: no answer within 0.1 s; c: no answer within 0.1 s"
    )
    assert list(status_of(run)) == ["a", "b", "c"]


# --- sites with few rows


@pytest.mark.parametrize("rows", [0, 1, 2, 4])
def test_a_site_under_min_count_only_receives(
    rows: int, csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters
) -> None:
    nodes = csv_sites({"a": blobs(0, 20, 20), "few": blobs(1, rows), "z": blobs(2, 20, 20)})
    run = attempt(nodes)
    assert run.outcome.status == FINISHED
    assert run.outcome.bounds == (2, 4)
    assert status_of(run) == {"a": "ok", "few": "receives only", "z": "ok"}
    asked = [
        from_records(letter.content).kind for letter in run.grid.sent if letter.metadata.dst_node_id == 102
    ]
    assert asked == [PHASES["hello"], PHASES["labels"]]
    assert run.outcome.sites[1].rows == rows
    assert run.outcome.scores["rows_scored"] == 80  # its sums stay at the site
    assert run.outcome.model is not None
    found = clusters_in(nodes[1]["labels-path"])
    assert found.tolist() == run.outcome.model.predict(blobs(1, rows)).tolist()


def test_a_site_may_ask_for_a_higher_min_count(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({"a": blobs(0, 20, 20), "b": blobs(1, 20, 20), "c": blobs(2, 20, 20)})
    nodes[1]["min-count"] = 41
    run = attempt(nodes)
    assert status_of(run) == {"a": "ok", "b": "receives only", "c": "ok"}
    nodes[1]["min-count"] = 40
    run = attempt(nodes)
    assert run.outcome.sites[1].details["k_counted"] == 2
    assert run.outcome.sites[1].details["k_g"] == 1  # no component of it has 40 rows but all together


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_with_min_count_1_every_row_counts(
    rows: int, csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters
) -> None:
    nodes = csv_sites({"a": blobs(0, 20, 20), "few": blobs(1, rows), "z": blobs(2, 20, 20)})
    nodes[1]["min-count"] = 1  # without the owner's word a real site's floor is 5
    run = attempt(nodes, min_count=1)
    assert run.outcome.status == FINISHED
    assert run.outcome.sites[1].status == ("ok" if rows else "receives only")
    assert run.outcome.scores["rows_scored"] == 80 + rows
    assert len(clusters_in(nodes[1]["labels-path"])) == rows


# --- tables of an odd kind


@pytest.mark.parametrize("where", ["at one site", "everywhere", "all columns everywhere"])
@pytest.mark.parametrize("pca", [0, 1])
def test_constant_columns(where: str, pca: int, csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(seed, 20, 20) for seed, name in enumerate("abc")}
    for name in ["b"] if where == "at one site" else ["a", "b", "c"]:
        tables[name][:, 0] = 7.0
        if where == "all columns everywhere":
            tables[name][:, 1] = -3.5
    run = attempt(csv_sites(tables), pca=pca)
    assert run.outcome.status == FINISHED
    assert set(status_of(run).values()) == {"ok"}
    if where == "all columns everywhere":
        assert run.outcome.k_hat == 1
        assert "constant over all sites: 'c0', 'c1'" in run.outcome.warnings
    elif where == "everywhere":
        assert run.outcome.k_hat == 2
        assert "constant over all sites: 'c0'" in run.outcome.warnings


def test_one_real_site_alone(csv_sites: Sites, blobs: Blobs) -> None:
    run = attempt(csv_sites({"a": blobs(0, 20, 25, 30)}), min_sites=1)
    assert (run.outcome.k_hat, run.outcome.bounds) == (3, (3, 3))
    assert not any("floor" in warning for warning in run.outcome.warnings)


def test_one_virtual_site_alone(tmp_path: Path) -> None:
    run = attempt(1, tmp_path, pca=10)
    low, high = run.outcome.bounds or (0, 0)
    assert run.outcome.k_hat == low == high


def npz_of(
    path: Path,
    parts: Sequence[NDArray[np.float64]],
    classes: Sequence[NDArray[np.int64]],
    names: Sequence[str] = ("p", "q", "r"),
) -> str:
    """Write a table whose rows know their sites."""
    site = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    np.savez(
        path, X=np.concatenate(parts), y=np.concatenate(classes), site=site, site_names=names[: len(parts)]
    )
    return str(path)


def test_virtual_sites_by_their_own_names(tmp_path: Path, blobs: Blobs, clusters_in: ReadClusters) -> None:
    """One holds two rows, one holds a missing value, and one fails in a round."""
    parts = [blobs(0, 20, 20), blobs(1, 20, 20), blobs(2, 2), blobs(3, 20, 20)]
    parts[1][7, 0] = np.nan
    classes = [np.repeat([0, 1], 20), np.repeat([0, 1], 20), np.zeros(2, np.int64), np.repeat([0, 1], 20)]
    data = npz_of(tmp_path / "isles.npz", parts, classes, ["Biscoe", "Dream", "Hut", "Torgersen"])
    run = attempt(4, tmp_path / "run", data=data, tamper=in_phase("round", crash, nodes=(3,)))
    assert run.outcome.status == FINISHED
    assert list(status_of(run)) == ["Biscoe", "Dream", "Hut", "Torgersen"]
    assert status_of(run)["Dream"].startswith(
        "set aside: site 'Dream': column 'x0' has 1 of 40 values missing"
    )
    assert status_of(run)["Hut"] == "receives only"
    assert status_of(run)["Torgersen"].startswith("missed round 1: ")
    assert run.outcome.scores["ari"] == 1.0
    folder = tmp_path / "run" / "labels"
    assert sorted(path.name for path in folder.iterdir()) == ["Biscoe.csv", "Hut.csv", "Torgersen.csv"]
    assert len(clusters_in(folder / "Hut.csv")) == 2


def test_one_cluster_at_every_site(tmp_path: Path) -> None:
    """No site has a distance between two means, so the last radius comes from the rows' own spread."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(centre, 1.0, (30, 3)) for centre in (0.0, 0.0, 20.0)]
    data = npz_of(tmp_path / "ones.npz", parts, [np.full(30, c) for c in (0, 0, 1)])
    run = attempt(3, tmp_path, data=data, estimator="oracle")
    assert [site.details["k_g"] for site in run.outcome.sites] == [1, 1, 1]
    assert run.outcome.bounds == (1, 3)
    assert run.outcome.k_hat == 2
    assert run.outcome.scores["ari"] == 1.0


def test_one_cluster_beside_nine(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = 12.0 * np.stack(np.meshgrid(np.arange(3), np.arange(3)), axis=-1).reshape(9, 2)
    nine = np.repeat(np.arange(9), 12)
    parts = [rng.normal(size=(30, 2)), centres[nine] + rng.normal(size=(len(nine), 2))]
    data = npz_of(tmp_path / "nine.npz", parts, [np.zeros(30, np.int64), nine])
    run = attempt(2, tmp_path, data=data, estimator="oracle", scaling="none")
    assert [site.details["k_g"] for site in run.outcome.sites] == [1, 9]
    assert (run.outcome.k_hat, run.outcome.bounds) == (9, (9, 10))
    assert run.outcome.scores["ari"] == 1.0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nan", "column 'c1' has 1 of 40 values missing or not finite (2.5 %)"),
        ("", "column 'c1' has 1 of 40 values missing or not finite (2.5 %)"),
        ("inf", "column 'c1' has 1 of 40 values missing or not finite (2.5 %)"),
        ("red", "column 'c1' has 1 of 40 values that are not numbers (2.5 %)"),
    ],
)
def test_a_value_that_is_no_number_sets_the_site_aside(
    value: str, reason: str, csv_sites: Sites, blobs: Blobs
) -> None:
    tables: dict[str, Any] = {name: blobs(seed, 20, 20).astype(object) for seed, name in enumerate("abc")}
    tables["b"][3, 1] = value
    run = attempt(csv_sites(tables))
    assert run.outcome.status == FINISHED
    assert reason in run.trace[0].failed["b"]
    assert status_of(run)["b"].startswith("set aside: site 'b': ")
    assert run.trace[1].answered == ("a", "c")


def test_most_sites_decide_on_the_columns_of_csv_files(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(seed, 20, 20) for seed, name in enumerate("abc")}
    run = attempt(csv_sites(tables, columns={"a": ["c0", "heat"]}))
    told = "column 2 is 'heat', expected 'c1' (expected is what most sites have)"
    assert status_of(run)["a"] == f"set aside: {told}"
    assert run.trace[1].answered == ("b", "c")


def test_two_sites_that_disagree_on_columns_stop_the_run(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(seed, 20, 20) for seed, name in enumerate("ab")}
    run = attempt(csv_sites(tables, columns={"b": ["c1", "c0"]}))
    assert run.outcome.status.startswith("failed: 0 sites can take part")
    assert status_of(run) == {
        "a": "set aside: sites do not agree on columns, and no list is that of most sites",
        "b": "set aside: sites do not agree on columns, and no list is that of most sites: column 1 is 'c1', "
        "expected 'c0' (the same columns in another order) as at site 'a'",
    }


def test_no_file_at_a_site(csv_sites: Sites, blobs: Blobs, tmp_path: Path) -> None:
    nodes = csv_sites({name: blobs(seed, 20, 20) for seed, name in enumerate("abc")})
    Path(nodes[2]["data-path"]).unlink()
    run = attempt(nodes)
    assert "there is no data file" in run.trace[0].failed["c"]
    assert run.trace[-1].answered == ("a", "b")


def test_a_wrong_node_config_is_named(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 20, 20) for seed, name in enumerate("abc")})
    nodes[0]["data-path"] = "relative.csv"
    run = attempt(nodes)
    assert "data-path expected an absolute path" in run.trace[0].failed["a"]
    assert run.trace[1].answered == ("b", "c")


def test_classes_are_compared_by_name(csv_sites: Sites, blobs: Blobs) -> None:
    """Sites number their classes each for itself; only the names are common."""
    tables = {name: blobs(seed, 20, 20, 20) for seed, name in enumerate("abc")}
    tables["b"], tables["c"] = tables["b"][:40], tables["c"][20:]
    tissue = np.repeat(["pear", "fig", "nut"], 20)
    run = attempt(csv_sites(tables, labels={"a": tissue, "b": tissue[:40], "c": tissue[20:]}))
    assert run.outcome.k_hat == 3
    assert run.outcome.scores["ari"] == 1.0
    assert run.outcome.scores["nmi"] == 1.0


def test_scores_without_labels_and_with_labels_at_one_site(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(seed, 20, 20) for seed, name in enumerate("abc")}
    run = attempt(csv_sites(tables))
    assert "ari" not in run.outcome.scores
    assert run.outcome.scores["simplified_silhouette"] > 0.5
    run = attempt(csv_sites(tables, labels={"b": np.repeat([0, 1], 20)}))
    assert run.outcome.scores["ari"] == 1.0
    assert run.outcome.scores["rows_scored"] == 120
