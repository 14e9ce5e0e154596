"""What FedEM, FedGenGMM and IFCA share: whether groups and sums can be of a site's rows, and its mixture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcluster_app.aggregation.gaussians import SiteSums
from fedcluster_app.errors import WireError
from fedcluster_app.messages import GaussianSums, SiteGaussians
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.statistics import Statistics
from fedcluster_app.mixtures.types import FloatArray, IntArray
from strategies.labelling import SiteModel
from strategies.plausible import TOLERANCE, Totals
from strategies.rounds import Run


def problem_of_groups(run: Run[Any], name: str, answer: SiteGaussians) -> str | None:
    """Say why groups cannot be of a site's rows, or None."""
    problem = _problem(run.greeted(name), answer.statistics)
    return problem and f"its components were not used: {problem}"


def problem_of_sums(run: Run[Any], name: str, answer: GaussianSums, chosen: list[Mixture]) -> str | None:
    """Say why sums under the mixture of each restart cannot be of a site's rows, or None."""
    whole = run.greeted(name)
    try:
        found = answer.statistics(chosen)
    except WireError as error:
        return str(error)
    problems = [_problem(whole, part) for part in found]
    problem = next(
        filter(None, [*problems, problem_of_likelihoods(whole, answer.log_likelihood, chosen)]), None
    )
    return problem and f"its sums were not used: {problem}"


def problem_of_likelihoods(whole: Totals, told: FloatArray, mixtures: Sequence[Mixture]) -> str | None:
    """Say that no rows can have these log-likelihoods (s,) under s mixtures, or None."""
    for mixture, value in zip(mixtures, told, strict=True):
        # No density is higher than that of the narrowest component at its mean.
        roots = np.diagonal(np.linalg.cholesky(mixture.covariances), axis1=1, axis2=2)
        least = np.log(roots).sum(axis=1).min() + 0.5 * mixture.n_features * math.log(2 * math.pi)
        if value > -whole.rows * least + TOLERANCE * (1 + whole.rows * abs(least)):
            return "its rows cannot be so likely"
    return None


def in_use(found: Mapping[str, tuple[Mixture, IntArray]]) -> dict[str, SiteModel]:
    """Return sites' mixtures and the numbers of their components, without those that weigh nothing."""
    held = {name: mixture.weights > 0 for name, (mixture, _) in found.items()}
    used = np.unique(np.concatenate([numbers[held[name]] for name, (_, numbers) in found.items()]))
    models = {}
    for name, (mixture, numbers) in found.items():
        which = held[name]
        part = Mixture(mixture.weights[which], mixture.means[which], mixture.covariances[which])
        models[name] = SiteModel(part, names=np.searchsorted(used, numbers[which]))
    return models


def sums_of(run: Run[Any], name: str, answer: GaussianSums, chosen: list[Mixture]) -> list[SiteSums]:
    """Return a site's sums under the mixture of each restart."""
    rows = run.agreement.roster.members[name].hello.rows
    parts = zip(answer.statistics(chosen), answer.log_likelihood, answer.models, strict=True)
    return [SiteSums(stats, float(told), rows, int(model)) for stats, told, model in parts]


def _problem(whole: Totals, stats: Statistics) -> str | None:
    rows = np.where(stats.mass > 0, stats.mass, 1.0)[:, None, None]
    return whole.problem_of_components(stats.mass, stats.means, stats.scatters / rows)
