"""The split tree of ASM-S at speed: :mod:`~fedcluster_app.cardinality.tree`, many components at a time.

A split looks only at its own rows, so the order in which components are examined is free. Here the largest
waiting component goes first, together with all that have more than half its rows: their rows are padded to
one length and stacked, and every step of the split is one call for the whole stack. The small components,
nearly all of them, thus wait until they can be examined by the hundred. A large component is a stack of one.

Rows are never moved: a component is a stretch of one array of row numbers, and a split sorts its stretch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcluster_app.cardinality.split import NO_VARIANCE, SMALLEST_SHARE, VARIANCE_FLOOR
from fedcluster_app.cardinality.tree import Moments, SplitTree
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

#: Most entries of a stack of more than one component: 2 MB, so that the EM steps find it in the cache.
STACK_ENTRIES = 1 << 18
# Relative distance from the leading eigenvalue in inverse iteration.
_SHIFT = 1e-13


class _Segments(NamedTuple):
    """Components (b,) as stretches of the array of row numbers, with their depth and parent in the tree."""

    starts: IntArray
    counts: IntArray
    depths: IntArray
    parents: IntArray

    def at(self, which: IntArray | slice) -> _Segments:
        return _Segments(*(field[which] for field in self))

    def with_more(self, more: _Segments) -> _Segments:
        return _Segments(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


class _Stack(NamedTuple):
    """Rows of b components in the form that makes an EM step two products, with the components' moments.

    A row of the table (b, p, d + 2) is ``[y, ||y||^2, 1]`` with y centred, or all zero where it is padding.
    """

    table: FloatArray
    counts: IntArray
    variances: FloatArray


def batched_split_tree(
    X: FloatArray, min_mass: float, *, delta: float = 1.0, em_steps: int = 15
) -> SplitTree:
    """Split the rows of X until no split is accepted, as ``split_tree`` does but faster.

    Parameters
    ----------
    X, min_mass, delta, em_steps
        As in :func:`~fedcluster_app.cardinality.tree.split_tree`.

    Returns
    -------
    SplitTree
        The same tree; numbers may differ in the last digits, as sums run in another order. The row numbers
        of a leaf increase.

    Notes
    -----
    Cost as ``split_tree``, without its Python calls per component and step. Memory beside X: two copies of
    the rows of one component, or a few of a stack of 2 MB.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, split step of ASM-S, reconstructed as in
    ``split_tree``.
    """
    n, d = X.shape
    order = np.arange(n)
    zero = np.zeros(1, dtype=np.int64)
    waiting = _Segments(zero, zero + n, zero, zero - 1)
    seen = waiting.at(slice(0))
    found: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    while len(waiting.counts):
        batch, waiting = _next_batch(waiting, d)
        places, inside = _places(batch)
        means, stack = _stack(X, order[places], inside, batch.counts)
        masses, first = _split(stack, min_mass, delta, em_steps)
        found.append((masses, means, stack.variances))
        waiting = waiting.with_more(_divide(order, batch, places, first, masses > 0, len(seen.counts)))
        seen = seen.with_more(batch)
    masses, means, variances = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # A component and its child 1 start at the same place, and the parent comes first.
    depth_first = np.lexsort((seen.depths, seen.starts))
    number = np.argsort(depth_first)
    nodes = seen.at(depth_first)
    return SplitTree(
        parents=np.where(nodes.parents < 0, -1, number[nodes.parents]),
        masses=masses[depth_first],
        moments=Moments(nodes.counts.astype(np.float64), means[depth_first], variances[depth_first]),
        rows=tuple(order[i : i + k] for i, k in zip(nodes.starts, nodes.counts, strict=True)),
    )


def _next_batch(waiting: _Segments, d: int) -> tuple[_Segments, _Segments]:
    """Take the largest component and those of more than half its rows, into a stack; and the rest."""
    largest_first = np.argsort(-waiting.counts, kind="stable")
    counts = waiting.counts[largest_first]
    largest = int(counts[0])
    alike = int(np.searchsorted(-counts, -largest / 2))
    taken = min(alike, max(1, STACK_ENTRIES // (largest * d)))
    return waiting.at(largest_first[:taken]), waiting.at(largest_first[taken:])


def _places(batch: _Segments) -> tuple[IntArray, BoolArray]:
    """Return positions (b, p) in the row numbers, and which are no padding; that repeats the first row."""
    steps = np.arange(batch.counts[0])
    inside = steps < batch.counts[:, None]
    return batch.starts[:, None] + np.where(inside, steps, 0), inside


def _stack(X: FloatArray, rows: IntArray, inside: BoolArray, counts: IntArray) -> tuple[FloatArray, _Stack]:
    """Means (b, d) and rows of components."""
    d = X.shape[1]
    table: FloatArray = np.empty((*rows.shape, d + 2))
    Y = table[:, :, :d]
    # Subtracting a row first makes the variance of equal rows exactly zero, and padding adds nothing.
    origins = X[rows[:, 0]]
    np.subtract(X.take(rows, axis=0), origins[:, None], out=Y)
    offsets = Y.sum(axis=1) / counts[:, None]
    Y -= offsets[:, None]
    table[:, :, d] = np.vecdot(Y, Y)
    table[:, :, d + 1] = 1.0
    if counts[-1] < rows.shape[1]:
        table[~inside] = 0.0
    variances = table[:, :, d].sum(axis=1) / (counts * d)
    return origins + offsets, _Stack(table, counts, variances)


def _split(stack: _Stack, min_mass: float, delta: float, em_steps: int) -> tuple[FloatArray, BoolArray]:
    """Mass of the lighter child (b,), 0 where no split is accepted, and the rows (b, p) of child 1."""
    masses = np.zeros(len(stack.counts))
    first = np.zeros(stack.table.shape[:2], dtype=bool)
    large = (stack.counts >= 2 * min_mass) & (stack.variances > NO_VARIANCE)
    if large.any():
        if not large.all():
            stack = _Stack(stack.table[large], stack.counts[large], stack.variances[large])
        with np.errstate(over="ignore"):
            masses[large], first[large] = _accepted(stack, min_mass, delta, em_steps)
    return masses, first


def _accepted(stack: _Stack, min_mass: float, delta: float, em_steps: int) -> tuple[FloatArray, BoolArray]:
    """:func:`_split` of components that are large enough and have a variance.

    For halves of masses N, variances v and means ``a/N_1``, ``-a/N_2`` the log-odds of a row for half 2 are
    ``-(1/(N_1 v_1) + 1/(N_2 v_2)) a.y + (1/(2 v_1) - 1/(2 v_2)) ||y||^2 + c``: the product of a row of the
    table and a vector. The sums of an M step, ``sum g y``, ``sum g ||y||^2`` and ``sum g``, are the product
    of the responsibilities g of half 1 and the table.
    """
    counts, variances = stack.counts.astype(np.float64), stack.variances
    d = stack.table.shape[2] - 2
    table, odds_of_row = stack.table, _start(stack, delta)
    least, floors = SMALLEST_SHARE * counts, VARIANCE_FLOOR * variances
    lightest = np.tile(counts, (2, 1))
    whole = np.zeros_like(odds_of_row)
    whole[:, -2], whole[:, -1] = counts * variances * d, counts
    sums = np.empty((2, *whole.shape))
    axes, squares, masses = sums[0, :, :-2], sums[:, :, -2], sums[:, :, -1]
    for _ in range(em_steps):
        g = (table @ odds_of_row[:, :, None])[:, :, 0]
        np.exp(g, out=g)
        g += 1.0
        np.reciprocal(g, out=g)
        sums[0] = (g[:, None] @ table)[:, 0]
        np.subtract(whole, sums[0], out=sums[1])
        np.minimum(lightest, masses, out=lightest)
        # Of no effect on the living; the dead go on with finite numbers.
        np.maximum(masses, least, out=masses)
        lengths = np.vecdot(axes, axes) / masses
        spreads = np.maximum((squares - lengths) / (masses * d), floors)
        halved = 0.5 / spreads
        reaches = halved / masses
        logs = np.log(masses) - d / 2 * np.log(spreads) - lengths * reaches
        np.multiply(axes, (-2.0 * (reaches[0] + reaches[1]))[:, None], out=odds_of_row[:, :-2])
        np.subtract(halved[0], halved[1], out=odds_of_row[:, -2])
        np.subtract(logs[1], logs[0], out=odds_of_row[:, -1])
    gains = -d / 2 * (masses * np.log(spreads / variances)).sum(axis=0)
    # The zeros of the padding are not below zero.
    first = (table @ odds_of_row[:, :, None])[:, :, 0] < 0
    sizes = first.sum(axis=1)
    accepted = (lightest.min(axis=0) >= least) & (gains > (d + 2) / 2 * np.log(counts))
    accepted &= (masses.min(axis=0) >= min_mass) & (sizes > 0) & (sizes < counts)
    return np.where(accepted, masses.min(axis=0), 0.0), first


def _start(stack: _Stack, delta: float) -> FloatArray:
    """Log-odds of half 2 as vectors (b, d + 2), for halves that lie on the leading axis."""
    Y, (_, p, width) = stack.table[:, :, :-2], stack.table.shape
    total = stack.counts * stack.variances * (width - 2)
    turned = Y.transpose(0, 2, 1)
    # In the smaller of the two spaces: no matrix of the features is needed where there are fewer rows.
    small = Y @ turned if p < width - 2 else turned @ Y
    shares, axes = _leading(small / total[:, None, None])
    if p < width - 2:
        axes = (axes[:, None] @ Y)[:, 0]
        axes /= np.sqrt(np.vecdot(axes, axes))[:, None]
    # The sign is fixed by the entry of largest magnitude, as in the plain tree.
    peaks = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)[:, 0]
    steps = 2 * delta * np.sqrt(shares * total / stack.counts) / stack.variances
    odds_of_row = np.zeros((len(total), width))
    odds_of_row[:, :-2] = np.where(peaks > 0, -steps, steps)[:, None] * axes
    return odds_of_row


def _leading(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Largest eigenvalue (b,) and its unit eigenvector (b, m) of symmetric matrices (b, m, m) of trace 1.

    Inverse iteration from the eigenvalue takes half the time of all eigenvectors. Its shift is small, so that
    two steps are exact, but far above the rounding of the eigenvalue, so that no matrix is singular.
    """
    m = matrices.shape[1]
    values = np.linalg.eigvalsh(matrices)[:, -1]
    shifted = (values * (1 + _SHIFT))[:, None, None] * np.eye(m) - matrices
    vectors = np.broadcast_to(np.cos(np.arange(m)), (len(values), m))
    for _ in range(2):
        vectors = np.linalg.solve(shifted, vectors[:, :, None])[:, :, 0]
        vectors /= np.sqrt(np.vecdot(vectors, vectors))[:, None]
    return np.asarray(values, np.float64), np.asarray(vectors, np.float64)


def _divide(
    order: IntArray, batch: _Segments, places: IntArray, first: BoolArray, split: BoolArray, numbered: int
) -> _Segments:
    """Sort the stretches of the split components in place, child 1 first, and return the children."""
    nodes = batch.at(np.flatnonzero(split))
    places, first = places[split], first[split]
    side = np.where(first, 0, 1).astype(np.uint8)
    side[np.arange(places.shape[1]) >= nodes.counts[:, None]] = 2
    sources = np.take_along_axis(places, np.argsort(side, axis=1, kind="stable"), axis=1)
    order[places[side < 2]] = order[sources[side < 2]]
    sizes = first.sum(axis=1)
    return _Segments(
        np.concatenate([nodes.starts, nodes.starts + sizes]),
        np.concatenate([sizes, nodes.counts - sizes]),
        np.tile(nodes.depths + 1, 2),
        np.tile(numbered + np.flatnonzero(split), 2),
    )
