"""The site's Flower client: decode -> step -> disclose -> encode, for every question alike."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flwr.app import Context
from flwr.client import NumPyClient
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedcluster_app.disclosure import Ledger
from fedcluster_app.errors import DataError, FedclusterError
from fedcluster_app.messages import Refusal
from fedcluster_app.packing import flatten, listed, unflatten, unlisted
from fedcluster_app.site import Site
from fedcluster_app.steps import STEPS
from fedcluster_app.wire import Payload, decode, encode

Scalars = dict[str, Any]


class SiteClient(NumPyClient):
    """Answers the coordinator's questions about one site's rows.

    All three calls do the same; they differ in how NumPyClient lets arrays through. Whatever is returned has
    been written to the site's ledger first, but for the refusal of settings that cannot be read: without them
    the site does not know where its ledger is.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def get_properties(self, config: Scalars) -> Scalars:
        """Say who the site is; arrays travel as ``.npy`` bytes."""
        return flatten(self._answer(lambda: unflatten(config, sender="coordinator"))[0])

    def fit(self, parameters: list[NDArray[Any]], config: Scalars) -> tuple[list[NDArray[Any]], int, Scalars]:
        """Make a step of Phase 1 or 2; the names of the arrays are in the scalar ``arrays``."""
        answer, rows = self._answer(lambda: unlisted(parameters, config, sender="coordinator"))
        arrays, scalars = listed(answer)
        return arrays, rows, scalars

    def evaluate(self, parameters: list[NDArray[Any]], config: Scalars) -> tuple[float, int, Scalars]:
        """Label the rows and sum their scores; the loss is the mean squared distance to the centre."""
        answer, rows = self._answer(lambda: unlisted(parameters, config, sender="coordinator"))
        within = answer.arrays.get("within")
        loss = float(within.sum()) / rows if within is not None and rows else 0.0
        return loss, rows, flatten(answer)

    def _answer(self, asked: Callable[[], Payload]) -> tuple[Payload, int]:
        """Return the step's answer and the rows behind it, or the site's word why there is none."""
        site = None
        try:
            site = Site(self._context)
            ask: Any = decode(asked(), *STEPS, sender="coordinator")
            # One thread, so that sums round alike under Ray, in a process of their own, and in a test.
            with threadpool_limits(1):
                value = STEPS[type(ask)](site, ask)
            rows = site.n_rows
            payload = encode(value)
            self._log(site, payload, rows)
        except Exception as error:
            payload, rows = encode(self._refusal(site, error)), 0
            if site is not None:
                with suppress(DataError):  # a refusal leaves even if the ledger is what fails
                    self._log(site, payload, rows)
        return payload, rows

    def _refusal(self, site: Site | None, error: Exception) -> Refusal:
        """Say why there is no answer; an error that is not ours may quote rows, so its text stays here."""
        name = site.name if site else str(self._context.node_config.get("site-name", ""))
        if isinstance(error, FedclusterError):
            logging.getLogger(__name__).warning("refused: %s", error)
            return Refusal(name, str(error))
        logging.getLogger(__name__).error("site %r failed", name, exc_info=error)
        kind = type(error).__name__
        return Refusal(name, f"site {name!r}: internal error ({kind}); see the site's own log")

    @staticmethod
    def _log(site: Site, payload: Payload, rows: int) -> None:
        Ledger(site.ledger_path).record(
            payload, run_id=site.run_id, site=site.name, rows=rows, min_count=site.min_count
        )
