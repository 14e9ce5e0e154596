"""A site's table: checked once, at this border, and trusted by everything inside.

Error texts name the site, the column and the share of bad values, never a value: they travel to the
coordinator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray, IntArray

MISSING_MARKS = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
# Beyond this a value is a mark, not a measurement, and its squares may overflow: as good as infinite.
LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one site, finite and numeric; arrays are private read-only copies.

    Attributes
    ----------
    X : (n, d) float64, C-contiguous
        One row per record; n may be 0, d is at least 1.
    columns : tuple of d str
        Column names, all different.
    labels : (n,) int64 or None
        Held apart for scores, never clustered.
    label_names : tuple of str
        Name of label i at place i; empty when the labels are plain whole numbers. Names read from text
        are sorted at each site by itself, so labels of two sites are compared by name, not by number.
    """

    X: FloatArray
    columns: tuple[str, ...]
    labels: IntArray | None = None
    label_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", frozen_copy(self.X, np.float64))
        if self.labels is not None:
            object.__setattr__(self, "labels", frozen_copy(self.labels, np.int64))

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return len(self.X)


def frozen_copy(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a C-contiguous read-only copy of `values` as `dtype`."""
    copy = np.array(values, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy


def parse_number(field: object) -> float | None:
    """Return the number in `field`, NaN for a mark of a missing value, None for any other text."""
    text = str(field).strip()
    if text.lower() in MISSING_MARKS:
        return np.nan
    try:
        # Python reads "1_000" as 1000; in a table this is an identifier, not a number.
        return None if "_" in text else float(text)
    except ValueError:
        return None


def text_error(where: str, columns: Sequence[str], counts: Sequence[int], rows: int) -> DataError:
    """Return the error for columns that hold text; `counts` (d,) are the numbers of such values."""
    return DataError(
        f"{where}: {_worst(columns, counts, rows, 'that are not numbers')}; "
        "drop the column, encode it as numbers, or name it as label-column"
    )


def _worst(columns: Sequence[str], counts: Sequence[int], rows: int, what: str) -> str:
    """Say how much of the first bad column is bad, and how many more columns are."""
    bad = [j for j, count in enumerate(counts) if count]
    first = bad[0]
    text = (
        f"column {columns[first]!r} has {counts[first]} of {rows} values {what} ({counts[first] / rows:.1%})"
    )
    text = text.replace("%)", " %)")
    return text if len(bad) == 1 else f"{text}, and {len(bad) - 1} more of {len(counts)} columns have some"


def check_columns(where: str, columns: Sequence[str]) -> None:
    """Raise DataError unless there is at least one column and all names differ."""
    if not columns:
        raise DataError(f"{where}: no numeric column; expected at least one besides the label column")
    seen: set[str] = set()
    for name in columns:
        if name in seen:
            raise DataError(f"{where}: column name {name!r} occurs more than once; rename one of them")
        seen.add(name)


def _numeric(X: ArrayLike, columns: Sequence[str], where: str) -> FloatArray:
    """Return X (n, d) as float64; text that is a number counts as that number, other text is an error."""
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise DataError(
            f"{where}: the rows have shape {array.shape}, expected "
            f"(rows, {len(columns)}) for {len(columns)} column names"
        )
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    parsed = [[parse_number(field) for field in row] for row in array]
    counts = [sum(row[j] is None for row in parsed) for j in range(len(columns))]
    if any(counts):
        raise text_error(where, columns, counts, len(parsed))
    return np.array(parsed, dtype=np.float64).reshape(array.shape)


def validated_table(
    X: ArrayLike,
    columns: Sequence[str],
    labels: ArrayLike | None = None,
    *,
    where: str,
    label_names: Sequence[str] = (),
) -> Table:
    """Check one site's rows and return them as a Table.

    Parameters
    ----------
    X : (n, d) array_like
        Numbers, or text that can be read as numbers. 0, 1 and 2 rows are allowed.
    columns : d str
        Column names.
    labels : (n,) whole numbers or None
        Labels, held apart.
    where : str
        How the place is called in error texts, for example "site 'a'".
    label_names : sequence of str
        Name of label i at place i, or nothing.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        No column, duplicate names, a shape that does not fit, text, or values missing or not finite
        (beyond 1e100).
    """
    check_columns(where, columns)
    rows = _numeric(X, columns, where)
    bad = np.count_nonzero(~(np.abs(rows) <= LARGEST), axis=0)
    if bad.any():
        raise DataError(
            f"{where}: {_worst(columns, bad.tolist(), len(rows), 'missing or not finite')}; "
            "fill or drop them before the run"
        )
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != (len(rows),) or labels.dtype.kind not in "biu":
            raise DataError(
                f"{where}: labels have shape {labels.shape} and type {labels.dtype}, "
                f"expected ({len(rows)},) whole numbers, one per row"
            )
    return Table(rows, tuple(columns), labels, tuple(label_names))
