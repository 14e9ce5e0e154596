"""AFCL over named sites that let their rows go: seeds, rounds of competition, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcluster_app.aggregation import afcl
from fedcluster_app.aggregation.afcl import AFCLState, Records
from fedcluster_app.messages import AFCLRecords, AFCLSeeds, AskAFCLRound, AskAFCLSeeds
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from strategies.base import Agreement
from strategies.exchange import Exchange
from strategies.global_rounds import Found, GlobalRounds, centres
from strategies.plausible import pooled
from strategies.rounds import Run


class AFCL(GlobalRounds[AFCLState | None]):
    """Seeds of all sites compete for the rows of all sites, which the coordinator rebuilds.

    With ``local-k`` a number, so many seeds are drawn from those of all sites; else all seeds of the sites'
    own counts are taken (as in FedGEM's comparison).

    Notes
    -----
    **Source**: Zhang et al., Asynchronous federated clustering with unknown number of clusters, AAAI 2025.
    """

    def first(self, agreement: Agreement) -> None:
        """Start only if all sites let their rows go."""
        agreement.roster.refuse_unsafe("method 'afcl' lets the coordinator rebuild every row")

    def question(self, run: Run[AFCLState | None]) -> tuple[Any, type, dict[str, int]]:
        """Ask for seeds, then send those of all sites."""
        scaling, kernel = vars(run.agreement.scaling), run.kernel
        if kernel is None:
            return AskAFCLSeeds(**scaling), AFCLSeeds, {}
        ask = AskAFCLRound(**scaling, seeds=kernel.seeds, weights=kernel.weights)
        return ask, AFCLRecords, {"m": len(kernel.seeds)}

    def phase(self, run: Run[AFCLState | None]) -> str:
        """Say what is asked: seeds, then rounds."""
        return "seeds" if run.kernel is None else f"round {run.kernel.round + 1}"

    def asked(self, run: Run[AFCLState | None]) -> Iterable[str]:
        """Ask all sites for seeds, and in a round all, or those that take part in it by their own chance."""
        names, seed = list(run.agreement.roster.moments), self.config.seed
        if not self._by_chance(run):
            return names
        # Above 0 where a site takes part; one is always asked.
        odds = {
            name: stream(seed, "afcl", name).random() - stream(seed, "afcl", name, run.rounds).random()
            for name in names
        }
        return [name for name in names if odds[name] > min(0.0, max(odds.values()) - 1e-12)]

    def exchange(self, run: Run[AFCLState | None]) -> Exchange:
        """Ask; a round of few sites by chance may as well be one of none, so it need not be answered."""
        made = super().exchange(run)
        return replace(made, must_answer=False) if self._by_chance(run) else made

    def ready(self, run: Run[AFCLState | None]) -> bool:
        """Tell whether a round that nobody answers ends the run: not if the next one asks other sites."""
        return super().ready(run) and not self._by_chance(run)

    def problem(self, state: Run[AFCLState | None], name: str, answer: Any) -> str | None:
        """Say why rows cannot be those that the site has greeted with."""
        problem = None
        if isinstance(answer, AFCLSeeds):
            problem = state.greeted(name).problem_of_part(np.ones(len(answer.seeds)), answer.seeds)
        if isinstance(answer, AFCLRecords) and state.kernel is not None:
            problem = _problem(state, state.kernel, name, answer)
        return problem and f"its rows were not used: {problem}"

    def _by_chance(self, run: Run[AFCLState | None]) -> bool:
        return run.kernel is not None and self.config.afcl.participation == "random"

    def take(self, run: Run[AFCLState | None], answers: Mapping[str, Any]) -> AFCLState:
        """Draw the seeds, or let them compete."""
        if run.kernel is not None:
            sent = {name: Records(**vars(answer)) for name, answer in answers.items()}
            return afcl.step(run.kernel, sent, rebuild=self.config.afcl.rebuild)
        starts = {name: answer.seeds for name, answer in answers.items()}
        k, settings = self.config.local.k or sum(map(len, starts.values())), self.config.afcl
        rng, learn = stream(self.config.seed, "afcl"), settings.weights == "learned"
        return afcl.init(starts, k, rng, learn=learn, rate=settings.rate)

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many seeds the site gave."""
        return {"k_g": len(answer.seeds)} if isinstance(answer, AFCLSeeds) else {}

    def stopped_by(self, kernel: AFCLState | None) -> str:
        """Stop when neither seeds nor their index move."""
        return "running" if kernel is None else afcl.status(kernel, max_rounds=self.config.afcl.rounds)

    def found(self, kernel: AFCLState | None) -> Found:
        """Return the seeds, those in the same place as one."""
        assert kernel is not None  # there was a round
        return centres(afcl.finish(kernel).centers)

    def warnings_of(self, kernel: AFCLState | None, found: FloatArray) -> tuple[str, ...]:
        """Say if all seeds ran together."""
        if len(found) > 1:
            return ()
        return (
            "all seeds ran together into one: where columns are many, every row is as far from its seed as "
            "the seeds are from each other, and pulls them all; lower pca, or take another method",
        )


def _problem(state: Run[AFCLState | None], kernel: AFCLState, name: str, answer: AFCLRecords) -> str | None:
    """Say why records are not of the rows that a site has: these are rebuilt and summed up."""
    k = len(kernel.seeds)
    if answer.winners.max() >= k:
        return f"a row was won by seed {answer.winners.max()} of {k}"
    if not np.array_equal(np.bincount(answer.winners, minlength=k), answer.counts):
        return "its counts are not those of the rows"
    told = kernel.weights > 0  # else the update is 0, wherever the row is
    if not told.any():
        return None
    moved = answer.updates[:, told] / kernel.weights[told]
    rows = kernel.seeds[answer.winners][:, told] + moved
    whole = state.greeted(name)
    ones = np.ones(len(rows))
    return whole.of(told).problem(pooled(ones, rows, np.zeros_like(rows)))
