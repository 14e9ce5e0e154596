"""Evidence-gated pooling beside IFCA that is told the true number of blocks, on few seeds."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.experiments.personal import Trial, run_trial


@pytest.mark.parametrize("seed", [0, 8, 13])
def test_pooling_says_more_of_new_rows_than_ifca_with_the_true_number_of_blocks(seed):
    """All 20 seeds of the study agree; these have the median gap, and two of the smallest ones.

    IFCA finds the blocks: sites alone, and one model for all, are far behind it.
    """
    found = {
        name: run_trial(Trial("sbm 0.2", "A", name, seed, {}))
        for name in ("pool", "ifca", "local", "fedgengmm")
    }
    assert found["pool"].ll > found["ifca"].ll
    assert found["ifca"].ll > found["local"].ll + 0.3
    assert found["ifca"].ll > found["fedgengmm"].ll + 0.3
    assert np.isfinite(found["ifca"].error)
