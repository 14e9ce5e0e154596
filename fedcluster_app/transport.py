"""Payloads in Flower's records: the one place where the wire meets Flower."""

from __future__ import annotations

from typing import TypeVar, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from fedcluster_app.errors import WireError
from fedcluster_app.packing import read_array
from fedcluster_app.wire import Payload, WireScalar, decode, encode, layout_of

ARRAYS, SCALARS = "arrays", "scalars"
T = TypeVar("T")


def to_records(payload: Payload) -> RecordDict:
    """Pack a payload into fresh records, never shared between nodes."""
    return RecordDict(
        {
            ARRAYS: ArrayRecord({name: Array(array) for name, array in payload.arrays.items()}),
            SCALARS: ConfigRecord(dict(payload.scalars)),
        }
    )


def from_records(records: RecordDict, *, sender: str = "message") -> Payload:
    """Unpack a payload; a record that is missing counts as empty.

    Raises
    ------
    WireError
        If a record is of another type, or the bytes of an array are not an array.
    """
    arrays, scalars = records.get(ARRAYS, ArrayRecord()), records.get(SCALARS, ConfigRecord())
    if not isinstance(arrays, ArrayRecord) or not isinstance(scalars, ConfigRecord):
        raise WireError(f"{sender}: expected records of arrays and of scalars, got others of these names")
    return Payload(
        {name: read_array(array.data, f"{sender}: {name}") for name, array in arrays.items()},
        {name: cast(WireScalar, value) for name, value in scalars.items()},
    )


class Memory:
    """What a site keeps during a run, in ``Context.state``: one value of each message type."""

    def __init__(self, context: Context) -> None:
        self._state = context.state

    def save(self, value: object) -> None:
        """Keep a value in place of the last one of its type."""
        payload = encode(value)
        for name, record in to_records(payload).items():
            self._state[f"{payload.kind}.{name}"] = record

    def load(self, kind: type[T]) -> T | None:
        """Return the value of this type that is kept, or None."""
        name = layout_of(kind).name
        kept = {part: self._state.get(f"{name}.{part}") for part in (ARRAYS, SCALARS)}
        if kept[SCALARS] is None:
            return None
        sender = "own memory"
        records = RecordDict(kept)  # type: ignore[arg-type]  # both were saved together
        return decode(from_records(records, sender=sender), kind, sender=sender)
