"""Evidence-gated pooling beside IFCA that is told the true number of blocks."""

from __future__ import annotations

import pytest

from simulations.experiments.personal import Trial, run_trial


def log_likelihood(method: str, seed: int) -> float:
    return run_trial(Trial("sbm 0.2", "A", method, seed, {})).ll


def test_pooling_says_more_of_new_rows_than_ifca_with_the_true_number_of_blocks() -> None:
    won = [log_likelihood("pool", seed) > log_likelihood("ifca", seed) for seed in range(20)]
    assert sum(won) >= 18


@pytest.mark.parametrize("seed", [0, 8])
def test_ifca_finds_the_blocks(seed: int) -> None:
    """Sites alone, and one model for all, are far behind it."""
    found = log_likelihood("ifca", seed)
    assert found > log_likelihood("local", seed) + 0.3
    assert found > log_likelihood("fedgengmm", seed) + 0.3
