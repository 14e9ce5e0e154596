"""Federations whose number of classes is known, as micro-clusters, to measure rules for that number on.

Some are for development: rules and settings may be chosen by looking at them. The others are held back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells, halve, micro_clusters, stack
from fedcluster_app.data.scaling import agree_scaling, table_moments
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.statistics import merge_all
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from simulations.experiments.sets import SETS, Dealt, LabelledSet, deal
from simulations.partitions import regime_a
from simulations.sources import numbered_names

MIN_ROWS, ROWS_PER_CELL, MOST_CELLS = 5, 10, 20


@dataclass(frozen=True)
class Blobs:
    """Clusters of unit variance around random centres, dealt to sites by regime A.

    Attributes
    ----------
    shape : str
        "round", "elongated" (standard deviations of 0.4 to 2, random axes), "t" (four degrees of freedom) or
        "uniform" (a cube).
    k, d, sites : int
        Clusters, features, sites.
    k_min, k_max : int
        Range of the number of clusters at a site.
    rows : tuple of int
        Range of the size of a cluster, log-uniform.
    apart : float
        Distance of the nearest two centres.
    """

    shape: str
    k: int
    d: int
    sites: int
    k_min: int
    k_max: int
    rows: tuple[int, int] = (200, 400)
    apart: float = 5.0


DEVELOPMENT: dict[str, Blobs | LabelledSet] = {
    **{
        name: SETS[name]
        for name in (
            "digits",
            "waveform",
            "cwru",
            "tep",
            "penbased",
            "frogA",
            "abalone",
            "penguins",
            "mnist",
        )
    },
    "easy": Blobs("round", 5, 5, 6, 2, 5),
    "rich": Blobs("round", 8, 5, 12, 3, 6, apart=4.0),
    "elongated": Blobs("elongated", 6, 6, 8, 2, 4),
    "unequal": Blobs("round", 8, 6, 10, 2, 6, rows=(40, 1200), apart=4.5),
    "many": Blobs("round", 18, 8, 15, 3, 9, apart=4.5),
    "heavy-tails": Blobs("t", 5, 5, 8, 2, 4, apart=7.0),
    "one-round": Blobs("round", 1, 8, 6, 1, 1, rows=(1500, 1500)),
    "one-elongated": Blobs("elongated", 1, 8, 6, 1, 1, rows=(1500, 1500)),
    "one-uniform": Blobs("uniform", 1, 3, 6, 1, 1, rows=(1500, 1500)),
}
HELD_BACK: dict[str, Blobs | LabelledSet] = {
    **{name: SETS[name] for name in ("frogB", "fmnist", "mnist-vae", "wholesale", "cmapss")},
    "many-elongated": Blobs("elongated", 22, 10, 20, 3, 10, rows=(100, 600)),
    "heavy-unequal": Blobs("t", 7, 8, 10, 2, 5, rows=(80, 1200), apart=7.0),
    "one-flat": Blobs("elongated", 1, 5, 8, 1, 1, rows=(2000, 2000)),
}


def federation(source: Blobs | LabelledSet, seed: int, name: str, folder: str) -> tuple[Cells, Dealt]:
    """Return the micro-clusters of the sites' training rows, and all rows in the common scaling."""
    rng = stream(seed, "experiment", name)
    if isinstance(source, Blobs):
        dealt, method, pca = _blobs(source, rng), "standard", 0
    else:
        dealt, method, pca = deal(source, folder, "a", rng), source.scaling, source.pca
    train = {site: rows for site, rows in dealt.train.items() if len(rows) >= MIN_ROWS}
    moments = merge_all([table_moments(dealt.X[rows], full=True) for rows in train.values()])
    columns = [str(i) for i in range(dealt.X.shape[1])]
    X = agree_scaling(moments, columns, method=method, pca=pca, share=0.95)[0].apply(dealt.X)
    uploads = {}
    for site, rows in train.items():
        own = stream(seed, site, "micro")
        halves = halve(len(rows), own, min_rows=MIN_ROWS)
        uploads[site] = micro_clusters(
            X[rows], halves, own, min_rows=MIN_ROWS, rows_per_cell=ROWS_PER_CELL, most=MOST_CELLS
        )
    test = {site: dealt.test[site] for site in train}
    return stack(uploads), replace(dealt, X=X, train=train, test=test)


def _blobs(source: Blobs, rng: np.random.Generator) -> Dealt:
    k, d = source.k, source.d
    centres = rng.normal(size=(k, d))
    if k > 1:
        centres *= source.apart / np.sqrt(squared_distances(centres, centres)[np.triu_indices(k, 1)].min())
    least, most = source.rows
    sizes = np.exp(rng.uniform(np.log(least), np.log(most), size=k)).round().astype(np.int64)
    X = np.concatenate(
        [centre + _cluster(source.shape, n, d, rng) for centre, n in zip(centres, sizes, strict=True)]
    )
    y = np.repeat(np.arange(k), sizes)
    parts = regime_a(y, source.sites, rng, k_min=source.k_min, k_max=source.k_max)
    names = numbered_names(source.sites)
    return Dealt(X, y, dict(zip(names, parts.train, strict=True)), dict(zip(names, parts.test, strict=True)))


def _cluster(shape: str, n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Rows (n, d) of mean variance about 1 around the origin."""
    if shape == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size=(n, d))
    rows = rng.normal(size=(n, d))
    if shape == "t":
        # A t with four degrees of freedom has variance 2.
        rows /= np.sqrt(2 * rng.chisquare(4, size=(n, 1)) / 4)
    if shape == "elongated":
        scales = np.geomspace(0.4, 2.0, d)
        rows = rows * (scales / np.sqrt(np.square(scales).mean())) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rows
