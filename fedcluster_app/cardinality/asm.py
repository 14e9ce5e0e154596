"""ASM-S as one function: from a table to its number of components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedcluster_app.cardinality.batch import batched_split_tree
from fedcluster_app.cardinality.count import Candidate, Cell, Count, Fit, Rows, moments_of
from fedcluster_app.cardinality.frame import frame_of
from fedcluster_app.cardinality.guard import is_one_cluster
from fedcluster_app.cardinality.merge import MOST_LEAVES, merge_path
from fedcluster_app.cardinality.outliers import set_aside
from fedcluster_app.cardinality.selection import checked_axis, choose
from fedcluster_app.cardinality.tree import split_tree
from fedcluster_app.cardinality.variant import PUBLISHED, Variant, leaf_unit
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray

#: Merge ratios (alpha) and minimum masses (tau) tried by default.
ALPHAS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
MIN_MASSES = (5, 10, 20, 40)
ORDERS = ("ratio", "distance")


def count_asm(
    X: FloatArray,
    rng: np.random.Generator,
    *,
    alphas: Sequence[float] = ALPHAS,
    min_masses: Sequence[int] = MIN_MASSES,
    delta: float = 1.0,
    em_steps: int = 15,
    order: str = "ratio",
    variant: Variant = PUBLISHED,
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
    variant : Variant
        Departures from the published protocol, none by default.

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
        X,
        rng,
        alphas=alphas,
        min_masses=min_masses,
        delta=delta,
        em_steps=em_steps,
        order=order,
        variant=variant,
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
    variant: Variant = PUBLISHED,
) -> Fit:
    """:func:`count_asm`, which describes the parameters, before it is mapped back from its frame."""
    cells = asm_cells(alphas, min_masses)
    checked_axis("delta", [delta], 0)
    checked_axis("em_steps", [em_steps], 1, whole=True)
    if order not in ORDERS:
        raise ConfigError(f"order: expected one of {', '.join(ORDERS)}, got {order!r}")

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        return fit_cells(rows.X, cells, delta=delta, em_steps=em_steps, order=order, variant=variant)

    kept = set_aside(X, variant.set_aside) if variant.set_aside else None
    X = X if kept is None else X[kept]
    if variant.guard and is_one_cluster(frame_of(X).apply(X)):
        return replace(one_component(X, rng), kept=kept)
    few = {"alpha": max(alphas), "min_mass": min(min_masses)}
    return replace(choose(X, rng, cells, fit, few=few), kept=kept)


def asm_cells(alphas: Sequence[float] = ALPHAS, min_masses: Sequence[float] = MIN_MASSES) -> list[Cell]:
    """Return the grid in order of preference: the largest alpha first, and for it the largest minimum mass.

    Raises
    ------
    ConfigError
        If an axis is empty, or a value out of range.
    """
    alphas = checked_axis("alpha", alphas, 0)
    min_masses = checked_axis("min_mass", min_masses, 1)
    return [
        {"alpha": alpha, "min_mass": min_mass}
        for alpha in reversed(alphas)
        for min_mass in reversed(min_masses)
    ]


def fit_cells(
    X: FloatArray,
    cells: Sequence[Cell],
    *,
    delta: float = 1.0,
    em_steps: int = 15,
    order: str = "ratio",
    variant: Variant = PUBLISHED,
) -> list[Candidate]:
    """Fit every cell to all rows of X (n, d), which are in their frame.

    One split tree serves all minimum masses and one merge path all alphas; both are exact. More leaves than
    merging holds (:data:`~fedcluster_app.cardinality.merge.MOST_LEAVES`) are left as they are when there are
    other cells: so many components have no score, and the fit of a grid does not fail.

    Raises
    ------
    DataError
        If there is one cell and its leaves are more than merging holds.
    """
    alphas = sorted({cell["alpha"] for cell in cells})
    min_masses = sorted({cell["min_mass"] for cell in cells})
    grow = partial(split_tree, criterion=variant.criterion) if variant.criterion else batched_split_tree
    tree = grow(X, min_masses[0], delta=delta, em_steps=em_steps)
    fits = {}
    for min_mass in min_masses:
        unit = leaf_unit(X, tree, min_mass) if variant.alpha_unit == "leaves" else 1.0
        leaves = tree.leaf_moments(min_mass)
        if len(cells) > 1 and len(leaves.counts) > MOST_LEAVES:
            path = [leaves] * len(alphas)
        else:
            path = merge_path(leaves, [alpha * unit for alpha in alphas], order)
        for alpha, components in zip(alphas, path, strict=True):
            cell = {"alpha": alpha, "min_mass": min_mass}
            scale = {"alpha_unit": unit} if variant.alpha_unit == "leaves" else {}
            fits[alpha, min_mass] = Candidate(cell | scale, components)
    return [fits[cell["alpha"], cell["min_mass"]] for cell in cells]


def one_component(X: FloatArray, rng: np.random.Generator) -> Fit:
    """Fit one component to all rows of X (n, d); nothing is drawn."""

    def fit(rows: Rows, cells: Sequence[Cell]) -> list[Candidate]:
        return [Candidate({}, moments_of(rows, np.zeros(len(rows.X)))) for _ in cells]

    return replace(choose(X, rng, [{}], fit), status="one cluster")
