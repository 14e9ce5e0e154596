"""NumPy archive -> RawTable, without pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Collection

import numpy as np

from fedcluster_app.data.raw import RawTable
from fedcluster_app.errors import DataError


def read_npz(path: str, apart: Collection[str], features: str, where: str) -> RawTable:
    """Read the array `features`, the `apart` arrays, and the names that go with them.

    Raises
    ------
    DataError
        Not an archive, Python objects in it, no such array of numbers, or names that do not fit.
    OSError
        The file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{where}: {path!r} is not a NumPy archive; write it with numpy.savez") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{where}: {path!r} holds a single array; write it with numpy.savez(path, X=...)")
        names = tuple(archive.files)
        if features not in names:
            raise DataError(
                f"{where}: no array {features!r} in the file; it has {', '.join(map(repr, names))}"
            )
        wanted = {features, "feature_names", "class_names", *apart, *(f"{name}_names" for name in apart)}
        try:
            arrays = {name: archive[name] for name in names if name in wanted}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{where}: an array of {path!r} is damaged or holds Python objects") from error
    X = arrays.pop(features)
    if X.ndim < 2 or X.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: {features!r} has shape {X.shape} and type {X.dtype}; "
            "expected numbers, (rows, features)"
        )
    X = X.reshape(len(X), int(np.prod(X.shape[1:]))).astype(np.float64)
    columns = arrays.pop("feature_names", np.array([f"x{j}" for j in range(X.shape[1])]))
    if columns.shape != (X.shape[1],):
        raise DataError(
            f"{where}: 'feature_names' has shape {columns.shape}, expected ({X.shape[1]},), "
            f"one per feature of {features!r}"
        )
    return RawTable(X, tuple(map(str, columns)), arrays, names)
