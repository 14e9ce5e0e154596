"""What evidence-gated pooling costs: whole runs beside GTV-MMD, a node's step, and networks of growing size.

Times are processor time on one thread, and every ratio is of times from the same run, which take turns. Whole
runs are on the paper's block network (15 sites), starts included, GTV-MMD for 40 rounds; figures are medians
over seeds. Bytes are what one site sends until the end: the entries of its summaries or mixtures, covariances
as triangles, eight bytes each. A step of a node is taken against a growing number of received components, of
neighbours of the same truth, and a network of such sites is a random one of equal mean degree::

    python -m simulations.benchmarks.gtvpool --runs 5 --neighbours 8,16,32 --features 2,10 --sites 15,150,1500
    python -m simulations.benchmarks.gtvpool --runs 20 --neighbours "" --sites ""
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.gtvmin import erdos_renyi, network, pool, pool_network
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from simulations.benchmarks.gtvmin import BLOCK_NETWORK, COMPONENTS, DEGREE
from simulations.benchmarks.measures import grid, medians, peak_bytes
from simulations.benchmarks.microcluster import synthetic_rows
from simulations.experiments.personal import POOLED, paper, score, starts
from simulations.experiments.personal_data import READINGS, SCENARIOS, Network, draw
from simulations.sources import numbered_names

#: Pooling in its modes; what the last one takes is the unit of ratios.
METHODS = ("pool", "pool-fast", "pool-auto", "mmd")
SITE_ROWS = 50
#: A log-likelihood is reached when it is missed by so much.
NEAR = 1e-3

# By number of rounds: what makes the mixtures after these, and the bytes that a site sends then.
Rounds = Iterator[tuple[Callable[[], Mapping[str, Mixture]], float]]


@dataclass(frozen=True, eq=False)
class Trace:
    """One run, by the number of rounds taken, from 0; all arrays of shape (rounds + 1,).

    Attributes
    ----------
    ll, seconds, sent : arrays
        Log-likelihood of test rows, mean over sites; processor time if the run ended there; bytes that a site
        has sent until then, what it says of its last state with them.
    """

    ll: FloatArray
    seconds: FloatArray
    sent: FloatArray

    def reached(self, ll: float) -> int | None:
        """First number of rounds after which the log-likelihood is as high; None if it never is."""
        hit = np.flatnonzero(self.ll >= ll - NEAR)
        return int(hit[0]) if len(hit) else None


def message_bytes(k: int, d: int) -> int:
    """Bytes of k counts or weights, means, and covariances as triangles."""
    return 8 * k * (1 + d + d * (d + 1) // 2)


def pool_rounds(drawn: Network, k: int | None, settings: PoolSettings, seed: int) -> Rounds:
    """Pool round by round."""
    draws = partial(stream, seed, "personal", "pool")
    state = pool_network.init(drawn.train, k, drawn.graph, draws, settings)

    def mixtures(state: pool_network.PoolNetworkState) -> dict[str, Mixture]:
        results = pool_network.finish(state, drawn.train, drawn.graph, settings)
        return {name: result.mixture for name, result in results.items()}

    while True:
        sent = [message_bytes(*said.means.shape) for said in state.mail.values()]
        yield partial(mixtures, state), float(np.mean(sent))
        if pool_network.done(state, settings):
            return
        state = pool_network.step(state, drawn.train, drawn.graph, draws, settings)


def mmd_rounds(drawn: Network, rounds: int, seed: int) -> Rounds:
    """Couple by MMD round by round, as in the paper."""
    scenario, reading = SCENARIOS[BLOCK_NETWORK], READINGS["A"]
    settings = paper(scenario, "mmd", {})
    begun = starts(drawn, scenario.k, reading, settings, seed)
    state = network.init(begun, drawn.graph, settings)
    for number in range(rounds + 1):
        if number:
            state = network.step(state, drawn.train, drawn.graph, settings)
        mixtures = {name: own.mixture for name, own in state.nodes.items()}
        sent = [message_bytes(*own.means.shape) for own in mixtures.values()]
        yield mixtures.copy, float(np.mean(sent))


def trace(rounds: Rounds, drawn: Network) -> Trace:
    """Take all rounds; the clock stands while mixtures are scored."""
    lls, seconds, sent, spent = [], [], [], 0.0
    while True:
        start = time.process_time()
        state = next(rounds, None)
        if state is None:
            break
        stepped = time.process_time()
        mixtures = state[0]()
        seconds.append(spent + time.process_time() - start)
        spent += stepped - start
        lls.append(score(drawn, mixtures)["ll"])
        sent.append(state[1])
    return Trace(np.array(lls), np.array(seconds), np.cumsum(sent))


def traces(seed: int, rounds: int) -> dict[str, Trace]:
    """Return all methods' runs on the block network of a seed."""
    scenario = SCENARIOS[BLOCK_NETWORK]
    drawn = draw(scenario, READINGS["A"], seed)
    runs = {"mmd": mmd_rounds(drawn, rounds, seed)}
    for name in METHODS[:-1]:
        known, settings = POOLED[name]
        runs[name] = pool_rounds(drawn, scenario.k if known else None, settings, seed)
    return {name: trace(run, drawn) for name, run in runs.items()}


