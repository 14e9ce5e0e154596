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


def problem_of_sums(
    run: Run[Any], name: str, answer: GaussianSums, chosen: list[Mixture], *, own_weights: bool = False
) -> str | None:
    """Say why sums under the mixture of each restart cannot be of a site's rows, or None.

    With ``own_weights`` the site has weights in place of the mixture's that nobody else knows.
    """
    whole = run.greeted(name)
    try:
        found = answer.statistics(chosen)
    except WireError as error:
        return str(error)
    problems = [_problem(whole, part) for part in found]
    problems.append(problem_of_likelihoods(whole, answer.log_likelihood, chosen, own_weights=own_weights))
    problem = next(filter(None, problems), None)
    return problem and f"its sums were not used: {problem}"


def problem_of_likelihoods(
    whole: Totals, told: FloatArray, mixtures: Sequence[Mixture], *, own_weights: bool = False
) -> str | None:
    """Say that no rows of these moments can have these log-likelihoods (s,) under s mixtures, or None."""
    for mixture, value in zip(mixtures, told, strict=True):
        # No density is higher than that of the narrowest component at its mean.
        roots = np.diagonal(np.linalg.cholesky(mixture.covariances), axis1=1, axis2=2)
        least = np.log(roots).sum(axis=1).min() + 0.5 * mixture.n_features * math.log(2 * math.pi)
        if value > -whole.rows * least + TOLERANCE * (1 + whole.rows * abs(least)):
            return "its rows cannot be so likely"
        lowest = _least_likelihood(whole, mixture, own_weights)
        if value < lowest - TOLERANCE * (1 + abs(lowest)):
            return "its rows cannot be so unlikely"
    return None


def _least_likelihood(whole: Totals, mixture: Mixture, own_weights: bool) -> float:
    """Return what the log-likelihood of the rows under a mixture is not below.

    A row's density is at least that of any one component with its weight, and its logarithm at least the mean
    of theirs over the components, whatever the weights (Jensen): so that of all rows is not below the least
    over components if the weights are not known. For one component it follows from the moments, of which the
    variances' sum bounds the rows' spread along the axis where the component is narrowest.
    """
    n, q = whole.rows, mixture.n_features
    values, axes = np.linalg.eigh(mixture.covariances)
    shift = np.einsum("kij,ki->kj", axes, whole.mean - mixture.means)
    distance = (np.square(shift) / values).sum(axis=1) + whole.variance.sum() / values[:, 0]
    alone = -0.5 * n * (q * math.log(2 * math.pi) + np.log(values).sum(axis=1) + distance)
    if own_weights:
        return float(alone.min())
    used = mixture.weights > 0
    return float((n * np.log(mixture.weights[used]) + alone[used]).max())


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
