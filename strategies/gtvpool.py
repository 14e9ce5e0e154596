"""Evidence-gated pooling over named sites: each hears what its neighbours' own rows are like, and judges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcluster_app.config import RunConfig
from fedcluster_app.coupling import pooling_of
from fedcluster_app.data.scaling import lower_triangle
from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_release import mixture_of
from fedcluster_app.gtvmin.pool_state import status_of
from fedcluster_app.messages import AskPoolEnd, AskPoolRound, AskPoolStart, PoolEnd, PoolSummary
from fedcluster_app.results.outcome import Outcome
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.graphs import lay_graph, part_of, read_file
from strategies.gtvmin_rounds import in_units, unit_of
from strategies.gtvpool_results import conclude
from strategies.gtvpool_run import PoolRun, identity_of, models_of
from strategies.labelling import ask_labels
from strategies.mailbox import Mailbox
from strategies.plausible import TOLERANCE, greeted


class GTVPool(SiteStrategy[PoolRun]):
    """Let every site keep a mixture of its own, and hand it what its neighbours' own rows are like.

    One exchange has the components of each site alone, then come rounds, one exchange in which sites say what
    they have come to, then labels. The coordinator never pools: a site is sent its neighbours' summaries,
    and judges by itself which of their components are its own too. A site that is silent is heard as it last
    was, up to ``max-age`` rounds.

    Notes
    -----
    **Source**: this project's evidence-gated pooling (`gtvmin.pool`). A site's state stays there, for the
    mixture between two rounds tells more of its rows than the summary does; a site that has lost it begins
    anew.
    """

    def __init__(self, config: RunConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._file = read_file(config.graph.graph)
        self._settings = pooling_of(config.pool, config.min_count)

    def begin(self, agreement: Agreement) -> PoolRun:
        """Start with the graph if it needs no summaries."""
        state = PoolRun(agreement, Mailbox())
        return state if self.config.graph.graph == "nearest" else self._laid(state)

    def ask(self, state: PoolRun) -> Exchange | None:
        """Ask for summaries until the rounds are over, for what sites have come to, then for labels."""
        if state.ends is None:
            return self._ask_round(state, AskPoolRound if state.stopped_by == "running" else AskPoolEnd)
        if state.labelled is None:
            return ask_labels(state.agreement.scaling, models_of(state))
        return None

    def problem(self, state: PoolRun, name: str, answer: Any) -> str | None:
        """Say why an answer cannot be used: what is released is of a site's rows, its mixture near them."""
        if isinstance(answer, PoolEnd):
            return self._problem_of_end(state, name, answer)
        if not isinstance(answer, PoolSummary) or not answer.counts.any():
            return None
        whole = greeted(state.agreement.roster.moments[name], state.agreement.scaling)
        small = answer.counts[answer.counts > 0].min()
        if small < self.config.min_count - TOLERANCE:
            least = self.config.min_count
            return f"its components were not used: one is of {small:g} rows, min-count is {least}"
        problem = whole.problem_of_components(answer.counts, answer.means, answer.summary.covariances)
        if problem is None:
            try:
                mixture_of(answer.summary)
            except ValueError as error:
                problem = str(error)
        return problem and f"its components were not used: {problem}"

    def _problem_of_end(self, state: PoolRun, name: str, answer: PoolEnd) -> str | None:
        """Say why a mixture cannot have come of the site's rows and what its neighbours sent, or None."""
        whole = greeted(state.agreement.roster.moments[name], state.agreement.scaling)
        reach = np.sqrt(whole.rows * whole.variance)  # no row is farther from the mean of all
        heard = [part.means[part.counts > 0] for part in self._near(state, name).values()]
        points = np.concatenate([[whole.mean - reach, whole.mean + reach], *heard])
        low, high = points.min(axis=0), points.max(axis=0)
        slack = TOLERANCE * (1.0 + high - low)
        if ((answer.means < low - slack) | (answer.means > high + slack)).any():
            return "its mixture was not used: a component lies where neither it nor a neighbour has rows"
        wide = np.diagonal(answer.mixture.covariances, axis1=1, axis2=2) > np.square(1.0 + high - low)
        return "its mixture was not used: a component is wider than all rows" if wide.any() else None

    def tell(self, state: PoolRun, answers: Answers) -> PoolRun:
        """Take summaries, mixtures or labels in."""
        if state.ends is not None:
            return replace(state, labelled=answers.values)
        if state.stopped_by != "running":
            heard = {name: tuple(self._near(state, name)) for name in answers.values}
            state = replace(state, ends=answers.values, heard=heard)
            return replace(state, identity=identity_of(state))
        return self._round_over(state, answers)

    def _round_over(self, state: PoolRun, answers: Answers) -> PoolRun:
        posts = state.mailbox.posts
        if posts and not answers.values:
            return replace(state, stopped_by="unheard")
        moved = {
            name: (*state.changes.get(name, ()), value.change)
            for name, value in answers.values.items()
            if name in posts
        }
        late = any(name not in posts for name in answers.values)
        number = state.mailbox.round + 1 if posts else 0
        mailbox = state.mailbox.after(answers.values, number)
        state = replace(state, mailbox=mailbox, changes={**state.changes, **moved})
        if state.laid is None or (late and self.config.graph.graph == "nearest"):
            state = self._laid(state)
        assert state.laid is not None
        # Whoever is missing is waited for once, and longer only while others still come.
        waiting = set(state.agreement.roster.moments) - set(mailbox.posts) and late
        if not waiting and not part_of(state.laid.graph, mailbox.posts).edges:
            return replace(state, stopped_by="no edge")
        stops = {status_of(state.changes.get(name, ()), self._settings) for name in answers.values}
        if number >= self._settings.max_rounds:
            return replace(state, stopped_by="max_rounds")
        return replace(state, stopped_by="settled") if stops == {"settled"} else state

    def figures(self, state: PoolRun) -> dict[str, float]:
        """Return how the rounds go, and in the end the number of clusters over all sites."""
        if state.labelled is not None and state.identity is not None:
            return {"k_hat": state.identity.n_clusters}
        mailbox = state.mailbox
        heard = {name: post.content for name, post in mailbox.posts.items() if not mailbox.age(name)}
        rows = sum(state.agreement.roster.members[name].hello.rows for name in heard)
        if not rows:
            return {}
        return {
            "evidence": sum(value.evidence for value in heard.values()) / rows,
            "change": max(value.change for value in heard.values()),
        }

    def conclude(self, state: PoolRun) -> Outcome:
        """Return every site's mixture with all that led to it."""
        return conclude(state, self.config.min_count)

    def _laid(self, state: PoolRun) -> PoolRun:
        """Lay the graph over the sites; a file is told which of them are here."""
        roster = state.agreement.roster
        mixtures = {name: own.mixture for name, own in state.own.items()}
        unit = unit_of(state.agreement, mixtures) if mixtures else 1.0
        units = {name: in_units(mixture, unit) for name, mixture in mixtures.items()}
        laid = lay_graph(self.config, self._file, tuple(roster.members), tuple(roster.moments), units)
        for warning in laid.warnings:
            self.say(f"warning: {warning}")
        return replace(state, laid=laid)

    def _near(self, state: PoolRun, name: str) -> dict[str, Summary]:
        """Return what a site is handed: its neighbours' last summaries, if there is anything in them."""
        assert state.laid is not None
        near = state.mailbox.for_site(name, state.laid.graph, self.config.graph.max_age)
        return {other: post.summary for other, (post, _) in near.items() if post.counts.any()}

    def _ask_round(self, state: PoolRun, kind: type[AskPoolRound]) -> Exchange:
        scaling, mailbox, most = state.agreement.scaling, state.mailbox, self.config.graph.max_age
        agreed = vars(AskPoolStart(scaling.center, scaling.scale, scaling.components, scaling.score_scale))
        ending = kind is AskPoolEnd
        asks: dict[str, Any] = {}
        q = scaling.n_features_out
        sizes: dict[str, dict[str, int]] = {}
        for name in state.agreement.roster.moments:
            sizes[name] = {"q": q, "t": q * (q + 1) // 2}
            if name not in mailbox.posts:
                if not ending:
                    asks[name] = AskPoolStart(**agreed)
                continue
            if not ending and not mailbox.worth_asking(name, most):
                continue
            parts = self._near(state, name)
            asks[name] = kind(**agreed, round=mailbox.round + 1, neighbours=tuple(parts), **_listed(parts))
            sizes[name] |= {"e": len(parts), "m": sum(len(part.counts) for part in parts.values())}
        phase = "end" if ending else f"round {mailbox.round + 1}" if mailbox.posts else "start"
        answers: dict[type, type] = {
            AskPoolStart: PoolSummary,
            AskPoolRound: PoolSummary,
            AskPoolEnd: PoolEnd,
        }
        # Once there are summaries a run goes on, or ends with those it has.
        must = not mailbox.posts or self.config.quorum > 1
        return Exchange(phase, asks, answers, sizes=sizes, must_answer=must)


def _listed(parts: dict[str, Summary]) -> dict[str, Any]:
    """Return the components of all neighbours as one list, the fields of a question."""
    if not parts:
        return dict.fromkeys(("members", "counts", "means", "covariances"))
    summaries = list(parts.values())
    return {
        "members": np.repeat(np.arange(len(parts)), [len(part.counts) for part in summaries]),
        "counts": np.concatenate([part.counts for part in summaries]),
        "means": np.concatenate([part.means for part in summaries]),
        "covariances": lower_triangle(np.concatenate([part.covariances for part in summaries])),
    }
