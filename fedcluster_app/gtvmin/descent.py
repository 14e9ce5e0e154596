"""Local steps of a node on its surrogate: projected gradient, or scaled as in EM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcluster_app.gtvmin.blocks import Blocks, moved, squared_distance
from fedcluster_app.gtvmin.projection import Bounds, project, project_weights
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.gtvmin.surrogate import Evaluation, Surrogate, evaluate

# A step halved this often changes nothing that matters: the node stays where it is.
_MOST_HALVINGS = 20
# Rise of the surrogate, relative to its size, that is rounding.
_ROUNDING = 1e-13
# Share of the surrogate's fall that neighbours which move at the same time may take back: below 1, so that
# they cannot change places for ever; near 1, so that steps of the published size are seldom shortened.
_TAKEN_BACK = 0.9


def descend(
    surrogate: Surrogate, theta: Blocks, at_theta: Evaluation, settings: Settings
) -> tuple[Blocks, int]:
    """Take the local steps of one round.

    Parameters
    ----------
    surrogate : Surrogate
    theta : Blocks
        Feasible start.
    at_theta : Evaluation
        The surrogate there.
    settings : Settings

    Returns
    -------
    theta : Blocks
        Feasible.
    halvings : int
        How often a step, or the way of the round, had to be halved.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1. With the guard, our own, the steps start at twice the last
    accepted fraction, at most the whole step; the evaluation that accepts a step is the gradient of the next
    one. Then the way of the whole round is shortened where neighbours, who move at the same time, could
    overshoot past each other (`_shortened`).
    """
    start, here = theta, at_theta
    fraction, halvings = 1.0, 0
    for number in range(settings.local_steps):
        path = (_em_path if settings.update == "em" else _gradient_path)(theta, here, surrogate, settings)
        if settings.guarded:
            first = min(1.0, 2.0 * fraction)
            stepped, here, fraction = _search(surrogate, theta, here, path, first)
            halvings += round(np.log2(first / fraction))
            if stepped is theta:  # every further step would be the same
                break
            theta = stepped
        else:
            theta = path(1.0)
            if number + 1 < settings.local_steps:
                here = evaluate(surrogate, theta)
    if settings.guarded and surrogate.shift is not None:
        theta, further = _shortened(surrogate, start, at_theta, theta, here)
        halvings += further
    return theta, halvings


def gradient_mapping(theta: Blocks, at_theta: Evaluation, step_size: float, bounds: Bounds) -> float:
    """Length of (theta - projected gradient step) / step size: 0 exactly where no step moves the node."""
    stepped = project(moved(theta, at_theta.gradient, -step_size), bounds)
    return float(np.sqrt(squared_distance(theta, stepped))) / step_size


def _search(
    surrogate: Surrogate, theta: Blocks, at_theta: Evaluation, path: Callable[[float], Blocks], start: float
) -> tuple[Blocks, Evaluation, float]:
    """First point along the path, halving from `start`, at which the surrogate has not risen."""
    highest = at_theta.value + _ROUNDING * max(1.0, abs(at_theta.value))
    fraction = start
    for _ in range(_MOST_HALVINGS):
        candidate = path(fraction)
        there = evaluate(surrogate, candidate)
        if there.value <= highest:
            return candidate, there, fraction
        fraction *= 0.5
    return theta, at_theta, fraction


def _shortened(
    surrogate: Surrogate, start: Blocks, at_start: Evaluation, end: Blocks, at_end: Evaluation
) -> tuple[Blocks, int]:
    """Halve the way of a round until the potential must fall although all neighbours move at once.

    Both discrepancies are squared distances |a - b|² in a Hilbert space (Euclidean: of the components as
    they are matched). With a0 and b0 the ends of an edge at the start of the round,
    |a - b|² <= |a - b0|² + |b - a0|² - |a0 - b0|² + |a - a0|² + |b - b0|². Summed up, the potential falls by
    at least the falls of all surrogates less alpha times all shifts. So every node sees to it by itself that
    its shift takes back no more than a share of its own fall; the set of feasible points is convex, so a
    shortened way ends in it. KL has no such bound.
    """
    way, theta, value = moved(end, start, -1.0), end, at_end.value
    rounding = _ROUNDING * max(1.0, abs(at_start.value))
    assert surrogate.shift is not None
    for halvings in range(_MOST_HALVINGS):
        if surrogate.alpha * surrogate.shift(theta) <= _TAKEN_BACK * (at_start.value - value) + rounding:
            return theta, halvings
        theta = moved(start, way, 0.5 ** (halvings + 1))
        value = evaluate(surrogate, theta).value
    return start, _MOST_HALVINGS


def _gradient_path(
    theta: Blocks, at: Evaluation, surrogate: Surrogate, settings: Settings
) -> Callable[[float], Blocks]:
    """Projected gradient step by fraction of the step size."""
    step_size, bounds = settings.step_size, settings.bounds
    return lambda fraction: project(moved(theta, at.gradient, -fraction * step_size), bounds)


def _em_path(
    theta: Blocks, at: Evaluation, surrogate: Surrogate, settings: Settings
) -> Callable[[float], Blocks]:
    """Step scaled by covariance and mass, by fraction.

    On a likelihood alone mu - (Sigma / N) g is the mean of EM, Sigma - (2 / N) Sigma G Sigma its covariance
    about the old mean. A quadratic pull adds its curvature c to the inverse of that scaling, N Sigma^-1 + c I
    for the means: their step is then the exact minimum under a Gaussian prior. The weights of EM are the
    masses; these do not know of a pull in closed form, so with one the weights take a gradient step.
    """
    bounds, c = settings.bounds, at.curvature
    mass = np.maximum(at.mass, bounds.weight_floor)[:, None]
    if surrogate.pull is None:
        target = at.mass / at.mass.sum()
    else:
        target = theta.weights - at.gradient.weights / (1.0 / settings.step_size + c)
    values, basis = np.linalg.eigh(theta.covariances)
    back = basis.transpose(0, 2, 1)
    spread = values / (mass + c * values)
    means = (basis @ (spread[:, :, None] * (back @ at.gradient.means[:, :, None])))[:, :, 0]
    product = 2.0 * values[:, :, None] * values[:, None, :]
    spreads = product / (mass[:, :, None] + c * product)
    covariances = basis @ (spreads * (back @ at.gradient.covariances @ basis)) @ back
    weights = project_weights(target, bounds.weight_floor) - theta.weights
    direction = Blocks(weights, -means, -covariances)
    return lambda fraction: project(moved(theta, direction, fraction), bounds)
