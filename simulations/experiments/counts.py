"""Errors of local counts: |K - K_g| / K_g over many families of clients, for every local estimator.

Every client counts its own rows, without labels and without hearing from others. Clients come from
:mod:`simulations.experiments.families`; the held-back families are for finished methods::

    python -m simulations.experiments.counts --data DIR --families development --seeds 3 --jobs 2
    python -m simulations.experiments.counts --data DIR --families held-back --seeds 3 --json counts.json

Families with one class at every client have a row each but are not in the mean: their error is K - 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedcluster_app.cardinality.consensus import count_consensus
from fedcluster_app.cardinality.count import Count
from fedcluster_app.cardinality.registry import ESTIMATORS
from fedcluster_app.cardinality.variant import Variant
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.tables import aligned
from fedcluster_app.streams import stream
from simulations.experiments.families import FAMILIES, Client, Synthetic, clients
from simulations.experiments.trials import run_all

Counter = Callable[[FloatArray, np.random.Generator], Count]


def counters() -> dict[str, Counter]:
    """Every label-free estimator of the registry, and ASM with one departure from the paper each."""
    variants = {
        "asm, score mixture": Variant(score="mixture"),
        "asm, diagonal mixture": Variant(score="mixture", covariance="diagonal"),
        "asm, alpha in leaf units": Variant(alpha_unit="leaves"),
        "asm, guard": Variant(guard=True),
    }
    five = ("asm", "mixture", "scores", "dendrogram", "kmeans-scores")
    registered = {name: each.load() for name, each in ESTIMATORS.items() if not each.needs_labels}
    return registered | {
        "consensus, five votes": partial(count_consensus, votes=five),
        **{name: partial(registered["asm"], variant=variant) for name, variant in variants.items()},
    }


@dataclass(frozen=True)
class Trial:
    """One client's count by one estimator, and the processor time that it took."""

    family: str
    seed: int
    client: int
    rows: int
    estimator: str
    k_true: int
    k: int
    seconds: float

    @property
    def error(self) -> float:
        """Relative error of the count."""
        return abs(self.k - self.k_true) / self.k_true


def run_client(client: Client, names: Sequence[str]) -> list[Trial]:
    """Count the client's clusters with each of the estimators; all of them draw from the same stream."""
    known, trials = counters(), []
    for name in names:
        rng = stream(client.seed, "count", client.family, client.number)
        start = time.process_time()
        count = known[name](client.X, rng)
        seconds = time.process_time() - start
        where = (client.family, client.seed, client.number, len(client.X))
        trials.append(Trial(*where, name, client.k, count.k, seconds))
    return trials


def _family(job: tuple[str, int], names: Sequence[str], most: int, folder: str) -> list[Trial]:
    family, seed = job
    return [trial for client in clients(family, seed, most, folder) for trial in run_client(client, names)]


@dataclass(frozen=True)
class Summary:
    """One estimator over families: mean of the families' mean errors, mean relative bias, and cost.

    `low`, `high` are the ends of a 95 % interval for the difference to the first estimator's mean error, by
    bootstrap of clients within families; nan for the first itself.
    """

    estimator: str
    error: float
    bias: float
    low: float
    high: float
    milliseconds: float
    families: dict[str, float]


def summarise(trials: Sequence[Trial]) -> list[Summary]:
    """Summaries in the order of the estimators."""
    names = list(dict.fromkeys(trial.estimator for trial in trials))
    families = list(dict.fromkeys(trial.family for trial in trials))
    chosen = {
        (name, family): [trial for trial in trials if (trial.estimator, trial.family) == (name, family)]
        for name in names
        for family in families
    }
    errors = {key: np.array([trial.error for trial in group]) for key, group in chosen.items()}
    several = [family for family in families if not FAMILIES[family].single]
    found = []
    for name in names:
        own = [trial for family in several for trial in chosen[name, family]]
        low, high = _interval([errors[name, f] - errors[names[0], f] for f in several])
        bias = [_mean(t.k / t.k_true - 1 for t in chosen[name, family]) for family in several]
        found.append(
            Summary(
                name,
                error=_mean([errors[name, family].mean() for family in several]),
                bias=_mean(bias),
                low=low if name != names[0] else math.nan,
                high=high if name != names[0] else math.nan,
                milliseconds=1e3 * _mean([trial.seconds for trial in own]),
                families={family: float(errors[name, family].mean()) for family in families},
            )
        )
    return found


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return float(np.mean(values)) if values else math.nan


def _interval(differences: Sequence[FloatArray], draws: int = 2000) -> tuple[float, float]:
    """Bootstrap interval of the mean over families of the mean difference over clients."""
    if not differences:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    means = [each[rng.integers(len(each), size=(draws, len(each)))].mean(axis=1) for each in differences]
    low, high = np.quantile(np.mean(means, axis=0), [0.025, 0.975])
    return float(low), float(high)


def table(summaries: Sequence[Summary]) -> str:
    """Return the summaries as two tables: the means, and the error by family (a line each)."""
    head = ["estimator", "mean error", "bias", "95 % of difference to first", "ms per client"]
    means = [
        [
            one.estimator,
            f"{one.error:.3f}",
            f"{one.bias:+.2f}",
            "" if math.isnan(one.low) else f"{one.low:+.3f} to {one.high:+.3f}",
            f"{one.milliseconds:.0f}",
        ]
        for one in summaries
    ]
    names = ["family", *(one.estimator for one in summaries)]
    lines = [[f, *(f"{one.families[f]:.2f}" for one in summaries)] for f in summaries[0].families]
    return f"{aligned([head, *means])}\n\n{aligned([names, *lines])}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the files")
    parser.add_argument(
        "--families", default="development", help=f"development, held-back, or of {','.join(FAMILIES)}"
    )
    parser.add_argument("--estimators", default="", help=f"of {'; '.join(counters())}, ';' between them")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=8, help="most clients of a family and seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="file for every count")
    args = parser.parse_args(arguments)
    groups = {name: [f for f in FAMILIES if FAMILIES[f].held_back == held] for name, held in _GROUPS.items()}
    families = groups.get(args.families) or args.families.split(",")
    names = args.estimators.split(";") if args.estimators else list(counters())
    for given, known in ((families, FAMILIES), (names, counters())):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    if not args.data and not all(isinstance(FAMILIES[f].source, Synthetic) for f in families):
        parser.error("labelled sets need their folder; give --data or set FEDCLUSTER_DATA")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [(family, seed) for family in families for seed in seeds]
    family = partial(_family, names=names, most=args.clients, folder=args.data)
    trials = [trial for part in run_all(family, jobs, args.jobs) for trial in part]
    print(table(summarise(trials)))
    if args.json:
        args.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1) + "\n", "utf-8")


_GROUPS = {"development": False, "held-back": True}


if __name__ == "__main__":
    main()
