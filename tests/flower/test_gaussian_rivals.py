"""FedEM, FedGenGMM, IFCA and sites alone: messages carry what the kernels make, and nothing of a few rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from gtv_runs import asked
from micro_runs import Blobs, ReadClusters, Sites, changed, nobody_failed, silent
from rival_runs import at, run

from fedcluster_app.aggregation import fedem, fedgengmm, ifca
from fedcluster_app.config import parse_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.messages import AskFedEMRound, AskIFCARound, AskIFCAScores
from fedcluster_app.mixtures import Mixture, em
from fedcluster_app.results.model import Model
from fedcluster_app.results.outcome import FINISHED
from fedcluster_app.results.personal import PersonalModels
from fedcluster_app.server_app import strategy_of
from fedcluster_app.streams import stream
from fedcluster_app.transport import from_records
from fedcluster_app.wire import decode
from simulations.federation import LocalRun

Tables = dict[str, Any]


@pytest.fixture
def overlapping(blobs: Blobs) -> Tables:
    """Sites with clusters that overlap a little, in unequal shares."""
    sizes = {"a": (90, 20, 30), "b": (20, 90, 30), "c": (60, 3, 40)}
    return {name: 0.4 * blobs(seed, *sizes[name]) for seed, name in enumerate(sizes)}


def released(csv_sites: Sites, tables: Tables) -> list[dict[str, Any]]:
    """Sites whose owners let single rows stand behind sums, so that kernels need withhold nothing."""
    return [{**node, "min-count": 1} for node in csv_sites(tables)]


def same(one: Mixture, other: Mixture, atol: float = 1e-8) -> None:
    for field in ("weights", "means", "covariances"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), atol=atol, err_msg=field)


def personal(one: LocalRun) -> PersonalModels:
    assert isinstance(one.outcome.model, PersonalModels)
    return one.outcome.model


# --- FedEM


def test_fedem_over_messages_is_fedem_in_memory(csv_sites: Sites, overlapping: Tables) -> None:
    one = run(
        "fedem",
        released(csv_sites, overlapping),
        scaling="none",
        min_count=1,
        fedem_rounds=7,
        fedem_tolerance=0.0,
    )
    starts = {
        name: fedem.client_start(X, 3, stream(42, name, "fedem"), min_count=1)
        for name, X in overlapping.items()
    }
    state = fedem.init(starts, 3, stream(42, "fedem"))
    weights = dict.fromkeys(overlapping, state.components.weights)
    for _ in range(7):
        sent = {}
        for name, X in overlapping.items():
            sent[name], weights[name] = fedem.client_step(X, state.components, weights[name], min_count=1)
        state = fedem.step(state, sent)
    np.testing.assert_allclose(one.outcome.details["trace"], state.trace, rtol=1e-10)
    for name, mixture in personal(one).mixtures.items():
        same(mixture, fedem.client_finish(state.components, weights[name]))
    assert abs(personal(one).mixtures["a"].weights - personal(one).mixtures["b"].weights).max() > 0.3


def test_fedem_at_one_site_is_em(csv_sites: Sites, overlapping: Tables) -> None:
    X = overlapping["a"]
    nodes = released(csv_sites, {"a": X})
    one = run("fedem", nodes, scaling="none", min_count=1, min_sites=1, fedem_rounds=9, fedem_tolerance=0.0)
    start = next(ask for _, ask in asked(one, AskFedEMRound)).mixtures[0]
    same(personal(one).mixtures["a"], em.fit(X, start, max_iter=9, tol=0.0, reg_covar=1e-6).mixture)


def test_weights_at_sites_are_their_own_and_label_their_rows(
    csv_sites: Sites, overlapping: Tables, clusters_in: ReadClusters
) -> None:
    nodes = csv_sites(overlapping)
    one = run("fedem", nodes)
    model = personal(one)
    for node, (name, X) in zip(nodes, overlapping.items(), strict=True):
        np.testing.assert_array_equal(model.predict(X, site=name), clusters_in(Path(node["labels-path"])))
        told = next(site.details for site in one.outcome.sites if site.name == name)
        assert (told["components"], told["clusters"]) == (3, [0, 1, 2])
    # Three rows are withheld, and yet their cluster has about their share.
    assert 0.01 < model.mixtures["c"].weights.min() < 0.06


def test_a_site_that_is_never_heard_has_the_weights_of_all(csv_sites: Sites, overlapping: Tables) -> None:
    one = run("fedem", csv_sites(overlapping), tamper=at(1, silent, 1))
    state = one.strategy.state
    assert state is not None
    same(personal(one).mixtures["b"], state.kernel.components, atol=0)


def test_more_components_than_sites_have_clusters_is_warned_of(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(seed, 6, 6) for seed, name in enumerate("ab")})
    one = run("fedem", nodes, k=8)
    assert one.outcome.k_hat < 8
    assert any("fewer than k=8" in told or "behind no site's" in told for told in one.outcome.warnings)


# --- what sums leave out


@pytest.mark.parametrize("method", ["fedem", "ifca", "fedgengmm"])
def test_what_is_missing_from_sums_is_nothing_or_enough_rows(
    method: str, csv_sites: Sites, overlapping: Tables
) -> None:
    """Three rows are a cluster of site c: alone they would be known as the difference to its greeting."""
    found: list[tuple[str, Any]] = []

    def look(node: int, question: Message, answer: Message) -> Message:
        payload = from_records(answer.content)
        arrays = payload.arrays
        if "mass" in arrays:
            ask = decode(from_records(question.content), AskFedEMRound, AskIFCARound, sender="coordinator")
            restarts = ask.restarts if isinstance(ask, AskIFCARound) else [ask.mixtures]
            ends = np.cumsum([models[0].n_components for models in restarts])
            found.extend(("abc"[node], part) for part in np.split(arrays["mass"], ends[:-1]))
        elif payload.kind == "gaussians":
            found.append(("abc"[node], arrays["counts"]))
        return answer

    assert nobody_failed(run(method, csv_sites(overlapping), scaling="none", tamper=look))
    missing: dict[str, list[float]] = {name: [] for name in overlapping}
    for name, masses in found:
        assert ((masses == 0) | (masses > 5 - 1e-5)).all()
        missing[name].append(len(overlapping[name]) - masses.sum())
    for left in missing.values():
        assert all(part < 1e-5 or part > 5 - 1e-5 for part in left)
    assert max(missing["c"]) > 1
    assert max(missing["c"]) < 10  # and no more than it takes


def test_sums_that_are_likelier_than_any_rows_are_not_used(three_sites: list[dict[str, Any]]) -> None:
    for method, round_two in (("fedem", 2), ("ifca", 3)):
        lie = at(round_two, changed("log_likelihood", lambda part: part + 1e4), 1, last=round_two)
        one = run(method, three_sites, tamper=lie)
        assert "its rows cannot be so likely" in one.trace[round_two].failed["b"]
        assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 3)


@pytest.mark.parametrize(("method", "first"), [("fedem", 2), ("ifca", 3)])
def test_one_site_that_says_its_rows_are_unlikely_stops_nobody(
    method: str, first: int, csv_sites: Sites, overlapping: Tables
) -> None:
    """So low a number would swamp the others', and rounds would seem to stand still."""
    nodes = csv_sites(overlapping)
    lie = changed("log_likelihood", lambda part: np.full_like(part, -1e140))
    one = run(method, nodes, tamper=at(first, lie, 1))
    assert all("its rows cannot be so unlikely" in record.failed["b"] for record in one.trace[first:-1])
    missing = run(method, nodes, tamper=at(first, silent, 1))
    assert one.outcome.details["rounds"] == missing.outcome.details["rounds"] > 2
    np.testing.assert_array_equal(one.outcome.details["trace"], missing.outcome.details["trace"])


