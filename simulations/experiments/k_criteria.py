"""What can speak for a number of clusters along a path of fits, and rules that choose by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import lgamma
from typing import Any

import numpy as np

from fedcluster_app.aggregation.micro import votes as voting
from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import MicroFit, log_joint, moments
from fedcluster_app.aggregation.micro.path import Path, half_fits, whitening
from fedcluster_app.metrics.agreement import adjusted_rand_index, contingency_table
from fedcluster_app.mixtures.densities import logsumexp
from fedcluster_app.mixtures.types import FloatArray, IntArray

_gamma = np.vectorize(lgamma, otypes=[np.float64])


@dataclass(frozen=True, eq=False)
class Figures:
    """Along a grid of m numbers of clusters, over G sites.

    Attributes
    ----------
    k : (m,) int array
    log_likelihood, bic, separation : (m,) arrays
        As in a :class:`Path`.
    held_out : (m, G) array
        As in a :class:`Path`.
    held_entropy : (m, G) array
        Entropy of the labels of each half's rows under the fit to the other half.
    entropy : (m,) array
        Entropy of the labels of all rows under the fit to all.
    evidence : (m,) array
        See :func:`evidence`.
    alike : (m, m) array
        Adjusted Rand index of the cells' labels at any two K.
    stable : (m,) array
        The same of the two halves' fits at one K.
    """

    k: IntArray
    log_likelihood: FloatArray
    bic: FloatArray
    separation: FloatArray
    held_out: FloatArray
    held_entropy: FloatArray
    entropy: FloatArray
    evidence: FloatArray
    alike: FloatArray
    stable: FloatArray

    def plain(self) -> dict[str, Any]:
        """Return the figures as lists."""
        return {item.name: getattr(self, item.name).tolist() for item in fields(self)}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Figures:
        """Return figures from what :meth:`plain` made of them."""
        return cls(**{name: np.array(value) for name, value in plain.items()})


def figures(cells: Cells, path: Path, rng: np.random.Generator) -> Figures:
    """Return the figures of a path of fits to cells."""
    halves = half_fits(cells, path.k, whitening(cells), rng)
    joints = [[log_joint(cells, fits[int(k)].clusters) for k in path.k] for fits in halves]
    held_entropy = np.zeros_like(path.held_out)
    for half, of_half in enumerate(joints):
        rows = np.where(cells.halves != half, cells.counts, 0.0)
        held_entropy += [_per_site(cells, rows * _entropies(joint)) for joint in of_half]
    labels = [path.fits[int(k)].responsibilities.argmax(axis=1) for k in path.k]
    return Figures(
        k=path.k,
        log_likelihood=path.log_likelihood,
        bic=path.bic,
        separation=path.separation,
        held_out=path.held_out,
        held_entropy=held_entropy,
        entropy=np.array(
            [cells.counts @ _entropies(log_joint(cells, path.fits[int(k)].clusters)) for k in path.k]
        ),
        evidence=np.array([evidence(cells, path.fits[int(k)]) for k in path.k]),
        alike=np.array([[_alike(cells, a, b) for b in labels] for a in labels]),
        stable=np.array(
            [_alike(cells, a.argmax(axis=1), b.argmax(axis=1)) for a, b in zip(*joints, strict=True)]
        ),
    )


def evidence(cells: Cells, found: MicroFit) -> float:
    """Return the variational bound on the log-evidence of a fit, parameters integrated out.

    Notes
    -----
    **Source**: Bishop, Pattern Recognition and Machine Learning (2006), section 10.2, at the fit's own
    responsibilities, where the bound has a closed form. Priors are those of the data themselves: a
    covariance is that within clusters, worth 2 q rows, as in the fit; means scatter as the rows do; each
    site's weights are Dirichlet, with the concentration that is likeliest.
    """
    R, n, q = found.responsibilities, cells.n_rows, cells.n_features
    masses, means, scatters = moments(cells, R, found.clusters.means)
    within = scatters.sum(axis=0) / n + 1e-12 * np.eye(q)
    prior_rows = float(np.trace(within) / np.trace(cells.total_covariance()))
    freedom = 3.0 * q + 1.0
    scale = 2.0 * q * within
    deviation = means - cells.counts @ cells.means / n
    pull = prior_rows * masses / (prior_rows + masses)
    posterior = scale + scatters + pull[:, None, None] * deviation[:, :, None] * deviation[:, None, :]
    of_rows = _multigamma(freedom + masses, q) - _multigamma(np.full_like(masses, freedom), q)
    of_rows += freedom / 2 * np.linalg.slogdet(scale)[1]
    of_rows -= (freedom + masses) / 2 * np.linalg.slogdet(posterior)[1]
    of_rows += q / 2 * np.log(prior_rows / (prior_rows + masses)) - masses * q / 2 * np.log(np.pi)
    held = np.stack([_per_site(cells, each) for each in (R * cells.counts[:, None]).T], axis=1)
    of_labels = max(_dirichlet(held, float(a)) for a in np.geomspace(0.01, 3.0, 12))
    with np.errstate(divide="ignore", invalid="ignore"):
        unsure = cells.counts @ np.where(R > 0, R * -np.log(R), 0.0).sum(axis=1)
    return float(of_rows.sum()) + of_labels + float(unsure) + lgamma(len(masses) + 1)


def _multigamma(freedom: FloatArray, q: int) -> FloatArray:
    halves: FloatArray = _gamma((freedom[:, None] - np.arange(q)) / 2).sum(axis=1)
    return halves


def _dirichlet(held: FloatArray, each: float) -> float:
    k = held.shape[1]
    of_clusters = (_gamma(each + held) - lgamma(each)).sum()
    return float(of_clusters + (lgamma(k * each) - _gamma(k * each + held.sum(axis=1))).sum())


def _entropies(joint: FloatArray) -> FloatArray:
    logs = joint - logsumexp(joint, axis=1)[:, None]
    entropies: FloatArray = -(np.exp(logs) * np.maximum(logs, -700)).sum(axis=1)
    return entropies


def _per_site(cells: Cells, rows: FloatArray) -> FloatArray:
    sums: FloatArray = np.bincount(cells.sites, weights=rows, minlength=cells.n_sites).astype(np.float64)
    return sums


def _alike(cells: Cells, a: IntArray, b: IntArray) -> float:
    rows = cells.counts.astype(np.int64)
    return float(adjusted_rand_index(contingency_table(np.repeat(a, rows), np.repeat(b, rows))))


Rule = Callable[[Figures], int]


def votes(found: Figures) -> voting.Votes:
    """Return the votes that the product takes."""
    path = Path(
        found.k,
        found.log_likelihood,
        found.bic,
        found.held_out,
        found.separation,
        np.ones_like(found.held_out),
        {},
    )
    return voting.cast(path)


def _product(rule: voting.Rule) -> Rule:
    return lambda found: voting.decide(votes(found), rule, found.held_out.shape[1])


def _vote(name: str) -> Rule:
    return lambda found: int(getattr(votes(found), name) or 1)


def _most(found: Figures, values: FloatArray) -> int:
    return int(found.k[np.argmax(values)])


def _certain(share: float) -> tuple[Rule, Rule]:
    """Return the best held-out likelihood less a share of the entropy, and fewest within one error of it."""

    def scored(found: Figures) -> tuple[int, int, int]:
        return voting.held_out_votes(found.k, found.held_out - share * found.held_entropy)

    return (lambda found: scored(found)[0]), (lambda found: scored(found)[1])


def _middle(*rules: Rule) -> Rule:
    return lambda found: int(np.median([rule(found) for rule in rules]))


def _central(*rules: Rule) -> Rule:
    """Return the vote whose labels are most like those of the other votes."""

    def choose(found: Figures) -> int:
        asked = [int(np.argmin(np.abs(found.k - rule(found)))) for rule in rules]
        return int(found.k[max(asked, key=lambda one: float(found.alike[one, asked].mean()))])

    return choose


def _central_of_range(found: Figures) -> int:
    """Return the K whose labels are most like those of all K that the held-out rows cannot tell apart."""
    low, high = votes(found).tied(found.held_out.shape[1])
    inside = np.flatnonzero((found.k >= low) & (found.k <= high))
    return int(found.k[inside[np.argmax(found.alike[np.ix_(inside, inside)].mean(axis=1))]])


BIC, HOLD, ONE_ERROR, SHARE = _vote("bic"), _vote("hold"), _vote("hold_1se"), _vote("hold_98")
CERTAIN, CERTAIN_ONE_ERROR = _certain(0.5)


def _evident(found: Figures) -> int:
    return _most(found, found.evidence)


def _evident_certain(found: Figures) -> int:
    return _most(found, found.evidence - found.entropy)


RULES: dict[str, Rule] = {
    "geometric": _product("geometric"),
    "median": _product("median"),
    "fewest": lambda found: votes(found).careful(found.held_out.shape[1]),
    "bic": BIC,
    "hold": HOLD,
    "hold_1se": ONE_ERROR,
    "hold_98": SHARE,
    "sep": _vote("sep"),
    "hold - entropy / 2": CERTAIN,
    "same, one error": CERTAIN_ONE_ERROR,
    "hold - entropy, one error": _certain(1.0)[1],
    "icl": lambda found: _most(found, -found.bic - 2 * found.entropy),
    "evidence": _evident,
    "evidence - entropy": _evident_certain,
    "median of evidence, 1se, 98": _middle(_evident, ONE_ERROR, SHARE),
    "median of bic, certain 1se, 98": _middle(BIC, CERTAIN_ONE_ERROR, SHARE),
    "median of bic, evidence, certain 1se": _middle(BIC, _evident, CERTAIN_ONE_ERROR),
    "median of bic, hold, 1se, 98, evidence": _middle(BIC, HOLD, ONE_ERROR, SHARE, _evident),
    "central vote": _central(BIC, HOLD, ONE_ERROR, SHARE, CERTAIN_ONE_ERROR),
    "central of range": _central_of_range,
    "most stable": lambda found: _most(found, np.where(found.k > 1, found.stable, -1.0)),
}
