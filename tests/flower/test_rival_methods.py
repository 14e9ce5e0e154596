"""FedGEM's rivals as methods: true to the data, the same whatever the order, and alive when sites are not."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from micro_runs import Blobs, ReadClusters, Sites, changed, crash, nobody_failed, silent
from rival_runs import BEFORE, ROUNDS, SEEDLESS, SETTINGS, UPLOADS, at, fingerprint, run
from sklearn.metrics import adjusted_rand_score

from fedcluster_app.config import RunConfig, parse_run_config
from fedcluster_app.errors import ConfigError, RunError
from fedcluster_app.methods import METHODS
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED
from fedcluster_app.server_app import strategy_of
from fedcluster_app.transport import from_records
from simulations.experiments.comparison import CENTRAL
from simulations.experiments.personal_data import PAPER
from simulations.federation import LocalRun, virtual_nodes

every_rival = pytest.mark.parametrize("method", SETTINGS)
with_rounds = pytest.mark.parametrize("method", ROUNDS)
# What is said where a site has one component, whatever it is told, since all its rows are equal.
TOO_FEW = {
    "kfed": "expected at least k = 3, got 2",
    "fedgrem": "expected a site with k = 3 components, got none",
    "consensus-em": "expected a site with k = 3 components, got none",
}
TRUE = np.repeat([0, 1, 2], [40, 50, 60])


@pytest.fixture
def close_sites(csv_sites: Sites) -> list[dict[str, Any]]:
    """Make three sites of rows without a gap anywhere."""
    tables = np.random.default_rng(0).normal(size=(3, 90, 2)) * [2.0, 1.0]
    return csv_sites(dict(zip("abc", tables, strict=True)))


def statuses(one: LocalRun) -> dict[str, str]:
    return {site.name: site.status for site in one.outcome.sites}


def centers(one: LocalRun) -> Any:
    """The centres, or where every site has its own those of the first."""
    model = one.outcome.model
    assert model is not None
    found = (model.clusters if isinstance(model, Model) else model.mixtures["a"]).means
    return found[np.lexsort(found.T)]


def pooled_ari(nodes: list[dict[str, Any]], clusters_in: ReadClusters) -> float:
    found = [clusters_in(Path(node["labels-path"])) for node in nodes]
    return float(adjusted_rand_score(np.tile(TRUE, len(found)), np.concatenate(found)))


@every_rival
def test_far_clusters_are_found_and_labelled(
    method: str, three_sites: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    one = run(method, three_sites)
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
    assert nobody_failed(one)
    assert pooled_ari(three_sites, clusters_in) == 1.0
    assert one.outcome.details["rounds"] == len(one.trace) - 2 - BEFORE.get(method, 0)
    assert one.outcome.details["rounds"] < 40
    assert one.outcome.details["stopped_by"] in ("one upload", "converged")


@every_rival
def test_what_is_in_the_ledger_is_what_left(method: str, three_sites: list[dict[str, Any]]) -> None:
    one = run(method, three_sites)
    for node, site in zip(three_sites, one.outcome.sites, strict=True):
        lines = [json.loads(line) for line in Path(node["ledger-path"]).read_text().splitlines()]
        assert len(lines) == len(one.trace)
        assert sum(line["bytes"] for line in lines) == site.bytes_up


@every_rival
def test_any_arrival_order_gives_the_same_bytes(method: str, tmp_path: Path, csv_sites: Sites) -> None:
    mix = random.Random(1)

    def shuffled(replies: list[Message]) -> list[Message]:
        mix.shuffle(replies)
        return replies

    overlapping = np.random.default_rng(0).normal(size=(4, 60, 2))
    nodes = csv_sites(dict(zip("abcd", overlapping, strict=True)))
    expected = fingerprint(run(method, nodes), tmp_path)
    mix.shuffle(nodes)
    assert fingerprint(run(method, nodes, arrange=shuffled), tmp_path) == expected
    if method not in SEEDLESS:
        assert fingerprint(run(method, nodes, seed=7), tmp_path)[0] != expected[0]


@with_rounds
@pytest.mark.parametrize("fault", [silent, crash])
def test_a_site_that_is_lost_in_round_two_is_missed_alone(
    method: str, fault: Any, three_sites: list[dict[str, Any]], clusters_in: ReadClusters
) -> None:
    # Where clusters are far apart consensus EM is at its end before its second round.
    second = 2 if method == "consensus-em" else BEFORE.get(method, 0) + 2
    one = run(method, three_sites, tamper=at(second, fault, 1))
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
    assert pooled_ari(three_sites, clusters_in) == 1.0
    assert statuses(one)["b"].startswith("missed ")
    assert {statuses(one)[name] for name in "ac"} == {"ok"}


@every_rival
def test_a_site_that_is_never_heard_is_as_if_it_were_not_there(
    method: str, csv_sites: Sites, blobs: Blobs
) -> None:
    tables = {name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abc")}
    nodes = csv_sites(tables)
    lost = run(method, nodes, tamper=at(1, silent, 1), scaling="none")
    alone = run(method, [nodes[0], nodes[2]], scaling="none")
    # FFCM starts where the rows of all greetings can be; consensus EM has edges to who is silent.
    near = 5e-3 if method == "consensus-em" else 1e-3 if "ffcm" in method else 0
    np.testing.assert_allclose(centers(lost), centers(alone), atol=near)
    assert any("sites b were never heard" in warning for warning in lost.outcome.warnings)


@with_rounds
def test_a_site_may_come_back(method: str, three_sites: list[dict[str, Any]]) -> None:
    one = run(method, three_sites, tamper=at(1, silent, 1, last=1))
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
    assert not any("never heard" in warning for warning in one.outcome.warnings)


@every_rival
@pytest.mark.parametrize(
    "wrong",
    [
        lambda part: np.full_like(part, np.nan),
        lambda part: part[:, :1],
        lambda part: part + 1e6,
        lambda part: -1e6 * part,
    ],
    ids=["nan", "shape", "shifted", "grown"],
)
def test_an_answer_that_cannot_be_is_named_and_not_used(
    method: str, wrong: Any, three_sites: list[dict[str, Any]]
) -> None:
    for number, field in enumerate(UPLOADS[method], 1):
        if not field:
            continue
        lies = at(number, changed(field, wrong), 1, last=number)
        one = run(method, three_sites, tamper=lies, scaling="none")
        assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
        assert one.trace[number].failed.keys() == {"b"}
        assert statuses(one)["b"].startswith("missed ")
        if np.isnan(wrong(np.ones((2, 2)))).all():  # one of the lies is enough
            silently = run(method, three_sites, tamper=at(number, silent, 1, last=number), scaling="none")
            np.testing.assert_array_equal(centers(one), centers(silently))


@every_rival
def test_a_site_with_one_row_only_receives(method: str, csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({"a": blobs(0, 40, 50, 60), "b": [[8.0, 8.0]], "c": blobs(1, 40, 50, 60)})
    one = run(method, nodes)
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
    assert statuses(one) == {"a": "ok", "b": "receives only", "c": "ok"}
    if method == "local":
        assert any("sites b have no mixture, and so no labels" in told for told in one.outcome.warnings)
    else:
        assert Path(nodes[1]["labels-path"]).read_text().count("\n") == 2


def test_a_quorum_is_of_the_sites_that_are_asked(csv_sites: Sites, blobs: Blobs) -> None:
    """Three sites take part, of which two have enough rows to be asked: that both answer is enough."""
    nodes = csv_sites({"a": blobs(0, 40, 50, 60), "b": [[8.0, 8.0]], "c": blobs(1, 40, 50, 60)})
    assert run("fedkmeans", nodes, quorum=3).outcome.status == FINISHED
    with pytest.raises(RunError, match="1 of 2 sites answered, quorum is 2"):
        run("fedkmeans", nodes, quorum=3, tamper=at(1, silent, 2))


@every_rival
def test_a_constant_column_changes_no_label(
    method: str, csv_sites: Sites, blobs: Blobs, clusters_in: ReadClusters
) -> None:
    tables = {name: blobs(seed, 40, 50, 60) for seed, name in enumerate("abc")}
    nodes = csv_sites({name: np.insert(table, 1, 5.0, axis=1) for name, table in tables.items()})
    one = run(method, nodes)
    assert one.outcome.k_hat == 3
    assert pooled_ari(nodes, clusters_in) == 1.0


@every_rival
def test_one_site_and_equal_rows(method: str, csv_sites: Sites, blobs: Blobs) -> None:
    assert run(method, csv_sites({"a": blobs(0, 40, 50, 60)}), min_sites=1).outcome.k_hat == 3
    equal = csv_sites({name: np.ones((20, 2)) for name in "ab"})
    if method in TOO_FEW:
        with pytest.raises(RunError, match=TOO_FEW[method]):
            run(method, equal)
    else:
        one = run(method, equal)
        assert one.outcome.status == FINISHED
        assert np.isfinite(centers(one)).all()


@every_rival
def test_nothing_leaves_that_fewer_rows_than_min_count_are_behind(
    method: str, csv_sites: Sites, blobs: Blobs
) -> None:
    """At site b every cluster is smaller than min-count, and at most they are asked together."""
    tables = {"a": blobs(0, 40, 50, 60), "b": blobs(1, 4, 4, 4), "c": blobs(2, 40, 50, 60)}
    one = run(method, csv_sites(tables), min_count=10, scaling="none")
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)
    assert nobody_failed(one)


@every_rival
def test_what_it_needs_and_what_it_does_not_read_is_said_before_any_site_is_asked(method: str) -> None:
    given: dict[str, Any] = SETTINGS[method]
    for key in METHODS[method].required:
        rest = {name: value for name, value in given.items() if name != key}
        with pytest.raises(ConfigError, match=f"method '{method}' needs to be told {key}, for example"):
            strategy_of(parse_run_config({"method": method, **rest}))
    with pytest.raises(ConfigError, match="micro-cell-rows would do nothing"):
        strategy_of(parse_run_config({"method": method, **given, "micro-cell-rows": 7}))


def test_k_is_refused_where_nothing_reads_it() -> None:
    with pytest.raises(ConfigError, match="k would do nothing with method 'microcluster'"):
        strategy_of(parse_run_config({"k": 3}))
    with pytest.raises(ConfigError, match="needs to be told k"):
        RunConfig(method="kfed").k  # noqa: B018  # the property raises


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("fedkmeans", "phase 'round 1': no site has a cluster of 5 rows; lower k=200"),
        ("fedkmeans-aligned", "phase 'round 1': no site has a cluster of 5 rows; lower k=200"),
        ("ffcm-avg1", "phase 'round 1': no site has min-count=5 rows of any centre; lower k=200"),
        ("ffcm-avg2", "phase 'round 1': no site has min-count=5 rows of any centre; lower k=200"),
    ],
)
def test_more_clusters_than_rows_suffice_for_end_the_run_at_once(
    method: str, said: str, three_sites: list[dict[str, Any]]
) -> None:
    exchanges = Counter[int]()

    def count(node: int, question: Message, answer: Message) -> Message:
        exchanges[node] += 1
        return answer

    with pytest.raises(RunError, match=said):
        run(method, three_sites, k=200, tamper=count)
    assert set(exchanges.values()) == {2}


CLOSE = ("fedkmeans", "fedkmeans-aligned", "ffcm-avg1", "ffcm-avg2", "fedem", "ifca")


@pytest.mark.parametrize("method", CLOSE)
def test_rounds_that_nobody_answers_end_with_what_there_is(
    method: str, close_sites: list[dict[str, Any]]
) -> None:
    second = BEFORE.get(method, 0) + 2
    one = run(method, close_sites, tamper=at(second, silent, 0, 1, 2))
    assert (one.outcome.status, one.outcome.details["stopped_by"]) == (FINISHED, "unheard")
    assert any("no site sent anything that can be used" in told for told in one.outcome.warnings)
    np.testing.assert_array_equal(centers(one), centers(run(method, close_sites, **after(method, 1))))
    with pytest.raises(RunError, match="phase 'round 2': 0 of 3 sites answered, quorum is 2"):
        run(method, close_sites, tamper=at(second, silent, 0, 1, 2), quorum=2)


def after(method: str, rounds: int) -> dict[str, Any]:
    """So many rounds, and no fewer."""
    word = {"fedkmeans-aligned": "aligned"}.get(method, method.split("-")[0])
    return {f"{word}-rounds": rounds, f"{word}-tolerance": 0.0}


@pytest.mark.parametrize("method", CLOSE)
@pytest.mark.parametrize("fault", [silent, crash])
def test_what_a_site_last_sent_stands_for_it_when_it_is_lost_in_round_two(
    method: str, fault: Any, close_sites: list[dict[str, Any]]
) -> None:
    """Clusters overlap, so that rounds go on."""
    second = BEFORE.get(method, 0) + 2
    lost = run(method, close_sites, tamper=at(second, fault, 1), **after(method, 4))
    assert (lost.outcome.status, lost.outcome.k_hat) == (FINISHED, 3)
    assert lost.outcome.details["rounds"] >= 3
    missed = [record.phase for record in lost.trace if "b" in (*record.late, *record.failed)]
    assert missed == [f"round {number}" for number in range(2, lost.outcome.details["rounds"] + 1)]
    assert {statuses(lost)[name] for name in "ac"} == {"ok"}
    first, last = (uploads(one) for one in (run(method, close_sites, **after(method, 1)), lost))
    assert set(last) == set("abc")
    np.testing.assert_array_equal(last["b"], first["b"])
    for name in "ac":
        assert last[name].shape != first[name].shape or (last[name] != first[name]).any()
    whole = run(method, close_sites, **after(method, 4))
    assert np.abs(centers(lost) - centers(whole)).max() > 1e-6


def uploads(one: LocalRun) -> dict[str, Any]:
    """The sums that stand for every site in the end."""
    assert one.strategy.state is not None
    kernel = one.strategy.state.kernel
    sent = (kernel[0] if isinstance(kernel, tuple) else kernel).uploads
    return {name: part.stats.mass if hasattr(part, "stats") else part.sums for name, part in sent.items()}


# --- k-FED and SPAHM


def test_yardsticks_are_refused_with_the_command_that_runs_them() -> None:
    names = [method.name for method in METHODS.values() if not method.strategy]
    assert names == ["centralized-kmeans", "centralized-gmm", "centralized-dpgmm", "centralized"]
    for name in names:
        word = name.removeprefix("centralized-")
        with pytest.raises(ConfigError, match=f"rows would have to move .* --methods {word}$"):
            strategy_of(parse_run_config({"method": name}))
        assert word in (*CENTRAL, *PAPER)


def test_kfed_counts_local_clusters_if_it_is_not_told(three_sites: list[dict[str, Any]]) -> None:
    one = run("kfed", three_sites, local_k="auto")
    assert one.outcome.k_hat == 3
    assert [site.details["k_counted"] for site in one.outcome.sites] == [3, 3, 3]


def test_kfed_with_too_few_centres_ends_plainly(three_sites: list[dict[str, Any]]) -> None:
    with pytest.raises(RunError, match="expected at least k = 30, got 9; raise the local k or lower k"):
        run("kfed", three_sites, k=30)


def test_a_site_with_no_more_rows_than_local_k_does_not_send_them(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {"a": blobs(0, 40, 50, 60), "b": blobs(1, 3, 3, 3)}
    sent: list[Any] = []

    def look(question: Message, answer: Message) -> Message:
        sent.append(from_records(answer.content).arrays["centers"])
        return answer

    run("kfed", csv_sites(tables), local_k=9, k=9, tamper=at(1, look, 1), scaling="none")
    assert len(sent[0]) == 1  # 9 rows, 5 of which must be behind every centre
    np.testing.assert_allclose(sent[0][0], tables["b"].mean(axis=0))


# --- FedKmeans


def test_bare_seeds_of_fedkmeans_need_the_owners_word(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 40, 50, 60) for seed, name in enumerate("ab")})
    with pytest.raises(RunError, match=r"seeds, which are rows, so every site must allow it.*at a, b$"):
        run("fedkmeans", nodes, fedkmeans_start="kmeans++", allow_unsafe=True)  # these sites are real
    told = [{**node, "allow-unsafe": True} for node in nodes]
    assert run("fedkmeans", told, fedkmeans_start="kmeans++").outcome.k_hat == 3
    assert run("fedkmeans", 3, fedkmeans_start="kmeans++", allow_unsafe=True).outcome.k_hat == 3


def test_more_centres_than_distinct_means_are_not_made_up(csv_sites: Sites) -> None:
    one = run("fedkmeans", csv_sites({name: np.ones((20, 2)) for name in "ab"}))
    assert one.outcome.k_hat == 1
    assert any("only 1 distinct means came" in warning for warning in one.outcome.warnings)


def test_rounds_of_fedkmeans_stop_at_the_most_that_are_allowed() -> None:
    one = run("fedkmeans", 3, fedkmeans_rounds=2, k=10)
    assert one.outcome.details["stopped_by"] == "max_rounds"
    assert any("stopped at the most that are allowed" in warning for warning in one.outcome.warnings)


@pytest.mark.parametrize("method", ["fedkmeans", "fedkmeans-aligned"])
def test_no_row_is_the_difference_between_the_sums_of_two_rounds(method: str, csv_sites: Sites) -> None:
    """Clusters overlap, so that rows change theirs; with min-count=1 some do so alone."""
    tables = np.random.default_rng(0).normal(size=(3, 90, 2))
    nodes = csv_sites(dict(zip("abc", tables, strict=True)))

    def rows_given_away(least: int) -> set[tuple[int, int]]:
        sums: dict[int, list[Any]] = {}

        def look(node: int, question: Message, answer: Message) -> Message:
            payload = from_records(answer.content)
            if payload.kind == "fedkmeans.sums":
                parts = payload.arrays
                sums.setdefault(node, []).append(np.column_stack([parts["counts"], parts["sums"]]))
            return answer

        open_sites = [{**node, "min-count": 1} for node in nodes]
        own = {"fedkmeans_least_rows": 1} if method == "fedkmeans" else {}
        run(method, open_sites, k=4, tamper=look, scaling="none", min_count=least, **own)
        given = set()
        for node, sent in sums.items():
            for before, after in pairwise(sent):
                change = after - before if before.shape == after.shape else np.zeros((1, 3))
                for count, *total in change[np.abs(change[:, 0]) == 1]:
                    gaps = np.abs(tables[node] - np.array(total) / count).max(axis=1)
                    given |= {(node, int(row)) for row in np.flatnonzero(gaps < 1e-9)}
        return given

    assert not rows_given_away(5)
    assert rows_given_away(1)


def test_least_rows_holds_in_every_round(csv_sites: Sites) -> None:
    tables = np.random.default_rng(1).normal(size=(3, 60, 2))
    sent: list[int] = []

    def look(node: int, question: Message, answer: Message) -> Message:
        payload = from_records(answer.content)
        if payload.kind == "fedkmeans.sums":
            sent.extend(payload.arrays["counts"].tolist())
        return answer

    nodes = csv_sites(dict(zip("abc", tables, strict=True)))
    one = run("fedkmeans", nodes, k=6, fedkmeans_least_rows=12, tamper=look, scaling="none")
    assert one.outcome.details["rounds"] > 2
    assert min(count for count in sent if count) >= 12


@pytest.mark.parametrize("method", ["fedkmeans", "fedkmeans-aligned"])
def test_more_clusters_than_were_wanted_are_not_used(method: str, three_sites: list[dict[str, Any]]) -> None:
    def split(question: Message, answer: Message) -> Message:
        """Send half of a cluster as a cluster, which could well be."""
        answer = changed("sums", lambda part: np.vstack([part[:1] / 2, part[:1] / 2, part[1:]]))(
            question, answer
        )
        return changed("counts", lambda part: np.r_[part[0] // 2, part[0] // 2, part[1:]])(question, answer)

    one = run(method, three_sites, tamper=at(1, split, 1, last=1))
    assert one.trace[1].failed["b"].endswith("its sums were not used: 4 clusters")


# --- aligned averages


def test_with_weights_of_clusters_aligned_averages_end_at_the_means_of_pooled_rows(
    csv_sites: Sites, blobs: Blobs
) -> None:
    tables = {"a": blobs(0, 90, 20, 30), "b": blobs(1, 20, 90, 30), "c": blobs(2, 30, 20, 90)}
    sizes = {"a": (90, 20, 30), "b": (20, 90, 30), "c": (30, 20, 90)}
    parts = {name: np.split(table, np.cumsum(sizes[name])[:-1]) for name, table in tables.items()}
    pooled = [np.concatenate([part[j] for part in parts.values()]).mean(axis=0) for j in range(3)]
    rows = [sum(part[j].mean(axis=0) for part in parts.values()) / 3 for j in range(3)]
    nodes = csv_sites(tables)
    found = {
        how: centers(run("fedkmeans-aligned", nodes, aligned_weighting=how, scaling="none"))
        for how in ("clusters", "sites")
    }
    np.testing.assert_allclose(found["clusters"], pooled, atol=1e-9)
    np.testing.assert_allclose(found["sites"], rows, atol=1e-9)  # sites of equal size
    assert np.abs(found["clusters"] - found["sites"]).max() > 0.01


# --- fuzzy c-means


def test_centres_that_run_together_are_warned_of(three_sites: list[dict[str, Any]]) -> None:
    one = run("ffcm-avg1", 3, k=10, ffcm_fuzzifier=2.0)
    assert any("of 10 centres are in different places" in warning for warning in one.outcome.warnings)
    assert not run("ffcm-avg1", three_sites).outcome.warnings


def test_the_textbook_update_and_one_step_a_round(three_sites: list[dict[str, Any]]) -> None:
    """With one step and u^m at every site, the average is fuzzy c-means on the pooled rows."""
    one = run(
        "ffcm-avg1",
        [{**node, "min-count": 1} for node in three_sites],
        ffcm_update="u^m",
        ffcm_local_steps=1,
        ffcm_tolerance=1e-9,
        min_count=1,
        scaling="none",
        ffcm_fuzzifier=2.0,
    )
    X = np.concatenate([np.loadtxt(n["data-path"], delimiter=",", skiprows=1) for n in three_sites])
    C = centers(one)
    inverse = 1 / np.square(X[:, None] - C).sum(axis=2)
    W = np.square(inverse / inverse.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(W.T @ X / W.sum(axis=0)[:, None], C, atol=1e-7)


def test_a_centre_that_no_site_has_enough_rows_of_is_warned_of(three_sites: list[dict[str, Any]]) -> None:
    one = run("ffcm-avg1", three_sites, k=12, ffcm_fuzzifier=1.2, min_count=25)
    state = one.strategy.state
    assert state is not None
    held = np.sum([part.supports for part in state.kernel.uploads.values()], axis=0) > 0
    assert one.outcome.k_hat == held.sum() < 12
    expected = state.kernel.centers[held]
    np.testing.assert_array_equal(centers(one), expected[np.lexsort(expected.T)])
    idle = 12 - held.sum()
    assert any(
        f"{idle} centres that no site has min-count=25 rows of were left out" in said
        for said in one.outcome.warnings
    )


def test_a_fuzzifier_that_gives_single_rows_away_is_refused() -> None:
    with pytest.raises(ConfigError, match="ffcm-fuzzifier"):
        parse_run_config({"method": "ffcm-avg1", "k": 3, "ffcm-fuzzifier": 1.05})


# --- AFCL


def test_afcl_needs_the_word_of_every_site(three_sites: list[dict[str, Any]]) -> None:
    told = [{**three_sites[0], "allow-unsafe": True}, {**three_sites[1], "allow-unsafe": False}]
    with pytest.raises(RunError, match=r"'afcl' lets the coordinator rebuild every row.*; missing at b$"):
        run("afcl", told, allow_unsafe=True)
    for node in told:
        lines = Path(node["ledger-path"]).read_text().splitlines()
        assert [json.loads(line)["message"] for line in lines] == ["hello"]


def test_a_site_refuses_by_itself_too(three_sites: list[dict[str, Any]]) -> None:
    """Whatever the coordinator believes, a site that does not allow it sends no row."""
    lie = changed("allow_unsafe", lambda word: True)

    def tamper(node: int, question: Message, answer: Message) -> Message:
        return lie(question, answer) if from_records(question.content).kind == "ask.hello" else answer

    closed = {**three_sites[1], "allow-unsafe": False}
    one = run("afcl", [three_sites[0], closed, three_sites[2]], tamper=tamper)
    assert "only with allow-unsafe=true in its node config" in one.trace[1].failed["b"]
    lines = Path(closed["ledger-path"]).read_text().splitlines()
    assert {json.loads(line)["message"] for line in lines} == {"hello", "refusal", "labelled"}


def test_virtual_sites_allow_what_the_run_allows() -> None:
    with pytest.raises(RunError, match="missing at site-00, site-01"):
        run("afcl", virtual_nodes(2))
    assert run("afcl", virtual_nodes(2), allow_unsafe=True, afcl_rounds=2).outcome.status == FINISHED


def test_seeds_are_the_sites_own_counts_if_no_number_is_given(three_sites: list[dict[str, Any]]) -> None:
    one = run("afcl", three_sites, local_k="auto")
    assert [site.details["k_g"] for site in one.outcome.sites] == [3, 3, 3]
    assert one.strategy.state is not None
    assert len(one.strategy.state.kernel.seeds) == 9
    assert one.outcome.k_hat == 3


def test_sites_may_take_part_by_chance(three_sites: list[dict[str, Any]]) -> None:
    one = run("afcl", three_sites, afcl_participation="random", afcl_rounds=60)
    asked = [len(record.by_site) for record in one.trace[2:-1]]
    assert len(one.trace[1].by_site) == 3
    assert min(asked) >= 1
    assert len(set(asked)) > 1
    assert one.outcome.status == FINISHED


@pytest.mark.parametrize("quorum", [1, 2])
@pytest.mark.parametrize("fault", [silent, crash])
def test_a_round_by_chance_that_asks_a_lost_site_alone_is_passed_over(
    quorum: int, fault: Any, three_sites: list[dict[str, Any]]
) -> None:
    lost = {
        node: run(
            "afcl",
            three_sites,
            afcl_participation="random",
            afcl_rounds=40,
            quorum=quorum,
            tamper=at(2, fault, node),
        )
        for node in range(3)
    }
    for node, one in lost.items():
        assert (one.outcome.status, one.outcome.details["stopped_by"]) in [
            (FINISHED, "converged"),
            (FINISHED, "max_rounds"),
        ]
        assert [word[:6] for word in statuses(one).values()].count("missed") == 1
        assert statuses(one)["abc"[node]].startswith("missed ")
    # Some rounds had nobody.
    assert any(not record.answered for one in lost.values() for record in one.trace)


def test_seeds_that_all_run_together_are_warned_of() -> None:
    one = run("afcl", virtual_nodes(2), allow_unsafe=True, afcl_rounds=40)
    assert one.outcome.k_hat == 1
    assert any("all seeds ran together" in warning for warning in one.outcome.warnings)


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("winners", lambda part: part + 6, "a row was won by seed"),
        ("winners", lambda part: np.roll(part, 1) * 0, "its counts are not those of the rows"),
        ("updates", lambda part: part * 1.01, "is not that of the site's rows"),
    ],
)
def test_rows_that_are_not_the_sites_own_are_not_used(
    field: str, change: Any, said: str, three_sites: list[dict[str, Any]]
) -> None:
    one = run("afcl", three_sites, tamper=at(2, changed(field, change), 1, last=2))
    assert said in one.trace[2].failed["b"]
    assert one.outcome.k_hat == 3