# --- IFCA


def blocks(blobs: Blobs) -> Tables:
    """Sites a, b and c have their clusters elsewhere than d and e."""
    return {
        name: blobs(seed, 30, 30, 30) + (name in "de") * np.array([3.0, -4.0])
        for seed, name in enumerate("abcde")
    }


def test_ifca_over_messages_is_ifca_in_memory(csv_sites: Sites, blobs: Blobs) -> None:
    tables = blocks(blobs)
    one = run("ifca", released(csv_sites, tables), scaling="none", min_count=1, models=2, ifca_restarts=3)
    starts = {
        name: fedem.client_start(X, 3, stream(42, name, "ifca"), min_count=1) for name, X in tables.items()
    }
    models = ifca.candidates(starts)
    scores = {name: ifca.client_scores(X, models.values()) for name, X in tables.items()}
    runs = []
    for number in range(3):
        state = ifca.init(models, scores, 2, stream(42, "ifca", number))
        while not ifca.done(state):
            sent = {name: ifca.client_step(X, state.models, min_count=1) for name, X in tables.items()}
            state = ifca.step(state, sent)
        runs.append(state)
    told = one.outcome.details["restarts"]
    assert [part["rounds"] for part in told] == [len(state.trace) for state in runs]
    np.testing.assert_allclose(
        [part["log_likelihood"] for part in told], [state.log_likelihood for state in runs]
    )
    for name, X in tables.items():
        same(personal(one).mixtures[name], ifca.client_finish(X, ifca.best(runs).models))


