"""GTVMin over named sites: personal mixtures along the edges of a graph; the server is a mailbox."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcluster_app.config import RunConfig
from fedcluster_app.coupling import bandwidths_of, bounds_of, settings_of
from fedcluster_app.gtvmin import alpha_path
from fedcluster_app.gtvmin.fading import fade
from fedcluster_app.gtvmin.identity import identify
from fedcluster_app.gtvmin.progress import Progress, Stop, advance, status
from fedcluster_app.gtvmin.projection import Bounds, infeasible
from fedcluster_app.messages import AskGTVRound, AskGTVStart, GTVMixture
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.results.outcome import Outcome
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.graphs import lay_graph, part_of, read_file
from strategies.gtvmin_results import conclude, models_of
from strategies.gtvmin_rounds import GTVRun, Stage, report_of, rescaled, unit_of
from strategies.labelling import ask_labels
from strategies.mailbox import Mailbox
from strategies.plausible import greeted

# Rounds after which fading edges are weighed again.
FADE_EVERY = 5
# Rounds at the chosen alpha that may be worse than the best before the run ends.
PATIENCE = 3
# The paper's, where no rows can be held out to choose by.
DEFAULT_ALPHA = 1.0
# Bounds that bind nothing: a site starts in a unit of its own.
SMALLEST, UNBOUND = 1e-150, 1e150


class GTVMin(SiteStrategy[GTVRun]):
    """Let every site keep a mixture of its own, and hand it those of its neighbours.

    One exchange has the mixtures that sites start with, then come rounds, then labels. The coordinator never
    averages: a site is sent its own last mixtures and its neighbours', nothing else. Of several alphas each
    gets rounds from the same start, up to where they only get worse, and the mixtures of that round are taken
    in which rows held out were told best. A site that is silent is heard as it last was, ever more softly, up
    to ``max-age`` rounds; when it is back it goes on from there.

    Notes
    -----
    **Source**: arXiv:2609.19202, Algorithm 1. Deviations: alpha is chosen by held-out rows (the paper: by
    true classes of homogeneous data), and a site's state travels with the question, so that a site needs no
    memory.
    """

    def __init__(self, config: RunConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._file = read_file(config.graph.graph)

    def begin(self, agreement: Agreement) -> GTVRun:
        """Start at the first alpha, with the graph if it needs no mixtures."""
        given = self.config.gtv.alphas
        alphas = tuple(sorted(alpha_path.AUTO if given is None else given))
        state = GTVRun(agreement, Stage(alphas[0], Progress(), Mailbox()), alphas=alphas)
        return state if self.config.graph.graph == "nearest" else self._laid(state)

    def ask(self, state: GTVRun) -> Exchange | None:
        """Ask for what sites start with, for rounds until they are over, then for labels."""
        if state.identity is None:
            return self._ask_round(state)
        if state.labelled is None:
            return ask_labels(state.agreement.scaling, models_of(state))
        return None

    def problem(self, state: GTVRun, name: str, answer: Any) -> str | None:
        """Say why an answer cannot be used: mixtures lie where steps can lead to, scores where rows can."""
        if not isinstance(answer, GTVMixture):
            return None
        problem = self._problem_of(state, name, answer)
        return problem and f"its mixture was not used: {problem}"

    def _problem_of(self, state: GTVRun, name: str, answer: GTVMixture) -> str | None:
        begun, rows = state.starts.get(name), state.agreement.roster.members[name].hello.rows
        if (begun is None) != (answer.k_counted > 0):
            return "it is no start" if begun is None else "it is a start, after the start"
        if answer.held_out_rows not in ((0, rows) if begun is None else (0, begun.held_out_rows)):
            return f"{answer.held_out_rows} rows held out"
        if begun is None:
            whole = greeted(state.agreement.roster.moments[name], state.scaling)
            reach = (1 + len(answer.weights)) * math.sqrt(whole.variance.sum()) + SMALLEST
            if np.linalg.norm(answer.weights @ answer.means - whole.mean) > reach:
                return "its mean is far from that of the site's rows"
            return infeasible(answer.mixture, Bounds(self._bounds.weight_floor, UNBOUND, SMALLEST, UNBOUND))
        highest = -answer.means.shape[1] / 2 * math.log(2 * math.pi * self._bounds.variance_floor)
        if answer.held_out > answer.held_out_rows * highest:
            return "no rows can be as likely as it says of those held out"
        return infeasible(answer.mixture, self._bounds)

    def tell(self, state: GTVRun, answers: Answers) -> GTVRun:
        """Take mixtures or labels in."""
        if state.identity is not None:
            return replace(state, labelled=answers.values)
        starts = {name: value for name, value in answers.values.items() if name not in state.starts}
        values = {name: value for name, value in answers.values.items() if name in state.starts}
        unit = 1.0
        if not state.starts and starts:
            unit = unit_of(state.agreement, {name: start.mixture for name, start in starts.items()})
            state = replace(state, unit=unit)
        starts = {name: rescaled(value, unit, self._bounds) for name, value in starts.items()}
        if state.starts and not answers.values:
            return self._over(state, "unheard")
        state = self._round_over(state, values, starts)
        return self._weighed(state if self._status(state) == "running" else self._after_stage(state))

    def _round_over(
        self, state: GTVRun, values: Mapping[str, GTVMixture], starts: Mapping[str, GTVMixture]
    ) -> GTVRun:
        """Take in what sites sent in a round, and what others start with."""
        stage = state.stage
        number = stage.mailbox.round + 1 if stage.mailbox.posts else 0
        progress = stage.progress
        if values:
            reports = {name: report_of(value) for name, value in values.items()}
            progress = advance(progress, reports, stage.alpha)
        stage = Stage(stage.alpha, progress, stage.mailbox.after({**values, **starts}, number))
        state = replace(state, stage=stage, last=stage, starts={**state.starts, **starts})
        if state.laid is None or (starts and self.config.graph.graph == "nearest"):
            state = self._laid(state)
        able = part_of(state.laid.graph, state.agreement.roster.moments) if state.laid else None
        scored = any(start.held_out_rows for start in starts.values())
        if not number and len(state.alphas) > 1 and not (scored and able and able.edges):
            # Nothing can tell them apart, or nothing depends on them.
            alpha = DEFAULT_ALPHA if DEFAULT_ALPHA in state.alphas else state.alphas[0]
            return replace(state, alphas=(alpha,), stage=replace(stage, alpha=alpha))
        return state.with_scores() if values else state

    def figures(self, state: GTVRun) -> dict[str, float]:
        """Return how the rounds go, and in the end the number of clusters over all sites."""
        if state.labelled is not None and state.identity is not None:
            return {"k_hat": state.identity.n_clusters}
        stage = state.last or state.stage
        figures = {"alpha": stage.alpha, "held_out": state.log_density(stage.held_out)}
        if stage.progress.trace:
            last = stage.progress.trace[-1]
            figures |= {"potential": last.potential, "disagreement": last.coupling, "mapping": last.mapping}
        return {name: value for name, value in figures.items() if np.isfinite(value)}

    def conclude(self, state: GTVRun) -> Outcome:
        """Return every site's mixture with all that led to it."""
        return conclude(state, self.config)

    @property
    def _bounds(self) -> Bounds:
        return bounds_of(self.config.gtv)

    def _laid(self, state: GTVRun) -> GTVRun:
        """Lay the graph over the sites; a file is told which of them are here."""
        roster = state.agreement.roster
        laid = lay_graph(
            self.config, self._file, tuple(roster.members), tuple(roster.moments), state.mixtures
        )
        q = state.agreement.scaling.n_features_out
        settings_of(self.config.gtv, state.alphas[-1], q).check_degree(laid.graph.max_degree)
        for warning in laid.warnings:
            self.say(f"warning: {warning}")
        return replace(state, laid=laid, graph=laid.graph)

    def _weighed(self, state: GTVRun) -> GTVRun:
        """Let edges fade between unlike sites: every few rounds, and when a site has come."""
        if self.config.gtv.edge_weights == "graph" or state.laid is None or state.graph is None:
            return state
        if state.stage.progress.round % FADE_EVERY and set(state.graph.names) == set(state.mixtures):
            return state
        return self._faded(state)

    def _faded(self, state: GTVRun) -> GTVRun:
        assert state.laid is not None
        base = part_of(state.laid.graph, state.mixtures)
        bandwidths = bandwidths_of(state.agreement.scaling.n_features_out)
        faded = fade(base, state.mixtures, state.rows, bandwidths)
        return replace(state, graph=faded.graph, off=faded.off)

    def _status(self, state: GTVRun) -> str:
        gtv, best, done = self.config.gtv, state.best, state.stage.progress.round
        if state.chosen and best is not None and done >= best.progress.round + PATIENCE:
            return "best"
        most = gtv.rounds if state.chosen or len(state.alphas) == 1 else gtv.path_rounds
        return status(state.stage.progress, Stop(most, gtv.tolerance, gtv.settled))

    def _after_stage(self, state: GTVRun) -> GTVRun:
        """Go on to the next alpha, then with the best one for as long as it gets better, and to the end."""
        if len(state.alphas) == 1 or state.chosen:
            return self._over(state, self._status(state))
        tried = alpha_path.at_their_best(state.seen)
        if len(tried) < len(state.alphas) and not alpha_path.is_over(tried):
            return state.anew(state.alphas[len(tried)])
        return replace(state, chosen=True).anew(tried[alpha_path.best_of(tried)].alpha)

    def _over(self, state: GTVRun, stopped_by: str) -> GTVRun:
        """End the rounds: number the components of the mixtures that stay."""
        state = replace(state.at_best() if state.chosen else state, stopped_by=stopped_by)
        if self.config.gtv.edge_weights == "mmd":
            state = self._faded(state)
        return replace(state, identity=identify(state.mixtures, state.rows))

    def _ask_round(self, state: GTVRun) -> Exchange:
        scaling, mailbox, most = state.scaling, state.stage.mailbox, self.config.graph.max_age
        agreed = vars(AskGTVStart(scaling.center, scaling.scale, scaling.components, scaling.score_scale))
        asks: dict[str, Any] = {}
        for name in state.agreement.roster.moments:
            if name not in mailbox.posts:
                asks[name] = AskGTVStart(**agreed)
                continue
            if not mailbox.worth_asking(name, most):
                continue
            assert state.graph is not None
            near = mailbox.for_site(name, state.graph, most)
            posts = [mailbox.posts[name].content, *(post for post, _ in near.values())]
            asks[name] = AskGTVRound(
                **agreed,
                round=mailbox.round + 1,
                turn=state.turn,
                alpha=state.stage.alpha,
                neighbours=tuple(near),
                edges=np.array([weight for _, weight in near.values()]) if near else None,
                **stacked([post.mixture for post in posts]),
            )
        q = scaling.n_features_out
        phase = f"round {mailbox.round + 1}" if mailbox.posts else "start"
        answers: dict[type, type] = {AskGTVStart: GTVMixture, AskGTVRound: GTVMixture}
        size = {"q": q, "t": q * (q + 1) // 2}
        # Once there are mixtures a run goes on, or ends with those it has.
        must = not mailbox.posts or self.config.quorum > 1
        return Exchange(phase, asks, answers, sizes=dict.fromkeys(asks, size), must_answer=must)
