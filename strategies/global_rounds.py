"""What methods share that ask all sites the same in every round and end with one set of centres."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedcluster_app.messages import Labelled
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.types import FloatArray, IntArray
from fedcluster_app.results.model import Model
from strategies.base import Agreement
from strategies.exchange import Exchange
from strategies.labelling import SiteModel, by_nearest, global_scores, site_scores
from strategies.rounds import Rounds, Run

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Found:
    """Global centres (K, q), and the one that each local centre of a site is in, where sites have some."""

    centers: FloatArray
    own: Mapping[str, IntArray] = field(default_factory=dict)


class GlobalRounds(Rounds[K]):
    """Rounds that end with centres, by the nearest of which every row is labelled."""

    @abstractmethod
    def question(self, run: Run[K]) -> tuple[Any, type, dict[str, int]]:
        """Return what every site is asked now, the type of its answer, and known sizes of that."""

    @abstractmethod
    def found(self, kernel: K) -> Found:
        """Return what the rounds have found; DataError ends the run."""

    def asked(self, run: Run[K]) -> Iterable[str]:
        """Return the sites that are asked in a round, by default all that have enough rows."""
        return run.agreement.roster.moments

    def warnings_of(self, kernel: K, found: FloatArray) -> tuple[str, ...]:
        """Return what the method warns of; ``found`` are the centres."""
        return ()

    def exchange(self, run: Run[K]) -> Exchange:
        """Ask all sites the same."""
        ask, answer, known = self.question(run)
        asks = dict.fromkeys(self.asked(run), ask)
        sizes = {name: {"q": run.agreement.scaling.n_features_out, **known} for name in asks}
        return Exchange(self.phase(run), asks, {type(ask): answer}, sizes=sizes)

    def models(self, run: Run[K]) -> Mapping[str, SiteModel]:
        """Give every site the centres."""
        found = self.found(run.kernel)
        clusters = by_nearest(found.centers)
        return {name: SiteModel(clusters, found.own.get(name)) for name in run.agreement.roster.members}

    def k_hat(self, models: Mapping[str, SiteModel]) -> int:
        """Return the number of centres."""
        return _clusters(models).n_components

    def model(self, agreement: Agreement, models: Mapping[str, SiteModel]) -> Model:
        """Return the centres with the scaling."""
        return Model(agreement.columns, agreement.scaling, _clusters(models))

    def scores(self, labelled: Mapping[str, Labelled], models: Mapping[str, SiteModel]) -> dict[str, float]:
        """Return the scores of the centres."""
        return global_scores(labelled, _clusters(models))

    def scores_of_site(self, answer: Labelled, model: SiteModel) -> Mapping[str, Any]:
        """Return the scores of the centres at one site."""
        return site_scores(answer, model.clusters)

    def warnings(self, run: Run[K], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Return what the method warns of."""
        return self.warnings_of(run.kernel, _clusters(models).means)


def _clusters(models: Mapping[str, SiteModel]) -> Mixture:
    """Return what all sites have."""
    return next(iter(models.values())).clusters
