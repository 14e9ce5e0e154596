"""FedGEM, Phase 2 for spherical mixtures with an unknown global count: the door to its parts.

At a site: `initial_means`, `client_step` every round, and once more with `hard_summaries` (`client_finish` is
both, for those who need no minimum count). At the server: `init`, `step` every round until `done`, and
`finish` once.

**Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160, as used with estimated counts by Goyal, Tarun,
Senapathi and Raman, arXiv:2609.36762. Deviations are stated at each function.
"""

from __future__ import annotations

from fedcluster_app.aggregation.balls import Balls, ClientStep, Components
from fedcluster_app.aggregation.grouping import PairOrder
from fedcluster_app.aggregation.local import (
    client_finish,
    client_step,
    collapse_ratio,
    hard_summaries,
    initial_means,
)
from fedcluster_app.aggregation.radius import RadiusRule, uncertainty_radius
from fedcluster_app.aggregation.reconcile import RadiusReading, Reconciliation, finish
from fedcluster_app.aggregation.rounds import FedGEMState, Status, done, init, status, step
from fedcluster_app.aggregation.selection import Path, spherical_bic

__all__ = [
    "Balls",
    "ClientStep",
    "Components",
    "FedGEMState",
    "PairOrder",
    "Path",
    "RadiusReading",
    "RadiusRule",
    "Reconciliation",
    "Status",
    "client_finish",
    "client_step",
    "collapse_ratio",
    "done",
    "finish",
    "hard_summaries",
    "init",
    "initial_means",
    "spherical_bic",
    "status",
    "step",
    "uncertainty_radius",
]
