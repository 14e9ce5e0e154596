"""The ServerApp: run config -> strategy -> results."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcluster_app.config import RunConfig, as_run_config, changed, home, parse_run_config
from fedcluster_app.errors import ConfigError
from fedcluster_app.methods import METHODS
from fedcluster_app.results.folder import RunFolder
from fedcluster_app.results.outcome import ExchangeRecord
from fedcluster_app.results.tables import exchange_line, report
from strategies.base import SiteStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the method that the config names; the last line printed is the folder of the results."""
    try:
        conduct(grid, parse_run_config(context.run_config), context.run_id)
    except ConfigError as error:
        # There is no folder yet that could hold the reason.
        _say(f"status: failed: {error}")
        raise


def conduct(grid: Grid, config: RunConfig, run_id: int) -> Path:
    """Run a method over a grid, tell people about it, and leave the results in a folder.

    Raises
    ------
    ConfigError
        If a setting cannot be used; nothing was asked of any site, unless it is one that depends on them.
    RunError
        If the run failed; the folder's summary has the reason as ``status``.
    """
    strategy_class = strategy_of(config)
    path = Path(config.output_dir) if config.output_dir else default_folder(run_id)

    def note(record: ExchangeRecord) -> None:
        folder.note(record)
        _say(exchange_line(record))

    strategy = strategy_class(config, run_folder=str(path), say=_say, note=note)
    folder = RunFolder(path)
    strategy.summary()
    try:
        strategy.start(grid)
    finally:
        folder.write(strategy.outcome, config, run_id)
        _say("")
        _say(report(strategy.outcome))
        _say(str(folder.path))
    return folder.path


def strategy_of(config: RunConfig) -> type[SiteStrategy[Any]]:
    """Return the strategy class of the configured method.

    Raises
    ------
    ConfigError
        If the method is unknown, does not take the configured start, would not read a setting, or needs one
        that is not given.
    """
    method = METHODS.get(config.method)
    if method is None:
        raise ConfigError(f"run config: method expected one of {', '.join(METHODS)}, got {config.method!r}")
    if not method.strategy:
        raise ConfigError(
            f"run config: method {method.name!r} is a yardstick: all rows would have to move to one place. "
            f"It runs in simulations only: {method.command}"
        )
    if config.init not in method.inits:
        raise ConfigError(
            f"run config: method {method.name!r} takes init = {' | '.join(method.inits)}, got {config.init!r}"
        )
    others = {group for other in METHODS.values() for group in other.settings} - set(method.settings)
    if idle := [key for group in sorted(others) for key in changed(getattr(config, group))]:
        raise ConfigError(
            f"run config: {', '.join(idle)} would do nothing with method {method.name!r}; leave them out, or "
            "choose the method that they belong to"
        )
    given = as_run_config(config)
    counting = method.counts == "always" or given.get(method.counts) == "auto"
    if config.estimator != RunConfig.estimator and not counting:
        raise ConfigError(
            f"run config: estimator would do nothing with method {method.name!r}"
            f"{f' and {method.counts}={given[method.counts]}' if method.counts else ''}; leave it out"
        )
    if missing := [key for key in method.required if given[key] == "auto"]:
        others_need_none = ", ".join(
            other.name for other in METHODS.values() if other.strategy and not other.required
        )
        raise ConfigError(
            f"run config: method {method.name!r} needs to be told {', '.join(missing)}, for example "
            f"{missing[0]}=10; nothing has to be told to {others_need_none}"
        )
    module, _, name = method.strategy.rpartition(".")
    found: type[SiteStrategy[Any]] = getattr(import_module(module), name)
    return found


def default_folder(run_id: int) -> Path:
    """Return ``~/.fedcluster/runs/<time>-<run id>``."""
    return home() / "runs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{run_id}"


def _say(line: str) -> None:
    print(line, flush=True)
