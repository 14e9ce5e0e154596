"""The last question: a site labels its rows with the global clusters and sums its scores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcluster_app import disclosure
from fedcluster_app.data.scaling import symmetric_matrix
from fedcluster_app.messages import AskLabels, Labelled
from fedcluster_app.metrics.additive import score_sums
from fedcluster_app.metrics.agreement import contingency_table
from fedcluster_app.metrics.mixtures import center_error
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.mixtures.weights import site_weights
from fedcluster_app.results.model import cluster_labels, write_labels
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import aligned


def answer(site: Site, ask: AskLabels) -> Labelled:
    """Write the labels at the site, and send sums alone; a site under ``min-count`` sends only its size."""
    X = aligned(site.rows(ask.scaling), ask.offset, ask.gain)
    clusters = _clusters(X, ask)
    found = cluster_labels(X, clusters)
    write_labels(site.labels_path, found if ask.names is None else ask.names[found])
    if len(X) < site.min_count:
        return Labelled(None, None, None, None, math.nan, (), None, None)

    sums = score_sums(X, found, ask.means)
    large = disclosure.large_enough(sums.rows, site.min_count)
    own = (
        None if ask.own_labels is None else ask.own_labels[cluster_labels(X, _part(clusters, ask.own_labels))]
    )
    names, table, own_table = _class_counts(site, found, own, clusters.n_components)
    return Labelled(
        counts=np.where(large, sums.rows, 0),
        within=np.where(large, sums.within, 0.0),
        distances=np.where(large, sums.distance, 0.0),
        silhouettes=np.where(large, sums.silhouette, 0.0),
        center_error=_center_error(site, X, clusters),
        class_names=names,
        contingency=table,
        own_contingency=own_table,
    )


def _clusters(X: FloatArray, ask: AskLabels) -> Mixture:
    """Return the global clusters as the site weighs them; weights fitted here stay here."""
    f = ask.means.shape[1]
    spherical = ask.covariances.shape[1] == 1
    covariances = ask.covariances[:, 0] if spherical else symmetric_matrix(ask.covariances, f)
    clusters = Mixture(ask.weights, ask.means, covariances)
    if not ask.fit_weights:
        return clusters
    return replace(clusters, weights=site_weights(log_densities(X, clusters), clusters.weights))


def _part(clusters: Mixture, members: IntArray) -> Mixture:
    """Return the mixture of some clusters, weights renormalised."""
    weights = clusters.weights[members]
    return Mixture(weights / weights.sum(), clusters.means[members], clusters.covariances[members])


def _center_error(site: Site, X: FloatArray, clusters: Mixture) -> float:
    labels = site.table.labels
    if labels is None:
        return math.nan
    return center_error(
        clusters.means, np.stack([X[labels == value].mean(axis=0) for value in np.unique(labels)])
    )


def _class_counts(
    site: Site, found: IntArray, own: IntArray | None, k: int
) -> tuple[tuple[str, ...], IntArray | None, IntArray | None]:
    labels = site.table.labels
    if labels is None:
        return (), None, None
    values, codes = np.unique(labels, return_inverse=True)
    given = site.table.label_names
    names = tuple(given[value] if given else str(value) for value in values)
    shape = (len(names), k)
    own_table = None if own is None else contingency_table(codes, own, shape=shape)
    return names, contingency_table(codes, found, shape=shape), own_table
