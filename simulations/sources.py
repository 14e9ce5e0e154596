"""Whole data sets for simulations, before they are dealt to virtual sites."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from fedcluster_app.data.raw import SITE_COLUMN, RawTable, raw_labels, text_codes
from fedcluster_app.data.readers import read_raw
from fedcluster_app.data.table import frozen_copy
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Source:
    """One data set with what is known about its rows. Values may be missing: each site checks its own part.

    Attributes
    ----------
    name : str
        "digits", or the file's name.
    X : (n, d) float64, read-only
        Feature values.
    columns : tuple of d str
        Feature names.
    labels : (n,) int64 or None
        Class of each row, for partitions and scores.
    label_names : tuple of str
        Name of label i at place i, or empty.
    sites : (n,) int64 or None
        Place in `site_names` of the site each row comes from.
    site_names : tuple of str
        Sorted names of the sites that have rows, or empty.
    """

    name: str
    X: FloatArray
    columns: tuple[str, ...]
    labels: IntArray | None = None
    label_names: tuple[str, ...] = ()
    sites: IntArray | None = None
    site_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", frozen_copy(self.X, np.float64))


def load_source(data: str, label_column: str = "", *, features: str = "X") -> Source:
    """Load a data set by name or path.

    Parameters
    ----------
    data : str
        "digits" (scikit-learn's), or the absolute path of a `.csv` or `.npz` file. A csv column or npz
        array named `site` says where a row comes from; a npz file names the sites in `site_names`.
    label_column : str
        Column or array with the labels. Empty: `y` of a npz file if it has one, otherwise no labels.
    features : str
        Array of a npz file with the features.

    Returns
    -------
    Source

    Raises
    ------
    DataError
        The path is relative, or the file is missing or cannot be used.
    """
    if data == "digits":
        return _digits(label_column)
    name = os.path.basename(data)
    where = f"data {name!r}"
    if not os.path.isabs(data):
        # Flower runs an app in a directory of its own, so a relative path would point there.
        raise DataError(
            f"data {data!r} is neither 'digits' nor an absolute path; give the full path of the file"
        )
    # A csv file has no array called y; a column of that name is a feature unless it is said to be the label.
    wanted = label_column or ("y" if data.lower().endswith(".npz") else "")
    raw = read_raw(data, (wanted, SITE_COLUMN), where=where, features=features)
    if not label_column and "y" in raw.apart:
        label_column = "y"
    labels, label_names = raw_labels(raw, label_column, where=where) if label_column else (None, ())
    sites, site_names = _sites(raw, where) if SITE_COLUMN in raw.apart else (None, ())
    return Source(name, raw.X, raw.columns, labels, label_names, sites, site_names)


def _digits(label_column: str) -> Source:
    from sklearn.datasets import load_digits

    if label_column not in ("", "target"):
        raise DataError(f"data 'digits': no label column {label_column!r}; leave label-column empty")
    bunch = load_digits()
    return Source(
        "digits",
        bunch.data,
        tuple(bunch.feature_names),
        bunch.target.astype(np.int64),
        tuple(map(str, bunch.target_names)),
    )


def _sites(raw: RawTable, where: str) -> tuple[IntArray, tuple[str, ...]]:
    """Return each row's place (n,) among the sorted names of the sites that have rows, and those names."""
    values, names = raw.apart[SITE_COLUMN], raw.apart.get("site_names")
    if values.shape != (len(raw.X),):
        raise DataError(f"{where}: 'site' has shape {values.shape}, expected ({len(raw.X)},), one per row")
    if values.dtype.kind in "iu" and len(values):
        if values.min() < 0 or (names is not None and values.max() >= len(names)):
            raise DataError(
                f"{where}: 'site' has numbers outside 'site_names'; expected 0 to the number of names - 1"
            )
        values = np.array(numbered_names(int(values.max()) + 1) if names is None else names)[values]
    return text_codes(values.astype(np.str_), f"{where}: 'site'")


def numbered_names(count: int) -> list[str]:
    """Return 'site-00', 'site-01', ..., padded so that the order of names is the order of numbers."""
    width = max(2, len(str(count - 1)))
    return [f"site-{i:0{width}d}" for i in range(count)]
