"""Who holds which rows: ways of dealing one labelled table to many sites.

Pure functions of arrays and a Generator. A part is a sorted array of row numbers; a site may get none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Attempts at drawing class sets that cover every class before the ranges are called hopeless.
MAX_DRAWS = 10_000


@dataclass(frozen=True, eq=False)
class Regime:
    """A partition with held-out rows, after the experiments of the ASM paper.

    Attributes
    ----------
    train, test : list of g sorted int64 arrays
        Row numbers of each site.
    classes : list of g tuples of int
        The sorted labels each site was given to hold, K_g of them.
    """

    train: list[IntArray]
    test: list[IntArray]
    classes: list[tuple[int, ...]]


def iid(n: int, sites: int, rng: np.random.Generator) -> list[IntArray]:
    """Deal n rows at random to sites of equal size, up to one row."""
    return [np.sort(part) for part in np.array_split(rng.permutation(n), sites)]


def by_site(sites: IntArray) -> list[IntArray]:
    """Return the rows of each distinct number in `sites` (n,), in the order of the numbers."""
    return [np.flatnonzero(sites == number) for number in np.unique(sites)]


def dirichlet(labels: IntArray, sites: int, concentration: float, rng: np.random.Generator) -> list[IntArray]:
    """Deal each class by its own Dirichlet proportions over the sites; every row is used exactly once.

    Parameters
    ----------
    labels : (n,) int
        Class of each row.
    sites : int
        Number of sites g.
    concentration : float
        Above 0; small values give each class to few sites, large ones approach equal shares.
    rng : Generator
        Source of randomness.

    Returns
    -------
    list of g sorted index arrays
    """
    shares: list[list[IntArray]] = [[] for _ in range(sites)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        edges = np.cumsum(rng.dirichlet(np.full(sites, concentration)))[:-1]
        for share, part in zip(
            shares, np.split(rows, np.rint(edges * len(rows)).astype(np.int64)), strict=True
        ):
            share.append(part)
    return [_gathered(share) for share in shares]


def stratified_split(labels: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return sorted (train, test) row numbers: a fifth of each class, to the nearest row, is test."""
    train, test = [], []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cut = (len(rows) + 2) // 5
        test.append(rows[:cut])
        train.append(rows[cut:])
    return _gathered(train), _gathered(test)


def regime_a(labels: IntArray, sites: int, rng: np.random.Generator, *, k_min: int, k_max: int) -> Regime:
    """Every row is used, and a site grows with the number of classes it holds.

    After a stratified 80/20 split each site draws K_g uniformly from k_min..k_max, then K_g classes; this
    is redrawn until every class is held somewhere. The rows of a class are dealt evenly to its holders,
    train and test alike.

    Parameters
    ----------
    labels : (n,) int
        Class of each row.
    sites : int
        Number of sites g.
    rng : Generator
        Source of randomness.
    k_min, k_max : int
        Range of K_g, within 1..number of classes.

    Raises
    ------
    DataError
        The range does not fit the classes, or the sites are too few to hold them all.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, regime A.
    """
    train, test = stratified_split(labels, rng)
    classes = _class_sets(np.unique(labels), sites, rng, k_min, k_max)
    return Regime(
        _dealt_evenly(train, labels[train], classes, rng),
        _dealt_evenly(test, labels[test], classes, rng),
        classes,
    )


def regime_b(labels: IntArray, sites: int, rng: np.random.Generator, *, k_min: int, k_max: int) -> Regime:
    """Site sizes do not depend on the number of classes held, and sites may share rows.

    The class sets are those of regime A at the same seed. A site's size is U(0.5, 2) times the median
    size of regime A (train and test by the same factor), split evenly over its classes and drawn without
    replacement within the site; a class with too few rows gives all it has. Parameters and errors as
    `regime_a`.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, regime B.
    """
    a = regime_a(labels, sites, rng, k_min=k_min, k_max=k_max)
    factors = rng.uniform(0.5, 2.0, size=sites)
    train, test = (
        _drawn(
            np.sort(np.concatenate(parts)),
            labels,
            a.classes,
            factors * np.median([len(p) for p in parts]),
            rng,
        )
        for parts in (a.train, a.test)
    )
    return Regime(train, test, a.classes)


def _class_sets(
    classes: IntArray, sites: int, rng: np.random.Generator, k_min: int, k_max: int
) -> list[tuple[int, ...]]:
    """Draw each site's class set until all classes are covered."""
    if not 1 <= k_min <= k_max <= len(classes):
        raise DataError(
            f"partition: a site cannot hold {k_min} to {k_max} of {len(classes)} classes; "
            f"expected 1 <= k-min <= k-max <= {len(classes)}"
        )
    if sites * k_max >= len(classes):
        for _ in range(MAX_DRAWS):
            sizes = rng.integers(k_min, k_max, size=sites, endpoint=True)
            drawn = [np.sort(rng.choice(classes, size=k, replace=False)) for k in sizes]
            if len(np.unique(np.concatenate(drawn))) == len(classes):
                return [tuple(map(int, held)) for held in drawn]
    raise DataError(
        f"partition: {sites} sites with {k_min} to {k_max} classes each do not cover {len(classes)} classes; "
        "use more sites or a larger k-max"
    )


def _dealt_evenly(
    rows: IntArray, labels: IntArray, classes: list[tuple[int, ...]], rng: np.random.Generator
) -> list[IntArray]:
    """Deal `rows` (m,), of classes `labels` (m,), evenly to the holders of each class."""
    shares: list[list[IntArray]] = [[] for _ in classes]
    for label in np.unique(labels):
        holders = [g for g, held in enumerate(classes) if label in held]
        parts = np.array_split(rng.permutation(rows[labels == label]), len(holders))
        for g, part in zip(holders, parts, strict=True):
            shares[g].append(part)
    return [_gathered(share) for share in shares]


def _drawn(
    rows: IntArray,
    labels: IntArray,
    classes: list[tuple[int, ...]],
    sizes: FloatArray,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Draw sizes (g,) of `rows` for the sites, evenly over their classes; `labels` (n,) are all labels."""
    pools = {int(label): rows[labels[rows] == label] for label in np.unique(labels)}
    parts = []
    for held, size in zip(classes, sizes, strict=True):
        whole, rest = divmod(round(float(size)), len(held))
        share = [
            rng.choice(pools[label], size=min(whole + (i < rest), len(pools[label])), replace=False)
            for i, label in enumerate(held)
        ]
        parts.append(_gathered(share))
    return parts


def _gathered(parts: list[IntArray]) -> IntArray:
    """Return the rows of all parts in one sorted array, possibly empty."""
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))
