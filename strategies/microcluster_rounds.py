"""Where a run of the one-shot reconciliation stands, and its rounds of federated EM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedcluster_app.aggregation import microcluster
from fedcluster_app.aggregation.microcluster import Assembly, ClusterSets, MicroState, Sums
from fedcluster_app.config import RunConfig
from fedcluster_app.data.scaling import lower_triangle, symmetric_matrix
from fedcluster_app.messages import AskMicroRound, Labelled, MicroSums
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.summaries import Summaries
from strategies.base import Agreement
from strategies.exchange import Exchange
from strategies.plausible import TOLERANCE, Totals, greeted, pooled


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
    number : int
        Of the next round.
    log_likelihood : tuple of float
        At the start of every round, if there is one set of clusters.
    """

    sets: ClusterSets
    weights: Mapping[str, FloatArray]
    left: int
    number: int = 1
    log_likelihood: tuple[float, ...] = ()

    @property
    def phase(self) -> str:
        """Word for the trace."""
        return f"round {self.number}"


@dataclass(frozen=True, eq=False)
class MicroRun:
    """Where a run stands.

    ``seed`` is that of the halves of the sites' rows, ``stored`` what an earlier run left, ``micro`` what has
    come in since then and before, ``unheard`` says that the rounds ended because no site was heard.
    """

    agreement: Agreement
    seed: int
    stored: Summaries | None = None
    micro: MicroState = field(default_factory=microcluster.init)
    assembly: Assembly | None = None
    rounds: Rounds | None = None
    labelled: Mapping[str, Labelled] | None = None
    unheard: bool = False

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


def ask_round(state: MicroRun, rounds: Rounds, config: RunConfig) -> Exchange:
    """Ask the sites of the assembly that are there for the E step of a round.

    The assembly stands: unless the run wants a quorum, it goes on without any answer.
    """
    scaling, sets = state.agreement.scaling, rounds.sets
    asks = {}
    for name in sorted(set(rounds.weights) & set(state.agreement.roster.moments)):
        offset, gain = state.drift(name)
        asks[name] = AskMicroRound(
            center=scaling.center,
            scale=scaling.scale,
            components=scaling.components,
            score_scale=scaling.score_scale,
            seed=state.seed,
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
    answers: dict[type, type] = {AskMicroRound: MicroSums}
    must = config.quorum > 1
    return Exchange(rounds.phase, asks, answers, sizes=dict.fromkeys(asks, size), must_answer=must)


def take_sums(state: MicroRun, rounds: Rounds, answers: Mapping[str, MicroSums]) -> MicroRun:
    """Make the M step of a round, and after the last round choose among the sets.

    For sites that are silent or gone their micro-clusters stand in. Where no site is heard the rounds end.
    """
    assembly = state.assembly
    assert assembly is not None
    came = {name: _sums(answer) for name, answer in answers.items()}
    # A site with too few rows of every cluster sends none: its micro-clusters say more.
    sums = {name: part for name, part in came.items() if (part.mass > 0).any()}
    weights = dict(rounds.weights)
    for name in sorted(set(assembly.names) - set(sums)):
        sums[name], weights[name] = microcluster.stand_in(
            state.micro, assembly, name, rounds.sets, weights[name]
        )
    parts = [sums[name] for name in assembly.names]
    if not answers:
        if rounds.number > 1:
            assembly = microcluster.after_rounds(assembly, rounds.sets, parts)
        return replace(state, assembly=assembly, rounds=replace(rounds, left=0), unheard=True)
    total = microcluster.add_up(parts)
    told = rounds.log_likelihood
    if len(rounds.sets.rows) == 1:
        told += (float(total.log_likelihood[0]),)
    after = Rounds(
        sets=microcluster.advance(rounds.sets, total, assembly.shrinkage),
        weights=weights,
        left=rounds.left - 1,
        number=rounds.number + 1,
        log_likelihood=told,
    )
    if not after.left:
        assembly = microcluster.after_rounds(assembly, after.sets, parts)
    return replace(state, rounds=after, assembly=assembly)


def _sums(answer: MicroSums) -> Sums:
    second = symmetric_matrix(answer.second, answer.first.shape[1])
    return Sums(answer.mass, answer.first, second, answer.log_likelihood, answer.held_out)


def problem_of_sums(state: MicroRun, rounds: Rounds, name: str, answer: MicroSums) -> str | None:
    """Say why sums cannot be of a site's rows: sets that are fitted to all of them must fit their totals."""
    sets, sums = rounds.sets, _sums(answer)
    if not microcluster.is_possible(sums):
        return "no rows can have them"
    wholes = np.flatnonzero(sets.rows == microcluster.ALL)
    offset, gain = state.drift(name)
    expected = state.greeted(name)
    if offset is not None and gain is not None:
        expected = Totals(expected.rows, (expected.mean - offset) / gain, expected.variance / gain**2)
    for number in wholes:
        which = sets.of(int(number)) & (sums.mass > 0)
        if not which.any():
            # The site has too few rows of every one of these clusters.
            continue
        mass, shift = sums.mass[which], sums.first[which] / sums.mass[which, None]
        spread = np.diagonal(sums.second[which], axis1=1, axis2=2) / mass[:, None] - np.square(shift)
        problem = _departure(expected, pooled(mass, sets.means[which] + shift, spread))
        if problem is not None:
            return problem
    return _unlikely(state, sets, name, sums)


def _unlikely(state: MicroRun, sets: ClusterSets, name: str, sums: Sums) -> str | None:
    """Say that log-likelihoods, of which those held out choose K, cannot be of rows of the micro-clusters.

    A site that lies within what they can be is not found out.
    """
    assert state.assembly is not None
    low, high = microcluster.likelihood_bounds(state.micro, state.assembly, name, sets)
    told = np.stack([sums.log_likelihood, sums.held_out])
    rounding = TOLERANCE * (1 + np.abs(low) + np.abs(high))
    if (told < low - rounding).any() or (told > high + rounding).any():
        return "no rows of its micro-clusters can have these log-likelihoods"
    return None


def _departure(expected: Totals, told: Totals) -> str | None:
    """Say where totals depart from those of all rows, or that what they leave out cannot be rows, or None."""
    left = expected.rows - told.rows
    if left <= TOLERANCE * expected.rows:
        return expected.problem(told)
    # The parts of a whole: n m = n_1 m_1 + n_2 m_2, and n v likewise with n_1 n_2 / n (m_1 - m_2)² added.
    mean = (expected.rows * expected.mean - told.rows * told.mean) / left
    between = told.rows * left / expected.rows * np.square(told.mean - mean)
    scatter = expected.rows * expected.variance - told.rows * told.variance - between
    spread = np.sqrt(expected.variance) + np.abs(expected.mean) + TOLERANCE
    if (scatter < -TOLERANCE * expected.rows * spread**2).any():
        return f"no {left:g} rows can be what they leave out"
    return None
