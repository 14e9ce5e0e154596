"""Sensors that differ between sites: drawn, looked for, and taken out, over federations of known classes.

A row of a site is moved along every axis that is clustered by an offset of the site's own, N(0, shift²) in
standard deviations within classes, and multiplied by a gain of its own, exp(N(0, scale²)). The number of
clusters is that of the rule "median"; the rows that the micro-clusters were made of are labelled::

    python -m simulations.experiments.drift --data DIR --shifts 0,1,3 --seeds 2
    python -m simulations.experiments.drift --data DIR --shifts 1 --scales 0.15,0.3 --seeds 2
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.micro import path as paths
from fedcluster_app.aggregation.micro import votes
from fedcluster_app.aggregation.micro.cells import Cells, halve, micro_clusters, stack
from fedcluster_app.aggregation.micro.drift import Drift, find_drift
from fedcluster_app.aggregation.micro.offsets import Alignment, remove
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.tables import aligned
from fedcluster_app.streams import stream
from simulations.experiments.federations import (
    DEVELOPMENT,
    MIN_ROWS,
    MOST_CELLS,
    ROWS_PER_CELL,
    Blobs,
    federation,
)
from simulations.experiments.sets import SETS, Dealt, LabelledSet

REAL = ("waveform", "digits", "cwru", "tep", "penbased", "frogA", "abalone", "penguins")
# Sites that share many classes, few, and none.
FAMILIES = {
    "easy": Blobs("round", 5, 5, 6, 2, 5),
    "rich12": Blobs("round", 8, 5, 12, 3, 6, apart=4.0),
    "poor12": Blobs("round", 8, 5, 12, 1, 3, apart=4.0),
    "poor6": Blobs("round", 5, 5, 6, 1, 2),
    "one5": Blobs("round", 5, 5, 5, 1, 1),
}
SOURCES: dict[str, Blobs | LabelledSet] = {**SETS, **DEVELOPMENT, **FAMILIES}


@dataclass(frozen=True)
class Answer:
    """Clusters that were found, and the agreement of the rows' labels with their classes."""

    agreement: float
    k: int


@dataclass(frozen=True, eq=False)
class Trial:
    """One federation, and what was found without looking for drift, with it, and without drift.

    Attributes
    ----------
    plain, offsets, used, ideal : Answer
        From the micro-clusters as sent, freed of the offsets that were found, freed of the offsets and gains
        that were found, freed of the true ones.
    drift : Drift
        Offsets and gains that were found; without ``scale`` only offsets were looked for.
    offset_error, gain_error : float
        Root mean square errors, in standard deviations within classes and of logarithms.
    seconds : float
        Processor time of the search.
    """

    name: str
    seed: int
    shift: float
    scale: float
    plain: Answer
    offsets: Answer
    used: Answer
    ideal: Answer
    drift: Drift
    offset_error: float
    gain_error: float
    seconds: float


def run(name: str, seed: int, shift: float, scale: float, folder: str, *, gains: bool | None = None) -> Trial:
    """Draw sensors for one federation and look for them; for ``gains`` too if they are drawn, or if told."""
    dealt = federation(SOURCES[name], seed, name, folder)[1]
    width = _width(dealt)
    truth = _sensors(len(dealt.train), width, shift, scale, stream(seed, "sensors", name))
    rows = {
        site: truth.offsets[g] + truth.gains[g] * dealt.X[numbers]
        for g, (site, numbers) in enumerate(dealt.train.items())
    }
    cells, classes = _cells(rows, seed), [dealt.y[numbers] for numbers in dealt.train.values()]

    def answer(alignment: Alignment) -> Answer:
        return _answer(cells, list(rows.values()), classes, alignment)

    started = time.process_time()
    drift = find_drift(cells, stream(seed, "server"), gains=bool(scale) if gains is None else gains)
    seconds = time.process_time() - started
    only = drift if (drift.gains == 1).all() else find_drift(cells, stream(seed, "server"))
    none = Alignment(0 * truth.offsets, np.ones_like(truth.gains))
    plain = answer(none)
    used = answer(Alignment(drift.offsets, drift.gains)) if drift.on else plain
    offsets = used if only is drift else answer(Alignment(only.offsets, only.gains)) if only.on else plain
    return Trial(
        name=name,
        seed=seed,
        shift=shift,
        scale=scale,
        plain=plain,
        offsets=offsets,
        used=used,
        ideal=answer(truth) if shift or scale else plain,
        drift=drift,
        offset_error=_rms((drift.offsets - truth.offsets) / width),
        gain_error=_rms(np.log(drift.gains / truth.gains)),
        seconds=seconds,
    )