def test_sites_of_a_block_share_a_model_and_the_numbers_of_its_components(
    csv_sites: Sites, blobs: Blobs
) -> None:
    one = run("ifca", csv_sites(blocks(blobs)), models=2)
    chosen = one.outcome.details["models"]
    assert len({chosen[name] for name in "abc"}) == len({chosen[name] for name in "de"}) == 1
    assert chosen["a"] != chosen["d"]
    assert one.outcome.k_hat == 6
    names = personal(one).names
    assert sorted({*names["a"].tolist(), *names["d"].tolist()}) == list(range(6))
    assert not one.outcome.warnings


def test_restarts_share_the_rounds_and_leave_them_when_they_are_over(csv_sites: Sites, blobs: Blobs) -> None:
    one = run("ifca", csv_sites(blocks(blobs)), models=2, ifca_restarts=4)
    rounds = [part["rounds"] for part in one.outcome.details["restarts"]]
    assert one.outcome.details["rounds"] == max(rounds)
    going = [len(ask.restarts) for name, ask in asked(one, AskIFCARound) if name == "a"]
    assert going == [sum(length > number for length in rounds) for number in range(max(rounds))]


def test_a_site_that_chose_no_model_has_all_by_the_rows_that_chose_them(
    csv_sites: Sites, blobs: Blobs
) -> None:
    tables = {
        "a": blobs(0, 60, 60),
        "b": blobs(1, 30, 30),
        "c": blobs(2, 90, 90) + 50.0,
        "d": blobs(3, 20, 20),
    }
    one = run("ifca", csv_sites(tables), models=2, components=2, tamper=at(3, silent, 1))
    chosen, mixture = one.outcome.details["models"], personal(one).mixtures["b"]
    assert chosen["a"] == chosen["d"] != chosen["c"]
    expected = np.array([160, 180])[[chosen["a"], chosen["c"]]] / 340
    np.testing.assert_allclose(mixture.weights.reshape(2, 2).sum(axis=1), expected)


