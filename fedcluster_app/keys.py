"""How a setting is declared and checked: the machinery behind :mod:`fedcluster_app.config`.

A setting is a field of a frozen dataclass with a :class:`Key` beside it; its type is the field's annotation.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fedcluster_app.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """What a setting may be.

    ``word`` is a name accepted in place of a number (read as None); a number must be finite unless ``high``
    is infinity.
    """

    name: str
    meaning: str
    low: float = -math.inf
    high: float | None = None
    word: str = ""
    absolute: bool = False


def key(name: str, default: Any, meaning: str, **limits: Any) -> Any:
    """Declare a setting: a dataclass field with its :class:`Key`."""
    return field(default=default, metadata={"key": Key(name, meaning, **limits)})


def keys_of(config: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """Return every key of a config class and of the classes inside it, by name."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for item in dataclasses.fields(config):
        if "key" in item.metadata:
            found[item.metadata["key"].name] = item
        else:
            found |= keys_of(item.default_factory)  # type: ignore[arg-type]  # a dataclass of keys
    return found


def refuse_unknown(values: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a key that nothing reads, with the nearest known one."""
    for name in values:
        if name not in known:
            near = [key for key in known if key == name.lower().replace("_", "-")]
            close = near or difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}: unknown key {name!r}; {hint}")


def build(config: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return the config class filled from ``values``, every value checked, every default filled in."""
    given: dict[str, Any] = {}
    kinds = get_type_hints(config)
    for item in dataclasses.fields(config):  # type: ignore[arg-type]  # T is one of the dataclasses above
        if "key" not in item.metadata:
            given[item.name] = build(item.default_factory, values, where)  # type: ignore[arg-type]  # as above
            continue
        key: Key = item.metadata["key"]
        if key.name in values:
            given[item.name] = _checked(key, kinds[item.name], values[key.name], where)
    return config(**given)


def _checked(key: Key, kind: Any, value: Any, where: str) -> Any:
    """Return ``value`` as the type that the field declares, or say what is wrong with it.

    Types in use: bool, str, a Literal of names, int, float, either or None, and a tuple of either or None.
    """
    if kind is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: {key.name} expected true or false, got {value!r}")
        return value
    if key.word and value == key.word:
        return None
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise ConfigError(f"{where}: {key.name} expected one of {', '.join(get_args(kind))}, got {value!r}")
    if kind is str or get_origin(kind) is Literal:
        return _checked_text(key, value, where)
    whole, several = "int" in str(kind), "tuple" in str(kind)
    if several:
        parts = str(value).split(",") if isinstance(value, str) else [value]
        return tuple(sorted({_checked_number(key, part, whole, where) for part in parts}))
    return _checked_number(key, value, whole, where)


def _checked_text(key: Key, value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {key.name} expected text, got {value!r}; put it in quotes")
    if key.absolute and value and not os.path.isabs(os.path.expanduser(value)):
        raise ConfigError(
            f"{where}: {key.name} expected an absolute path, got {value!r}; Flower's processes do not run in "
            "the folder you typed the command in, so a relative path would land elsewhere"
        )
    return os.path.expanduser(value) if key.absolute else value


def _checked_number(key: Key, value: Any, whole: bool, where: str) -> int | float:
    expected = "a whole number" if whole else "a number"
    if key.word:
        expected = f"{key.word!r} or {expected}"
    if isinstance(value, str) and key.word:
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            raise ConfigError(f"{where}: {key.name} expected {expected}, got {value!r}") from None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (whole and not isinstance(value, int))
    ):
        raise ConfigError(f"{where}: {key.name} expected {expected}, got {value!r}")
    # Compared as it came: a whole number may be too large for a float.
    if not value >= key.low:
        raise ConfigError(f"{where}: {key.name} expected {expected} of at least {key.low:g}, got {value!r}")
    if value > (sys.float_info.max if key.high is None else key.high):
        limit = "a finite number" if key.high is None else f"at most {key.high:.10g}"
        raise ConfigError(f"{where}: {key.name} expected {limit}, got {value!r}")
    return value if whole else float(value)
