"""Personal mixtures coupled over a graph: the tables of arXiv:2609.19202, published beside reproduced.

Every site learns from its own rows and its neighbours' models; "local" and "centralized" are scikit-learn's
mixtures of each site's rows and of all rows. "pool" is this project's evidence-gated pooling; "pool-full"
tries all other starts, "pool-fast" few in four rounds, "pool-auto" finds k, "alone" has no neighbours.
"fedem", "fedgengmm" and "ifca" (told the number of blocks) go through a server, without a graph; so do
"fedkmeans-aligned", "fedgrem" and "fedgrem-published", and "consensus-em" and "consensus-leaky" along it. The
readings A, B and C differ in what the paper leaves open: balanced labels and ten starts of k-means, balanced
labels and one start, independent labels and one start. A cell is a median over seeds with a 95 % interval.
Every score is a line of a file; a command that is given the file again makes only the runs that are not
there::

    python -m simulations.experiments.personal --tables table2,er,sbm,sweep,digits --seeds 20 --json FILE
    python -m simulations.experiments.personal --tables sbm --methods kl --settings alpha=0.1,update=em
    python -m simulations.experiments.personal --tables sweep --methods pool,pool-auto --settings min_count=0
    python -m simulations.experiments.personal --read FILE MORE
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.config import Scalar
from fedcluster_app.gtvmin import (
    Bounds,
    Settings,
    Stop,
    kmeans_start,
    network,
    pool_network,
    start_from_labels,
)
from fedcluster_app.gtvmin.pool_settings import FAST, FULL, PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolResult
from fedcluster_app.metrics.agreement import contingency_table, normalized_mutual_info
from fedcluster_app.metrics.mixtures import center_error, effective_components
from fedcluster_app.mixtures import Mixture, responsibilities
from fedcluster_app.streams import stream
from simulations.experiments.personal_aligned import ALIGNED
from simulations.experiments.personal_data import (
    COUPLED,
    PAPER,
    READINGS,
    SCENARIOS,
    TABLES,
    Network,
    Reading,
    Scenario,
    draw,
    peers,
    unheard,
)
from simulations.experiments.personal_rivals import RIVALS, rival
from simulations.experiments.personal_scores import FIGURES, Score, tables
from simulations.experiments.trials import parse_settings, read, resumed

#: What may be set: of the steps, of the set of feasible mixtures, and the number of rounds.
BOUNDS = tuple(field.name for field in fields(Bounds))
KEYS = (*(field.name for field in fields(Settings) if field.name not in ("discrepancy", "bounds")), *BOUNDS)
#: Pooling: whether it is told k, and its settings. Who is alone has nothing to withhold.
POOLED: dict[str, tuple[bool, PoolSettings]] = {
    "pool": (True, PoolSettings()),
    "pool-full": (True, FULL),
    "pool-fast": (True, FAST),
    "pool-auto": (False, PoolSettings()),
    "alone": (True, PoolSettings(min_count=0.0)),
}
METHODS = (*PAPER, *POOLED, *RIVALS, *ALIGNED)
#: What may be set of pooling.
POOL_KEYS = tuple(field.name for field in fields(PoolSettings) if not isinstance(field.default, tuple))
#: Of every method that has settings.
KEYS_OF = {**dict.fromkeys(COUPLED, KEYS), **dict.fromkeys(POOLED, POOL_KEYS)}


@dataclass(frozen=True)
class Trial:
    """One run to make; the settings depart from those of the paper."""

    scenario: str
    reading: str
    method: str
    seed: int
    settings: Mapping[str, Scalar]

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The trial as its score has it."""
        label = " ".join([self.method, *(f"{key}={value}" for key, value in self.settings.items())])
        return self.scenario, self.reading, label, self.seed


def run_trial(trial: Trial) -> Score:
    """Draw the network, run the method, and score every site's mixture."""
    scenario, reading = SCENARIOS[trial.scenario], READINGS[trial.reading]
    drawn = draw(scenario, reading, trial.seed)
    with threadpool_limits(1):
        started = time.process_time()
        if trial.method in COUPLED:
            settings, rounds = paper(scenario, trial.method, trial.settings), scenario.rounds
            found = couple(
                drawn, starts(drawn, scenario.k, reading, settings, trial.seed), settings, rounds, trial.seed
            )
        elif trial.method in POOLED:
            known, pooling = POOLED[trial.method]
            heard = unheard(drawn) if trial.method == "alone" else drawn
            changed = replace(pooling, **trial.settings)  # type: ignore[arg-type]  # it checks the values
            results = pool(heard, scenario.k if known else None, changed, trial.seed)
            found = {name: result.mixture for name, result in results.items()}
        elif trial.method in RIVALS:
            found = rival(trial.method, drawn, scenario, trial.seed)
        elif trial.method in ALIGNED:
            found = ALIGNED[trial.method](drawn, scenario, trial.seed)
        else:
            found = peers(drawn, scenario, trial.seed, pooled=trial.method == "centralized")
        seconds = time.process_time() - started
    return Score(*trial.key, **score(drawn, found), seconds=seconds)


