"""Nodes as programs that ask for iterations: those of many nodes are carried out in one call.

A node's round is little arithmetic in many calls, so a network in one process costs what its calls cost. Here
every node is a generator. It yields what it wants done to its models and is sent the models back. What the
nodes of a network ask for at the same time is done in batches, with fields filled up to a common shape; what
one node asks for alone, as in a Flower client, is simply done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from fedcluster_app.gtvmin.pool_message import Inbox
from fedcluster_app.gtvmin.pool_model import Models, Rows
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures.types import FloatArray

T = TypeVar("T")
# Entries of responsibilities and received moments in one batch: beyond it calls cost little, memory does.
_ENTRIES = 1 << 19


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """Something to be done to the models of a node: ``task(models, rows, inbox, settings, *numbers)``."""

    task: Callable[..., Models]
    models: Models
    rows: Rows
    inbox: Inbox
    settings: PoolSettings
    numbers: tuple[int, ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """Requests of one kind can be carried out together."""
        return self.task, self.numbers, self.settings, self.models.means.shape[1:]

    @property
    def width(self) -> int:
        """Entries for each component of each of the models."""
        return len(self.rows.moments) + self.inbox.moments.size

    def done(self) -> Models:
        """Carry it out."""
        return self.task(self.models, self.rows, self.inbox, self.settings, *self.numbers)


Program: TypeAlias = Generator[Request, Models, T]


def alone(program: Program[T]) -> T:
    """Return the result of one node's program."""
    return together([program])[0]


def together(programs: Sequence[Program[T]]) -> list[T]:
    """Return the results of the programs of several nodes, which is what each would give alone."""
    results: dict[int, T] = {}
    requests: dict[int, Request] = {}

    def resume(node: int, models: Models | None) -> None:
        program = programs[node]
        try:
            requests[node] = next(program) if models is None else program.send(models)
        except StopIteration as end:
            results[node] = end.value

    for node in range(len(programs)):
        resume(node, None)
    while requests:
        answers = {node: models for batch in _batches(requests) for node, models in _done(batch)}
        requests.clear()
        for node in sorted(answers):
            resume(node, answers[node])
    return [results[node] for node in range(len(programs))]


def _batches(requests: Mapping[int, Request]) -> Iterator[dict[int, Request]]:
    """Group requests of one kind and of about one size, as many as there is room for."""
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for node in sorted(requests, key=lambda node: requests[node].width):
        kinds[requests[node].kind].append(node)
    for nodes in kinds.values():
        batch: dict[int, Request] = {}
        size = 0
        for node in nodes:
            b, k = requests[node].models.weights.shape
            size += b
            if batch and size * k * requests[node].width > _ENTRIES:
                yield batch
                batch, size = {}, b
            batch[node] = requests[node]
        yield batch


def _done(batch: Mapping[int, Request]) -> Iterator[tuple[int, Models]]:
    """Carry a batch out and give every node its models."""
    if len(batch) == 1:
        yield from ((node, request.done()) for node, request in batch.items())
        return
    parts = list(batch.values())
    counts = [len(part.models.weights) for part in parts]
    names = Models.__dataclass_fields__
    models = Models(*(_stacked([getattr(part.models, name) for part in parts], counts) for name in names))
    rows, inbox = _rows([part.rows for part in parts], counts), _inbox([part.inbox for part in parts], counts)
    answer = replace(parts[0], models=models, rows=rows, inbox=inbox).done()
    for node, count, end in zip(batch, counts, np.cumsum(counts), strict=True):
        own = answer.taken(slice(end - count, end))
        edges, heard = batch[node].inbox.incidence.shape
        yield (
            node,
            replace(
                own,
                rates=own.rates[:, :edges],
                attached=own.attached[:, :heard],
                separate=own.separate[:, :heard],
            ),
        )


def _rows(parts: Sequence[Rows], counts: Sequence[int]) -> Rows:
    """Rows of several sites, one for each model."""
    given = None if parts[0].log_uniform is None else [part.log_uniform for part in parts]
    return Rows(
        _stacked([part.X[None] for part in parts], counts),
        _stacked([part.moments[None] for part in parts], counts),
        np.repeat([part.origin for part in parts], counts, axis=0),
        np.repeat([part.spread for part in parts], counts),
        None if given is None else np.repeat(np.array(given), counts),
    )


def _inbox(parts: Sequence[Inbox], counts: Sequence[int]) -> Inbox:
    """Inboxes of several nodes, one for each model."""
    moments, incidence = (
        _stacked([getattr(part, name)[None] for part in parts], counts) for name in ("moments", "incidence")
    )
    nowhere = np.zeros(0, dtype=np.int64)
    return Inbox((), moments, nowhere, nowhere, incidence, ())


def _stacked(parts: Sequence[FloatArray], counts: Sequence[int]) -> FloatArray:
    """Parts (count or 1, ...) as one array, each along its count, the other axes filled up with 0."""
    shape = np.max([part.shape[1:] for part in parts], axis=0)
    whole = np.zeros((sum(counts), *shape))
    start = 0
    for part, count in zip(parts, counts, strict=True):
        whole[(slice(start, start + count), *map(slice, part.shape[1:]))] = part
        start += count
    return whole
