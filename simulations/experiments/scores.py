"""Scores of the comparison, and what they say of methods: by set, and over sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.results.tables import aligned
from simulations.experiments.trials import interval

# Scores by set and regime, then by method.
Groups = Mapping[tuple[str, str], Mapping[str, Sequence["Score"]]]


@dataclass(frozen=True)
class Score:
    """What one run gives on the held-out rows of all sites, pooled.

    Attributes
    ----------
    name, regime, method, seed
        The trial; natural sites have the regime "natural", and settings follow the name of the method.
    ari, nmi : float
        FedGEM: every row labelled by the nearest global cluster. Micro-clusters: by the weights of its site.
    own_ari, own_nmi : float or None
        FedGEM: every row labelled by the nearest of its own site's clusters.
    k_hat, k_true : int
        Clusters found, and classes.
    seconds : float
        Processor time of all sites and the coordinator.
    bytes_up : float
        Mean over sites of what they sent.
    rounds : int
        Exchanges besides the greeting and the labels; 0 where all rows are in one place.
    """

    name: str
    regime: str
    method: str
    seed: int
    ari: float
    nmi: float
    own_ari: float | None
    own_nmi: float | None
    k_hat: int
    k_true: int
    seconds: float
    bytes_up: float
    rounds: int = 0

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The trial."""
        return self.name, self.regime, self.method, self.seed

    @property
    def count_error(self) -> int:
        """Distance of the count from the number of classes."""
        return abs(self.k_hat - self.k_true)


def _grouped(scores: Iterable[Score]) -> Groups:
    groups: dict[tuple[str, str], dict[str, list[Score]]] = {}
    for score in scores:
        groups.setdefault((score.name, score.regime), {}).setdefault(score.method, []).append(score)
    return groups


def tables(scores: Iterable[Score]) -> str:
    """Return a table for every set and regime, with a line for every method."""
    parts = []
    for (name, regime), methods in _grouped(scores).items():
        k_true = next(iter(methods.values()))[0].k_true
        head = f"{name}, {regime}, K* = {k_true}"
        lines = [{head: method} | _cells(part) for method, part in methods.items()]
        parts.append(aligned([list(lines[0]), *(list(line.values()) for line in lines)]))
    return "\n\n".join(parts)


def _cells(scores: Sequence[Score]) -> dict[str, str]:
    def mean(name: str, form: str) -> str:
        values = [getattr(score, name) for score in scores]
        return "-" if None in values else form.format(np.mean(values))

    return {
        "seeds": str(len(scores)),
        "ARI": f"{mean('ari', '{:.3f}')} ± {np.std([score.ari for score in scores]):.3f}",
        "NMI": mean("nmi", "{:.3f}"),
        "own ARI": mean("own_ari", "{:.3f}"),
        "own NMI": mean("own_nmi", "{:.3f}"),
        "K̂": mean("k_hat", "{:.1f}"),
        "|K̂ - K*|": mean("count_error", "{:.1f}"),
        "rounds": mean("rounds", "{:.0f}"),
        "s": mean("seconds", "{:.2f}"),
        "kB up": f"{np.mean([score.bytes_up for score in scores]) / 1e3:.1f}",
    }


def summaries(scores: Sequence[Score], reference: str) -> str:
    """Return means over sets, a line for every method: regime B apart, natural sites with regime A.

    Only sets on which every method was run are looked at, and seeds that all of them had there. A difference
    is the reference less the method, and its interval a bootstrap of sets; FedGEM's is taken to the better of
    its two readings, set by set.
    """
    parts = []
    for regimes, title in ((("a", "natural"), "regime a and natural sites"), (("b",), "regime b")):
        groups = _grouped(score for score in scores if score.regime in regimes)
        methods = list(dict.fromkeys(method for group in groups.values() for method in group))
        shared = {key[0]: _same_seeds(group) for key, group in groups.items() if len(group) == len(methods)}
        common = {name: group for name, group in shared.items() if all(group.values())}
        if common:
            names = f"{title}, {len(common)} sets: {', '.join(common)}"
            parts.append(f"{names}\n{_summary(common, methods, reference)}")
    return "\n\n".join(parts)


def _same_seeds(group: Mapping[str, Sequence[Score]]) -> dict[str, list[Score]]:
    seeds = set.intersection(*({score.seed for score in scores} for scores in group.values()))
    return {method: [one for one in scores if one.seed in seeds] for method, scores in group.items()}


def _summary(sets: Mapping[str, Mapping[str, Sequence[Score]]], methods: list[str], reference: str) -> str:
    def means(method: str, name: str) -> FloatArray:
        values = [[getattr(score, name) for score in group[method]] for group in sets.values()]
        return np.array([np.mean([np.nan if value is None else value for value in each]) for each in values])

    head = ["method", "ARI", "own ARI", "NMI", "|K̂ - K*|", "s", "kB up"]
    lines = [[*head, "reference is better", "by", "95 %"]]
    for method in methods:
        ari, own = means(method, "ari"), means(method, "own_ari")
        line = [method, f"{ari.mean():.3f}", "-" if np.isnan(own).any() else f"{own.mean():.3f}"]
        line += [f"{means(method, 'nmi').mean():.3f}", f"{means(method, 'count_error').mean():.2f}"]
        line += [f"{means(method, 'seconds').mean():.2f}", f"{means(method, 'bytes_up').mean() / 1e3:.1f}"]
        if reference in methods and method != reference:
            better = means(reference, "ari") - np.fmax(ari, own)
            low, high = interval(better)
            wins = f"{int((better > 0).sum())} of {len(better)}"
            line += [wins, f"{better.mean():+.3f}", f"{low:+.3f} to {high:+.3f}"]
        lines.append(line + [""] * (len(lines[0]) - len(line)))
    return aligned(lines)
