"""Federated k-means at a site: the same sums in every round."""

from __future__ import annotations

import numpy as np

from fedcluster_app.aggregation import fedkmeans, fedkmeans_aligned
from fedcluster_app.aggregation.fedkmeans import ClusterSums
from fedcluster_app.messages import AskFedKMeans, AskFedKMeansAligned, FedKMeansSums
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import contributed, let_rows_go


def answer(site: Site, ask: AskFedKMeans) -> FedKMeansSums:
    """Sum the rows up by global centre, or by clusters of the site's own if there are none yet.

    Raises
    ------
    DataError
        If the run wants bare seeds, which are rows, and the site's owner does not.
    """
    X = contributed(site, ask)
    settings = site.config.fedkmeans
    how = {"local_steps": settings.local_steps, "min_count": max(settings.least_rows, site.min_count)}
    if ask.centers is not None:
        sent = fedkmeans.client_step(X, ask.centers, **how)
    else:
        if settings.start == "kmeans++":
            let_rows_go(site, "fedkmeans-start='kmeans++' sends seeds, which are rows")
        k, rng = site.config.k, site.rng("fedkmeans")
        sent = fedkmeans.client_start(X, k, rng, start=settings.start, **how)
    return _told(sent)


def aligned(site: Site, ask: AskFedKMeansAligned) -> FedKMeansSums:
    """Take Lloyd's step from the global centres, or cluster the rows if there are none yet, and sum up."""
    X, least = contributed(site, ask), site.min_count
    if ask.centers is None:
        rng = site.rng("fedkmeans-aligned")
        return _told(fedkmeans_aligned.client_start(X, site.config.k, rng, min_count=least))
    return _told(fedkmeans_aligned.client_step(X, ask.centers, min_count=least))


def _told(sent: ClusterSums) -> FedKMeansSums:
    if not len(sent.counts):
        return FedKMeansSums(np.zeros(1, dtype=np.int64), np.zeros((1, sent.sums.shape[1])))
    return FedKMeansSums(sent.counts, sent.sums)
