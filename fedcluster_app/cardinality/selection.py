"""Choosing an estimator's hyper-parameters on held-out rows: the protocol that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from fedcluster_app.cardinality.count import Candidate, Cell, Fit, Rows
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.split import VARIANCE_FLOOR
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.metrics.silhouette import silhouette_from_distances
from fedcluster_app.mixtures.densities import log_joint
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import FloatArray, IntArray

#: Share of the rows that is held out, and the least number of them worth a selection.
HELD_OUT_SHARE, FEWEST_HELD_OUT = 0.2, 3
#: A larger table is represented by this many of its rows, its held-out part by this many of them.
MOST_ROWS, MOST_SCORED = 30_000, 2_000
#: Score of a cell that has no silhouette.
NO_SCORE = -1.0

_ABOVE_ZERO = float(np.finfo(np.float64).tiny)

#: Fits all cells to some rows of the frame; one candidate per cell, in their order.
FitCells = Callable[[Rows, Sequence[Cell]], Sequence[Candidate]]


@dataclass(frozen=True, eq=False)
class Selection:
    """The candidate that won, with the scores and numbers of components of all cells, in their order."""

    candidate: Candidate
    score: float
    scores: FloatArray
    counts: IntArray


def choose(
    X: FloatArray,
    rng: np.random.Generator,
    cells: Sequence[Cell],
    fit: FitCells,
    *,
    few: Cell | None = None,
    weights: FloatArray | None = None,
) -> Fit:
    """Fit an estimator to a table, with the cell of its grid that is best on held-out rows.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows; not used when nothing is held out.
    cells : sequence of cells
        The grid in order of preference. A grid of one cell means no selection: it is fitted to all rows.
    fit : callable
        Fits cells to rows of the table's frame.
    few : cell, optional
        What is fitted to all rows when there are fewer than 13 of them; by default the first cell.
    weights : (n,), optional
        How many equal rows each stands for; rows of weight 0 are left out.

    Returns
    -------
    Fit
        **The fit that was scored**, on the 80 % of the rows that were not held out.

    Raises
    ------
    DataError
        If X has no rows or columns or holds NaN or infinity, or the weights are not one finite number of at
        least 0 per row, with one above 0.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, selection on 20 % held-out rows by
    silhouette; see :func:`select`.
    """
    if weights is not None:
        X, weights = _counted_rows(X, weights)
    frame = frame_of(X)
    rows = Rows(frame.apply(X), weights)
    fixed = len(cells) == 1
    train, held_out = (np.arange(len(X)), np.arange(0)) if fixed else hold_out(len(X), rng)
    if len(held_out) < FEWEST_HELD_OUT:
        (candidate,) = fit(rows, [cells[0] if fixed or few is None else few])
        return Fit(frame, candidate, floor_of(rows.X), "fixed" if fixed else "few rows")
    part = rows.take(train)
    best = select(part, rows.take(held_out), cells, fit)
    status = "selected" if best.score > NO_SCORE else "unscored"
    return Fit(frame, best.candidate, floor_of(part.X), status, best.score, best.scores, best.counts)


def hold_out(n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Train and held-out row numbers of a table of n rows; at most 30000 together, a fifth held out."""
    drawn = rng.permutation(n)[:MOST_ROWS]
    held = round(HELD_OUT_SHARE * len(drawn))
    return drawn[held:], drawn[:held]


def select(train: Rows, held_out: Rows, cells: Sequence[Cell], fit: FitCells) -> Selection:
    """Fit every cell to the train part and keep the best by silhouette of the held-out rows.

    Of equals wins the one with fewer components, then the cell that is listed first.

    Parameters
    ----------
    train : Rows, n >= 1
    held_out : Rows, m >= 1
        In random order; the first 2000 are scored.
    cells, fit
        See :func:`choose`.

    Notes
    -----
    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, selection on 20 % held-out rows by
    silhouette. Reconstructed: the grid, the ties, the cap on scored rows.
    """
    candidates = fit(train, cells)
    judge = Judge(held_out.take(np.arange(min(len(held_out.X), MOST_SCORED))))
    floor = floor_of(train.X)
    counts = np.array([len(candidate.components.counts) for candidate in candidates])
    scores = np.array([judge.score_of(candidate, floor) for candidate in candidates])
    best = max(range(len(cells)), key=lambda cell: (scores[cell], -counts[cell], -cell))
    return Selection(candidates[best], float(scores[best]), scores, counts)


def floor_of(X: FloatArray) -> float:
    """Least variance of a component that labels rows: 1e-12 of that of the rows (n, d) it was fitted to.

    A component of equal rows has no density; this is the floor of ASM's EM, and 1e-12 for equal rows.
    """
    # Less a row, so that equal rows have none; one column at a time, so that the table is not copied.
    return VARIANCE_FLOOR * (float(np.mean([(column - column[0]).var() for column in X.T])) or 1.0)


class Judge:
    """Scores labelings of a fixed set of rows by their mean silhouette.

    The distances of the rows are computed once, and the silhouette once for each distinct labeling.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.distances = squared_distances(rows.X, rows.X)
        np.sqrt(self.distances, out=self.distances)
        self.known: dict[bytes, float] = {}

    def scores(self, k: int) -> bool:
        """Whether k components are worth a score: two, or more up to half of the rows.

        So fine a partition is costly to score, and never a useful count.
        """
        return 1 < k <= max(2, len(self.rows.X) / 2)

    def score(self, labels: IntArray) -> float:
        """Mean silhouette of the rows under labels (n,); -1 when all have one label."""
        used, labels = np.unique(labels, return_inverse=True)
        if len(used) < 2:
            return NO_SCORE
        key = labels.tobytes()
        if key not in self.known:
            widths = silhouette_from_distances(self.distances, labels)
            self.known[key] = float(np.average(widths, weights=self.rows.weights))
        return self.known[key]

    def score_of(self, candidate: Candidate, floor: float) -> float:
        """Score of the labels that a candidate gives to the rows; -1 when it is not worth one."""
        if not self.scores(len(candidate.components.counts)):
            return NO_SCORE
        return self.score(log_joint(self.rows.X, candidate.mixture(floor)).argmax(axis=1))


def checked_axis(name: str, values: Sequence[float], low: float, *, whole: bool = False) -> list[float]:
    """One axis of a grid, sorted and without repetitions; finite numbers of at least ``low``, or above 0.

    Raises
    ------
    ConfigError
        If there are none, or one is out of range.
    """
    if len(values) == 0:
        raise ConfigError(f"{name}: expected at least one value, got none")
    for value in values:
        # A least value of 0 is itself excluded.
        if not (isinstance(value, Real) and max(low, _ABOVE_ZERO) <= value < math.inf):
            bound = "above 0" if low == 0 else f"of at least {low:g}"
            raise ConfigError(f"{name}: expected a finite number {bound}, got {value!r}")
        if whole and value != int(value):
            raise ConfigError(f"{name}: expected a whole number, got {value!r}")
    return sorted(set(values))


def _counted_rows(X: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows that count, with their weights."""
    if weights.shape != X.shape[:1] or not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError("weights: expected one finite number of at least 0 for each row")
    if not weights.any():
        raise DataError("weights: expected at least one above 0, got zeros")
    counted = weights > 0
    return X[counted], weights[counted]
