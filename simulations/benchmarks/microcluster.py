"""What micro-clusters cost: the coordinator's time and memory, a site's time, and bytes.

Times are medians of processor time on one thread. The coordinator assembles micro-clusters of ten clear
clusters, in 16 features, 40 from every site, over the whole grid of K; its peer is one fit of scikit-learn's
``GaussianMixture`` (10 full covariances) to their means. A site's peers are scikit-learn's ``KMeans`` with as
many centres and one start: two fits to the same halves of the rows, and one fit to all of them. Bytes are
those of real messages, greeting included::

    python -m simulations.benchmarks.microcluster --cells 100,1000,10000 --rows 100,2000 --repeats 5
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro.cells import Cells, stack
from fedcluster_app.aggregation.microcluster import MicroClusters, Settings, halve, micro_clusters
from fedcluster_app.config import parse_run_config
from fedcluster_app.messages import FedGEMBalls, FedGEMEnd, FedGEMStart, Hello, MicroClustersSent, MicroSums
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.wire import encode
from simulations.benchmarks.measures import grid, medians, peak_bytes, seconds
from simulations.sources import numbered_names

CELLS = "100,300,1000,3000,4000,4001,10000,30000,100000"
FEATURES, CLUSTERS = 16, 10
#: Micro-clusters of one half of a site's rows, by default.
PER_HALF = 20
#: Growth is looked at from here on.
BASE = 10_000


def uploads(cells: int, seed: int = 0) -> dict[str, MicroClusters]:
    """Return what sites send of ten clear clusters, of which each holds five; ten rows a micro-cluster."""
    rng = np.random.default_rng(seed)
    centres, found = 3 * rng.normal(size=(CLUSTERS, FEATURES)), {}
    names = numbered_names(-(-cells // (2 * PER_HALF)))
    for name, places in zip(names, np.array_split(np.arange(cells), len(names)), strict=True):
        held = rng.choice(CLUSTERS, CLUSTERS // 2, replace=False)
        noise, shape = rng.normal(size=(len(places), FEATURES)), (len(places), FEATURES)
        means = centres[rng.choice(held, len(places))] + noise / np.sqrt(10)
        counts = np.full(len(places), 10.0)
        found[name] = MicroClusters(places % 2, counts, means, rng.chisquare(9, size=shape) / 10)
    return found


def assemble(sent: Mapping[str, MicroClusters]) -> object:
    """Find clusters and their number as the product does."""
    state = microcluster.step(microcluster.init(), sent)
    return microcluster.finish(state, Settings(), np.random.default_rng(0))


def peer_mixture(cells: Cells) -> object:
    """Fit scikit-learn's mixture to the means."""
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(CLUSTERS, random_state=0).fit(cells.means)


def report_server(sizes: Sequence[int]) -> str:
    """Seconds, growth and memory by number of micro-clusters."""
    lines = [_server(size) for size in sizes]
    rows, columns = [str(size) for size in sizes], {name: [each[name] for each in lines] for name in lines[0]}
    ours, peer = (np.array(columns[name]) for name in ("assembly", "peer"))
    per_cell = ours / np.array(sizes)
    base = per_cell[sizes.index(BASE)] if BASE in sizes else np.nan
    ratios = {"to peer": ours / peer, f"for each micro-cluster, to {BASE}": per_cell / base}
    title = "micro-clusters (s, MB)"
    return f"{grid(title, rows, columns, '{:.3f}')}\n\n{grid('ratio', rows, ratios, '{:.2f}')}"


def _server(size: int) -> dict[str, float]:
    sent = uploads(size)
    cells = stack(sent)
    return {
        "assembly": seconds(assemble, sent),
        "peer": seconds(peer_mixture, cells),
        "peak memory": peak_bytes(assemble, sent) / 1e6,
        "input": (cells.means.nbytes + cells.variances.nbytes) / 1e6,
    }


def synthetic_rows(n: int, d: int, seed: int = 0) -> FloatArray:
    """Return n rows of five round clusters in d dimensions, three spreads apart."""
    rng = np.random.default_rng(seed)
    return 3 * rng.normal(size=(5, d))[rng.integers(5, size=n)] + rng.normal(size=(n, d))


def peer_kmeans(X: FloatArray, halves: IntArray, k: Sequence[int]) -> None:
    """Fit scikit-learn's k-means to every half, or to all rows where there is one number of centres."""
    from sklearn.cluster import KMeans

    for half, centres in enumerate(k):
        KMeans(centres, n_init=1, random_state=half).fit(X[halves == half])


