"""One numbering of components for all sites, by what neighbours have accepted of each other."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fedcluster_app.gtvmin.identity import Identity, numbered
from fedcluster_app.mixtures.types import FloatArray

Node: TypeAlias = tuple[str, int]
# Mean acceptance over all pairs of two groups from which they are one cluster.
_MOST = 0.5


def identify(
    attachments: Mapping[str, Mapping[str, FloatArray]], masses: Mapping[str, FloatArray]
) -> Identity:
    """Give components that neighbours accept as each other's the same number.

    Parameters
    ----------
    attachments : mapping of site name to mapping of neighbour to array of shape (k of the neighbour, k)
        Probability that the neighbour's component is the site's; NaN in rows of components that the neighbour
        withheld. A site without neighbours may be absent.
    masses : mapping of site name to array of shape (k,)
        Rows behind every component, for the sizes by which clusters are numbered.

    Returns
    -------
    Identity
        The largest cluster is 0. Two components of one site may be one cluster: pieces of what neighbours
        see as one. Independent of the order of sites.

    Notes
    -----
    **Source**: our own. Average linkage over the pairs that have evidence, cut at one half: two groups become
    one cluster while most pairs of them, one component each at neighbouring sites, are accepted. A single
    wrong match is outvoted, as it is not where chains of matches are followed; components of one site, which
    keeps them apart, are a pair that is not accepted. Of groups that no edge joins nothing is known, and they
    stay apart. Cost O(p log p) for p pairs, but for groups with many neighbours.
    """
    pairs = _evidence(attachments, masses)
    nodes = sorted((site, c) for site in masses for c in range(len(masses[site])))
    groups = _linked(nodes, pairs)
    numbers = {root: number for number, root in enumerate(sorted(set(groups.values())))}
    found = np.array([numbers[groups[node]] for node in nodes], dtype=np.int64)
    rows = np.array([masses[site][c] for site, c in nodes])
    labels, sizes = numbered(found, rows)
    ends = np.cumsum([len(masses[site]) for site in sorted(masses)])[:-1]
    return Identity(dict(zip(sorted(masses), np.split(labels, ends), strict=True)), sizes)


def _evidence(
    attachments: Mapping[str, Mapping[str, FloatArray]], masses: Mapping[str, FloatArray]
) -> dict[frozenset[Node], tuple[float, float]]:
    """Add up acceptance, and count judgements, for every pair of components."""
    pairs: dict[frozenset[Node], tuple[float, float]] = {}
    for site, tables in attachments.items():
        for other, table in tables.items():
            if other not in masses:
                continue
            for there, here in np.argwhere(np.isfinite(table)).tolist():
                pair = frozenset(((site, here), (other, there)))
                total, number = pairs.get(pair, (0.0, 0.0))
                pairs[pair] = total + float(table[there, here]), number + 1.0
    means = {pair: (total / number, 1.0) for pair, (total, number) in pairs.items()}
    for site, own in masses.items():
        apart = [(site, c) for c in range(len(own))]
        means |= {frozenset((a, b)): (0.0, 1.0) for i, a in enumerate(apart) for b in apart[:i]}
    return means


def _linked(nodes: list[Node], pairs: Mapping[frozenset[Node], tuple[float, float]]) -> dict[Node, Node]:
    """Group of every node, named by its first member."""
    links: dict[Node, dict[Node, tuple[float, float]]] = {node: {} for node in nodes}
    for pair, evidence in pairs.items():
        a, b = sorted(pair)
        links[a][b] = links[b][a] = evidence
    group = {node: node for node in nodes}
    members = {node: [node] for node in nodes}
    heap = [(-total / number, a, b) for a in links for b, (total, number) in links[a].items() if a < b]
    heapq.heapify(heap)
    while heap:
        height, a, b = heapq.heappop(heap)
        if -height <= _MOST:
            break
        total, number = links.get(a, {}).get(b, (0.0, 1.0))
        if -total / number != height:
            continue  # a group of before
        for other, (more, further) in links.pop(b).items():
            del links[other][b]
            if other == a:
                continue
            total, number = links[a].get(other, (0.0, 0.0))
            links[a][other] = links[other][a] = total + more, number + further
            first, second = sorted((a, other))
            heapq.heappush(heap, (-(total + more) / (number + further), first, second))
        members[a] += members.pop(b)
    for first, all_of_it in members.items():
        group |= dict.fromkeys(all_of_it, first)
    return group
