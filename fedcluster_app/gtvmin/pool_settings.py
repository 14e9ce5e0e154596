"""What a pooling run may be told: nothing couples, steps or smooths, so there is no strength to choose."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from fedcluster_app.errors import ConfigError


@dataclass(frozen=True)
class PoolSettings:
    """Settings of evidence-gated pooling; the defaults are the lean mode.

    Attributes
    ----------
    min_count : float, >= 0
        A component with fewer own rows (a soft count) is not released.
    max_rounds : int, >= 0
    tolerance : float, >= 0
        A node rests when its change stayed below this for `patience` rounds, not before `least_rounds` + 1.
    patience : int, >= 1
    least_rounds : int, >= 0
    start_rounds : tuple of int
        Rounds in which a node tries other starts.
    restless : float, >= 0
        From the second of those rounds on only if the node changed by more than this. With unknown k, merges
        are tried out after such changes only.
    kept_starts : int, >= 1
        Of the other starts that are gone on with after a first look.
    start_steps : tuple of three int, >= 1
        Iterations of a first look, all until the choice, and of the best start beside the current model.
    kmeans_starts : int, >= 0
        Runs of k-means on rows and received means.
    margin : float, >= 0
        Nats of own evidence by which another start must be better.
    rate_prior : float, > 0
        Both parameters of the beta prior on the rate at which an edge's components are accepted.
    concentration : float, > 0
        Rows that every component counts for in the shares that weights are drawn to; large keeps all alive.
    strengths : tuple of float, > 0
        Rows that the common covariance may count for.
    discounts : tuple of float in (0, 1]
        What share of everything borrowed may count; (1,) switches the discount off.
    count_cap : float, > 0
        Largest total of a neighbour, in medians of the totals.
    uniform : bool
        Own rows may also belong to a uniform component, which is neither released nor part of the result:
        for tables in which junk rows are plausible. Elsewhere it costs a few thousandths of a nat per row.
    guard : bool
        Whether a component is told anew only if it differs by ``min_count`` rows from what was told before.
    most_components : int, >= 1
        Components that a site of unknown k may have. It starts with fewer if it has few rows; see
        `pool_start.most_components`.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    min_count: float = 5.0
    max_rounds: int = 8
    tolerance: float = 0.01
    patience: int = 2
    least_rounds: int = 4
    start_rounds: tuple[int, ...] = (1, 2)
    restless: float = 0.02
    kept_starts: int = 3
    start_steps: tuple[int, int, int] = (2, 6, 5)
    kmeans_starts: int = 3
    margin: float = 1.0
    rate_prior: float = 0.03
    concentration: float = 2.0
    strengths: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    discounts: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01)
    count_cap: float = 20.0
    uniform: bool = False
    guard: bool = False
    most_components: int = 20

    def __post_init__(self) -> None:
        for name in ("min_count", "max_rounds", "tolerance", "least_rounds", "restless", "kmeans_starts"):
            self._check(name, 0)
        for name in ("patience", "kept_starts", "most_components"):
            self._check(name, 1)
        self._check("margin", 0)
        for name in ("rate_prior", "concentration", "count_cap"):
            self._check(name, 0)
            if getattr(self, name) == 0:
                raise ConfigError(f"{name.replace('_', ' ')}: expected more than 0, got 0")
        if not self.strengths or not all(0 < s < float("inf") for s in self.strengths):
            raise ConfigError(f"strengths: expected positive numbers, got {self.strengths!r}")
        if not self.discounts or not all(0 < w <= 1 for w in self.discounts):
            raise ConfigError(f"discounts: expected numbers above 0 and up to 1, got {self.discounts!r}")
        first, until, last = self.start_steps
        if not (1 <= first <= until and last >= 1):
            raise ConfigError(
                f"start steps: expected 1 <= first <= second and third >= 1, got {self.start_steps!r}"
            )

    def _check(self, name: str, least: float) -> None:
        value = getattr(self, name)
        whole = isinstance(type(self).__dataclass_fields__[name].default, int)
        text = f"{name.replace('_', ' ')}: expected"
        if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
            raise ConfigError(f"{text} a {'whole ' if whole else ''}number, got {value!r}")
        if not least <= float(value) < float("inf"):
            raise ConfigError(f"{text} at least {least} and finite, got {value!r}")


#: One look at other starts and four rounds: half the time again, not for ten features or more.
FAST = PoolSettings(max_rounds=4, start_rounds=(1,), kept_starts=1, kmeans_starts=1, start_steps=(2, 4, 4))
#: As many rounds and other starts as the experiments of the method had (but two local fits go on, not all).
FULL = PoolSettings(max_rounds=20, start_rounds=(1, 2, 4), restless=0.0, kept_starts=1000)
