"""What the ``.npz`` files of a run folder share: a format number, the columns and their scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.data.schema import first_mismatch
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray

FORMAT = 1
_AXES = ("components", "score_scale")
T = TypeVar("T")


def save(path: Path, columns: tuple[str, ...], scaling: Scaling, arrays: Mapping[str, Any]) -> None:
    """Write an archive; the same content gives the same bytes. Arrays that are None are left out."""
    head = {
        "format": np.array(FORMAT),
        "columns": np.array(columns, dtype=np.str_),
        "center": scaling.center,
        "scale": scaling.scale,
    }
    head |= {name: getattr(scaling, name) for name in _AXES}
    present = {name: array for name, array in {**head, **arrays}.items() if array is not None}
    np.savez(path, **present)


def load(
    path: Path,
    what: str,
    missing: str,
    make: Callable[[tuple[str, ...], Scaling, Mapping[str, Any]], T],
) -> T:
    """Read an archive and make its value of columns, scaling and arrays.

    Parameters
    ----------
    path
        The file.
    what
        Word for it, for the error text.
    missing
        What to say if there is no such file.
    make
        Makes the value, raising ValueError if the arrays do not fit together.

    Raises
    ------
    DataError
        If the file is not there or is not of this format.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
        if int(arrays["format"]) != FORMAT:
            raise DataError(
                f"{what} {path}: format {arrays['format']}, expected {FORMAT}; use a newer fedcluster"
            )
        scaling = Scaling(arrays["center"], arrays["scale"], *(arrays.get(name) for name in _AXES))
        return make(tuple(arrays["columns"].tolist()), scaling, arrays)
    except FileNotFoundError:
        raise DataError(f"{what} {path}: no such file; {missing}") from None
    except DataError:
        raise
    except Exception as error:  # NumPy and zipfile have many words for a file that is something else
        raise DataError(f"{what} {path}: not the {what} of a fedcluster run ({error})") from error


def check_scaling(scaling: Scaling, d: int, q: int, where: str) -> None:
    """Raise ValueError unless a scaling leads from d columns to q features."""
    shapes = {"center": (d,), "scale": (d,), "components": (d, q), "score_scale": (q,)}
    for name, expected in shapes.items():
        part = getattr(scaling, name)
        if part is not None and part.shape != expected:
            raise ValueError(f"{where}.scaling.{name}: expected shape {expected}, got {part.shape}")
    if scaling.components is None and q != d:
        raise ValueError(f"{where}: expected {d} features, one per column, got {q}")


def check_rows(X: FloatArray, columns: tuple[str, ...] | None, expected: tuple[str, ...]) -> None:
    """Raise DataError unless new rows (n, d) have the columns that a model was made with."""
    mismatch = None if columns is None else first_mismatch(expected, columns)
    if mismatch:
        raise DataError(f"new rows: {mismatch}; the model was made with the columns {list(expected)}")
    if X.ndim != 2 or X.shape[1] != len(expected):
        raise DataError(f"new rows: expected shape (rows, {len(expected)}), got {X.shape}")
