"""Choosing merge ratio and minimum mass of ASM-S on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.tree import VARIANCE_FLOOR, Moments, split_tree
from fedcluster_app.metrics.silhouette import silhouette_from_distances
from fedcluster_app.mixtures.densities import log_joint
from fedcluster_app.mixtures.distances import squared_distances
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray

#: Merge ratios (alpha) and minimum masses (tau) tried by default.
ALPHAS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
MIN_MASSES = (5, 10, 20, 40)
#: Share of the rows that is held out, and the least number of them worth a selection.
HELD_OUT_SHARE, FEWEST_HELD_OUT = 0.2, 3
#: A larger table is represented by this many of its rows, its held-out part by this many of them.
MOST_ROWS, MOST_SCORED = 30_000, 2_000
#: Score of a cell that has no silhouette.
NO_SCORE = -1.0


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen cell of the grid, with the fit that was scored (on the train part).

    Attributes
    ----------
    alpha, min_mass : float, int
        The chosen pair.
    score : float
        Its mean silhouette on the held-out rows, -1 when no cell has one.
    components : Moments
        Its components.
    root_variance : float
        Per-dimension variance of the train part.
    scores, counts : (t, a)
        Score and number of components of every cell; t minimum masses by a alphas, both increasing.
    """

    alpha: float
    min_mass: int
    score: float
    components: Moments
    root_variance: float
    scores: FloatArray
    counts: IntArray


def hold_out(n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Train and held-out row numbers of a table of n rows; at most 30000 together, a fifth held out."""
    drawn = rng.permutation(n)[:MOST_ROWS]
    held = round(HELD_OUT_SHARE * len(drawn))
    return drawn[held:], drawn[:held]


def select(
    train: FloatArray,
    held_out: FloatArray,
    *,
    alphas: Sequence[float] = ALPHAS,
    min_masses: Sequence[int] = MIN_MASSES,
    delta: float = 1.0,
    em_steps: int = 15,
    order: str = "ratio",
) -> Selection:
    """Fit every cell of the grid to the train part and keep the best by silhouette of the held-out rows.

    A cell scores -1 when it has one component, gives one label to all held-out rows, or has more components
    than half of the scored rows (two are always allowed). Of equals wins the one with fewer components, then
    the larger alpha, then the larger minimum mass.

    Parameters
    ----------
    train : (n, d), n >= 1
    held_out : (m, d), m >= 1
        In random order; the first 2000 are scored.
    alphas : increasing, > 0
    min_masses : increasing, >= 1
    delta, em_steps
        See :func:`~fedcluster_app.cardinality.tree.split_tree`.
    order : {"ratio", "distance"}
        See :func:`~fedcluster_app.cardinality.merge.merge_path`.

    Returns
    -------
    Selection

    Notes
    -----
    One split tree serves all minimum masses and one merge path all alphas; both are exact. The held-out rows'
    distances are computed once, their silhouette once per distinct labeling.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, selection on 20 % held-out rows by
    silhouette. Reconstructed: the grid, the ties, the cap on scored rows. The limit of half the scored rows
    is ours: so fine a partition is costly to score and never a useful count.
    """
    tree = split_tree(train, min_masses[0], delta=delta, em_steps=em_steps)
    root_variance = float(tree.moments.variances[0])
    judge = _Judge(held_out[:MOST_SCORED], root_variance)
    paths = [merge_path(tree.leaf_moments(min_mass), alphas, order) for min_mass in min_masses]
    scores = np.array([judge.scores(path) for path in paths])
    counts = np.array([[len(components.counts) for components in path] for path in paths])
    cells = ((t, a) for t in range(len(min_masses)) for a in range(len(alphas)))
    t, a = max(cells, key=lambda cell: (scores[cell], -counts[cell], alphas[cell[1]], min_masses[cell[0]]))
    return Selection(
        alpha=alphas[a],
        min_mass=min_masses[t],
        score=float(scores[t, a]),
        components=paths[t][a],
        root_variance=root_variance,
        scores=scores,
        counts=counts,
    )


def mixture_of(components: Moments, root_variance: float) -> Mixture:
    """Components as a spherical mixture, which labels new rows.

    A component of equal rows has no density: variances are at least 1e-12 of that of the whole table, the
    floor of the split's EM (of 1 when the table itself has no spread).
    """
    floor = VARIANCE_FLOOR * (root_variance or 1.0)
    weights = components.counts / components.counts.sum()
    return Mixture(weights, components.means, np.maximum(components.variances, floor))


class _Judge:
    """Scores components by the silhouette of the labels they give to a fixed set of rows."""

    def __init__(self, rows: FloatArray, root_variance: float) -> None:
        self.rows, self.root_variance = rows, root_variance
        self.distances = np.sqrt(squared_distances(rows, rows))
        self.known: dict[bytes, float] = {}

    def scores(self, path: Sequence[Moments]) -> list[float]:
        """Scores of the components along a merge path."""
        return [self._score(components) for components in path]

    def _score(self, components: Moments) -> float:
        if not 1 < len(components.counts) <= max(2, len(self.rows) / 2):
            return NO_SCORE
        joint = log_joint(self.rows, mixture_of(components, self.root_variance))
        used, labels = np.unique(joint.argmax(axis=1), return_inverse=True)
        if len(used) < 2:
            return NO_SCORE
        key = labels.tobytes()
        if key not in self.known:
            self.known[key] = float(silhouette_from_distances(self.distances, labels).mean())
        return self.known[key]
