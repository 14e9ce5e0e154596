"""IFCA over named sites: several models, of which every site takes one; restarts side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcluster_app.aggregation import ifca
from fedcluster_app.aggregation.ifca import IFCAState
from fedcluster_app.messages import (
    AskIFCARound,
    AskIFCAScores,
    AskIFCAStart,
    GaussianSums,
    IFCAScores,
    SiteGaussians,
)
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.streams import stream
from strategies.base import Agreement
from strategies.gaussians import (
    in_use,
    problem_of_groups,
    problem_of_likelihoods,
    problem_of_sums,
    sums_of,
)
from strategies.labelling import SiteModel
from strategies.personal_rounds import PersonalRounds
from strategies.rounds import AskAll, Run

# Nothing yet, then the models that sites start with, then all restarts.
Kernel = None | dict[str, Mixture] | tuple[IFCAState, ...]


class IFCA(PersonalRounds[Kernel], AskAll[Kernel]):
    """Two exchanges for models to start from, then rounds of all restarts in the same messages.

    Every site sees the model that each site starts with. A site that is silent takes part with the sums that
    it last sent, for the model that it then chose; one that was never heard labels by all models together.

    Whoever sees a message sees one site's sums under the models of all restarts, and of all rounds. A
    component's sums leave out nothing, or ``min-count`` rows or more; the difference between two that are
    nearly alike, of two restarts or of two rounds, may be a single row. One restart leaves only the rounds.

    Notes
    -----
    **Source**: Ghosh, Chung, Yin and Ramchandran, An efficient framework for clustered federated learning,
    NeurIPS 2020.
    """

    def first(self, agreement: Agreement) -> Kernel:
        """Start without models."""
        return None

    def phase(self, run: Run[Kernel]) -> str:
        """Say what is asked: clusters, scores, then rounds."""
        if isinstance(run.kernel, tuple):
            return f"round {_rounds(run.kernel) + 1}"
        return "start" if run.kernel is None else "scores"

    def question(self, run: Run[Kernel]) -> tuple[Any, type, dict[str, int]]:
        """Ask for clusters, for the likelihoods of all sites' models, then for sums."""
        scaling, kernel = vars(run.agreement.scaling), run.kernel
        if kernel is None:
            return AskIFCAStart(**scaling), SiteGaussians, {}
        if isinstance(kernel, dict):
            return AskIFCAScores(**scaling, **stacked([*kernel.values()])), IFCAScores, {"s": len(kernel)}
        going = self._going(kernel)
        models = [model for state in going for model in state.models]
        runs = np.repeat(np.arange(len(going)), [len(state.models) for state in going])
        return AskIFCARound(**scaling, **stacked(models), runs=runs), GaussianSums, {"s": len(going)}

    def problem(self, state: Run[Kernel], name: str, answer: Any) -> str | None:
        """Say why what a site sent cannot be of its rows."""
        if isinstance(answer, SiteGaussians):
            return problem_of_groups(state, name, answer)
        if isinstance(answer, IFCAScores) and isinstance(state.kernel, dict):
            models = [*state.kernel.values()]
            problem = problem_of_likelihoods(state.greeted(name), answer.log_likelihood, models)
            return problem and f"its likelihoods were not used: {problem}"
        if isinstance(answer, GaussianSums) and isinstance(state.kernel, tuple):
            going = self._going(state.kernel)
            if (answer.models >= [len(one.models) for one in going]).any():
                return f"its sums were not used: there is no model {answer.models.max()}"
            return problem_of_sums(state, name, answer, _chosen(going, answer))
        return None

    def ready(self, run: Run[Kernel]) -> bool:
        """Tell whether any site has chosen a model."""
        return isinstance(run.kernel, tuple) and _rounds(run.kernel) > 0

    def take(self, run: Run[Kernel], answers: Mapping[str, Any]) -> Kernel:
        """Make models of clusters, choose some for every restart, or make their M steps."""
        kernel, settings = run.kernel, self.config.ifca
        if kernel is None:
            return ifca.candidates({name: answer.statistics for name, answer in answers.items()})
        if isinstance(kernel, dict):
            # Models of sites that are gone are not chosen.
            here = [name in answers for name in kernel]
            models = {name: model for name, model in kernel.items() if name in answers}
            scores = {name: answers[name].log_likelihood[here] for name in models}
            count = settings.models
            assert count is not None  # the method needs to be told
            streams = [stream(self.config.seed, "ifca", number) for number in range(settings.restarts)]
            return tuple(ifca.init(models, scores, count, rng) for rng in streams)
        going = self._going(kernel)
        sent = {name: sums_of(run, name, answer, _chosen(going, answer)) for name, answer in answers.items()}
        after = iter(
            [
                ifca.step(state, {name: sums[number] for name, sums in sent.items()})
                for number, state in enumerate(going)
            ]
        )
        return tuple(next(after) if self._status(state) == "running" else state for state in kernel)

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many components the site counted."""
        counted = answer.k_counted if isinstance(answer, SiteGaussians) else 0
        return {"k_counted": counted} if counted else {}

    def stopped_by(self, kernel: Kernel) -> str:
        """Stop when the likelihood settles in every restart."""
        if not isinstance(kernel, tuple) or self._going(kernel):
            return "running"
        return self._status(ifca.best(kernel))

    def models(self, run: Run[Kernel]) -> Mapping[str, SiteModel]:
        """Give every site the model that it chose."""
        state = _best(run)
        k = np.array([model.n_components for model in state.models])
        numbers = np.split(np.arange(k.sum()), np.cumsum(k)[:-1])
        chosen = {name: part.model for name, part in state.uploads.items()}
        rows = np.zeros(len(k))
        for part in state.uploads.values():
            rows[part.model] += part.rows
        found: dict[str, tuple[Mixture, IntArray]] = {}
        for name in run.agreement.roster.members:
            number = chosen.get(name)
            if number is None:
                found[name] = _union(state.models, rows / rows.sum()), np.arange(k.sum())
            else:
                found[name] = state.models[number], numbers[number]
        return in_use(found)

    def figures_of(self, kernel: Kernel) -> dict[str, float]:
        """Return the mean log-likelihood of a row in the best restart, before its last M step."""
        if not isinstance(kernel, tuple) or not kernel[0].trace:
            return {}
        return {"log_likelihood": ifca.best(kernel).log_likelihood}

    def details_of(self, run: Run[Kernel]) -> dict[str, Any]:
        """Return who chose which model, and how all restarts went."""
        state, kernel = _best(run), run.kernel
        assert isinstance(kernel, tuple)  # there was a round
        return {
            "rounds": _rounds(kernel),
            "trace": list(state.trace),
            "models": {name: part.model for name, part in state.uploads.items()},
            "restarts": [
                {
                    "log_likelihood": one.log_likelihood,
                    "rounds": len(one.trace),
                    "stopped_by": self._status(one),
                }
                for one in kernel
            ],
        }

    def warnings(self, run: Run[Kernel], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Say where fewer models are in use than were wanted."""
        used, wanted = len({part.model for part in _best(run).uploads.values()}), self.config.ifca.models
        return () if used == wanted else (f"sites chose {used} different models of models={wanted}",)

    def _status(self, state: IFCAState) -> str:
        settings = self.config.ifca
        return ifca.status(state, tolerance=settings.tolerance, max_rounds=settings.rounds)

    def _going(self, kernel: tuple[IFCAState, ...]) -> list[IFCAState]:
        """Return the restarts that are not over."""
        return [state for state in kernel if self._status(state) == "running"]


def _rounds(kernel: tuple[IFCAState, ...]) -> int:
    return max(len(state.trace) for state in kernel)


def _best(run: Run[Kernel]) -> IFCAState:
    assert isinstance(run.kernel, tuple)  # there was a round
    return ifca.best(run.kernel)


def _chosen(going: list[IFCAState], answer: GaussianSums) -> list[Mixture]:
    """Return the model that a site chose in every restart."""
    return [state.models[number] for state, number in zip(going, answer.models, strict=True)]


def _union(models: tuple[Mixture, ...], shares: FloatArray) -> Mixture:
    """Return the models together, each with its share (b,)."""
    return Mixture(
        np.concatenate([model.weights * share for model, share in zip(models, shares, strict=True)]),
        np.concatenate([model.means for model in models]),
        np.concatenate([model.covariances for model in models]),
    )
