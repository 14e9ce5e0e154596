"""Phase 1 at a site: how many clusters, by the estimator that the run names."""

from __future__ import annotations

from fedcluster_app.cardinality.asm import Count, count_asm
from fedcluster_app.cardinality.oracle import count_oracle
from fedcluster_app.cardinality.selection import ALPHAS, MIN_MASSES
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.site import Site


def count(site: Site, X: FloatArray) -> Count:
    """Count the clusters among the scaled rows (n, q).

    Raises
    ------
    DataError
        If the oracle is asked at a site without labels, or at a real site.
    """
    if site.config.estimator == "oracle":
        labels = site.table.labels
        if labels is None or not site.virtual:
            raise DataError(
                f"site {site.name!r}: estimator 'oracle' reads the true classes, which only simulations with "
                "labels have; use estimator='asm'"
            )
        return count_oracle(X, labels)
    asm = site.config.asm
    return count_asm(
        X,
        site.rng("count"),
        alphas=asm.merge_ratios or ALPHAS,
        min_masses=asm.min_masses or MIN_MASSES,
        order=asm.order,
    )
