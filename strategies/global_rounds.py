"""What methods share that ask all sites the same in every round and end with the same clusters for all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedcluster_app.messages import Labelled
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.model import Model
from strategies.base import Agreement
from strategies.labelling import SiteModel, by_nearest, global_scores, site_scores
from strategies.rounds import AskAll, Run

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Found:
    """Global clusters, and the one that each local centre of a site is in, where sites have some."""

    clusters: Mixture
    own: Mapping[str, IntArray] = field(default_factory=dict)


def centres(centers: FloatArray, own: Mapping[str, IntArray] | None = None) -> Found:
    """Return clusters that give every row to the nearest of the centres (K, q)."""
    return Found(by_nearest(centers), own or {})


class GlobalRounds(AskAll[K]):
    """Rounds that end with clusters for all sites."""

    @abstractmethod
    def found(self, kernel: K) -> Found:
        """Return what the rounds have found; DataError ends the run."""

    def warnings_of(self, kernel: K, found: FloatArray) -> tuple[str, ...]:
        """Return what the method warns of; ``found`` are the centres."""
        return ()

    def models(self, run: Run[K]) -> Mapping[str, SiteModel]:
        """Give every site the clusters."""
        found = self.found(run.kernel)
        return {name: SiteModel(found.clusters, found.own.get(name)) for name in run.agreement.roster.members}

    def k_hat(self, models: Mapping[str, SiteModel]) -> int:
        """Return the number of clusters."""
        return _clusters(models).n_components

    def model(self, agreement: Agreement, models: Mapping[str, SiteModel]) -> Model:
        """Return the clusters with the scaling."""
        return Model(agreement.columns, agreement.scaling, _clusters(models))

    def scores(self, labelled: Mapping[str, Labelled], models: Mapping[str, SiteModel]) -> dict[str, float]:
        """Return the scores of the clusters."""
        return global_scores(labelled, _clusters(models))

    def scores_of_site(self, answer: Labelled, model: SiteModel) -> Mapping[str, Any]:
        """Return the scores of the clusters at one site."""
        return site_scores(answer, model.clusters)

    def warnings(self, run: Run[K], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Return what the method warns of."""
        return self.warnings_of(run.kernel, _clusters(models).means)


def _clusters(models: Mapping[str, SiteModel]) -> Mixture:
    """Return what all sites have."""
    return next(iter(models.values())).clusters
