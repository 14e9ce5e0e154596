"""Files -> tables: the door that chooses the reader."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedcluster_app.data.csv_file import read_csv, read_header
from fedcluster_app.data.npz_file import read_npz
from fedcluster_app.data.raw import SITE_COLUMN, RawTable, raw_labels
from fedcluster_app.data.table import Table, validated_table
from fedcluster_app.errors import DataError


def read_table(path: str, *, label_column: str = "", site: str) -> Table:
    """Read and check one site's file.

    Parameters
    ----------
    path : str
        A `.csv` file: UTF-8, comma separated, with a header line, every column numeric but the label
        column and a column named `site` (both kept out of the clustering); or a `.npz` file: `X` (n,
        ...), flattened to (n, d), and optionally `feature_names` (d,); read without pickle.
    label_column : str
        Column (csv) or array (npz, usually `y`) of labels: whole numbers, or text, which is mapped to its
        sorted names. Empty: no labels are read.
    site : str
        Name of the site, for error texts.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        The file is missing or unreadable, or its content does not fit.
    """
    where = f"site {site!r}"
    raw = read_raw(path, (label_column,) if label_column else (), where=where)
    labels, names = raw_labels(raw, label_column, where=where) if label_column else (None, ())
    return validated_table(raw.X, raw.columns, labels, where=where, label_names=names)


def read_columns(path: str, columns: tuple[str, ...], *, where: str) -> Table:
    """Read the named columns of a file, in this order; others, of any kind, are passed over.

    Parameters
    ----------
    path : str
        As for `read_table`.
    columns : tuple of str
        Wanted columns.
    where : str
        How the place is called in error texts.

    Raises
    ------
    DataError
        A column is missing, or as `read_table`.
    """
    others: tuple[str, ...] = ()
    if path.lower().endswith(".csv") and os.path.isfile(path):
        with _readable(path, where):
            header = read_header(path, where)
        _refuse_missing(columns, header, path, where)
        others = tuple(name for name in header if name not in columns)
    raw = read_raw(path, others, where=where)
    _refuse_missing(columns, raw.columns, path, where)
    X = raw.X[:, [raw.columns.index(name) for name in columns]]
    return validated_table(X, columns, None, where=where)


def _refuse_missing(columns: Sequence[str], found: Sequence[str], path: str, where: str) -> None:
    """Raise DataError if some of the wanted columns were not found."""
    missing = [name for name in columns if name not in found]
    if missing:
        raise DataError(
            f"{where}: {path!r} lacks {len(missing)} of the {len(columns)} columns, first {missing[0]!r}; "
            f"it has {', '.join(map(repr, found[:20]))}"
        )


def read_raw(path: str, apart: Sequence[str], *, where: str, features: str = "X") -> RawTable:
    """Read a file whose `apart` columns or arrays are not features.

    Parameters
    ----------
    path : str
        A `.csv` or `.npz` file.
    apart : sequence of str
        Names to be held apart where present. In a csv file, `site` always is.
    where : str
        How the place is called in error texts.
    features : str
        Name of the feature array of a npz file.

    Raises
    ------
    DataError
        As `read_table`; missing values are not looked for here.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".csv", ".npz"):
        raise DataError(f"{where}: data file {path!r} is of an unknown kind; expected .csv or .npz")
    if not os.path.isfile(path):
        raise DataError(f"{where}: there is no data file {path!r}; check the path on the machine of the site")
    with _readable(path, where):
        if suffix == ".csv":
            return read_csv(path, {*apart, SITE_COLUMN}, where)
        return read_npz(path, apart, features, where)


@contextmanager
def _readable(path: str, where: str) -> Iterator[None]:
    """Turn the system's errors about a file into ours."""
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(f"{where}: {path!r} is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"{where}: {path!r} cannot be read ({error.strerror or 'damaged file'})") from error
