"""Offsets on digits are found; where sites share no pair of classes, none is believed."""

from __future__ import annotations

from simulations.experiments.drift import run


def test_digits_come_back():
    found = run("digits", 0, 1.0, 0.0, "")
    assert found.drift.on
    assert found.offset_error < 0.15
    assert found.plain.agreement < 0.6 < 0.65 < found.used.agreement
    assert abs(found.used.k - found.ideal.k) <= 2


def test_no_site_is_laid_over_other_classes():
    found = run("poor6", 0, 3.0, 0.0, "")
    assert found.drift.held_out_gain > found.drift.standard_error
    assert not found.drift.on
    assert "of the sites are joined" in found.drift.words[-2]
