"""Faults in GTVMin runs: silence, return, nonsense; the others go on and the site is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gtv_runs import at, changed, crash, rounds, run, silent
from numpy.typing import NDArray

from simulations.federation import LocalRun

EVER = range(1000)


def status(one: LocalRun) -> dict[str, str]:
    return {site.name: site.status for site in one.outcome.sites}


def test_a_silent_site_is_heard_ever_more_softly_and_then_no_more(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, gtv_rounds=8, max_age=2, tamper=at(range(3, 1000), silent))
    weights = [dict(zip(asks["a"].neighbours, asks["a"].edges.tolist(), strict=True)) for asks in rounds(one)]
    # Silent from round 3 on: its mixture of round 2 is fresh in round 3, then one, two rounds old.
    assert [asked.get("b", 0.0) for asked in weights] == pytest.approx([1, 1, 1, 1 / 2, 1 / 3, 0, 0, 0])
    assert all(asked["c"] == 1 for asked in weights)
    assert one.outcome.status == "finished"
    assert status(one)["b"].startswith("missed 6 exchanges from round 3 on: no answer in time")
    assert any("sites b were silent at the end" in warning for warning in one.outcome.warnings)
    # It is asked in every round, from where it was.
    asked = [asks["b"].mixtures[0] for asks in rounds(one)]
    for later in asked[3:]:
        np.testing.assert_array_equal(later.means, asked[2].means)


def test_a_site_that_returns_goes_on_from_its_last_mixture(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, gtv_rounds=6, tamper=at({2, 3}, silent))
    own = [asks["b"].mixtures[0].means for asks in rounds(one)]
    np.testing.assert_array_equal(own[1], own[2])
    np.testing.assert_array_equal(own[1], own[3])
    assert not np.array_equal(own[3], own[4])
    assert not any("silent at the end" in warning for warning in one.outcome.warnings)


def test_a_site_that_starts_late_takes_part_from_then_on(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, gtv_rounds=5, tamper=at({0}, _first_only(silent)))
    assert ["b" in asks["a"].neighbours for asks in rounds(one)] == [False, True, True, True, True]
    assert status(one) == {"a": "ok", "b": "missed start: no answer in time", "c": "ok"}
    assert {len(model.weights) for model in one.outcome.model.mixtures.values()} == {3}


def _first_only(fault: Any) -> Any:
    """Let a fault strike once."""
    struck: list[bool] = []

    def once(question: Any, answer: Any) -> Any:
        if struck:
            return answer
        struck.append(True)
        return fault(question, answer)

    return once


def test_a_site_that_never_starts_labels_by_its_neighbours(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    one = run(three_sites, tamper=at(EVER, crash))
    assert one.outcome.status == "finished"
    assert "out of memory" in status(one)["b"]
    assert any("sites b never sent a mixture" in warning for warning in one.outcome.warnings)
    found = clusters_in(three_sites[1]["labels-path"])
    assert len(set(found.tolist())) == 3


def nan(array: NDArray[Any]) -> NDArray[Any]:
    array.flat[0] = np.nan
    return array


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("means", nan, "NaN or infinite"),
        ("weights", lambda w: w * 3, "a sum of 1"),
        ("weights", lambda w: np.array([1.0, 0.0, 0.0]), "a weight is 0, expected at least 0.02"),
        ("means", lambda m: m * 1e9, "a mean has length"),
        ("covariances", lambda c: c * 0 + [1e-9, 0, 1e-9], "variances reach from 1e-09"),
        ("covariances", lambda c: -c, "positive definite"),
        ("covariances", lambda c: c[:, :2], "expected shape"),
        ("members", lambda m: m + 1, "in order without gaps"),
        ("members", lambda m: np.arange(len(m)), "a sum of 1"),
        ("loss", lambda v: np.zeros(2), "expected shape"),
    ],
)
def test_nonsense_is_not_handed_on(
    three_sites: list[dict[str, Any]], field: str, change: Any, reason: str
) -> None:
    one = run(three_sites, tamper=at({2}, changed(field, change)))
    assert one.outcome.status == "finished"
    record = next(record for record in one.trace if record.phase == "round 2")
    assert reason in record.failed["b"]
    assert record.answered == ("a", "c")
    before, after = (rounds(one)[number]["b"].mixtures[0] for number in (1, 2))
    np.testing.assert_array_equal(before.means, after.means)
    assert status(one)["b"].startswith("missed round 2")


def test_a_start_whose_components_are_wider_than_the_rows_is_not_used(
    three_sites: list[dict[str, Any]],
) -> None:
    one = run(three_sites, tamper=at({0}, _first_only(changed("covariances", lambda c: c * 1e6))))
    assert "inside" in one.trace[1].failed["b"]
    clean = run(three_sites)
    scales = [found.outcome.model.scaling.scale for found in (one, clean)]
    np.testing.assert_allclose(*scales, rtol=0.1)


def test_too_few_answers_end_the_run_with_a_plain_status(three_sites: list[dict[str, Any]]) -> None:
    from fedcluster_app.errors import RunError

    with pytest.raises(RunError, match="phase 'round 2': 2 of 3 sites answered, quorum is 3"):
        run(three_sites, quorum=3, tamper=at({2}, silent))
