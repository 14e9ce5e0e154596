"""What the tests of micro-cluster runs share: a short run, and faults that come over a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedcluster_app.config import parse_run_config
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import Payload
from simulations.federation import LocalRun, run_locally

Blobs = Callable[..., NDArray[np.float64]]
Sites = Callable[..., list[dict[str, Any]]]
ReadClusters = Callable[[Path], NDArray[np.int64]]
KINDS = {"cells": "ask.micro.clusters", "round": "ask.micro.round", "labels": "ask.labels"}


def run(nodes: Any, folder: Path | str = "", **values: Any) -> LocalRun:
    how = {name: values.pop(name) for name in ("tamper", "arrange") if name in values}
    settings = {key.replace("_", "-"): value for key, value in values.items()}
    config = parse_run_config({"round-timeout": 0.1, "refine-rounds": 0, **settings})
    return run_locally(config, nodes, run_folder=str(folder), **how)


def at(phase: str, fault: Callable[[Message, Message], Message | None], node: int = 1) -> Any:
    """Let a fault come over one node's answers in one phase."""

    def tamper(number: int, question: Message, answer: Message) -> Message | None:
        here = number == node and from_records(question.content).kind == KINDS[phase]
        return fault(question, answer) if here else answer

    return tamper


def silent(question: Message, answer: Message) -> None:
    return None


def crash(question: Message, answer: Message) -> Message:
    raise MemoryError("out of memory")


def from_round(number: int, fault: Callable[[Message, Message], Message | None], *nodes: int) -> Any:
    """Let a fault come over some nodes' answers in a round of federated EM and in all later ones."""
    asked: Counter[int] = Counter()

    def tamper(node: int, question: Message, answer: Message) -> Message | None:
        if from_records(question.content).kind != KINDS["round"]:
            return answer
        asked[node] += 1
        return fault(question, answer) if node in nodes and asked[node] >= number else answer

    return tamper


def changed(field: str, change: Callable[[Any], Any]) -> Callable[[Message, Message], Message]:
    """Change an array or a scalar of an answer."""

    def fault(question: Message, answer: Message) -> Message:
        payload = from_records(answer.content)
        arrays, scalars = dict(payload.arrays), dict(payload.scalars)
        part: dict[str, Any] = arrays if field in arrays else scalars
        part[field] = change(copy(part[field]))
        return Message(to_records(Payload(arrays, scalars)), reply_to=question)

    return fault


def nobody_failed(one: LocalRun) -> bool:
    """Whether every site answered every question with something that can be used."""
    return not any(record.failed or record.late for record in one.trace)


def phases(one: LocalRun) -> list[str]:
    return [record.phase for record in one.trace]
