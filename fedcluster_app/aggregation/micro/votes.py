"""The number of clusters: votes over a path, the rule that weighs them, and what they cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedcluster_app.aggregation.micro.path import Path
from fedcluster_app.mixtures.types import FloatArray, IntArray

Rule: TypeAlias = Literal["geometric", "median", "bic", "hold"]
# Votes for nearly the same number, as a ratio: then nobody else is asked.
AGREE = 1.1
# Fewer sites have no standard error worth the name.
SITES_FOR_ERROR = 5
# Share of the held-out gain over one cluster, or of the sites' own counts, given up for fewer clusters.
GIVEN_UP = 0.02


@dataclass(frozen=True)
class Votes:
    """What each criterion would choose.

    Attributes
    ----------
    bic : int
        Least Bayesian information criterion.
    hold : int
        Greatest likelihood of the rows held out.
    hold_1se : int
        Fewest clusters within one standard error over sites of that.
    hold_98 : int
        Fewest clusters with 98 % of its gain over one cluster.
    sep : int or None
        Best separated; None if only one cluster was tried.
    count : int or None
        The K whose clusters per site are nearest to the sites' own counts; None without counts.
    """

    bic: int
    hold: int
    hold_1se: int
    hold_98: int
    sep: int | None
    count: int | None

    def careful(self, n_sites: int) -> int:
        """Return the smaller of the two careful votes; of few sites there is no standard error to go by."""
        return min(self.hold_1se, self.hold_98) if n_sites >= SITES_FOR_ERROR else self.hold_98

    def tied(self, n_sites: int) -> tuple[int, int]:
        """Return the least and the largest number of clusters that the held-out rows cannot tell apart."""
        fewest = self.careful(n_sites)
        return fewest, max(self.hold, fewest)


def cast(path: Path, counts: Sequence[int] = ()) -> Votes:
    """Return the votes of a path; ``counts`` are the sites' own, in the order of the path's sites.

    A site that did not count has 0 there and no say.
    """
    hold, one_error, share = held_out_votes(path.k, path.held_out)
    scored = ~np.isnan(path.separation)
    return Votes(
        bic=int(path.k[np.argmin(path.bic)]),
        hold=hold,
        hold_1se=one_error,
        hold_98=share,
        sep=int(path.k[scored][np.argmin(path.separation[scored])]) if scored.any() else None,
        count=_count_vote(path, np.asarray(counts)),
    )


def held_out_votes(k: IntArray, held_out: FloatArray) -> tuple[int, int, int]:
    """Return ``hold``, ``hold_1se`` and ``hold_98`` from the held-out likelihood (m, G) of the grid (m,).

    Notes
    -----
    **Source**: ours; the rule of one standard error as in Breiman et al., Classification and Regression
    Trees (1984), section 3.4.3, with sites as the independent units.
    """
    total = held_out.sum(axis=1)
    best = int(np.argmax(total))
    lost = total[best] - total
    sites = held_out.shape[1]
    differences = held_out[best] - held_out
    error = np.sqrt(sites) * differences.std(axis=1, ddof=1) if sites > 1 else np.zeros_like(lost)
    within_error = int(np.argmax(lost <= error))
    within_share = int(np.argmax(lost <= GIVEN_UP * max(lost[0], 0.0)))
    return int(k[best]), int(k[within_error]), int(k[within_share])


def _count_vote(path: Path, counts: IntArray) -> int | None:
    """Return the K at which the sites hold as many clusters as they counted, to 2 % of that, or None.

    Deviation from the nearest: more clusters need not be more at a site, they may be of fewer sites each, so
    of about equals the fewest are taken.
    """
    counted = np.flatnonzero(counts)
    if not counted.size:
        return None
    found = path.effective[:, counted].sum(axis=1)
    wanted = counts[counted].sum()
    missed = np.abs(found - wanted)
    return int(path.k[np.argmax(missed <= missed.min() + GIVEN_UP * wanted)])


def decide(votes: Votes, rule: Rule, n_sites: int) -> int:
    """Return K̂ by a rule.

    Parameters
    ----------
    votes
        Where sites have counted, their vote stands in for that of ``bic``.
    rule
        "geometric": 1 if ``bic`` and ``hold`` say so; their geometric mean if they agree within 10 %; else
        that of ``bic``, ``hold`` and ``sep``. "median": of ``bic``, ``hold_1se`` and ``hold_98``; with fewer
        than five sites ``hold_98``. "bic", "hold": that vote.
    n_sites
        Number of sites behind the votes.

    Notes
    -----
    **Source**: ours, chosen on development data among some hundred rules, none of which was best everywhere.
    """
    first = votes.bic if votes.count is None else votes.count
    if rule == "bic":
        return first
    if rule == "hold":
        return votes.hold
    if rule == "median":
        careful = votes.hold_1se if n_sites >= SITES_FOR_ERROR else votes.hold_98
        return int(np.median([first, careful, votes.hold_98]))
    low, high = sorted((first, votes.hold))
    voices = [low, high]
    if high > AGREE * low and votes.sep is not None:
        voices.append(votes.sep)
    return max(1, round(float(np.exp(np.log(voices).mean()))))


def in_words(votes: Votes, tried: Sequence[int], k_hat: int, n_sites: int) -> tuple[str, ...]:
    """Say in sentences how sure the number is, of those that were ``tried``."""
    if len(tried) == 1:
        return (f"no other number of clusters than {tried[0]} was tried",)
    low, high = votes.tied(n_sites)
    if low == high:
        said = f"rows held out favour {number(low)}" + (" clearly" if _is_close(tried, low) else "")
    else:
        said = f"rows held out cannot tell {low} to {high} clusters apart"
    if not low <= k_hat <= high:
        said += f"; the other votes made it {k_hat}"
    first = {"bic": votes.bic} if votes.count is None else {"count": votes.count}
    voices = first | {"hold": votes.hold, "hold_98": votes.hold_98}
    if n_sites >= SITES_FOR_ERROR:
        voices["hold_1se"] = votes.hold_1se
    if votes.sep is not None:
        voices["sep"] = votes.sep
    return said, "votes: " + ", ".join(f"{name} {vote}" for name, vote in voices.items())


def _is_close(tried: Sequence[int], k: int) -> bool:
    """Whether the numbers next to one were tried too, but for steps of an eighth."""
    near = [other for other in tried if other != k and abs(other - k) <= 1 + k // 8]
    return min(tried) == k == 1 or {other < k for other in near} == {True, False}


def number(k: int) -> str:
    """Return a number of clusters in words."""
    return f"{k} cluster{'' if k == 1 else 's'}"
