"""The ClientApp: it unpacks a message, calls the site's NumPyClient, and packs the answer."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcluster_app.client import SiteClient
from fedcluster_app.packing import flatten, listed, unflatten, unlisted
from fedcluster_app.transport import from_records, to_records
from fedcluster_app.wire import Payload

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Ask the site who it is."""
    properties = SiteClient(context).get_properties(flatten(from_records(message.content)))
    return _reply(unflatten(properties), message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Ask the site for a step of Phase 1 or 2."""
    arrays, _, scalars = SiteClient(context).fit(*listed(from_records(message.content)))
    return _reply(unlisted(arrays, scalars), message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Ask the site to label its rows and to score them."""
    _, _, metrics = SiteClient(context).evaluate(*listed(from_records(message.content)))
    return _reply(unflatten(metrics), message)


def _reply(payload: Payload, message: Message) -> Message:
    return Message(to_records(payload), reply_to=message)
