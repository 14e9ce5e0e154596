"""What every local estimator returns: a count, and before that a fit in the frame of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.cardinality.frame import Frame
from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

#: One cell of a grid: hyper-parameters by name.
Cell = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Count:
    """A site's number of components, and the components it was counted with.

    Attributes
    ----------
    k : int
        Number of components, >= 1.
    weights (k,), means (k, d), variances (k,)
        The components in the table's units. A variance is 0 where all rows of a component are equal.
    chosen : mapping of str to float
        The hyper-parameters of the fit by name, for example ``{"alpha": 1.5, "min_mass": 10}``.
    silhouette : float
        Mean silhouette of the held-out rows; -1 when no cell of the grid has one, nan when none was sought.
    status : str
        "selected"; "unscored" when no cell of the grid could be scored, so that the fewest components won;
        "fixed" when the grid has one cell; "few rows" when there are too few of them to hold some out;
        "one cluster" when a guard said so and nothing was selected; "oracle" for a count that was read from
        labels.
    kept : (n,) bool or None
        The rows that were not set aside as gross outliers; None if none was.
    """

    k: int
    weights: FloatArray
    means: FloatArray
    variances: FloatArray
    chosen: Cell
    silhouette: float
    status: str
    kept: BoolArray | None = None


class Rows(NamedTuple):
    """Rows X (n, d), and how many equal rows each stands for: weights (n,) > 0, or None for one each."""

    X: FloatArray
    weights: FloatArray | None = None

    def take(self, index: IntArray) -> Rows:
        """Return some of the rows."""
        return Rows(self.X[index], None if self.weights is None else self.weights[index])

    @property
    def masses(self) -> FloatArray:
        """Weights (n,), ones where there are none."""
        return np.ones(len(self.X)) if self.weights is None else self.weights


@dataclass(frozen=True, eq=False)
class Candidate:
    """The fit of one cell of a grid, in the frame.

    Attributes
    ----------
    chosen : mapping of str to float
        The cell.
    components : Moments
        Its components, k >= 1.
    nearest : bool
        Whether a row belongs to the nearest mean, as in k-means; else to the component of the largest
        posterior probability.
    """

    chosen: Cell
    components: Moments
    nearest: bool = False

    def mixture(self, floor: float) -> Mixture:
        """Return the mixture that labels rows; a component's variance is at least ``floor`` > 0.

        Equal weights and one variance for all make the nearest mean the most probable one.
        """
        counts, means, variances = self.components.counts, self.components.means, self.components.variances
        weights = counts / counts.sum()
        if self.nearest:
            variances = np.full(len(counts), weights @ variances)
            weights = np.full(len(counts), 1 / len(counts))
        return Mixture(weights, means, np.maximum(variances, floor))


@dataclass(frozen=True, eq=False)
class Fit:
    """The chosen candidate with its frame, which maps it back to the table's units.

    Attributes
    ----------
    frame : Frame
    candidate : Candidate
    floor : float
        Least variance, in the frame, of a component that labels rows.
    status : str
        See :class:`Count`.
    silhouette : float
        Of the held-out rows, nan when nothing was held out.
    scores, counts : (cells,) or None
        Score and number of components of every cell, in the order of the grid.
    kept : (n,) bool or None
        See :class:`Count`.
    """

    frame: Frame
    candidate: Candidate
    floor: float
    status: str
    silhouette: float = math.nan
    scores: FloatArray | None = None
    counts: IntArray | None = None
    kept: BoolArray | None = None

    def count(self) -> Count:
        """Return the fit in the table's units, raising DataError when float64 cannot hold a variance."""
        components = self.candidate.components
        return Count(
            k=len(components.counts),
            weights=components.counts / components.counts.sum(),
            means=self.frame.means(components.means),
            variances=self.frame.variances(components.variances),
            chosen=self.candidate.chosen,
            silhouette=self.silhouette,
            status=self.status,
            kept=self.kept,
        )

    def mixture(self) -> Mixture:
        """Return the mixture that labels rows of the frame."""
        return self.candidate.mixture(self.floor)


def moments_of(rows: Rows, labels: NDArray[np.generic]) -> Moments:
    """Moments of the rows of every label (n,) that occurs, in sorted order of the labels.

    The first row of a label is subtracted before its moments are taken, so that the variance of equal rows
    is exactly zero.
    """
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    masses = rows.masses
    counts = np.bincount(codes, weights=masses).astype(np.float64)
    Y = rows.X - rows.X[first][codes]
    sums = np.stack([np.bincount(codes, weights=masses * column) for column in Y.T], axis=1)
    offsets = sums / counts[:, None]
    Y -= offsets[codes]
    squares = np.bincount(codes, weights=masses * np.einsum("ij,ij->i", Y, Y))
    return Moments(counts, rows.X[first] + offsets, squares / (counts * Y.shape[1]))
