"""FedGrEM and consensus EM over messages: the kernels' own rounds, sums that stay right, who hears what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gtv_runs import asked
from micro_runs import Blobs, Sites, changed, crash, silent
from rival_runs import BEFORE, at, run

from fedcluster_app.client_app import app
from fedcluster_app.config import parse_run_config
from fedcluster_app.coupling import grem_of, wide_bounds
from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import consensus_network, fedgrem
from fedcluster_app.gtvmin.blocks import blocks, mixture_of
from fedcluster_app.gtvmin.consensus_moments import parameters_from
from fedcluster_app.gtvmin.consensus_network import ConsensusSettings
from fedcluster_app.gtvmin.projection import project
from fedcluster_app.messages import AskConsensusRound, AskGrEMRound
from fedcluster_app.messages.networks import mean_of
from fedcluster_app.mixtures import Mixture, em
from fedcluster_app.transport import from_records
from simulations.federation import LocalRun

FIVE = {"fedgrem_rounds": 5, "fedgrem_tolerance": 0.0}
BOUNDS = wide_bounds(3, 0.05)


@pytest.fixture
def close_sites(csv_sites: Sites, blobs: Blobs) -> list[dict[str, Any]]:
    """Sites a to d whose clusters overlap, so that their mixtures move for many rounds."""
    near = np.repeat(5.0 * np.arange(3), [40, 50, 60])[:, None]
    return csv_sites({name: blobs(seed, 40, 50, 60) - near for seed, name in enumerate("abcd")})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A graph a - b - c - d."""
    file = tmp_path / "path.csv"
    file.write_text("source,target\na,b\nb,c\nc,d\n")
    return str(file)


