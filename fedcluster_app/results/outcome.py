"""The outcome of a run as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedcluster_app.results.model import Model
from fedcluster_app.results.personal import PersonalModels

FINISHED = "finished"


class Savable(Protocol):
    """Something that goes into a file of the run folder."""

    def save(self, path: Path) -> None:
        """Write the file."""


@dataclass(frozen=True)
class ExchangeRecord:
    """One exchange between the coordinator and its sites: a line of ``rounds.jsonl``.

    Attributes
    ----------
    exchange : int
        Its number, from 1.
    phase : str
        What it was about.
    answered : tuple of str
        Sites whose answer was used, in order of name.
    late : tuple of str
        Sites that had not answered when the time was up.
    failed : mapping of str to str
        Sites that could not answer, or whose answer could not be used, and why.
    bytes_down, bytes_up : int
        Payload sent to and received from the sites.
    by_site : mapping of str to (int, int)
        The same for every site that was asked.
    seconds : float
        Wall-clock time.
    figures : mapping of str to float
        What the method has to say, for example ``k_hat`` and ``movement``.
    """

    exchange: int
    phase: str
    answered: tuple[str, ...]
    late: tuple[str, ...]
    failed: Mapping[str, str]
    bytes_down: int
    bytes_up: int
    by_site: Mapping[str, tuple[int, int]]
    seconds: float
    figures: Mapping[str, float]


@dataclass(frozen=True)
class SiteResult:
    """What a run says about one site: a row of the table.

    Attributes
    ----------
    name : str
    status : str
        "ok", "receives only", "set aside: ...", or the exchanges it missed.
    rows : int
    bytes_down, bytes_up : int
        Payload sent to and received from the site.
    details : mapping
        What the method has to say about it: counts, hyper-parameters, scores.
    """

    name: str
    status: str
    rows: int
    bytes_down: int = 0
    bytes_up: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """All that a run found.

    Attributes
    ----------
    status : str
        "finished", or "failed: " and why.
    k_hat : int or None
        Global number of clusters.
    bounds : (int, int) or None
        Least and largest number that was possible, max K_g and sum K_g; None where nothing bounds it.
    model : Model or PersonalModels, or None
    summaries : Savable or None
        What the sites sent and what became of it, for a later run to start from.
    sites : tuple of SiteResult
        In order of name.
    scores : mapping of str to float
        Label-free scores, and agreement with true classes where sites have them.
    details : mapping
        What the method has to say: settings it chose, the path it chose from.
    words : tuple of str
        Sentences about the count: how sure it is, what became of sites that came or went.
    warnings : tuple of str
        What a reader must know before using the result.
    """

    status: str
    k_hat: int | None = None
    bounds: tuple[int, int] | None = None
    model: Model | PersonalModels | None = None
    summaries: Savable | None = None
    sites: tuple[SiteResult, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
