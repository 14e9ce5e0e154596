"""Phase 1: how many clusters does a site have? Counts from the site's own rows, without labels.

Names are looked up when they are first used, so that importing the room does not import scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcluster_app.cardinality.asm import count_asm
    from fedcluster_app.cardinality.closed_form import (
        anisotropy,
        critical_size,
        join_bound,
        split_gain_rate,
    )
    from fedcluster_app.cardinality.consensus import count_consensus
    from fedcluster_app.cardinality.consensus_estimator import ConsensusCount
    from fedcluster_app.cardinality.count import Count
    from fedcluster_app.cardinality.dirichlet import count_dirichlet
    from fedcluster_app.cardinality.estimators import AdaptiveSplitMerge, AdaptiveSplitMergeCV
    from fedcluster_app.cardinality.gmeans import count_gmeans
    from fedcluster_app.cardinality.kmeans_count import count_kmeans
    from fedcluster_app.cardinality.oracle import count_oracle
    from fedcluster_app.cardinality.rival_estimators import (
        DirichletProcessCount,
        GMeans,
        KMeansSilhouette,
        OracleCount,
        XMeans,
    )
    from fedcluster_app.cardinality.xmeans import count_xmeans

__all__ = [
    "AdaptiveSplitMerge",
    "AdaptiveSplitMergeCV",
    "ConsensusCount",
    "Count",
    "DirichletProcessCount",
    "GMeans",
    "KMeansSilhouette",
    "OracleCount",
    "XMeans",
    "anisotropy",
    "count_asm",
    "count_consensus",
    "count_dirichlet",
    "count_gmeans",
    "count_kmeans",
    "count_oracle",
    "count_xmeans",
    "critical_size",
    "join_bound",
    "split_gain_rate",
]

_HOMES = {
    "asm": ("count_asm",),
    "closed_form": ("anisotropy", "critical_size", "join_bound", "split_gain_rate"),
    "consensus": ("count_consensus",),
    "consensus_estimator": ("ConsensusCount",),
    "count": ("Count",),
    "dirichlet": ("count_dirichlet",),
    "estimators": ("AdaptiveSplitMerge", "AdaptiveSplitMergeCV"),
    "gmeans": ("count_gmeans",),
    "kmeans_count": ("count_kmeans",),
    "oracle": ("count_oracle",),
    "rival_estimators": ("DirichletProcessCount", "GMeans", "KMeansSilhouette", "OracleCount", "XMeans"),
    "xmeans": ("count_xmeans",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
