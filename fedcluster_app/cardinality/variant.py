"""Departures from the published ASM-S, all off by default."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedcluster_app.cardinality.closed_form import anisotropy
from fedcluster_app.cardinality.criteria import criterion_of
from fedcluster_app.cardinality.tree import Criterion, SplitTree
from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray

ALPHA_UNITS = ("one", "leaves")


@dataclass(frozen=True)
class Variant:
    """What an ASM fit does beyond the published protocol.

    Attributes
    ----------
    score, covariance : str
        Split criterion, see :func:`~fedcluster_app.cardinality.criteria.criterion_of`. Merging and the result
        stay spherical.
    alpha_unit : {"one", "leaves"}
        What alphas are multiples of: 1, or :func:`leaf_unit` of the split tree at hand. On data of many
        irrelevant directions all merging can lie beyond a fixed grid; in these units merging begins near 1.
    set_aside : float, 0 or above 1
        Rows farther than this many median distances, and alone there, are left out of the fit and labelled
        afterwards; 0 keeps all. See :func:`~fedcluster_app.cardinality.outliers.within_reach`; 10 is a good
        value.
    guard : bool
        Count one component when :func:`~fedcluster_app.cardinality.guard.is_one_cluster` says so, which the
        choice by silhouette cannot.

    Raises
    ------
    ConfigError
        If a value is not one of these.
    """

    score: str = "q"
    covariance: str = "spherical"
    alpha_unit: str = "one"
    set_aside: float = 0.0
    guard: bool = False

    def __post_init__(self) -> None:
        criterion_of(self.score, self.covariance)
        if self.alpha_unit not in ALPHA_UNITS:
            raise ConfigError(
                f"alpha_unit: expected one of {', '.join(ALPHA_UNITS)}, got {self.alpha_unit!r}"
            )
        if not (self.set_aside == 0 or 1 < self.set_aside < math.inf):
            raise ConfigError(f"set_aside: expected 0 or a finite number above 1, got {self.set_aside!r}")

    @property
    def criterion(self) -> Criterion | None:
        """The split criterion; None for the published one, which has a fast engine."""
        if (self.score, self.covariance) == ("q", "spherical"):
            return None
        return criterion_of(self.score, self.covariance)


PUBLISHED = Variant()


def leaf_unit(X: FloatArray, tree: SplitTree, min_mass: float) -> float:
    """Merge ratio at which the halves of a typical leaf would join: 0.8 sqrt(median leaf anisotropy).

    Parameters
    ----------
    X : (n, d)
        Rows of the tree.
    tree : SplitTree
    min_mass : float
        Which of its leaves.

    Notes
    -----
    Cost of one eigenproblem per leaf.

    **Source**: Goyal, Tarun, Senapathi and Raman, arXiv:2609.36762, anisotropy bound; using it as the unit of
    the grid is ours.
    """
    leaves = tree.leaves(min_mass)
    return 0.8 * math.sqrt(float(np.median([anisotropy(X[tree.rows[leaf]]) for leaf in leaves])))
