"""Clusters for every K of a grid, and what speaks for each K: likelihood, BIC, held-out rows, separation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import (
    MicroFit,
    Shrinkage,
    by_site,
    fit,
    from_partition,
    maximise,
    moments,
)
from fedcluster_app.aggregation.micro.merge import merge
from fedcluster_app.aggregation.micro.ward import Dendrogram, merge_list, supercells
from fedcluster_app.mixtures.types import FloatArray, IntArray

# More cells than these are first joined to as many super-cells as the second number says: Ward is quadratic.
MANY, SUPERCELLS = 4000, 1000
# Weights under this are not counted as parameters: the site lacks the cluster.
ABSENT = 1e-3
HALF_STEPS = 12


@dataclass(frozen=True, eq=False)
class Starts:
    """Where fits to a set of cells start: cuts of Ward trees, on plain and on whitened means.

    Attributes
    ----------
    groups : (M,) int array
        Super-cell of every cell; without super-cells its own number.
    trees : tuple of Dendrogram
    """

    groups: IntArray
    trees: tuple[Dendrogram, ...]

    def cuts(self, k: int) -> list[IntArray]:
        """Return the partitions (M,) into k groups."""
        return [tree.cut(k)[self.groups] for tree in self.trees]


@dataclass(frozen=True, eq=False)
class Path:
    """What speaks for each number of clusters.

    Attributes
    ----------
    k : (m,) int array
        The grid, ascending from 1.
    log_likelihood, bic : (m,) arrays
        Of the fit to all cells; a low BIC is good.
    held_out : (m, G) array
        Log-likelihood of each half's cells under the fit to the other half, by site.
    separation : (m,) array
        Mean over clusters of (width + width of the neighbour) / distance, at the worst neighbour; low is
        good, NaN for K = 1.
    effective : (m, G) array
        Clusters that each site holds: exponential of the entropy of its weights.
    fits : mapping of K to MicroFit
    """

    k: IntArray
    log_likelihood: FloatArray
    bic: FloatArray
    held_out: FloatArray
    separation: FloatArray
    effective: FloatArray
    fits: Mapping[int, MicroFit]


def whitening(cells: Cells) -> FloatArray:
    """Return the scale (q,) that brings the variance within cells to 1 along every axis.

    Axes of hardly any variance are not blown up: none counts for less than a thousandth of the largest.
    """
    within = cells.within_variance()
    largest = within.max()
    if largest <= 0:
        return np.ones_like(within)
    scale: FloatArray = 1.0 / np.sqrt(np.maximum(within, 1e-3 * largest))
    return scale


def starts(cells: Cells, scales: tuple[FloatArray, ...], rng: np.random.Generator) -> Starts:
    """Return the Ward trees of the cells' means times each of the scales (q,)."""
    if cells.n_cells <= MANY:
        groups, means, masses = np.arange(cells.n_cells), cells.means, cells.counts
    else:
        groups = supercells(cells, SUPERCELLS, rng)
        masses = np.bincount(groups, weights=cells.counts).astype(np.float64)
        columns = (cells.counts[:, None] * cells.means).T
        means = (
            np.stack([np.bincount(groups, weights=column) for column in columns], axis=1) / masses[:, None]
        )
    return Starts(groups, tuple(merge_list(means * scale, masses) for scale in scales))


