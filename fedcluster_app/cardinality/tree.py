"""The split tree of ASM-S: components are split in two while the likelihood pays for it.

A decision looks only at the component's own rows and, but for the last comparison, not at the minimum mass.
So one tree, built for the smallest minimum mass, holds the leaves for every larger one
(:meth:`SplitTree.leaves`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcluster_app.cardinality.split import NO_VARIANCE, Split, centred, propose_split
from fedcluster_app.mixtures.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Moments:
    """Components as sufficient statistics: counts (k,), means (k, d), per-dimension variances (k,)."""

    counts: FloatArray
    means: FloatArray
    variances: FloatArray


class Criterion(Protocol):
    """Proposes the split of one component: :func:`propose_split`, or another of its signature."""

    def __call__(self, Y: FloatArray, squares: FloatArray, *, delta: float, em_steps: int) -> Split | None:
        """Return the split, or None when there are no two halves."""


@dataclass(frozen=True, eq=False)
class SplitTree:
    """All components ever made, depth first, child 1 before child 2; the root is node 0.

    Attributes
    ----------
    parents : (m,) int
        -1 for the root.
    masses : (m,)
        Soft mass of the lighter child; 0 where no split was accepted.
    moments : Moments
        Of the nodes' own rows.
    rows : tuple of m int arrays
        The nodes' rows.
    """

    parents: IntArray
    masses: FloatArray
    moments: Moments
    rows: tuple[IntArray, ...]

    def leaves(self, min_mass: float) -> IntArray:
        """Leaf nodes (k,) of the tree for a minimum mass not below the one it was built with.

        Exact, as a node's split does not depend on the minimum mass: the tree for a larger one is the top
        part made of the splits whose lighter child has at least that mass.
        """
        splits = self.masses >= min_mass
        present = np.ones(len(splits), dtype=bool)
        for node in range(1, len(splits)):
            parent = self.parents[node]
            present[node] = present[parent] and splits[parent]
        return np.flatnonzero(present & ~splits)

    def leaf_moments(self, min_mass: float) -> Moments:
        """Moments of the leaves for a minimum mass, in leaf order."""
        leaves, m = self.leaves(min_mass), self.moments
        return Moments(m.counts[leaves], m.means[leaves], m.variances[leaves])


def split_tree(
    X: FloatArray,
    min_mass: float,
    *,
    delta: float = 1.0,
    em_steps: int = 15,
    criterion: Criterion | None = None,
) -> SplitTree:
    """Split the rows of X until no split is accepted.

    Parameters
    ----------
    X : (n, d), n >= 1
        Rows, finite and of moderate size (see :mod:`~fedcluster_app.cardinality.frame`).
    min_mass : float, >= 1
        Least soft mass of a child, in rows (tau).
    delta : float, > 0
        Start of the two means, in standard deviations along the leading axis.
    em_steps : int, >= 1
        EM iterations of a split, always all of them.
    criterion : Criterion, optional
        Proposes and values splits: by default :func:`propose_split`, the published one;
        :mod:`~fedcluster_app.cardinality.criteria` has others.

    Returns
    -------
    SplitTree
        Of at most about 2 n / min_mass nodes.

    Notes
    -----
    Cost about ``em_steps n d`` per level of the tree, and one eigenproblem of side min(n, d) per node.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, split step of ASM-S. Reconstructed: the
    maximum likelihood variance, soft masses in the mass test, hard assignment with the final parameters.
    """
    propose = criterion or propose_split
    parents: list[int] = []
    masses: list[float] = []
    moments: list[tuple[int, FloatArray, float]] = []
    kept: list[IntArray] = []
    pending = [(np.arange(len(X)), -1)]
    while pending:
        rows, parent = pending.pop()
        node = len(kept)
        mean, Y, squares = centred(X[rows])
        variance = float(squares.sum()) / Y.size
        split = None
        if len(rows) >= 2 * min_mass and variance > NO_VARIANCE:
            split = propose(Y, squares, delta=delta, em_steps=em_steps)
        if split and not (split.pays and split.mass >= min_mass):
            split = None
        parents.append(parent)
        masses.append(split.mass if split else 0.0)
        moments.append((len(rows), mean, variance))
        kept.append(rows)
        if split:
            pending += [(rows[~split.first], node), (rows[split.first], node)]
    counts, means, variances = zip(*moments, strict=True)
    return SplitTree(
        parents=np.array(parents),
        masses=np.array(masses),
        moments=Moments(np.array(counts, dtype=np.float64), np.array(means), np.array(variances)),
        rows=tuple(kept),
    )
