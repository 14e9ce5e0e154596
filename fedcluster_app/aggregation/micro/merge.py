"""Starts from above: clusters of a fit joined until as many are left as wanted."""

from __future__ import annotations

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import WEIGHT_FLOOR, Shrinkage, moments
from fedcluster_app.mixtures.types import FloatArray


def merge(cells: Cells, R: FloatArray, k: int, shrinkage: Shrinkage) -> FloatArray:
    """Return responsibilities (M, k) of responsibilities (M, K): columns are joined, two at a time.

    Notes
    -----
    **Source**: the agglomeration of Banfield and Raftery (1993), equation 2.2 for clusters of any shape: the
    two are joined whose union loses least of the classification likelihood, sum_k n_k log|P_k| / -2. Ours:
    the covariances are shrunk ones, and the likelihood has the weights of sites, sum_gk n_gk log pi_gk:
    fragments that the same sites hold are joined sooner than clusters of different sites, which the site
    tells apart. Cost O(K² q³) for each join.
    """
    while R.shape[1] > k:
        first, second = _cheapest(cells, R, shrinkage)
        joined = R[:, first] + R[:, second]
        R = np.delete(R, second, axis=1)
        R[:, first] = joined
    return R


def _cheapest(cells: Cells, R: FloatArray, shrinkage: Shrinkage) -> tuple[int, int]:
    """Return the two columns whose union loses least."""
    masses, means, scatters = moments(cells, R, np.zeros((R.shape[1], cells.n_features)))
    pooled = scatters.sum(axis=0) / masses.sum()
    held = cells.by_site(R * cells.counts[:, None]).T

    def likelihood(masses: FloatArray, scatters: FloatArray, held: FloatArray) -> FloatArray:
        covariances = shrinkage.apply(masses, scatters, pooled)
        # The size of a site is the same whatever is joined.
        weights = (held * np.log(held + WEIGHT_FLOOR)).sum(axis=1)
        found: FloatArray = weights - masses * np.linalg.slogdet(covariances)[1] / 2
        return found

    alone = likelihood(masses, scatters, held)
    cheapest, pair = np.inf, (0, 1)
    for first in range(len(masses) - 1):
        # Row by row of the table of pairs, so that memory stays O(K q²).
        rest = slice(first + 1, None)
        difference = means[rest] - means[first]
        both = masses[rest] + masses[first]
        between = masses[rest] * masses[first] / np.where(both > 0, both, 1.0)
        unions = scatters[rest] + scatters[first]
        unions += between[:, None, None] * difference[:, :, None] * difference[:, None, :]
        lost = alone[rest] + alone[first] - likelihood(both, unions, held[rest] + held[first])
        nearest = int(np.argmin(lost))
        if lost[nearest] < cheapest:
            cheapest, pair = float(lost[nearest]), (first, first + 1 + nearest)
    return pair
