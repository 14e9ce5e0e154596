"""Sites by themselves: each fits a mixture to its own rows, and sends it when all is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcluster_app.gtvmin import identity
from fedcluster_app.messages import AskLocal, LocalMixture
from fedcluster_app.mixtures.mixture import Mixture
from strategies.labelling import SiteModel
from strategies.one_upload import OneUpload
from strategies.personal_rounds import PersonalRounds
from strategies.rounds import Run

Mixtures = Mapping[str, Mixture]


class Local(OneUpload[Mixture], PersonalRounds[Mixtures]):
    """The mixture of each site's own rows; those that overlap are numbered alike.

    Notes
    -----
    **Source**: the baseline "Local" of arXiv:2609.19202.
    """

    ask_type = AskLocal
    answer_type = LocalMixture
    word = "mixtures"

    def problem(self, state: Run[Mixtures], name: str, answer: Any) -> str | None:
        """Say why a mixture cannot be of the site's rows."""
        if not isinstance(answer, LocalMixture):
            return None
        problem = state.greeted(name).problem_of_mixture(answer.mixture, self.config.lonely.variance_floor)
        return problem and f"its mixture was not used: {problem}"

    def kept(self, answer: Any) -> Mixture:
        """Keep the mixture."""
        mixture: Mixture = answer.mixture
        return mixture

    def site_details(self, answer: Any) -> Mapping[str, Any]:
        """Say how many components the site counted."""
        return {"k_counted": answer.k_counted} if answer.k_counted else {}

    def models(self, run: Run[Mixtures]) -> Mapping[str, SiteModel]:
        """Return the mixtures, their components numbered alike at all sites."""
        rows = {name: run.agreement.roster.members[name].hello.rows for name in run.kernel}
        numbers = identity.identify(run.kernel, rows).labels
        return {name: SiteModel(mixture, names=numbers[name]) for name, mixture in run.kernel.items()}

    def warnings(self, run: Run[Mixtures], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Say who has nothing to label by."""
        bare = sorted(set(run.agreement.roster.members) - set(models))
        return (f"sites {', '.join(bare)} have no mixture, and so no labels",) if bare else ()
