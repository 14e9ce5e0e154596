"""The ``fedcluster`` command: what people do with a run's results, and what methods there are."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedcluster_app import __version__
from fedcluster_app.data.readers import read_columns
from fedcluster_app.errors import FedclusterError
from fedcluster_app.methods import COLUMNS, METHODS
from fedcluster_app.results.load import load_model
from fedcluster_app.results.model import labels_text, write_labels


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 with the reason on standard error."""
    options = _parser().parse_args(arguments)
    if options.command == "methods":
        print(methods_text(options.format))
        return 0
    try:
        predict(
            options.model, options.data, options.output, own_weights=options.own_weights, site=options.site
        )
    except (FedclusterError, OSError) as error:
        print(f"fedcluster: {error}", file=sys.stderr)
        return 1
    return 0


def predict(
    model_path: Path, data: str, output: Path | None, *, own_weights: bool = False, site: str | None = None
) -> None:
    """Label the rows of a table with a model file, and print or write them.

    With ``own_weights`` the clusters first get the weights that they have among these rows. ``site`` says
    whose rows these are, which a model needs to know if the sites' sensors differ.

    Raises
    ------
    DataError
        If the model or the table cannot be used.
    """
    model = load_model(model_path)
    table = read_columns(data, model.columns, where="new rows")
    labels = model.predict(table.X, own_weights=own_weights, site=site)
    if output is None:
        sys.stdout.write(labels_text(labels))
    else:
        write_labels(output, labels)


def methods_text(form: str) -> str:
    """Return the method table for people ("text") or programs ("json": a list of objects)."""
    if form == "json":
        rows = [
            {**dict(zip(COLUMNS, one.shown(), strict=True)), "required": one.required}
            for one in METHODS.values()
        ]
        return json.dumps(rows, indent=2, ensure_ascii=False)
    blocks = []
    for one in METHODS.values():
        name, *cells = one.shown()
        lines = [f"  {column:<8}{cell}" for column, cell in zip(COLUMNS[1:], cells, strict=True)]
        blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedcluster", description=__doc__)
    parser.add_argument("--version", action="version", version=f"fedcluster {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    command = commands.add_parser(
        "predict",
        help="label new rows with a model file",
        description="Print the global cluster of every row as csv. Needs NumPy alone, no Flower and no site.",
    )
    command.add_argument("--model", type=Path, required=True, help="model.npz of a run's folder")
    command.add_argument(
        "--data", required=True, help=".csv or .npz with the columns of the run; others are passed over"
    )
    command.add_argument("--output", type=Path, help="write the labels here and not to standard output")
    command.add_argument(
        "--own-weights",
        action="store_true",
        help="for rows that are all from one site: first fit to them how much of the site is in each cluster "
        "(by default as much as over all sites of the run); the clusters themselves stay",
    )
    command.add_argument(
        "--site",
        help="whose rows these are; for a run that found offsets of sites, or left each its own mixture",
    )
    command = commands.add_parser(
        "methods",
        help="list the methods: what each needs, sends, and where it comes from",
        description="List the methods that a run chooses from, and the yardsticks of simulations.",
    )
    command.add_argument("--format", choices=("text", "json"), default="text", help="text, or a JSON list")
    return parser