def test_models_that_nobody_chose_have_no_numbers(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites({name: blobs(0, 30, 30, 30) for name in "ab"})
    one = run("ifca", nodes, models=2)
    assert one.outcome.k_hat == 3
    assert one.outcome.warnings == ("sites chose 1 different models of models=2",)


def test_the_model_of_a_site_that_is_gone_is_not_chosen(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites(blocks(blobs))
    one = run("ifca", nodes, models=2, tamper=at(2, silent, 3), scaling="none")
    assert one.outcome.status == FINISHED
    assert len(next(ask for _, ask in asked(one, AskIFCAScores)).mixtures) == 5
    first = next(ask for _, ask in asked(one, AskIFCARound)).mixtures
    gone = ifca.candidates(
        {"d": fedem.client_start(blocks(blobs)["d"], 3, stream(42, "d", "ifca"), min_count=5)}
    )["d"]
    assert all(np.abs(model.means - gone.means).max() > 1e-6 for model in first)


@pytest.mark.parametrize(
    ("exchange", "field", "change", "said"),
    [
        (2, "log_likelihood", lambda part: part + 1e4, "its rows cannot be so likely"),
        (2, "log_likelihood", lambda part: part * np.nan, "NaN or infinite"),
        (2, "log_likelihood", lambda part: part[:1], "expected shape"),
        (3, "models", lambda part: part + 2, "there is no model"),
        (3, "mass", lambda part: part + 1.0, "they hold"),
    ],
)
def test_choices_and_likelihoods_that_cannot_be_are_not_used(
    exchange: int, field: str, change: Any, said: str, csv_sites: Sites, blobs: Blobs
) -> None:
    lie = at(exchange, changed(field, change), 1, last=exchange)
    one = run("ifca", csv_sites(blocks(blobs)), models=2, tamper=lie)
    assert said in one.trace[exchange].failed["b"]
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 6)


def test_sites_count_the_components_of_models_if_they_are_not_told(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {"a": blobs(0, 40, 40), "b": blobs(1, 40, 40), "c": blobs(2, 40, 40, 40, 40) + 70.0}
    one = run("ifca", csv_sites(tables), models=2, components="auto", scaling="none")
    assert [site.details["k_counted"] for site in one.outcome.sites] == [2, 2, 4]
    assert [site.details["k_g"] for site in one.outcome.sites] == [2, 2, 4]
    assert one.outcome.k_hat == 6


# --- FedGenGMM


def test_fedgengmm_over_messages_is_fedgengmm_in_memory(csv_sites: Sites, overlapping: Tables) -> None:
    nodes = released(csv_sites, overlapping)
    one = run("fedgengmm", nodes, scaling="none", min_count=1, fedgengmm_draws=500)
    sent = {
        name: fedgengmm.client_step(X, 3, stream(42, name, "fedgengmm"), min_count=1)
        for name, X in overlapping.items()
    }
    expected = fedgengmm.server_step(sent, 3, stream(42, "fedgengmm"), draws=500).mixture
    assert isinstance(one.outcome.model, Model)
    same(one.outcome.model.clusters, expected)


def test_fedgengmm_counts_local_components_if_it_is_not_told(three_sites: list[dict[str, Any]]) -> None:
    one = run("fedgengmm", three_sites, local_k="auto")
    assert one.outcome.k_hat == 3
    assert [site.details["k_counted"] for site in one.outcome.sites] == [3, 3, 3]


# --- sites alone


def test_nothing_but_the_mixture_leaves_a_site_alone(three_sites: list[dict[str, Any]]) -> None:
    one = run("local", three_sites, components="auto")
    assert one.outcome.k_hat == 3
    assert [site.details["k_counted"] for site in one.outcome.sites] == [3, 3, 3]
    for node in three_sites:
        lines = [json.loads(line) for line in Path(node["ledger-path"]).read_text().splitlines()]
        assert [line["message"] for line in lines] == ["hello", "local.mixture", "labelled"]


def test_what_others_have_changes_no_mixture_of_a_site_alone(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {"a": blobs(0, 30, 30, 30), "b": blobs(1, 30, 30, 30), "c": blobs(2, 9, 9, 9)}
    both = run("local", csv_sites(tables), scaling="none")
    other = run("local", csv_sites({**tables, "b": blobs(5, 50, 9, 9)}), scaling="none")
    for name in "ac":
        same(personal(both).mixtures[name], personal(other).mixtures[name], atol=0)
    for name, mixture in personal(both).mixtures.items():
        assert (mixture.weights * len(tables[name]) > 5 - 1e-5).all()


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("covariances", lambda part: part * 1e3, "wider than the site's rows"),
        ("covariances", lambda part: -part, "local.mixture: "),
        ("weights", lambda part: part * 2, "local.mixture: "),
    ],
)
def test_a_mixture_that_cannot_be_of_a_sites_rows_is_not_used(
    field: str, change: Any, said: str, three_sites: list[dict[str, Any]]
) -> None:
    one = run("local", three_sites, tamper=at(1, changed(field, change), 1))
    assert said in one.trace[1].failed["b"]
    assert any("sites b have no mixture, and so no labels" in told for told in one.outcome.warnings)
    assert one.outcome.k_hat == 3


def test_no_variance_of_a_site_alone_is_below_the_floor(csv_sites: Sites) -> None:
    flat = np.random.default_rng(0).normal(size=(2, 80, 2)) * [1.0, 0.01]
    one = run(
        "local",
        csv_sites(dict(zip("ab", flat, strict=True))),
        components=1,
        scaling="none",
        local_variance_floor=0.3,
    )
    for X, mixture in zip(flat, personal(one).mixtures.values(), strict=True):
        # Of one cluster the variance within is that of the rows, here its mean over the columns.
        least = 0.3 * X.var(axis=0).mean()
        np.testing.assert_allclose(np.linalg.eigvalsh(mixture.covariances[0])[0], least, rtol=1e-2)


def test_equal_rows_make_one_component_of_some_width(csv_sites: Sites) -> None:
    one = run("local", csv_sites({name: np.ones((20, 2)) for name in "ab"}), scaling="none")
    assert nobody_failed(one)
    assert one.outcome.k_hat == 1
    assert np.isfinite(personal(one).mixtures["a"].covariances).all()


# --- settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"method": "ifca"}, "method 'ifca' needs to be told models, for example models=10"),
        ({"method": "ifca", "models": 3, "k": 10}, "k would do nothing with method 'ifca'"),
        ({"method": "fedem", "k": 3, "models": 2}, "models would do nothing with method 'fedem'"),
        ({"method": "fedem", "k": 3, "components": 2}, "components would do nothing with method 'fedem'"),
        ({"method": "local", "k": 3}, "k would do nothing with method 'local'"),
        ({"method": "fedgengmm", "local-k": 3}, "needs to be told k"),
    ],
)
def test_settings_are_refused_where_nothing_reads_them_or_they_are_missing(
    values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        strategy_of(parse_run_config(values))


def test_bad_numbers_of_models_and_draws_are_refused() -> None:
    for key in ("models", "fedgengmm-draws", "ifca-restarts", "fedem-rounds"):
        with pytest.raises(ConfigError, match=f"{key} expected"):
            parse_run_config({key: 0})


def test_every_start_of_ifca_is_shown_to_all_sites_and_no_more(csv_sites: Sites, blobs: Blobs) -> None:
    tables = blocks(blobs)
    one = run("ifca", csv_sites(tables), models=2)
    shown = [(name, len(ask.mixtures)) for name, ask in asked(one, AskIFCAScores)]
    assert shown == [(name, 5) for name in "abcde"]

    def least(ask: AskIFCAScores) -> float:
        return min(float(model.weights.min()) for model in ask.mixtures)

    rows = min(map(len, tables.values()))
    assert all(least(ask) * rows > 5 for _, ask in asked(one, AskIFCAScores))


def test_a_site_that_comes_late_joins_with_sums(csv_sites: Sites, blobs: Blobs) -> None:
    nodes = csv_sites(blocks(blobs))
    one = run("ifca", nodes, models=2, tamper=at(1, silent, 4, last=3))
    assert (one.outcome.status, one.outcome.k_hat) == (FINISHED, 6)
    assert one.outcome.details["models"]["e"] == one.outcome.details["models"]["d"]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("fedem", {"k": 8}),
        ("ifca", {"components": 8}),
        ("fedgengmm", {"k": 8, "local_k": 8}),
        ("local", {"components": 8}),
    ],
)
def test_sites_with_fewer_rows_than_components_take_part(
    method: str, values: dict[str, Any], csv_sites: Sites, blobs: Blobs
) -> None:
    nodes = csv_sites({"a": blobs(0, 40, 50, 60), "b": blobs(1, 3, 3), "c": blobs(2, 30, 1, 1)})
    one = run(method, nodes, **values)
    assert one.outcome.status == FINISHED
    assert nobody_failed(one)
    for node in nodes:
        assert (
            Path(node["labels-path"]).read_text().count("\n")
            == 1 + {"a": 150, "b": 6, "c": 32}[Path(node["labels-path"]).name[0]]
        )
