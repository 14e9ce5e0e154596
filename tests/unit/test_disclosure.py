from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedcluster_app.config import DataSpec, RunConfig
from fedcluster_app.disclosure import Ledger, hold_back, large_enough, smallest_below
from fedcluster_app.messages import FedGEMBalls, FedGEMStart, Refusal
from fedcluster_app.transport import from_records
from fedcluster_app.wire import LAYOUTS, Payload, encode
from simulations.federation import run_locally


@pytest.mark.parametrize(
    ("mass", "min_count", "expected"),
    [
        ([5.0, 9.0, 4.9], 5, 2),
        ([5.0, 9.0, 6.0], 5, None),
        ([5.0, 9.0, 4.9999999], 5, None),  # five rows that belong to it but for rounding
        ([3.0, 1.0, 1.0], 5, 1),
        ([5.0], 5, None),
        ([1.0], 5, None),  # all rows of a site: whether it may send anything is asked before
        ([0.0, 0.0], 1, 0),
        ([1.0, 2.0], 1, None),
    ],
)
def test_the_smallest_component_goes_while_too_few_rows_stand_behind_it(
    mass: list[float], min_count: int, expected: int | None
) -> None:
    assert smallest_below(np.array(mass), min_count) == expected


def test_a_component_that_shrank_is_sent_as_it_last_was() -> None:
    means, released = np.arange(6.0).reshape(3, 2), -np.arange(6.0).reshape(3, 2)
    sent, radii = hold_back(means, np.ones(3), np.array([5.0, 4.99, 0.0]), released, 5)
    np.testing.assert_array_equal(sent, [means[0], released[1], released[2]])
    assert radii.tolist() == [1.0, 0.0, 0.0]


def test_nothing_is_held_back_when_all_are_large() -> None:
    means = np.arange(6.0).reshape(3, 2)
    sent, radii = hold_back(means, np.ones(3), np.full(3, 5.0), np.zeros((3, 2)), 5)
    np.testing.assert_array_equal(sent, means)
    assert radii.tolist() == [1.0, 1.0, 1.0]


def test_groups_are_large_from_the_minimum_on() -> None:
    assert large_enough(np.array([0, 4, 5, 6]), 5).tolist() == [False, False, True, True]


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_a_line_has_every_field(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "ledger.jsonl"
    means, radii = np.arange(6.0).reshape(3, 2), np.array([0.5, 0.0, 2.0])
    start = FedGEMStart(4, ("alpha=1.5", "min_mass=10"), float("nan"), 1.0, 2.0, means, radii)
    payload = encode(start)
    Ledger(path).record(payload, run_id=2**63 + 1, site="Nørd, å", rows=31, min_count=5)
    (line,) = lines(path)
    assert line.pop("time").endswith("Z")
    assert line == {
        "run": "9223372036854775809",
        "site": "Nørd, å",
        "message": "fedgem.start",
        "rows": 31,
        "min_count": 5,
        "bytes": payload.nbytes,
        "scalars": {
            "wire": 1,
            "kind": "fedgem.start",
            "k_counted": 4,
            "chosen": '["alpha=1.5", "min_mass=10"]',
            "silhouette": None,
            "spread": 1.0,
            "collapse_ratio": 2.0,
        },
        "arrays": {
            "means": {
                "meaning": "mean of every component after an EM step",
                "shape": [3, 2],
                "sha256": hashlib.sha256(means.tobytes()).hexdigest(),
            },
            "radii": {
                "meaning": "radius of every component's uncertainty ball",
                "shape": [3],
                "sha256": hashlib.sha256(radii.tobytes()).hexdigest(),
            },
        },
    }


def test_lines_are_added_one_a_message(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for message in (FedGEMBalls(np.ones((1, 2)), np.ones(1)), Refusal("a", "two\nlines"), Refusal("a", "")):
        Ledger(path).record(encode(message), run_id=1, site="a", rows=9, min_count=5)
    assert [line["message"] for line in lines(path)] == ["fedgem.balls", "refusal", "refusal"]
    assert lines(path)[1]["scalars"]["reason"] == "two\nlines"


def write_csv(path: Path, X: np.ndarray, labels: np.ndarray) -> None:
    rows = [f"{','.join(map(repr, row))},{label}" for row, label in zip(X.tolist(), labels, strict=True)]
    path.write_text("a,b,kind\n" + "\n".join(rows) + "\n")


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 40)
    return np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])[labels] + rng.normal(size=(120, 2)), labels


