"""Setting gross outliers aside before a fit: one of them can hide all structure from a split tree."""

from __future__ import annotations

import numpy as np

from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.types import BoolArray, FloatArray

#: A row farther from the middle than this many times the median distance is set aside if it is alone there.
FARTHEST = 10.0
#: So many far rows near each other are a group, which a split can find, and stay.
FEWEST_TOGETHER = 5
_BLOCK_ENTRIES = 1 << 22


def within_reach(X: FloatArray, farthest: float = FARTHEST) -> BoolArray:
    """Which rows are no gross outliers.

    The split that would set an outlier apart is the best one of the whole table; it fails the minimum mass,
    and the table stays one component. Such rows are better left out of the fit and labelled afterwards.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite.
    farthest : float, > 1
        A row is far when its distance from the middle, the median of every column, is more than this many
        times the median of all distances: the reach. A far row is set aside unless it has four other far
        rows within its reach.

    Returns
    -------
    (n,) bool
        At least half of it True; all of it when more than half of the rows are equal, which leaves no
        distance to compare with.

    Raises
    ------
    ConfigError
        If `farthest` is not above 1.

    Notes
    -----
    Without the second condition a tight cluster's distant neighbour, of any size up to half of the rows,
    would be set aside as well. Cost m^2 d for m far rows.

    **Source**: ours.
    """
    if not farthest > 1:
        raise ConfigError(f"farthest: expected a number above 1, got {farthest!r}")
    # Halves do not overflow where the rows do not, and their largest entry then sets the unit.
    Y = X / 2 - np.median(X / 2, axis=0)
    Y = np.ldexp(Y, -int(np.frexp(np.abs(Y).max())[1]))
    distances = np.sqrt(np.einsum("ij,ij->i", Y, Y))
    reach = farthest * float(np.median(distances))
    kept: BoolArray = (distances <= reach) | (reach == 0)
    far = np.flatnonzero(~kept)
    block = max(1, _BLOCK_ENTRIES // max(1, len(far)))
    for start in range(0, len(far), block):
        rows = far[start : start + block]
        together = np.sqrt(squared_distances(Y[rows], Y[far])) <= reach
        kept[rows] = together.sum(axis=1) >= FEWEST_TOGETHER
    return kept


def set_aside(X: FloatArray, farthest: float = FARTHEST) -> BoolArray | None:
    """Return :func:`within_reach`, or None when no row is out of it, so that nothing need be copied.

    Raises
    ------
    ConfigError
        As :func:`within_reach`.
    DataError
        If X has no rows or columns, or holds NaN or infinity.
    """
    frame_of(X)  # checks the rows before anything is made of them
    kept = within_reach(X, farthest)
    return None if kept.all() else kept
