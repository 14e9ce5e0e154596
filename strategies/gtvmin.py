"""GTVMin over named sites: personal mixtures along the edges of a graph; the server is a mailbox."""

from __future__ import annotations

from collections.abc import Sequence
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
from fedcluster_app.gtvmin.starts import within_variance
from fedcluster_app.messages import AskGTVRound, AskGTVStart, GTVModels
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.results.outcome import Outcome
from strategies.base import Agreement, SiteStrategy
from strategies.exchange import Answers, Exchange
from strategies.graphs import lay_graph, part_of, read_file
from strategies.gtvmin_results import conclude, site_models
from strategies.gtvmin_rounds import GTVRun, Stage, report_of, rescaled, unit_of
from strategies.labelling import ask_labels
from strategies.mailbox import Mailbox
from strategies.plausible import greeted

# Rounds after which fading edges are weighed again.
FADE_EVERY = 5
# Rounds at the chosen alpha that may be worse than the best before the run ends.
PATIENCE = 3


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
        self._file = read_file(config.gtv.graph)

    def begin(self, agreement: Agreement) -> GTVRun:
        """Start at the first alpha, with the graph if it needs no mixtures."""
        state = GTVRun(agreement, Stage(self._alphas[0], Progress(), Mailbox()))
        return state if self.config.gtv.graph == "nearest" else self._laid(state)

    def ask(self, state: GTVRun) -> Exchange | None:
        """Ask for what sites start with, for rounds until they are over, then for labels."""
        if state.identity is None:
            return self._ask_round(state)
        if state.labelled is None:
            return ask_labels(state.agreement.scaling, site_models(state))
        return None

    def problem(self, state: GTVRun, name: str, answer: Any) -> str | None:
        """Say why a neighbour should not see a mixture: it must lie where the steps can lead to."""
        if not isinstance(answer, GTVModels):
            return None
        bounds = self._bounds
        if answer.k_counted:
            bounds = replace(bounds, variance_floor=np.finfo(float).tiny)
            moments = state.agreement.roster.moments[name]
            spread = float(greeted(moments, state.agreement.scaling).variance.mean())
            within = within_variance(answer.mixtures[0])
            if within > 2 * spread + bounds.weight_floor:
                return f"its mixtures were not used: variance {within:.3g} inside, {spread:.3g} of rows"
        found = (infeasible(mixture, bounds) for mixture in answer.mixtures)
        return next((f"its mixtures were not used: {reason}" for reason in found if reason), None)

    def tell(self, state: GTVRun, answers: Answers) -> GTVRun:
        """Take mixtures or labels in."""
        if state.identity is not None:
            return replace(state, labelled=answers.values)
        stage, values = state.stage, answers.values
        unit = 1.0 if stage.mailbox.posts else unit_of(state, values)
        starts = {name: value for name, value in values.items() if value.k_counted}
        values = {**values, **{name: rescaled(value, unit, self._bounds) for name, value in starts.items()}}
        number = stage.mailbox.round + 1 if stage.mailbox.posts else 0
        counted = {name: value.k_counted for name, value in starts.items()}
        reports = {name: report_of(value) for name, value in values.items() if not value.k_counted}
        progress = advance(stage.progress, reports, stage.alpha) if reports else stage.progress
        stage = Stage(stage.alpha, progress, stage.mailbox.after(values, number))
        agreement = replace(state.agreement, scaling=state.agreement.scaling.in_units(unit))
        state = replace(state, agreement=agreement, stage=stage, last=stage)
        if reports:
            state = state.with_scores()
        begun = {name: values[name] for name in starts}
        state = replace(state, k_counted={**state.k_counted, **counted}, starts={**state.starts, **begun})
        if state.laid is None:
            state = self._laid(state)
        return self._weighed(state if self._status(state) == "running" else self._after_stage(state))

    def figures(self, state: GTVRun) -> dict[str, float]:
        """Return how the rounds go, and in the end the number of clusters over all sites."""
        if state.labelled is not None and state.identity is not None:
            return {"k_hat": state.identity.n_clusters}
        stage = state.last or state.stage
        figures = {"alpha": stage.alpha, "held_out": stage.held_out.mean}
        if stage.progress.trace:
            last = stage.progress.trace[-1]
            figures |= {"potential": last.potential, "disagreement": last.coupling, "mapping": last.mapping}
        return {name: value for name, value in figures.items() if np.isfinite(value)}

    def conclude(self, state: GTVRun) -> Outcome:
        """Return every site's mixture with all that led to it."""
        return conclude(state, self.config, self._status(state))

    @property
    def _bounds(self) -> Bounds:
        return bounds_of(self.config.gtv)

    @property
    def _alphas(self) -> Sequence[float]:
        """Strengths to try, the weakest first."""
        given = self.config.gtv.alphas
        return sorted(alpha_path.AUTO if given is None else given)

    def _laid(self, state: GTVRun) -> GTVRun:
        """Lay the graph over the sites; a file is told which of them are here."""
        laid = lay_graph(self.config, self._file, tuple(state.agreement.roster.members), state.mixtures)
        q = state.agreement.scaling.n_features_out
        settings_of(self.config.gtv, max(self._alphas), q).check_degree(laid.graph.max_degree)
        return replace(state, laid=laid, graph=laid.graph)

    def _weighed(self, state: GTVRun) -> GTVRun:
        """Let edges fade between unlike sites, every few rounds."""
        if self.config.gtv.edge_weights == "graph" or state.stage.progress.round % FADE_EVERY:
            return state
        assert state.laid is not None
        rows = {name: state.agreement.roster.members[name].hello.rows for name in state.mixtures}
        base, bandwidths = (
            part_of(state.laid.graph, state.mixtures),
            bandwidths_of(state.agreement.scaling.n_features_out),
        )
        faded = fade(base, state.mixtures, rows, bandwidths)
        return replace(state, graph=faded.graph, off=faded.off)

    def _status(self, state: GTVRun) -> str:
        gtv, best = self.config.gtv, state.best
        if state.chosen and best is not None and state.stage.progress.round >= best.progress.round + PATIENCE:
            return "best"
        most = gtv.rounds if state.chosen or len(self._alphas) == 1 else gtv.path_rounds
        return status(state.stage.progress, Stop(most, gtv.tolerance, gtv.settled))

    def _after_stage(self, state: GTVRun) -> GTVRun:
        """Go on to the next alpha, then at the best one while it still gets better, and to the end."""
        if state.chosen:
            return self._identified(replace(state, stage=state.best or state.stage))
        tried = alpha_path.at_their_best(state.seen)
        if len(tried) < len(self._alphas) and not alpha_path.is_over(tried):
            return replace(state, stage=state.anew(self._alphas[len(tried)]))
        best = state.best
        if len(self._alphas) == 1 or best is None:
            return self._identified(state)
        state = replace(state, stage=best.later(state.stage.mailbox.round), chosen=True)
        return state if self._status(state) == "running" else self._identified(state)

    def _identified(self, state: GTVRun) -> GTVRun:
        rows = {name: state.agreement.roster.members[name].hello.rows for name in state.mixtures}
        return replace(state, identity=identify(state.mixtures, rows))

    def _ask_round(self, state: GTVRun) -> Exchange:
        scaling, mailbox = state.agreement.scaling, state.stage.mailbox
        agreed = vars(AskGTVStart(scaling.center, scaling.scale, scaling.components, scaling.score_scale))
        asks: dict[str, Any] = {}
        for name in state.agreement.roster.moments:
            if name not in mailbox.posts:
                asks[name] = AskGTVStart(**agreed)
                continue
            assert state.graph is not None
            near = mailbox.for_site(name, state.graph, self.config.gtv.max_age)
            models = [mailbox.posts[name].content, *(content for content, _ in near.values())]
            asks[name] = AskGTVRound(
                **agreed,
                round=mailbox.round + 1,
                alpha=state.stage.alpha,
                neighbours=tuple(near),
                edges=np.array([weight for _, weight in near.values()]) if near else None,
                **stacked([mixture for model in models for mixture in model.mixtures]),
            )
        q, p = scaling.n_features_out, 1 + self.config.gtv.folds
        phase = f"round {mailbox.round + 1}" if mailbox.posts else "start"
        answers: dict[type, type] = {AskGTVStart: GTVModels, AskGTVRound: GTVModels}
        size = {"q": q, "t": q * (q + 1) // 2, "p": p}
        return Exchange(phase, asks, answers, sizes=dict.fromkeys(asks, size))
