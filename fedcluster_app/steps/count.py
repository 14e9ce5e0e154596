"""Phase 1 at a site: how many clusters, by an estimator that the run names."""

from __future__ import annotations

from typing import Any

from fedcluster_app.cardinality.asm import ALPHAS, MIN_MASSES
from fedcluster_app.cardinality.count import Count
from fedcluster_app.cardinality.registry import ESTIMATORS
from fedcluster_app.config import RunConfig
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site


def count(site: Site, X: FloatArray, name: str) -> Count:
    """Count the clusters among the scaled rows (n, q) with the estimator of that name.

    Raises
    ------
    DataError
        If the oracle is asked at a site without labels, or at a real site.
    """
    estimator = ESTIMATORS[name]
    if not estimator.needs_labels:
        return estimator.load()(X, site.rng("count"), **_options(site.config, name))
    labels = site.table.labels
    if labels is None or not site.virtual:
        raise DataError(
            f"site {site.name!r}: estimator {estimator.name!r} reads the true classes, which only "
            "simulations with labels have; use another estimator"
        )
    return estimator.load()(X, labels)


def told_or_counted(site: Site, X: FloatArray, given: int | None) -> tuple[int, int]:
    """Return how many clusters to seek in the scaled rows (n, q), and how many were counted (0 if told)."""
    if given is not None:
        return given, 0
    counted = count(site, X, site.config.estimator).k
    return counted, counted


def _options(config: RunConfig, name: str) -> dict[str, Any]:
    """Return the settings of the estimators that have some; the others have their own grid."""
    if name != "asm":
        return {}
    asm = config.asm
    return {
        "alphas": asm.merge_ratios or ALPHAS,
        "min_masses": asm.min_masses or MIN_MASSES,
        "order": asm.order,
    }
