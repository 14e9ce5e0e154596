"""Where sites' offsets start: by laying the micro-clusters of one site over those of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.path import whitening
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

CANDIDATES, REFINED, SHIFT_STEPS = 300, 5, 8
# Sites that are tried for the next place, and micro-clusters that they are laid over.
TRIED, LARGEST_REFERENCE = 12, 400
NARROWEST, FLOOR = 0.5, 1e-3


def centre(cells: Cells) -> FloatArray:
    """Return how far each site's mean is from the pooled one, shape (G, q); 0 for a site without rows."""
    offsets = np.zeros((cells.n_sites, cells.n_features))
    pooled = cells.counts @ cells.means / cells.n_rows
    for g in np.unique(cells.sites):
        own = cells.sites == g
        offsets[g] = cells.counts[own] @ cells.means[own] / cells.counts[own].sum() - pooled
    return offsets


def register(cells: Cells, rng: np.random.Generator) -> FloatArray:
    """Return offsets (G, q) under which the sites' micro-clusters lie over each other, summing to 0.

    The site that is spread most is the reference; the site that fits best on what is there already is added
    next, and at the end every site is laid over all others once more.

    Notes
    -----
    **Source**: ours: kernel correlation of weighted points (Tsin and Kanade, 2004) maximised by mean shift
    (Comaniciu and Meer, 2002) from differences of points drawn at random. It needs no count. Cost
    O(G² M_g M_ref q) for some 300 candidates.
    """
    scale, sites = whitening(cells), np.unique(cells.sites)
    white = replace(cells, means=cells.means * scale)
    spread = {int(g): float(white.take(cells.sites == g).means.var(axis=0).sum()) for g in sites}
    offsets = np.zeros((cells.n_sites, cells.n_features))
    width = kernel_width(white)
    placed = [max(spread, key=lambda g: spread[g])]
    waiting = [g for g in spread if g not in placed]
    while waiting:
        there = np.isin(cells.sites, placed)
        found = {
            int(g): lay_over(white, int(g), there, offsets, width, rng)
            for g in _sample(np.array(waiting), TRIED, rng)
        }
        best = max(found, key=lambda g: found[g][0])
        offsets[best] = found[best][1]
        placed.append(best)
        waiting.remove(best)
    if len(sites) > 1:
        for g in sites:
            offsets[g] = lay_over(white, int(g), cells.sites != g, offsets, width, rng)[1]
    offsets[sites] -= offsets[sites].mean(axis=0)
    return offsets / scale


def lay_over(
    cells: Cells, site: int, others: BoolArray, offsets: FloatArray, width: float, rng: np.random.Generator
) -> tuple[float, FloatArray]:
    """Lay a site's whitened micro-clusters over others (a mask of length M) that are freed of offsets (G, q).

    Returns
    -------
    overlap : float
        Mean log-density of the site's rows there.
    offset : (q,) array
    """
    reference = _sample(np.flatnonzero(others), LARGEST_REFERENCE, rng)
    base = _Points(cells.means[reference] - offsets[cells.sites[reference]], cells.counts[reference])
    own = cells.sites == site
    return _lay(_Points(cells.means[own], cells.counts[own]), base, width, rng)


@dataclass(frozen=True, eq=False)
class _Points:
    """Weighted points: whitened means (k, q) of micro-clusters and their rows (k,)."""

    at: FloatArray
    mass: FloatArray


def kernel_width(cells: Cells) -> float:
    """Return how far a whitened micro-cluster usually is from the next of its site, for one axis."""
    nearest = [np.empty(0)]
    for g in np.unique(cells.sites):
        own = cells.means[cells.sites == g]
        if len(own) > 1:
            squared = squared_distances(own, own)
            np.fill_diagonal(squared, np.inf)
            nearest.append(np.sqrt(squared.min(axis=1)))
    known = np.concatenate(nearest)
    usual = float(np.median(known)) if known.size else 0.0
    return max(NARROWEST, usual / float(np.sqrt(cells.n_features)))


def _sample(numbers: IntArray, most: int, rng: np.random.Generator) -> IntArray:
    """Return the numbers, or so many of them at random, in their order."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.sort(rng.permutation(len(numbers))[:most])]


def _lay(points: _Points, base: _Points, width: float, rng: np.random.Generator) -> tuple[float, FloatArray]:
    """Return how well points can be laid over a base, per row, and the offset (q,) for it."""
    pairs = rng.integers([len(points.at), len(base.at)], size=(CANDIDATES, 2))
    centres = np.average(points.at, axis=0, weights=points.mass) - np.average(
        base.at, axis=0, weights=base.mass
    )
    candidates = [np.zeros_like(centres), centres, *(points.at[pairs[:, 0]] - base.at[pairs[:, 1]])]
    scores = [_overlap(points, base, b, width)[0] for b in candidates]
    refined = []
    for start in np.argsort(scores, kind="stable")[::-1][:REFINED]:
        b = candidates[start]
        for _ in range(SHIFT_STEPS):
            pull = _overlap(points, base, b, width)[1]
            b = (pull.sum(axis=1) @ points.at - pull.sum(axis=0) @ base.at) / pull.sum()
        refined.append((_overlap(points, base, b, width)[0], b))
    return max(refined, key=lambda one: one[0])


def _overlap(points: _Points, base: _Points, b: FloatArray, width: float) -> tuple[float, FloatArray]:
    """Return the mean log-density of points less b under a kernel estimate of the base, and who pulls whom.

    A small floor keeps points that have no like in the base from deciding.
    """
    share = base.mass / base.mass.sum()
    kernel = share * np.exp(-squared_distances(points.at - b, base.at) / (2 * width**2))
    density = kernel.sum(axis=1) + FLOOR * np.exp(-base.at.shape[1] / 2)
    mass = points.mass / points.mass.sum()
    return float(mass @ np.log(density)), (mass / density)[:, None] * kernel
