"""A federation in one process: the same client app and strategies, without Ray and without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedcluster_app.client_app import app
from fedcluster_app.config import RunConfig, as_run_config
from fedcluster_app.results.outcome import ExchangeRecord, Outcome
from fedcluster_app.server_app import strategy_of
from strategies.base import SiteStrategy

SERVER = 1
RUN = 1
ClientApp = Callable[[Message, Context], Message]
Tamper = Callable[[int, Message, Message], Message | None]


def _quiet(*_: object) -> None:
    """Say nothing."""


@dataclass
class LocalGrid(Grid):
    """A grid whose nodes are contexts in this process; a message is answered when it is pushed.

    Attributes
    ----------
    node_configs : sequence of mappings
        One node config for every node; node ids count from 101.
    run_config : mapping
        Flower's run config.
    client_app : callable
        What answers a message.
    tamper : callable
        Sees (node number, question, answer) and returns the answer to deliver, or None for silence. It may
        raise: then the node answers with Flower's error, as if the ClientApp had crashed.
    arrange : callable
        Reorders the replies that arrive together.
    """

    node_configs: Sequence[Mapping[str, Any]]
    run_config: Mapping[str, Any]
    client_app: ClientApp = app
    tamper: Tamper = lambda node, question, answer: answer
    arrange: Callable[[list[Message]], list[Message]] = lambda replies: replies
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Flower's Message takes its sender from here; a ServerApp process sets it once.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, SERVER
        self._contexts = {
            101 + number: Context(RUN, 101 + number, dict(config), RecordDict(), dict(self.run_config))
            for number, config in enumerate(self.node_configs)
        }
        self._inbox: list[Message] = []

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """Flower's record of the run, of which there is none."""
        return None

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Hand every message to its node, which answers at once."""
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message-{len(self.sent)}"
            self.sent.append(message)
            ids.append(message.metadata.message_id)
            reply = self._answer(message)
            if reply is not None:
                self._inbox.append(reply)
        return ids

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        try:
            answer = self.client_app(message, self._contexts[node])
            return self.tamper(node - 101, message, answer)
        except Exception as error:  # whatever a ClientApp may raise, Flower turns into an error reply
            return Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages that have arrived."""
        wanted = set(message_ids)
        here = [reply for reply in self._inbox if reply.metadata.reply_to_message_id in wanted]
        self._inbox = [reply for reply in self._inbox if reply not in here]
        return self.arrange(here)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))


def virtual_nodes(sites: int) -> list[dict[str, int]]:
    """Return the node configs that Flower's simulation gives to ``sites`` virtual sites."""
    return [{"partition-id": number, "num-partitions": sites} for number in range(sites)]


@dataclass(frozen=True)
class LocalRun:
    """What a run in this process gives."""

    outcome: Outcome
    trace: Sequence[ExchangeRecord]
    strategy: SiteStrategy[Any]
    grid: LocalGrid


def run_locally(
    config: RunConfig,
    nodes: int | Sequence[Mapping[str, Any]],
    *,
    run_folder: str = "",
    say: Callable[[str], None] = _quiet,
    **grid: Any,
) -> LocalRun:
    """Run the configured method over nodes of this process.

    Parameters
    ----------
    config
        Settings of the run.
    nodes
        Number of virtual sites, or a node config for every site.
    run_folder
        Where virtual sites put labels and ledgers; by default nothing is kept.
    say
        Where lines for people go.
    **grid
        ``tamper``, ``arrange`` or ``client_app`` of :class:`LocalGrid`.

    Raises
    ------
    FedclusterError
        As a run under Flower would.
    """
    configs = virtual_nodes(nodes) if isinstance(nodes, int) else nodes
    local = LocalGrid(configs, as_run_config(config), **grid)
    with TemporaryDirectory() as scratch:
        strategy = strategy_of(config)(config, run_folder=run_folder or scratch, say=say)
        strategy.start(local)
    return LocalRun(strategy.outcome, strategy.trace, strategy, local)
