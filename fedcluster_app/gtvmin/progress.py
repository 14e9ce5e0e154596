"""How the rounds of a network go, from the scalars that nodes report: totals, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, TypeAlias

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.node import Report
from fedcluster_app.gtvmin.objective import Totals, total

Status: TypeAlias = Literal["running", "converged", "settled", "max_rounds"]


@dataclass(frozen=True)
class Stop:
    """When the rounds end.

    Attributes
    ----------
    max_rounds : int, >= 0
    tolerance : float, >= 0
        Converged when no node's gradient mapping exceeds it in `patience` rounds.
    settled : float, >= 0
        Settled when over `patience` rounds neither the loss nor alpha times the coupling (the disagreement)
        moved by more than this share of the potential. For KL this is the rule that can fire: its drawn rows
        keep the mapping from vanishing. 0 switches it off.
    patience : int, >= 1

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    max_rounds: int = 40
    tolerance: float = 1e-2
    settled: float = 0.0
    patience: int = 3

    def __post_init__(self) -> None:
        for name, least in (("max_rounds", 0), ("tolerance", 0), ("settled", 0), ("patience", 1)):
            value, whole = getattr(self, name), name in ("max_rounds", "patience")
            text = f"{name.replace('_', ' ')}: expected"
            if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
                raise ConfigError(f"{text} a {'whole ' if whole else ''}number, got {value!r}")
            if not float(value) >= least:
                raise ConfigError(f"{text} at least {least}, got {value!r}")


@dataclass(frozen=True)
class Progress:
    """What is known of a run without any model.

    Attributes
    ----------
    trace : tuple of Totals
        One per round, about the parameters before it.
    largest : tuple of float
        Largest gradient mapping of any node in each round.
    """

    trace: tuple[Totals, ...] = ()
    largest: tuple[float, ...] = ()

    @property
    def round(self) -> int:
        """Number of rounds taken."""
        return len(self.trace)


def advance(progress: Progress, reports: Mapping[str, Report], alpha: float) -> Progress:
    """Progress after a round in which at least one node reported."""
    largest = max(report.mapping for report in reports.values())
    return Progress((*progress.trace, total(reports, alpha)), (*progress.largest, largest))


def status(progress: Progress, stop: Stop) -> Status:
    """Tell which stopping rule has fired, or ``running``."""
    recent = progress.largest[-stop.patience :]
    if len(recent) == stop.patience and max(recent) <= stop.tolerance:
        return "converged"
    if stop.settled > 0 and progress.round > stop.patience:
        window = progress.trace[-stop.patience - 1 :]
        allowed = stop.settled * max(1.0, abs(window[-1].potential))
        if _range([t.loss for t in window]) <= allowed >= _range([t.alpha * t.coupling for t in window]):
            return "settled"
    return "max_rounds" if progress.round >= stop.max_rounds else "running"


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)
