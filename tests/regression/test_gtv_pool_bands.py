"""Pooling on the block network of arXiv:2609.19202, Table 3: what not knowing k costs."""

from __future__ import annotations

import numpy as np

from fedcluster_app.gtvmin import pool_network
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures import responsibilities
from fedcluster_app.streams import stream
from simulations.experiments.personal_data import READINGS, SCENARIOS, Network, draw

LEAN = PoolSettings(max_rounds=3)


def figures(drawn: Network, k: int | None, seed: int) -> tuple[float, float]:
    """Log-likelihood of new rows and distance of k from 5, as means over sites."""

    def draws(number: int, name: str) -> np.random.Generator:
        return stream(seed, "personal", "pool", number, name)

    state = pool_network.init(drawn.train, k, drawn.graph, draws, LEAN)
    while not pool_network.done(state, LEAN):
        state = pool_network.step(state, drawn.train, drawn.graph, draws, LEAN)
    mixtures = {name: node.mixture for name, node in state.nodes.items()}
    fits = [responsibilities(drawn.test[name], mixture)[1].mean() for name, mixture in mixtures.items()]
    return float(np.mean(fits)), float(np.mean([abs(m.n_components - 5) for m in mixtures.values()]))


def test_finding_k_costs_next_to_nothing_where_clusters_are_apart() -> None:
    costs, errors = [], []
    # Networks whose closest true means are at least three standard deviations apart.
    for seed in (4, 9):
        drawn = draw(SCENARIOS["sbm 0.2"], READINGS["A"], seed)
        known, _ = figures(drawn, 5, seed)
        free, error = figures(drawn, None, seed)
        costs.append(known - free)
        errors.append(error)
    assert abs(np.mean(costs)) <= 0.01
    assert np.mean(errors) <= 0.3
