"""What one upload of micro-clusters reaches on real data, held within bands over a few seeds.

Rows are dealt by regime A; scores are of the held-out rows of all sites, labelled by each site's weights. The
bands are the specification's, at the true number of classes, and wider above: starts from larger fits came
later.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from fedcluster_app.aggregation.micro.path import follow, grid, largest_k
from fedcluster_app.aggregation.micro.votes import cast, decide
from fedcluster_app.streams import stream
from simulations.experiments.federations import federation
from simulations.experiments.k_rules import labels_agree
from simulations.experiments.sets import SETS


def scored(name: str, folder: str, seed: int) -> dict[str, float]:
    """ARI at the true number of classes, and at that of the default rule."""
    cells, dealt = federation(SETS[name], seed, name, folder)
    true = len(np.unique(dealt.y))
    ks = np.unique(np.append(grid(largest_k(cells)), true))
    path = follow(cells, ks, stream(seed, "assembly"))
    chosen = int(ks[np.argmin(np.abs(ks - decide(cast(path), "median", cells.n_sites)))])
    return {
        rule: labels_agree(dealt, path.fits[k].clusters) for rule, k in (("true", true), ("median", chosen))
    }


@pytest.mark.parametrize(
    ("name", "file", "seeds", "band", "by_rule"),
    [
        ("digits", "", 3, (0.70, 0.90), 0.65),
        ("penguins", "penguins_3islands.npz", 5, (0.85, 1.0), 0.85),
        ("waveform", "waveform.npz", 3, (0.50, 0.75), 0.45),
        ("mnist", "mnist_test_features.npz", 1, (0.70, 0.88), 0.60),
    ],
)
def test_agreement_with_the_classes(
    name: str,
    file: str,
    seeds: int,
    band: tuple[float, float],
    by_rule: float,
    shared_data: Callable[[str], str],
) -> None:
    folder = os.path.dirname(shared_data(file)) if file else ""
    found = [scored(name, folder, seed) for seed in range(seeds)]
    low, high = band
    assert low <= np.mean([one["true"] for one in found]) <= high
    assert np.mean([one["median"] for one in found]) >= by_rule
