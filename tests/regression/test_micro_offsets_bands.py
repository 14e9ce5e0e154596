"""Offsets of one standard deviation within classes on digits: found, and the classes with them."""

from __future__ import annotations

from simulations.experiments.drift import run


def test_digits_come_back():
    found = run("digits", 0, 1.0, 0.0, "")
    assert found.drift.on
    assert found.offset_error < 0.15
    assert found.plain.agreement < 0.6 < 0.65 < found.used.agreement
    assert abs(found.used.k - found.ideal.k) <= 2
