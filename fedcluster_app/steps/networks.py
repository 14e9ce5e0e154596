"""FedGrEM and consensus EM at a site: one round of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcluster_app.coupling import grem_of, wide_bounds
from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.gtvmin import consensus_em, fedgrem
from fedcluster_app.gtvmin.consensus_em import ConsensusState, Message
from fedcluster_app.gtvmin.consensus_gains import Gains
from fedcluster_app.gtvmin.projection import Bounds
from fedcluster_app.messages import (
    AskConsensusRound,
    AskGrEMRound,
    ConsensusAnswered,
    ConsensusMemory,
    ConsensusSums,
    GrEMMixture,
)
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.site import Site
from fedcluster_app.steps.rows import contributed


def gradient(site: Site, ask: AskGrEMRound) -> GrEMMixture:
    """Take a step from the mixture that was sent; nothing is kept."""
    X, model = contributed(site, ask), ask.mixtures[0]
    settings = grem_of(site.config.fedgrem, _bounds(site, model))
    found = fedgrem.client_step(X, model, settings, min_count=site.min_count).mixture
    return GrEMMixture(found.weights, found.means, lower_triangle(found.covariances))


def consensus(site: Site, ask: AskConsensusRound) -> ConsensusSums:
    """Take a round with what the neighbours sent, or begin; who has lost its memory begins anew."""
    X, start = contributed(site, ask), ask.mixtures[0]
    bounds, least = _bounds(site, start), site.min_count
    before = _recalled(site, ask)
    if before is None:
        state = consensus_em.init(X, start, ask.origin, bounds=bounds, min_count=least)
    else:
        gains = [] if ask.gains is None else ask.gains.tolist()
        how = Gains(dict(zip(ask.neighbours, gains, strict=True)), ask.own_gain)
        part = site.config.consensus.step
        state = consensus_em.step(
            before, X, _received(ask), how, bounds=bounds, min_count=least, step_size=part
        )
    kept = _kept(state, ask.round)
    site.memory.save(ConsensusMemory(**kept))
    return ConsensusSums(
        estimate=state.estimate,
        own=state.own if ask.own_gain else None,
        flows=kept["flows"],
        movement=0.0 if before is None else state.movement,
        log_likelihood=state.log_likelihood,
    )


def _recalled(site: Site, ask: AskConsensusRound) -> ConsensusState | None:
    """Return the state that the site last told of, as the coordinator has it, or None if it begins.

    Later ones were lost on the way, or not used: if they counted, nobody could tell what has flowed.
    """
    both = site.memory.load(ConsensusMemory), site.memory.load(ConsensusAnswered)
    kept = next((found for found in both if found is not None and found.round == ask.last), None)
    if kept is None:
        return None
    site.memory.save(ConsensusAnswered(**vars(kept)))
    mixture = Mixture(kept.weights, kept.means, kept.covariances)
    return ConsensusState(mixture, ask.origin, kept.own, kept.estimate, kept.named_flows, kept.round)


def _kept(state: ConsensusState, number: int) -> dict[str, Any]:
    """Return what a site keeps of a state for the next round."""
    return {
        "weights": state.mixture.weights,
        "means": state.mixture.means,
        "covariances": state.mixture.covariances,
        "own": state.own,
        "estimate": state.estimate,
        "neighbours": tuple(state.flows),
        "flows": np.stack(list(state.flows.values())) if state.flows else None,
        "round": number,
    }


def _bounds(site: Site, mixture: Mixture) -> Bounds:
    return wide_bounds(mixture.n_components, site.config.lonely.variance_floor)


def _received(ask: AskConsensusRound) -> dict[str, Message]:
    """Return the message of each neighbour."""
    if ask.estimates is None or ask.parts is None:
        return {}
    sent = zip(ask.neighbours, ask.estimates, ask.parts, strict=True)
    return {name: Message(estimate, part) for name, estimate, part in sent}
