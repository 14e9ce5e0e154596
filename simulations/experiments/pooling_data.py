"""What puts pooling under strain: rows that are not Gaussian, neighbours that lie, sites that are silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedcluster_app.gtvmin.pool_message import Summary
from fedcluster_app.gtvmin.pool_settings import PoolSettings
from fedcluster_app.mixtures import Mixture
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from simulations.experiments.personal_data import READINGS, SCENARIOS, SPREAD, Network, draw, unheard

#: Share of a site's rows that are junk.
JUNK = 0.05
#: What rows keep from the mean of their component.
LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], FloatArray]] = {
    "t(4)": lambda rng, shape: rng.standard_t(4, shape),
    "skew": lambda rng, shape: rng.exponential(size=shape) - 1.0,
}
KINDS = ("clean", *LAWS, "junk")
# Times the counts that a liar has.
_FORGED = 1e9
_LEAN = PoolSettings()
# Nothing withheld.
_OPEN = PoolSettings(min_count=0)


@dataclass(frozen=True)
class Variant:
    """One way to run a network.

    Attributes
    ----------
    settings : PoolSettings or None
        None for GTV-MMD with the settings of its paper.
    known : bool
        Whether the sites are told k.
    scenario : str
        Of `personal_data`.
    rows : str
        One of `KINDS`.
    attack : str
        One of `ATTACKS`, by the first site, which is then not scored; empty if all sites are honest.
    silent : bool
        Whether a random half of the sites takes no part in a round.
    alone : bool
        Whether there are no edges.
    """

    settings: PoolSettings | None = _LEAN
    known: bool = True
    scenario: str = "sbm 0.2"
    rows: str = "clean"
    attack: str = ""
    silent: bool = False
    alone: bool = False


def _false(said: Summary, means: FloatArray, covariances: FloatArray | float) -> Summary:
    """Forged counts with any means and with covariances, or multiples of the identity."""
    k, d = said.means.shape
    return Summary(_FORGED * said.counts, means, np.broadcast_to(covariances * np.eye(d), (k, d, d)))


#: Functions of a true summary and a stream.
ATTACKS: dict[str, Callable[[Summary, np.random.Generator], Summary]] = {
    "none": lambda said, rng: said,
    "not a number": lambda said, rng: replace(said, means=np.full_like(said.means, np.nan)),
    "means + 1e6": lambda said, rng: replace(said, counts=_FORGED * said.counts, means=said.means + 1e6),
    "tight points": lambda said, rng: _false(said, SPREAD * rng.normal(size=said.means.shape), 1e-6),
    "covariances 100": lambda said, rng: _false(said, said.means, 100.0),
    "shifted copy": lambda said, rng: replace(
        said, counts=_FORGED * said.counts, means=said.means + np.eye(said.means.shape[1])[0]
    ),
}

_COUNTS = (0, 3, 5, 10)
#: Variants by study, by what they have in common, and by name; others are compared with the first.
STUDIES: dict[str, dict[str, dict[str, Variant]]] = {
    "counts": {
        "k known": {f"at least {n}": Variant(PoolSettings(min_count=n)) for n in _COUNTS},
        "k found": {f"at least {n}": Variant(PoolSettings(min_count=n), known=False) for n in _COUNTS},
    },
    "rows": {
        kind: {
            "alone": Variant(_OPEN, rows=kind, alone=True),
            "pool": Variant(rows=kind),
            "pool-open": Variant(_OPEN, rows=kind),
            "pool, uniform": Variant(PoolSettings(uniform=True), rows=kind),
            "pool-auto": Variant(known=False, rows=kind),
            "mmd": Variant(None, rows=kind),
        }
        for kind in KINDS
    },
    "attacks": {
        "er": {name: Variant(scenario="er", attack=name) for name in ATTACKS},
    },
    "silence": {
        "sbm 0.2": {
            "all speak": Variant(),
            "half": Variant(silent=True),
            "half, 16 rounds": Variant(PoolSettings(max_rounds=16), silent=True),
        },
    },
}


def network_of(variant: Variant, seed: int) -> Network:
    """Draw the network of the personal mixtures' study, with the rows of the variant.

    Notes
    -----
    Truth and edges, if any, are those of clean rows. Test rows follow the law of the training rows; none is
    junk.
    """
    drawn = draw(SCENARIOS[variant.scenario], READINGS["A"], seed)
    drawn = unheard(drawn) if variant.alone else drawn
    rng = stream(seed, "pooling", "rows", variant.rows)
    if variant.rows == "junk":
        return replace(drawn, train={name: _with_junk(X, rng) for name, X in drawn.train.items()})
    if variant.rows == "clean":
        return drawn
    parts = {
        part: {name: _moved(drawn.truths[name], X, LAWS[variant.rows], rng) for name, X in tables.items()}
        for part, tables in (("train", drawn.train), ("test", drawn.test))
    }
    return replace(drawn, **parts)  # type: ignore[arg-type]  # train and test


def _moved(
    truth: Mixture,
    X: FloatArray,
    law: Callable[[np.random.Generator, tuple[int, ...]], FloatArray],
    rng: np.random.Generator,
) -> FloatArray:
    """Draw as many rows as in X, balanced and sorted by component as there."""
    labels = np.sort(np.arange(len(X)) % truth.n_components)
    moved: FloatArray = truth.means[labels] + law(rng, X.shape)
    return moved


def _with_junk(X: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Replace some rows by uniform ones from the box around all."""
    spoiled = X.copy()
    which = rng.choice(len(X), int(np.ceil(JUNK * len(X))), replace=False)
    spoiled[which] = rng.uniform(X.min(axis=0), X.max(axis=0), size=(len(which), X.shape[1]))
    return spoiled


def attacked(mail: Mapping[str, Summary], attack: str, rng: np.random.Generator) -> Mapping[str, Summary]:
    """Return what neighbours receive if the first site lies."""
    liar = min(mail)
    return {**mail, liar: ATTACKS[attack](mail[liar], rng)} if attack else mail
