"""The run folder: ``summary.json``, ``model.npz``, ``summaries.npz`` and ``rounds.jsonl``."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedcluster_app import __version__
from fedcluster_app.config import RunConfig, as_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.results.outcome import ExchangeRecord, Outcome
from fedcluster_app.results.tables import plain

PACKAGES = ("flwr", "numpy", "scipy", "scikit-learn")


class RunFolder:
    """Where a run leaves its results.

    Parameters
    ----------
    path
        An absolute folder; it is made, and must not hold a run already.

    Raises
    ------
    ConfigError
        If it cannot be made or holds a run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[ExchangeRecord] = []
        self._began = time.time()
        try:
            if (path / "summary.json").exists():
                raise ConfigError(f"output-dir: {path} already holds a run; choose another folder")
            path.mkdir(parents=True, exist_ok=True)
            (path / "rounds.jsonl").write_text("", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"output-dir: cannot write to {path} ({error.strerror}); choose another folder"
            ) from error

    def note(self, record: ExchangeRecord) -> None:
        """Append an exchange to ``rounds.jsonl`` at once, so that a run that dies leaves its trace."""
        self.records.append(record)
        with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(dataclasses.asdict(record)), ensure_ascii=False) + "\n")

    def write(self, outcome: Outcome, config: RunConfig, run_id: int) -> None:
        """Write ``model.npz`` and ``summaries.npz``, if there are such, and then ``summary.json``."""
        if outcome.model is not None:
            outcome.model.save(self.path / "model.npz")
        if outcome.summaries is not None:
            outcome.summaries.save(self.path / "summaries.npz")
        text = json.dumps(self._summary(outcome, config, run_id), indent=2, ensure_ascii=False)
        part = self.path / "summary.json.part"
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(self.path / "summary.json")

    def _summary(self, outcome: Outcome, config: RunConfig, run_id: int) -> dict[str, Any]:
        summary = {
            "status": outcome.status,
            "k_hat": outcome.k_hat,
            "k_hat_bounds": outcome.bounds,
            "words": outcome.words,
            "scores": dict(outcome.scores),
            "sites": [_flat(dataclasses.asdict(site)) for site in outcome.sites],
            "warnings": outcome.warnings,
            "run_id": str(run_id),
            "method": config.method,
            "config": as_run_config(config),
            "seeds": {"run": config.seed, "streams": "SHA-256 of (site, purpose), with the run's seed"},
            "versions": {"fedcluster": __version__, "python": platform.python_version()}
            | {name: version(name) for name in PACKAGES},
            "details": dict(outcome.details),
            "rounds": [dataclasses.asdict(record) for record in self.records],
            "bytes": {
                "down": sum(record.bytes_down for record in self.records),
                "up": sum(record.bytes_up for record in self.records),
            },
            "timings": {
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
                "seconds": time.time() - self._began,
                "by_exchange": {f"{r.exchange} {r.phase}": r.seconds for r in self.records},
            },
        }
        return dict(plain(summary))


def _flat(site: dict[str, Any]) -> dict[str, Any]:
    """Return a site's row with its details beside the rest."""
    details: dict[str, Any] = site.pop("details")
    return site | details
