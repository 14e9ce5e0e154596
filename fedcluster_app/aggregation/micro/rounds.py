"""Rounds of federated EM after the assembly: what is refined, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcluster_app.aggregation.micro.assembly import Assembly, MicroState, aligned, count_warnings
from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import WEIGHT_FLOOR, Clusters, Shrinkage
from fedcluster_app.aggregation.micro.path import HALF_STEPS, carried_k, fit_k, starts, whitening
from fedcluster_app.aggregation.micro.refine import ALL, ClusterSets, Sums, cell_sums, gather
from fedcluster_app.aggregation.micro.votes import Votes, held_out_votes, in_words
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray

# Numbers of clusters that are refined on rows: each costs messages of its size in every round.
COARSE = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80)


def classes_are_small(assembly: Assembly) -> bool:
    """Whether micro-clusters may have mixed small classes: held-out ones favour 1 or 2, or K̂ is 1."""
    return assembly.votes is not None and (assembly.votes.hold <= 2 or assembly.k_hat == 1)


def sets_for_rounds(assembly: Assembly) -> tuple[ClusterSets, FloatArray]:
    """Return the clusters as the one set that rounds refine, and the weights (G, K) that sites start with."""
    return gather([(ALL, assembly.clusters)]), assembly.clusters.weights


def sets_for_votes(
    state: MicroState, assembly: Assembly, rng: np.random.Generator
) -> tuple[ClusterSets, FloatArray]:
    """Return sets for a vote of rows, and every site's weights (G, m) to start with.

    For every K of a coarse grid, and for those that micro-clusters made likely, there is one set that is
    fitted to all rows, and one for either half.
    """
    cells = aligned(state, assembly.drift)
    known = {assembly.k_hat, *(assembly.tied or ())}
    ks = sorted(k for k in {*COARSE, *known} if k <= carried_k(cells))
    scale = whitening(cells)
    everything = _from_cuts(cells, ks, assembly.shrinkage, (np.ones_like(scale), scale), rng)
    fits = [(ALL, clusters) for clusters in everything]
    halves = [cells.take(cells.halves == half) for half in (0, 1)]
    for half, part in enumerate(halves if all(part.n_cells for part in halves) else []):
        found = _from_cuts(part, ks, Shrinkage.of(part), (scale,), rng, max_iter=HALF_STEPS)
        fits += [(half, clusters) for clusters in found]
    return gather(fits), np.concatenate([clusters.weights for _, clusters in fits], axis=1)


def _from_cuts(
    cells: Cells,
    ks: Sequence[int],
    shrinkage: Shrinkage,
    scales: tuple[FloatArray, ...],
    rng: np.random.Generator,
    *,
    max_iter: int = 25,
) -> list[Clusters]:
    """Return the fit of every K from cuts of Ward trees alone.

    Where micro-clusters mix classes, fits joined from above are the likelier ones of micro-clusters, for they
    go by the sites that hold them, and worse starts of EM on rows.
    """
    where = starts(cells, scales, rng)
    return [fit_k(cells, where, k, shrinkage, max_iter=max_iter).clusters for k in ks]


def stand_in(
    state: MicroState, assembly: Assembly, name: str, sets: ClusterSets, weights: FloatArray
) -> tuple[Sums, FloatArray]:
    """Make a site's sums of a round from the micro-clusters that it sent, where the site is silent or gone.

    ``weights`` (m,) are the site's as they are known here; its new ones are returned with the sums.
    """
    return cell_sums(_cells_of(state, assembly, name), sets, weights)


def likelihood_bounds(
    state: MicroState, assembly: Assembly, name: str, sets: ClusterSets
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of :func:`cell_bounds` for a site, from the micro-clusters that it sent."""
    return cell_bounds(_cells_of(state, assembly, name), sets)


