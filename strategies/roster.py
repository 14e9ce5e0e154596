"""Who takes part: sites join, are named, and are checked against each other."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid

from fedcluster_app import __version__
from fedcluster_app.config import RunConfig
from fedcluster_app.data.scaling import symmetric_matrix, takes_axes
from fedcluster_app.data.schema import first_mismatch
from fedcluster_app.errors import RunError, WireError
from fedcluster_app.messages import AskHello, Hello
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.transport import from_records
from fedcluster_app.wire import encode
from strategies.exchange import read
from strategies.mail import Mail, letter

REAL_SITES = 2
NEWS_EVERY, LOOK_AGAIN, LATECOMERS = 5.0, 0.2, 5.0


@dataclass(frozen=True)
class Member:
    """A site that takes part."""

    node_id: int
    hello: Hello
    moments: Statistics | None
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True)
class Roster:
    """The sites of a run in order of name.

    Attributes
    ----------
    members : mapping of site name to Member
    set_aside : mapping of site (or node) name to reason
        Those that answered but cannot take part.
    late : tuple of str
        Nodes that never said who they are.
    answered : int
        Number of nodes that answered, whatever they said.
    awaited : int
        Number of nodes that should have; 0 if nobody said.
    """

    members: Mapping[str, Member]
    set_aside: Mapping[str, str]
    late: tuple[str, ...]
    answered: int
    awaited: int

    @property
    def names(self) -> dict[int, str]:
        """Site name of every node id."""
        return {member.node_id: name for name, member in self.members.items()}

    def shortage(self, config: RunConfig) -> str | None:
        """Say why the run cannot begin: too few sites answered, or too few of them can take part."""
        if self.answered >= config.min_sites and len(self.members) >= config.quorum:
            return None
        told = "; ".join(f"{name}: {reason}" for name, reason in self.set_aside.items())
        registered = self.answered + len(self.late)
        return (
            f"{len(self.members)} sites can take part (min-sites={config.min_sites}, "
            f"quorum={config.quorum}); {registered} nodes registered, {len(self.late)} never answered. "
            f"{told or ('' if registered else 'Start the sites first.')}".rstrip()
        )

    def absence(self, config: RunConfig) -> tuple[str, ...]:
        """Say, as warnings, which of the awaited nodes are missing and which sites were set aside."""
        told: tuple[str, ...] = ()
        if self.set_aside:
            names = ", ".join(self.set_aside)
            told = (f"{len(self.set_aside)} of {self.answered} sites were set aside: {names}",)
        if self.answered >= self.awaited:
            return told
        return (
            *told,
            f"only {self.answered} of {self.awaited} sites answered (join-timeout={config.join_timeout:g}); "
            "the result is that of a part",
        )

    def refuse_unsafe(self, what: str) -> None:
        """Raise RunError, before any row has left, if not all contributors let single rows leave.

        Parameters
        ----------
        what
            What would send them.
        """
        closed = [name for name in self.moments if not self.members[name].hello.allow_unsafe]
        if closed:
            raise RunError(
                f"{what}, so every site must allow it: a real one in its node config (allow-unsafe=true), "
                f"virtual ones in the run config; missing at {', '.join(closed)}"
            )

    @property
    def moments(self) -> dict[str, Statistics]:
        """Moments of the contributors: the sites that have enough rows to send anything."""
        return {name: m.moments for name, m in self.members.items() if m.moments is not None}


def join(grid: Grid, config: RunConfig, run_folder: str, say: Callable[[str], None]) -> Roster:
    """Greet every node that registers, until all that are awaited have answered or the time is up.

    In a simulation every node knows how many there are; real sites are awaited up to ``min-sites``. Nodes
    register late, so a run that asks once would miss most of them.
    """
    question = encode(AskHello(run_folder))
    started = news = time.monotonic()
    asked: set[int] = set()
    mail = Mail(grid)
    answer_by = started
    while True:
        fresh = sorted(set(grid.get_node_ids()) - asked)
        if fresh:
            mail.send([letter(question, node, "query", 1, config.round_timeout) for node in fresh])
            asked.update(fresh)
            answer_by = time.monotonic() + config.round_timeout
        mail.collect(min(answer_by, time.monotonic() + LOOK_AGAIN))
        awaited = config.min_sites or _awaited(mail)
        # Sites that refuse do not say how many there are, so others may follow; but not for long.
        patience = LATECOMERS if mail.replies and awaited is None else config.join_timeout
        now = time.monotonic()
        joining = len(mail.replies) < (awaited or math.inf) and now < started + min(
            patience, config.join_timeout
        )
        if not joining and (not mail.waiting or now >= answer_by):
            break
        if now >= news + NEWS_EVERY:
            news = now
            total = "an unknown number" if awaited is None else str(awaited)
            say(f"waiting for sites: {len(asked)} registered, {len(mail.replies)} answered, of {total}")
        if not mail.waiting:
            time.sleep(LOOK_AGAIN)
    return _roster(mail, asked, awaited or 0, config, question.nbytes)


def _hellos(mail: Mail) -> tuple[list[tuple[int, Hello, int]], dict[str, str]]:
    """Return (node, greeting, bytes) by site name, and the reasons of nodes that cannot take part."""
    hellos: list[tuple[int, Hello, int]] = []
    refused: dict[str, str] = {}
    for reply in sorted(mail.replies, key=mail.node_of):
        node = mail.node_of(reply)
        try:
            hello: Hello = read(reply, Hello, sender=f"node {node}")
            hellos.append((node, hello, from_records(reply.content).nbytes))
        except WireError as error:
            refused[error.site or f"node {node}"] = str(error)
    return sorted(hellos, key=lambda greeting: (greeting[1].site, greeting[0])), refused


def _awaited(mail: Mail) -> int | None:
    """Return how many sites there should be, as far as those that greeted know."""
    return max((hello.partitions or REAL_SITES for _, hello, _ in _hellos(mail)[0]), default=None)


def _roster(mail: Mail, asked: set[int], awaited: int, config: RunConfig, bytes_down: int) -> Roster:
    hellos, refused = _hellos(mail)
    named = Counter([hello.site for _, hello, _ in hellos] + list(refused))
    columns = _common_columns([hello for _, hello, _ in hellos if named[hello.site] == 1])
    members: dict[str, Member] = {}
    for node, hello, size in hellos:
        try:
            if named[hello.site] > 1:
                raise ValueError(
                    f"{named[hello.site]} nodes call themselves {hello.site!r}; names must differ"
                )
            if hello.version != __version__:
                raise ValueError(f"runs fedcluster {hello.version}, the coordinator {__version__}")
            if problem := _column_problem(hello, hellos[0][1], columns):
                raise ValueError(problem)
            members[hello.site] = Member(node, hello, _moments(hello, config), bytes_down, size)
        except ValueError as error:
            refused[hello.site] = str(error)
    answered = {mail.node_of(reply) for reply in mail.replies}
    late = tuple(f"node {node}" for node in sorted(asked - answered))
    return Roster(members, dict(sorted(refused.items())), late, len(answered), awaited)


def _column_problem(hello: Hello, first: Hello, columns: tuple[str, ...] | None) -> str | None:
    """Say where a site's columns depart from those of most sites, or from the first site's if none are."""
    mismatch = first_mismatch(columns or first.columns, hello.columns)
    if columns is not None:
        return mismatch and f"{mismatch} (expected is what most sites have)"
    against = f": {mismatch} as at site {first.site!r}" if mismatch else ""
    return f"sites do not agree on columns, and no list is that of most sites{against}"


def _common_columns(hellos: list[Hello]) -> tuple[str, ...] | None:
    """Return the columns of more than half of the sites, or None: one site cannot outvote another."""
    votes = Counter(hello.columns for hello in hellos)
    columns, most = max(votes.items(), key=lambda vote: vote[1], default=((), 0))
    return columns if 2 * most > len(hellos) else None


def _moments(hello: Hello, config: RunConfig) -> Statistics | None:
    """Return the moments in a greeting as statistics of one component; ValueError if they do not fit."""
    d = len(hello.columns)
    if hello.mean is None:
        return None
    full = takes_axes(d, pca=config.axes, share=config.axes_share)
    sent = hello.scatter_triangle if full else hello.scatter
    if sent is None:
        raise ValueError("sent means without the second moments that the scaling needs")
    scatter = symmetric_matrix(sent, d) if full else sent
    if len(hello.mean) != d or len(scatter) != d or hello.rows < 1:
        raise ValueError(
            f"sent moments of {len(hello.mean)} columns and {hello.rows} rows, expected {d} columns"
        )
    if full and np.diagonal(scatter).min() < 0:
        raise ValueError("sent second moments with a negative diagonal")
    return Statistics(np.array([float(hello.rows)]), hello.mean[None], scatter[None])
