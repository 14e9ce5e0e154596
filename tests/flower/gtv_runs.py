"""What the tests of GTVMin runs share: short runs, and a look into what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flwr.app import Message

from fedcluster_app.config import parse_run_config
from fedcluster_app.messages import AskGTVRound
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import Payload, decode, layout_of
from simulations.federation import LocalRun, run_locally

Fault = Callable[[Message, Message], Message | None]
# What the question after the rounds counts as, where a method has one.
END = -1


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
    for message in one.grid.sent:
        payload = from_records(message.content)
        if payload.kind == layout_of(kind).name:
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
        return fault(question, answer) if number == node and round_of(question) in numbers else answer

    return tamper


def round_of(question: Message) -> Any:
    """Round that a question belongs to: 0 is the start, `END` what follows the rounds, None any other."""
    payload = from_records(question.content)
    step = payload.kind.rpartition(".")[2]
    return {"start": 0, "round": payload.scalars.get("round"), "end": END}.get(step)


def first_only(fault: Fault, times: int = 1) -> Fault:
    """Let a fault strike once, or so many times."""
    struck: list[bool] = []

    def once(question: Message, answer: Message) -> Message | None:
        if len(struck) == times:
            return answer
        struck.append(True)
        return fault(question, answer)

    return once


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