def grid(most: int) -> IntArray:
    """Return the numbers of clusters that are tried: 1, 2, 3, ..., then in steps of 12 %."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * 1.12))))
    return np.array(found)


def largest_k(cells: Cells, counts: Sequence[int] = ()) -> int:
    """Return the largest K that is tried.

    Twice the largest local count, between 30 and 80 (30 without counts), and never more than the cells or
    the rows can carry.
    """
    return min(int(np.clip(2 * max(counts, default=0), 30, 80)), carried_k(cells))


def carried_k(cells: Cells) -> int:
    """Return the largest K that the cells of the smaller half, and the rows, can carry."""
    smaller_half = min(int((cells.halves == half).sum()) for half in (0, 1))
    return max(1, min(int(0.6 * smaller_half) + 1, int(cells.n_rows / (cells.n_features + 2))))


def fit_k(
    cells: Cells,
    where: Starts,
    k: int,
    shrinkage: Shrinkage,
    *,
    above: MicroFit | None = None,
    max_iter: int = 25,
) -> MicroFit:
    """Return the likelier of the fits of k clusters from every start; of equals the first.

    Next to the cuts, ``above`` is a start: a fit of more clusters, joined to k.
    """
    begin = [from_partition(cells, labels, shrinkage) for labels in where.cuts(k)]
    if above is not None and k > 1:
        R = merge(cells, above.responsibilities, k, shrinkage)
        begin.append(maximise(cells, R, shrinkage, np.zeros((k, cells.n_features))))
    fits = [fit(cells, start, shrinkage, max_iter=max_iter) for start in begin]
    return max(fits, key=lambda found: found.log_likelihood)


def fit_all(
    cells: Cells, where: Starts, ks: IntArray, shrinkage: Shrinkage, *, max_iter: int = 25
) -> dict[int, MicroFit]:
    """Return the fit of every K of an ascending grid; the largest is first, each is a start of the next."""
    found: dict[int, MicroFit] = {}
    above = None
    for k in ks[::-1]:
        above = found[int(k)] = fit_k(cells, where, int(k), shrinkage, above=above, max_iter=max_iter)
    return {int(k): found[int(k)] for k in ks}


def follow(cells: Cells, ks: IntArray, rng: np.random.Generator) -> Path:
    """Fit every K of the grid to all cells and to each half.

    Notes
    -----
    **Source**: ours. Cost O(K M q²) for each of some 125 steps at each K, and O(M² q) for the trees.
    """
    shrinkage, scale = Shrinkage.of(cells), whitening(cells)
    everything = starts(cells, (np.ones_like(scale), scale), rng)
    fits = fit_all(cells, everything, ks, shrinkage)
    held_out = _held_out(cells, ks, scale, rng)
    return Path(
        k=ks,
        log_likelihood=np.array([found.log_likelihood for found in fits.values()]),
        bic=np.array([bic(cells, found) for found in fits.values()]),
        held_out=held_out,
        separation=np.array([separation(cells, found, scale) for found in fits.values()]),
        effective=np.array([effective_counts(found.clusters.weights) for found in fits.values()]),
        fits=fits,
    )


def half_fits(
    cells: Cells, ks: IntArray, scale: FloatArray, rng: np.random.Generator
) -> list[dict[int, MicroFit]]:
    """Return the fits to either half's cells by K; nothing if a half has no cell."""
    halves = [cells.take(cells.halves == half) for half in (0, 1)]
    if not all(half.n_cells for half in halves):
        return []
    found = []
    for half in halves:
        shrinkage, where = Shrinkage.of(half), starts(half, (scale,), rng)
        found.append(fit_all(half, where, ks, shrinkage, max_iter=HALF_STEPS))
    return found


def _held_out(cells: Cells, ks: IntArray, scale: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the log-likelihood (m, G) of each half under the fit to the other."""
    total = np.zeros((len(ks), cells.n_sites))
    for half, fits in enumerate(half_fits(cells, ks, scale, rng)):
        other = cells.take(cells.halves != half)
        # A site without cells in this half has no weights there: its cells cannot be held out.
        known = np.isin(np.arange(cells.n_sites), cells.sites[cells.halves == half])
        total += known * np.array([by_site(other, fits[int(k)].clusters) for k in ks])
    return total


def bic(cells: Cells, found: MicroFit) -> float:
    """Return the Bayesian information criterion of a fit; every weight that a site uses is a parameter."""
    k, q = found.clusters.k, cells.n_features
    used = int((found.clusters.weights > ABSENT).sum()) - cells.n_sites
    return -2 * found.log_likelihood + (k * (q + q * (q + 1) / 2) + used) * float(np.log(cells.n_rows))


def separation(cells: Cells, found: MicroFit, scale: FloatArray) -> float:
    """Return how wide clusters are for their distance, on the worst side of each, on average.

    Notes
    -----
    **Source**: the index of Davies and Bouldin (1979), with widths from the covariance of the clusters and
    distances in units of the width of cells.
    """
    if found.clusters.k == 1:
        return np.nan
    masses, means, scatters = moments(cells, found.responsibilities, found.clusters.means)
    variances = np.diagonal(scatters, axis1=1, axis2=2) / np.where(masses > 0, masses, 1.0)[:, None]
    width = np.sqrt(variances @ np.square(scale))
    white = means * scale
    distance = np.sqrt(np.square(white[:, None] - white).sum(axis=2))
    np.fill_diagonal(distance, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (width[:, None] + width) / distance
    return float(np.nan_to_num(ratio, nan=0.0, posinf=1e6).max(axis=1).mean())


def effective_counts(weights: FloatArray) -> FloatArray:
    """Return the exponential of the entropy of every row of weights (G, K), shape (G,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(weights > 0, weights * np.log(weights), 0.0)
    counts: FloatArray = np.exp(-terms.sum(axis=1))
    return counts
