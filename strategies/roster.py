"""Who takes part: sites join, are named, and are checked against each other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedcluster_app import __version__
from fedcluster_app.config import RunConfig
from fedcluster_app.data.scaling import symmetric_matrix
from fedcluster_app.data.schema import first_mismatch
from fedcluster_app.errors import RunError, WireError
from fedcluster_app.messages import AskHello, Hello
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.transport import from_records
from fedcluster_app.wire import encode
from strategies.exchange import collect, letter, read

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
    """

    members: Mapping[str, Member]
    set_aside: Mapping[str, str]
    late: tuple[str, ...]
    answered: int

    @property
    def names(self) -> dict[int, str]:
        """Site name of every node id."""
        return {member.node_id: name for name, member in self.members.items()}

    def shortage(self, config: RunConfig) -> str | None:
        """Say why the run cannot begin: too few sites answered, or too few of them can take part."""
        if self.answered >= config.min_sites and len(self.members) >= config.quorum:
            return None
        told = "; ".join(f"{name}: {reason}" for name, reason in self.set_aside.items())
        return (
            f"{len(self.members)} sites can take part (min-sites={config.min_sites}, "
            f"quorum={config.quorum}); {self.answered + len(self.late)} nodes registered, {len(self.late)} "
            f"never answered. {told or 'Start the sites first.'}"
        )

    @property
    def moments(self) -> dict[str, Statistics]:
        """Moments of the contributors: the sites that have enough rows to send anything."""
        return {name: m.moments for name, m in self.members.items() if m.moments is not None}


def join(grid: Grid, config: RunConfig, run_folder: str, say: Callable[[str], None]) -> Roster:
    """Greet every node that registers, until all that are awaited have answered or the time is up.

    In a simulation every node knows how many there are; real sites are awaited up to ``min-sites``. Nodes
    register late, so a run that asks once would miss most of them.

    Raises
    ------
    RunError
        If the sites' columns differ and no list is that of most of them.
    """
    question = encode(AskHello(run_folder))
    started = news = time.monotonic()
    asked: set[int] = set()
    waiting: set[str] = set()
    replies: list[Message] = []
    answer_by = started
    while True:
        fresh = sorted(set(grid.get_node_ids()) - asked)
        if fresh:
            letters = [letter(question, node, "query", 1, config.round_timeout) for node in fresh]
            waiting.update(grid.push_messages(letters))
            asked.update(fresh)
            answer_by = time.monotonic() + config.round_timeout
        collect(grid, waiting, min(answer_by, time.monotonic() + LOOK_AGAIN), replies)
        greeted = _hellos(replies)[0]
        # Sites that refuse do not say how many there are, so others may follow; but not for long.
        unknown = replies and not greeted and not config.min_sites
        patience = min(config.join_timeout, LATECOMERS) if unknown else config.join_timeout
        awaited = config.min_sites or _awaited(greeted, default=len(replies) + 1)
        now = time.monotonic()
        joining = len(replies) < awaited and now < started + patience
        if not joining and (not waiting or now >= answer_by):
            break
        if now >= news + NEWS_EVERY:
            news = now
            say(f"waiting for sites: {len(asked)} registered, {len(replies)} answered, {awaited} awaited")
        if not waiting:
            time.sleep(LOOK_AGAIN)
    return _checked(replies, asked, config, question.nbytes)


def _hellos(replies: list[Message]) -> tuple[list[tuple[Message, Hello]], dict[str, str]]:
    """Return the greetings in order of site name, and the reasons of those that cannot take part."""
    hellos: list[tuple[Message, Hello]] = []
    refused: dict[str, str] = {}
    for reply in replies:
        try:
            hellos.append((reply, read(reply, Hello, sender=f"node {reply.metadata.src_node_id}")))
        except WireError as error:
            refused[error.site or f"node {reply.metadata.src_node_id}"] = str(error)
    return sorted(hellos, key=lambda pair: (pair[1].site, pair[0].metadata.src_node_id)), refused


def _awaited(greeted: list[tuple[Message, Hello]], default: int) -> int:
    """Return how many sites there should be, as far as those that greeted know."""
    return max((hello.partitions or REAL_SITES for _, hello in greeted), default=default)


def _checked(replies: list[Message], asked: set[int], config: RunConfig, bytes_down: int) -> Roster:
    hellos, refused = _hellos(replies)
    named = Counter([hello.site for _, hello in hellos] + list(refused))
    columns = _common_columns([hello for _, hello in hellos if named[hello.site] == 1])
    members: dict[str, Member] = {}
    for reply, hello in hellos:
        problem = first_mismatch(columns, hello.columns)
        if named[hello.site] > 1:
            refused[hello.site] = (
                f"{named[hello.site]} nodes call themselves {hello.site!r}; names must differ"
            )
        elif hello.version != __version__:
            refused[hello.site] = f"runs fedcluster {hello.version}, the coordinator {__version__}"
        elif problem:
            refused[hello.site] = f"{problem}, as at most sites"
        else:
            size = from_records(reply.content).nbytes
            try:
                moments = _moments(hello, config.pca)
            except ValueError as error:
                refused[hello.site] = str(error)
                continue
            members[hello.site] = Member(reply.metadata.src_node_id, hello, moments, bytes_down, size)
    answered = {reply.metadata.src_node_id for reply in replies}
    late = tuple(f"node {node}" for node in sorted(asked - answered))
    return Roster(members, dict(sorted(refused.items())), late, len(answered))


def _common_columns(hellos: list[Hello]) -> tuple[str, ...]:
    """Return the columns of more than half of the sites; one site cannot outvote another."""
    if not hellos:
        return ()
    votes = Counter(hello.columns for hello in hellos)
    columns, most = votes.most_common(1)[0]
    if len(votes) > 1 and 2 * most <= len(hellos):
        first = hellos[0]
        other = next(hello for hello in hellos if hello.columns != first.columns)
        raise RunError(
            f"sites do not agree on columns, and no list is that of most sites: site {other.site!r} "
            f"{first_mismatch(first.columns, other.columns)} as at site {first.site!r}"
        )
    return columns


def _moments(hello: Hello, pca: int) -> Statistics | None:
    """Return the moments in a greeting as statistics of one component; ValueError if they do not fit."""
    d = len(hello.columns)
    if hello.mean is None:
        return None
    full = 0 < pca < d
    sent = hello.scatter_triangle if full else hello.scatter
    if sent is None:
        raise ValueError(f"sent means without the second moments that pca={pca} needs")
    scatter = symmetric_matrix(sent, d) if full else sent
    if len(hello.mean) != d or len(scatter) != d or hello.rows < 1:
        raise ValueError(
            f"sent moments of {len(hello.mean)} columns and {hello.rows} rows, expected {d} columns"
        )
    if full and np.diagonal(scatter).min() < 0:
        raise ValueError("sent second moments with a negative diagonal")
    return Statistics(np.array([float(hello.rows)]), hello.mean[None], scatter[None])
