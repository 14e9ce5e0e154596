"""What a node must know to take its steps, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.mmd import BANDWIDTHS
from fedcluster_app.gtvmin.projection import Bounds

Discrepancy: TypeAlias = Literal["euclidean", "kl", "mmd"]
Update: TypeAlias = Literal["gradient", "em"]


@dataclass(frozen=True)
class Settings:
    """Settings of the node's steps; the defaults are those of the paper but for the guard.

    Attributes
    ----------
    discrepancy : {"mmd", "kl", "euclidean"}
    alpha : float, >= 0
        Strength of the coupling; 0 leaves every site alone.
    update : {"gradient", "em"}
        Projected gradient steps, or steps scaled by covariance and mass as in EM.
    step_size : float, > 0
        Of the gradient steps; with "em" only of the weights' steps under a Euclidean or MMD coupling.
    local_steps : int, >= 1
        Steps of a node in one round, its neighbours frozen.
    guard : bool
        Halve a step until the round's surrogate does not rise, and the way of a round until the network's
        potential does not either, although all nodes move at once (Euclidean and MMD; for KL there is no
        potential). The paper has none; "em" always has it.
    samples : int, >= 1
        Rows drawn from each neighbour in a round (KL).
    bandwidths : tuple of float, > 0
        Of the kernels (MMD), in units of the features.
    bounds : Bounds

    Raises
    ------
    ConfigError
        If a value is out of range.

    Notes
    -----
    **Source**: arXiv:2609.19202, experiments in two dimensions.
    """

    discrepancy: Discrepancy = "mmd"
    alpha: float = 1.0
    update: Update = "gradient"
    step_size: float = 0.02
    local_steps: int = 5
    guard: bool = True
    samples: int = 50
    bandwidths: tuple[float, ...] = BANDWIDTHS
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        for name, whole in (("alpha", False), ("step_size", False), ("local_steps", True), ("samples", True)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
                raise _wrong(name.replace("_", " "), "a whole number" if whole else "a number", value)
        for name, allowed in (("discrepancy", get_args(Discrepancy)), ("update", get_args(Update))):
            if getattr(self, name) not in allowed:
                raise _wrong(name, f"one of {', '.join(allowed)}", getattr(self, name))
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise _wrong("alpha", "a number of at least 0", self.alpha)
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise _wrong("step size", "a number above 0", self.step_size)
        for name in ("local_steps", "samples"):
            if getattr(self, name) < 1:
                raise _wrong(name.replace("_", " "), "at least 1", getattr(self, name))
        if not self.bandwidths or not all(np.isfinite(s) and s > 0 for s in self.bandwidths):
            raise _wrong("bandwidths", "at least one number, all above 0", self.bandwidths)

    @property
    def guarded(self) -> bool:
        """Whether steps are halved until the surrogate does not rise."""
        return self.guard or self.update == "em"

    def check_degree(self, degree: float) -> None:
        """Refuse a coupling with which a network may diverge whose largest sum of edge weights is `degree`.

        Raises
        ------
        ConfigError
            With the bound, if plain gradient steps meet a Euclidean coupling with
            2 alpha degree times the step size of 1 or more.

        Notes
        -----
        Of one local step the coupling makes θ <- (1 - 2 alpha (step size) Λ) θ with the weighted Laplacian Λ
        of the graph, whose largest eigenvalue is at most twice the largest degree. Below the bound no
        difference between sites can grow. On a bipartite graph of equal degrees, as two sites, it is sharp:
        there neighbours jump past each other, farther each time.
        """
        if self.discrepancy != "euclidean" or self.guarded or 2 * self.alpha * self.step_size * degree < 1.0:
            return
        bound = 0.5 / (self.step_size * degree)
        raise ConfigError(
            f"alpha: expected less than 1 / (2 × step size × largest degree) = {bound:.4g}, got "
            f"{self.alpha:g}: Euclidean gradient steps could diverge; use the guard, or update em"
        )


def _wrong(name: str, expected: str, got: object) -> ConfigError:
    return ConfigError(f"{name}: expected {expected}, got {got!r}")
