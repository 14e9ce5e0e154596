"""The study of sensors that differ: what is drawn, and the table."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.aggregation.micro.drift import Drift
from simulations.experiments.drift import Answer, Trial, _sensors, main, run, table


def trial(seed, on, agreement):
    drift = Drift(on, np.zeros((2, 2)), np.ones((2, 2)), np.zeros(2), 20.0, 5.0, 2.0)
    answers = [Answer(value, 3) for value in (0.5, 0.6, agreement, 1.0)]
    return Trial("set", seed, 1.0, 0.15, *answers, drift, 0.25, 0.5, 2.0)


def test_sensors_have_nothing_in_common():
    rng = np.random.default_rng(0)
    sensors = _sensors(400, np.array([1.0, 3.0]), 2.0, 0.15, rng)
    np.testing.assert_allclose(sensors.offsets.sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.log(sensors.gains).sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(sensors.offsets.std(axis=0), [2.0, 6.0], rtol=0.1)
    np.testing.assert_allclose(np.log(sensors.gains).std(axis=0), 0.15, rtol=0.1)


def test_a_line_holds_the_means_over_the_seeds():
    line = table([trial(0, True, 0.7), trial(1, False, 0.9)]).splitlines()[1].split()
    assert line[:4] == ["set", "1", "0.15", "1/2"]
    assert line[4:8] == ["0.50/3.0", "0.60/3.0", "0.80/3.0", "1.00/3.0"]
    assert line[-3:] == ["0.25", "0.50", "2.00"]


def test_without_drift_nothing_is_taken_out():
    found = run("easy", 0, 0.0, 0.0, "")
    assert not found.drift.on
    assert found.plain == found.offsets == found.used == found.ideal
    assert found.plain.agreement > 0.9


def test_an_unknown_set_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--sets", "nosuchset"])
    assert "nosuchset" in capsys.readouterr().err
