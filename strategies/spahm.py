"""SPAHM over named sites: local centres once, matched into clusters whose number is found, then labels."""

from __future__ import annotations

from collections.abc import Mapping

from fedcluster_app.aggregation import spahm
from fedcluster_app.messages import AskSpahm
from fedcluster_app.mixtures.types import FloatArray
from fedcluster_app.streams import stream
from strategies.global_rounds import Found, centres
from strategies.kfed import CentresOnce


class Spahm(CentresOnce):
    """SPAHM; all sweeps of the matching are made at the coordinator, after one upload.

    Notes
    -----
    **Source**: Yurochkin, Agarwal, Ghosh, Greenewald and Hoang, Statistical model aggregation via parameter
    matching, NeurIPS 2019.
    """

    ask_type = AskSpahm

    def found(self, kernel: Mapping[str, FloatArray]) -> Found:
        """Match the centres."""
        settings, rng = self.config.spahm, stream(self.config.seed, "spahm")
        state = spahm.init(
            kernel, spread=settings.spread, noise=settings.noise, concentration=settings.concentration
        )
        while not spahm.done(state, max_sweeps=settings.sweeps):
            state = spahm.step(state, rng)
        result = spahm.finish(state)
        return centres(result.centers, result.labels)
