"""Super-clusters: single linkage in which no cluster may hold two components of one site."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedcluster_app.aggregation.scan import Pairs
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray, IntArray

PairOrder = Literal["nearest", "released"]

_BLOCK = 1 << 16  # pairs held as Python integers at once


class Clusters:
    """Disjoint sets of components, at most one component of a site in each.

    Merging the sets of touching pairs, unless both hold a common site, gives the same groups as the label
    rules of the authors' code (join, merge, or leave alone) for the same order of pairs. A refused pair
    stays refused, since sets only grow. So the number of clusters never falls below the largest number of
    components at a site.

    Parameters
    ----------
    site : (m,) int array
        Site of each component, >= 0.
    """

    def __init__(self, site: IntArray) -> None:
        self._cluster = list(range(len(site)))
        self._members = [[i] for i in self._cluster]
        self._sites = [1 << s for s in site.tolist()]  # sets as bits: a common site is one `&`
        self.count = len(site)
        self.floor = int(np.bincount(site).max(initial=0))

    def may_unite(self, i: int, j: int) -> bool:
        """Whether the clusters of two components have no site in common (so they are not one cluster)."""
        return not self._sites[self._cluster[i]] & self._sites[self._cluster[j]]

    def unite(self, i: int, j: int) -> tuple[int, int]:
        """Unite the clusters of two components that may be united; return (kept, absorbed) cluster."""
        kept, gone = self._cluster[i], self._cluster[j]
        if len(self._members[kept]) < len(self._members[gone]):
            kept, gone = gone, kept
        for member in self._members[gone]:
            self._cluster[member] = kept
        self._members[kept] += self._members[gone]
        self._sites[kept] |= self._sites[gone]
        self.count -= 1
        return kept, gone

    def labels(self) -> IntArray:
        """Cluster of every component, (m,), numbered by first appearance."""
        number = {cluster: position for position, cluster in enumerate(dict.fromkeys(self._cluster))}
        return np.array([number[cluster] for cluster in self._cluster], dtype=np.int64)


def pair_order(factors: FloatArray, order: PairOrder) -> IntArray:
    """Positions of the pairs in the order in which they are offered for merging.

    Parameters
    ----------
    factors : (p,) array
        Factor by which all balls must grow (or may shrink) for the pair to touch just so.
    order : {"nearest", "released"}
        Ascending factor, ties by index, so that growing balls only ever add to the list; or by index alone,
        as the authors' code does, where early wrong merges veto later right ones.

    Returns
    -------
    positions : (p,) int array

    Raises
    ------
    ConfigError
        If `order` is unknown.
    """
    if order == "nearest":
        return np.argsort(factors, kind="stable")
    if order == "released":
        return np.arange(len(factors))
    raise ConfigError(f"pair order: expected nearest or released, got {order!r}")


def merging_pairs(pairs: Pairs, positions: IntArray, site: IntArray) -> IntArray:
    """Those of the offered pairs that really merge two clusters, in order.

    Parameters
    ----------
    pairs : Pairs
        Candidate pairs.
    positions : (q,) int array
        The pairs to offer, in this order.
    site : (m,) int array
        Site of each component.

    Returns
    -------
    positions : (c,) int array
        c = m - number of clusters.

    Notes
    -----
    Cost O(q + m log m); stops as soon as there are as many clusters as components at the largest site.
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, super-clusters. Deviation: see `Clusters`,
    `pair_order`.
    """
    clusters = Clusters(site)
    merged: list[int] = []
    for block in np.split(positions, range(_BLOCK, len(positions), _BLOCK)):
        ends = zip(pairs.first[block].tolist(), pairs.second[block].tolist(), strict=True)
        for position, (i, j) in zip(block.tolist(), ends, strict=True):
            if clusters.count == clusters.floor:
                break
            if clusters.may_unite(i, j):
                clusters.unite(i, j)
                merged.append(position)
    return np.array(merged, dtype=np.int64)


def cluster_labels(first: IntArray, second: IntArray, site: IntArray) -> IntArray:
    """Cluster of every component, (m,), after merges from `merging_pairs`, numbered by first appearance."""
    clusters = Clusters(site)
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        clusters.unite(i, j)
    return clusters.labels()
