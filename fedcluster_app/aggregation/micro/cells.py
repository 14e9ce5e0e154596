"""Micro-clusters: what one site makes of its rows, and those of all sites together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedcluster_app.mixtures.kmeans import kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

LLOYD_STEPS = 30


@dataclass(frozen=True, eq=False)
class MicroClusters:
    """The micro-clusters of one site.

    Attributes
    ----------
    halves : (k,) int array
        Which of two random halves of the site's rows a micro-cluster is of: 0 or 1.
    counts : (k,) array
        Rows of each.
    means, variances : (k, q) arrays
        Of these rows, along every axis.
    """

    halves: IntArray
    counts: FloatArray
    means: FloatArray
    variances: FloatArray


@dataclass(frozen=True, eq=False)
class Cells:
    """The M micro-clusters of all sites.

    Attributes
    ----------
    sites : (M,) int array
        Number of the site, in order of name.
    halves, counts, means, variances
        As in :class:`MicroClusters`.
    n_sites : int
        Number of sites G, with or without micro-clusters.
    """

    sites: IntArray
    halves: IntArray
    counts: FloatArray
    means: FloatArray
    variances: FloatArray
    n_sites: int

    @property
    def n_cells(self) -> int:
        """Number of micro-clusters M."""
        return len(self.sites)

    @property
    def n_features(self) -> int:
        """Number of features q."""
        return int(self.means.shape[1])

    @property
    def n_rows(self) -> float:
        """Number of rows N in all of them."""
        return float(self.counts.sum())

    def take(self, which: BoolArray | IntArray) -> Cells:
        """Return some of the micro-clusters; the sites stay the same."""
        return Cells(
            self.sites[which],
            self.halves[which],
            self.counts[which],
            self.means[which],
            self.variances[which],
            self.n_sites,
        )

    def by_site(self, values: FloatArray) -> FloatArray:
        """Return the sums (G, ...) over the micro-clusters of every site of values (M, ...)."""
        total = np.zeros((self.n_sites, *values.shape[1:]))
        np.add.at(total, self.sites, values)
        return total

    def within_variance(self) -> FloatArray:
        """Return the mean variance (q,) of the rows of a micro-cluster."""
        within: FloatArray = self.counts @ self.variances / self.n_rows
        return within

    def total_covariance(self) -> FloatArray:
        """Return the covariance (q, q) of all rows, those of one micro-cluster taken as uncorrelated."""
        deviation = self.means - self.counts @ self.means / self.n_rows
        between = (deviation * self.counts[:, None]).T @ deviation / self.n_rows
        total: FloatArray = (between + between.T) / 2 + np.diag(self.within_variance())
        return total


def stack(uploads: Mapping[str, MicroClusters]) -> Cells:
    """Return the micro-clusters of all sites, in order of name whatever the order of the mapping.

    Raises
    ------
    ValueError
        If there is no site.
    """
    if not uploads:
        raise ValueError("stack: expected the micro-clusters of one site at least, got none")
    parts = [uploads[name] for name in sorted(uploads)]
    sites = np.repeat(np.arange(len(parts)), [len(part.counts) for part in parts])
    return Cells(sites=sites, n_sites=len(parts), **_joined(parts))


def halve(n: int, rng: np.random.Generator, *, min_rows: int) -> IntArray:
    """Deal n rows at random to two halves; return the half of every row, shape (n,).

    Rows that would make a half of fewer than ``min_rows`` all go to half 0.
    """
    halves = np.zeros(n, dtype=np.int64)
    if n // 2 >= min_rows:
        halves[rng.permutation(n)[: n // 2]] = 1
    return halves


def micro_clusters(
    X: FloatArray, halves: IntArray, rng: np.random.Generator, *, min_rows: int, rows_per_cell: int, most: int
) -> MicroClusters:
    """Summarise the rows of a site, each half by itself.

    Parameters
    ----------
    X : (n, q) array, n >= min_rows
    halves : (n,) int array
        From :func:`halve`.
    rng
        Draws the starts of k-means.
    min_rows : int, >= 1
        Least rows behind a micro-cluster.
    rows_per_cell : int, >= 1
        About this many rows make one.
    most : int, >= 1
        At most this many for each half.

    Notes
    -----
    **Source**: ours; "micro-cluster" as in BIRCH (Zhang, Ramakrishnan and Livny, 1996) and CluStream.
    One start and a few steps of k-means: the cells need not be good clusters, only small ones. Cost
    O(n k q) for each of at most 30 steps.
    """
    parts = []
    for half in np.unique(halves):
        rows = X[halves == half]
        k = int(np.clip(len(rows) // rows_per_cell, 1, most))
        found = lloyd(rows, kmeans_plus_plus(rows, k, rng), max_iter=LLOYD_STEPS)
        labels = _dissolve(rows, found.centers, found.labels, min_rows)
        parts.append(_summaries(rows, labels, int(half)))
    return MicroClusters(**_joined(parts))


def _dissolve(X: FloatArray, centers: FloatArray, labels: IntArray, min_rows: int) -> IntArray:
    """Give the rows of cells that are too small to the nearest of the others, the smallest cell first."""
    labels = labels.copy()
    sizes = np.bincount(labels, minlength=len(centers))
    alive = sizes > 0
    while alive.sum() > 1:
        smallest = int(np.argmin(np.where(alive, sizes, len(X) + 1)))
        if sizes[smallest] >= min_rows:
            break
        alive[smallest] = False
        moved = np.flatnonzero(labels == smallest)
        remaining = np.flatnonzero(alive)
        difference = X[moved, None] - centers[remaining]
        labels[moved] = remaining[np.square(difference).sum(axis=2).argmin(axis=1)]
        sizes = np.bincount(labels, minlength=len(centers))
    return np.unique(labels, return_inverse=True)[1]


def _summaries(X: FloatArray, labels: IntArray, half: int) -> MicroClusters:
    counts = np.bincount(labels).astype(np.float64)
    order = np.argsort(labels, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts[:-1]).astype(np.int64)])
    rows = X[order]
    means = np.add.reduceat(rows, first) / counts[:, None]
    deviation = rows - np.repeat(means, counts.astype(np.int64), axis=0)
    variances = np.add.reduceat(np.square(deviation), first) / counts[:, None]
    return MicroClusters(np.full(len(counts), half), counts, means, variances)


def _joined(parts: Sequence[MicroClusters]) -> dict[str, Any]:
    """Return the arrays of several sets of micro-clusters end to end, by name."""
    names = [item.name for item in fields(MicroClusters)]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
