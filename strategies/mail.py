"""Letters to nodes and their replies."""

from __future__ import annotations

import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedcluster_app.transport import to_records
from fedcluster_app.wire import Payload

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5


def letter(payload: Payload, node_id: int, category: str, number: int, ttl: float) -> Message:
    """Make the message that carries a payload to a node; it expires with the exchange."""
    return Message(to_records(payload), node_id, category, group_id=str(number), ttl=ttl)


class Mail:
    """What was sent over a grid and what came back.

    A reply is known by the question it answers and not by its sender: where a node is gone, Flower answers
    in its place.

    Attributes
    ----------
    nodes : dict of message id to node id
        Every question that was delivered.
    replies : list of Message
        In order of arrival.
    waiting : set of message ids
        Questions without a reply so far.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.nodes: dict[str, int] = {}
        self.replies: list[Message] = []
        self.waiting: set[str] = set()

    def send(self, letters: Sequence[Message]) -> None:
        """Push letters; what the SuperLink does not take gets no message id and is not in ``nodes``."""
        ids = list(self._grid.push_messages(letters))
        if len(ids) != len(letters):
            return  # too large for the SuperLink, which then takes none of them
        taken = {key: sent.metadata.dst_node_id for key, sent in zip(ids, letters, strict=True) if key}
        self.nodes |= taken
        self.waiting |= set(taken)

    def collect(self, deadline: float) -> None:
        """Pull replies until none is waited for or the (monotonic) deadline has passed."""
        pause = FIRST_PAUSE
        while self.waiting:
            came = list(self._grid.pull_messages(self.waiting))
            self.replies.extend(came)
            self.waiting -= {reply.metadata.reply_to_message_id for reply in came}
            if not self.waiting or time.monotonic() >= deadline:
                return
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)

    def node_of(self, reply: Message) -> int:
        """Return the node that was asked."""
        return self.nodes[reply.metadata.reply_to_message_id]
