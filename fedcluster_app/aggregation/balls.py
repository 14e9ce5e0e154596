"""What a site sends and keeps: uncertainty balls in the rounds, component summaries at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcluster_app.mixtures.types import FloatArray, IntArray

_Number = TypeVar("_Number", np.float64, np.int64)


@dataclass(frozen=True, eq=False)
class Balls:
    """One site's upload in a round: around each mean, the ball in which the server may move it.

    Parameters
    ----------
    means : (k, d) array
        Centres of the balls, the maximisers of the site's M step.
    radii : (k,) array
        Radii, >= 0, in the unit of the features.
    """

    means: FloatArray
    radii: FloatArray


@dataclass(frozen=True, eq=False)
class ClientStep:
    """A site's work in one round: the upload, and what stays at home.

    Parameters
    ----------
    balls : Balls
        What is sent.
    responsibilities : (n, k) array
        Of the last E step; never leaves the site.
    mass : (k,) array
        Column sums of `responsibilities`, the soft row counts on which a minimum count can be checked.
    """

    balls: Balls
    responsibilities: FloatArray
    mass: FloatArray


@dataclass(frozen=True, eq=False)
class Components:
    """One site's last upload: its final means and the hard summaries of the rows nearest to each.

    Parameters
    ----------
    means : (k, d) array
        Means after one EM step beyond the last round.
    counts : (k,) int array
        Rows nearest to each mean; 0 for an empty or withheld component.
    centers : (k, d) array
        Means of those rows (anything finite where the count is 0).
    scatters : (k,) array
        Mean squared distance of those rows to their centre (summed over features).
    spread : float
        The site's standard deviation per dimension.
    rows : int
        The site's number of rows.
    """

    means: FloatArray
    counts: IntArray
    centers: FloatArray
    scatters: FloatArray
    spread: float
    rows: int


def site_of_component(parts: Mapping[str, FloatArray]) -> IntArray:
    """Position of its site for every component of the stacked `parts` (site -> (k, ...))."""
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])


def split_by_site(stacked: NDArray[_Number], parts: Mapping[str, FloatArray]) -> dict[str, NDArray[_Number]]:
    """Cut an array of all components back into the sites' shares, in the order of `parts`."""
    ends = np.cumsum([len(part) for part in parts.values()])
    return dict(zip(parts, np.split(stacked, ends[:-1]), strict=True))
