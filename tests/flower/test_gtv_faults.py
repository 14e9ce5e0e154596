"""Faults in GTVMin runs: silence, return, nonsense; the others go on and the site is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gtv_runs import asked, at, changed, crash, first_only, rounds, run, silent
from numpy.typing import NDArray

from fedcluster_app.messages import AskLabels
from fedcluster_app.transport import from_records
from simulations.federation import LocalRun
from strategies.gtvmin_rounds import Stage
from strategies.mailbox import Mailbox

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
    assert status(one)["b"].startswith("missed 4 exchanges from round 3 on: no answer in time")
    assert any("sites b were silent at the end" in warning for warning in one.outcome.warnings)
    # It is asked from where it was, and once it is too old only now and then: every question is waited for.
    asked = {number: asks["b"].mixtures[0] for number, asks in enumerate(rounds(one), start=1) if "b" in asks}
    assert list(asked) == [1, 2, 3, 4, 5, 7]
    for number in (4, 5, 7):
        np.testing.assert_array_equal(asked[number].means, asked[3].means)


def test_a_site_that_returns_goes_on_from_its_last_mixture(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, gtv_rounds=6, tamper=at({2, 3}, silent))
    own = [asks["b"].mixtures[0].means for asks in rounds(one)]
    np.testing.assert_array_equal(own[1], own[2])
    np.testing.assert_array_equal(own[1], own[3])
    assert not np.array_equal(own[3], own[4])
    assert not any("silent at the end" in warning for warning in one.outcome.warnings)


def test_a_site_that_starts_late_takes_part_from_then_on(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, gtv_rounds=5, tamper=at({0}, first_only(silent)))
    assert ["b" in asks["a"].neighbours for asks in rounds(one)] == [False, True, True, True, True]
    assert status(one) == {"a": "ok", "b": "missed start: no answer in time", "c": "ok"}
    assert {len(model.weights) for model in one.outcome.model.mixtures.values()} == {3}


def test_a_site_that_never_starts_labels_by_its_neighbours(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    one = run(three_sites, tamper=at(EVER, crash))
    assert one.outcome.status == "finished"
    assert "out of memory" in status(one)["b"]
    assert any("no mixture came of sites b;" in warning for warning in one.outcome.warnings)
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
        ("loss", lambda v: float("nan"), "finite"),
        ("mapping", lambda v: 1e300, "a number up to 1e+150"),
        ("k_counted", lambda k: 3, "it is a start, after the start"),
        ("held_out_rows", lambda n: 10**6, "1000000 rows held out"),
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


def test_one_site_does_not_set_the_unit_of_all(three_sites: list[dict[str, Any]]) -> None:
    clean = run(three_sites)
    for fault in (lambda c: c * 1e6, lambda c: c * 1e-6):
        one = run(three_sites, tamper=at({0}, changed("covariances", fault)))
        assert one.strategy.state.unit == pytest.approx(clean.strategy.state.unit, rel=0.2)


def test_a_start_that_is_none_is_asked_for_again(three_sites: list[dict[str, Any]]) -> None:
    one = run(
        three_sites,
        alpha="0.1,1",
        gtv_folds=2,
        tamper=at({0}, first_only(changed("k_counted", lambda k: 0))),
    )
    assert "it is no start" in one.trace[1].failed["b"]
    assert status(one)["b"].startswith("missed start")
    assert set(one.outcome.model.mixtures) == {"a", "b", "c"}


@pytest.mark.parametrize(("only", "lie"), [(0.0, -1e9), (0.0, -500.0), (100.0, 50.0), (100.0, 400.0)])
def test_one_site_does_not_choose_alpha_against_all_others(
    csv_sites: Any, blobs: Any, only: float, lie: float
) -> None:
    sizes = {"a": (40, 0, 0), "b": (0, 40, 0), "c": (0, 0, 40), "d": (40, 0, 0), "e": (0, 0, 40)}
    nodes = csv_sites({name: blobs(seed, *sizes[name]) for seed, name in enumerate(sizes)})
    settings: dict[str, Any] = {"alpha": "0,100", "gtv_folds": 2, "gtv_path_rounds": 3, "components": 1}
    settings |= {"discrepancy": "euclidean", "graph": "complete"}
    tell = _while_alpha_is(only, changed("held_out", lambda v: v + lie))
    assert run(nodes, **settings).outcome.details["alpha"] == 0
    assert run(nodes, **settings, tamper=at(EVER, tell)).outcome.details["alpha"] == 0


def test_a_round_that_nobody_answers_ends_the_run_with_what_there_is(
    three_sites: list[dict[str, Any]],
) -> None:
    def from_round_three(number: int, question: Any, answer: Any) -> Any:
        return None if from_records(question.content).scalars.get("round", 0) >= 3 else answer

    one = run(three_sites, gtv_rounds=9, tamper=from_round_three)
    assert one.outcome.status == "finished"
    assert one.outcome.details["stopped_by"] == "unheard"
    assert any("the rounds ended early" in said for said in one.outcome.warnings)
    assert set(one.outcome.model.mixtures) == {"a", "b", "c"}


def test_a_site_that_comes_after_the_best_round_keeps_its_mixture(three_sites: list[dict[str, Any]]) -> None:
    state = run(three_sites).strategy.state
    posts = state.stage.mailbox.posts
    early = Mailbox({name: posts[name] for name in "ac"}, 2)
    found = replace(state, best=Stage(0.5, state.stage.progress, early)).at_best()
    assert list(found.mixtures) == ["a", "b", "c"]
    assert (found.stage.alpha, found.stage.mailbox.round) == (0.5, 2)
    nowhere = replace(state, best=None)
    assert nowhere.at_best() is nowhere


def test_a_late_site_of_other_classes_is_let_in(csv_sites: Any, blobs: Any) -> None:
    """It starts in the unit of the rounds, far from 0 there: so must be what its mean is compared with."""
    tables = {"a": blobs(0, 40, 50, 60), "b": blobs(1, 0, 0, 60), "c": blobs(2, 40, 50, 60)}
    one = run(csv_sites(tables), tamper=at({0}, first_only(silent)))
    assert one.trace[1].late == ("b",)
    assert all(record.answered == ("a", "b", "c") for record in one.trace[2:])


def test_scores_that_no_rows_can_have_choose_nothing(three_sites: list[dict[str, Any]]) -> None:
    settings: dict[str, Any] = {"alpha": "0,1,100", "gtv_folds": 2, "gtv_path_rounds": 2}
    lie = at(EVER, _while_alpha_is(100.0, changed("held_out", lambda v: 1e9)))
    one, clean = run(three_sites, **settings, tamper=lie), run(three_sites, **settings)
    assert one.outcome.details["alpha"] == clean.outcome.details["alpha"]
    assert "no rows can be as likely" in status(one)["b"]


def _while_alpha_is(alpha: float, fault: Any) -> Any:
    def when(question: Any, answer: Any) -> Any:
        here = from_records(question.content).scalars.get("alpha") == alpha
        return fault(question, answer) if here else answer

    return when


def test_alpha_is_chosen_by_sites_that_both_rounds_have(three_sites: list[dict[str, Any]]) -> None:
    settings: dict[str, Any] = {"alpha": "0,1,100", "gtv_folds": 2, "gtv_path_rounds": 2, "gtv_rounds": 2}
    # Site b starts only at the second alpha, or is silent at the third.
    late = run(three_sites, **settings, tamper=at({0}, first_only(silent, 3)))
    gone = run(three_sites, **settings, tamper=at({5, 6}, silent))
    for one in (late, gone):
        found = {round(point.alpha): set(point.rows) for point in one.strategy.state.seen}
        assert len({frozenset(names) for names in found.values()}) == 2
        assert one.outcome.status == "finished"
        assert [point["alpha"] for point in one.outcome.details["alpha_path"]] == [0, 1, 100]


def test_sites_too_small_to_hold_rows_out_take_the_default_alpha(csv_sites: Any, blobs: Any) -> None:
    nodes = csv_sites({name: blobs(seed, 8, 8, 8) for seed, name in enumerate("abc")})
    one = run(nodes, alpha="auto", gtv_folds=5)
    assert one.outcome.details["alpha"] == 1.0
    assert one.outcome.details["rounds"] == 4
    assert any(
        "no site has rows enough to hold gtv-folds=5 parts out" in said for said in one.outcome.warnings
    )
    assert "held_out_log_likelihood" not in one.outcome.scores


def test_a_site_without_mixture_and_neighbour_is_told_nothing(csv_sites: Any, blobs: Any) -> None:
    tables = {"a": blobs(0, 40, 50, 60), "b": blobs(1, 30, 30, 30), "few": blobs(2, 1, 1, 1)}
    one = run(csv_sites(tables), graph="nearest", graph_nearest=1)
    assert set(dict(asked(one, AskLabels))) == {"a", "b"}
    assert any(
        "sites few have neither a mixture nor a neighbour with one" in said for said in one.outcome.warnings
    )


def test_too_few_answers_end_the_run_with_a_plain_status(three_sites: list[dict[str, Any]]) -> None:
    from fedcluster_app.errors import RunError

    with pytest.raises(RunError, match="phase 'round 2': 2 of 3 sites answered, quorum is 3"):
        run(three_sites, quorum=3, tamper=at({2}, silent))
