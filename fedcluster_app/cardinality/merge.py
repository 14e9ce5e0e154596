"""The merge path of ASM-S: components closer than alpha times the sum of their spreads become one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

#: Merging holds the ratios of all pairs in memory; this many leaves need 128 MB.
MOST_LEAVES = 4000
#: Entries of the differences of means that are held at a time: 2 MB.
_BLOCK = 1 << 18


def merge_path(leaves: Moments, alphas: Sequence[float], order: str = "ratio") -> list[Moments]:
    """Components that are left for each alpha.

    The ratio of two components is ``||m_i - m_j|| / (s_i + s_j)``. In ``ratio`` order the pair with the least
    ratio merges first, while that is below alpha: the sequence does not look at alpha, so every alpha goes on
    from where the next smaller one stopped, and the whole grid is one path. (The ratio of the next merge may
    be *lower* than that of the last; the path of an alpha ends before the first ratio that reaches it.)
    In ``distance`` order the nearest of the pairs with a ratio below alpha merges first; this sequence
    depends on alpha and starts from the leaves each time.

    Parameters
    ----------
    leaves : Moments
        k components in leaf order.
    alphas : sequence of float, > 0, increasing
        Merge ratios.
    order : {"ratio", "distance"}
        Which pair merges first.

    Returns
    -------
    list of Moments
        One per alpha; survivors in leaf order, a merged component in the place of its first leaf.

    Raises
    ------
    DataError
        If there are more than 4000 leaves.

    Notes
    -----
    Memory k^2; cost about k^2 d, and k^3 in the worst case.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, merge step of ASM-S. Reconstructed: the
    order of merges, and moment matching for the merged component.
    """
    if order == "distance":
        return [Merger(leaves, alpha).run(alpha) for alpha in alphas]
    merger = Merger(leaves)
    return [merger.run(alpha) for alpha in alphas]


class Merger:
    """Live components, and a key for every pair: the pair with the least key merges next.

    With ``reach`` given, the key is the distance of pairs whose ratio is below it; else it is the ratio.
    Every row's least key is kept, so that a merge only looks at the rows that it touches. A component that
    has become part of another stays in its place, infinitely far away.
    """

    def __init__(self, leaves: Moments, reach: float | None = None) -> None:
        if len(leaves.counts) > MOST_LEAVES:
            raise DataError(
                f"X: the split made {len(leaves.counts)} components and merging holds at most {MOST_LEAVES}; "
                f"raise min_mass, for example to {math.ceil(leaves.counts.sum() / MOST_LEAVES)}"
            )
        self.reach = reach
        self.counts, self.means = leaves.counts.copy(), leaves.means.copy()
        self.variances, self.spreads = leaves.variances.copy(), np.sqrt(leaves.variances)
        self.alive: BoolArray = np.ones(len(self.counts), dtype=bool)
        k, d = self.means.shape
        self.keys = np.empty((k, k))
        block = max(1, _BLOCK // (k * d))
        for start in range(0, k, block):
            self.keys[start : start + block] = self._keys_of(np.arange(start, min(start + block, k)))
        self.least = self.keys.min(axis=1)

    def closest(self) -> tuple[int, int, float]:
        """Pair (i, j) with the least key, i < j, and the key: infinite when there is no pair."""
        # Of equal keys the first row wins, and in it the first column: the smallest pair.
        i = int(self.least.argmin())
        return i, int(self.keys[i].argmin()), float(self.least[i])

    def run(self, alpha: float) -> Moments:
        """Merge while a pair is below alpha, and return the survivors."""
        limit = alpha if self.reach is None else np.inf
        i, j, key = self.closest()
        while key < limit:
            self.merge(i, j)
            i, j, key = self.closest()
        return self.survivors()

    def survivors(self) -> Moments:
        """Components that are left, in leaf order."""
        return Moments(self.counts[self.alive], self.means[self.alive], self.variances[self.alive])

    def merge(self, i: int, j: int) -> None:
        """Put component j into component i, matching mean and variance, and renew the keys of i."""
        count = self.counts[i] + self.counts[j]
        wi, wj = self.counts[i] / count, self.counts[j] / count
        gap = self.means[j] - self.means[i]
        self.variances[i] = wi * self.variances[i] + wj * self.variances[j] + wi * wj * (gap @ gap) / len(gap)
        self.spreads[i] = np.sqrt(self.variances[i])
        self.means[i] += wj * gap
        self.counts[i] = count
        self.alive[j], self.means[j] = False, np.inf

        keys = self._keys_of(np.array([i]))[0]
        # Rows whose least key rises: their best partner was i or j, and is no longer. Row i is one of them.
        lost = ((self.keys[i] == self.least) | (self.keys[j] == self.least)) & (keys > self.least)
        self.keys[i] = self.keys[:, i] = keys
        self.keys[j] = self.keys[:, j] = np.inf
        np.minimum(self.least, keys, out=self.least)
        self.least[lost] = self.keys[lost].min(axis=1)
        self.least[j] = np.inf

    def _keys_of(self, rows: IntArray) -> FloatArray:
        """Keys (b, k) of live components: infinite for themselves, the dead and those out of reach."""
        steps = self.means - self.means[rows, None]
        distances = np.sqrt(np.vecdot(steps, steps))
        # Coinciding means have ratio 0 even without spread; apart and without spread it is infinite.
        with np.errstate(divide="ignore", invalid="ignore"):
            keys: FloatArray = distances / (self.spreads + self.spreads[rows, None])
        keys[distances == 0] = 0.0
        if self.reach is not None:
            keys = np.where(keys < self.reach, distances, np.inf)
        keys[np.arange(len(rows)), rows] = np.inf
        return keys
