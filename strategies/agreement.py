"""What all sites agree on before a method begins: columns, and a scaling from their moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcluster_app.config import RunConfig
from fedcluster_app.data.scaling import Scaling, ScalingReport, agree_scaling
from fedcluster_app.errors import RunError
from fedcluster_app.messages import AskBounds, Bounds
from fedcluster_app.mixtures.statistics import Statistics, merge_all
from fedcluster_app.mixtures.types import FloatArray
from strategies.exchange import Answers, Exchange, Problem
from strategies.plausible import problem_of_extremes
from strategies.roster import Roster

Ask = Callable[[Exchange, Problem], Answers]


@dataclass(frozen=True)
class Agreement:
    """What all sites agree on before a method begins."""

    roster: Roster
    columns: tuple[str, ...]
    scaling: Scaling
    report: ScalingReport

    @property
    def moments(self) -> Statistics:
        """The moments of all contributors' rows together, merged in order of name."""
        return merge_all(list(self.roster.moments.values()))


def agree(
    roster: Roster,
    config: RunConfig,
    say: Callable[[str], None],
    ask: Ask,
) -> Agreement:
    """Agree on a scaling from the moments in the sites' greetings, merged in order of name.

    Parameters
    ----------
    roster, config, say
    ask
        Runs an exchange with the sites, if their extremes are wanted.

    Raises
    ------
    RunError
        If too few sites can take part, or what they would have to send may not leave them.
    ConfigError
        If the declared bounds are not of their columns.
    """
    if shortage := roster.shortage(config):
        raise RunError(shortage)
    if not roster.moments:
        raise RunError(
            f"no site has min-count={config.min_count} rows or more, so none may send anything; "
            f"rows: {', '.join(f'{name} {m.hello.rows}' for name, m in roster.members.items())}"
        )
    moments = merge_all(list(roster.moments.values()))
    columns = next(iter(roster.members.values())).hello.columns
    bounds = None
    if config.bounds == "data":
        bounds = _extremes(roster, len(columns), ask)
    elif config.bounds:
        bounds = np.array(config.bounds_of(len(columns)))
    scaling, report = agree_scaling(
        moments, columns, method=config.scaling, pca=config.axes, share=config.axes_share, bounds=bounds
    )
    axes = f"{len(columns)} columns"
    if scaling.components is not None:
        axes += f" -> {scaling.n_features_out} principal axes with {report.explained:.0%} of the variance"
        if not 0 < config.pca < len(columns):
            axes += " (micro-axes=1 keeps all)"
    say(f"agreed on a scaling: {config.scaling}, {axes}")
    return Agreement(roster, columns, scaling, report)


def _extremes(roster: Roster, d: int, ask: Ask) -> FloatArray:
    """Return the least and largest value (d, 2) of every column over the sites that all allow it."""
    roster.refuse_unsafe("bounds='data' sends the extremes of every column, which are values of rows")
    asks = dict.fromkeys(roster.moments, AskBounds(d))
    sizes = {name: {"d": d} for name in asks}
    exchange = Exchange("bounds", asks, {AskBounds: Bounds}, sizes=sizes)

    def problem(name: str, answer: Bounds) -> str | None:
        return problem_of_extremes(roster.moments[name], answer.low, answer.high)

    told: list[Bounds] = list(ask(exchange, problem).values.values())
    low = np.min([part.low for part in told], axis=0)
    high = np.max([part.high for part in told], axis=0)
    return np.stack([low, np.where(high > low, high, low + 1.0)], axis=1)
