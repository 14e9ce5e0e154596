"""Comma-separated text -> RawTable; errors give the line and never a value."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from fedcluster_app.data.raw import RawTable
from fedcluster_app.data.table import check_columns, parse_number, text_error
from fedcluster_app.errors import DataError

if TYPE_CHECKING:
    from _csv import Reader


def read_csv(path: str, apart: Collection[str], where: str) -> RawTable:
    """Read a file whose `apart` columns are text and all others numbers.

    Missing values become NaN; blank lines are passed over.

    Raises
    ------
    DataError
        No header line, a column of text, a line with too few or too many fields, or bad quotes.
    OSError, UnicodeDecodeError
        The file cannot be read.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        try:
            header = _header(next(lines, []), where)
            return _rows(lines, header, apart, where)
        except csv.Error as error:
            raise DataError(f"{where}: line {lines.line_num} of the file cannot be read: {error}") from error


def read_header(path: str, where: str) -> tuple[str, ...]:
    """Return the column names of a file; errors as in :func:`read_csv`."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        return tuple(_header(next(csv.reader(file), []), where))


def _header(fields: list[str], where: str) -> list[str]:
    names = [name.strip() for name in fields]
    if not any(names):
        raise DataError(f"{where}: the file has no header line; the first line must name the columns")
    numbers = [name for name in names if _is_number(name)]
    # Without a header these would be values, which must not be quoted. (Some tools name columns 0, 1, 2.)
    if numbers != [str(i) for i in range(len(numbers))]:
        raise DataError(
            f"{where}: the first line has numbers where column names are expected; add a header line"
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise DataError(f"{where}: the header line has no comma; expected columns separated by commas")
    for j, name in enumerate(names):
        if not name:
            raise DataError(
                f"{where}: column {j + 1} has no name; name it, or drop it if it numbers the rows"
            )
    check_columns(where, names)
    return names


def _is_number(name: str) -> bool:
    number = parse_number(name)  # NaN for "Na", which may well be sodium
    return number is not None and math.isfinite(number)


def _rows(lines: Reader, header: list[str], apart: Collection[str], where: str) -> RawTable:
    columns = tuple(name for name in header if name not in apart)
    check_columns(where, columns)
    # From the right, so that taking one out does not move the others.
    places = [j for j, name in enumerate(header) if name in apart][::-1]
    taken: dict[int, list[str]] = {j: [] for j in places}
    values, text = array("d"), [0] * len(columns)
    n = 0
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{where}: line {lines.line_num} of the file has {len(row)} fields, "
                f"expected {len(header)} as in the header"
            )
        n += 1
        for j in places:
            taken[j].append(row.pop(j))
        values.extend(_row_numbers(row, text))
    if any(text):
        raise text_error(where, columns, text, n)
    X = np.frombuffer(values, dtype=np.float64).reshape(n, len(columns))
    return RawTable(
        X, columns, {header[j]: np.array(kept, dtype=np.str_) for j, kept in taken.items()}, tuple(header)
    )


def _row_numbers(row: list[str], text: list[int]) -> list[float]:
    """Return the numbers of a row; NaN for missing ones and for text, which is counted in `text` (d,)."""
    try:
        if "_" not in "".join(row):
            return list(map(float, row))
    except ValueError:
        pass
    parsed = [parse_number(field) for field in row]
    for j, number in enumerate(parsed):
        text[j] += number is None
    return [np.nan if number is None else number for number in parsed]
