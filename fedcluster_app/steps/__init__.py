"""What a site does when it is asked: one function for every question, ``(site, ask) -> answer``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedcluster_app import messages
from fedcluster_app.site import Site
from fedcluster_app.steps import (
    afcl,
    centers,
    fedgem,
    fedkmeans,
    ffcm,
    gaussians,
    gtvmin,
    gtvpool,
    hello,
    labels,
    local,
    microcluster,
    networks,
)

Step = Callable[[Site, Any], Any]

STEPS: dict[type, Step] = {
    messages.AskHello: hello.answer,
    messages.AskBounds: hello.bounds,
    messages.AskFedGEMStart: fedgem.start,
    messages.AskFedGEMRound: fedgem.advance,
    messages.AskFedGEMEnd: fedgem.end,
    messages.AskMicroClusters: microcluster.cells,
    messages.AskMicroRound: microcluster.refine,
    messages.AskGTVStart: gtvmin.start,
    messages.AskGTVRound: gtvmin.advance,
    messages.AskPoolStart: gtvpool.start,
    messages.AskPoolRound: gtvpool.advance,
    messages.AskPoolEnd: gtvpool.end,
    messages.AskKFed: centers.of_kfed,
    messages.AskSpahm: centers.of_spahm,
    messages.AskFedKMeans: fedkmeans.answer,
    messages.AskFedKMeansAligned: fedkmeans.aligned,
    messages.AskFFCM: ffcm.answer,
    messages.AskAFCLSeeds: afcl.seeds,
    messages.AskAFCLRound: afcl.advance,
    messages.AskFedEMStart: gaussians.fedem_start,
    messages.AskFedEMRound: gaussians.fedem_round,
    messages.AskFedGenGMM: gaussians.fedgengmm_answer,
    messages.AskIFCAStart: gaussians.ifca_start,
    messages.AskIFCAScores: gaussians.ifca_scores,
    messages.AskIFCARound: gaussians.ifca_round,
    messages.AskLocal: local.answer,
    messages.AskGrEMRound: networks.gradient,
    messages.AskConsensusRound: networks.consensus,
    messages.AskLabels: labels.answer,
}
