"""How long counting a site's clusters takes: every estimator on the same rows, in one run, on one thread.

Times are medians of processor time, which on one thread and a quiet machine is the time that passes, and on
a busy one does not count its other work. The peer that ratios refer to is one fit of scikit-learn's
``BayesianGaussianMixture`` with 20 spherical components; ``asm-fit`` is one fit of ASM-S (alpha 1.5, minimum
mass 5, or n / 4000 of large tables, so that merging holds the leaves) and every other name is a whole
selection as the product makes it::

    python -m simulations.benchmarks.phase1 --sizes 500x8,2000x16,20000x8 --repeats 3
    python -m simulations.benchmarks.phase1 --sizes "" --data DIR --sets waveform,mnist

Sizes are tables of ten round clusters; sets are dealt to sites by regime A, and standardised as a whole.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.cardinality.merge import MOST_LEAVES
from fedcluster_app.cardinality.registry import ESTIMATORS
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.tables import aligned
from simulations.benchmarks.measures import grid, peak_bytes, seconds
from simulations.experiments.sets import SETS, deal

SIZES = "500x8,500x64,2000x16,5000x8,5000x64,20000x8,20000x16,20000x64,100000x16,100000x32"
#: The sets of the paper, as they are dealt in its experiments.
CLIENT_SETS = {
    name: SETS[name]
    for name in ("waveform", "abalone", "frogA", "frogB", "mnist", "fmnist", "emnist", "cifar")
}
FIT, PEER = "asm-fit", "bgm20"
#: From how many rows on the growth of times is looked at.
GROWTH_FROM = 2000


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to count the clusters of; those of one name are reported together."""

    name: str
    X: FloatArray
    y: IntArray


Runner = Callable[[Table], object]


