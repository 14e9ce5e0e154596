"""The radius of a component's uncertainty ball, in closed form."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedcluster_app.errors import ConfigError
from fedcluster_app.mixtures.types import FloatArray

RadiusRule = Literal["published", "gem", "released"]


def uncertainty_radius(shift: FloatArray, scatter: FloatArray, rule: RadiusRule = "published") -> FloatArray:
    """Radius of the ball around each new mean M in which the server may place it.

    With D = |M - theta|^2 the squared step of the M step and s = W / Gamma the responsibility-weighted mean
    squared distance of the rows to M (so s + D is the one to the old mean theta):

    - ``gem``: sqrt(D), the largest ball in which no point has a lower expected complete log-likelihood than
      theta;
    - ``published``: sqrt(s + D) - sqrt(s), the solution of the paper's program, inside the former;
    - ``released``: sqrt(D / 2), what the authors' code returns because its bisection never takes a step.

    A variance shared by old and new model cancels from all three.

    Parameters
    ----------
    shift : (k,) array
        D, >= 0.
    scatter : (k,) array
        s, >= 0.
    rule : {"published", "gem", "released"}
        Which radius.

    Returns
    -------
    radii : (k,) array

    Raises
    ------
    ConfigError
        If `rule` is none of the three.

    Notes
    -----
    **Source**: Ibrahim, Gebraeel and Xie, arXiv:2601.21160: maximise eps (the squared radius) over eps and
    alpha >= Gamma with eps alpha^2 + (W - Q - Gamma eps) alpha + Gamma Q <= 0, Q = W + Gamma D. Deviation:
    no bisection. The vertex alpha = Gamma (D + eps) / (2 eps) is never below Gamma for eps <= D, and the
    value there is <= 0 exactly when (D - eps)^2 >= 4 eps s, which gives ``published``; it is evaluated as D
    / (sqrt(s + D) + sqrt(s)), which does not cancel.
    """
    if rule == "gem":
        return np.sqrt(shift)
    if rule == "released":
        return np.sqrt(shift / 2)
    if rule == "published":
        both = np.sqrt(scatter + shift) + np.sqrt(scatter)
        radii: FloatArray = np.divide(shift, both, out=np.zeros_like(shift), where=both > 0)
        return radii
    raise ConfigError(f"radius rule: expected published, gem or released, got {rule!r}")
