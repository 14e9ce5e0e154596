"""Rivals that go through a server, in the study of personal mixtures: FedEM, FedGenGMM, and IFCA."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedcluster_app.aggregation import fedem, fedgengmm, ifca
from fedcluster_app.gtvmin import Bounds, node
from fedcluster_app.mixtures import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from simulations.experiments.personal_data import Network, Scenario

#: IFCA: of sites that differ; where all are alike it is told one model.
MODELS, RESTARTS = 3, 5
Rows = Mapping[str, FloatArray]


def run_fedem(X: Rows, scenario: Scenario, seed: int) -> dict[str, Mixture]:
    """Take rounds of FedEM until the likelihood settles; nothing is withheld."""
    k = scenario.k
    starts = {
        name: fedem.client_start(rows, k, stream(seed, "fedem", name), min_count=0)
        for name, rows in X.items()
    }
    state = fedem.init(starts, k, stream(seed, "fedem"))
    weights = dict.fromkeys(X, state.components.weights)
    while not fedem.done(state):
        sent = {}
        for name, rows in X.items():
            sent[name], weights[name] = fedem.client_step(rows, state.components, weights[name], min_count=0)
        state = fedem.step(state, sent)
    return {name: fedem.client_finish(state.components, own) for name, own in weights.items()}


def run_fedgengmm(X: Rows, scenario: Scenario, seed: int) -> dict[str, Mixture]:
    """Fit a mixture to rows drawn from those of all sites."""
    k = scenario.k
    sent = {
        name: fedgengmm.client_step(rows, k, stream(seed, "fedgengmm", name), min_count=0)
        for name, rows in X.items()
    }
    return dict.fromkeys(X, fedgengmm.server_step(sent, k, stream(seed, "fedgengmm")).mixture)


def run_ifca(X: Rows, scenario: Scenario, seed: int) -> dict[str, Mixture]:
    """Take rounds of IFCA from several starts, and keep the likeliest run."""
    b = MODELS if scenario.p_out is not None or scenario.shape == "digits" else 1
    starts = {
        name: fedem.client_start(rows, scenario.k, stream(seed, "ifca", name), min_count=0)
        for name, rows in X.items()
    }
    models = ifca.candidates(starts)
    scores = {name: ifca.client_scores(rows, models.values()) for name, rows in X.items()}
    runs = []
    for number in range(RESTARTS):
        state = ifca.init(models, scores, b, stream(seed, "ifca", number))
        while not ifca.done(state):
            sent = {name: ifca.client_step(rows, state.models, min_count=0) for name, rows in X.items()}
            state = ifca.step(state, sent)
        runs.append(state)
    return {name: ifca.client_finish(rows, ifca.best(runs).models) for name, rows in X.items()}


RIVALS: dict[str, Callable[[Rows, Scenario, int], dict[str, Mixture]]] = {
    "fedem": run_fedem,
    "fedgengmm": run_fedgengmm,
    "ifca": run_ifca,
}


def rival(method: str, drawn: Network, scenario: Scenario, seed: int) -> dict[str, Mixture]:
    """Fit a rival's mixtures; on digits they are made feasible, as scikit-learn's are (see `peers`)."""
    found = RIVALS[method](drawn.train, scenario, seed)
    if scenario.shape != "digits":
        return found
    return {name: node.init(mixture, Bounds()).mixture for name, mixture in found.items()}
