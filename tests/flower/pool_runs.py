"""What the tests of GTV-Pool runs share: short runs, and a look into what was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtv_runs import asked

from fedcluster_app.config import parse_run_config
from fedcluster_app.messages import AskPoolRound
from simulations.federation import LocalRun, run_locally


def run(nodes: Any, folder: Path | str = "", **values: Any) -> LocalRun:
    """A short run of three components on a ring, unless ``values`` say otherwise."""
    how = {name: values.pop(name) for name in ("tamper", "arrange", "client_app") if name in values}
    short = {"method": "gtvpool", "round-timeout": 0.1, "components": 3, "pool-rounds": 4, "graph": "ring"}
    short |= {"pool-tolerance": 0.0}
    config = parse_run_config(short | {key.replace("_", "-"): value for key, value in values.items()})
    return run_locally(config, nodes, run_folder=str(folder), **how)


def rounds(one: LocalRun) -> list[dict[str, AskPoolRound]]:
    """What every site was asked, round by round."""
    found: list[dict[str, AskPoolRound]] = []
    for name, ask in asked(one, AskPoolRound):
        found.extend({} for _ in range(ask.round - len(found)))
        found[ask.round - 1][name] = ask
    return found