def rows(one: LocalRun, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The sites' rows in the features of the rounds."""
    run_ = one.strategy.state
    scaling = run_.agreement.scaling.in_units(run_.kernel.unit)
    tables = {node["site-name"]: np.loadtxt(node["data-path"], delimiter=",", skiprows=1) for node in nodes}
    return {name: scaling.apply(table) for name, table in tables.items()}


def sent(one: LocalRun) -> dict[str, Any]:
    return {name: post.content for name, post in one.strategy.state.kernel.state.mailbox.posts.items()}


def totals(one: LocalRun) -> tuple[Any, Any]:
    """Own statistics and estimates, each summed over the sites."""
    parts = sent(one).values()
    return sum(part.own for part in parts), sum(part.sums.estimate for part in parts)


def found(one: LocalRun, name: str) -> Mixture:
    """What became of a site's mixture, in the features of the rounds."""
    unit, mixture = one.strategy.state.kernel.unit, one.outcome.model.mixtures[name]
    return Mixture(mixture.weights, mixture.means / unit, mixture.covariances / unit**2)


# --- consensus EM


@pytest.mark.parametrize("mode", ["tracking", "leaky"])
def test_messages_make_the_rounds_of_the_network_in_memory(
    mode: Any, close_sites: list[dict[str, Any]], path: str
) -> None:
    one = run("consensus-em", close_sites, graph=path, consensus_mode=mode, consensus_rounds=6)
    kernel = one.strategy.state.kernel
    part = 1.0 if mode == "leaky" else 0.5
    settings = ConsensusSettings(mode, bounds=BOUNDS, min_count=5.0, step_size=part)
    tables, graph = rows(one, close_sites), kernel.state.graph
    state = consensus_network.init(tables, kernel.start, graph, settings)
    for _ in range(6):
        state = consensus_network.step(state, tables, graph, settings)
    assert one.outcome.details["rounds"] == 6
    for name, node in state.nodes.items():
        np.testing.assert_allclose(sent(one)[name].sums.estimate, node.estimate, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sent(one)[name].own, node.own, rtol=1e-9, atol=1e-9)
        assert sent(one)[name].movement == pytest.approx(node.movement)
        theta = project(parameters_from(node.estimate, mean_of(kernel.start), blocks(kernel.start)), BOUNDS)
        np.testing.assert_allclose(found(one, name).means, mixture_of(theta).means, rtol=1e-9, atol=1e-9)


def test_tracking_ends_in_em_on_the_pooled_rows(close_sites: list[dict[str, Any]]) -> None:
    how = {"consensus_rounds": 80, "consensus_tolerance": 1e-4, "consensus_step": 0.8}
    one = run("consensus-em", close_sites, graph="ring", **how)
    assert one.outcome.details["stopped_by"] == "converged"
    X = np.concatenate(list(rows(one, close_sites).values()))
    wanted = em.fit(X, one.strategy.state.kernel.start, tol=1e-13, max_iter=2000, reg_covar=0.0).mixture
    for name in "abcd":
        np.testing.assert_allclose(found(one, name).means, wanted.means, atol=1e-3)
        np.testing.assert_allclose(found(one, name).weights, wanted.weights, atol=1e-4)
        np.testing.assert_allclose(found(one, name).covariances, wanted.covariances, atol=1e-3)


def test_sums_are_right_again_after_a_silence_and_after_lost_memory(
    close_sites: list[dict[str, Any]], path: str
) -> None:
    def forgetful(message: Any, context: Any) -> Any:
        asked_in = from_records(message.content).scalars.get("round")
        if message.metadata.dst_node_id == 102 and asked_in == 3:
            assert "site.consensus" in context.state
            del context.state["site.consensus"]
        return app(message, context)

    def after(number: int, **how: Any) -> Any:
        one = run("consensus-em", close_sites, graph=path, consensus_rounds=number, **how)
        own, estimates = totals(one)
        assert own[:, 0].sum() == pytest.approx(600)
        return np.abs(own - estimates).max()

    # Of the exchanges with site b the first are its start and its first sums; in the fifth it is in round 3.
    for how in ({"tamper": lambda: at(5, silent, 1, last=5)}, {"client_app": lambda: forgetful}):
        off = [after(number, **{key: make() for key, make in how.items()}) for number in (2, 3, 6)]
        assert off[0] < 1e-9
        assert off[1] > 1e-3
        assert off[2] < 1e-9


def test_who_has_gone_takes_its_rows_along(close_sites: list[dict[str, Any]], path: str) -> None:
    one = run(
        "consensus-em",
        close_sites,
        graph=path,
        max_age=2,
        tamper=at(6, silent, 3),
        consensus_rounds=40,
        consensus_tolerance=1e-3,
        consensus_step=1.0,
    )
    tables = rows(one, close_sites)
    X = np.concatenate([tables[name] for name in "abc"])
    wanted = em.fit(X, one.strategy.state.kernel.start, tol=1e-13, max_iter=2000, reg_covar=0.0).mixture
    np.testing.assert_allclose(found(one, "a").means, wanted.means, atol=0.01)
    everybody = em.fit(np.concatenate(list(tables.values())), wanted, tol=1e-13, max_iter=2000).mixture
    assert np.abs(wanted.means - everybody.means).max() > 0.03
    assert "missed" in {site.name: site.status for site in one.outcome.sites}["d"]


def test_a_late_site_comes_in_with_the_common_start(close_sites: list[dict[str, Any]], path: str) -> None:
    one = run("consensus-em", close_sites, graph=path, tamper=at(1, silent, 1, last=3), consensus_rounds=9)
    asks = [ask for name, ask in asked(one, AskConsensusRound) if name == "b"]
    assert [ask.round for ask in asks][:4] == [0, 1, 2, 3]
    own, estimates = totals(one)
    np.testing.assert_allclose(own, estimates, atol=1e-9)
    assert own[:, 0].sum() == pytest.approx(600)


def test_a_site_hears_its_neighbours_alone_and_what_is_meant_for_it(
    close_sites: list[dict[str, Any]], path: str
) -> None:
    one = run("consensus-em", close_sites, graph=path, consensus_rounds=4)
    near = {"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c",)}
    last = {}
    for name, ask in asked(one, AskConsensusRound):
        assert ask.neighbours == (near[name] if ask.round else ())
        last[name] = ask
    of_b = {name: ask.parts[ask.neighbours.index("b")] for name, ask in last.items() if "b" in ask.neighbours}
    assert set(of_b) == {"a", "c"}
    assert not np.allclose(of_b["a"], of_b["c"])


