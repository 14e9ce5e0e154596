"""The one exception tree: every error says where, what was expected, what came, and what to do."""

from __future__ import annotations


class FedclusterError(Exception):
    """Base of every error that fedcluster raises on purpose."""


class ConfigError(FedclusterError, ValueError):
    """A run or node setting is unknown, of the wrong type, or out of range."""


class DataError(FedclusterError, ValueError):
    """A site's table cannot be used as it is."""


class WireError(FedclusterError, ValueError):
    """A message does not have the layout that its kind promises, or says that there is no answer."""

    def __init__(self, text: str, *, site: str = "") -> None:
        super().__init__(text)
        self.site = site


class RunError(FedclusterError, RuntimeError):
    """The run as a whole cannot go on; the message is the status shown to the user."""
