"""Rivals whose sites all have k components, in the study of personal mixtures, and aligned k-means.

Each begins with local fits, matched once. All run 40 rounds, as the couplings do, with bounds that only keep
components from vanishing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedcluster_app.aggregation import fedkmeans_aligned
from fedcluster_app.coupling import wide_bounds
from fedcluster_app.gtvmin import Bounds, consensus_network, fedgrem, local, start_from_labels
from fedcluster_app.gtvmin.aligned import align
from fedcluster_app.gtvmin.consensus_gains import Filter
from fedcluster_app.gtvmin.consensus_network import ConsensusSettings
from fedcluster_app.gtvmin.fedgrem import PUBLISHED, TUNED, GrEMSettings
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.mixtures import Mixture
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.streams import stream
from simulations.experiments.personal_data import Network, Scenario

VARIANCE_FLOOR, STEP_SIZE = 0.05, 0.5


def starts(drawn: Network, k: int, seed: int, bounds: Bounds) -> dict[str, Start]:
    """Fit every site's mixture to its own rows."""
    return {name: local.fit(X, k, stream(seed, "aligned", name), bounds) for name, X in drawn.train.items()}


def run_fedgrem(
    drawn: Network, scenario: Scenario, seed: int, settings: GrEMSettings = TUNED, rounds: int = 40
) -> dict[str, Mixture]:
    """Take rounds of FedGrEM."""
    state = fedgrem.init(starts(drawn, scenario.k, seed, settings.bounds), scenario.k)
    while not fedgrem.done(state, max_rounds=rounds):
        sent = {
            name: fedgrem.client_step(X, fedgrem.model_for(state, name), settings)
            for name, X in drawn.train.items()
        }
        state = fedgrem.step(state, sent, settings)
    return dict(state.models)


def run_consensus(
    drawn: Network, scenario: Scenario, seed: int, filter_: Filter = "tracking"
) -> dict[str, Mixture]:
    """Take rounds of consensus EM along the edges."""
    bounds = wide_bounds(scenario.k, VARIANCE_FLOOR)
    settings = ConsensusSettings(filter_, bounds=bounds, step_size=STEP_SIZE)
    start = align(starts(drawn, scenario.k, seed, settings.bounds), scenario.k).pooled
    state = consensus_network.init(drawn.train, start, drawn.graph, settings)
    while not consensus_network.done(state):
        state = consensus_network.step(state, drawn.train, drawn.graph, settings)
    return consensus_network.finish(state)


def run_aligned(drawn: Network, scenario: Scenario, seed: int) -> dict[str, Mixture]:
    """Take rounds of aligned k-means; a site's mixture is that of its rows by their nearest centre."""
    sent = {
        name: fedkmeans_aligned.client_start(X, scenario.k, stream(seed, "aligned", name))
        for name, X in drawn.train.items()
    }
    state = fedkmeans_aligned.step(fedkmeans_aligned.init(scenario.k), sent)
    while not fedkmeans_aligned.done(state, max_rounds=40):
        sent = {name: fedkmeans_aligned.client_step(X, state.centers) for name, X in drawn.train.items()}
        state = fedkmeans_aligned.step(state, sent)
    return {
        name: start_from_labels(X, squared_distances(X, state.centers).argmin(axis=1), Bounds()).mixture
        for name, X in drawn.train.items()
    }


ALIGNED: dict[str, Callable[[Network, Scenario, int], dict[str, Mixture]]] = {
    "fedkmeans-aligned": run_aligned,
    "fedgrem": run_fedgrem,
    "fedgrem-published": partial(run_fedgrem, settings=PUBLISHED, rounds=1000),
    "consensus-em": run_consensus,
    "consensus-leaky": partial(run_consensus, filter_="leaky"),
}
