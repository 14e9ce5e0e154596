"""Federated k-means at a site, with either average: the same sums in every round."""

from __future__ import annotations

import numpy as np

from fedcluster_app.aggregation import fedkmeans, fedkmeans_aligned
from fedcluster_app.aggregation.fedkmeans import ClusterSums
from fedcluster_app.aggregation.parting import together
from fedcluster_app.messages import AskFedKMeans, AskFedKMeansAligned, FedKMeansMemory, FedKMeansSums
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import contributed, let_rows_go


def answer(site: Site, ask: AskFedKMeans) -> FedKMeansSums:
    """Sum the rows up by global centre, or by clusters of the site's own if there are none yet.

    Raises
    ------
    DataError
        If the run wants bare seeds, which are rows, and the site's owner does not.
    """
    X, settings = contributed(site, ask), site.config.fedkmeans
    least, centers, rng = max(settings.least_rows, site.min_count), ask.centers, site.rng("fedkmeans")
    if centers is None and settings.start == "kmeans++":
        let_rows_go(site, "fedkmeans-start='kmeans++' sends seeds, which are rows")
        return _told(fedkmeans.client_start(X, site.config.k, rng, start="kmeans++", min_count=least))
    if centers is None:
        centers = fedkmeans.first_centers(X, site.config.k, rng)
    labels = fedkmeans.assign(X, centers, local_steps=settings.local_steps, min_count=least)
    return _summed(site, X, labels, least)


def aligned(site: Site, ask: AskFedKMeansAligned) -> FedKMeansSums:
    """Take Lloyd's step from the global centres, or cluster the rows if there are none yet, and sum up."""
    X, centers = contributed(site, ask), ask.centers
    if centers is None:
        centers = fedkmeans_aligned.first_centers(X, site.config.k, site.rng("fedkmeans-aligned"))
    return _summed(site, X, fedkmeans.assign(X, centers, min_count=site.min_count), site.min_count)


def _summed(site: Site, X: FloatArray, labels: IntArray, least: int) -> FedKMeansSums:
    """Sum the rows (n, q) up by their labels, but for fewer than so many that would part from others."""
    kept = site.memory.load(FedKMeansMemory)
    groups = np.zeros(len(X), dtype=np.int64) if kept is None else kept.groups
    labels, groups = together(labels, groups, least)
    site.memory.save(FedKMeansMemory(groups))
    return _told(fedkmeans.sums_by(X, labels))


def _told(sent: ClusterSums) -> FedKMeansSums:
    if not len(sent.counts):
        return FedKMeansSums(np.zeros(1, dtype=np.int64), np.zeros((1, sent.sums.shape[1])))
    return FedKMeansSums(sent.counts, sent.sums)