def report_site(rows: Sequence[int], features: Sequence[int], repeats: int) -> str:
    """Milliseconds at a site, and ratios to the peers."""
    lines = {f"{n}x{d}": _site(synthetic_rows(n, d), repeats) for n in rows for d in features}
    names, first = list(lines), next(iter(lines.values()))
    times = {name: np.array([line[name] for line in lines.values()]) for name in first}
    ratios = {f"to {name}": times["micro-clusters"] / times[name] for name in ("two k-means", "one k-means")}
    shown = {name: 1e3 * values for name, values in times.items()}
    return f"{grid('ms of a site', names, shown, '{:.2f}')}\n\n{grid('ratio', names, ratios, '{:.2f}')}"


def _site(X: FloatArray, repeats: int) -> dict[str, float]:
    defaults = parse_run_config({})
    least, cell_rows, most = defaults.min_count, defaults.micro.cell_rows, defaults.micro.max_cells
    halves = halve(len(X), np.random.default_rng(0), min_rows=least)
    k = [int(np.clip(np.sum(halves == half) // cell_rows, 1, most)) for half in (0, 1)]

    def ours() -> object:
        rng = np.random.default_rng(0)
        return micro_clusters(X, halves, rng, min_rows=least, rows_per_cell=cell_rows, most=most)

    runs = {
        "micro-clusters": ours,
        "two k-means": lambda: peer_kmeans(X, halves, k),
        "one k-means": lambda: peer_kmeans(X, np.zeros_like(halves), [sum(k)]),
    }
    return medians(runs, repeats)


def report_bytes(features: Sequence[int], k_site: int = 5, k_global: int = 10) -> str:
    """Bytes that a site sends: micro-clusters, alone and with rounds of federated EM, against FedGEM."""
    defaults = parse_run_config({})
    rounds, refined = defaults.fedgem.max_rounds, max(1, defaults.micro.refine_rounds)
    ours = np.array([_bytes([_hello(q, full=True), _cells(2 * PER_HALF, q)]) for q in features])
    theirs = np.array([_bytes([_hello(q, full=False), *_fedgem(k_site, q, rounds)]) for q in features])
    more = np.array([_bytes(refined * [_sums(k_global, q)]) for q in features])
    rows = [f"q = {q}" for q in features]
    title = f"bytes ({2 * PER_HALF} cells; K_g = {k_site}, {rounds} rounds; K = {k_global})"
    columns = {"micro-clusters": ours, "fedgem": theirs, f"{refined} rounds of federated EM": more}
    ratio = {"micro-clusters / fedgem": ours / theirs, "with rounds": (ours + more) / theirs}
    return f"{grid(title, rows, columns, '{:.0f}')}\n\n{grid('ratio', rows, ratio, '{:.2f}')}"


def _bytes(messages: Sequence[Any]) -> float:
    return float(sum(encode(message).nbytes for message in messages))


def _hello(q: int, *, full: bool) -> Hello:
    columns, triangle = tuple(f"x{i}" for i in range(q)), np.ones(q * (q + 1) // 2)
    moments = (None, triangle) if full else (np.ones(q), None)
    return Hello("site-1", "0.1.0", 500, columns, 0, False, np.ones(q), *moments)


def _cells(k: int, q: int) -> MicroClustersSent:
    return MicroClustersSent(np.zeros(k, int), np.ones(k, int), np.ones((k, q)), np.ones((k, q)), 0)


def _fedgem(k: int, q: int, rounds: int) -> list[Any]:
    start = FedGEMStart(k, ("alpha=1.5", "min_mass=5"), 0.5, 1.0, 1.0, np.ones((k, q)), np.ones(k))
    end = FedGEMEnd(np.ones((k, q)), np.ones(k, int), np.ones((k, q)), np.ones(k))
    return [start, *rounds * [FedGEMBalls(np.ones((k, q)), np.ones(k))], end]


def _sums(k: int, q: int) -> MicroSums:
    return MicroSums(np.ones(k), np.ones((k, q)), np.ones((k, q * (q + 1) // 2)), np.ones(1), np.ones(1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", default=CELLS, help="numbers of micro-clusters; empty for none")
    parser.add_argument("--rows", default="100,500,2000,20000", help="of a site; empty for none")
    parser.add_argument("--features", default="8,32", help="of these rows")
    parser.add_argument("--sent", default="4,10,32", help="features of what is sent; empty for none")
    parser.add_argument("--repeats", type=int, default=9, help="of a site's runs")
    given = parser.parse_args(arguments)
    cells, rows, features, sent = (
        [int(part) for part in text.split(",") if part]
        for text in (given.cells, given.rows, given.features, given.sent)
    )
    with threadpool_limits(1):
        if cells:
            assemble(uploads(60))
            peer_mixture(stack(uploads(60)))
            print(report_server(cells), flush=True)
        if rows:
            report_site(rows[:1], features[:1], 1)
            print("\n" + report_site(rows, features, given.repeats), flush=True)
    if sent:
        print("\n" + report_bytes(sent))


if __name__ == "__main__":
    main()