def _width(dealt: Dealt) -> FloatArray:
    """Return the standard deviation within classes along every axis, shape (q,)."""
    rows = np.concatenate(list(dealt.train.values()))
    X, y = dealt.X[rows], dealt.y[rows]
    width: FloatArray = np.sqrt(np.mean([X[y == k].var(axis=0) for k in np.unique(y)], axis=0))
    return width


def _sensors(
    sites: int, width: FloatArray, shift: float, scale: float, rng: np.random.Generator
) -> Alignment:
    """Draw offsets that sum to 0 over the sites, and gains whose logarithms do."""
    offsets = shift * width * rng.normal(size=(sites, len(width)))
    logs = scale * rng.normal(size=(sites, len(width)))
    return Alignment(offsets - offsets.mean(axis=0), np.exp(logs - logs.mean(axis=0)))


def _cells(rows: dict[str, FloatArray], seed: int) -> Cells:
    uploads = {}
    for site, X in rows.items():
        rng = stream(seed, site, "micro")
        halves = halve(len(X), rng, min_rows=MIN_ROWS)
        uploads[site] = micro_clusters(
            X, halves, rng, min_rows=MIN_ROWS, rows_per_cell=ROWS_PER_CELL, most=MOST_CELLS
        )
    return stack(uploads)


def _answer(
    cells: Cells, rows: Sequence[FloatArray], classes: Sequence[IntArray], alignment: Alignment
) -> Answer:
    freed = remove(cells, alignment)
    path = paths.follow(freed, paths.grid(paths.largest_k(freed)), np.random.default_rng(0))
    k = votes.decide(votes.cast(path), "median", freed.n_sites)
    clusters = path.fits[k].clusters
    mixture = Mixture(clusters.global_weights, clusters.means, clusters.covariances)
    labels = [
        (log_densities((X - offset) / gain, mixture) + np.log(weights)).argmax(axis=1)
        for X, offset, gain, weights in zip(
            rows, alignment.offsets, alignment.gains, clusters.weights, strict=True
        )
    ]
    table = contingency_table(np.concatenate(classes), np.concatenate(labels))
    return Answer(float(adjusted_rand_index(table)), k)


def _rms(x: FloatArray) -> float:
    return float(np.sqrt(np.square(x).mean()))


def table(trials: Iterable[Trial]) -> str:
    """Return a line for every set and kind of drift: means over the seeds."""
    groups: dict[tuple[str, float, float], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.name, trial.shift, trial.scale), []).append(trial)
    columns = ("plain", "offsets", "used", "ideal")
    lines = [["set", "shift", "scale", "on", *columns, "gain ± se", "offset error", "gain error", "seconds"]]
    for (name, shift, scale), group in groups.items():
        on = sum(trial.drift.on for trial in group)
        cells = [
            f"{np.mean([getattr(trial, column).agreement for trial in group]):.2f}/"
            f"{np.mean([getattr(trial, column).k for trial in group]):.1f}"
            for column in columns
        ]
        asked = [
            f"{trial.drift.held_out_gain:.0f}±{trial.drift.standard_error:.0f}"
            for trial in group
            if not np.isnan(trial.drift.held_out_gain)
        ]
        means = [
            f"{np.mean([getattr(trial, column) for trial in group]):.2f}"
            for column in ("offset_error", "gain_error", "seconds")
        ]
        given = [name, f"{shift:g}", f"{scale:g}", f"{on}/{len(group)}"]
        lines.append([*given, *cells, " ".join(asked) or "not asked", *means])
    return aligned(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the files")
    parser.add_argument("--sets", default=",".join((*REAL, *FAMILIES)), help="names")
    parser.add_argument("--shifts", default="0,1,3", help="standard deviations of offsets")
    parser.add_argument("--scales", default="0", help="standard deviations of logarithms of gains")
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--gains", action="store_true", help="look for gains even where there are none")
    args = parser.parse_args(arguments)
    names = args.sets.split(",")
    if unknown := [name for name in names if name not in SOURCES]:
        parser.error(f"unknown: {', '.join(unknown)}")
    trials = [
        run(name, seed, float(shift), float(scale), args.data, gains=args.gains or None)
        for name in names
        for scale in args.scales.split(",")
        for shift in args.shifts.split(",")
        for seed in range(args.seeds)
    ]
    print(table(trials))


if __name__ == "__main__":
    main()