def test_sums_of_few_rows_do_not_leave_nor_can_they_be_had_as_a_difference(csv_sites: Sites) -> None:
    rng, least = np.random.default_rng(0), 12
    tables = {name: rng.normal(size=(45, 2)) for name in "abc"}
    masses, how = [], {"min_count": least, "consensus_step": 1.0, "scaling": "none"}
    for number in range(1, 8):
        one = run("consensus-em", csv_sites(tables), consensus_rounds=number, **how)
        masses += [part.own[:, 0] for part in sent(one).values()]
    known = np.stack(masses)
    missing = 45 - known.sum(axis=1)
    assert ((known < 1e-9) | (known > least - 1e-3)).all()
    assert ((missing < 1e-5) | (missing > least - 1e-3)).all()
    assert (missing > least - 1e-3).any()


@pytest.mark.parametrize(("mode", "first"), [("tracking", 4), ("leaky", 2), ("leaky", 4)])
@pytest.mark.parametrize("size", [0.1, 1e3])
def test_an_estimate_that_does_not_follow_from_what_was_handed_is_named(
    mode: str, first: int, size: float, close_sites: list[dict[str, Any]]
) -> None:
    def lie(question: Any, answer: Any) -> Any:
        flows = from_records(answer.content).arrays.get("flows", ())
        if len(flows):
            answer = changed("flows", lambda part: part + size)(question, answer)
        # So that its own sums are as they were.
        return changed("estimate", lambda part: part + size * (len(flows) or 1))(question, answer)

    how = {"consensus_mode": mode, "consensus_rounds": 6, "consensus_tolerance": 0.0}
    one = run("consensus-em", close_sites, tamper=at(first, lie, 1, last=first), **how)
    assert "they do not follow from what the site was handed" in one.trace[first].failed["b"]
    # It goes on from what it said before.
    assert [record.phase for record in one.trace if record.failed] == [one.trace[first].phase]


@pytest.mark.parametrize("mode", ["tracking", "leaky"])
def test_rounds_whose_answers_are_lost_are_as_if_they_had_not_been(
    mode: Any, close_sites: list[dict[str, Any]], path: str
) -> None:
    how = {"consensus_mode": mode, "consensus_step": 0.5, "consensus_tolerance": 0.0}
    lost = at(5, silent, 1, last=6)
    one = run("consensus-em", close_sites, graph=path, consensus_rounds=7, tamper=lost, **how)
    assert not any(record.failed for record in one.trace)
    kernel = one.strategy.state.kernel
    settings = ConsensusSettings(mode, bounds=BOUNDS, min_count=5.0, step_size=0.5)
    tables, graph = rows(one, close_sites), kernel.state.graph
    state = consensus_network.init(tables, kernel.start, graph, settings)
    for number in range(1, 8):
        state = consensus_network.step(
            state, tables, graph, settings, silent=["b"] if number in (3, 4) else []
        )
    for name, node in state.nodes.items():
        np.testing.assert_allclose(sent(one)[name].sums.estimate, node.estimate, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sent(one)[name].own, node.own, rtol=1e-9, atol=1e-9)


def test_the_published_filter_has_the_steps_of_em_unless_told_otherwise() -> None:
    for mode, given, wanted in (("tracking", "auto", 0.5), ("leaky", "auto", 1.0), ("leaky", 0.2, 0.2)):
        values = {"method": "consensus-em", "consensus-mode": mode, "consensus-step": given}
        assert parse_run_config(values).consensus.step == wanted


def test_the_likelihood_is_that_of_a_row(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(n, n, 20, 30) for name, n in zip("abc", (10, 50, 90), strict=True)}
    one = run("consensus-em", csv_sites(tables), consensus_rounds=3, min_count=1)
    total = sum(len(tables[name]) * post.sums.log_likelihood for name, post in sent(one).items())
    mean = total / sum(map(len, tables.values())) - 2 * np.log(one.strategy.state.kernel.unit)
    assert one.outcome.details["log_likelihood"] == pytest.approx(mean)


@pytest.mark.parametrize(("last", "how_often"), [(None, 1), (8, 0)])
def test_a_likelihood_that_falls_by_the_end_is_said(
    last: int | None, how_often: int, close_sites: list[dict[str, Any]]
) -> None:
    lie = changed("log_likelihood", lambda mean: mean - 0.1)
    told = {"tamper": at(8, lie, 0, 1, 2, 3, last=last), "consensus_rounds": 8, "consensus_tolerance": 0.0}
    one = run("consensus-em", close_sites, **told)
    assert sum("a row fell by" in text for text in one.outcome.warnings) == how_often
    assert sum("consensus-step" in text for text in one.outcome.warnings) == how_often


