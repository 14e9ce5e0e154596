from __future__ import annotations

import math

import numpy as np
import pytest

from fedcluster_app.aggregation.micro.cells import stack
from fedcluster_app.aggregation.micro.path import follow
from fedcluster_app.config import parse_run_config
from simulations.benchmarks import measures
from simulations.benchmarks.measures import grid, medians, peak_bytes
from simulations.benchmarks.microcluster import CLUSTERS, main, report_bytes, synthetic_rows, uploads


def test_uploads_are_those_of_sites_with_five_of_ten_clear_clusters():
    sent = uploads(130)
    assert [len(part.counts) for part in sent.values()] == [33, 33, 32, 32]
    assert list(sent) == sorted(sent)
    cells = stack(sent)
    assert cells.n_cells == 130
    assert set(cells.halves) == {0, 1}
    np.testing.assert_allclose(cells.variances.mean(), 0.9, rtol=0.05)
    path = follow(stack(uploads(400)), np.array([5, CLUSTERS, 14]), np.random.default_rng(0))
    assert path.k[np.argmin(path.bic)] == CLUSTERS


def test_medians_are_of_runs_that_take_turns(monkeypatch):
    runs, times = [], {"a": iter([1.0, 9.0, 2.0]), "b": iter([4.0, 3.0, 5.0])}
    monkeypatch.setattr(measures, "seconds", lambda run: run())

    def runner(name):
        def run():
            runs.append(name)
            return next(times[name])

        return run

    assert medians({"a": runner("a"), "b": runner("b")}, 3) == {"a": 2.0, "b": 4.0}
    assert runs == ["a", "b"] * 3


def test_memory_is_the_largest_at_one_time():
    def run(size):
        np.ones(3 * size)
        np.ones(size)

    assert peak_bytes(run, 10_000) == pytest.approx(240_000, rel=0.02)


def test_what_was_not_measured_is_a_dash():
    assert grid("t", ["x", "y"], {"c": [1.0, math.nan]}, "{:.1f}").split() == ["t", "c", "x", "1.0", "y", "-"]


def test_bytes_are_the_entries_and_little_else():
    lines = report_bytes([32]).splitlines()
    cells, fedgem, rounds = (int(part) for part in lines[1].split()[3:])
    made = max(1, parse_run_config({}).micro.refine_rounds)
    hello = 8 * 32 * 33 // 2 + 8 * 32
    assert 0 < cells - hello - 8 * 40 * (2 * 32 + 2) < 1500
    assert 0 < fedgem - 2 * 8 * 32 - 8 * 5 * (11 * 33 + 2 * 32 + 2 + 1) < 5000
    assert 0 < rounds - made * 8 * (10 * (1 + 32 + 528) + 2) < 300 * made
    assert float(lines[-1].split()[-1]) == pytest.approx((cells + rounds) / fedgem, abs=0.01)


def test_rows_are_of_five_clusters():
    X = synthetic_rows(4000, 3)
    assert X.shape == (4000, 3)
    assert X.std() > 2


def test_command_prints_tables(capsys):
    sizes = ["--cells", "60,80", "--rows", "30,60", "--features", "3", "--sent", "4"]
    main([*sizes, "--repeats", "1"])
    printed = capsys.readouterr().out
    for part in (
        "assembly",
        "to peer",
        "peak memory",
        "ms of a site",
        "to two k-means",
        "micro-clusters / fedgem",
    ):
        assert part in printed
