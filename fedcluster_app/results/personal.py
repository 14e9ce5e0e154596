"""The model file of a method that leaves every site its own mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.mixtures.densities import log_joint
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results import archive
from fedcluster_app.results.archive import check_rows, check_scaling


@dataclass(frozen=True, eq=False)
class PersonalModels:
    """A mixture for every site, its components numbered alike at all of them.

    Attributes
    ----------
    columns : tuple of d str
    scaling : Scaling
        From d columns to q features.
    mixtures : mapping of site name to Mixture
        Of q features, full covariances; counts may differ.
    names : mapping of site name to (k_g,) int array
        Number of the cluster over all sites that every component is of.

    Raises
    ------
    ValueError
        If their sizes do not fit together.
    """

    columns: tuple[str, ...]
    scaling: Scaling
    mixtures: Mapping[str, Mixture]
    names: Mapping[str, IntArray]

    def __post_init__(self) -> None:
        for site, mixture in self.mixtures.items():
            check_scaling(self.scaling, len(self.columns), mixture.n_features, f"PersonalModels[{site!r}]")
            if self.names[site].shape != (mixture.n_components,):
                raise ValueError(f"PersonalModels[{site!r}].names: expected one for every component")

    def predict(
        self,
        X: FloatArray,
        columns: tuple[str, ...] | None = None,
        *,
        own_weights: bool = False,
        site: str | None = None,
    ) -> IntArray:
        """Return the cluster of every row, by the mixture of its site.

        Parameters
        ----------
        X : array of shape (n, d)
            Unscaled rows.
        columns : tuple of d str, optional
            Their columns, to be checked against the model's.
        own_weights
            Changes nothing: the weights are the site's own.
        site
            Whose rows these are.

        Returns
        -------
        int array of shape (n,)

        Raises
        ------
        DataError
            If the columns are not the model's, or it does not know the site.
        """
        check_rows(X, columns, self.columns)
        if site is None or site not in self.mixtures:
            raise DataError(
                f"new rows: every site has its own mixture; expected one of {', '.join(self.mixtures)}, got "
                f"{site or 'none'}; a new site takes part in a run first"
            )
        found = log_joint(self.scaling.apply(X), self.mixtures[site]).argmax(axis=1)
        labels: IntArray = self.names[site][found]
        return labels

    def arrays(self) -> dict[str, Any]:
        """Return the sites and their mixtures, stacked, as arrays of a model file."""
        mixtures = list(self.mixtures.values())
        counts = [mixture.n_components for mixture in mixtures]
        return {
            "sites": np.array(list(self.mixtures), dtype=np.str_),
            "members": np.repeat(np.arange(len(mixtures)), counts),
            "names": np.concatenate([self.names[name] for name in self.mixtures]),
            "weights": np.concatenate([mixture.weights for mixture in mixtures]),
            "means": np.concatenate([mixture.means for mixture in mixtures]),
            "covariances": np.concatenate([mixture.covariances for mixture in mixtures]),
        }

    def save(self, path: Path) -> None:
        """Write the models as a ``.npz`` file; the same models give the same bytes."""
        archive.save(path, self.columns, self.scaling, self.arrays())


def personal_models(columns: tuple[str, ...], scaling: Scaling, arrays: Mapping[str, Any]) -> PersonalModels:
    """Undo :meth:`PersonalModels.arrays`."""
    sites, members = arrays["sites"].tolist(), arrays["members"]
    mixtures, names = {}, {}
    for number, site in enumerate(sites):
        which = members == number
        mixtures[site] = Mixture(*(arrays[key][which] for key in ("weights", "means", "covariances")))
        names[site] = arrays["names"][which]
    return PersonalModels(columns, scaling, mixtures, names)
