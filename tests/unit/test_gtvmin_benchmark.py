from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.gtvmin import Bounds, kmeans_start
from fedcluster_app.gtvmin.blocks import blocks
from fedcluster_app.mixtures import em
from simulations.benchmarks import gtvmin
from simulations.benchmarks.gtvmin import main


@pytest.mark.filterwarnings("ignore:.*did not converge.*")
def test_the_peer_makes_so_many_iterations_of_em_from_the_same_start():
    X = gtvmin.synthetic_rows(200, 2)
    start = kmeans_start(X, 5, np.random.default_rng(0), Bounds(), n_init=1).mixture
    for iterations in (1, 4):
        model = gtvmin._em(X, blocks(start), iterations)()
        assert model.n_iter_ == iterations
        ours = em.init(start)
        for _ in range(iterations):
            ours = em.step(ours, X, reg_covar=1e-6)
        np.testing.assert_allclose(model.means_, ours.mixture.means, atol=1e-8)


def test_command_prints_tables(capsys):
    sizes = ["--rows", "30", "--features", "2", "--pulls", "2x3", "--sites", "3,6", "--runs", "1"]
    main([*sizes, "--repeats", "1"])
    printed = capsys.readouterr().out
    for part in (
        "gradient step  EM iteration",
        "30x2",
        "step to EM iteration",
        "ms, 8 neighbours",
        "pull to eigendecompositions",
        "ms of a round",
        "µs for each edge",
        "for each edge, to the smallest",
        "15 sites, 1 rounds",
        "to EM fits",
    ):
        assert part in printed


def test_nothing_is_measured_that_is_not_asked_for(capsys):
    main(["--rows", "", "--pulls", "2x3", "--sites", "", "--runs", "0", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "pull to four inverses" in printed
    assert "EM" not in printed
    assert "round" not in printed
