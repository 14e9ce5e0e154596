"""Every message that crosses a site's border, one class each, one line a field.

``leaves_site=True`` marks what a site sends: these lines are the README's table of what leaves a site, and a
test keeps the two equal. Letters in shapes: d columns, q scaled features, k components of the site, m global
clusters (or components of several mixtures), f their features, s sets of clusters, e neighbours, c classes,
t entries of a triangle, n rows.
"""

from __future__ import annotations

from fedcluster_app.messages.common import (
    AgreedScaling,
    AskBounds,
    AskHello,
    AskLabels,
    Bounds,
    Hello,
    Labelled,
    Refusal,
    SiteFolder,
)
from fedcluster_app.messages.fedgem import (
    AskFedGEMEnd,
    AskFedGEMRound,
    AskFedGEMStart,
    FedGEMBalls,
    FedGEMEnd,
    FedGEMMemory,
    FedGEMStart,
)
from fedcluster_app.messages.gtvmin import AskGTVRound, AskGTVStart, GTVMemory, GTVMixture
from fedcluster_app.messages.gtvpool import (
    AskPoolEnd,
    AskPoolRound,
    AskPoolStart,
    PoolEnd,
    PoolMemory,
    PoolSummary,
)
from fedcluster_app.messages.microcluster import (
    AskMicroClusters,
    AskMicroRound,
    MicroClustersSent,
    MicroMemory,
    MicroSums,
)
from fedcluster_app.messages.rivals import (
    AFCLRecords,
    AFCLSeeds,
    AskAFCLRound,
    AskAFCLSeeds,
    AskFedKMeans,
    AskFedKMeansAligned,
    AskFFCM,
    AskKFed,
    AskSpahm,
    FedKMeansSums,
    FFCMSums,
    LocalCentersSent,
)

__all__ = [
    "AFCLRecords",
    "AFCLSeeds",
    "AgreedScaling",
    "AskAFCLRound",
    "AskAFCLSeeds",
    "AskBounds",
    "AskFFCM",
    "AskFedGEMEnd",
    "AskFedGEMRound",
    "AskFedGEMStart",
    "AskFedKMeans",
    "AskFedKMeansAligned",
    "AskGTVRound",
    "AskGTVStart",
    "AskHello",
    "AskKFed",
    "AskLabels",
    "AskMicroClusters",
    "AskMicroRound",
    "AskPoolEnd",
    "AskPoolRound",
    "AskPoolStart",
    "AskSpahm",
    "Bounds",
    "FFCMSums",
    "FedGEMBalls",
    "FedGEMEnd",
    "FedGEMMemory",
    "FedGEMStart",
    "FedKMeansSums",
    "GTVMemory",
    "GTVMixture",
    "Hello",
    "Labelled",
    "LocalCentersSent",
    "MicroClustersSent",
    "MicroMemory",
    "MicroSums",
    "PoolEnd",
    "PoolMemory",
    "PoolSummary",
    "Refusal",
    "SiteFolder",
]
