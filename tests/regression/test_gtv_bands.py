"""Figures of arXiv:2609.19202, Table 2 (unit covariances) and the block network of Table 3, on few seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from fedcluster_app.gtvmin import (
    Bounds,
    Graph,
    Settings,
    Stop,
    block_model,
    erdos_renyi,
    kmeans_start,
    network,
)
from fedcluster_app.mixtures import Mixture, responsibilities, sample

PAPER = {"step_size": 0.02, "local_steps": 5, "guard": False}


def score(
    truths: dict[str, Mixture], graph: Graph, settings: Settings, rows: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Log-likelihood short of the truth's on new rows, error of the means, effective components."""
    k = truths["00"].n_components
    tables = {name: sample(truth, rows, rng)[0] for name, truth in truths.items()}
    starts = {name: kmeans_start(X, k, rng, Bounds()).mixture for name, X in tables.items()}

    def draws(number: int, receiver: str, sender: str) -> np.random.Generator:
        return np.random.default_rng([number, int(receiver), int(sender)])

    result = network.run(tables, starts, graph, settings, draws, Stop(tolerance=0.0))
    short, error, effective = [], [], []
    for name, truth in truths.items():
        mixture, fresh = result.mixtures[name], sample(truth, 400, rng)[0]
        short.append((responsibilities(fresh, truth)[1] - responsibilities(fresh, mixture)[1]).mean())
        gaps = np.linalg.norm(mixture.means[:, None] - truth.means, axis=2)
        error.append(gaps[linear_sum_assignment(gaps)].mean())
        effective.append(np.exp(-(mixture.weights * np.log(mixture.weights)).sum()))
    return float(np.mean(short)), float(np.mean(error)), float(np.mean(effective))


@pytest.mark.parametrize(
    ("discrepancy", "alpha", "short", "error"),
    [("euclidean", 1.0, 0.004, 0.06), ("kl", 0.1, 0.026, 0.12), ("mmd", 1.0, 0.021, 0.08)],
)
def test_equal_sites_share_what_they_know(discrepancy: str, alpha: float, short: float, error: float) -> None:
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = Mixture(np.full(2, 0.5), 5 * rng.normal(size=(2, 2)), np.ones(2))
        truths = {f"{i:02d}": truth for i in range(10)}
        settings = Settings(discrepancy=discrepancy, alpha=alpha, **PAPER)
        found.append(score(truths, erdos_renyi(list(truths), 0.6, rng), settings, 100, rng))
    median = np.median(found, axis=0)
    assert median[0] == pytest.approx(short, abs=0.008)
    assert median[1] == pytest.approx(error, abs=0.03)


def test_on_a_block_network_mmd_resists_foreign_neighbours_and_euclidean_does_not() -> None:
    found: dict[str, list[tuple[float, float, float]]] = {"euclidean": [], "mmd": [], "kl": []}
    for discrepancy, scores in found.items():
        for seed in range(2):
            rng = np.random.default_rng(seed)
            base, shifts = 5 * rng.normal(size=(5, 2)), 5 * rng.normal(size=(3, 2))
            shifts[0] = 0
            truths = {
                f"{i:02d}": Mixture(np.full(5, 0.2), base + shifts[i // 5], np.ones(5)) for i in range(15)
            }
            names = list(truths)
            graph = block_model([names[:5], names[5:10], names[10:]], 0.8, 0.2, rng)
            settings = Settings(discrepancy=discrepancy, **PAPER)
            scores.append(score(truths, graph, settings, 50, rng))
    euclidean, mmd, kl = (np.median(found[name], axis=0) for name in ("euclidean", "mmd", "kl"))
    assert euclidean[1] > 2
    assert mmd[1] < 0.8
    assert mmd[1] < kl[1] < euclidean[1]
    assert mmd[0] < euclidean[0] - 0.5
    assert kl[2] > 3.5
    assert mmd[2] > 4.3
