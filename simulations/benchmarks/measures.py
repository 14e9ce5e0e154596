"""What benchmarks share: processor time, memory, and tables of figures."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.tables import aligned


def seconds(run: Callable[..., object], *arguments: object) -> float:
    """Processor time of one run."""
    start = time.process_time()
    run(*arguments)
    return time.process_time() - start


def medians(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median processor time of every run; they take turns, so that a slow moment meets all of them."""
    times = [{name: seconds(run) for name, run in runs.items()} for _ in range(repeats)]
    return {name: float(np.median([each[name] for each in times])) for name in runs}


def peak_bytes(run: Callable[..., object], *arguments: object) -> int:
    """Largest memory that a run allocates."""
    tracemalloc.start()
    try:
        run(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def grid(
    title: str, rows: Sequence[str], columns: Mapping[str, FloatArray | Sequence[float]], form: str
) -> str:
    """One line per row and one column per name; a dash for what was not measured."""
    lines = [[title, *columns, ""]]
    for i, row in enumerate(rows):
        values = [float(column[i]) for column in columns.values()]
        lines.append([row, *("-" if math.isnan(value) else form.format(value) for value in values), ""])
    return aligned(lines)
