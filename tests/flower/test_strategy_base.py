"""The base of all strategies, with two toy methods and hand-made replies: it knows no method."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message

from fedcluster_app import __version__
from fedcluster_app.config import RunConfig, parse_run_config
from fedcluster_app.errors import RunError
from fedcluster_app.messages import AskHello, Hello, Refusal
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.outcome import FINISHED, Outcome, SiteResult
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import array, decode, encode, message, scalar
from simulations.federation import LocalGrid
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange, sort_answers

# --- a one-shot method: one upload of many summaries


@message("toy.ask.summaries")
class AskSummaries:
    scale: FloatArray = array("d", "divisor of every column")


@message("toy.summaries")
class Summaries:
    counts: FloatArray = array("c", "rows of every summary", low=0.0)
    means: FloatArray = array("c d", "mean of every summary")


@dataclass(frozen=True)
class Pile:
    agreement: Agreement
    came: Mapping[str, Summaries] | None = None


class OneShot(SiteStrategy[Pile]):
    phase, must_answer = "upload", True

    def begin(self, agreement: Agreement) -> Pile:
        return Pile(agreement)

    def ask(self, state: Pile) -> Exchange | None:
        if state.came is not None:
            return None
        asks = {name: AskSummaries(state.agreement.scaling.scale) for name in state.agreement.roster.moments}
        sizes = {name: {"d": len(state.agreement.columns)} for name in asks}
        answers: Mapping[type, type] = {AskSummaries: Summaries}
        return Exchange(self.phase, asks, answers, sizes=sizes, must_answer=self.must_answer)

    def tell(self, state: Pile, answers: Answers) -> Pile:
        return replace(state, came=answers.values)

    def figures(self, state: Pile) -> dict[str, float]:
        return {"summaries": sum(len(one.counts) for one in (state.came or {}).values())}

    def conclude(self, state: Pile) -> Outcome:
        assert state.came is not None
        sites = [
            SiteResult(name, "ok", 1, details={"sent": len(one.counts)}) for name, one in state.came.items()
        ]
        return Outcome(FINISHED, k_hat=int(self.figures(state)["summaries"]), sites=tuple(sites))


# --- a method on a graph: every site is told what its neighbours last said, and nothing else


@message("toy.ask.mix")
class AskMix:
    turn: int = scalar(int, "turn", low=0)
    heard: FloatArray | None = array("j", "what the neighbours said last", optional=True)


@message("toy.mixed")
class Mixed:
    value: FloatArray = array("1", "what the site says now")


@dataclass(frozen=True)
class Ring:
    names: tuple[str, ...]
    values: Mapping[str, float] = field(default_factory=dict)
    turn: int = 0


class Gossip(SiteStrategy[Ring]):
    """Three turns around a ring; the middle one is for the even places alone, and goes out as evaluation."""

    def begin(self, agreement: Agreement) -> Ring:
        return Ring(tuple(agreement.roster.members))

    def neighbours(self, ring: Ring, place: int) -> tuple[str, str]:
        return ring.names[place - 1], ring.names[(place + 1) % len(ring.names)]

    def ask(self, state: Ring) -> Exchange | None:
        if state.turn == 3:
            return None
        asks = {}
        for place, name in enumerate(state.names):
            if state.turn != 1 or place % 2 == 0:
                heard = [state.values[other] for other in self.neighbours(state, place) if state.turn]
                asks[name] = AskMix(state.turn, np.array(heard) if heard else None)
        category = "evaluate" if state.turn == 1 else "train"
        return Exchange(f"turn {state.turn}", asks, {AskMix: Mixed}, category)

    def tell(self, state: Ring, answers: Answers) -> Ring:
        said = {name: float(answer.value[0]) for name, answer in answers.values.items()}
        return replace(state, values={**state.values, **said}, turn=state.turn + 1)

    def figures(self, state: Ring) -> dict[str, float]:
        return dict(state.values)

    def conclude(self, state: Ring) -> Outcome:
        return Outcome(FINISHED, details=state.values)


# --- hand-made sites


def greeting(node: Mapping[str, Any]) -> Hello:
    d = len(node.get("columns", ("x", "y")))
    values: dict[str, Any] = {
        "site": "?",
        "version": __version__,
        "rows": 10,
        "columns": ("x", "y"),
        "partitions": 0,
        "allow_unsafe": False,
        "mean": np.zeros(d),
        "scatter": np.full(d, 10.0),
        "scatter_triangle": None,
    }
    return Hello(**{**values, **node})


def reply_of(context: Context, asked: Any) -> Any:
    """Answer as the site that the node config describes; the gossip starts with the length of the name."""
    name = str(context.node_config["site"])
    if isinstance(asked, AskHello):
        return greeting(context.node_config)
    if isinstance(asked, AskSummaries):
        c = len(name)
        return Summaries(np.ones(c), np.outer(np.arange(c), asked.scale))
    return Mixed(np.array([float(len(name)) if asked.heard is None else asked.heard.mean()]))


def hand_made(question: Message, context: Context) -> Message:
    asked = decode(from_records(question.content), AskHello, AskSummaries, AskMix, sender="test")
    return Message(to_records(encode(reply_of(context, asked))), reply_to=question)


def kind_of(question: Message) -> str:
    return from_records(question.content).kind


def settings(**values: Any) -> RunConfig:
    short = {"method": "fedgem", "pca": 0, "join-timeout": 0.3, "round-timeout": 0.1}
    return parse_run_config(short | {key.replace("_", "-"): value for key, value in values.items()})


def federation(
    *sites: str | Mapping[str, Any],
    method: type[SiteStrategy[Any]] = OneShot,
    grid: type[LocalGrid] = LocalGrid,
    config: RunConfig | None = None,
    say: Callable[[str], None] = lambda line: None,
    **faults: Any,
) -> tuple[SiteStrategy[Any], LocalGrid]:
    nodes = [{"site": site} if isinstance(site, str) else dict(site) for site in sites]
    return (
        method(config or settings(), say=say),
        grid(nodes, {}, client_app=hand_made, **faults),
    )


def status_of(strategy: SiteStrategy[Any]) -> dict[str, str]:
    return {site.name: site.status for site in strategy.outcome.sites}


def only(
    phase_kind: str, *nodes: int, do: Callable[[Message, Message], Message | None]
) -> Callable[..., Any]:
    """Tamper with the answers of some nodes to one kind of question."""

    def tamper(node: int, question: Message, answer: Message) -> Message | None:
        return do(question, answer) if node in nodes and kind_of(question) == phase_kind else answer

    return tamper


def silent(question: Message, answer: Message) -> None:
    return None


def crash(question: Message, answer: Message) -> Message:
    raise ZeroDivisionError("half way")


def refuse(question: Message, answer: Message) -> Message:
    return Message(to_records(encode(Refusal("ann", "the disk is full"))), reply_to=question)


# --- methods of any shape fit


def test_one_upload_of_many_summaries() -> None:
    strategy, grid = federation("ann", "bo")
    result = strategy.start(grid)
    assert strategy.outcome.status == FINISHED
    assert strategy.outcome.k_hat == 5
    assert [record.phase for record in strategy.trace] == ["hello", "upload"]
    assert [dict(site.details) for site in strategy.outcome.sites] == [{"sent": 3}, {"sent": 2}]
    assert strategy.trace[-1].figures == {"summaries": 5}
    assert dict(result.train_metrics_clientapp[2]) == {"summaries": 5.0}


def test_every_site_is_told_something_else() -> None:
    names = ("a", "bb", "cccc", "dddddddd")
    strategy, grid = federation(*names, method=Gossip)
    strategy.start(grid)
    said = dict(zip(names, (1.0, 2.0, 4.0, 8.0), strict=True))
    told: dict[tuple[str, int], list[float] | None] = {}
    for letter in grid.sent[len(names) :]:
        asked = decode(from_records(letter.content), AskMix, sender="test")
        site = names[letter.metadata.dst_node_id - 101]
        told[site, asked.turn] = None if asked.heard is None else asked.heard.tolist()
        category = "evaluate" if asked.turn == 1 else "train"
        assert letter.metadata.message_type == category
    first = {(name, 0): None for name in names}
    assert told == first | {
        ("a", 1): [said["dddddddd"], said["bb"]],
        ("cccc", 1): [said["bb"], said["dddddddd"]],
        ("a", 2): [8.0, 2.0],
        ("bb", 2): [5.0, 5.0],
        ("cccc", 2): [2.0, 8.0],
        ("dddddddd", 2): [5.0, 5.0],
    }
    assert strategy.outcome.details == {"a": 5.0, "bb": 5.0, "cccc": 5.0, "dddddddd": 5.0}
    assert strategy.trace[2].answered == ("a", "cccc")
    assert set(status_of(strategy).values()) == {"ok"}  # not to be asked is not to be missing


def test_no_record_is_shared_between_messages() -> None:
    strategy, grid = federation("ann", "bo", "cy")
    strategy.start(grid)
    records = [record for letter in grid.sent for record in letter.content.values()]
    assert len({id(record) for record in records}) == len(records)


def test_messages_expire_with_their_exchange() -> None:
    strategy, grid = federation("ann", "bo", config=settings(round_timeout=7.5))
    strategy.start(grid)
    assert {letter.metadata.ttl for letter in grid.sent} == {7.5}
    assert [letter.metadata.group_id for letter in grid.sent] == ["1", "1", "2", "2"]


# --- quorum, deadlines, faults


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (crash, "site 'ann': the ClientApp failed: ZeroDivisionError: half way"),
        (refuse, "the disk is full"),
    ],
)
def test_a_site_that_fails_is_named_with_the_reason(fault: Any, reason: str) -> None:
    strategy, grid = federation("ann", "bo", tamper=only("toy.ask.summaries", 0, do=fault))
    strategy.start(grid)
    assert strategy.outcome.k_hat == 2
    assert strategy.trace[1].failed == {"ann": reason}
    assert strategy.trace[1].answered == ("bo",)
    assert status_of(strategy) == {"ann": f"missed upload: {reason}", "bo": "ok"}


def test_a_site_that_is_silent_is_late_when_the_time_is_up() -> None:
    strategy, grid = federation("ann", "bo", tamper=only("toy.ask.summaries", 1, do=silent))
    strategy.start(grid)
    assert strategy.outcome.k_hat == 3
    assert strategy.trace[1].late == ("bo",)
    assert strategy.trace[1].failed == {}
    assert status_of(strategy) == {"ann": "ok", "bo": "missed upload: no answer in time"}


def test_an_answer_of_the_wrong_kind_or_size_is_a_failure() -> None:
    def mixed(question: Message, answer: Message) -> Message:
        return Message(to_records(encode(Mixed(np.ones(1)))), reply_to=question)

    def wide(question: Message, answer: Message) -> Message:
        return Message(to_records(encode(Summaries(np.ones(1), np.ones((1, 3))))), reply_to=question)

    for fault, reason in (
        (mixed, "expected message toy.summaries or refusal, got 'toy.mixed'"),
        (wide, "toy.summaries.means: expected shape (c d) with c = 1, d = 2, got (1, 3)"),
    ):
        strategy, grid = federation("ann", "bo", tamper=only("toy.ask.summaries", 0, do=fault))
        strategy.start(grid)
        assert strategy.trace[1].failed == {"ann": f"site 'ann': {reason}"}


def test_fewer_answers_than_the_quorum_stop_the_run() -> None:
    faults = only("toy.ask.summaries", 0, do=crash)
    strategy, grid = federation("ann", "bo", "cy", config=settings(quorum=2), tamper=faults)
    strategy.start(grid)
    assert strategy.outcome.status == FINISHED

    def two(node: int, question: Message, answer: Message) -> Message | None:
        return only("toy.ask.summaries", 2, do=silent)(node, question, faults(node, question, answer))

    strategy, grid = federation("ann", "bo", "cy", config=settings(quorum=2), tamper=two)
    with pytest.raises(RunError) as caught:
        strategy.start(grid)
    assert str(caught.value) == (
        "phase 'upload': 1 of 3 sites answered, quorum is 2. "
        "ann: site 'ann': the ClientApp failed: ZeroDivisionError: half way; cy: no answer within 0.1 s"
    )
    assert strategy.outcome.status == f"failed: {caught.value}"
    assert strategy.trace[-1].phase == "upload"
    assert strategy.trace[-1].answered == ("bo",)
    assert list(status_of(strategy)) == ["ann", "bo", "cy"]


def test_an_exchange_that_nobody_must_answer_goes_on_without_answers() -> None:
    class Optional(OneShot):
        must_answer = False

    faults = only("toy.ask.summaries", 0, 1, do=silent)
    strategy, grid = federation("ann", "bo", method=Optional, tamper=faults)
    strategy.start(grid)
    assert (strategy.outcome.status, strategy.outcome.k_hat) == (FINISHED, 0)


def test_an_error_of_the_method_is_the_status() -> None:
    class Broken(OneShot):
        def tell(self, state: Pile, answers: Answers) -> Pile:
            raise ArithmeticError("no such sum")

    strategy, grid = federation("ann", "bo", method=Broken)
    with pytest.raises(ArithmeticError):
        strategy.start(grid)
    assert strategy.outcome.status == "failed: ArithmeticError: no such sum"
    assert list(status_of(strategy)) == ["ann", "bo"]


def test_replies_of_strangers_are_ignored() -> None:
    _, grid = federation("ann", "bo", "cy")
    asks = {"ann": AskSummaries(np.ones(2)), "bo": AskSummaries(np.ones(2))}
    letters = [Message(to_records(encode(asks["ann"])), node, "train") for node in (101, 102, 103)]
    grid.push_messages(letters)
    replies = list(grid.pull_messages([letter.metadata.message_id for letter in letters]))
    exchange = Exchange("upload", asks, {AskSummaries: Summaries})
    # Nobody sent the second letter, and cy was not asked.
    answers = sort_answers(
        exchange, replies, {letters[0].metadata.message_id: "ann", letters[2].metadata.message_id: "cy"}
    )
    assert list(answers.values) == ["ann"]
    assert answers.failed == {"bo": "site 'bo': the question could not be delivered to its node"}
    assert answers.late == ()
    assert list(answers.bytes_up) == ["ann"]


# --- who takes part


def test_all_sites_of_one_name_are_set_aside() -> None:
    strategy, grid = federation("ann", "bo", "ann")
    strategy.start(grid)
    assert status_of(strategy) == {
        "ann": "set aside: 2 nodes call themselves 'ann'; names must differ",
        "bo": "ok",
    }
    assert {letter.metadata.dst_node_id for letter in grid.sent[3:]} == {102}


def test_another_version_is_set_aside() -> None:
    strategy, grid = federation("ann", {"site": "bo", "version": "9.9"})
    strategy.start(grid)
    assert status_of(strategy)["bo"] == (f"set aside: runs fedcluster 9.9, the coordinator {__version__}")
    assert strategy.trace[0].failed == {"bo": f"runs fedcluster 9.9, the coordinator {__version__}"}


def test_most_sites_decide_on_the_columns() -> None:
    other = {"site": "cy", "columns": ("x", "z")}
    strategy, grid = federation(other, "ann", "bo")
    strategy.start(grid)
    assert status_of(strategy) == {
        "ann": "ok",
        "bo": "ok",
        "cy": "set aside: column 2 is 'z', expected 'y' (expected is what most sites have)",
    }


def test_without_a_majority_on_columns_the_run_stops() -> None:
    strategy, grid = federation("ann", {"site": "bo", "columns": ("x", "y", "z")})
    with pytest.raises(
        RunError, match=r"bo: .* has 3 columns, expected 2: 'z' is not expected as at site 'ann'"
    ):
        strategy.start(grid)
    assert (
        "ann: sites do not agree on columns, and no list is that of most sites; bo:"
        in strategy.outcome.status
    )
    assert list(status_of(strategy)) == ["ann", "bo"]
    assert len(grid.sent) == 2  # the greeting alone


@pytest.mark.parametrize(
    ("lie", "pca", "reason"),
    [
        ({"mean": np.array([np.nan, 0.0])}, 0, "NaN or infinite"),
        ({"scatter": np.array([-1.0, 0.0])}, 0, "at least 0"),
        ({"scatter": None}, 0, "without the second moments that the scaling needs"),
        ({"mean": np.zeros(3), "scatter": np.ones(3)}, 0, "moments of 3 columns and 10 rows, expected 2"),
        ({"rows": 0}, 0, "moments of 2 columns and 0 rows"),
        ({"scatter_triangle": None, "scatter": np.ones(2)}, 1, "without the second moments that the scaling"),
        ({"scatter_triangle": np.ones(4)}, 1, "expected 3 entries"),
        ({"scatter_triangle": np.array([1.0, 0.0, -1.0])}, 1, "negative diagonal"),
    ],
)
def test_moments_that_cannot_be_are_set_aside(lie: dict[str, Any], pca: int, reason: str) -> None:
    true = {"scatter": None, "scatter_triangle": np.array([9.0, 1.0, 4.0])} if pca else {}

    def app(question: Message, context: Context) -> Message:
        if kind_of(question) != "ask.hello":
            return hand_made(question, context)
        name = str(context.node_config["site"])
        hello = greeting({"site": name, **true, **(lie if name == "bo" else {})})
        return Message(to_records(encode(hello)), reply_to=question)

    strategy = OneShot(settings(pca=pca), say=lambda line: None)
    strategy.start(LocalGrid([{"site": name} for name in ("ann", "bo", "cy")], {}, client_app=app))
    assert strategy.outcome.k_hat == 5
    assert strategy.trace[0].answered == ("ann", "cy")
    assert len(strategy.trace[0].failed) == 1
    assert reason in next(iter(strategy.trace[0].failed.values()))


def test_a_site_without_moments_is_a_member_that_is_not_asked() -> None:
    few = {"site": "bo", "rows": 2, "mean": None, "scatter": None}
    strategy, grid = federation("ann", few)
    strategy.start(grid)
    assert [letter.metadata.dst_node_id for letter in grid.sent] == [101, 102, 101]
    assert strategy.outcome.sites[1].rows == 2


def test_no_site_with_enough_rows_stops_the_run() -> None:
    few = [{"site": name, "rows": 2, "mean": None, "scatter": None} for name in ("ann", "bo")]
    strategy, grid = federation(*few)
    with pytest.raises(RunError, match=r"no site has min-count=5 rows or more.*ann 2, bo 2"):
        strategy.start(grid)
    assert [record.phase for record in strategy.trace] == ["hello"]


class Slow(LocalGrid):
    """A grid that shows two nodes at first, and one more each time it is asked again."""

    seen = 1

    def get_node_ids(self) -> Iterable[int]:
        self.seen += 1
        return list(super().get_node_ids())[: self.seen]


def virtual(*names: str) -> list[dict[str, Any]]:
    return [{"site": name, "partitions": len(names)} for name in names]


def test_virtual_sites_that_register_late_are_awaited() -> None:
    config = settings(join_timeout=30.0)
    strategy, grid = federation(*virtual("a", "b", "c", "d", "e"), grid=Slow, config=config)
    strategy.start(grid)
    assert list(status_of(strategy)) == ["a", "b", "c", "d", "e"]
    assert strategy.trace[1].answered == ("a", "b", "c", "d", "e")
    hellos = [letter for letter in grid.sent if kind_of(letter) == "ask.hello"]
    assert sorted(letter.metadata.dst_node_id for letter in hellos) == [101, 102, 103, 104, 105]


@pytest.mark.parametrize("min_sites", [0, 4])
def test_sites_that_refuse_do_not_end_the_wait_for_the_others(
    min_sites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if min_sites:  # then it is known how many are to come
        monkeypatch.setattr("strategies.roster.LATECOMERS", 0.0)
    config = settings(join_timeout=30.0, min_sites=min_sites)
    faults = only("ask.hello", 0, 1, do=refuse)  # the two that register first
    strategy, grid = federation(*virtual("a", "b", "c", "d"), grid=Slow, config=config, tamper=faults)
    strategy.start(grid)
    assert strategy.trace[0].answered == ("c", "d")


def test_if_all_refuse_the_wait_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.roster.LATECOMERS", 0.0)
    config = settings(join_timeout=3600.0)
    strategy, grid = federation("ann", "bo", config=config, tamper=only("ask.hello", 0, 1, do=refuse))
    with pytest.raises(RunError, match=r"0 sites can take part.*the disk is full"):
        strategy.start(grid)


def test_real_sites_are_awaited_up_to_min_sites() -> None:
    config = settings(join_timeout=30.0, min_sites=4)
    strategy, grid = federation("a", "b", "c", "d", "e", grid=Slow, config=config)
    strategy.start(grid)
    assert list(status_of(strategy)) == ["a", "b", "c", "d"]


def test_fewer_than_min_sites_stop_the_run_when_the_time_to_join_is_up() -> None:
    said: list[str] = []
    strategy, grid = federation("a", "b", config=settings(min_sites=3), say=said.append)
    with pytest.raises(
        RunError, match=r"2 sites can take part \(min-sites=3, quorum=1\); 2 nodes registered"
    ):
        strategy.start(grid)
    assert strategy.outcome.status.startswith("failed: 2 sites can take part")


def test_one_real_site_goes_on_alone_when_the_time_to_join_is_up() -> None:
    strategy, grid = federation("ann")
    strategy.start(grid)
    assert strategy.outcome.k_hat == 3


def test_waiting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.roster.NEWS_EVERY", 0.0)
    said: list[str] = []
    config = settings(join_timeout=30.0)
    strategy, grid = federation(*virtual("a", "b", "c"), grid=Slow, config=config, say=said.append)
    strategy.start(grid)
    assert "waiting for sites: 2 registered, 2 answered, of 3" in said


def test_all_silent_is_a_plain_status() -> None:
    strategy, grid = federation("ann", "bo", tamper=only("ask.hello", 0, 1, do=silent))
    with pytest.raises(RunError):
        strategy.start(grid)
    assert strategy.outcome.status == (
        "failed: 0 sites can take part (min-sites=0, quorum=1); 2 nodes registered, 2 never answered."
    )


def test_a_node_that_never_says_who_it_is_is_in_the_result() -> None:
    strategy, grid = federation("ann", "bo", "cy", tamper=only("ask.hello", 2, do=silent))
    strategy.start(grid)
    assert status_of(strategy)["node 103"] == "set aside: never answered"
    assert strategy.trace[0].late == ("node 103",)


# --- trace, bytes, order


def test_bytes_are_those_of_the_messages() -> None:
    replies: list[tuple[int, Message]] = []

    def watch(node: int, question: Message, answer: Message) -> Message:
        replies.append((node, answer))
        return answer

    noted: list[Any] = []
    strategy, grid = federation("ann", "bo", method=Gossip, tamper=watch)
    strategy._note = noted.append
    strategy.start(grid)
    assert noted == strategy.trace
    assert [record.exchange for record in noted] == [1, 2, 3, 4]
    for number, site in enumerate(strategy.outcome.sites):
        down = [letter for letter in grid.sent if letter.metadata.dst_node_id == 101 + number]
        up = [answer for node, answer in replies if node == number]
        assert site.bytes_down == sum(from_records(letter.content).nbytes for letter in down)
        assert site.bytes_up == sum(from_records(answer.content).nbytes for answer in up)
    assert sum(record.bytes_down for record in noted) == sum(
        site.bytes_down for site in strategy.outcome.sites
    )
    assert sum(record.bytes_up for record in noted) == sum(site.bytes_up for site in strategy.outcome.sites)


def test_neither_arrival_nor_node_order_matters() -> None:
    names = ["ann", "bo", "cy", "di"]
    plain, grid = federation(*names, method=Gossip)
    plain.start(grid)
    mix = random.Random(1)

    def shuffled(replies: list[Message]) -> list[Message]:
        mix.shuffle(replies)
        return replies

    other, grid = federation(*names[::-1], method=Gossip, arrange=shuffled)
    other.start(grid)
    assert other.outcome == plain.outcome
    strip = [replace(record, seconds=0.0) for record in plain.trace]
    assert [replace(record, seconds=0.0) for record in other.trace] == strip


def test_a_refusal_names_its_site_before_the_roster_does() -> None:
    strategy, grid = federation("ann", "bo", tamper=only("ask.hello", 0, do=refuse))
    strategy.start(grid)
    assert status_of(strategy) == {"ann": "set aside: the disk is full", "bo": "ok"}
