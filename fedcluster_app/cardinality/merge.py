"""The merge path of ASM-S: components closer than alpha times the sum of their spreads become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcluster_app.cardinality.tree import Moments
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import BoolArray, FloatArray

#: Merging holds the ratios of all pairs in memory; this many leaves need 128 MB.
MOST_LEAVES = 4000


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
    if len(leaves.counts) > MOST_LEAVES:
        raise DataError(
            f"X: the split made {len(leaves.counts)} components and merging holds at most {MOST_LEAVES}; "
            "raise min_mass"
        )
    if order == "distance":
        return [_Merger(leaves, alpha).run(alpha) for alpha in alphas]
    merger = _Merger(leaves, None)
    return [merger.run(alpha) for alpha in alphas]


class _Merger:
    """Live components, and a key for every pair: the pair with the least key merges next.

    With ``reach`` given, the key is the distance of pairs whose ratio is below it; else it is the ratio.
    Every row's least key is kept, so that a merge only looks at the rows that it touches.
    """

    def __init__(self, leaves: Moments, reach: float | None) -> None:
        self.reach = reach
        self.counts, self.means = leaves.counts.copy(), leaves.means.copy()
        self.variances = leaves.variances.copy()
        self.alive: BoolArray = np.ones(len(self.counts), dtype=bool)
        self.keys = np.stack([self._keys_of(i) for i in range(len(self.counts))])
        self.least = self.keys.min(axis=1)

    def run(self, alpha: float) -> Moments:
        """Merge while a pair is below alpha, and return the survivors."""
        limit = alpha if self.reach is None else np.inf
        while self.least[i := int(self.least.argmin())] < limit:
            # Of equal keys the first row wins, and in it the first column: the smallest pair (i, j).
            self._merge(i, int(self.keys[i].argmin()))
        return Moments(self.counts[self.alive], self.means[self.alive], self.variances[self.alive])

    def _keys_of(self, i: int) -> FloatArray:
        """Keys (k,) of the pairs of component i; infinite for itself, the dead and pairs out of reach."""
        steps = self.means - self.means[i]
        distances = np.sqrt(np.einsum("ij,ij->i", steps, steps))
        spreads = np.sqrt(self.variances)
        # Coinciding means have ratio 0 even without spread; apart and without spread it is infinite.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(distances > 0, distances / (spreads + spreads[i]), 0.0)
        keys = ratios if self.reach is None else np.where(ratios < self.reach, distances, np.inf)
        keys[~self.alive] = np.inf
        keys[i] = np.inf
        return keys

    def _merge(self, i: int, j: int) -> None:
        """Put component j into component i, matching mean and variance, and renew the keys of i."""
        count = self.counts[i] + self.counts[j]
        wi, wj = self.counts[i] / count, self.counts[j] / count
        gap = self.means[j] - self.means[i]
        self.variances[i] = wi * self.variances[i] + wj * self.variances[j] + wi * wj * (gap @ gap) / len(gap)
        self.means[i] += wj * gap
        self.counts[i] = count
        self.alive[j] = False

        # Rows whose least key may rise; i is one of them, as j was its best partner.
        lost = self.alive & ((self.keys[:, i] == self.least) | (self.keys[:, j] == self.least))
        self.keys[j] = self.keys[:, j] = np.inf
        self.keys[i] = self.keys[:, i] = self._keys_of(i)
        self.least = np.minimum(self.least, self.keys[i])
        self.least[lost] = self.keys[lost].min(axis=1)
        self.least[j] = np.inf
