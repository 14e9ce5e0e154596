"""Random streams, each a function of the run's seed and of names, never of arrival order."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator that belongs to (seed, names...), independent of every other such generator.

    Parameters
    ----------
    seed
        The run's seed.
    *names
        What the stream is for, for example the site's name, the phase and the round.
    """
    digest = hashlib.sha256("\x1f".join(str(name) for name in names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
