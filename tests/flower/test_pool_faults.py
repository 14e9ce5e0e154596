"""Faults in GTV-Pool runs: silence, return, lost memory, nonsense; the others go on and the site is named."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gtv_runs import END, asked, at, changed, crash, first_only, round_of, silent
from numpy.typing import NDArray
from pool_runs import rounds, run

from fedcluster_app.client_app import app
from fedcluster_app.errors import RunError
from fedcluster_app.messages import AskLabels, AskPoolEnd
from simulations.federation import LocalRun

EVER = range(1000)


def status(one: LocalRun) -> dict[str, str]:
    return {site.name: site.status for site in one.outcome.sites}


@pytest.fixture
def close_sites(csv_sites: Any, blobs: Any) -> list[dict[str, Any]]:
    """Sites a, b, c whose clusters overlap, so that their mixtures move for many rounds."""
    near = np.repeat(5.5 * np.arange(3), [40, 50, 60])[:, None]
    nodes: list[dict[str, Any]] = csv_sites(
        {name: blobs(seed, 40, 50, 60) - near for seed, name in enumerate("abc")}
    )
    return nodes


def labels_agree(nodes: list[dict[str, Any]], clusters_in: Any) -> bool:
    """Whether the sites call the three clusters of 40, 50 and 60 rows the same."""
    found = [clusters_in(node["labels-path"]) for node in nodes]
    usual = [tuple(int(np.bincount(part).argmax()) for part in np.split(own, [40, 90])) for own in found]
    purity = min(float((own == np.repeat(usual[0], [40, 50, 60])).mean()) for own in found)
    return len(set(usual[0])) == 3 and len(set(usual)) == 1 and purity > 0.95


def test_a_silent_site_is_heard_as_it_last_was_and_then_no_more(close_sites: list[dict[str, Any]]) -> None:
    one = run(close_sites, pool_rounds=8, pool_guard="off", max_age=2, tamper=at(range(3, 1000), silent))
    heard = [asks["a"].summaries for asks in rounds(one)]
    # Silent from round 3 on: what it said in round 2 is handed on in rounds 3, 4 and 5.
    assert ["b" in summaries for summaries in heard] == [True, True, True, True, True, False, False, False]
    assert all("c" in summaries for summaries in heard)
    for earlier, later in pairwise(heard[2:5]):
        np.testing.assert_array_equal(earlier["b"].means, later["b"].means)
        assert not np.array_equal(earlier["c"].counts, later["c"].counts)
    assert one.outcome.status == "finished"
    assert status(one)["b"].startswith("missed 4 exchanges from round 3 on: no answer in time")
    # It is asked on, but once it is too old only now and then: every question is waited for.
    assert [number for number, asks in enumerate(rounds(one), start=1) if "b" in asks] == [1, 2, 3, 4, 5, 7]


def test_a_site_that_returns_goes_on_where_it_was(close_sites: list[dict[str, Any]]) -> None:
    one = run(close_sites, pool_rounds=6, pool_guard="off", tamper=at({2, 3}, silent))
    heard = [asks["a"].summaries["b"].means for asks in rounds(one)]
    np.testing.assert_array_equal(heard[1], heard[2])
    np.testing.assert_array_equal(heard[1], heard[3])
    assert not np.array_equal(heard[3], heard[4])
    assert status(one)["b"].startswith("missed 2 exchanges from round 2 on")
    assert one.outcome.warnings == ()


def test_a_site_that_starts_late_takes_part_from_then_on(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    one = run(three_sites, tamper=at({0}, first_only(silent)))
    assert ["b" in asks["a"].neighbours for asks in rounds(one)] == [False, True, True, True]
    assert status(one) == {"a": "ok", "b": "missed start: no answer in time", "c": "ok"}
    assert labels_agree(three_sites, clusters_in)


def test_a_site_without_which_nobody_has_a_neighbour_is_waited_for(
    three_sites: list[dict[str, Any]], tmp_path: Path
) -> None:
    star = tmp_path / "star.csv"
    star.write_text("source,target\na,b\nb,c\n")
    one = run(three_sites, graph=str(star), tamper=at({0}, first_only(silent)))
    assert one.outcome.details["rounds"] == 4
    assert set(rounds(one)[-1]["a"].neighbours) == {"b"}
    gone = run(three_sites, graph=str(star), tamper=at(EVER, silent))
    assert (gone.outcome.details["stopped_by"], gone.outcome.details["rounds"]) == ("no edge", 1)


def test_a_late_site_is_laid_into_a_graph_of_the_nearest(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, graph="nearest", graph_nearest=1, tamper=at({0}, first_only(silent)))
    assert one.strategy.state.laid.graph.neighbours("b")
    assert one.strategy.state.heard["b"]


def test_a_site_that_never_starts_labels_by_its_neighbours(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    one = run(three_sites, tamper=at({*EVER, END}, crash))
    assert one.outcome.status == "finished"
    assert "out of memory" in status(one)["b"]
    assert any("no mixture came of sites b;" in warning for warning in one.outcome.warnings)
    assert "b" not in dict(asked(one, AskPoolEnd))
    assert labels_agree(three_sites, clusters_in)


@pytest.mark.parametrize("fault", [silent, crash])
def test_a_site_that_is_gone_at_the_end_has_what_it_released(
    three_sites: list[dict[str, Any]], clusters_in: Any, fault: Any
) -> None:
    one = run(three_sites, tamper=at({END}, fault))
    assert one.outcome.status == "finished"
    said = "sites b did not say what they came to; their mixtures are of what they released of their own rows"
    assert said in one.outcome.warnings
    released, model = one.strategy.state.mailbox.posts["b"].content, one.outcome.model.mixtures["b"]
    np.testing.assert_allclose(model.means, released.means)
    np.testing.assert_allclose(model.weights, released.counts / 150)
    # Its neighbours have judged it, so that it is numbered as they are.
    assert one.outcome.k_hat == 3
    assert labels_agree(three_sites, clusters_in)
    edges = {tuple(edge["sites"]): edge["trust"] for edge in one.outcome.details["edges"]}
    assert edges["a", "b"][0] > 0.9
    assert edges["a", "b"][1] is None


def test_an_end_that_nobody_reaches_still_is_one(three_sites: list[dict[str, Any]]) -> None:
    one = run(three_sites, tamper=lambda node, ask, answer: None if round_of(ask) == END else answer)
    assert one.outcome.status == "finished"
    assert set(one.outcome.model.mixtures) == {"a", "b", "c"}
    assert any("sites a, b, c did not say" in warning for warning in one.outcome.warnings)


@pytest.mark.parametrize("components", [3, "auto"])
def test_the_last_summary_of_a_site_may_get_lost(
    three_sites: list[dict[str, Any]], clusters_in: Any, components: Any
) -> None:
    one = run(three_sites, components=components, tamper=at({4}, silent))
    assert one.outcome.k_hat == 3
    assert labels_agree(three_sites, clusters_in)


def test_an_end_of_components_that_were_not_heard_of_is_not_misread(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    """Neighbours have judged the components of the last summary that came, in their places there."""

    def in_other_places(question: Any, answer: Any) -> Any:
        answer = changed("counts", lambda counts: np.roll(counts, 1))(question, answer)
        return changed("places", lambda places: (places + 1) % 3)(question, answer)

    one = run(three_sites, tamper=at({END}, in_other_places))
    assert one.outcome.k_hat == 3
    assert labels_agree(three_sites, clusters_in)
    uses = {site.name: site.details["uses"] for site in one.outcome.sites}
    assert {use["neighbour"] for use in uses["a"]} == {"c"}
    assert {use["neighbour"] for use in uses["b"]} == {"a", "c"}


@pytest.mark.parametrize("when", [3, END])
def test_a_site_that_lost_its_memory_begins_anew(
    three_sites: list[dict[str, Any]], clusters_in: Any, when: int
) -> None:
    def forgetful(message: Any, context: Any) -> Any:
        if message.metadata.dst_node_id == 102 and round_of(message) == when:
            for key in [key for key in context.state if key.startswith("site.pool")]:
                del context.state[key]
            assert list(context.state) == [key for key in context.state if "pool" not in key]
        return app(message, context)

    one = run(three_sites, components="auto", client_app=forgetful)
    assert status(one) == dict.fromkeys("abc", "ok")
    assert one.outcome.k_hat == 3
    assert labels_agree(three_sites, clusters_in)


def nan(array: NDArray[Any]) -> NDArray[Any]:
    array.flat[0] = np.nan
    return array


def crooked(covariances: NDArray[Any]) -> NDArray[Any]:
    """Variances as they were, with more in common than they have."""
    covariances[:, 1] = 1e3
    return covariances


NONSENSE = [
    ("means", nan, "NaN or infinite"),
    ("counts", lambda n: n * 1e9, "they hold 1.5e+11 rows, the site has 150"),
    ("counts", lambda n: n + 1, "they hold 153 rows, the site has 150"),
    ("counts", lambda n: -n, "at least 0"),
    ("means", lambda m: m * [1, -30], "they lie where the site's rows cannot"),
    ("means", lambda m: m + 1e6, "they lie where the site's rows cannot"),
    ("means", lambda m: m * 1.01, "they lie where the site's rows cannot"),
    ("covariances", lambda c: -c, "a variance is negative"),
    ("covariances", crooked, "a variance is negative"),
    ("covariances", lambda c: c * 1.1, "they lie where the site's rows cannot"),
    ("covariances", lambda c: c[:, :2], "expected shape"),
    ("change", lambda v: float("nan"), "finite"),
    ("evidence", lambda v: 1e300, "a number up to 1e+150"),
]


@pytest.mark.parametrize(("field", "change", "reason"), NONSENSE)
def test_nonsense_is_not_handed_on(
    three_sites: list[dict[str, Any]], field: str, change: Any, reason: str
) -> None:
    one = run(three_sites, pool_rounds=3, tamper=at({2}, changed(field, change)))
    assert one.outcome.status == "finished"
    record = next(record for record in one.trace if record.phase == "round 2")
    assert reason in record.failed["b"]
    assert record.answered == ("a", "c")
    before, after = (rounds(one)[number]["a"].summaries["b"] for number in (1, 2))
    np.testing.assert_array_equal(before.means, after.means)
    np.testing.assert_array_equal(before.counts, after.counts)
    assert status(one)["b"].startswith("missed round 2")


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("places", lambda p: p + 7, "pool.end.places: expected different ones under 3, got [7, 8, 9]"),
        ("places", lambda p: p * 0, "expected different ones under 3, got [0, 0, 0]"),
        ("places", lambda p: p - 1, "at least 0"),
        ("weights", lambda w: w * 3, "a sum of 1"),
        ("covariances", lambda c: -c, "positive definite"),
        ("means", nan, "NaN or infinite"),
        ("trust", lambda t: t + 1, "at most 1"),
        ("trust", lambda t: t[:1], "expected shape"),
        ("attached", lambda a: a[:-1], "expected shape"),
        ("attached", lambda a: a - 1, "at least 0"),
    ],
)
def test_nonsense_at_the_end_is_not_used(
    three_sites: list[dict[str, Any]], field: str, change: Any, reason: str
) -> None:
    one = run(three_sites, pool_rounds=1, tamper=at({END}, changed(field, change)))
    assert one.outcome.status == "finished"
    record = next(record for record in one.trace if record.phase == "end")
    assert reason in record.failed["b"]
    assert any("sites b did not say what they came to" in said for said in one.outcome.warnings)
    assert set(one.outcome.model.mixtures) == {"a", "b", "c"}


@pytest.mark.parametrize("graph", ["ring", "nearest"])
@pytest.mark.parametrize(("field", "change", "reason"), [NONSENSE[1], NONSENSE[5], NONSENSE[7], NONSENSE[8]])
def test_a_site_that_sends_only_nonsense_stops_nobody(
    three_sites: list[dict[str, Any]], clusters_in: Any, graph: str, field: str, change: Any, reason: str
) -> None:
    one = run(three_sites, graph=graph, pool_rounds=2, tamper=at(EVER, changed(field, change)))
    assert one.outcome.status == "finished"
    assert all(reason in record.failed["b"] for record in one.trace[1:4])
    assert all("b" not in ask.neighbours for asks in rounds(one) for ask in asks.values())
    assert [site for site, text in status(one).items() if text == "ok"] == ["a", "c"]
    if graph == "ring":
        assert labels_agree(three_sites, clusters_in)


def test_half_of_the_sites_silent_at_random(csv_sites: Any, blobs: Any, clusters_in: Any) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abcdef")})
    rng = np.random.default_rng(0)

    def tamper(node: int, question: Any, answer: Any) -> Any:
        number = round_of(question)
        return None if number not in (None, 0, END) and rng.random() < 0.5 else answer

    one = run(nodes, components="auto", graph="complete", pool_rounds=8, tamper=tamper)
    assert one.outcome.status == "finished"
    assert sum(len(record.late) for record in one.trace) > 10
    assert one.outcome.k_hat == 3
    assert labels_agree(nodes, clusters_in)


def test_a_round_that_nobody_answers_ends_the_run_with_what_there_is(
    three_sites: list[dict[str, Any]],
) -> None:
    def from_round_three(number: int, question: Any, answer: Any) -> Any:
        return None if (round_of(question) or 0) >= 3 else answer

    one = run(three_sites, pool_rounds=9, tamper=from_round_three)
    assert one.outcome.status == "finished"
    assert one.outcome.details["stopped_by"] == "unheard"
    assert any("the rounds ended early" in said for said in one.outcome.warnings)
    assert set(one.outcome.model.mixtures) == {"a", "b", "c"}
    assert one.outcome.k_hat == 3


def test_too_few_answers_end_the_run_with_a_plain_status(three_sites: list[dict[str, Any]]) -> None:
    with pytest.raises(RunError, match="phase 'round 2': 2 of 3 sites answered, quorum is 3"):
        run(three_sites, quorum=3, tamper=at({2}, silent))
    with pytest.raises(RunError, match="phase 'start': 0 of 3 sites answered, quorum is 1"):
        run(three_sites, tamper=lambda node, ask, answer: None if round_of(ask) == 0 else answer)


def test_a_site_without_mixture_and_neighbour_is_told_nothing(csv_sites: Any, blobs: Any) -> None:
    tables = {"a": blobs(0, 40, 50, 60), "b": blobs(1, 30, 30, 30), "few": blobs(2, 1, 1, 1)}
    one = run(csv_sites(tables), graph="nearest", graph_nearest=1)
    assert set(dict(asked(one, AskLabels))) == {"a", "b"}
    assert any("sites few have neither a mixture nor a neighbour" in said for said in one.outcome.warnings)


def test_some_of_the_rows_must_be_where_rows_can_be(three_sites: list[dict[str, Any]]) -> None:
    def fewer(shift: float) -> Any:
        def fault(question: Any, answer: Any) -> Any:
            moved = changed("means", lambda means: means + shift)(question, answer)
            return changed("counts", lambda counts: counts / 2)(question, moved)

        return fault

    # Half of the rows, the others withheld: they may lie as all do, but not a hundred spreads away.
    one = run(three_sites, pool_rounds=1, tamper=at({1}, fewer(0.0)))
    assert not any(record.failed for record in one.trace)
    one = run(three_sites, pool_rounds=1, tamper=at({1}, fewer(100.0)))
    assert "they lie where the site's rows cannot" in one.trace[2].failed["b"]


def test_a_lie_within_the_bounds_spoils_no_neighbour(
    three_sites: list[dict[str, Any]], clusters_in: Any
) -> None:
    """Means in other places, the moments of all rows kept: the gate alone can tell."""

    def mirrored(question: Any, answer: Any) -> Any:
        def about_their_mean(means: NDArray[Any]) -> NDArray[Any]:
            return 2 * means.mean(axis=0) - means

        def half(counts: NDArray[Any]) -> NDArray[Any]:
            return counts / 2

        return changed("counts", half)(question, changed("means", about_their_mean)(question, answer))

    one = run(three_sites, graph="complete", tamper=at(EVER, mirrored))
    assert one.outcome.status == "finished"
    a, c = (clusters_in(three_sites[position]["labels-path"]) for position in (0, 2))
    assert (a == c).mean() > 0.95
