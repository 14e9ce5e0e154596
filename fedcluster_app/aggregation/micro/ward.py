"""Ward's agglomeration of weighted points, and super-cells where there are too many points for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.mixtures.kmeans import kmeans_plus_plus, lloyd
from fedcluster_app.mixtures.types import FloatArray, IntArray

SUPERCELL_STEPS = 5


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """The order in which points are merged.

    Attributes
    ----------
    into : (M,) int array
        The point that each point is absorbed by; the last one is left and has its own number.
    rank : (M,) int array
        When: 0 is the cheapest merge; M - 1 for the point that is left.
    costs : (M - 1,) array
        Growth of the sum of squares at each merge, ascending.
    """

    into: IntArray
    rank: IntArray
    costs: FloatArray

    def cut(self, k: int) -> IntArray:
        """Return the group of every point (M,) when k are left, numbered by first appearance."""
        points = len(self.into)
        root = np.where(self.rank < points - k, self.into, np.arange(points))
        while not np.array_equal(above := root[root], root):
            root = above
        first, numbers = np.unique(root, return_index=True, return_inverse=True)[1:]
        labels: IntArray = np.argsort(np.argsort(first))[numbers]
        return labels


def merge_list(means: FloatArray, masses: FloatArray) -> Dendrogram:
    """Merge points (M, q) of given masses (M,), the two whose union costs least first.

    Notes
    -----
    **Source**: Ward (1963): the cost is c_a c_b / (c_a + c_b) |m_a - m_b|². The nearest-neighbour chain of
    Murtagh (1983) finds the same merges, here from centroids, so that no matrix of distances is kept. Cost
    O(M² q) time, O(M q) memory.
    """
    points = len(masses)
    means, masses, height = means.copy(), masses.astype(np.float64), np.zeros(points)
    gone = np.zeros(points)
    into, costs, order = np.arange(points), np.full(points, np.inf), np.full(points, points)
    chain: list[int] = []
    for merge in range(points - 1):
        if not chain:
            chain = [int(np.argmin(gone))]
        while True:
            top = chain[-1]
            difference = means - means[top]
            cost = np.einsum("ij,ij->i", difference, difference)
            cost *= masses * masses[top] / (masses + masses[top])
            cost += gone
            cost[top] = np.inf
            near = int(np.argmin(cost))
            if len(chain) > 1 and cost[chain[-2]] <= cost[near]:
                near = chain[-2]
                break
            chain.append(near)
        chain = chain[:-2]
        kept, lost = min(top, near), max(top, near)
        # Rounding must not let a union come before its parts.
        costs[lost] = height[kept] = max(cost[near], height[kept], height[lost])
        into[lost], order[lost] = kept, merge
        total = masses[kept] + masses[lost]
        means[kept] += masses[lost] / total * (means[lost] - means[kept])
        masses[kept], gone[lost] = total, np.inf
    rank = np.empty(points, dtype=np.int64)
    rank[np.lexsort((order, costs))] = np.arange(points)
    return Dendrogram(into, rank, np.sort(costs)[:-1])


def supercells(cells: Cells, most: int, rng: np.random.Generator) -> IntArray:
    """Return the group (M,) of every micro-cluster, at most ``most`` groups from 0.

    A few steps of k-means, weighted by rows; cost O(M most q), linear in M.
    """
    k = min(most, cells.n_cells)
    centers = kmeans_plus_plus(cells.means, k, rng, weights=cells.counts)
    found = lloyd(cells.means, centers, weights=cells.counts, max_iter=SUPERCELL_STEPS)
    labels: IntArray = np.unique(found.labels, return_inverse=True)[1]
    return labels
