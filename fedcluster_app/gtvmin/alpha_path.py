"""Which strength of the coupling, and for how many rounds: by the log-likelihood of rows held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray

# From no coupling to one that decides alone, half a decade apart.
AUTO = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
# The path ends where this many alphas in a row were worse than the best before.
PATIENCE = 2
# By how many times the usual gap of a row a site may count.
MOST = 3.0


@dataclass(frozen=True)
class Point:
    """One round at one alpha.

    Attributes
    ----------
    alpha : float
    held_out : mapping of site name to float
        Log-likelihood of the site's rows, each under the mixture that was made without it.
    rows : mapping of site name to int
        How many rows those are; sites without any are left out.
    """

    alpha: float
    held_out: Mapping[str, float]
    rows: Mapping[str, int]

    @property
    def mean(self) -> float:
        """Mean log-likelihood of a row; nan without rows."""
        rows = sum(self.rows.values())
        return math.fsum(self.held_out.values()) / rows if rows else math.nan


def gain(point: Point, other: Point) -> float:
    """Return by how much a row is likelier at one point, over the sites that both have; nan without any.

    No site counts for more than `MOST` times what sites usually say, row by row: one that makes its scores up
    moves the sum by no more than that.
    """
    names, gaps = _gaps(point, other)
    return float(gaps.sum()) / sum(point.rows[name] for name in names) if names else math.nan


def _gaps(point: Point, other: Point) -> tuple[list[str], FloatArray]:
    """Return the sites that two points share, and by how much the rows of each are likelier at the first."""
    names = sorted(set(point.rows) & set(other.rows))
    rows = np.array([point.rows[name] for name in names], dtype=np.float64)
    gaps = np.array([point.held_out[name] - other.held_out[name] for name in names])
    if len(names) > 2:
        most = MOST * np.median(np.abs(gaps / rows)) * rows
        gaps = np.clip(gaps, -most, most)
    return names, gaps


def best_of(points: Sequence[Point]) -> int:
    """Return the position of the best of at least one point; of equals the first.

    Each is compared with the best so far over the sites that both have: a site that comes, or is silent in a
    round, must not make it look better or worse. A point without rows is never the best, unless all are.
    """
    best = 0
    for number, point in enumerate(points):
        if point.rows and (not points[best].rows or gain(point, points[best]) > 0):
            best = number
    return best


def at_their_best(seen: Sequence[Point]) -> list[Point]:
    """Return the best round of every alpha, in the order in which they were tried.

    Notes
    -----
    **Source**: ours. Every alpha starts from the same mixtures and stops at its best round. Going on from the
    mixtures of another alpha was worse: from a weaker one they have settled on their own rows, which an MMD
    coupling no longer mends, and from a stronger one a Kullback-Leibler coupling has emptied components for
    good. The best round is early: k-means starts too close to its own rows, a few rounds of strong coupling
    mend that, and later ones agree too far.
    """
    rounds: dict[float, list[Point]] = {}
    for point in seen:
        rounds.setdefault(point.alpha, []).append(point)
    return [points[best_of(points)] for points in rounds.values()]


def is_over(path: Sequence[Point]) -> bool:
    """Whether the last alphas were all worse than the best before them, by more than the standard error."""
    if len(path) <= PATIENCE:
        return False
    before, after = path[:-PATIENCE], path[-PATIENCE:]
    best = before[best_of(before)]
    return all(gain(point, best) < -standard_error(point, best) for point in after)


def standard_error(point: Point, best: Point) -> float:
    """Return the standard error over sites of :func:`gain`; 0 for one site.

    Notes
    -----
    Of G sites with differences D_g of their sums the total has the standard error sqrt(G) sd(D_g).
    """
    names, gaps = _gaps(best, point)
    if len(names) < 2:
        return 0.0
    rows = sum(best.rows[name] for name in names)
    return math.sqrt(len(names)) * float(gaps.std(ddof=1)) / rows
