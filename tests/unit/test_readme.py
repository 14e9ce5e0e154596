from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from fedcluster_app import config, messages
from fedcluster_app.keys import keys_of
from fedcluster_app.methods import COLUMNS, METHODS
from fedcluster_app.wire import LAYOUTS

README = Path(__file__).parents[2] / "README.md"
GROUPS = [item.default_factory for item in dataclasses.fields(config.RunConfig) if "key" not in item.metadata]
PARTS = (config.RunConfig, *GROUPS)
Row = tuple[str, ...]
METHOD_HEAD = tuple(column.replace("name", "method") for column in COLUMNS)


def leaving() -> list[Row]:
    """What leaves a site, by the layouts of its messages."""
    return [
        (layout.name, field, spec.meaning)
        for kind, layout in LAYOUTS.values()
        if layout.leaves_site and kind.__module__.startswith(messages.__name__)
        for field, spec in layout.fields.items()
    ]


def run_settings() -> list[Row]:
    """Every key of the run config with its default and meaning, names to choose from at the end."""
    defaults = config.as_run_config(config.RunConfig())
    choices = {
        field.metadata["key"].name: f" ({', '.join(get_args(get_type_hints(part)[field.name]))})"
        for part in PARTS
        for field in dataclasses.fields(part)
        if get_origin(get_type_hints(part)[field.name]) is Literal
    }
    return [
        (key, json.dumps(defaults[key]), field.metadata["key"].meaning + choices.get(key, ""))
        for key, field in keys_of(config.RunConfig).items()
    ]


def methods() -> list[Row]:
    """The method table, names as code."""
    return [method.shown() for method in METHODS.values()]


def table(rows: list[Row], head: Row, *, code: tuple[int, ...]) -> str:
    """A table as the README must have it."""
    body = [tuple(f"`{cell}`" if column in code else cell for column, cell in enumerate(row)) for row in rows]
    return "\n".join(
        [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in body)]
    )


def written(text: str, mark: str) -> list[Row]:
    """The rows between two marks, without the head and the signs of code."""
    between = text.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0]
    rows = [line.split(" | ") for line in re.findall(r"^\| (.*) \|$", between, flags=re.MULTILINE)[1:]]
    # The last cell may begin and end with code of its own.
    return [(*(cell.strip("`") for cell in row[:-1]), row[-1]) for row in rows]


def test_the_readme_says_what_leaves_a_site() -> None:
    should_be = table(leaving(), ("message", "field", "what"), code=(1,))
    assert written(README.read_text(encoding="utf-8"), "leaves-site") == leaving(), (
        f"README.md: between the marks of leaves-site put\n\n{should_be}\n"
    )


def test_the_readme_has_every_setting() -> None:
    should_be = table(run_settings(), ("key", "default", "meaning"), code=(0, 1))
    assert written(README.read_text(encoding="utf-8"), "settings") == run_settings(), (
        f"README.md: between the marks of settings put\n\n{should_be}\n"
    )


def test_the_readme_has_every_method() -> None:
    should_be = table(methods(), METHOD_HEAD, code=(0,))
    assert written(README.read_text(encoding="utf-8"), "methods") == methods(), (
        f"README.md: between the marks of methods put\n\n{should_be}\n"
    )


def test_a_table_is_read_as_it_is_written() -> None:
    text = f"a\n<!-- x -->\n{table(leaving(), ('a', 'b', 'c'), code=(1,))}\n<!-- /x -->\n| not | a | row |\n"
    assert written(text, "x") == leaving()
    assert written("no table", "x") == []
    assert {"hello", "fedgem.start", "refusal"} < {row[0] for row in leaving()}
