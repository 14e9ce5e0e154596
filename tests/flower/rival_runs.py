"""What the tests of the rivals share: short runs of every one of them, and faults that come over a node."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Message

from fedcluster_app.config import parse_run_config
from fedcluster_app.results.tables import plain
from fedcluster_app.transport import from_records
from simulations.federation import LocalRun, run_locally

Fault = Callable[[Message, Message], Message | None]

# What each needs to find three clusters, and the arrays of its sites' answers in order of round.
SETTINGS: dict[str, dict[str, Any]] = {
    "kfed": {"k": 3, "local-k": 3},
    "fedkmeans": {"k": 3},
    "fedkmeans-aligned": {"k": 3},
    "fedgrem": {"components": 3, "local-starts": 1, "fedgrem-rounds": 25, "fedgrem-tolerance": 0.01},
    "consensus-em": {
        "components": 3,
        "local-starts": 1,
        "consensus-rounds": 25,
        "consensus-tolerance": 0.01,
    },
    "ffcm-avg1": {"k": 3, "ffcm-fuzzifier": 1.5},
    "ffcm-avg2": {"k": 3, "ffcm-fuzzifier": 1.5},
    "spahm": {"local-k": 3},
    "afcl": {"local-k": 6, "afcl-rate": 0.03},
    "fedem": {"k": 3},
    "fedgengmm": {"k": 3, "local-k": 3},
    "ifca": {"models": 1, "components": 3},
    "local": {"components": 3},
}
UPLOADS = {
    "kfed": ("centers",),
    "fedkmeans": ("sums", "sums"),
    "fedkmeans-aligned": ("sums", "sums"),
    "fedgrem": ("means", "means"),
    "consensus-em": ("means", "estimate", "estimate"),
    "ffcm-avg1": ("sums", "sums"),
    "ffcm-avg2": ("sums", "sums"),
    "spahm": ("centers",),
    "afcl": ("seeds", "updates"),
    "fedem": ("means", "first"),
    "fedgengmm": ("means",),
    "ifca": ("means", "", "first"),  # likelihoods have a test of their own
    "local": ("means",),
}
# Exchanges between greeting and rounds.
BEFORE = {"afcl": 1, "fedgrem": 1, "consensus-em": 2, "fedem": 1, "ifca": 2}
# Sites start from the best of several k-means, which on few rows no seed changes.
SEEDLESS = ("fedkmeans-aligned",)
ROUNDS = [method for method, uploads in UPLOADS.items() if len(uploads) > 1]


def run(method: str, nodes: Any, folder: Path | str = "", **values: Any) -> LocalRun:
    """Run a rival in this process; sites allow what it needs."""
    if method == "afcl":
        nodes = [{"allow-unsafe": True, **node} for node in nodes]
    how = {name: values.pop(name) for name in ("tamper", "arrange", "client_app") if name in values}
    given = {key.replace("_", "-"): value for key, value in values.items()}
    config = parse_run_config({"method": method, "round-timeout": 0.1, **SETTINGS[method], **given})
    return run_locally(config, nodes, run_folder=str(folder), **how)


def at(first: int, fault: Fault, *nodes: int, last: int | None = None) -> Any:
    """Let a fault come over some nodes' answers from one round on (1 is the first), up to another."""
    asked: Counter[int] = Counter()

    def tamper(node: int, question: Message, answer: Message) -> Message | None:
        if from_records(question.content).kind in ("ask.hello", "ask.labels"):
            return answer
        asked[node] += 1
        here = node in nodes and first <= asked[node] <= (last or asked[node])
        return fault(question, answer) if here else answer

    return tamper


def fingerprint(one: LocalRun, folder: Path) -> tuple[bytes, str]:
    """All that a run found: the bytes of the model file, and everything else but times."""
    assert one.outcome.model is not None
    one.outcome.model.save(folder / "model.npz")
    said = dataclasses.replace(one.outcome, model=None)
    trace = [dataclasses.replace(record, seconds=0.0) for record in one.trace]
    text = [dataclasses.asdict(said), [dataclasses.asdict(record) for record in trace]]
    return (folder / "model.npz").read_bytes(), json.dumps(plain(text), sort_keys=True)
