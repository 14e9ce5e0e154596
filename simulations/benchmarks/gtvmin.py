"""What coupled personal mixtures cost: a gradient step, an MMD pull, a round, and a whole run.

Times are medians of processor time on one thread, and every ratio is of times from the same run, which take
turns. A gradient step of a site alone, projection included, has as its peer one iteration of scikit-learn's
``GaussianMixture`` (full covariances) on the same rows from the same parameters. The pull of a site by its
neighbours has the eigendecompositions that it needs, one for each pair of components, the site's own pairs
counted once. A round is taken on random networks of growing size and equal mean degree. A whole run on the
paper's block network (15 sites, 40 rounds of 5 steps) has one EM fit of scikit-learn at each of the sites::

    python -m simulations.benchmarks.gtvmin --rows 50,500,5000 --features 2,10 --repeats 9
    python -m simulations.benchmarks.gtvmin --rows "" --pulls "" --sites 15,150,1500 --runs 0
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.gtvmin import (
    Bounds,
    erdos_renyi,
    kmeans_start,
    mmd,
    network,
    start_from_labels,
)
from fedcluster_app.gtvmin.blocks import Blocks, blocks, moved
from fedcluster_app.gtvmin.likelihood import fit_of
from fedcluster_app.gtvmin.projection import project
from fedcluster_app.mixtures.types import FloatArray
from simulations.benchmarks.measures import grid, medians
from simulations.benchmarks.microcluster import synthetic_rows
from simulations.experiments.personal import couple, paper, starts
from simulations.experiments.personal_data import COUPLED, READINGS, SCENARIOS, draw, peers
from simulations.sources import numbered_names

#: Components of what is fitted; those of :func:`synthetic_rows`.
COMPONENTS, NEIGHBOURS, DEGREE = 5, 8, 8
#: Steps that are timed together, as one alone is close to the resolution of the clock.
STEPS = 40
BLOCK_NETWORK = "sbm 0.2"


def report_step(rows: Sequence[int], features: Sequence[int], repeats: int) -> str:
    """Microseconds of a gradient step and of an EM iteration, and their ratio."""
    lines = {f"{n}x{d}": _step(synthetic_rows(n, d), repeats) for n in rows for d in features}
    columns = {name: [line[name] for line in lines.values()] for name in ("gradient step", "EM iteration")}
    ratio = np.array(columns["gradient step"]) / np.array(columns["EM iteration"])
    shown, names = {"step to EM iteration": ratio}, list(lines)
    title = f"µs, {COMPONENTS} components"
    return f"{grid(title, names, columns, '{:.0f}')}\n\n{grid('ratio', names, shown, '{:.2f}')}"


def _step(X: FloatArray, repeats: int) -> dict[str, float]:
    bounds = Bounds()
    start = blocks(kmeans_start(X, COMPONENTS, np.random.default_rng(0), bounds, n_init=1).mixture)
    rows, weights = np.ascontiguousarray(X.T), np.full(len(X), 1.0 / len(X))

    def ours() -> None:
        theta = start
        for _ in range(STEPS):
            theta = project(moved(theta, fit_of(theta, rows, weights).gradient, -0.02), bounds)

    times = medians({"ours": ours, "many": _em(X, start, STEPS + 1), "one": _em(X, start, 1)}, repeats)
    per_step = 1e6 / STEPS
    # Two fits differ by their iterations alone: checks, set-up and the last E step cancel.
    iterations = times["many"] - times["one"]
    return {"gradient step": per_step * times["ours"], "EM iteration": per_step * iterations}


def _em(X: FloatArray, start: Blocks, iterations: int) -> Callable[[], object]:
    """Return the fit of scikit-learn's mixture from given parameters, with a fixed number of iterations."""
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(
        len(start.weights),
        tol=0.0,
        max_iter=iterations,
        weights_init=start.weights,
        means_init=start.means,
        precisions_init=np.linalg.inv(start.covariances),
    )
    return partial(model.fit, X)


def report_pull(sizes: Sequence[tuple[int, int]], repeats: int) -> str:
    """Milliseconds of the MMD pull of eight neighbours and of its factorisations, and their ratio."""
    rows, lines = [f"k={k} d={d}" for k, d in sizes], [_pull(k, d, repeats) for k, d in sizes]
    columns = {name: np.array([line[name] for line in lines]) for name in lines[0]}
    ratios = {f"pull to {name}": columns["pull"] / columns[name] for name in list(columns)[1:]}
    shown = {name: 1e3 * values for name, values in columns.items()}
    title = f"ms, {NEIGHBOURS} neighbours"
    return f"{grid(title, rows, shown, '{:.2f}')}\n\n{grid('ratio', rows, ratios, '{:.2f}')}"