def cell_bounds(cells: Cells, sets: ClusterSets) -> tuple[FloatArray, FloatArray]:
    """Bound the log-likelihoods that rows of these micro-clusters can have, whatever the site's weights.

    Parameters
    ----------
    cells
        Of one site.
    sets
        Of s sets.

    Returns
    -------
    low, high : (2, s) arrays
        Of the rows that a set is fitted to, and of those held out; 0 for a half without rows.

    Notes
    -----
    **Source**: ours. No row is likelier than at the highest peak of its set. The mean of log Σ w N over the
    rows of a micro-cluster is at least that of each log w N (Jensen), which holds a quadratic form: of a
    covariance of which only the diagonal v is known, tr(P C) is at most Σ v by the smallest variance of the
    cluster. Weights are at least their floor. Cost O(M m q²).
    """
    low, high = np.zeros((2, len(sets.rows))), np.zeros((2, len(sets.rows)))
    floor = np.log(WEIGHT_FLOOR / (cells.n_rows + 1))
    for number, half in enumerate(sets.rows):
        which = sets.of(number)
        fitted = np.full(cells.n_cells, True) if half == ALL else cells.halves == half
        if not fitted.any():
            continue
        mixture = Mixture(np.full(which.sum(), 1 / which.sum()), sets.means[which], sets.covariances[which])
        peak = float(np.diagonal(log_densities(mixture.means, mixture)).max())
        narrow = np.linalg.eigvalsh(mixture.covariances)[:, 0]
        least = log_densities(cells.means, mixture) - cells.variances.sum(axis=1)[:, None] / (2 * narrow)
        for row, part in enumerate((fitted, ~fitted)):
            low[row, number] = cells.counts[part] @ (least[part].max(axis=1) + floor)
            high[row, number] = cells.counts[part].sum() * peak
    return low, high


def _cells_of(state: MicroState, assembly: Assembly, name: str) -> Cells:
    """Return the micro-clusters of a site, as if there were no other."""
    cells = aligned(state, assembly.drift)
    own = cells.take(cells.sites == assembly.names.index(name))
    return replace(own, sites=np.zeros_like(own.sites), n_sites=1)


def after_rounds(assembly: Assembly, sets: ClusterSets, sums: Sequence[Sums]) -> Assembly:
    """Return the assembly with refined clusters, chosen by the rows held out if there are several sets.

    Parameters
    ----------
    assembly
        Before the rounds.
    sets
        After them.
    sums
        The last sums of every site.

    Notes
    -----
    The weights are the same at all sites: their own stay with them, and can be fitted there again.
    """
    chosen = 0
    if len(sets.rows) > 1 and assembly.votes is not None and assembly.path is not None:
        refined, tried, chosen = _vote(assembly.votes, sets, sums)
        k_hat, coarse = int(sets.of(chosen).sum()), ", ".join(map(str, tried))
        before = count_warnings(assembly.votes, assembly.path.k, assembly.k_hat)
        assembly = replace(
            assembly,
            refined=refined,
            words=(
                f"of {coarse} clusters, after federated EM at each, "
                + in_words(refined, tried.tolist(), k_hat, len(assembly.names))[0],
                f"votes: hold {refined.hold}, hold_98 {refined.hold_98}, hold_1se {refined.hold_1se}; micro-"
                f"clusters alone made it {assembly.k_hat}",
            ),
            warnings=tuple(said for said in assembly.warnings if said not in before)
            + count_warnings(refined, tried, k_hat),
        )
    which = sets.of(chosen)
    # No site may have enough rows of a cluster, or of any: shares are never quite 0, as those of a site.
    masses = np.sum([part.mass[which] for part in sums], axis=0) + WEIGHT_FLOOR
    shares = np.tile(masses / masses.sum(), (len(assembly.names), 1))
    clusters = Clusters(shares, sets.means[which], sets.covariances[which], masses)
    return replace(assembly, clusters=clusters)


def _vote(votes: Votes, sets: ClusterSets, sums: Sequence[Sums]) -> tuple[Votes, IntArray, int]:
    """Return the votes of the rows held out, what was tried, and the set with their careful choice of K.

    They are about the clusters before the last step. Where a site was silent its micro-clusters vote, which
    see less of rows: at each K alike.
    """
    wholes = np.flatnonzero(sets.rows == ALL)
    ks = np.bincount(sets.members)[wholes]
    held_out = np.array([part.held_out for part in sums])
    by_k = (held_out[:, sets.rows == 0] + held_out[:, sets.rows == 1]).T
    hold, one_error, share = held_out_votes(ks, by_k)
    found = replace(votes, hold=hold, hold_1se=one_error, hold_98=share)
    return found, ks, int(wholes[np.searchsorted(ks, found.careful(len(sums)))])
