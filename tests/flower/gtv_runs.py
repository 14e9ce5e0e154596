"""What the tests of GTVMin runs share: short runs, and a look into what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import Message

from fedcluster_app.config import parse_run_config
from fedcluster_app.messages import AskGTVRound, AskLabels
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import Payload, decode
from simulations.federation import LocalRun, run_locally

Fault = Callable[[Message, Message], Message | None]


def run(nodes: Any, folder: Path | str = "", **values: Any) -> LocalRun:
    """A short run of three components at one alpha, unless ``values`` say otherwise."""
    how = {name: values.pop(name) for name in ("tamper", "arrange") if name in values}
    short = {"method": "gtvmin", "round-timeout": 0.1, "components": 3, "alpha": 1.0, "gtv-rounds": 4}
    short |= {
        "gtv-folds": 0,
        "gtv-starts": 2,
        "graph": "ring",
        "discrepancy": "mmd",
        "edge-weights": "graph",
        "gtv-settled": 0.0,
        "gtv-tolerance": 0.0,
    }
    config = parse_run_config(short | {key.replace("_", "-"): value for key, value in values.items()})
    return run_locally(config, nodes, run_folder=str(folder), **how)


def asked(one: LocalRun, kind: type) -> Iterator[tuple[str, Any]]:
    """Every question of a kind with the site that it went to, in order."""
    names = one.strategy._roster.names
    word = {AskGTVRound: "ask.gtv.round", AskLabels: "ask.labels"}[kind]
    for message in one.grid.sent:
        payload = from_records(message.content)
        if payload.kind == word:
            yield names[message.metadata.dst_node_id], decode(payload, kind, sender="coordinator")


def rounds(one: LocalRun) -> list[dict[str, AskGTVRound]]:
    """What every site was asked, round by round."""
    found: list[dict[str, AskGTVRound]] = []
    for name, ask in asked(one, AskGTVRound):
        found.extend({} for _ in range(ask.round - len(found)))
        found[ask.round - 1][name] = ask
    return found


def at(numbers: range | set[int], fault: Fault, node: int = 1) -> Any:
    """Let a fault come over one node's answers in some rounds; 0 is the start."""

    def tamper(number: int, question: Message, answer: Message) -> Message | None:
        payload = from_records(question.content)
        here = {"ask.gtv.start": 0, "ask.gtv.round": payload.scalars.get("round", -1)}.get(payload.kind, -1)
        return fault(question, answer) if number == node and here in numbers else answer

    return tamper


def silent(question: Message, answer: Message) -> None:
    return None


def crash(question: Message, answer: Message) -> Message:
    raise MemoryError("out of memory")


def changed(field: str, change: Callable[[Any], Any]) -> Fault:
    """Change an array or a scalar of an answer."""

    def fault(question: Message, answer: Message) -> Message:
        payload = from_records(answer.content)
        if field in payload.arrays:
            payload.arrays[field] = change(payload.arrays[field].copy())
        else:
            payload.scalars[field] = change(payload.scalars[field])
        return Message(to_records(Payload(payload.arrays, payload.scalars)), reply_to=question)

    return fault
