"""Graphs made by rule: ring, complete, random, blocks, nearest sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations, pairwise

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.graph import Edge, Graph
from fedcluster_app.mixtures.types import BoolArray, FloatArray


def ring(names: Collection[str]) -> Graph:
    """Every site with the next in order of name, the last with the first; two sites share one edge."""
    return _unweighted(names, _circle(sorted(names)))


def complete(names: Collection[str]) -> Graph:
    """Every site with every other."""
    return _unweighted(names, combinations(sorted(names), 2))


def erdos_renyi(names: Collection[str], p: float, rng: np.random.Generator) -> Graph:
    """Each pair of sites with probability `p`, and the ring, so that the graph is connected.

    Parameters
    ----------
    names : collection of str
    p : float in [0, 1]
    rng : numpy.random.Generator

    Raises
    ------
    ConfigError
        If `p` is not a probability.

    Notes
    -----
    **Source**: Federated Soft Clustering via Generalized Total Variation Minimization, arXiv:2609.19202
    (n = 10, p = 0.6).
    """
    ordered = sorted(names)
    n = len(ordered)
    drawn = _drawn(ordered, np.full((n, n), _probability("p", p)), rng)
    return _unweighted(ordered, [*drawn, *_circle(ordered)])


def block_model(
    blocks: Sequence[Sequence[str]], p_in: float, p_out: float, rng: np.random.Generator
) -> Graph:
    """Stochastic block model, and inside each block a chain in order of name.

    Parameters
    ----------
    blocks : sequence of sequences of str
        Sites of each block; every site in one block.
    p_in, p_out : float in [0, 1]
        Probability of an edge inside a block and between blocks. With ``p_out=0`` the blocks are islands.
    rng : numpy.random.Generator

    Raises
    ------
    ConfigError
        If a probability is none, or a site is in two blocks.

    Notes
    -----
    **Source**: arXiv:2609.19202 (3 blocks of 5, p_in = 0.8, p_out swept). The draws depend on the names and
    on which of them share a block, not on the order of the blocks.
    """
    block_of = {name: i for i, block in enumerate(blocks) for name in block}
    names = sorted(name for block in blocks for name in block)
    member = np.array([block_of[name] for name in names])
    together = member[:, None] == member
    odds = np.where(together, _probability("p_in", p_in), _probability("p_out", p_out))
    chains = [edge for block in blocks for edge in pairwise(sorted(block))]
    return _unweighted(names, [*_drawn(names, odds, rng), *chains])


def nearest(names: Sequence[str], distances: FloatArray, k: int) -> Graph:
    """Every site with its k nearest; two sites are neighbours if either chose the other.

    Parameters
    ----------
    names : sequence of str
    distances : array of shape (n, n)
        Symmetric, in the order of `names`; for example the squared maximum mean discrepancies between local
        fits; finite. The diagonal is not read. The first in order of name wins a tie.
    k : int, 1 <= k < n; with one site there is nothing to choose

    Raises
    ------
    ConfigError
        If `k` is out of range, or the distances have another shape or hold NaN or infinity.
    """
    n = len(names)
    if distances.shape != (n, n):
        raise ConfigError(f"distances: expected shape ({n}, {n}), got {distances.shape}")
    if not np.isfinite(distances[~np.eye(n, dtype=bool)]).all():
        raise ConfigError("distances: expected finite numbers off the diagonal, got NaN or infinity")
    if n > 1 and not 1 <= k < n:
        raise ConfigError(f"nearest sites: expected 1 to {n - 1} of {n} sites, got {k}")
    order = np.argsort(names)
    ordered = [names[i] for i in order]
    far = distances[np.ix_(order, order)].astype(np.float64)
    np.fill_diagonal(far, np.inf)
    chosen = np.argsort(far, axis=1, kind="stable")[:, :k] if n > 1 else np.empty((1, 0), dtype=np.int64)
    return _unweighted(ordered, ((ordered[i], ordered[j]) for i, row in enumerate(chosen) for j in row))


def _unweighted(names: Collection[str], edges: Iterable[Edge]) -> Graph:
    """Graph with all weights 1, in which edges that two rules gave count once."""
    unique = sorted({(min(edge), max(edge)) for edge in edges})
    return Graph(tuple(names), tuple(unique), (1.0,) * len(unique))


def _circle(ordered: Sequence[str]) -> list[Edge]:
    if len(ordered) < 2:
        return []
    return [*pairwise(ordered), (ordered[-1], ordered[0])]


def _drawn(ordered: Sequence[str], odds: FloatArray, rng: np.random.Generator) -> list[Edge]:
    """Pairs that a uniform number each picks, with probability `odds` (n, n)."""
    hit: BoolArray = np.triu(rng.random(odds.shape) < odds, 1)
    return [(ordered[i], ordered[j]) for i, j in np.argwhere(hit)]


def _probability(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}: expected a probability from 0 to 1, got {value!r}")
    return value
