"""The merges of ASM-S one by one, and what is left after each: every count the leaves can be merged to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fedcluster_app.cardinality.merge import Merger
from fedcluster_app.cardinality.tree import Moments


class Merge(NamedTuple):
    """Component `gone` becomes part of component `kept` (places of leaves, kept < gone).

    `ratio` is their separation, `variance` the per-dimension variance of what they become.
    """

    kept: int
    gone: int
    ratio: float
    variance: float


def merges(leaves: Moments, alpha: float = math.inf, order: str = "ratio") -> Iterator[Merge]:
    """Merge leaves as :func:`~fedcluster_app.cardinality.merge.merge_path` does, a merge at a time.

    Parameters
    ----------
    leaves : Moments
        k components in leaf order.
    alpha : float, > 0
        The merges end before the first ratio that reaches alpha. Without it they end at one component, or
        when all that is left has no spread and lies apart.
    order : {"ratio", "distance"}

    Yields
    ------
    Merge
    """
    merger = Merger(leaves) if order == "ratio" else Merger(leaves, alpha)
    limit = alpha if order == "ratio" else math.inf
    i, j, key = merger.closest()
    while key < limit:
        gap = math.dist(merger.means[i], merger.means[j])
        spreads = float(merger.spreads[i] + merger.spreads[j])
        merger.merge(i, j)
        yield Merge(i, j, gap / spreads if gap else 0.0, float(merger.variances[i]))
        i, j, key = merger.closest()


def cuts(leaves: Moments, most: int) -> list[Moments]:
    """Components after each merge in ratio order, from at most `most` of them to the last: the dendrogram.

    Where more than `most` are left that no merge can join, as they have no spread and lie apart, these alone.
    """
    merger, found = Merger(leaves), []
    while True:
        if merger.alive.sum() <= most:
            found.append(merger.survivors())
        i, j, key = merger.closest()
        if key == math.inf:
            return found or [merger.survivors()]
        merger.merge(i, j)