def _pull(k: int, d: int, repeats: int) -> dict[str, float]:
    own, *others = (_fit(k, d, seed) for seed in range(NEIGHBOURS + 1))
    union = mmd.freeze(others, [1.0] * NEIGHBOURS)
    sums = [(own.covariances[:, None] + own.covariances)[np.triu_indices(k)]]
    sums.append((own.covariances[:, None] + union.mixture.covariances).reshape(-1, d, d))
    needed = np.concatenate(sums)
    shifted = needed + np.square(mmd.BANDWIDTHS)[:, None, None, None] * np.eye(d)
    runs: dict[str, Callable[[], object]] = {
        "pull": partial(mmd.pull, union, own),
        "eigendecompositions": partial(np.linalg.eigh, needed),
        "four Cholesky factors": partial(np.linalg.cholesky, shifted),
        "four inverses": partial(np.linalg.inv, shifted),
    }
    return medians(runs, repeats)


def _fit(k: int, d: int, seed: int) -> Blocks:
    """Return a site's components, as k-means of 3 d rows each would make them."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), 3 * d)
    X = (3 * rng.normal(size=(k, d)))[labels] + rng.normal(size=(len(labels), d))
    return blocks(start_from_labels(X, labels, Bounds(weight_floor=0.5 / k)).mixture)


def report_rounds(sites: Sequence[int], repeats: int) -> str:
    """Milliseconds of a round and microseconds for each edge, against the smallest network."""
    scenario, edges, lines = SCENARIOS[BLOCK_NETWORK], [], []
    for n in sites:
        names, rng = numbered_names(n), np.random.default_rng(n)
        graph = erdos_renyi(names, min(1.0, (DEGREE - 2) / max(1, n - 1)), rng)
        tables = {name: synthetic_rows(50, 2, seed) for seed, name in enumerate(names)}
        begun = {
            name: kmeans_start(X, COMPONENTS, rng, Bounds(), n_init=1).mixture for name, X in tables.items()
        }
        edges.append(len(graph.edges))
        runs: dict[str, Callable[[], object]] = {}
        for name in COUPLED:
            settings = paper(scenario, name, {})
            state = network.init(begun, graph, settings)
            runs[name] = partial(network.step, state, tables, graph, settings, _draws)
        lines.append(medians(runs, repeats))
    names = [f"{n} sites, {e} edges" for n, e in zip(sites, edges, strict=True)]
    ms = {name: np.array([1e3 * line[name] for line in lines]) for name in COUPLED}
    for_edge = {name: values / np.array(edges) for name, values in ms.items()}
    ratios = {name: values / values[0] for name, values in for_edge.items()}
    parts = [grid("ms of a round", names, ms, "{:.1f}")]
    parts.append(grid("µs for each edge", names, {k: 1e3 * v for k, v in for_edge.items()}, "{:.0f}"))
    parts.append(grid("for each edge, to the smallest", names, ratios, "{:.2f}"))
    return "\n\n".join(parts)


def _draws(number: int, receiver: str, sender: str) -> np.random.Generator:
    return np.random.default_rng([number, *receiver.encode(), *sender.encode()])


def report_runs(repeats: int, rounds: int) -> str:
    """Seconds of a whole run on the block network, starts apart, and ratios to one EM fit at each site."""
    scenario, reading = SCENARIOS[BLOCK_NETWORK], READINGS["A"]
    drawn = draw(scenario, reading, 0)
    settings = {name: paper(scenario, name, {}) for name in COUPLED}
    begun = starts(drawn, scenario.k, reading, settings["mmd"], 0)
    runs: dict[str, Callable[[], object]] = {
        name: partial(couple, drawn, begun, settings[name], rounds, 0) for name in COUPLED
    }
    runs["k-means starts"] = partial(starts, drawn, scenario.k, reading, settings["mmd"], 0)
    runs["EM fits"] = partial(peers, drawn, scenario, 0, pooled=False, n_init=1)
    times = medians(runs, repeats)
    columns = {"s": list(times.values()), "to EM fits": [each / times["EM fits"] for each in times.values()]}
    return grid(f"{scenario.sites} sites, {rounds} rounds", list(times), columns, "{:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="50,500,5000", help="of a site's step; empty for none")
    parser.add_argument("--features", default="2,10", help="of these rows")
    parser.add_argument("--pulls", default="10x10,5x10,10x20", help="components x features; empty for none")
    parser.add_argument("--sites", default="15,50,150,500,1500", help="of a round; empty for none")
    parser.add_argument("--runs", type=int, default=40, help="rounds of a whole run; 0 for none")
    parser.add_argument("--repeats", type=int, default=9, help="of every time")
    given = parser.parse_args(arguments)
    rows, features, sites = (
        [int(part) for part in text.split(",") if part] for text in (given.rows, given.features, given.sites)
    )
    pulls = [(int(k), int(d)) for k, d in (size.split("x") for size in given.pulls.split(",") if size)]
    parts: list[Callable[[], str]] = []
    if rows:
        parts.append(lambda: report_step(rows, features, given.repeats))
    if pulls:
        parts.append(lambda: report_pull(pulls, given.repeats))
    if sites:
        parts.append(lambda: report_rounds(sites, given.repeats))
    if given.runs:
        parts.append(lambda: report_runs(given.repeats, given.runs))
    with threadpool_limits(1), warnings.catch_warnings():
        # A fixed number of iterations is what is asked for.
        warnings.filterwarnings("ignore", message=".*did not converge.*")
        for part in parts:
            print(part() + "\n", flush=True)


if __name__ == "__main__":
    main()