def synthetic(n: int, d: int, seed: int = 0) -> Table:
    """Return n rows of ten round clusters in d dimensions, of about equal size and three spreads apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(10, size=n)
    return Table(f"{n}x{d}", 3 * rng.normal(size=(10, d))[y] + rng.normal(size=(n, d)), y)


def clients(name: str, folder: str, most: int, seed: int = 0) -> list[Table]:
    """Return the rows of the first sites of a data set, each as one table of its name."""
    dealt = deal(CLIENT_SETS[name], folder, "a", np.random.default_rng(seed))
    spread = dealt.X.std(axis=0)
    X = (dealt.X - dealt.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return [Table(name, X[rows], dealt.y[rows]) for rows in list(dealt.train.values())[:most]]


def runners() -> dict[str, Runner]:
    """Return what is timed, by name; the peer is the last."""
    found: dict[str, Runner] = {FIT: _fit}
    found |= {name: partial(_count, name) for name in ESTIMATORS}
    return found | {PEER: _peer}


def _count(name: str, table: Table, **grid: object) -> object:
    estimator = ESTIMATORS[name]
    given = table.y if estimator.needs_labels else np.random.default_rng(0)
    return estimator.load()(table.X, given, **grid)


def _fit(table: Table) -> object:
    return _count("asm", table, alphas=[1.5], min_masses=[max(5, len(table.X) // MOST_LEAVES)])


def _peer(table: Table) -> object:
    from sklearn.mixture import BayesianGaussianMixture

    k = min(20, len(table.X))
    model = BayesianGaussianMixture(n_components=k, covariance_type="spherical", random_state=0)
    return model.fit(table.X)


def measure(
    tables: Sequence[Table], names: Mapping[str, Runner], repeats: int, limit: float
) -> dict[str, FloatArray]:
    """Median times (tables,) in seconds of every runner, nan where it is not run any more.

    Runners take turns, so that a slow moment of the machine meets all of them. A runner whose first
    time on a table is above the limit is not repeated on it, and not run on larger tables.
    """
    times = {name: np.full((repeats, len(tables)), np.nan) for name in names}
    slow: dict[str, int] = {}
    for i, table in enumerate(tables):
        for repeat, name in itertools.product(range(repeats), names):
            if slow.get(name, table.X.size) < table.X.size or (repeat and times[name][0, i] > limit):
                continue
            times[name][repeat, i] = seconds(names[name], table)
            if times[name][repeat, i] > limit:
                slow[name] = table.X.size
    with warnings.catch_warnings():
        # A column of nothing but nan is a runner that was not run.
        warnings.simplefilter("ignore", RuntimeWarning)
        return {name: np.nanmedian(values, axis=0) for name, values in times.items()}


def peak_over_input(run: Runner, table: Table) -> float:
    """Largest memory that a run allocates, in tables."""
    return peak_bytes(run, table) / table.X.nbytes


def growth(tables: Sequence[Table], times: FloatArray) -> list[tuple[int, float]]:
    """Exponents of n, from the smallest to the largest size of at least 2,000 rows, by number of features."""
    sizes: dict[int, dict[int, float]] = {}
    for table, value in zip(tables, times, strict=True):
        n, d = table.X.shape
        if n >= GROWTH_FROM and not math.isnan(value):
            sizes.setdefault(d, {})[n] = value
    return [
        (d, math.log(by_n[max(by_n)] / by_n[min(by_n)]) / math.log(max(by_n) / min(by_n)))
        for d, by_n in sorted(sizes.items())
        if len(by_n) > 1
    ]


def report_sizes(tables: Sequence[Table], times: Mapping[str, FloatArray]) -> str:
    """Milliseconds by size, ratios to the peer, growth and memory."""
    names = [table.name for table in tables]
    parts = [grid("ms", names, {k: 1e3 * v for k, v in times.items()}, "{:.1f}")]
    parts.append(grid(f"ratio to {PEER}", names, {k: v / times[PEER] for k, v in times.items()}, "{:.2f}"))
    lines = [f"{name}, d = {d}: n^{power:.2f}" for name in times for d, power in growth(tables, times[name])]
    parts.append("growth of the time with rows, from the smallest to the largest size\n" + "\n".join(lines))
    largest = max(tables, key=lambda table: table.X.size)
    peaks = {name: peak_over_input(run, largest) for name, run in runners().items() if name in (FIT, "asm")}
    parts.append(
        f"peak memory at {largest.name}: "
        + ", ".join(f"{name} {peak:.1f} times the input" for name, peak in peaks.items())
    )
    return "\n\n".join(parts)


def report_sets(tables: Sequence[Table], times: Mapping[str, FloatArray]) -> str:
    """Milliseconds per client: mean and median by set, over all clients, and over the means of the sets."""
    of = np.array([table.name for table in tables])
    names = list(dict.fromkeys(of.tolist()))
    parts = []
    for word, average in (("mean", np.mean), ("median", np.median)):
        values = {k: np.array([1e3 * average(v[of == name]) for name in names]) for k, v in times.items()}
        parts.append(grid(f"{word} ms of a client", names, values, "{:.1f}"))
    totals = sorted((1e3 * float(v.mean()), 1e3 * float(np.median(v)), k) for k, v in times.items())
    rows = [["all clients", "mean ms", "median ms", ""]]
    parts.append(aligned(rows + [[k, f"{mean:.1f}", f"{middle:.1f}", ""] for mean, middle, k in totals]))
    rows_per_client = [len(table.X) for table in tables]
    parts.append(f"{len(tables)} clients of {min(rows_per_client)} to {max(rows_per_client)} rows")
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line and print its tables."""
    parser = argparse.ArgumentParser(description="Times of the estimators of a site's number of clusters")
    parser.add_argument("--sizes", default=SIZES, help="rows x features of synthetic tables; empty for none")
    parser.add_argument("--sets", default=",".join(CLIENT_SETS), help="labelled sets; empty for none")
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the sets")
    parser.add_argument("--estimators", default="", help="names, by default all")
    parser.add_argument("--clients", type=int, default=5, help="at most so many sites of a set")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds after which larger tables are left"
    )
    given = parser.parse_args(arguments)
    sets = [name for name in given.sets.split(",") if name]
    if sets and not Path(given.data, CLIENT_SETS[sets[0]].file).is_file():
        print(f"sets are left out: no {CLIENT_SETS[sets[0]].file} in {given.data!r}; give --data\n")
        sets = []
    wanted = [name for name in given.estimators.split(",") if name]
    names = {k: run for k, run in runners().items() if not wanted or k in (FIT, PEER, *wanted)}
    warnings.filterwarnings("ignore", message=".*did not converge.*")
    with threadpool_limits(1):
        for run in names.values():
            run(synthetic(300, 4))
        if sizes := [tuple(map(int, size.split("x"))) for size in given.sizes.split(",") if size]:
            tables = [synthetic(n, d) for n, d in sizes]
            print(report_sizes(tables, measure(tables, names, given.repeats, given.limit)), flush=True)
        if sets:
            tables = [table for name in sets for table in clients(name, given.data, given.clients)]
            times = measure(tables, names, given.repeats, math.inf)
            print("\n" + report_sets(tables, times), flush=True)


if __name__ == "__main__":
    main()
