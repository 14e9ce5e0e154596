from __future__ import annotations

import math

import numpy as np
import pytest

from simulations.benchmarks import phase1
from simulations.benchmarks.phase1 import Table, clients, growth, main, measure, peak_over_input, synthetic


def table(n, d, name="t"):
    return Table(name, np.zeros((n, d)), np.zeros(n, dtype=np.int64))


def test_growth_is_the_exponent_from_the_smallest_to_the_largest_size():
    tables = [table(n, d) for n, d in ((500, 2), (2000, 2), (5000, 3), (20_000, 2), (40_000, 3))]
    times = np.array([9.0, 1.0, 2.0, 10**1.5, 2.0 * 8])
    assert growth(tables, times) == [(2, pytest.approx(1.5)), (3, pytest.approx(1.0))]
    times[3] = math.nan
    assert growth(tables, times) == [(3, pytest.approx(1.0))]


def test_times_are_medians_and_slow_runners_leave_larger_tables(monkeypatch):
    monkeypatch.setattr(phase1, "seconds", lambda run, table: run(table))
    runs = {"a": [], "b": []}

    def runner(name, factor):
        def run(table):
            runs[name].append(len(table.X))
            return factor * len(table.X) * len(runs[name])

        return run

    names = {"a": runner("a", 0.001), "b": runner("b", 1.0)}
    times = measure([table(1, 1), table(10, 1), table(100, 1)], names, repeats=3, limit=5.0)
    np.testing.assert_allclose(times["a"], [0.002, 0.05, 0.8])
    # One run over the limit ends a table's repeats, and the larger table is not tried.
    assert runs["b"] == [1, 1, 1, 10]
    np.testing.assert_allclose(times["b"], [2.0, 40.0, np.nan])


def test_memory_is_counted_in_tables():
    rows = Table("t", np.zeros((1000, 10)), np.zeros(1000))
    assert peak_over_input(lambda table: np.tile(table.X, (3, 1)), rows) == pytest.approx(3, rel=0.05)


def test_synthetic_tables_have_ten_round_clusters():
    made = synthetic(2000, 4)
    assert made.X.shape == (2000, 4)
    spreads = [made.X[made.y == label].std(axis=0) for label in range(10)]
    np.testing.assert_allclose(spreads, 1, atol=0.2)


def test_clients_are_the_first_sites_of_a_standardised_set(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = 7 * rng.normal(size=(900, 3)) + 5, rng.integers(3, size=900)
    np.savez(tmp_path / "waveform.npz", X=X, y=y)
    found = clients("waveform", str(tmp_path), most=2)
    assert [part.name for part in found] == ["waveform", "waveform"]
    assert all(len(part.X) == len(part.y) > 0 for part in found)
    assert abs(np.concatenate([part.X for part in found]).std() - 1) < 0.1


def test_command_prints_tables(capsys):
    main(["--sizes", "60x2,80x2", "--sets", "", "--estimators", "asm", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "ratio to bgm20" in printed
    assert "60x2" in printed
    assert "peak memory at 80x2" in printed
