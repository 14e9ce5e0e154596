"""Micro-clusters at a site: the one upload, and rounds of federated EM."""

from __future__ import annotations

from functools import partial

from fedcluster_app import disclosure
from fedcluster_app.aggregation.micro.cells import halve, micro_clusters
from fedcluster_app.aggregation.micro.refine import ClusterSets, site_sums
from fedcluster_app.data.scaling import lower_triangle, symmetric_matrix
from fedcluster_app.messages import (
    AskMicroClusters,
    AskMicroRound,
    MicroClustersSent,
    MicroMemory,
    MicroSums,
)
from fedcluster_app.mixtures.types import IntArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import count
from fedcluster_app.steps.rows import aligned, contributed
from fedcluster_app.streams import stream


def cells(site: Site, ask: AskMicroClusters) -> MicroClustersSent:
    """Summarise the rows in small groups, and count the clusters if the count is to vote."""
    X, micro = contributed(site, ask), site.config.micro
    made = micro_clusters(
        X,
        _halves(site, ask.seed, len(X)),
        site.rng("micro"),
        min_rows=site.min_count,
        rows_per_cell=micro.cell_rows,
        most=micro.max_cells,
    )
    return MicroClustersSent(
        halves=made.halves,
        counts=made.counts.astype(int),
        means=made.means,
        variances=made.variances,
        k_counted=0 if micro.count_vote == "none" else count(site, X, micro.count_vote).k,
    )


def refine(site: Site, ask: AskMicroRound) -> MicroSums:
    """Make the E step on the rows; the site's own weights stay here until the next round."""
    X = aligned(contributed(site, ask), ask.offset, ask.gain)
    sets = ClusterSets(
        ask.means, symmetric_matrix(ask.covariances, ask.means.shape[1]), ask.members, ask.rows
    )
    kept = site.memory.load(MicroMemory)
    weights = ask.weights if kept is None else kept.weights
    enough = partial(disclosure.large_enough, min_count=site.min_count)
    sums, weights = site_sums(X, _halves(site, ask.seed, len(X)), sets, weights, enough)
    site.memory.save(MicroMemory(weights))
    return MicroSums(sums.mass, sums.first, lower_triangle(sums.second), sums.log_likelihood, sums.held_out)


def _halves(site: Site, seed: int, n: int) -> IntArray:
    """Return the half of every row, the same for every question and in every run that has these summaries."""
    return halve(n, stream(seed, site.name, "halves"), min_rows=site.min_count)
