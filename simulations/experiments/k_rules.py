"""Rules for the number of global clusters, side by side, over federations whose number of classes is known.

Paths of fits are costly, rules are not: the command writes what speaks for each K, and how well the held-out
rows are labelled with it, and reads that again to score rules. Some federations are held back: a rule is
measured on them when it is finished::

    python -m simulations.experiments.k_rules --data DIR --sets development --seeds 4 --json paths.json
    python -m simulations.experiments.k_rules --read paths.json
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcluster_app.aggregation.micro import path as paths
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.tables import aligned
from fedcluster_app.streams import stream
from simulations.experiments.federations import DEVELOPMENT, HELD_BACK, federation
from simulations.experiments.k_criteria import RULES, Figures, figures
from simulations.experiments.sets import Dealt
from simulations.experiments.trials import interval


def labels_agree(dealt: Dealt, clusters: Clusters) -> float:
    """Return the adjusted Rand index of classes and labels over the held-out rows of all sites."""
    mixture = Mixture(clusters.global_weights, clusters.means, clusters.covariances)
    found = [
        (log_densities(dealt.X[rows], mixture) + np.log(weights)).argmax(axis=1)
        for rows, weights in zip(dealt.test.values(), clusters.weights, strict=True)
    ]
    classes = dealt.y[np.concatenate(list(dealt.test.values()))]
    return float(adjusted_rand_index(contingency_table(classes, np.concatenate(found))))


@dataclass(frozen=True)
class Trial:
    """One federation's figures along the grid, and the agreement with its classes at each K."""

    name: str
    seed: int
    k_true: int
    figures: Figures
    agreement: tuple[float, ...]


def run(name: str, seed: int, folder: str) -> Trial:
    """Follow the path of one federation."""
    cells, dealt = federation({**DEVELOPMENT, **HELD_BACK}[name], seed, name, folder)
    rng = stream(seed, "server")
    path = paths.follow(cells, paths.grid(paths.largest_k(cells)), rng)
    agreement = tuple(labels_agree(dealt, path.fits[int(k)].clusters) for k in path.k)
    return Trial(name, seed, len(np.unique(dealt.y)), figures(cells, path, rng), agreement)


@dataclass(frozen=True)
class Summary:
    """A rule over sets: the means of the sets' mean agreements and count errors.

    `worst` is the largest loss of one set's mean agreement against that at the true K; `low`, `high` are the
    ends of a 95 % interval for the difference of the agreement to the first rule, by bootstrap of sets.
    """

    rule: str
    agreement: float
    error: float
    worst: float
    low: float
    high: float
    by_set: dict[str, tuple[float, float]]


def summarise(trials: Sequence[Trial], rules: Sequence[str]) -> list[Summary]:
    """Summaries in the order of the rules; between grid points the agreement is interpolated."""
    names = list(dict.fromkeys(trial.name for trial in trials))
    groups = [[trial for trial in trials if trial.name == name] for name in names]

    def means(rule: str) -> FloatArray:
        chosen = [
            [t.k_true if rule == "true K" else RULES[rule](t.figures) for t in group] for group in groups
        ]
        pairs = [
            [(np.interp(k, t.figures.k, t.agreement), abs(k - t.k_true)) for t, k in zip(g, ks, strict=True)]
            for g, ks in zip(groups, chosen, strict=True)
        ]
        return np.array([np.mean(each, axis=0) for each in pairs])

    truth, first = means("true K"), means(rules[0])
    found = []
    for rule in rules:
        own = means(rule)
        low, high = interval(own[:, 0] - first[:, 0])
        by_set = {name: (float(a), float(e)) for name, (a, e) in zip(names, own, strict=True)}
        worst = float((truth[:, 0] - own[:, 0]).max())
        agreement, error = own.mean(axis=0)
        found.append(Summary(rule, float(agreement), float(error), worst, low, high, by_set))
    return found


def table(summaries: Sequence[Summary]) -> str:
    """Return the summaries as two tables: the means, and agreement / count error by set."""
    head = ["rule", "ARI", "|K - K*|", "worst loss", "95 % of ARI difference to first"]
    means = [
        [s.rule, f"{s.agreement:.3f}", f"{s.error:.2f}", f"{s.worst:.2f}", f"{s.low:+.3f} to {s.high:+.3f}"]
        for s in summaries
    ]
    shown = summaries[:6]
    lines = [
        [name, *("{:.2f}/{:.1f}".format(*s.by_set[name]) for s in shown)] for name in summaries[0].by_set
    ]
    return f"{aligned([head, *means])}\n\n{aligned([['set', *(s.rule for s in shown)], *lines])}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("FEDCLUSTER_DATA", ""), help="folder of the files")
    parser.add_argument("--sets", default="development", help="development, held-back, or names")
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    parser.add_argument("--json", type=Path, help="file for every path")
    parser.add_argument("--read", type=Path, nargs="*", help="such files, instead of running")
    args = parser.parse_args(arguments)
    groups = {"development": list(DEVELOPMENT), "held-back": list(HELD_BACK)}
    names = groups.get(args.sets) or args.sets.split(",")
    if unknown := [name for name in names if name not in {**DEVELOPMENT, **HELD_BACK}]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if args.read:
        trials = [trial for file in args.read for trial in read(file)]
    else:
        trials = []
        for name in names:
            trials += [run(name, seed, args.data) for seed in range(args.seeds)]
            if args.json:
                write(args.json, trials)
    print(table(summarise(trials, ["true K", *RULES])))


def write(file: Path, trials: Sequence[Trial]) -> None:
    """Write paths."""
    plain = [{**vars(trial), "figures": trial.figures.plain()} for trial in trials]
    file.write_text(json.dumps(plain) + "\n", "utf-8")


def read(file: Path) -> list[Trial]:
    """Read what :func:`write` has written."""
    found = json.loads(file.read_text("utf-8"))
    return [Trial(**{**each, "figures": Figures.read(each["figures"])}) for each in found]


if __name__ == "__main__":
    main()
