"""Federated fuzzy c-means at a site: the same sums in every round."""

from __future__ import annotations

from fedcluster_app.aggregation import ffcm
from fedcluster_app.messages import AskFFCM, FFCMSums
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import contributed


def answer(site: Site, ask: AskFFCM) -> FFCMSums:
    """Make fuzzy c-means from the global centres, and sum the rows up by their weights."""
    settings = site.config.ffcm
    sent = ffcm.client_step(
        contributed(site, ask),
        ask.centers,
        fuzzifier=settings.fuzzifier,
        membership=settings.membership,
        update="released" if settings.update == "u" else "textbook",
        local_steps=settings.local_steps,
        min_count=site.min_count,
    )
    return FFCMSums(sent.supports, sent.sums)