def report_runs(seeds: int, rounds: int) -> str:
    """Cost and log-likelihood of whole runs, and what it costs to be as good as another method's end."""
    found = [traces(seed, rounds) for seed in range(seeds)]
    ends: dict[str, FloatArray] = {
        "s": _over(found, lambda each, name: each[name].seconds[-1]),
        "s, to MMD": _over(found, lambda each, name: each[name].seconds[-1] / each["mmd"].seconds[-1]),
        "rounds": _over(found, lambda each, name: len(each[name].ll) - 1.0),
        "kB sent": _over(found, lambda each, name: each[name].sent[-1] / 1e3),
        "kB, to MMD": _over(found, lambda each, name: each[name].sent[-1] / each["mmd"].sent[-1]),
        "LL": _over(found, lambda each, name: each[name].ll[-1]),
    }
    parts = [grid(f"block network, {seeds} seeds", METHODS, ends, "{:.3f}")]
    for field, unit, scale in (("sent", "kB", 1e3), ("seconds", "s", 1.0)):
        columns = {
            f"of {goal}": _over(found, partial(_cost, goal=goal, field=field)) / scale for goal in METHODS
        }
        parts.append(grid(f"{unit} to reach the last LL", METHODS, columns, "{:.3f}"))
    return "\n\n".join(parts)


def _over(
    found: Sequence[Mapping[str, Trace]], figure: Callable[[Mapping[str, Trace], str], float]
) -> FloatArray:
    """Medians over seeds of a figure of every method."""
    return np.array([np.median([figure(each, name) for each in found]) for name in METHODS])


def _cost(found: Mapping[str, Trace], name: str, *, goal: str, field: str) -> float:
    """Return what a method spent until it was as good as another at its end; infinite if it never was."""
    number = found[name].reached(found[goal].ll[-1])
    return float("inf") if number is None else float(getattr(found[name], field)[number])


def alike(n: int, d: int) -> dict[str, FloatArray]:
    """Rows of n sites of the same truth."""
    X = synthetic_rows(n * SITE_ROWS, d)
    return {name: X[i::n] for i, name in enumerate(numbered_names(n))}


def report_step(neighbours: Sequence[int], features: Sequence[int], repeats: int) -> str:
    """Milliseconds of a node's step, and for each received component against the fewest neighbours."""
    names = [f"{COMPONENTS * e} components, d={d}" for d in features for e in neighbours]
    lines = [_step(e, d, repeats) for d in features for e in neighbours]
    ms = {kind: 1e3 * np.array([line[kind] for line in lines]) for kind in lines[0]}
    each = {kind: (values.reshape(len(features), -1) / neighbours) for kind, values in ms.items()}
    ratios = {kind: (values / values[:, :1]).ravel() for kind, values in each.items()}
    title = "for each component, to the fewest"
    return f"{grid('ms of a step', names, ms, '{:.2f}')}\n\n{grid(title, names, ratios, '{:.2f}')}"


def _step(neighbours: int, d: int, repeats: int) -> dict[str, float]:
    lean = PoolSettings()
    (own, X), *others = alike(neighbours + 1, d).items()
    state = pool.init(X, COMPONENTS, lean, stream(0, own))
    received = {
        name: pool.message(pool.init(rows, COMPONENTS, lean, stream(0, name))) for name, rows in others
    }

    def step(settings: PoolSettings) -> object:
        return pool.step(state, X, received, settings, stream(1, own))

    plain = replace(lean, start_rounds=())
    return medians({"round": partial(step, plain), "with other starts": partial(step, lean)}, repeats)


def report_sites(sites: Sequence[int], repeats: int) -> str:
    """Milliseconds and kilobytes for each site, against the smallest network."""
    lines = [_sites(n, max(1, repeats * sites[0] // n)) for n in sites]
    names = [f"{n} sites" for n in sites]
    columns = {name: np.array([line[name] for line in lines]) for name in lines[0]}
    ratios = {name: values / values[0] for name, values in columns.items()}
    shown = grid("for each site", names, columns, "{:.2f}")
    return f"{shown}\n\n{grid('to the smallest', names, ratios, '{:.2f}')}"


def _sites(n: int, repeats: int) -> dict[str, float]:
    tables, settings = alike(n, 2), PoolSettings()
    graph = erdos_renyi(list(tables), min(1.0, (DEGREE - 2) / max(1, n - 1)), np.random.default_rng(n))
    draws = partial(stream, 0)
    begun = pool_network.init(tables, COMPONENTS, graph, draws, settings)

    def rounds(settings: PoolSettings) -> object:
        return pool_network.step(begun, tables, graph, draws, settings)

    runs: dict[str, Callable[[], object]] = {
        "ms local fit": partial(pool_network.init, tables, COMPONENTS, graph, draws, settings),
        "ms first round": partial(rounds, settings),
        "ms later round": partial(rounds, replace(settings, start_rounds=())),
    }
    times = {name: 1e3 * value / n for name, value in medians(runs, repeats).items()}
    return {**times, "kB at most": peak_bytes(rounds, settings) / n / 1e3}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="seeds of whole runs; 0 for none")
    parser.add_argument("--rounds", type=int, default=40, help="of GTV-MMD in a whole run")
    parser.add_argument("--neighbours", default="8,16,32", help="of a node's step; empty for none")
    parser.add_argument("--features", default="2,10", help="of its rows")
    parser.add_argument("--sites", default="15,150,1500", help="of networks; empty for none")
    parser.add_argument("--repeats", type=int, default=9, help="of every time of a step")
    given = parser.parse_args(arguments)
    neighbours, features, sites = (
        [int(part) for part in text.split(",") if part]
        for text in (given.neighbours, given.features, given.sites)
    )
    with threadpool_limits(1):
        if given.runs:
            print(report_runs(given.runs, given.rounds) + "\n", flush=True)
        if neighbours:
            print(report_step(neighbours, features, given.repeats) + "\n", flush=True)
        if sites:
            print(report_sites(sites, given.repeats) + "\n", flush=True)


if __name__ == "__main__":
    main()
