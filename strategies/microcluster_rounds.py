"""Where a run of the one-shot reconciliation stands, and its rounds of federated EM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.microcluster import Assembly, ClusterSets, MicroState, Sums
from fedcluster_app.data.scaling import lower_triangle, symmetric_matrix
from fedcluster_app.errors import RunError
from fedcluster_app.messages import AskMicroRound, Labelled, MicroSums
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.summaries import Summaries
from strategies.base import Agreement
from strategies.exchange import Exchange
from strategies.plausible import Totals, greeted, pooled


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds of federated EM.

    Attributes
    ----------
    sets : ClusterSets
        As they stand.
    weights : mapping of site name to (m,) array
        What each site's weights start with; of a site that its micro-clusters stand in for, as they are.
    left : int
        Rounds to go.
    log_likelihood : tuple of float
        Of the first set, at the start of every round.
    """

    sets: ClusterSets
    weights: Mapping[str, FloatArray]
    left: int
    log_likelihood: tuple[float, ...] = ()

    @property
    def phase(self) -> str:
        """Word for the trace."""
        return f"round {len(self.log_likelihood) + 1}"


@dataclass(frozen=True, eq=False)
class MicroRun:
    """Where a run stands.

    ``stored`` is what an earlier run left, ``micro`` what has come in since then and before, ``refused`` what
    could not be used and why.
    """

    agreement: Agreement
    stored: Summaries | None = None
    micro: MicroState = field(default_factory=microcluster.init)
    assembly: Assembly | None = None
    rounds: Rounds | None = None
    labelled: Mapping[str, Labelled] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def greeted(self, name: str) -> Totals:
        """Return the totals that a site's rows must have, from its greeting."""
        return greeted(self.agreement.roster.moments[name], self.agreement.scaling)

    def drift(self, name: str) -> tuple[FloatArray | None, FloatArray | None]:
        """Return the offset and the gain that were found for a site, or None and None."""
        assembly = self.assembly
        if assembly is None or assembly.drift is None or not assembly.drift.on or name not in assembly.names:
            return None, None
        row = assembly.names.index(name)
        return assembly.drift.offsets[row], assembly.drift.gains[row]


def ask_round(state: MicroRun, rounds: Rounds) -> Exchange:
    """Ask the sites of the assembly that are there for the E step of a round."""
    scaling, sets = state.agreement.scaling, rounds.sets
    asks = {}
    for name in sorted(set(rounds.weights) & set(state.agreement.roster.moments)):
        offset, gain = state.drift(name)
        asks[name] = AskMicroRound(
            center=scaling.center,
            scale=scaling.scale,
            components=scaling.components,
            score_scale=scaling.score_scale,
            means=sets.means,
            covariances=lower_triangle(sets.covariances),
            members=sets.members,
            rows=sets.rows,
            weights=rounds.weights[name],
            offset=offset,
            gain=gain,
        )
    q = scaling.n_features_out
    size = {"m": len(sets.means), "q": q, "t": q * (q + 1) // 2, "s": len(sets.rows)}
    return Exchange(rounds.phase, asks, {AskMicroRound: MicroSums}, sizes=dict.fromkeys(asks, size))


def take_sums(state: MicroRun, rounds: Rounds, answers: Mapping[str, MicroSums]) -> MicroRun:
    """Make the M step of a round, and after the last round choose among the sets.

    For sites that are silent or gone, or whose sums cannot be used, their micro-clusters stand in.

    Raises
    ------
    RunError
        If no site sent sums that can be of its rows.
    """
    assert state.assembly is not None
    came = {name: _sums(answer) for name, answer in answers.items()}
    problems = {name: _problem(state, rounds.sets, name, sums) for name, sums in came.items()}
    sums = {name: part for name, part in came.items() if problems[name] is None}
    refused = {name: f"its sums were not used: {problem}" for name, problem in problems.items() if problem}
    if not sums:
        raise RunError(f"phase {rounds.phase!r}: no site sent sums that can be used. {told(refused)}")
    weights = dict(rounds.weights)
    for name in sorted(set(state.assembly.names) - set(sums)):
        sums[name], weights[name] = microcluster.stand_in(
            state.micro, state.assembly, name, rounds.sets, weights[name]
        )
    parts = [sums[name] for name in state.assembly.names]
    total = microcluster.add_up(parts)
    after = replace(
        rounds,
        weights=weights,
        sets=microcluster.advance(rounds.sets, total, state.assembly.shrinkage),
        left=rounds.left - 1,
        log_likelihood=(*rounds.log_likelihood, float(total.log_likelihood[0])),
    )
    assembly = state.assembly
    if not after.left:
        assembly = microcluster.after_rounds(assembly, after.sets, parts)
    return replace(state, rounds=after, refused={**state.refused, **refused}, assembly=assembly)


def told(refused: Mapping[str, str]) -> str:
    """Return reasons by site as one line."""
    return "; ".join(f"{name}: {reason}" for name, reason in refused.items())


def _sums(answer: MicroSums) -> Sums:
    second = symmetric_matrix(answer.second, answer.first.shape[1])
    return Sums(answer.mass, answer.first, second, answer.log_likelihood, answer.held_out)


def _problem(state: MicroRun, sets: ClusterSets, name: str, sums: Sums) -> str | None:
    """Say why sums cannot be of a site's rows: sets that are fitted to all of them give away their totals."""
    if not microcluster.is_possible(sums):
        return "no rows can have them"
    offset, gain = state.drift(name)
    expected = state.greeted(name)
    if offset is not None and gain is not None:
        expected = Totals(expected.rows, (expected.mean - offset) / gain, expected.variance / gain**2)
    for number in np.flatnonzero(sets.rows == microcluster.ALL):
        which = sets.of(int(number)) & (sums.mass > 0)
        if not which.any():
            return "they hold no rows"
        mass, shift = sums.mass[which], sums.first[which] / sums.mass[which, None]
        spread = np.diagonal(sums.second[which], axis1=1, axis2=2) / mass[:, None] - np.square(shift)
        problem = expected.problem(pooled(mass, sets.means[which] + shift, spread))
        if problem is not None:
            return problem
    return None
