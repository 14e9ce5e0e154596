"""What methods share that leave every site a mixture of its own: models of sites, and who has none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.metrics.mixtures import effective_components
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import IntArray
from fedcluster_app.results.personal import PersonalModels
from strategies.agreement import Agreement
from strategies.labelling import SiteModel


def site_models(
    members: Collection[str], mixtures: Mapping[str, Mixture], names: Mapping[str, IntArray], graph: Graph
) -> dict[str, SiteModel]:
    """Return what every site labels its rows by: its mixture, or if it has none its neighbours' together.

    A site that has neither is left out: it is told nothing of anybody else.

    Parameters
    ----------
    members
        All sites.
    mixtures : mapping of site name to Mixture
        Of those that have one.
    names : mapping of site name to int array
        Number over all sites of each of its components.
    graph
        Over all sites.
    """
    models = {}
    for name in members:
        if name in mixtures:
            models[name] = SiteModel(mixtures[name], names=names[name])
            continue
        near = {other: w for other, w in graph.neighbours(name).items() if other in mixtures}
        if near:
            total = sum(near.values())
            parts = [(mixtures[other], w / total) for other, w in near.items()]
            union = Mixture(
                np.concatenate([part.weights * share for part, share in parts]),
                np.concatenate([part.means for part, _ in parts]),
                np.concatenate([part.covariances for part, _ in parts]),
            )
            models[name] = SiteModel(union, names=np.concatenate([names[other] for other in near]))
    return models


def model_file(agreement: Agreement, models: Mapping[str, SiteModel]) -> PersonalModels:
    """Return the model file of the sites' models."""
    mixtures = {name: model.clusters for name, model in models.items()}
    names = {name: model.numbers for name, model in models.items()}
    return PersonalModels(agreement.columns, agreement.scaling, mixtures, names)


def details_of(model: SiteModel) -> dict[str, Any]:
    """Return how many components a site has, how many in effect, and their numbers over all sites."""
    return {
        "components": model.clusters.n_components,
        "k_eff": effective_components(model.clusters.weights),
        "clusters": model.numbers.tolist(),
    }


def absence(agreement: Agreement, mixtures: Collection[str], models: Collection[str]) -> list[str]:
    """Return warnings of sites that could send a mixture and did not, and of those that have no labels."""
    found = []
    if silent := sorted(set(agreement.roster.moments) - set(mixtures)):
        found.append(f"no mixture came of sites {', '.join(silent)}; they label by their neighbours'")
    if unlabelled := sorted(set(agreement.roster.members) - set(models)):
        found.append(
            f"sites {', '.join(unlabelled)} have neither a mixture nor a neighbour with one, and so no labels"
        )
    return found
