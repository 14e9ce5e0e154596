"""Values <-> (named arrays, plain scalars): how a message is laid out, versioned and checked.

What each message holds is declared in :mod:`fedcluster_app.messages`; this module knows how. Nothing here
knows Flower, so a message can be made and read in a test by hand.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.errors import WireError

WIRE_VERSION = 1
# Squares and sums of larger entries would leave float64, and with them every other site.
LARGEST = 1e150
T = TypeVar("T")
WireScalar = bool | int | float | str | bytes


@dataclass(frozen=True)
class ArraySpec:
    """One array of a message.

    ``shape`` is letters or numbers with spaces ("k d"); a letter stands for the same size throughout the
    message. Entries are float64 (or int64 if ``whole``), finite, and from ``low`` to ``high``.
    """

    shape: str
    meaning: str
    whole: bool = False
    low: float | None = None
    high: float | None = None
    optional: bool = False


@dataclass(frozen=True)
class ScalarSpec:
    """One scalar of a message; ``tuple`` is a tuple of strings. A float may be NaN only if ``missing``."""

    kind: type
    meaning: str
    low: float | None = None
    missing: bool = False


@dataclass(frozen=True)
class Layout:
    """The fields of one message type, and whether sites send it."""

    name: str
    leaves_site: bool
    fields: Mapping[str, ArraySpec | ScalarSpec]


@dataclass(frozen=True)
class Payload:
    """A message as it travels: named arrays and plain scalars."""

    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, WireScalar]

    @property
    def kind(self) -> str:
        """Name of the message type, or an empty string."""
        return str(self.scalars.get("kind", ""))

    @property
    def nbytes(self) -> int:
        """Bytes of the content: array entries plus names and scalars as text, without Flower's envelope."""
        text = {name: str(value) for name, value in self.scalars.items()}
        return sum(array.nbytes for array in self.arrays.values()) + len(
            json.dumps([list(self.arrays), text])
        )


LAYOUTS: dict[str, tuple[type, Layout]] = {}


def array(
    shape: str,
    meaning: str,
    *,
    whole: bool = False,
    low: float | None = None,
    high: float | None = None,
    optional: bool = False,
) -> Any:
    """Declare an array field of a message."""
    return dataclasses.field(metadata={"wire": ArraySpec(shape, meaning, whole, low, high, optional)})


def scalar(kind: type, meaning: str, *, low: float | None = None, missing: bool = False) -> Any:
    """Declare a scalar field of a message."""
    return dataclasses.field(metadata={"wire": ScalarSpec(kind, meaning, low, missing)})


