"""The base of every strategy: roster, exchanges, quorum, deadlines, faults and trace. It knows no method.

A method is a subclass of a few dozen lines that says what to ask and what to do with the answers, over a
state of its own: ``begin`` makes the state, ``ask`` looks at it for the next exchange, ``tell`` takes the
answers in, ``conclude`` turns it into the outcome.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from threadpoolctl import threadpool_limits

from fedcluster_app.config import RunConfig
from fedcluster_app.errors import RunError
from fedcluster_app.results.outcome import ExchangeRecord, Outcome, SiteResult
from fedcluster_app.wire import encode
from strategies.agreement import Agreement, agree
from strategies.exchange import Answers, Exchange, Problem, sort_answers
from strategies.mail import Mail, letter
from strategies.roster import Roster, join

__all__ = ["Agreement", "SiteStrategy"]

S = TypeVar("S")


class SiteStrategy(Strategy, Generic[S]):
    """Run a method over named sites.

    Parameters
    ----------
    config
        Settings of the run.
    run_folder
        Told to virtual sites, which put their labels and ledgers there.
    say
        Where a line for people goes.
    note
        Where the record of every exchange goes, as soon as it is over.

    Attributes
    ----------
    outcome : Outcome
        After :meth:`start`, whatever happened.
    state : S or None
        The method's own state as it stands, None before it begins.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        run_folder: str = "",
        say: Callable[[str], None] = print,
        note: Callable[[ExchangeRecord], None] = lambda record: None,
    ) -> None:
        self.config = config
        self.run_folder = run_folder
        self.say = say
        self._note = note
        self.outcome = Outcome("failed: the run was interrupted")
        self.trace: list[ExchangeRecord] = []
        self._roster = Roster({}, {}, (), 0, 0)
        self._exchange = Exchange("none", {}, {})
        self._asked: dict[str, str] = {}
        self._sent: dict[str, int] = {}
        self._began = 0.0
        self.state: S | None = None

    @abstractmethod
    def begin(self, agreement: Agreement) -> S:
        """Return the method's state before its first exchange."""

    @abstractmethod
    def ask(self, state: S) -> Exchange | None:
        """Return the next exchange, or None when there is nothing more to ask."""

    @abstractmethod
    def tell(self, state: S, answers: Answers) -> S:
        """Return the state after an exchange."""

    @abstractmethod
    def figures(self, state: S) -> Mapping[str, float]:
        """Return what the trace should say of the state."""

    @abstractmethod
    def conclude(self, state: S) -> Outcome:
        """Return the outcome; the base fills in what it knows of the sites."""

    def problem(self, state: S, name: str, answer: Any) -> str | None:
        """Say why an answer that can be read cannot be used, or None; what cannot counts as failed."""
        return None

    def start(self, grid: Grid, *_: object, **__: object) -> Result:
        """Run the method: Flower's loop, but with an end that the method decides.

        Returns
        -------
        Result
            Flower's result with the figures of every exchange; the outcome itself is in ``outcome``.

        Raises
        ------
        RunError
            If too few sites answer; ``outcome`` then has the plain status.
        """
        result = Result()
        try:
            # One thread, so that sums round alike wherever the run takes place.
            with threadpool_limits(1):
                self.state = self.begin(self._agree(grid))
                while (exchange := self.ask(self.state)) is not None:
                    metrics = self._run_exchange(grid, exchange)
                    result.train_metrics_clientapp[len(self.trace)] = metrics
                outcome = self.conclude(self.state)
            self.outcome = replace(
                outcome,
                sites=self._site_results(outcome.sites),
                warnings=self._roster.absence(self.config) + outcome.warnings,
            )
        except Exception as error:
            known = error if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
            self.outcome = Outcome(f"failed: {known}", sites=self._site_results(()))
            raise
        return result

    def summary(self) -> None:
        """Say what runs."""
        self.say(f"fedcluster: method {self.config.method}, seed {self.config.seed}")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the messages of the exchange at hand: a fresh one for every site."""
        letters = []
        self._sent = {}
        for name, ask in sorted(self._exchange.asks.items()):
            payload = encode(ask)
            self._sent[name] = payload.nbytes
            node = self._roster.members[name].node_id
            letters.append(
                letter(payload, node, self._exchange.category, server_round, self.config.round_timeout)
            )
        return letters

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the answers of the exchange at hand in, whatever their order."""
        assert self.state is not None
        problem = partial(self.problem, self.state)
        answers = sort_answers(self._exchange, replies, self._asked, problem)
        if self._exchange.must_answer and len(answers.values) < self._least:
            self._record(answers, {})
            raise RunError(self._silence(answers))
        self.state = self.tell(self.state, answers)
        figures = self.figures(self.state)
        self._record(answers, figures)
        return None, MetricRecord({name: float(value) for name, value in figures.items()})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As :meth:`configure_train`; the exchange says which category its messages have."""
        return self.configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As :meth:`aggregate_train`."""
        return self.aggregate_train(server_round, replies)[1]

    def _agree(self, grid: Grid) -> Agreement:
        """Phase 0: greet the sites, and agree on a scaling from their moments."""
        self._began = time.monotonic()
        self._exchange = Exchange("hello", {}, {})
        self._roster = roster = join(grid, self.config, self.run_folder, self.say)
        self._sent = {name: member.bytes_down for name, member in roster.members.items()}
        up = {name: member.bytes_up for name, member in roster.members.items()}
        self._record(
            Answers(roster.members, roster.set_aside, roster.late, up), {"sites": len(roster.members)}
        )
        return agree(roster, self.config, self.say, partial(self._answers, grid))

    def _answers(self, grid: Grid, exchange: Exchange, problem: Problem) -> Answers:
        """Run an exchange that comes before the method begins."""
        answers = sort_answers(exchange, self._replies(grid, exchange), self._asked, problem)
        self._record(answers, {})
        if len(answers.values) < self._least:
            raise RunError(self._silence(answers))
        return answers

    def _run_exchange(self, grid: Grid, exchange: Exchange) -> MetricRecord:
        number, replies = len(self.trace) + 1, self._replies(grid, exchange)
        if exchange.category == "evaluate":
            metrics = self.aggregate_evaluate(number, replies)
        else:
            metrics = self.aggregate_train(number, replies)[1]
        return metrics or MetricRecord()

    def _replies(self, grid: Grid, exchange: Exchange) -> list[Message]:
        """Send the questions of an exchange, and return what comes back in time."""
        self._exchange, self._began = exchange, time.monotonic()
        number = len(self.trace) + 1
        evaluate = exchange.category == "evaluate"
        configure = self.configure_evaluate if evaluate else self.configure_train
        letters = configure(number, ArrayRecord(), ConfigRecord(), grid)
        mail = Mail(grid)
        mail.send(list(letters))
        names = self._roster.names
        self._asked = {message: names[node] for message, node in mail.nodes.items()}
        mail.collect(self._began + self.config.round_timeout)
        return list(mail.replies)

    def _record(self, answers: Answers, figures: Mapping[str, float]) -> None:
        record = ExchangeRecord(
            exchange=len(self.trace) + 1,
            phase=self._exchange.phase,
            answered=tuple(answers.values),
            late=answers.late,
            failed=answers.failed,
            bytes_down=sum(self._sent.values()),
            bytes_up=sum(answers.bytes_up.values()),
            by_site={name: (down, answers.bytes_up.get(name, 0)) for name, down in self._sent.items()},
            seconds=time.monotonic() - self._began,
            figures=dict(figures),
        )
        self.trace.append(record)
        self._note(record)

    @property
    def _least(self) -> int:
        """The quorum, of the sites that the exchange asks."""
        return min(self.config.quorum, len(self._exchange.asks))

    def _silence(self, answers: Answers) -> str:
        told = [f"{name}: {reason}" for name, reason in answers.failed.items()]
        told += [f"{name}: no answer within {self.config.round_timeout:g} s" for name in answers.late]
        return (
            f"phase {self._exchange.phase!r}: {len(answers.values)} of {len(self._exchange.asks)} sites "
            f"answered, quorum is {self._least}. {'; '.join(told)}"
        )

    def _site_results(self, told: Iterable[SiteResult]) -> tuple[SiteResult, ...]:
        """Join what the method says of the sites with what the base knows of them."""
        by_name = {site.name: site for site in told}
        results = []
        for name, member in self._roster.members.items():
            site = by_name.get(name, SiteResult(name, "ok", member.hello.rows))
            missed = [record for record in self.trace if name in record.late or name in record.failed]
            status = site.status
            if missed:
                reason = missed[0].failed.get(name, "no answer in time")
                what = (
                    missed[0].phase
                    if len(missed) == 1
                    else f"{len(missed)} exchanges from {missed[0].phase} on"
                )
                status = f"missed {what}: {reason}"
            sizes = [record.by_site.get(name, (0, 0)) for record in self.trace]
            down, up = (sum(part) for part in zip(*sizes, strict=True)) if sizes else (0, 0)
            results.append(replace(site, status=status, bytes_up=up, bytes_down=down))
        results += [
            SiteResult(name, f"set aside: {reason}", 0) for name, reason in self._roster.set_aside.items()
        ]
        results += [SiteResult(name, "set aside: never answered", 0) for name in self._roster.late]
        return tuple(sorted(results, key=lambda site: site.name))