def test_gains_that_cannot_be_are_refused(close_sites: list[dict[str, Any]], path: str) -> None:
    with pytest.raises(ConfigError, match="consensus-gain would do nothing with consensus-mode='tracking'"):
        parse_run_config({"method": "consensus-em", "consensus-gain": 0.1})
    with pytest.raises(ConfigError, match=r"gain: expected .* at most .* = 0.1667, got 0.2"):
        run("consensus-em", close_sites, graph=path, consensus_mode="leaky", consensus_gain=0.2)


@pytest.mark.parametrize("method", ["fedgrem", "consensus-em"])
def test_rounds_that_nobody_answers_end_the_run_with_what_there_is(
    method: str, close_sites: list[dict[str, Any]]
) -> None:
    one = run(method, close_sites, tamper=at(4, silent, 0, 1, 2, 3))
    assert (one.outcome.status, one.outcome.details["stopped_by"]) == ("finished", "unheard")
    assert any("the rounds ended early" in warning for warning in one.outcome.warnings)
    assert set(one.outcome.model.mixtures) == set("abcd")


@pytest.mark.parametrize("method", ["fedgrem", "consensus-em"])
def test_more_components_than_were_asked_for_are_named(
    method: str, close_sites: list[dict[str, Any]]
) -> None:
    def split(question: Any, answer: Any) -> Any:
        for field in ("means", "covariances"):
            answer = changed(field, lambda part: np.concatenate([part, part[:1]]))(question, answer)
        return changed("weights", lambda part: np.append(part[1:], np.full(2, part[0] / 2)))(question, answer)

    one = run(method, close_sites, tamper=at(1, split, 1, last=1))
    assert "4 components, expected at most 3" in one.trace[1].failed["b"]
    assert one.outcome.k_hat == 3


@pytest.mark.parametrize("method", ["fedgrem", "consensus-em"])
@pytest.mark.parametrize("light", [False, True])
def test_a_start_that_is_wider_than_the_rows_is_named(
    method: str, light: bool, close_sites: list[dict[str, Any]]
) -> None:
    def wide(question: Any, answer: Any) -> Any:
        if not light:
            return changed("covariances", lambda part: 1e4 * part)(question, answer)
        # One component that nothing is said to be of.
        answer = changed("weights", lambda part: np.array([0.0, *part[1:-1], part[0] + part[-1]]))(
            question, answer
        )
        factor = np.array([[1e6], [1.0], [1.0]])
        return changed("covariances", lambda part: factor * part)(question, answer)

    one = run(method, close_sites, tamper=at(1, wide, 1, last=1))
    assert "it is wider than the site's rows" in one.trace[1].failed["b"]


@pytest.mark.parametrize("fault", [silent, crash])
@pytest.mark.parametrize("method", ["fedgrem", "consensus-em"])
def test_a_site_that_is_lost_in_a_round_is_missed_alone(
    method: str, fault: Any, close_sites: list[dict[str, Any]]
) -> None:
    before = BEFORE[method] + 1
    one = run(method, close_sites, tamper=at(before + 1, fault, 1))
    assert one.outcome.status == "finished"
    assert one.trace[before].failed == {} == dict.fromkeys(one.trace[before].late)
    assert "b" in one.trace[before + 1].failed or "b" in one.trace[before + 1].late
    said = {site.name: site.status for site in one.outcome.sites}
    assert said.pop("b").startswith("missed ")
    assert set(said.values()) == {"ok"}
    wanted = run(method, close_sites)
    for name in "acd":
        assert np.abs(found(one, name).means - found(wanted, name).means).max() < 0.5


@pytest.mark.parametrize("method", ["fedgrem", "consensus-em"])
def test_the_unit_of_the_features_has_no_say(method: str, csv_sites: Sites, blobs: Blobs) -> None:
    near = np.repeat(5.0 * np.arange(3), [40, 50, 60])[:, None]
    tables = {name: blobs(seed, 40, 50, 60) - near for seed, name in enumerate("abc")}
    means = [
        run(method, csv_sites({name: unit * X for name, X in tables.items()}), scaling="none")
        .outcome.model.mixtures["a"]
        .means
        for unit in (1.0, 0.03)
    ]
    np.testing.assert_allclose(means[1], 0.03 * means[0], rtol=1e-5, atol=1e-5)


