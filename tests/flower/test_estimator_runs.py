"""A whole run with every local estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcluster_app.cardinality.registry import ESTIMATORS
from fedcluster_app.config import parse_run_config
from fedcluster_app.results.outcome import FINISHED
from simulations.federation import run_locally


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four far balls; each of two sites holds three of them."""
    rng = np.random.default_rng(0)
    centers = 20 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    y = np.repeat([0, 1, 2, 1, 2, 3], 50)
    X = centers[y] + rng.normal(size=(300, 2))
    path = tmp_path_factory.mktemp("balls") / "balls.npz"
    np.savez(path, X=X, y=y, site=np.repeat([0, 1], 150), site_names=np.array(["east", "west"]))
    return str(path)


@pytest.mark.parametrize("init", ["kmeans", "asm-means"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_run_with_every_estimator(estimator: str, init: str, data: str, tmp_path: Path) -> None:
    config = parse_run_config(
        {"method": "fedgem", "data": data, "partition": "site", "estimator": estimator, "init": init}
    )
    outcome = run_locally(config, 2, run_folder=str(tmp_path)).outcome
    assert (outcome.status, outcome.k_hat) == (FINISHED, 4)
    assert outcome.scores["ari"] > 0.99
    for site in outcome.sites:
        assert site.details["k_counted"] == site.details["k_g"] == 3
        chosen = site.details["chosen"]
        assert (chosen == {}) == (estimator == "oracle")
        assert np.isnan(site.details["held_out_silhouette"]) == (estimator == "oracle")
        assert all(np.isfinite(list(chosen.values())))
