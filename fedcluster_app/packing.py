"""The forms a payload takes on its way through Flower's NumPyClient: lists of arrays, or scalars alone."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.errors import WireError
from fedcluster_app.wire import Payload, WireScalar


def listed(payload: Payload) -> tuple[list[NDArray[Any]], dict[str, WireScalar]]:
    """Return the payload as a list of arrays, their names among the scalars (the form of NumPyClient.fit)."""
    return list(payload.arrays.values()), {**payload.scalars, "arrays": ",".join(payload.arrays)}


def unlisted(
    arrays: list[NDArray[Any]], scalars: Mapping[str, WireScalar], *, sender: str = "message"
) -> Payload:
    """Undo :func:`listed`, raising WireError if arrays and names are not as many."""
    rest = dict(scalars)
    names = [name for name in str(rest.pop("arrays", "")).split(",") if name]
    if len(names) != len(arrays):
        raise WireError(f"{sender}: {len(arrays)} arrays, expected {len(names)} as named in 'arrays'")
    return Payload(dict(zip(names, arrays, strict=True)), rest)


def flatten(payload: Payload) -> dict[str, WireScalar]:
    """Return the payload as scalars alone, arrays as ``.npy`` bytes (NumPyClient's calls without arrays)."""
    flat = dict(payload.scalars)
    for name, array in payload.arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        flat[f"{name}.npy"] = buffer.getvalue()
    return flat


def unflatten(flat: Mapping[str, WireScalar], *, sender: str = "message") -> Payload:
    """Undo :func:`flatten`, raising WireError if the bytes of an array are not an array."""
    arrays: dict[str, NDArray[Any]] = {}
    scalars: dict[str, WireScalar] = {}
    for name, value in flat.items():
        if name.endswith(".npy") and isinstance(value, bytes):
            field = name.removesuffix(".npy")
            arrays[field] = read_array(value, f"{sender}: {field}")
        else:
            scalars[name] = value
    return Payload(arrays, scalars)


def read_array(data: bytes, where: str) -> NDArray[Any]:
    """Return the array in ``.npy`` bytes, raising WireError whatever is wrong with them."""
    try:
        # Not np.load, which would open archives too.
        found: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:
        raise WireError(f"{where}: cannot be read as an array ({error})") from error
    return found
