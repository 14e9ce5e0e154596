"""Phase 1: how many clusters does a site have? Counts from the site's own rows, without labels.

Names are looked up when they are first used, so that importing the room does not import scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcluster_app.cardinality.asm import Count, count_asm
    from fedcluster_app.cardinality.closed_form import (
        anisotropy,
        critical_size,
        join_bound,
        split_gain_rate,
    )
    from fedcluster_app.cardinality.estimators import AdaptiveSplitMerge, AdaptiveSplitMergeCV
    from fedcluster_app.cardinality.oracle import count_oracle

__all__ = [
    "AdaptiveSplitMerge",
    "AdaptiveSplitMergeCV",
    "Count",
    "anisotropy",
    "count_asm",
    "count_oracle",
    "critical_size",
    "join_bound",
    "split_gain_rate",
]

_HOMES = {
    "asm": ("Count", "count_asm"),
    "closed_form": ("anisotropy", "critical_size", "join_bound", "split_gain_rate"),
    "estimators": ("AdaptiveSplitMerge", "AdaptiveSplitMergeCV"),
    "oracle": ("count_oracle",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
