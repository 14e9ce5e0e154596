"""Federated EM on the rows themselves, in rounds, for one set of clusters or for many side by side.

A site sends sums about means that everybody knows; they add over sites, so they could be summed without
anybody seeing those of one site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import WEIGHT_FLOOR, Clusters, Shrinkage, by_site, responsibilities
from fedcluster_app.mixtures.densities import log_densities, logsumexp
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import centred
from fedcluster_app.mixtures.types import BoolArray, FloatArray, IntArray

# Which rows of a site a set is fitted to.
ALL = -1
Enough = Callable[[FloatArray], BoolArray]


@dataclass(frozen=True, eq=False)
class ClusterSets:
    """Sets of clusters that are refined side by side, m clusters in s sets.

    Attributes
    ----------
    means, covariances : (m, q) and (m, q, q) arrays
    members : (m,) int array
        Set of every cluster, ascending from 0.
    rows : (s,) int array
        What every set is fitted to: half 0 or 1 of each site's rows, or all of them (-1).
    """

    means: FloatArray
    covariances: FloatArray
    members: IntArray
    rows: IntArray

    def of(self, number: int) -> BoolArray:
        """Return which clusters (m,) are of a set."""
        which: BoolArray = self.members == number
        return which


@dataclass(frozen=True, eq=False)
class Sums:
    """What a site's rows say about each cluster of every set.

    Attributes
    ----------
    mass : (m,) array
        Total responsibility.
    first : (m, q) array
        Sum of responsibility times deviation from the cluster's mean.
    second : (m, q, q) array
        Sum of responsibility times the outer product of that deviation with itself.
    log_likelihood, held_out : (s,) arrays
        Of the rows that a set is fitted to, and of the other half's (0 if it is fitted to all).
    """

    mass: FloatArray
    first: FloatArray
    second: FloatArray
    log_likelihood: FloatArray
    held_out: FloatArray


def gather(fits: Sequence[tuple[int, Clusters]]) -> ClusterSets:
    """Return sets side by side from pairs (rows that a set is fitted to, clusters)."""
    clusters = [found for _, found in fits]
    return ClusterSets(
        np.concatenate([found.means for found in clusters]),
        np.concatenate([found.covariances for found in clusters]),
        np.repeat(np.arange(len(fits)), [found.k for found in clusters]),
        np.array([rows for rows, _ in fits]),
    )


def site_sums(
    X: FloatArray, halves: IntArray, sets: ClusterSets, weights: FloatArray, enough: Enough
) -> tuple[Sums, FloatArray]:
    """Make the E step of a round at a site.

    Parameters
    ----------
    X : (n, q) array
    halves : (n,) int array
        Half of every row.
    sets : ClusterSets
    weights : (m,) array
        The site's mixing weights, summing to 1 in every set.
    enough
        Says of masses (k,) behind which of them enough rows stand. Clusters with too few are left out of the
        sums, so that what is left out, which follows from the total of the site's rows, has enough rows too;
        if all of it together has too few, the others of the set take it for this round. A half that is too
        small as a whole sends zeros.

    Returns
    -------
    sums : Sums
    weights : (m,) array
        The site's weights after the round, of all its rows; they stay at the site.

    Notes
    -----
    **Source**: EM for a mixture with shared components and weights of every site's own (as in Marfoq et al.,
    Federated multi-task learning under a mixture of distributions, NeurIPS 2021). Leaving small clusters out
    is ours: were their rows given to the others, these would be widened at every site where classes are
    small. Cost O(n m q²).
    """
    sums, weights = _nothing(sets), weights.copy()
    for number, half in enumerate(sets.rows):
        which = np.flatnonzero(sets.of(number))
        fitted = np.full(len(X), True) if half == ALL else halves == half
        rows = X[fitted]
        if not enough(np.array([float(len(rows))]))[0]:
            continue
        own = weights[which]
        mixture = Mixture(own / own.sum(), sets.means[which], sets.covariances[which])
        joint = _joint(rows, mixture)
        sums.log_likelihood[number] = logsumexp(joint, axis=1).sum()
        if half != ALL:
            sums.held_out[number] = logsumexp(_joint(X[~fitted], mixture), axis=1).sum()
        R = np.exp(joint - logsumexp(joint, axis=1)[:, None])
        weights[which] = _weights(R.sum(axis=0))
        _collect(sums, sets, which, rows, _released(R, joint, enough))
    return sums, weights


def cell_sums(cells: Cells, sets: ClusterSets, weights: FloatArray) -> tuple[Sums, FloatArray]:
    """Make the E step for a site that is silent or gone from its micro-clusters, at the coordinator.

    Parameters
    ----------
    cells
        Of this one site.
    sets, weights
        As in :func:`site_sums`; so is what is returned.
    """
    sums, weights = _nothing(sets), weights.copy()
    for number, half in enumerate(sets.rows):
        which = np.flatnonzero(sets.of(number))
        fitted = np.full(cells.n_cells, True) if half == ALL else cells.halves == half
        if not fitted.any():
            continue
        own = _weights(weights[which])
        clusters = Clusters(own[None], sets.means[which], sets.covariances[which], own)
        part, rest = cells.take(fitted), cells.take(~fitted)
        sums.log_likelihood[number] = by_site(part, clusters)[0]
        if half != ALL:
            sums.held_out[number] = by_site(rest, clusters)[0]
        R = responsibilities(part, clusters) * part.counts[:, None]
        _collect(sums, sets, which, part.means, R)
        diagonal = np.arange(cells.n_features)
        sums.second[which[:, None], diagonal, diagonal] += R.T @ part.variances
        weights[which] = _weights(sums.mass[which])
    return sums, weights


def _nothing(sets: ClusterSets) -> Sums:
    (m, q), s = sets.means.shape, len(sets.rows)
    return Sums(np.zeros(m), np.zeros((m, q)), np.zeros((m, q, q)), np.zeros(s), np.zeros(s))


def _collect(sums: Sums, sets: ClusterSets, which: IntArray, X: FloatArray, mass: FloatArray) -> None:
    """Write the sums of points (n, q) of masses (n, k) in the clusters ``which`` (k,) of a set."""
    sums.mass[which] = mass.sum(axis=0)
    for cluster, share in zip(which, mass.T, strict=True):
        deviation = X - sets.means[cluster]
        sums.first[cluster] = share @ deviation
        deviation *= np.sqrt(share)[:, None]
        sums.second[cluster] = deviation.T @ deviation


def _weights(mass: FloatArray) -> FloatArray:
    """Return mixing weights (k,) from masses, none of them quite 0."""
    own = mass + WEIGHT_FLOOR
    weights: FloatArray = own / own.sum()
    return weights


def add_up(parts: Sequence[Sums]) -> Sums:
    """Add the sums of all sites, in the order given."""
    fields = ("mass", "first", "second", "log_likelihood", "held_out")
    return Sums(**{name: np.sum([getattr(part, name) for part in parts], axis=0) for name in fields})


def advance(sets: ClusterSets, total: Sums, shrinkage: Shrinkage) -> ClusterSets:
    """Make the M step of a round from the sums over all sites.

    A cluster that no site has enough rows of stays where it is, with the covariance of all clusters of its
    set.
    """
    shift, scatters = _about_their_mean(total)
    means, covariances = sets.means + shift, sets.covariances.copy()
    for number in range(len(sets.rows)):
        which = sets.of(number)
        if total.mass[which].any():
            covariances[which] = shrinkage.apply(total.mass[which], scatters[which])
    return replace(sets, means=means, covariances=covariances)


def is_possible(sums: Sums) -> bool:
    """Whether sums can be those of rows: scatter about the rows' own mean is nowhere negative."""
    scatters = _about_their_mean(sums)[1]
    size = np.trace(sums.second, axis1=1, axis2=2)
    least = np.linalg.eigvalsh(scatters).min(axis=1)
    return bool((sums.mass >= 0).all() and (least >= -1e-8 * np.maximum(size, 1e-300)).all())


def _about_their_mean(sums: Sums) -> tuple[FloatArray, FloatArray]:
    """Return how far the mean of a cluster's rows is from its own (m, q), and their scatter about it."""
    found = centred(sums.mass, sums.first, sums.second, np.zeros_like(sums.first))
    return found.means, found.scatters


def _joint(X: FloatArray, mixture: Mixture) -> FloatArray:
    return log_densities(X, mixture) + np.log(mixture.weights)


def _released(R: FloatArray, joint: FloatArray, enough: Enough) -> FloatArray:
    """Return responsibilities (n, k) in which every cluster has no row or enough, and so has what is left."""
    mass = R.sum(axis=0)
    large = enough(mass)
    if large.all() or enough(mass[~large].sum(keepdims=True))[0]:
        return np.where(large, R, 0.0)
    kept = joint[:, large]
    R = np.zeros_like(joint)
    R[:, large] = np.exp(kept - logsumexp(kept, axis=1)[:, None])
    return R
