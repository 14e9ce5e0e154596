from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simulations.benchmarks import gtvpool
from simulations.benchmarks.gtvpool import METHODS, Trace, alike, main, message_bytes, report_runs, trace
from simulations.experiments import personal
from simulations.experiments.personal_data import READINGS, SCENARIOS, draw


def made(ll, *, second=1.0, sent=100.0):
    rounds = np.arange(len(ll), dtype=float)
    return Trace(np.array(ll), second * (rounds + 1), sent * rounds)


def test_a_message_has_counts_means_and_triangles():
    assert message_bytes(5, 2) == 8 * 5 * (1 + 2 + 3)
    assert message_bytes(1, 10) == 8 * (1 + 10 + 55)


def test_a_trace_counts_steps_results_and_messages(monkeypatch):
    clock = iter([0.0, 1.0, 1.5, 10.0, 12.0, 12.5, 20.0, 24.0, 24.5, 30.0])
    monkeypatch.setattr(gtvpool.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(gtvpool, "score", lambda drawn, found: {"ll": found["ll"]})
    steps = [({"ll": -5.0}, 100.0), ({"ll": -4.0}, 60.0), ({"ll": -4.5}, 60.0)]
    found = trace(iter([(mixtures.copy, sent) for mixtures, sent in steps]), None)
    assert found.ll.tolist() == [-5, -4, -4.5]
    # Scoring, from 1.5 to 10 and from 12.5 to 20, is not timed; the half is for the result, made once.
    assert found.seconds.tolist() == [1.5, 3.5, 7.5]
    assert found.sent.tolist() == [100, 160, 220]
    assert [found.reached(ll) for ll in (-5.5, -4.5, -4.0005 + gtvpool.NEAR, -3.9)] == [0, 1, 1, None]


def test_round_by_round_is_the_run_of_the_study():
    scenario = SCENARIOS["sbm 0.2"]
    drawn = draw(scenario, READINGS["A"], 0)
    known, settings = personal.POOLED["pool-fast"]
    *_, (mixtures, sent) = gtvpool.pool_rounds(drawn, scenario.k if known else None, settings, 0)
    expected = personal.pool(drawn, scenario.k, settings, 0)
    assert sent == message_bytes(5, 2)
    for name, result in expected.items():
        np.testing.assert_array_equal(mixtures()[name].means, result.mixture.means)
    *_, (mixtures, _) = gtvpool.mmd_rounds(drawn, 1, 0)
    settings = personal.paper(scenario, "mmd", {})
    begun = personal.starts(drawn, scenario.k, READINGS["A"], settings, 0)
    coupled = personal.couple(drawn, begun, settings, 1, 0)
    for name, mixture in coupled.items():
        np.testing.assert_array_equal(mixtures()[name].means, mixture.means)


def test_costs_are_until_a_method_is_as_good_as_another_at_its_end(monkeypatch):
    found = {
        "pool": made([-5, -4.2, -4.0]),
        "pool-fast": made([-5, -4.1], second=0.5),
        "pool-auto": made([-5, -4.2, -4.0], sent=200),
        "mmd": made([-6, -5, -4.15, -4.5, -4.5], second=2),
    }
    monkeypatch.setattr(gtvpool, "traces", lambda seed, rounds: found)
    ends, sent, seconds = (part.splitlines() for part in report_runs(1, 4).split("\n\n"))
    assert [line.split()[0] for line in ends[1:]] == list(METHODS)
    assert ends[1].split()[1:] == ["3.000", "0.300", "2.000", "0.200", "0.500", "-4.000"]
    assert ends[4].split()[1:] == ["10.000", "1.000", "4.000", "0.400", "1.000", "-4.500"]
    assert sent[1].split()[1:] == ["0.200", "0.200", "0.200", "0.100"]
    assert sent[4].split()[1:] == ["inf", "inf", "inf", "0.200"]
    assert seconds[2].split()[1:] == ["inf", "1.000", "inf", "1.000"]


def test_sites_of_the_same_truth_share_all_rows():
    tables = alike(4, 3)
    assert [X.shape for X in tables.values()] == [(gtvpool.SITE_ROWS, 3)] * 4
    means = np.array([X.mean(axis=0) for X in tables.values()])
    assert np.abs(means - means.mean(axis=0)).max() < 2
    assert len(np.unique(np.concatenate(list(tables.values())), axis=0)) == 4 * gtvpool.SITE_ROWS


def test_command_prints_tables(capsys, monkeypatch):
    monkeypatch.setattr(gtvpool, "traces", lambda seed, rounds: dict.fromkeys(METHODS, made([-5.0, -4.0])))
    main(["--runs", "1", "--neighbours", "2,4", "--features", "2", "--sites", "3,6", "--repeats", "1"])
    printed = capsys.readouterr().out
    for part in (
        "block network, 1 seeds",
        "s, to MMD",
        "kB to reach the last LL",
        "s to reach the last LL",
        "10 components, d=2",
        "for each component, to the fewest",
        "ms local fit",
        "kB at most",
        "to the smallest",
    ):
        assert part in printed


def test_whole_runs_are_of_all_methods(monkeypatch):
    monkeypatch.setitem(SCENARIOS, "sbm 0.2", dataclasses.replace(SCENARIOS["sbm 0.2"], sites=5))
    found = gtvpool.traces(1, 2)
    assert set(found) == set(METHODS)
    assert len(found["mmd"].ll) == 3
    assert found["pool"].ll[-1] > found["mmd"].ll[-1]
    # One message of five components a round, and with k found not of many more.
    assert found["pool"].sent[-1] == message_bytes(5, 2) * len(found["pool"].ll)
    assert found["pool-auto"].sent[0] < message_bytes(10, 2)


def test_nothing_is_measured_that_is_not_asked_for(capsys):
    main(["--runs", "0", "--neighbours", "", "--sites", "3", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "3 sites" in printed
    assert "LL" not in printed
    assert "components" not in printed


def test_medians_are_over_seeds(monkeypatch):
    ends = iter([-4.0, -4.2, -9.0])
    monkeypatch.setattr(
        gtvpool, "traces", lambda seed, rounds: dict.fromkeys(METHODS, made([-9.5, next(ends)]))
    )
    line = report_runs(3, 1).splitlines()[1].split()
    assert line[-1] == "-4.200"
    assert float(line[1]) == pytest.approx(2.0)
