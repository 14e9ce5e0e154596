"""What may leave a site: minimum counts, and the ledger of everything that left.

A summary leaves only if at least ``min-count`` rows stand behind it. For a mean weighted by responsibilities
the rows are counted by their total responsibility: no more than the number of rows that carry it, so the
count errs to the safe side.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray
from fedcluster_app.wire import LAYOUTS, Payload


def smallest_below(mass: FloatArray, min_count: int) -> int | None:
    """Return the smallest component if too few rows stand behind it, or None if it may stay.

    Parameters
    ----------
    mass : array of shape (k,)
        Rows behind every component.
    min_count
        Least number of rows. The last component of a site always stays: its rows are all of the site's.
    """
    smallest = int(np.argmin(mass))
    return smallest if len(mass) > 1 and mass[smallest] < min_count else None


def hold_back(
    means: FloatArray, radii: FloatArray, mass: FloatArray, released: FloatArray, min_count: int
) -> tuple[FloatArray, FloatArray]:
    """Send a component that has become too small as it last was, with radius 0.

    Parameters
    ----------
    means, radii, mass : arrays of shape (k, d), (k,) and (k,)
        What the step gave, and the rows behind it.
    released : array of shape (k, d)
        The means that left the site before.
    min_count
        Least number of rows.

    Returns
    -------
    means, radii : arrays of shape (k, d) and (k,)
    """
    small = mass < min_count
    return np.where(small[:, None], released, means), np.where(small, 0.0, radii)


def large_enough(counts: IntArray, min_count: int) -> BoolArray:
    """Return which groups of rows may be summarised, of shape (k,)."""
    return counts >= min_count


class Ledger:
    """One JSON line for every message that left the site, with every field of it.

    Scalars stand as they are (NaN is null), arrays by shape and SHA-256, so that a line can be checked
    against what the coordinator holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, payload: Payload, *, run_id: int, site: str, rows: int, min_count: int) -> None:
        """Append a line; the folder is made if it is not there."""
        layout = LAYOUTS[payload.kind][1]
        arrays: dict[str, Any] = {
            name: {
                "meaning": layout.fields[name].meaning,
                "shape": list(array.shape),
                "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
            }
            for name, array in payload.arrays.items()
        }
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run": str(run_id),
            "site": site,
            "message": payload.kind,
            "rows": rows,
            "min_count": min_count,
            "bytes": payload.nbytes,
            "scalars": {name: None if value != value else value for name, value in payload.scalars.items()},
            "arrays": arrays,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