# --- FedGrEM


def test_a_round_that_makes_a_component_wider_than_rows_can_be_is_named(
    close_sites: list[dict[str, Any]],
) -> None:
    for factor in (9e5, 1e3):
        wide = changed("covariances", lambda part, by=factor: np.tile([by, 0.0, by], (len(part), 1)))
        one = run("fedgrem", close_sites, tamper=at(3, wide, 1, last=3), fedgrem_rounds=4)
        assert "a component is wider than what it was sent" in one.trace[3].failed["b"]


def test_a_component_of_few_rows_comes_back_as_it_was_sent(csv_sites: Sites, blobs: Blobs) -> None:
    tables = {name: blobs(seed, 60, 60, 60 if name < "c" else 3) for seed, name in enumerate("abc")}
    one = run("fedgrem", csv_sites(tables), fedgrem_rounds=1, fedgrem_tolerance=0.0, min_count=5)
    came = dict(asked(one, AskGrEMRound))["c"].mixtures[0]
    went = one.strategy.state.kernel.state.uploads["c"].mixture
    small = int(came.means.sum(axis=1).argmax())
    np.testing.assert_allclose(went.means[small], came.means[small], rtol=1e-12)
    np.testing.assert_allclose(went.covariances[small], came.covariances[small], rtol=1e-12)
    assert np.abs(np.delete(went.means - came.means, small, axis=0)).max() > 1e-3


@pytest.mark.parametrize("preset", ["tuned", "published"])
def test_messages_make_the_rounds_of_fedgrem(preset: str, close_sites: list[dict[str, Any]]) -> None:
    one = run("fedgrem", close_sites, fedgrem_preset=preset, fedgrem_decay=0.2, **FIVE)
    kernel, tables = one.strategy.state.kernel, rows(one, close_sites)
    settings = grem_of(one.strategy.config.fedgrem, BOUNDS)
    assert (settings.decay, settings.passes) == (0.2, 10 if preset == "tuned" else 20)
    first = {name: ask.mixtures[0] for name, ask in reversed(list(asked(one, AskGrEMRound)))}
    state = fedgrem.GrEMState(kernel.start, first)
    for _ in range(5):
        parts = {
            name: fedgrem.client_step(X, fedgrem.model_for(state, name), settings, min_count=5.0)
            for name, X in tables.items()
        }
        state = fedgrem.step(state, parts, settings)
    for name, mixture in state.models.items():
        np.testing.assert_allclose(found(one, name).means, mixture.means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found(one, name).covariances, mixture.covariances, rtol=1e-9, atol=1e-9)
    assert one.outcome.details["penalty"] == pytest.approx(state.strength)


def test_like_sites_are_drawn_together_and_without_penalty_they_are_not(
    close_sites: list[dict[str, Any]],
) -> None:
    apart = {}
    for penalty in (0.0, 10.0):
        one = run("fedgrem", close_sites, fedgrem_penalty=penalty, fedgrem_rounds=20)
        apart[penalty] = np.abs(found(one, "a").means - found(one, "b").means).max()
    assert apart[10.0] < 1e-6
    assert apart[0.0] > 0.1


def test_a_site_that_missed_the_start_gets_what_the_others_have_in_common(
    close_sites: list[dict[str, Any]], tmp_path: Path
) -> None:
    one = run("fedgrem", close_sites, tamper=at(1, silent, 1, last=1), fedgrem_rounds=2)
    first = next(ask for name, ask in asked(one, AskGrEMRound) if name == "b")
    np.testing.assert_array_equal(first.means, one.strategy.state.kernel.start.means)
    assert "b" in one.strategy.state.kernel.state.uploads
    lines = [json.loads(line) for line in Path(close_sites[1]["ledger-path"]).read_text().splitlines()]
    kinds = ["hello", "local.mixture", "fedgrem.mixture", "fedgrem.mixture", "labelled"]
    assert [line["message"] for line in lines] == kinds
