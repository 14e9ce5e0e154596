"""What methods share that ask sites in rounds and leave each with a mixture of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fedcluster_app.messages import Labelled
from fedcluster_app.results.personal import PersonalModels
from strategies.base import Agreement
from strategies.labelling import SiteModel, personal_scores, personal_site_scores
from strategies.personal import details_of, model_file
from strategies.rounds import Rounds, Run

K = TypeVar("K")


class PersonalRounds(Rounds[K]):
    """Rounds that end with a mixture for every site, its components numbered alike at all of them."""

    def k_hat(self, models: Mapping[str, SiteModel]) -> int:
        """Return how many numbers there are."""
        return len({number for model in models.values() for number in model.numbers.tolist()})

    def model(self, agreement: Agreement, models: Mapping[str, SiteModel]) -> PersonalModels:
        """Return the mixtures of all sites."""
        return model_file(agreement, models)

    def scores(self, labelled: Mapping[str, Labelled], models: Mapping[str, SiteModel]) -> dict[str, float]:
        """Return scores by the numbers of the clusters, and means over sites."""
        return personal_scores(labelled, models)

    def scores_of_site(self, answer: Labelled, model: SiteModel) -> Mapping[str, Any]:
        """Return what a site's mixture is like, and its scores."""
        return {**details_of(model), **personal_site_scores(answer, model.clusters)}

    def warnings(self, run: Run[K], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Return what the method warns of."""
        return ()
