"""Why ASM-S found as many components as it did: every decision and merge, as tables and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fedcluster_app.cardinality.closed_form import anisotropy, critical_size, join_bound
from fedcluster_app.cardinality.criteria import critical_size_of
from fedcluster_app.cardinality.dendrogram import merges
from fedcluster_app.cardinality.split import NO_VARIANCE, Split, centred, propose_split
from fedcluster_app.cardinality.tree import Criterion, SplitTree, split_tree
from fedcluster_app.mixtures.types import FloatArray


class FragmentationWarning(UserWarning):
    """Some components are of a size and shape at which even a single Gaussian cluster falls apart."""


@dataclass(frozen=True)
class Decision:
    """Whether a node of the split tree was split, and why.

    Attributes
    ----------
    node, parent : int
        Depth first from 0; the root has parent -1.
    rows : int
    anisotropy : float
        Leading over mean eigenvalue of its covariance.
    critical_size : float
        Rows from which a single Gaussian cluster of this shape is predicted to split under score "q".
    gain, penalty : float
        Of the best split found, in units of the log-likelihood; nan when there is none to value.
    mass : float
        Soft mass of the lighter child.
    outcome : str
        "split", "gain too small", "child too light", "too few rows", "no spread", "no two halves".
    """

    node: int
    parent: int
    rows: int
    anisotropy: float
    critical_size: float
    gain: float
    penalty: float
    mass: float
    outcome: str


@dataclass(frozen=True)
class Joined:
    """Two components, named by their first leaves (nodes of the tree), became one.

    `ratio` is their distance over the sum of their spreads, `spread` the per-dimension spread of the result,
    in the table's units.
    """

    node: int
    other: int
    ratio: float
    spread: float


@dataclass(frozen=True)
class Component:
    """A component of the result, named by its first leaf.

    Attributes
    ----------
    node : int
    leaves : tuple of int
        Nodes of the tree that were merged into it.
    rows : int
    spread : float
        Per-dimension, in the table's units.
    anisotropy, critical_size : float
        As in :class:`Decision`.
    join_bound : float
        Least alpha that re-joins the halves of a single Gaussian cluster of this shape.
    fragments : bool
        Whether such a cluster is certain to fragment: it has more rows than the critical size, and alpha is
        not above the bound.
    """

    node: int
    leaves: tuple[int, ...]
    rows: int
    spread: float
    anisotropy: float
    critical_size: float
    join_bound: float
    fragments: bool


@dataclass(frozen=True)
class SplitReport:
    """What :func:`explain` found; its text is three aligned tables.

    Attributes
    ----------
    alpha, min_mass : float
    decisions : tuple of Decision
    merges : tuple of Joined
    components : tuple of Component
    """

    alpha: float
    min_mass: float
    decisions: tuple[Decision, ...]
    merges: tuple[Joined, ...]
    components: tuple[Component, ...]

    @property
    def warning(self) -> str:
        """What a reader should know about fragments; empty if no component is certain to be one."""
        doubtful = [component for component in self.components if component.fragments]
        if not doubtful:
            return ""
        bound = max(component.join_bound for component in doubtful)
        return (
            f"{len(doubtful)} of {len(self.components)} components have more rows than a single Gaussian "
            f"cluster of their anisotropy can have without being split, and alpha = {self.alpha:g} does not "
            f"join its halves again: the count may be one of fragments. An alpha above {bound:.2f} joins them"
        )

    def __str__(self) -> str:
        tables = (("decisions", self.decisions), ("merges", self.merges), ("components", self.components))
        parts = [f"alpha {self.alpha:g}, min_mass {self.min_mass:g}"]
        parts += [f"{len(rows)} {title}\n{_aligned(rows)}" for title, rows in tables if rows]
        return "\n\n".join(parts + [self.warning] * bool(self.warning))

    def to_json(self) -> str:
        """Return the report as one JSON object; numbers that are not finite become null."""
        return json.dumps(_finite(asdict(self) | {"warning": self.warning}), indent=1, allow_nan=False)


def explain(
    X: FloatArray,
    alpha: float,
    min_mass: float,
    *,
    delta: float = 1.0,
    em_steps: int = 15,
    order: str = "ratio",
    criterion: Criterion | None = None,
    unit: float = 1.0,
) -> SplitReport:
    """Fit ASM-S once more to rows X (n, d) and keep every decision on the way.

    Parameters
    ----------
    X : (n, d), n >= 1
        The rows of the fit, in its frame.
    alpha, min_mass, delta, em_steps, order, criterion
        Those of the fit.
    unit : float, > 0
        Length of one in the frame, in the table's units: spreads are reported in the latter.

    Returns
    -------
    SplitReport

    Notes
    -----
    Costs about two fits with the plain engine and one eigenproblem more per node. Nothing of it is done
    unless someone asks.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, for all quantities; the test for
    fragments joins their critical size and anisotropy bound.
    """
    tree = split_tree(X, min_mass, delta=delta, em_steps=em_steps, criterion=criterion)
    propose, covariance = criterion or propose_split, getattr(criterion, "covariance", "spherical")
    decisions = []
    for node, rows in enumerate(tree.rows):
        _, Y, squares = centred(X[rows])
        split, outcome = None, "no spread"
        if float(squares.sum()) / Y.size > NO_VARIANCE:
            split = propose(Y, squares, delta=delta, em_steps=em_steps)
            outcome = _outcome(split, len(rows), min_mass)
        size = critical_size_of(Y, covariance) if squares.any() else math.inf
        gain, penalty, mass = (split.gain, split.penalty, split.mass) if split else (math.nan,) * 3
        parent = int(tree.parents[node])
        decisions.append(Decision(node, parent, len(rows), anisotropy(Y), size, gain, penalty, mass, outcome))
    leaves = tree.leaves(min_mass)
    steps = list(merges(tree.leaf_moments(min_mass), alpha, order))
    joined = tuple(
        Joined(int(leaves[step.kept]), int(leaves[step.gone]), step.ratio, math.sqrt(step.variance) * unit)
        for step in steps
    )
    members = {int(leaf): [int(leaf)] for leaf in leaves}
    for step in joined:
        members[step.node] += members.pop(step.other)
    components = tuple(
        _component(X, tree, nodes, alpha, unit, criterion is None) for nodes in members.values()
    )
    return SplitReport(alpha, min_mass, tuple(decisions), joined, components)


def _outcome(split: Split | None, n: int, min_mass: float) -> str:
    """Name the first reason why a component is final, in the order in which the tree asks."""
    if n < 2 * min_mass:
        return "too few rows"
    if split is None or split.first.all() or not split.first.any():
        return "no two halves"
    if not split.pays:
        return "gain too small"
    return "split" if split.mass >= min_mass else "child too light"


def _component(
    X: FloatArray, tree: SplitTree, nodes: Sequence[int], alpha: float, unit: float, published: bool
) -> Component:
    """Describe the component merged from these leaves; only the published split is certain to cut it."""
    _, Y, squares = centred(X[np.concatenate([tree.rows[node] for node in nodes])])
    (n, d), r = Y.shape, anisotropy(Y)
    size, bound = critical_size(r, d), join_bound(r, d)
    spread = math.sqrt(float(squares.sum()) / Y.size)
    fragments = published and spread > 0 and n > size and alpha <= bound
    return Component(nodes[0], tuple(sorted(nodes)), n, spread * unit, r, size, bound, fragments)


def _aligned(rows: Sequence[Any]) -> str:
    """Lines of equal columns: the fields of the rows, with their names on top."""
    names = [field.name for field in fields(rows[0])]
    cells = [names] + [[_cell(getattr(row, name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
    )


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    """Return the value with None in place of every number that is not finite, at any depth."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