def paper(scenario: Scenario, discrepancy: str, changes: Mapping[str, Scalar]) -> Settings:
    """Return the paper's settings, without the guard, but for the changes."""
    given: dict[str, Any] = {"alpha": scenario.alpha(discrepancy), "step_size": scenario.step_size}
    given |= {"guard": False, **changes}
    bounds = Bounds(**{key: given.pop(key) for key in BOUNDS if key in given})
    return Settings(discrepancy=discrepancy, bounds=bounds, **given)  # type: ignore[arg-type]  # it checks the name


def starts(drawn: Network, k: int, reading: Reading, settings: Settings, seed: int) -> dict[str, Mixture]:
    """Start every site from k-means.

    Notes
    -----
    A single start is scikit-learn's, as the paper's presumably is: its k-means++ takes the best of several
    draws for each centre. The product's takes the only one, as published, and is there for ten starts.
    """
    if reading.starts > 1:
        return {
            name: kmeans_start(X, k, stream(seed, "personal", "start", name), settings.bounds).mixture
            for name, X in drawn.train.items()
        }
    from sklearn.cluster import KMeans

    return {
        name: start_from_labels(
            X, KMeans(min(k, len(X)), n_init=1, random_state=seed).fit_predict(X), settings.bounds
        ).mixture
        for name, X in drawn.train.items()
    }


def couple(
    drawn: Network, begun: Mapping[str, Mixture], settings: Settings, rounds: int, seed: int
) -> Mapping[str, Mixture]:
    """Take all rounds; the KL coupling draws rows by round and edge."""

    def draws(number: int, receiver: str, sender: str) -> np.random.Generator:
        return stream(seed, "personal", "draws", number, receiver, sender)

    stop = Stop(max_rounds=rounds, tolerance=0.0)
    return network.run(drawn.train, begun, drawn.graph, settings, draws, stop).mixtures


def pool(drawn: Network, k: int | None, settings: PoolSettings, seed: int) -> dict[str, PoolResult]:
    """Pool until all sites rest; k is found if it is None."""
    return pool_network.run(drawn.train, k, drawn.graph, partial(stream, seed, "personal", "pool"), settings)


def score(drawn: Network, found: Mapping[str, Mixture]) -> dict[str, Any]:
    """Return the figures of the sites' mixtures, as means over sites."""
    figures: dict[str, list[float]] = {name: [] for name in FIGURES}
    for name, mixture in found.items():
        R, log_density = responsibilities(drawn.test[name], mixture)
        figures["ll"].append(log_density.mean())
        figures["train_ll"].append(responsibilities(drawn.train[name], mixture)[1].mean())
        figures["nmi"].append(normalized_mutual_info(contingency_table(drawn.labels[name], R.argmax(axis=1))))
        figures["effective"].append(effective_components(mixture.weights))
        if drawn.truths:
            figures["error"].append(center_error(mixture.means, drawn.truths[name].means))
    return {name: float(np.mean(values)) if values else None for name, values in figures.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", default="table2,er,sbm", help=f"of {','.join(TABLES)}")
    parser.add_argument("--readings", default=",".join(READINGS), help="by default all")
    parser.add_argument("--methods", default=",".join(METHODS), help="by default all")
    parser.add_argument("--seeds", type=int, default=20, help="how many: 0, 1, ...")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--settings",
        default="",
        help=f"key=value,... of coupling: {', '.join(KEYS)}; of pooling: {', '.join(POOL_KEYS)}",
    )
    parser.add_argument("--json", type=Path, help="file with a line for every score, made or continued")
    parser.add_argument("--read", type=Path, nargs="*", help="such files, instead of running")
    args = parser.parse_args(arguments)
    scores = list({one.key: one for file in args.read or () for one in read(file, Score)}.values())
    if args.read is None:
        trials = {trial.key: trial for trial in _trials(parser, args)}
        scores = resumed(run_trial, trials, args.jobs, args.json, Score)
    print(tables(scores))


def _trials(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Trial]:
    """Return the trials that the command names; the parser complains of unknown names."""
    chosen = {}
    for option, known in (("tables", TABLES), ("readings", READINGS), ("methods", METHODS)):
        chosen[option] = getattr(args, option).split(",")
        if unknown := [name for name in chosen[option] if name not in known]:
            parser.error(f"no {option} {', '.join(unknown)}; choose from {', '.join(known)}")
    settings = parse_settings(args.settings)
    known_keys = (*KEYS, *POOL_KEYS)
    if unknown := [key for key in settings if key not in known_keys]:
        parser.error(f"no setting {', '.join(unknown)}; choose from {', '.join(known_keys)}")
    own = {
        method: {key: value for key, value in settings.items() if key in KEYS_OF.get(method, ())}
        for method in chosen["methods"]
    }
    return [
        Trial(scenario, reading, method, seed, own[method])
        for scenario in dict.fromkeys(name for table in chosen["tables"] for name in TABLES[table])
        for method in chosen["methods"]
        for reading in chosen["readings"]
        for seed in range(args.seeds)
    ]


if __name__ == "__main__":
    main()
