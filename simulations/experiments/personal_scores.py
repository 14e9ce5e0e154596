"""Scores of personal mixtures, and their tables: published beside reproduced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.tables import aligned
from simulations.experiments.personal_data import PUBLISHED, READINGS

FIGURES = {
    "ll": ("LL", 3),
    "error": ("mu_err", 3),
    "nmi": ("NMI", 3),
    "train_ll": ("train LL", 3),
    "effective": ("K_eff", 2),
}


@dataclass(frozen=True)
class Score:
    """What one run gives, as a mean over sites.

    Attributes
    ----------
    scenario, reading, method, seed
        The trial; settings follow the name of the method.
    ll, train_ll : float
        Mean log-density of a site's test and training rows under its own mixture.
    error : float or None
        Of its matched means, where the truth is known.
    nmi : float
        Of the labels of its test rows.
    effective : float
        Components that its weights amount to.
    seconds : float
        Processor time of start and rounds.
    """

    scenario: str
    reading: str
    method: str
    seed: int
    ll: float
    train_ll: float
    error: float | None
    nmi: float
    effective: float
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The trial."""
        return self.scenario, self.reading, self.method, self.seed


def median_interval(values: FloatArray, draws: int = 4000) -> tuple[float, float]:
    """Return the ends of a 95 % interval of the median of values (seeds,), by bootstrap of seeds."""
    drawn = np.random.default_rng(0).integers(len(values), size=(draws, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return float(low), float(high)


def tables(scores: Iterable[Score]) -> str:
    """Return a table for every figure: published, and reproduced in every reading."""
    groups: dict[tuple[str, str], dict[str, list[Score]]] = {}
    for one in scores:
        groups.setdefault((one.scenario, one.method), {}).setdefault(one.reading, []).append(one)
    readings = [name for name in READINGS if any(name in group for group in groups.values())]
    parts = []
    for figure, (title, digits) in FIGURES.items():
        lines = [[title, "published", *readings, "seeds"]]
        for (scenario, method), group in groups.items():
            cells = [_cell(group.get(reading, ()), figure, digits) for reading in readings]
            known = PUBLISHED.get((scenario, method), {}).get(figure, "-")
            if set(cells) != {"-"}:
                seeds = "/".join(str(len(group.get(reading, ()))) for reading in readings)
                lines.append([f"{scenario}: {method}", known, *cells, seeds])
        parts.append(aligned(lines))
    return "\n\n".join(parts)


def _cell(scores: Sequence[Score], figure: str, digits: int) -> str:
    values = [getattr(one, figure) for one in scores]
    if not values or None in values:
        return "-"
    low, high = median_interval(np.array(values))
    return f"{np.median(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
