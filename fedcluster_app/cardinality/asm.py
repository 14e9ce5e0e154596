"""ASM-S as one function: from a table to its number of components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from fedcluster_app.cardinality.frame import Frame, frame_of
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.selection import (
    ALPHAS,
    FEWEST_HELD_OUT,
    MIN_MASSES,
    NO_SCORE,
    Selection,
    hold_out,
    mixture_of,
    select,
)
from fedcluster_app.cardinality.tree import Moments, split_tree
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray

ORDERS = ("ratio", "distance")
_ABOVE_ZERO = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Count:
    """A site's number of components, and the components it was counted with.

    Attributes
    ----------
    k : int
        Number of components, >= 1.
    alpha, min_mass : float, int
        Merge ratio and minimum mass of the fit (nan and 0 when neither was used).
    silhouette : float
        Mean silhouette of the held-out rows; -1 when no cell of the grid has one, nan when none was sought.
    weights (k,), means (k, d), variances (k,)
        The components in the table's units. A variance is 0 where all rows of a component are equal.
    status : str
        "selected"; "unscored" when no cell of the grid could be scored, so that the fewest components won;
        "fixed" when the grid has one cell; "few rows" when there are too few of them to hold some out;
        "oracle" for a count that was read from labels.
    """

    k: int
    alpha: float
    min_mass: int
    silhouette: float
    weights: FloatArray
    means: FloatArray
    variances: FloatArray
    status: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit in its frame; :meth:`count` maps it back to the table's units."""

    frame: Frame
    components: Moments
    root_variance: float
    alpha: float
    min_mass: int
    status: str
    selection: Selection | None = None

    def count(self) -> Count:
        """Return the fit in the table's units, raising DataError when float64 cannot hold a variance."""
        counts = self.components.counts
        return Count(
            k=len(counts),
            alpha=self.alpha,
            min_mass=self.min_mass,
            silhouette=self.selection.score if self.selection else math.nan,
            weights=counts / counts.sum(),
            means=self.frame.means(self.components.means),
            variances=self.frame.variances(self.components.variances),
            status=self.status,
        )

    def mixture(self) -> Mixture:
        """Return the mixture that labels rows of the frame."""
        return mixture_of(self.components, self.root_variance)


def count_asm(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    alphas: Sequence[float] = ALPHAS,
    min_masses: Sequence[int] = MIN_MASSES,
    delta: float = 1.0,
    em_steps: int = 15,
    order: str = "ratio",
) -> Count:
    """Count the components of a table with ASM-S, choosing merge ratio and minimum mass on held-out rows.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite, float64.
    rng : numpy.random.Generator
        Draws the held-out rows; not used when nothing is held out.
    alphas, min_masses : sequences
        The grid: merge ratios > 0 and minimum masses >= 1, in any order. One of each means no selection: that
        pair is fitted to all rows.
    delta : float, > 0
        Start of a split's means, in standard deviations along the leading axis.
    em_steps : int, >= 1
        EM iterations of a split.
    order : {"ratio", "distance"}
        Which pair of components merges first.

    Returns
    -------
    Count
        Of the fit that was scored, on the 80 % of the rows that were not held out. With fewer than 13 rows
        nothing is held out: largest alpha, smallest minimum mass, all rows.

    Raises
    ------
    ConfigError
        If a parameter is out of range.
    DataError
        If X has no rows or columns, holds NaN or infinity, or has a variance that float64 cannot hold.

    Notes
    -----
    Constant columns change no decision about distances but count in d, so they raise the penalty. With
    ``silhouette`` as the judge a single cluster is hardly ever counted as one.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, ASM-S with selection on held-out rows.
    What its summary leaves open is reconstructed; the parts say where.
    """
    return fit_asm(
        X, rng, alphas=alphas, min_masses=min_masses, delta=delta, em_steps=em_steps, order=order
    ).count()


def fit_asm(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    alphas: Sequence[float],
    min_masses: Sequence[int],
    delta: float,
    em_steps: int,
    order: str,
) -> Fit:
    """:func:`count_asm`, which describes the parameters, before it is mapped back from its frame."""
    alphas, min_masses = check_grid(alphas, min_masses, delta, em_steps, order)
    frame = frame_of(X)
    Y = frame.apply(X)
    if len(alphas) == len(min_masses) == 1:
        return _fit_all_rows(frame, Y, alphas[0], min_masses[0], delta, em_steps, order, "fixed")
    train, held_out = hold_out(len(Y), rng)
    if len(held_out) < FEWEST_HELD_OUT:
        return _fit_all_rows(frame, Y, alphas[-1], min_masses[0], delta, em_steps, order, "few rows")
    chosen = select(
        Y[train],
        Y[held_out],
        alphas=alphas,
        min_masses=min_masses,
        delta=delta,
        em_steps=em_steps,
        order=order,
    )
    return Fit(
        frame=frame,
        components=chosen.components,
        root_variance=chosen.root_variance,
        alpha=chosen.alpha,
        min_mass=chosen.min_mass,
        status="selected" if chosen.score > NO_SCORE else "unscored",
        selection=chosen,
    )


def check_grid(
    alphas: Sequence[float], min_masses: Sequence[int], delta: float, em_steps: int, order: str
) -> tuple[list[float], list[int]]:
    """Check the parameters of a fit and return the grid sorted, without repetitions.

    Raises
    ------
    ConfigError
        If one is out of range, or an axis of the grid is empty.
    """
    if len(alphas) == 0 or len(min_masses) == 0:
        raise ConfigError("alphas, min_masses: expected at least one value each, got none")
    for name, values, least in (
        ("alpha", alphas, 0.0),
        ("min_mass", min_masses, 1.0),
        ("delta", [delta], 0.0),
        ("em_steps", [em_steps], 1.0),
    ):
        for value in values:
            # A least value of 0 is itself excluded.
            if not (isinstance(value, Real) and max(least, _ABOVE_ZERO) <= value < math.inf):
                bound = "above 0" if least == 0 else f"of at least {least:g}"
                raise ConfigError(f"{name}: expected a finite number {bound}, got {value!r}")
    if em_steps != int(em_steps):
        raise ConfigError(f"em_steps: expected a whole number, got {em_steps!r}")
    if order not in ORDERS:
        raise ConfigError(f"order: expected one of {', '.join(ORDERS)}, got {order!r}")
    return sorted(set(alphas)), sorted(set(min_masses))


def _fit_all_rows(
    frame: Frame,
    Y: FloatArray,
    alpha: float,
    min_mass: int,
    delta: float,
    em_steps: int,
    order: str,
    status: str,
) -> Fit:
    """One cell of the grid, without a score."""
    tree = split_tree(Y, min_mass, delta=delta, em_steps=em_steps)
    (components,) = merge_path(tree.leaf_moments(min_mass), [alpha], order)
    return Fit(
        frame=frame,
        components=components,
        root_variance=float(tree.moments.variances[0]),
        alpha=alpha,
        min_mass=min_mass,
        status=status,
    )
