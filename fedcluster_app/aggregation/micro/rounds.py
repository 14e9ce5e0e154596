"""Rounds of federated EM after the assembly: what is refined, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcluster_app.aggregation.micro.assembly import Assembly, MicroState, aligned
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.aggregation.micro.path import carried_k, fit_all, half_fits, starts, whitening
from fedcluster_app.aggregation.micro.refine import ALL, ClusterSets, Sums, cell_sums, gather
from fedcluster_app.aggregation.micro.votes import Votes, held_out_votes
from fedcluster_app.mixtures.types import FloatArray

# Numbers of clusters that are refined on rows: each costs messages of its size in every round.
COARSE = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80)


def classes_are_small(assembly: Assembly) -> bool:
    """Whether micro-clusters may have mixed small classes: held-out ones favour one or two clusters."""
    return assembly.votes is not None and assembly.votes.hold <= 2


def sets_for_rounds(assembly: Assembly) -> tuple[ClusterSets, FloatArray]:
    """Return the clusters as the one set that rounds refine, and the weights (G, K) that sites start with."""
    return gather([(ALL, assembly.clusters)]), assembly.clusters.weights


def sets_for_votes(
    state: MicroState, assembly: Assembly, rng: np.random.Generator
) -> tuple[ClusterSets, FloatArray]:
    """Return sets for a vote of rows, and every site's weights (G, m) to start with.

    For every K of a coarse grid there is one set that is fitted to all rows, and one for either half.
    """
    cells = aligned(state, assembly.drift)
    ks = np.array([k for k in COARSE if k <= carried_k(cells)])
    scale = whitening(cells)
    where = starts(cells, (np.ones_like(scale), scale), rng)
    everything = fit_all(cells, where, ks, assembly.shrinkage)
    fits = [(ALL, found.clusters) for found in everything.values()]
    for half, found in enumerate(half_fits(cells, ks, scale, rng)):
        fits += [(half, found[int(k)].clusters) for k in ks]
    return gather(fits), np.concatenate([clusters.weights for _, clusters in fits], axis=1)


def stand_in(
    state: MicroState, assembly: Assembly, name: str, sets: ClusterSets, weights: FloatArray
) -> tuple[Sums, FloatArray]:
    """Make a site's sums of a round from the micro-clusters that it sent, where the site is silent or gone.

    ``weights`` (m,) are the site's as they are known here; its new ones are returned with the sums.
    """
    cells = aligned(state, assembly.drift)
    own = cells.take(cells.sites == assembly.names.index(name))
    return cell_sums(replace(own, sites=np.zeros_like(own.sites), n_sites=1), sets, weights)


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
    chosen, refined, words = 0, None, assembly.words
    if len(sets.rows) > 1 and assembly.votes is not None:
        refined, chosen = _vote(assembly.votes, sets, sums)
        words += (
            f"after federated EM, rows held out vote hold {refined.hold}, hold_1se {refined.hold_1se}, "
            f"hold_98 {refined.hold_98}",
        )
    which = sets.of(chosen)
    masses = np.sum([part.mass[which] for part in sums], axis=0)
    shares = np.tile(masses / masses.sum(), (len(assembly.names), 1))
    clusters = Clusters(shares, sets.means[which], sets.covariances[which], masses)
    return replace(assembly, clusters=clusters, refined=refined, words=words)


def _vote(votes: Votes, sets: ClusterSets, sums: Sequence[Sums]) -> tuple[Votes, int]:
    """Return the votes of the rows held out, and the set that has their careful choice of K on all rows."""
    wholes = np.flatnonzero(sets.rows == ALL)
    ks = np.bincount(sets.members)[wholes]
    held_out = np.array([part.held_out for part in sums])
    by_k = (held_out[:, sets.rows == 0] + held_out[:, sets.rows == 1]).T
    hold, one_error, share = held_out_votes(ks, by_k)
    found = replace(votes, hold=hold, hold_1se=one_error, hold_98=share)
    return found, int(wholes[np.searchsorted(ks, found.fewest)])
