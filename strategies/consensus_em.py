"""Consensus EM over named sites: one mixture for all, by averages between neighbours, through a mailbox."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedcluster_app.config import RunConfig
from fedcluster_app.gtvmin.blocks import blocks, mixture_of
from fedcluster_app.gtvmin.consensus_em import Message
from fedcluster_app.gtvmin.consensus_gains import Gains, gains
from fedcluster_app.gtvmin.consensus_moments import parameters_from
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.gtvmin.projection import project
from fedcluster_app.gtvmin.starts import Start
from fedcluster_app.messages import AskConsensusRound, ConsensusSums
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.messages.networks import mean_of
from fedcluster_app.mixtures.mixture import Mixture
from strategies.aligned_rounds import AlignedRounds, Begun
from strategies.base import Agreement
from strategies.consensus_posts import Sent, mean_likelihood, problem_of_filter, problem_of_own
from strategies.graphs import Laid, lay_graph, part_of, read_file
from strategies.labelling import SiteModel
from strategies.mailbox import Mailbox
from strategies.personal import absence, site_models
from strategies.rounds import Run

# What a row's log-likelihood may lose in the second half of the rounds before it is said, in nats. In the
# first half it falls by itself, from mixtures of few sites' rows to one of all; later it hardly does.
LEAST_FALL = 0.05


@dataclass(frozen=True, eq=False)
class Network:
    """The graphs over all sites and over those with rows enough, what was last sent, and what rounds came to.

    Log-likelihoods are a row's, one of every round.
    """

    laid: Laid
    graph: Graph
    rows: Mapping[str, int]
    mailbox: Mailbox[Sent] = field(default_factory=Mailbox)
    likelihoods: tuple[float, ...] = ()

    @property
    def round(self) -> int:
        """Rounds that are over."""
        return self.mailbox.round


class ConsensusEM(AlignedRounds[Network]):
    """Sites average their statistics with those of their neighbours, and each makes the M step by itself.

    The coordinator never adds up: a site is sent its neighbours' messages, each with what is meant for it
    alone. A site that is silent is heard as it last was, up to ``max-age`` rounds; then its rows are out of
    the averages until it is back.

    Notes
    -----
    **Source**: Gu (2008), Zhu and Martínez (2010); see `gtvmin.consensus_em`. Deviation: the sites' mixtures
    are made of the estimates that they sent last, one M step further than their own.
    """

    answers: ClassVar[Mapping[type, type]] = {AskConsensusRound: ConsensusSums}

    def __init__(self, config: RunConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._file = read_file(config.graph.graph)

    def begun(self, agreement: Agreement, starts: Mapping[str, Start], start: Mixture) -> Network:
        """Lay the graph; a gain that is too large for it is refused."""
        roster, mixtures = agreement.roster, {name: found.mixture for name, found in starts.items()}
        laid = lay_graph(self.config, self._file, tuple(roster.members), tuple(roster.moments), mixtures)
        for warning in laid.warnings:
            self.say(f"warning: {warning}")
        graph = part_of(laid.graph, roster.moments)
        self._gains(graph, graph.names[0])
        return Network(laid, graph, {name: roster.members[name].hello.rows for name in roster.moments})

    def question(
        self, kernel: Begun[Network], agreed: Mapping[str, Any], name: str
    ) -> AskConsensusRound | None:
        """Hand a site what its neighbours last sent, and the start, with which it begins if it has to."""
        state, start, most = kernel.state, kernel.start, self.config.graph.max_age
        assert state is not None  # these are the rounds after the start
        assert start is not None
        if name in state.mailbox.posts and not state.mailbox.worth_asking(name, most):
            return None
        near, how = self._near(state, name), self._gains(state.graph, name)
        return AskConsensusRound(
            **agreed,
            **stacked([start]),
            round=kernel.rounds,
            last=state.mailbox.posts[name].round if name in state.mailbox.posts else -1,
            own_gain=how.own,
            neighbours=tuple(near),
            gains=np.array([how.neighbours[other] for other in near]) if near else None,
            estimates=np.stack([sent.estimate for sent in near.values()]) if near else None,
            parts=np.stack([sent.own for sent in near.values()]) if near else None,
        )

    def sizes(self, kernel: Begun[Network], name: str) -> dict[str, int]:
        """Return the number of neighbours that a site was handed, and of entries of a component."""
        assert kernel.state is not None  # these are the rounds after the start
        q = 0 if kernel.start is None else kernel.start.n_features
        return {"e": len(self._near(kernel.state, name)), "p": 1 + q + q * (q + 1) // 2}

    def phase(self, run: Run[Begun[Network]]) -> str:
        """Say what is asked: starts, first sums, then rounds."""
        kernel = run.kernel
        return "start" if kernel.state is None else f"round {kernel.rounds}" if kernel.rounds else "sums"

    def problem(self, state: Run[Begun[Network]], name: str, answer: Any) -> str | None:
        """Say why sums cannot be of the site's rows, or do not follow from what it was handed."""
        kernel = state.kernel
        if not isinstance(answer, ConsensusSums) or kernel.state is None or kernel.start is None:
            return super().problem(state, name, answer)
        sent, leaky = self._named(kernel.state, name, answer), self.config.consensus.mode == "leaky"
        if (answer.own is None) == leaky or (leaky and answer.flows is not None):
            problem: str | None = "they are not of the mode of this run"
        else:
            network, post = kernel.state, kernel.state.mailbox.posts.get(name)
            near, how = self._near(network, name), self._gains(network.graph, name)
            problem = problem_of_own(sent.own, kernel.start, self.greeted(state, name))
            problem = problem or problem_of_filter(sent, post.content if post else None, near, how)
        return problem and f"its sums were not used: {problem}"

    def advance(self, run: Run[Begun[Network]], answers: Mapping[str, Any]) -> Network:
        """Put what was sent in the mailbox."""
        state = run.kernel.state
        assert state is not None  # these are the rounds after the start
        came = {name: self._named(state, name, answer) for name, answer in answers.items()}
        mailbox = state.mailbox.after(came, run.kernel.rounds)
        mean = mean_likelihood({name: post.content for name, post in mailbox.posts.items()}, state.rows)
        return replace(state, mailbox=mailbox, likelihoods=(*state.likelihoods, mean))

    def status(self, state: Network) -> str:
        """Stop when no mixture moves."""
        settings, mailbox = self.config.consensus, state.mailbox
        if mailbox.posts and _movement(mailbox) <= settings.tolerance:
            return "converged"
        return "max_rounds" if mailbox.round >= settings.rounds else "running"

    def figures_of(self, kernel: Begun[Network]) -> dict[str, float]:
        """Return how far a mixture moved, and the mean log-likelihood of a row, as last told."""
        if kernel.state is None or not kernel.state.mailbox.posts:
            return {}
        mean = kernel.state.likelihoods[-1]
        q = 0 if kernel.start is None else kernel.start.n_features
        told = {"log_likelihood": mean - q * math.log(kernel.unit)}  # in the features of the agreed scaling
        moved = _movement(kernel.state.mailbox)
        return {"movement": moved, **told} if np.isfinite(moved) else told

    def mixtures(self, run: Run[Begun[Network]]) -> Mapping[str, SiteModel]:
        """Return the mixture of every site's last estimate; a site without one has its neighbours'."""
        state, start = run.kernel.state, run.kernel.start
        assert state is not None  # the rounds are over
        assert start is not None
        found = {}
        for name, post in state.mailbox.posts.items():
            theta = parameters_from(post.content.sums.estimate, mean_of(start), blocks(start))
            found[name] = mixture_of(project(theta, self.bounds))
        numbers = dict.fromkeys(found, np.arange(self.k))
        return site_models(run.agreement.roster.members, found, numbers, state.laid.graph)

    def warnings(self, run: Run[Begun[Network]], models: Mapping[str, SiteModel]) -> tuple[str, ...]:
        """Say what is to be said of the graph, and who has no mixture."""
        state = run.kernel.state
        assert state is not None  # the rounds are over
        missing = absence(run.agreement, state.mailbox.posts, models)
        half = state.likelihoods[len(state.likelihoods) // 2 :]
        fell = max(half) - half[-1] if half else 0.0
        if fell > LEAST_FALL and self.status(state) != "converged":
            missing.append(
                f"the mean log-likelihood of a row fell by {fell:.3g} in the later half of the rounds: they "
                "may run away where the graph is thin; give a smaller consensus-step or a denser graph"
            )
        return (*state.laid.warnings, *super().warnings(run, models), *missing)

    def _gains(self, graph: Graph, name: str) -> Gains:
        settings = self.config.consensus
        return gains(graph, name, settings.mode, settings.gain)

    def _near(self, state: Network, name: str) -> dict[str, Message]:
        """Return what a site is handed: the last message of each neighbour to it."""
        near = state.mailbox.for_site(name, state.graph, self.config.graph.max_age)
        return {other: sent.to(name) for other, (sent, _) in near.items()}

    def _named(self, state: Network, name: str, answer: ConsensusSums) -> Sent:
        """Return what came, with the names of the neighbours that the site was handed."""
        flows = {} if answer.flows is None else dict(zip(self._near(state, name), answer.flows, strict=True))
        return Sent(answer, flows, answer.movement if name in state.mailbox.posts else np.inf)


def _heard(mailbox: Mailbox[Sent]) -> dict[str, Sent]:
    """Return what was sent in the last round."""
    return {name: post.content for name, post in mailbox.posts.items() if not mailbox.age(name)}


def _movement(mailbox: Mailbox[Sent]) -> float:
    return max(sent.movement for sent in _heard(mailbox).values())
