"""Settings of FedGrEM, checked once: tuned, and as published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin.projection import Bounds


@dataclass(frozen=True)
class GrEMSettings:
    """Settings of FedGrEM; by default those tuned for the networks of arXiv:2609.19202. See also `PUBLISHED`.

    Attributes
    ----------
    step : {"scaled", "plain"}
        Gradients divided by a component's weight, as published, and measured by its covariance; or as they
        are: slower, and without a promise to stay stable when a component is narrow.
    step_size : float in (0, 1]
        Scaled: part of the way to the EM update that a round takes at most.
    penalty : float, >= 0
        C: the larger, the farther sites may differ and still be pooled; 0 leaves every site alone in the end.
    decay : float in [0, 1)
        kappa: how much of the penalty is inherited by the next round.
    passes : int, >= 1
        Of the server's alternation between common and own parts.
    covariances : {"estimated", "identity"}
        Estimated and pooled like the means (an extension), or the identity, which needs features in units of
        a component's standard deviation.
    bounds : Bounds
        Of the sites' mixtures.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    step: Literal["scaled", "plain"] = "scaled"
    step_size: float = 0.3
    penalty: float = 2.0
    decay: float = 0.3
    passes: int = 10
    covariances: Literal["estimated", "identity"] = "estimated"
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        if self.step not in ("scaled", "plain"):
            raise ConfigError(f"step: expected scaled or plain, got {self.step!r}")
        if not 0 < self.step_size <= 1:
            raise ConfigError(f"step size: expected more than 0 and at most 1, got {self.step_size!r}")
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ConfigError(f"penalty: expected a number of at least 0, got {self.penalty!r}")
        if not 0 <= self.decay < 1:
            raise ConfigError(f"decay: expected at least 0 and less than 1, got {self.decay!r}")
        if self.passes < 1:
            raise ConfigError(f"passes: expected at least 1, got {self.passes!r}")
        if self.covariances not in ("estimated", "identity"):
            raise ConfigError(f"covariances: expected estimated or identity, got {self.covariances!r}")


#: For networks of a dozen sites, with some forty rounds.
TUNED = GrEMSettings()
#: As in the simulations of FedGrEM's authors (with 1000 rounds).
PUBLISHED = GrEMSettings(step_size=0.95, decay=0.1, passes=20, covariances="identity")
