"""K_hat as a function of the final radius factor v, and the choice of v by the spherical BIC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcluster_app.aggregation.grouping import Clusters
from fedcluster_app.mixtures.types import FloatArray, IntArray

_VARIANCE_FLOOR = 1e-9


@dataclass(frozen=True, eq=False)
class Path:
    """Every grouping that some final radius factor gives, along the one nearest-first merge list.

    Parameters
    ----------
    v : (m,) array
        Ascending factors at which the grouping changes; starts at 0.
    k_hat : (m,) int array
        Clusters from this factor on, up to the next; never rises.
    bic : (m,) array
        Score of the grouping, larger is better; NaN where no site sent statistics.
    """

    v: FloatArray
    k_hat: IntArray
    bic: FloatArray

    def best(self) -> float:
        """Return the factor with the largest score; NaN without statistics.

        Of equal scores the largest factor: joining a component without rows to a cluster changes no score,
        and leaves no cluster without rows behind.
        """
        if np.isnan(self.bic).all():
            return float("nan")
        best = np.nanmax(self.bic)
        return float(self.v[np.flatnonzero(self.bic >= best - 1e-12 * abs(best))[-1]])


def spherical_bic(rows: FloatArray, scatters: FloatArray, d: int) -> float:
    """BIC of a hard clustering with one spherical variance per cluster, as 2 log-likelihood minus penalty.

    Up to a constant: -d sum n log(s / (d n)) - d N + 2 sum n log(n / N) - K (d + 2) log N, with s / (d n)
    floored at 1e-9 and clusters without rows left out.

    Parameters
    ----------
    rows : (k,) array
        n, rows per cluster.
    scatters : (k,) array
        s, summed squared distances to the cluster's centre.
    d : int
        Features.

    Returns
    -------
    score : float
        Larger is better; NaN when there are no rows.
    """
    filled = rows > 0
    if not filled.any():
        return float("nan")
    n, s = rows[filled], scatters[filled]
    total = n.sum()
    variance = np.maximum(s / (d * n), _VARIANCE_FLOOR)
    fit = -d * (n * np.log(variance)).sum() - d * total + 2 * (n * np.log(n / total)).sum()
    return float(fit - len(n) * (d + 2) * np.log(total))


def merge_path(
    factors: FloatArray,
    first: IntArray,
    second: IntArray,
    site: IntArray,
    counts: IntArray,
    centers: FloatArray,
    scatters: FloatArray,
) -> Path:
    """K_hat and BIC at every cut of a nearest-first merge list.

    Parameters
    ----------
    factors, first, second : (c,) arrays
        The merges in order: factor at which the pair touches, and its two components.
    site : (m,) int array
        Site of each component.
    counts, centers, scatters : (m,), (m, d), (m,) arrays
        Rows, mean, and mean squared distance to it, per component.

    Returns
    -------
    Path

    Notes
    -----
    Cost O(c m). **Source**: ours; the paper leaves v to cross-validation over whole federations.
    """
    scores = _scores(first, second, site, counts, centers, scatters)
    cuts = np.unique(np.append(0.0, factors))
    merges = np.searchsorted(factors, cuts, side="right")
    return Path(v=cuts, k_hat=len(site) - merges, bic=scores[merges])


def _scores(
    first: IntArray,
    second: IntArray,
    site: IntArray,
    counts: IntArray,
    centers: FloatArray,
    scatters: FloatArray,
) -> FloatArray:
    """BIC after 0, 1, ..., c merges; moments are merged pairwise, never from raw squares."""
    d = centers.shape[1]
    rows = counts.astype(np.float64)
    means = centers.copy()
    within = rows * scatters
    clusters = Clusters(site)
    scores = [spherical_bic(rows, within, d)]
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        kept, gone = clusters.unite(i, j)
        gap = means[gone] - means[kept]
        share = rows[gone] / max(rows[kept] + rows[gone], 1.0)
        within[kept] += within[gone] + rows[kept] * share * (gap @ gap)
        means[kept] += share * gap
        rows[kept] += rows[gone]
        rows[gone] = within[gone] = 0.0
        scores.append(spherical_bic(rows, within, d))
    return np.array(scores)
