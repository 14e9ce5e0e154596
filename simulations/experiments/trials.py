"""What experiments on whole runs share: trials on the train rows of dealt sets, intervals over sets."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedcluster_app.config import Scalar, parse_run_config
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.model import Model
from fedcluster_app.streams import stream
from simulations.experiments.sets import SETS, Dealt, deal
from simulations.federation import LocalRun, run_locally

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One run to make.

    Attributes
    ----------
    name, folder, regime : str
        Data set, where its file is, and how it is dealt.
    method : str
        A method of the product; after a plus sign, the estimator of the local counts.
    seed : int
    settings : mapping
        Further keys of the run config.
    """

    name: str
    folder: str
    regime: str
    method: str
    seed: int
    settings: Mapping[str, Scalar]

    def dealt(self) -> Dealt:
        """Deal the set: the same parts whatever the method and the settings."""
        rng = stream(self.seed, "experiment", self.name)
        return deal(SETS[self.name], self.folder, self.regime, rng)


def run_on_train(trial: Trial, dealt: Dealt) -> LocalRun:
    """Make a whole run of the product in this process, on the train rows."""
    method, _, estimator = trial.method.partition("+")
    values: dict[str, Scalar] = {
        "method": method,
        "partition": "site",
        "scaling": SETS[trial.name].scaling,
        "pca": SETS[trial.name].pca,
        "seed": trial.seed,
    }
    values |= {"estimator": estimator} if estimator else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.npz")
        rows = np.concatenate(list(dealt.train.values()))
        site = np.repeat(np.arange(len(dealt.train)), [len(part) for part in dealt.train.values()])
        np.savez(path, X=dealt.X[rows], y=dealt.y[rows], site=site, site_names=list(dealt.train))
        config = parse_run_config(values | {"data": str(path)} | dict(trial.settings))
        return run_locally(config, len(dealt.train), run_folder=folder)


def own_labels(model: Model, X: FloatArray, members: IntArray) -> IntArray:
    """Label unscaled rows (n, d) by the nearest among the clusters (k,) of their site's own components."""
    distances = squared_distances(model.scaling.apply(X), model.clusters.means[members])
    labels: IntArray = members[distances.argmin(axis=1)]
    return labels


def run_all(run: Callable[[S], T], items: Sequence[S], jobs: int) -> Iterator[T]:
    """Yield what each trial gives, in order, as soon as it is there."""
    if jobs == 1:
        yield from map(run, items)
        return
    # Spawned: a fork would copy the libraries' threads half way.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, items)


def resumed(
    run: Callable[[S], Any], trials: Mapping[Any, S], jobs: int, file: Path | None, kind: Callable[..., Any]
) -> list[Any]:
    """Return the scores of trials in order: those in the file are read, the others are made and added to it.

    Parameters
    ----------
    run
        Makes a trial's score, a dataclass with the trial's ``key``.
    trials : mapping of key to trial
    jobs
        Processes.
    file
        With a line for every score.
    kind
        The class of the scores.
    """
    made = {one.key: one for one in (read(file, kind) if file and file.exists() else ())}
    for one in run_all(run, [trial for key, trial in trials.items() if key not in made], jobs):
        made[one.key] = one
        if file:
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(one)) + "\n")
    return [made[key] for key in trials]


def read(file: Path, kind: Callable[..., T]) -> list[T]:
    """Read the scores of a file."""
    return [kind(**json.loads(line)) for line in file.read_text("utf-8").splitlines()]


def parse_settings(given: str) -> dict[str, Scalar]:
    """Read key=value,... where a value that can be a number is one, as in Flower's run config."""
    settings: dict[str, Scalar] = {}
    for key, _, value in (pair.partition("=") for pair in given.split(",") if pair):
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings


def interval(differences: FloatArray, draws: int = 4000) -> tuple[float, float]:
    """Return the ends of a 95 % interval of the mean of differences (sets,), by bootstrap of sets."""
    drawn = np.random.default_rng(0).integers(len(differences), size=(draws, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def sets_at_hand(parser: argparse.ArgumentParser, given: str, folder: str) -> list[str]:
    """Return names of sets from a list with commas; the parser complains of unknown sets and absent files."""
    names = given.split(",")
    if unknown := [name for name in names if name not in SETS]:
        parser.error(f"no set {', '.join(unknown)}; choose from {', '.join(SETS)}")
    if absent := {f for f in (SETS[name].file for name in names) if f and not Path(folder, f).is_file()}:
        parser.error(f"{', '.join(sorted(absent))} not in {folder!r}; give --data or set FEDCLUSTER_DATA")
    return names