def run_and_keep(
    config: RunConfig, nodes: int | list[Mapping[str, Any]], **options: Any
) -> dict[int, list[Payload]]:
    """What every node really sent in a run."""
    sent: dict[int, list[Payload]] = {}

    def keep(node: int, question: Message, answer: Message) -> Message:
        sent.setdefault(node, []).append(from_records(answer.content))
        return answer

    assert run_locally(config, nodes, tamper=keep, **options).outcome.status == "finished"
    return sent


def assert_ledger_equals(path: Path, sent: list[Payload], site: str) -> None:
    kept = lines(path)
    assert len(kept) == len(sent)
    for line, payload in zip(kept, sent, strict=True):
        layout = LAYOUTS[payload.kind][1]
        assert layout.leaves_site
        assert (line["message"], line["site"], line["bytes"]) == (payload.kind, site, payload.nbytes)
        assert line["scalars"] == {n: None if v != v else v for n, v in payload.scalars.items()}
        assert line["arrays"] == {
            name: {
                "meaning": layout.fields[name].meaning,
                "shape": list(array.shape),
                "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
            }
            for name, array in payload.arrays.items()
        }


def test_the_ledgers_of_virtual_sites_are_what_they_sent(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    data, folder = tmp_path / "blobs.npz", tmp_path / "run"
    np.savez(data, X=blobs[0], y=blobs[1])
    config = RunConfig(method="fedgem", data=DataSpec(data=str(data), partition="iid"))
    sent = run_and_keep(config, 3, run_folder=str(folder))
    assert [part.kind for part in sent[0]][:2] == ["hello", "fedgem.start"]
    assert [part.kind for part in sent[0]][-2:] == ["fedgem.end", "labelled"]
    for node, parts in sent.items():
        name = f"site-{node:02d}"
        assert_ledger_equals(folder / "ledger" / f"{name}.jsonl", parts, name)


def test_the_ledgers_of_real_sites_are_what_they_sent(
    tmp_path: Path, own_home: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    X, labels = blobs
    told: list[Mapping[str, Any]] = []
    for name, part in {"a": slice(0, 60), "b/c": slice(60, 117), "few": slice(117, 120)}.items():
        path = tmp_path / f"{len(told)}.csv"
        write_csv(path, X[part], labels[part])
        told.append({"site-name": name, "data-path": str(path), "label-column": "kind"})
    told[0] = {**told[0], "ledger-path": str(tmp_path / "mine.jsonl")}
    told.append({"site-name": "gone", "data-path": str(tmp_path / "gone.csv")})
    sent = run_and_keep(RunConfig(min_sites=4), told, run_folder=str(tmp_path / "run"))
    assert [part.kind for part in sent[2]] == ["hello", "labelled"]
    assert [part.kind for part in sent[3]] == ["refusal"]
    assert_ledger_equals(tmp_path / "mine.jsonl", sent[0], "a")
    (odd,) = (own_home / "sites" / "ledger").glob("b_c-*.jsonl")
    assert_ledger_equals(odd, sent[1], "b/c")
    assert_ledger_equals(own_home / "sites" / "ledger" / "few.jsonl", sent[2], "few")
    assert_ledger_equals(own_home / "sites" / "ledger" / "gone.jsonl", sent[3], "gone")
    assert not (tmp_path / "run").exists()
