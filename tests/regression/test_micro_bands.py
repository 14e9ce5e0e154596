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

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.micro.cells import stack
from fedcluster_app.aggregation.micro.em import Clusters
from fedcluster_app.aggregation.micro.path import follow, grid, largest_k
from fedcluster_app.aggregation.micro.votes import cast, decide
from fedcluster_app.data.scaling import agree_scaling, table_moments
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table
from fedcluster_app.mixtures.densities import log_densities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import merge_all
from fedcluster_app.streams import stream
from simulations.experiments.sets import SETS, deal


def scored(name: str, folder: str, seed: int) -> dict[str, float]:
    """ARI at the true number of classes and at those of two rules."""
    source = SETS[name]
    dealt = deal(source, folder, "a", stream(seed, "experiment", name))
    moments = merge_all([table_moments(dealt.X[rows], full=True) for rows in dealt.train.values()])
    columns = [str(i) for i in range(dealt.X.shape[1])]
    scaling, _ = agree_scaling(moments, columns, method=source.scaling, pca=source.pca, share=0.95)
    uploads = {}
    for site, rows in dealt.train.items():
        X, rng = scaling.apply(dealt.X[rows]), stream(seed, site, "micro")
        halves = microcluster.halve(len(X), rng, min_rows=5)
        uploads[site] = microcluster.micro_clusters(X, halves, rng, min_rows=5, rows_per_cell=10, most=20)
    cells, true = stack(uploads), len(np.unique(dealt.y))
    ks = np.unique(np.append(grid(largest_k(cells)), true))
    path = follow(cells, ks, stream(seed, "assembly"))
    votes = cast(path)

    def ari(clusters: Clusters) -> float:
        tables = []
        for number, rows in enumerate(dealt.test.values()):
            mixture = Mixture(clusters.global_weights, clusters.means, clusters.covariances)
            joint = log_densities(scaling.apply(dealt.X[rows]), mixture) + np.log(clusters.weights[number])
            tables.append(contingency_table(dealt.y[rows], joint.argmax(axis=1), shape=(true, clusters.k)))
        return adjusted_rand_index(np.sum(tables, axis=0))

    nearest = {
        rule: int(ks[np.argmin(np.abs(ks - decide(votes, rule, cells.n_sites)))])
        for rule in ("geometric", "median")
    }
    found = {rule: ari(path.fits[k].clusters) for rule, k in nearest.items()}
    return {"true": ari(path.fits[true].clusters), **found}


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
