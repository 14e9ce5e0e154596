"""One exchange with the sites: what is asked, and what came back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from fedcluster_app.errors import WireError
from fedcluster_app.messages import Refusal
from fedcluster_app.transport import from_records
from fedcluster_app.wire import decode

# Says why a site's answer cannot be used, or None.
Problem = Callable[[str, Any], str | None]


@dataclass(frozen=True)
class Exchange:
    """What a method asks in one exchange; every site may be asked something else, or nothing.

    Attributes
    ----------
    phase : str
        Word for the trace.
    asks : mapping of site name to message
        See :mod:`fedcluster_app.messages`.
    answers : mapping of type to type
        The message that answers each kind of question.
    category : str
        Flower's category: "query", "train" or "evaluate".
    sizes : mapping of site name to sizes
        Sizes of shape letters that are known of a site's answer, for example ``{"k": 3}``.
    must_answer : bool
        Whether the run stops if fewer sites than the quorum answer.
    """

    phase: str
    asks: Mapping[str, Any]
    answers: Mapping[type, type]
    category: str = "train"
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    must_answer: bool = True


@dataclass(frozen=True)
class Answers:
    """What came back, everything in order of site name.

    Attributes
    ----------
    values : mapping of site name to message
    failed : mapping of site name to reason
    late : tuple of site names
    bytes_up : mapping of site name to bytes
    """

    values: Mapping[str, Any]
    failed: Mapping[str, str]
    late: tuple[str, ...]
    bytes_up: Mapping[str, int]


def read(reply: Message, expected: type, *, sender: str, sizes: Mapping[str, int] | None = None) -> Any:
    """Return the value of a reply, raising WireError with the reason if there is none that can be used."""
    if reply.has_error():
        reason = (reply.error.reason or "no reason given").strip()
        raise WireError(f"{sender}: the ClientApp failed: {reason.splitlines()[-1]}")
    value: Any = decode(
        from_records(reply.content, sender=sender), expected, Refusal, sender=sender, sizes=sizes
    )
    if isinstance(value, Refusal):
        raise WireError(value.reason, site=value.site)
    return value


def sort_answers(
    exchange: Exchange,
    replies: Iterable[Message],
    asked: Mapping[str, str],
    problem: Problem = lambda name, value: None,
) -> Answers:
    """Read the replies of an exchange, whatever their order.

    Parameters
    ----------
    exchange
        What was asked.
    replies
        Messages in order of arrival.
    asked : mapping of message id to site name
        The questions that were delivered; a site that is asked and not here counts as failed.
    problem
        Says of a site's answer why it cannot be used, or None.
    """
    values: dict[str, Any] = {}
    gone = set(exchange.asks) - set(asked.values())
    failed = {name: f"site {name!r}: the question could not be delivered to its node" for name in gone}
    bytes_up: dict[str, int] = {}
    for reply in replies:
        name = asked.get(reply.metadata.reply_to_message_id)
        if name is None or name not in exchange.asks:
            continue
        sender = f"site {name!r}"
        try:
            if reply.has_content():
                bytes_up[name] = from_records(reply.content, sender=sender).nbytes
            expected = exchange.answers[type(exchange.asks[name])]
            value = read(reply, expected, sender=sender, sizes=exchange.sizes.get(name))
            if reason := problem(name, value):
                raise WireError(f"{sender}: {reason}")
            values[name] = value
        except WireError as error:
            failed[name] = str(error)
    late = tuple(sorted(set(exchange.asks) - set(values) - set(failed)))
    return Answers(_sorted(values), _sorted(failed), late, _sorted(bytes_up))


def _sorted(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mapping[name] for name in sorted(mapping)}
