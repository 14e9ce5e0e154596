"""What a file holds before its values are checked, and the labels held apart in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.data.table import parse_number
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray, IntArray

SITE_COLUMN = "site"


@dataclass(frozen=True, eq=False)
class RawTable:
    """What a file holds, before values are checked.

    Attributes
    ----------
    X : (n, d) float64
        Feature values; NaN where a value is missing.
    columns : tuple of d str
        Feature names.
    apart : mapping of str to array
        The columns (csv: as text) or arrays (npz: as stored) that were asked for and found; never clustered.
    names : tuple of str
        All columns (csv) or arrays (npz) in the file, for error texts.
    """

    X: FloatArray
    columns: tuple[str, ...]
    apart: Mapping[str, NDArray[Any]]
    names: tuple[str, ...]


def raw_labels(raw: RawTable, column: str, *, where: str) -> tuple[IntArray, tuple[str, ...]]:
    """Return the labels (n,) held apart under `column`, and their names.

    Whole numbers are kept and have names only if a npz file gives them (`class_names` for `y`, else
    `<column>_names`); text becomes its place among the sorted names.

    Raises
    ------
    DataError
        No such column, not one label per row, missing labels, or numbers that are not whole.
    """
    if column not in raw.apart:
        raise DataError(
            f"{where}: no label column {column!r}; the file has {', '.join(map(repr, raw.names))}"
        )
    values = raw.apart[column]
    if values.shape != (len(raw.X),):
        raise DataError(
            f"{where}: label column {column!r} has shape {values.shape}, "
            f"expected ({len(raw.X)},), one per row"
        )
    codes, names = _label_codes(values, f"{where}: label column {column!r}")
    given = raw.apart.get("class_names" if column == "y" else f"{column}_names")
    if not names and given is not None and len(codes) and codes.min() >= 0 and codes.max() < len(given):
        names = tuple(map(str, given))
    return codes, names


def text_codes(values: NDArray[np.str_], where: str) -> tuple[IntArray, tuple[str, ...]]:
    """Return the place (n,) of each text among the sorted distinct ones, and those.

    Raises
    ------
    DataError
        Some are empty.
    """
    texts = np.char.strip(values)
    missing = int(np.count_nonzero((texts == "") | (np.char.lower(texts) == "nan")))
    if missing:
        raise DataError(
            f"{where} has {missing} of {len(texts)} values missing; fill or drop them before the run"
        )
    names, codes = np.unique(texts, return_inverse=True)
    return codes.astype(np.int64), tuple(map(str, names))


def _label_codes(values: NDArray[Any], where: str) -> tuple[IntArray, tuple[str, ...]]:
    if values.dtype.kind == "U":
        codes, names = text_codes(values, where)
        numbers = [parse_number(name) for name in names]
        if any(number is None or np.isnan(number) for number in numbers):
            return codes, names
        values = np.array(numbers, dtype=np.float64)[codes]
    if values.dtype.kind == "f":
        missing = int(np.count_nonzero(~np.isfinite(values)))
        if missing:
            raise DataError(
                f"{where} has {missing} of {len(values)} values missing; fill or drop them before the run"
            )
        if np.any(values != np.rint(values)) or np.any(np.abs(values) > 2**53):
            raise DataError(f"{where} has numbers that are not whole; expected whole numbers or names")
    elif values.dtype.kind not in "biu":
        raise DataError(f"{where} is of type {values.dtype}; expected whole numbers or text")
    return values.astype(np.int64), ()
