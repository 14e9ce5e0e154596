"""Evidence-gated pooling under strain: small counts withheld, bad rows, bad neighbours, silent sites.

Networks are those of the personal mixtures' study, balanced: five components, 50 rows of two features at a
site. "pool-open" withholds no small component, "alone" has no neighbours, "mmd" is GTV-MMD with the settings
of its paper. Figures are means over sites, those of an attack over the honest ones; "inside" and "outside" is
the trust on edges to sites of the same truth, and to others or the liar. Differences are of log-likelihoods
to the first line, seed by seed. Every score is a line of a file; a command that is given the file again makes
only the runs that are not there::

    python -m simulations.experiments.pooling --studies counts,rows,attacks,silence --seeds 10 --json FILE
    python -m simulations.experiments.pooling --read FILE
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.gtvmin import pool_network
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.gtvmin.pool_state import PoolResult
from fedcluster_app.mixtures import Mixture
from fedcluster_app.results.tables import aligned
from fedcluster_app.streams import stream
from simulations.experiments.personal import couple, paper, score, starts
from simulations.experiments.personal_data import READINGS, SCENARIOS, Network
from simulations.experiments.personal_scores import median_interval
from simulations.experiments.pooling_data import STUDIES, Variant, attacked, network_of
from simulations.experiments.trials import read, resumed


@dataclass(frozen=True)
class Trial:
    """One run to make: study, what its variants have in common, variant."""

    study: str
    group: str
    name: str
    seed: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The trial as its score has it."""
        return self.study, self.group, self.name, self.seed


@dataclass(frozen=True)
class Score:
    """What one run gives, as a mean over honest sites.

    Attributes
    ----------
    study, group, name, seed
        The trial.
    ll : float
        Mean log-density of a site's test rows under its own mixture.
    error : float
        Of its matched means; those left over on the larger side do not count.
    components : float
        How many it has.
    inside, outside : float or None
        Trust in neighbours of the same truth, and in others or the liar; None where there are none.
    """

    study: str
    group: str
    name: str
    seed: int
    ll: float
    error: float
    components: float
    inside: float | None
    outside: float | None

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The trial."""
        return self.study, self.group, self.name, self.seed


def run_trial(trial: Trial) -> Score:
    """Draw the network, take the rounds, and score the mixtures of honest sites."""
    variant = STUDIES[trial.study][trial.group][trial.name]
    drawn = network_of(variant, trial.seed)
    honest = drawn.graph.names[bool(variant.attack) :]
    with threadpool_limits(1):
        if variant.settings is None:
            found, results = _mmd(drawn, variant, trial.seed), {}
        else:
            results = pooled(drawn, variant, variant.settings, trial.seed)
            found = {name: result.mixture for name, result in results.items()}
    figures = score(drawn, {name: found[name] for name in honest})
    inside, outside = _trust(drawn, {name: results[name] for name in honest if name in results}, honest)
    components = float(np.mean([found[name].n_components for name in honest]))
    return Score(*trial.key, figures["ll"], figures["error"], components, inside, outside)


def _mmd(drawn: Network, variant: Variant, seed: int) -> dict[str, Mixture]:
    scenario, reading = SCENARIOS[variant.scenario], READINGS["A"]
    settings = paper(scenario, "mmd", {})
    begun = starts(drawn, scenario.k, reading, settings, seed)
    return dict(couple(drawn, begun, settings, scenario.rounds, seed))


def pooled(drawn: Network, variant: Variant, settings: PoolSettings, seed: int) -> dict[str, PoolResult]:
    """Pool until all sites rest, with the variant's attack or silence."""
    k = SCENARIOS[variant.scenario].k if variant.known else None
    draws = partial(stream, seed, "personal", "pool")
    rng, names = stream(seed, "pooling", "world"), drawn.graph.names

    def told(state: pool_network.PoolNetworkState) -> pool_network.PoolNetworkState:
        return replace(state, mail=attacked(state.mail, variant.attack, rng))

    state = told(pool_network.init(drawn.train, k, drawn.graph, draws, settings))
    while not pool_network.done(state, settings):
        silent = rng.permutation(names)[: len(names) // 2].tolist() if variant.silent else ()
        state = told(pool_network.step(state, drawn.train, drawn.graph, draws, settings, silent))
    return pool_network.finish(state, drawn.train, drawn.graph, settings)


def _trust(
    drawn: Network, results: dict[str, PoolResult], honest: Sequence[str]
) -> tuple[float | None, float | None]:
    """Mean trust on edges to honest sites of the same truth, and on all other edges."""
    trust: dict[bool, list[float]] = {True: [], False: []}
    for name, result in results.items():
        for other, rate in result.rates.items():
            alike = np.array_equal(drawn.truths[name].means, drawn.truths[other].means)
            trust[alike and other in honest].append(rate)
    inside, outside = (float(np.mean(trust[same])) if trust[same] else None for same in (True, False))
    return inside, outside


def table(scores: Iterable[Score]) -> str:
    """Return a line for every variant: medians over seeds, and differences to the first variant's."""
    groups: dict[tuple[str, str], dict[str, dict[int, Score]]] = {}
    for one in scores:
        groups.setdefault((one.study, one.group), {}).setdefault(one.name, {})[one.seed] = one
    figures = ("LL", "mu_err", "K", "inside", "outside")
    lines = [["", "", *figures, "difference of LL", "smallest", "wins", "seeds"]]
    for (study, group), variants in groups.items():
        first = next(iter(STUDIES[study][group]))
        for name, by_seed in variants.items():
            cells = [
                _median([getattr(one, field) for one in by_seed.values()], digits)
                for field, digits in (
                    ("ll", 3),
                    ("error", 3),
                    ("components", 1),
                    ("inside", 2),
                    ("outside", 2),
                )
            ]
            pairs = [seed for seed in by_seed if name != first and seed in variants.get(first, {})]
            gains = np.array([by_seed[seed].ll - variants[first][seed].ll for seed in pairs])
            lines.append([f"{study}: {group}", name, *cells, *_gains(gains), str(len(by_seed))])
    return aligned(lines)


def _median(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{np.median(known):.{digits}f}" if known else "-"


def _gains(gains: np.ndarray) -> list[str]:
    """Median and interval, smallest, and number above 0."""
    if not len(gains):
        return ["-", "-", "-"]
    low, high = median_interval(gains)
    wins = f"{(gains > 0).sum()}/{len(gains)}"
    return [f"{np.median(gains):+.3f} [{low:+.3f}, {high:+.3f}]", f"{gains.min():+.3f}", wins]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--studies", default=",".join(STUDIES), help="by default all")
    parser.add_argument("--seeds", type=int, default=10, help="how many: 0, 1, ...")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="file with a line for every score, made or continued")
    parser.add_argument("--read", type=Path, nargs="*", help="such files, instead of running")
    args = parser.parse_args(arguments)
    studies = args.studies.split(",")
    if unknown := [name for name in studies if name not in STUDIES]:
        parser.error(f"no studies {', '.join(unknown)}; choose from {', '.join(STUDIES)}")
    scores = list({one.key: one for file in args.read or () for one in read(file, Score)}.values())
    if args.read is None:
        trials = [
            Trial(study, group, name, seed)
            for study in studies
            for group, variants in STUDIES[study].items()
            for name in variants
            for seed in range(args.seeds)
        ]
        scores = resumed(run_trial, {trial.key: trial for trial in trials}, args.jobs, args.json, Score)
    print(table(scores))


if __name__ == "__main__":
    main()
