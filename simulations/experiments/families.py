"""Families of clients whose number of classes is known, to measure errors of local counts on.

Some families are for development: methods and settings may be chosen by looking at them. The others are held
back: a method is measured on them when it is finished. The split is fixed here, once, before any result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fedcluster_app.data.scaling import agree_scaling, table_moments
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.statistics import merge_all
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.streams import stream
from simulations.experiments.sets import SETS, LabelledSet, deal

#: A client has at most this many rows; the rest of a larger one are left out at random.
MOST_CLIENT_ROWS = 900


@dataclass(frozen=True)
class Synthetic:
    """Clients drawn from Gaussian-like clusters of mean variance 1 around random centres.

    Attributes
    ----------
    shape : str
        Of the clusters: "round", "elongated" (random orthogonal axes, anisotropy 2 to 4), "t" (four degrees
        of freedom) or "uniform" (a cube).
    d : int
        Number of features.
    k_min, k_max : int
        Range of the number of clusters.
    largest : int
        Sizes are uniform on 40 to 120 rows; if this is above 120, log-uniform on 20 to this.
    """

    shape: str
    d: int
    k_min: int = 2
    k_max: int = 8
    largest: int = 120


@dataclass(frozen=True)
class Family:
    """Where clients come from.

    Attributes
    ----------
    source : Synthetic or LabelledSet
    held_back : bool
        Not to be looked at in development.
    single : bool
        All its clients hold one class: the mean error over families leaves it out, as its error has another
        scale.
    """

    source: Synthetic | LabelledSet
    held_back: bool = False
    single: bool = field(default=False)


FAMILIES = {
    "round-8": Family(Synthetic("round", 8)),
    "elongated-16": Family(Synthetic("elongated", 16)),
    "t-8": Family(Synthetic("t", 8)),
    "unequal-8": Family(Synthetic("round", 8, largest=400)),
    "many-16": Family(Synthetic("round", 16, 8, 14)),
    **{
        name: Family(SETS[name]) for name in ("digits", "waveform", "frogA", "penbased", "mnist", "mnist-vae")
    },
    "one-round-8": Family(Synthetic("round", 8, 1, 1, 800), single=True),
    "one-elongated-16": Family(Synthetic("elongated", 16, 1, 1, 800), single=True),
    "one-t-8": Family(Synthetic("t", 8, 1, 1, 800), single=True),
    "round-4": Family(Synthetic("round", 4), held_back=True),
    "round-64": Family(Synthetic("round", 64), held_back=True),
    "elongated-8": Family(Synthetic("elongated", 8), held_back=True),
    "t-16": Family(Synthetic("t", 16), held_back=True),
    "unequal-32": Family(Synthetic("elongated", 32, largest=400), held_back=True),
    "many-4": Family(Synthetic("round", 4, 8, 14), held_back=True),
    **{name: Family(SETS[name], held_back=True) for name in ("abalone", "cwru", "tep", "fmnist", "penguins")},
    "emnist": Family(
        LabelledSet("emnist_balanced_9424_features.npz", 25, 2, 8, features="hog_pca"), held_back=True
    ),
    "one-round-32": Family(Synthetic("round", 32, 1, 1, 800), held_back=True, single=True),
    "one-uniform-4": Family(Synthetic("uniform", 4, 1, 1, 800), held_back=True, single=True),
    "one-t-16": Family(Synthetic("t", 16, 1, 1, 800), held_back=True, single=True),
}


@dataclass(frozen=True, eq=False)
class Client:
    """One site's rows X (n, d) with their classes y (n,)."""

    family: str
    seed: int
    number: int
    X: FloatArray
    y: IntArray

    @property
    def k(self) -> int:
        """Number of classes that the client holds."""
        return len(np.unique(self.y))


def clients(name: str, seed: int, count: int, folder: str) -> Iterator[Client]:
    """At most `count` clients of a family; labelled sets are dealt by regime A from their folder.

    Sets are brought to the scale that their sites would agree on. Rows are in random order.
    """
    rng = stream(seed, "count errors", name)
    source = FAMILIES[name].source
    tables = _synthetic(source, rng) if isinstance(source, Synthetic) else _dealt(source, folder, rng)
    for number, (X, y) in zip(range(count), tables, strict=False):
        kept = rng.permutation(len(X))[:MOST_CLIENT_ROWS]
        yield Client(name, seed, number, X[kept], y[kept])


def _dealt(
    source: LabelledSet, folder: str, rng: np.random.Generator
) -> Iterator[tuple[FloatArray, IntArray]]:
    dealt = deal(source, folder, "a", rng)
    parts = [rows for rows in dealt.train.values() if len(rows)]
    moments = merge_all([table_moments(dealt.X[rows], full=source.pca > 0) for rows in parts])
    columns = [str(i) for i in range(dealt.X.shape[1])]
    scaling, _ = agree_scaling(moments, columns, method=source.scaling, pca=source.pca)
    return ((scaling.apply(dealt.X[rows]), dealt.y[rows]) for rows in parts)


def _synthetic(source: Synthetic, rng: np.random.Generator) -> Iterator[tuple[FloatArray, IntArray]]:
    while True:
        k = int(rng.integers(source.k_min, source.k_max, endpoint=True))
        if source.largest > 120:
            sizes = np.exp(rng.uniform(np.log(20 if k > 1 else 100), np.log(source.largest), k)).astype(
                np.int64
            )
        else:
            sizes = rng.integers(40, 120, size=k, endpoint=True)
        # Far enough apart to be told apart by someone who knows the shape, near enough to be a task.
        centres = _centres(
            k, source.d, rng.uniform(4.5, 7.0) * (1.4 if source.shape == "elongated" else 1), rng
        )
        rows = [centre + _cluster(source, int(n), rng) for centre, n in zip(centres, sizes, strict=True)]
        yield np.concatenate(rows), np.repeat(np.arange(k), sizes)


def _centres(k: int, d: int, apart: float, rng: np.random.Generator) -> FloatArray:
    """Centres (k, d) at random, scaled so that the nearest two are `apart` from each other."""
    centres = rng.normal(size=(k, d))
    if k > 1:
        distances = np.sqrt(squared_distances(centres, centres)[np.triu_indices(k, 1)])
        centres *= apart / distances.min()
    return centres


def _cluster(source: Synthetic, n: int, rng: np.random.Generator) -> FloatArray:
    """Rows (n, d) of mean variance about 1 around the origin."""
    d = source.d
    if source.shape == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size=(n, d))
    rows = rng.normal(size=(n, d))
    if source.shape == "t":
        # A t with four degrees of freedom has variance 2.
        rows /= np.sqrt(2 * rng.chisquare(4, size=(n, 1)) / 4)
    if source.shape == "elongated":
        r = rng.uniform(2, 4)
        scales = np.full(d, np.sqrt((d - r) / (d - 1)))
        scales[0] = np.sqrt(r)
        rows = rows * scales @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rows
