"""Split criteria: two scores by three kinds of covariance, with their penalties and critical sizes.

The published criterion scores the expected log-density of the rows under their half ("q") with spherical
halves. Two things make it fragment a cluster that is one: the score leaves out what the assignment of rows
costs, and the spherical model cannot follow an elongated cluster. The score "mixture", the log-likelihood of
the two-component mixture, cures the first; diagonal and full covariances cure the second, at the price of a
larger penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedcluster_app.cardinality.closed_form import critical_size, largest_root
from fedcluster_app.cardinality.split import (
    SMALLEST_SHARE,
    VARIANCE_FLOOR,
    Split,
    leading_axis,
    propose_split,
)
from fedcluster_app.cardinality.tree import Criterion
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.densities import log_densities, responsibilities
from fedcluster_app.mixtures.mixture import Kind, Mixture
from fedcluster_app.mixtures.statistics import collect, mixture_from
from fedcluster_app.mixtures.types import FloatArray

Score = Literal["q", "mixture"]
#: Gain rate of a median cut under a full covariance, whatever that is: -log(1 - 2/pi), about 1.0124.
FULL_GAIN_RATE = -math.log(1 - 2 / math.pi)
#: Directions with a smaller share of a component's largest variance are left out of a full covariance.
_RANK_SHARE = 1e-10


def criterion_of(score: str = "q", covariance: str = "spherical") -> Criterion:
    """Look up the criterion of a score and a kind of covariance, for `split_tree`.

    Parameters
    ----------
    score : {"q", "mixture"}
    covariance : {"spherical", "diagonal", "full"}

    Raises
    ------
    ConfigError
        If there is no such score or covariance.
    """
    for name, value, known in (("score", score, Score), ("covariance", covariance, Kind)):
        if value not in get_args(known):
            raise ConfigError(f"{name}: expected one of {', '.join(get_args(known))}, got {value!r}")
    if (score, covariance) == ("q", "spherical"):
        return propose_split
    return MixtureCriterion(score, covariance)  # type: ignore[arg-type]  # checked above


def split_parameters(d: int, covariance: str = "spherical") -> float:
    """Parameters that a split adds in d dimensions: a mean, a weight and a covariance.

    d + 2 spherical, 2 d + 1 diagonal, (d + 1)(d + 2)/2 full. The penalty is half of it times log n.
    """
    return {"spherical": d + 2, "diagonal": 2 * d + 1, "full": (d + 1) * (d + 2) / 2}[covariance]


def critical_size_diagonal(covariance: FloatArray) -> float:
    """Rows from which a Gaussian cluster is predicted to split with score "q" and diagonal halves.

    Parameters
    ----------
    covariance : (d, d)
        Of the cluster, positive definite.

    Returns
    -------
    float
        The larger root of ``n / log n = (2 d + 1) / g`` with
        ``g = -sum_j log(1 - (2/pi) lambda_1 v_j^2 / S_jj)``, for the leading eigenpair (lambda_1, v) of the
        covariance S. If v is a coordinate axis g = 1.0124, which is the least; if all its entries and all
        variances are equal, g is that of `split_gain_rate`. 1 when every n splits.

    Notes
    -----
    **Source**: ours, after the closed form of Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762: a median
    cut along v lowers the covariance by ``(2/pi) lambda_1 v v^T``.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    lowered = 2 / math.pi * eigenvalues[-1] * vectors[:, -1] ** 2 / np.diagonal(covariance)
    return largest_root(split_parameters(len(covariance), "diagonal") / -float(np.log1p(-lowered).sum()))


def critical_size_full(d: int) -> float:
    """Rows from which any Gaussian cluster in d dimensions is predicted to split with "q" and full halves.

    The log-determinant falls by log(1 - 2/pi) whatever the covariance, so the anisotropy has no say: the
    larger root of ``n / log n = (d + 1)(d + 2) / (2 g)``, g = 1.0124.

    Notes
    -----
    **Source**: ours, after the closed form of Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762.
    """
    if not d >= 1:
        raise ConfigError(f"d: expected at least one feature, got {d}")
    return largest_root(split_parameters(d, "full") / FULL_GAIN_RATE)


