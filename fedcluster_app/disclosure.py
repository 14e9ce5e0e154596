"""What may leave a site: minimum counts, and the ledger of everything that left.

A summary leaves only if at least ``min-count`` rows stand behind it. Behind a mean weighted by
responsibilities stand as many rows as their total responsibility: then no row weighs more than
1 / ``min-count`` of the mean.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray
from fedcluster_app.wire import LAYOUTS, Payload

# A row that belongs to a component all but for this much counts as a whole one.
NEARLY = 1e-6


def smallest_below(mass: FloatArray | IntArray, min_count: int) -> int | None:
    """Return the smallest component if too few rows stand behind it, or None if it may stay.

    Parameters
    ----------
    mass : array of shape (k,)
        Rows of every component, or its total responsibility.
    min_count
        Least number of rows. The last component of a site always stays: its rows are all of the site's.
    """
    smallest = int(np.argmin(mass))
    return None if len(mass) == 1 or large_enough(mass, min_count)[smallest] else smallest


def hold_back(
    means: FloatArray, radii: FloatArray, mass: FloatArray, released: FloatArray, min_count: int
) -> tuple[FloatArray, FloatArray]:
    """Send a component that has become too small as it last was, with radius 0.

    Parameters
    ----------
    means, radii, mass : arrays of shape (k, d), (k,) and (k,)
        What the step gave, and the total responsibilities.
    released : array of shape (k, d)
        The means that left the site before.
    min_count
        Least number of rows.

    Returns
    -------
    means, radii : arrays of shape (k, d) and (k,)
    """
    large = large_enough(mass, min_count)
    return np.where(large[:, None], means, released), np.where(large, radii, 0.0)


def large_enough(rows: FloatArray | IntArray, min_count: int) -> BoolArray:
    """Return behind which of k summaries enough rows stand; ``rows`` are counts or total responsibilities."""
    enough: BoolArray = rows > min_count - NEARLY
    return enough


class Ledger:
    """One JSON line for every message that left the site, with every field of it.

    Scalars stand as they are (NaN is null), arrays by shape and SHA-256, so that a line can be checked
    against what the coordinator holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, payload: Payload, *, run_id: int, site: str, rows: int, min_count: int) -> None:
        """Append a line; the folder is made if it is not there.

        Raises
        ------
        DataError
            If the ledger cannot be written: then nothing may leave.
        """
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
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise DataError(
                f"site {site!r}: cannot write its ledger ({error.strerror}), so nothing is sent; "
                "give it another ledger-path"
            ) from error
