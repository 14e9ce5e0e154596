"""Figures of evidence-gated pooling on the networks of the personal mixtures' study, on few seeds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedcluster_app.gtvmin.pool_settings import FAST, PoolSettings
from fedcluster_app.mixtures import Mixture, responsibilities
from simulations.experiments import personal, pooling
from simulations.experiments.personal_data import READINGS, SCENARIOS, Network, draw, peers
from simulations.experiments.pooling_data import KINDS, STUDIES, Variant, network_of

SEEDS = (1, 2)


def figures(drawn: Network, found: dict[str, Mixture]) -> tuple[float, float]:
    """Log-likelihood short of the truth's on test rows, and error of the means."""
    scores = personal.score(drawn, found)
    truth = [responsibilities(drawn.test[name], one)[1].mean() for name, one in drawn.truths.items()]
    return float(np.mean(truth)) - scores["ll"], scores["error"]


@cache
def run(variant: Variant, seed: int) -> tuple[float, float]:
    drawn = network_of(variant, seed)
    assert variant.settings is not None
    results = pooling.pooled(drawn, variant, variant.settings, seed)
    return figures(drawn, {name: result.mixture for name, result in results.items()})


def over_seeds(variant: Variant) -> tuple[float, float]:
    """Means; an interval of two seeds would be no better."""
    short, error = np.mean([run(variant, seed) for seed in SEEDS], axis=0)
    return float(short), float(error)


@pytest.mark.parametrize("variant", [Variant(), Variant(FAST)], ids=["lean", "fast"])
def test_on_a_block_network_little_is_lost_against_the_truth(variant: Variant) -> None:
    short, error = over_seeds(variant)
    assert short == pytest.approx(0.036, abs=0.015)
    assert error == pytest.approx(0.24, abs=0.06)


def test_with_k_found_about_as_little_is_lost() -> None:
    found, known = over_seeds(Variant(known=False)), over_seeds(Variant())
    assert found[0] <= known[0] + 0.02
    assert found[1] <= known[1] + 0.15


def test_withholding_small_components_costs_little() -> None:
    # Two of this seed's clusters overlap, so that sites have components of very few rows.
    assert run(Variant(), 0)[0] <= run(Variant(PoolSettings(min_count=0)), 0)[0] + 0.03


def test_foreign_neighbours_change_nothing() -> None:
    none, many = (over_seeds(Variant(scenario=f"sbm {p}")) for p in ("0", "0.8"))
    assert many[0] == pytest.approx(none[0], abs=0.02)
    assert many[1] == pytest.approx(none[1], abs=0.1)


def test_equal_sites_are_as_good_as_all_rows_in_one_place() -> None:
    scenario = SCENARIOS["er"]
    networks = {seed: draw(scenario, READINGS["A"], seed) for seed in SEEDS}
    pooled = [figures(drawn, peers(drawn, scenario, seed, pooled=True)) for seed, drawn in networks.items()]
    central = np.mean(pooled, axis=0)
    short, error = over_seeds(Variant(scenario="er"))
    assert short <= central[0] + 0.02
    assert error <= central[1] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_help_whatever_the_rows_are_like(kind: str) -> None:
    variants = STUDIES["rows"][kind]
    # The worst of ten seeds gained a tenth of a nat; what is withheld has a price of its own.
    assert run(variants["pool-open"], 2)[0] < run(variants["alone"], 2)[0] - 0.05


def test_half_of_the_sites_may_be_silent() -> None:
    short, error = over_seeds(Variant(silent=True))
    spoken = over_seeds(Variant())
    assert short <= spoken[0] + 0.02
    assert error <= spoken[1] + 0.15
    assert short < over_seeds(STUDIES["rows"]["clean"]["alone"])[0] - 0.05