def critical_size_of(rows: FloatArray, covariance: str = "spherical") -> float:
    """Critical size of a component's centred rows Y (n, d), from their own covariance, not all zero.

    Meant for score "q"; a mixture score splits a single Gaussian at no size.
    """
    n, d = rows.shape
    if covariance == "full":
        return critical_size_full(d)
    if covariance == "diagonal":
        varying = rows[:, rows.any(axis=0)]
        return critical_size_diagonal(varying.T @ varying / n)
    eigenvalue, _ = leading_axis(rows)
    return critical_size(max(eigenvalue * n * d / float((rows * rows).sum()), 1.0), d)


@dataclass(frozen=True)
class MixtureCriterion:
    """Proposes a split by EM of a two-component mixture with any kind of covariance.

    Attributes
    ----------
    score : {"q", "mixture"}
        The gain: expected log-density of the rows under their half, or log-likelihood under the mixture;
        either less the log-likelihood under the one component.
    covariance : {"spherical", "diagonal", "full"}

    Notes
    -----
    EM runs in units in which the component's own covariance, of the kind at hand, is the identity: there the
    variance floor is one number, and constant features or empty directions, which no split can change,
    are gone. They still count in the penalty. A full covariance of a half with no more rows than directions
    is singular and its likelihood without bound, so such a half is not proposed.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, for score "q" with spherical halves; the
    rest is ours. "mixture" is the BIC comparison of one with two components.
    """

    score: Score
    covariance: Kind

    def __call__(
        self, Y: FloatArray, squares: FloatArray, *, delta: float = 1.0, em_steps: int = 15
    ) -> Split | None:
        """Return the proposed split of centred rows Y (n, d), or None when a half dies out."""
        n, d = Y.shape
        eigenvalue, axis = leading_axis(Y)
        whitener = self._whitener(Y, squares)
        Z, step = Y @ whitener, delta * math.sqrt(eigenvalue) * (axis @ whitener)
        rank = Z.shape[1]
        unit = {
            "spherical": np.ones(2),
            "diagonal": np.ones((2, rank)),
            "full": np.tile(np.eye(rank), (2, 1, 1)),
        }
        mixture = Mixture(np.full(2, 0.5), np.stack([step, -step]), unit[self.covariance])
        fewest = rank + 1 if self.covariance == "full" else SMALLEST_SHARE * n
        for _ in range(em_steps):
            R, _ = responsibilities(Z, mixture)
            halves = collect(Z, R, self.covariance)
            if halves.mass.min() < fewest:
                return None
            mixture = mixture_from(halves, ridge=VARIANCE_FLOOR)
        posterior, log_likelihood = responsibilities(Z, mixture)
        before = -n * rank / 2 * (math.log(2 * math.pi) + 1)
        if self.score == "q":
            after = float((R * log_densities(Z, mixture)).sum())
        else:
            after = float(log_likelihood.sum())
        return Split(
            first=posterior[:, 0] > posterior[:, 1],
            mass=float(halves.mass.min()),
            gain=after - before,
            penalty=split_parameters(d, self.covariance) / 2 * math.log(n),
        )

    def _whitener(self, Y: FloatArray, squares: FloatArray) -> FloatArray:
        """Linear map (d, rank) after which the covariance of the rows, of this kind, is the identity."""
        n, d = Y.shape
        if self.covariance == "spherical":
            return np.asarray(np.eye(d) / math.sqrt(squares.sum() / (n * d)))
        if self.covariance == "diagonal":
            deviations = np.sqrt((Y * Y).mean(axis=0))
            varying = np.flatnonzero(deviations)
            return np.asarray(np.eye(d)[:, varying] / deviations[varying])
        _, singular, directions = np.linalg.svd(Y, full_matrices=False)
        kept = singular**2 > _RANK_SHARE * singular[0] ** 2
        whitener: FloatArray = directions[kept].T / (singular[kept] / math.sqrt(n))
        return whitener
