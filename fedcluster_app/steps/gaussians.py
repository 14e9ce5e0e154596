"""FedEM, FedGenGMM and IFCA at a site: clusters to start from, E steps, and a mixture of its own."""

from __future__ import annotations

import numpy as np

from fedcluster_app.aggregation import fedem, fedgengmm, ifca
from fedcluster_app.aggregation.gaussians import SiteSums
from fedcluster_app.messages import (
    AskFedEMRound,
    AskFedEMStart,
    AskFedGenGMM,
    AskIFCARound,
    AskIFCAScores,
    AskIFCAStart,
    FedEMMemory,
    GaussianSums,
    IFCAScores,
    SiteGaussians,
)
from fedcluster_app.messages.gaussians import summed
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.site import Site
from fedcluster_app.steps.count import told_or_counted
from fedcluster_app.steps.rows import contributed


def fedem_start(site: Site, ask: AskFedEMStart) -> SiteGaussians:
    """Cluster the rows by k-means."""
    X, n_init = contributed(site, ask), site.config.fedem.starts
    rng = site.rng("fedem")
    return SiteGaussians.of(
        fedem.client_start(X, site.config.k, rng, n_init=n_init, min_count=site.min_count)
    )


def fedem_round(site: Site, ask: AskFedEMRound) -> GaussianSums:
    """Make the E step with the site's own weights, which stay here until the next round."""
    X, components = contributed(site, ask), ask.mixtures[0]
    kept = site.memory.load(FedEMMemory)
    weights = components.weights if kept is None else kept.weights
    sums, weights = fedem.client_step(X, components, weights, min_count=site.min_count)
    site.memory.save(FedEMMemory(weights))
    return _told([sums], [components])


def fedgengmm_answer(site: Site, ask: AskFedGenGMM) -> SiteGaussians:
    """Fit the site's mixture, and summarise it."""
    X = contributed(site, ask)
    k, counted = told_or_counted(site, X, site.config.local.k)
    stats = fedgengmm.client_step(
        X, k, site.rng("fedgengmm"), n_init=site.config.fedgengmm.starts, min_count=site.min_count
    )
    return SiteGaussians.of(stats, counted)


def ifca_start(site: Site, ask: AskIFCAStart) -> SiteGaussians:
    """Cluster the rows by k-means; all sites will see the model that is made of the clusters."""
    X, n_init = contributed(site, ask), site.config.ifca.starts
    k, counted = told_or_counted(site, X, site.config.mixture.components)
    stats = fedem.client_start(X, k, site.rng("ifca"), n_init=n_init, min_count=site.min_count)
    return SiteGaussians.of(stats, counted)


def ifca_scores(site: Site, ask: AskIFCAScores) -> IFCAScores:
    """Score the rows under the models of all sites."""
    return IFCAScores(ifca.client_scores(contributed(site, ask), ask.mixtures))


def ifca_round(site: Site, ask: AskIFCARound) -> GaussianSums:
    """Choose a model in every restart, and make its E step."""
    X = contributed(site, ask)
    sums = [ifca.client_step(X, models, min_count=site.min_count) for models in ask.restarts]
    chosen = [models[part.model] for models, part in zip(ask.restarts, sums, strict=True)]
    return _told(sums, chosen)


def _told(parts: list[SiteSums], mixtures: list[Mixture]) -> GaussianSums:
    """Return a site's sums under the mixture of each."""
    return GaussianSums(
        models=np.array([part.model for part in parts]),
        log_likelihood=np.array([part.log_likelihood for part in parts]),
        **summed([part.stats for part in parts], mixtures),
    )
