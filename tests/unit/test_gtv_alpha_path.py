"""The choice of alpha by rows held out at the sites."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedcluster_app.gtvmin.alpha_path import (
    AUTO,
    Point,
    at_their_best,
    best_of,
    gain,
    is_over,
    standard_error,
)

ROWS = {"a": 10, "b": 30}


def point(alpha: float, a: float, b: float) -> Point:
    return Point(alpha, {"a": a, "b": b}, ROWS)


def test_a_row_counts_the_same_wherever_it_is() -> None:
    assert point(1.0, -10.0, -90.0).mean == pytest.approx(-100.0 / 40)
    assert math.isnan(Point(1.0, {}, {}).mean)


def test_the_best_round_of_every_alpha_counts() -> None:
    seen = [
        point(0, -50, -50),
        point(0, -40, -40),
        point(0, -45, -45),
        point(1, -60, -60),
        point(1, -30, -30),
    ]
    best = at_their_best(seen)
    assert [(one.alpha, one.held_out["a"]) for one in best] == [(0, -40), (1, -30)]
    assert at_their_best([]) == []


def test_points_are_compared_over_the_sites_that_both_have() -> None:
    both, one = point(0, -10.0, -90.0), Point(1, {"b": -60.0}, {"b": 30})
    assert gain(one, both) == pytest.approx(30 / 30)
    assert gain(both, one) == pytest.approx(-1.0)
    assert math.isnan(gain(both, Point(2, {"c": 0.0}, {"c": 5})))
    # A site that is easy to tell comes late: that alone is no reason to change.
    easy = Point(1, {"a": 0.0, "b": -91.0}, {"a": 10, "b": 30})
    hard = Point(0, {"b": -90.0}, {"b": 30})
    assert easy.mean > hard.mean
    assert best_of([hard, easy]) == 0
    assert best_of([both, both, one]) == 2


def test_no_site_counts_for_much_more_than_the_others() -> None:
    rows = dict.fromkeys("abcde", 10)
    base = Point(0, dict.fromkeys("abcde", -100.0), rows)
    worse = Point(1, {**dict.fromkeys("abcd", -101.0), "e": 1e9}, rows)
    assert gain(worse, base) == pytest.approx((4 * -0.1 + 3 * 0.1) / 5)
    honest = Point(1, {**dict.fromkeys("abcd", -101.0), "e": -98.0}, rows)
    assert gain(honest, base) == pytest.approx(-2 / 50)


def test_a_point_without_rows_is_never_the_best() -> None:
    empty = Point(0, {}, {})
    assert best_of([empty, point(0, -10, -10), empty]) == 1
    assert best_of([empty, empty]) == 0


def test_the_standard_error_is_that_of_a_sum_over_sites() -> None:
    rng = np.random.default_rng(0)
    names = [f"s{g}" for g in range(400)]
    rows = dict.fromkeys(names, 5)
    best = Point(1.0, dict(zip(names, rng.normal(0, 3, 400), strict=True)), rows)
    other = Point(2.0, dict(zip(names, rng.normal(0, 3, 400), strict=True)), rows)
    # Independent differences of variance 18: their sum has standard deviation sqrt(400 * 18).
    assert standard_error(other, best) == pytest.approx(math.sqrt(400 * 18) / 2000, rel=0.1)
    assert standard_error(best, best) == 0
    one = Point(1.0, {"a": -1.0}, {"a": 3})
    assert standard_error(one, one) == 0


def test_the_path_ends_when_it_is_clearly_worse_twice() -> None:
    good, near, bad = point(0, -10, -10), point(1, -10, -11), point(2, -90, -95)
    assert not is_over([good, bad])
    assert is_over([good, bad, bad])
    assert not is_over([good, bad, near])
    assert not is_over([good, near, near])  # within the standard error of 0.5 * sqrt(2) / 40 rows
    assert not is_over([bad, bad, good])


def test_the_grid_begins_without_coupling_and_ascends() -> None:
    assert AUTO[0] == 0
    assert list(AUTO) == sorted(set(AUTO))
