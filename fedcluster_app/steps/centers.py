"""k-FED and SPAHM at a site: local centres, once."""

from __future__ import annotations

import numpy as np

from fedcluster_app.aggregation import kfed, spahm
from fedcluster_app.aggregation.kfed import LocalCenters
from fedcluster_app.messages import AgreedScaling, AskKFed, AskSpahm, LocalCentersSent
from fedcluster_app.mixtures.release import dissolved
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site
from fedcluster_app.steps.count import told_or_counted
from fedcluster_app.steps.rows import contributed


def of_kfed(site: Site, ask: AskKFed) -> LocalCentersSent:
    """Cluster the rows as k-FED does, and send the centres."""
    X, k = rows_and_k(site, ask)
    found = kfed.client_step(X, k, site.rng("kfed"), start=site.config.kfed.start)
    return LocalCentersSent(k, released(X, found, site.min_count))


def of_spahm(site: Site, ask: AskSpahm) -> LocalCentersSent:
    """Cluster the rows by k-means, and send the centres."""
    X, k = rows_and_k(site, ask)
    found = spahm.client_step(X, k, site.rng("spahm"))
    return LocalCentersSent(k, released(X, found, site.min_count))


def released(X: FloatArray, found: LocalCenters, min_count: int) -> FloatArray:
    """Return the centres after clusters that are too small were dissolved, the smallest first.

    At a site with few rows these centres are the rows themselves: then larger clusters are made of them. What
    is returned are the means of the rows that were counted, also where k-means stopped a hair before its end.
    """
    centers, labels = dissolved(X, found.centers, found.labels, min_count)
    members = np.eye(len(centers))[labels].T
    means: FloatArray = members @ X / members.sum(axis=1, keepdims=True)
    return means


def rows_and_k(site: Site, ask: AgreedScaling) -> tuple[FloatArray, int]:
    """Return the scaled rows (n, q), and how many clusters to seek among them."""
    X = contributed(site, ask)
    return X, told_or_counted(site, X, site.config.local.k)[0]