@dataclass_transform(frozen_default=True, field_specifiers=(array, scalar))
def message(name: str, *, leaves_site: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass whose fields are a message's layout, known on the wire as ``name``."""

    def declare(cls: type[T]) -> type[T]:
        kind = dataclass(frozen=True, eq=False)(cls)
        declared = dataclasses.fields(kind)  # type: ignore[arg-type]  # made a dataclass one line up
        fields = {item.name: item.metadata["wire"] for item in declared}
        LAYOUTS[name] = (kind, Layout(name, leaves_site, fields))
        return kind

    return declare


def layout_of(kind: type) -> Layout:
    """Return the layout of a message type."""
    for known, layout in LAYOUTS.values():
        if known is kind:
            return layout
    raise TypeError(f"{kind.__name__} has no layout; declare it in fedcluster_app/messages")


def encode(value: Any) -> Payload:
    """Lay a message out as named arrays and plain scalars."""
    layout = layout_of(type(value))
    arrays: dict[str, NDArray[Any]] = {}
    scalars: dict[str, WireScalar] = {"wire": WIRE_VERSION, "kind": layout.name}
    for name, spec in layout.fields.items():
        item = getattr(value, name)
        if isinstance(spec, ArraySpec):
            if item is not None:
                arrays[name] = np.ascontiguousarray(item, dtype=np.int64 if spec.whole else np.float64)
        else:
            scalars[name] = json.dumps(list(item)) if spec.kind is tuple else spec.kind(item)
    return Payload(arrays, scalars)


def decode(
    payload: Payload,
    *expected: type[T],
    sender: str,
    sizes: Mapping[str, int] | None = None,
) -> T:
    """Check a message and return its value.

    Parameters
    ----------
    payload
        What came.
    *expected
        Message types that may come now.
    sender
        Who sent it, for the error text.
    sizes
        Sizes of shape letters that are already known, for example ``{"k": 3, "d": 10}``.

    Raises
    ------
    WireError
        Naming sender and field, with what was expected and what came.
    """
    version = payload.scalars.get("wire")
    if version != WIRE_VERSION:
        raise WireError(
            f"{sender}: wire version {version!r}, expected {WIRE_VERSION}; use the same fedcluster"
        )
    names = [layout_of(kind).name for kind in expected]
    if payload.kind not in names:
        raise WireError(f"{sender}: expected message {' or '.join(names)}, got {payload.kind!r}")
    kind, layout = LAYOUTS[payload.kind]
    where = f"{sender}: {layout.name}"
    bound = dict(sizes or {})
    values: dict[str, Any] = {}
    for name, spec in layout.fields.items():
        if isinstance(spec, ArraySpec):
            values[name] = _checked_array(payload.arrays.get(name), spec, f"{where}.{name}", bound)
        else:
            values[name] = _checked_scalar(payload.scalars.get(name), spec, f"{where}.{name}")
    try:
        return kind(**values)  # type: ignore[no-any-return]  # `kind` is one of `expected`
    except WireError as error:
        raise WireError(f"{sender}: {error}") from None


def _checked_array(array: Any, spec: ArraySpec, where: str, bound: dict[str, int]) -> NDArray[Any] | None:
    if array is None:
        if spec.optional:
            return None
        raise WireError(f"{where}: missing, expected an array of shape ({spec.shape})")
    letters = spec.shape.split()
    shape = np.shape(array)
    if 0 in shape:
        raise WireError(f"{where}: expected shape ({spec.shape}), got {shape}, which holds nothing")
    fits = len(shape) == len(letters)
    for letter, size in zip(letters, shape, strict=False):
        fits &= size == (int(letter) if letter.isdigit() else bound.setdefault(letter, size))
    if not fits:
        known = [f"{letter} = {bound[letter]}" for letter in letters if letter in bound]
        sizes = f" with {', '.join(known)}" if known else ""
        raise WireError(f"{where}: expected shape ({spec.shape}){sizes}, got {shape}")
    wanted = np.int64 if spec.whole else np.float64
    if array.dtype != wanted:
        raise WireError(f"{where}: expected {np.dtype(wanted)}, got {array.dtype}")
    if not np.isfinite(array).all():
        raise WireError(f"{where}: has {int((~np.isfinite(array)).sum())} entries that are NaN or infinite")
    if array.size and np.abs(array).max() > LARGEST:
        raise WireError(f"{where}: expected entries up to {LARGEST:g} in size, got {np.abs(array).max():g}")
    if spec.low is not None and (array < spec.low).any():
        raise WireError(f"{where}: expected entries of at least {spec.low:g}, got {array.min():g}")
    if spec.high is not None and (array > spec.high).any():
        raise WireError(f"{where}: expected entries of at most {spec.high:g}, got {array.max():g}")
    return np.ascontiguousarray(array)


def _checked_scalar(value: Any, spec: ScalarSpec, where: str) -> Any:
    if spec.kind is tuple:
        try:
            items = json.loads(value)
        except (TypeError, ValueError, RecursionError):
            items = None
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise WireError(f"{where}: expected a list of strings, got {value!r}")
        return tuple(items)
    if type(value) is not spec.kind or not isinstance(value, bool | int | float | str):
        raise WireError(f"{where}: expected {spec.kind.__name__}, got {value!r}")
    if isinstance(value, float) and not (math.isfinite(value) or (spec.missing and math.isnan(value))):
        raise WireError(f"{where}: expected a finite number, got {value!r}")
    if isinstance(value, float) and abs(value) > LARGEST:
        raise WireError(f"{where}: expected a number up to {LARGEST:g} in size, got {value!r}")
    if spec.low is not None and isinstance(value, int | float) and value < spec.low:
        raise WireError(f"{where}: expected at least {spec.low:g}, got {value!r}")
    return value
