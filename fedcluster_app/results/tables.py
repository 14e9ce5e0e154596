"""A run in text: one line an exchange, a table of sites, and what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcluster_app.results.outcome import ExchangeRecord, Outcome

_LABEL_FREE = {
    "simplified_silhouette": "simplified silhouette (-1 to 1, high is good)",
    "calinski_harabasz": "Calinski-Harabasz (high is good)",
    "davies_bouldin": "Davies-Bouldin (low is good)",
    "held_out_log_likelihood": "log-likelihood of a row held out, mean (high is good)",
}
# What an exchange's figures are called, their format and width, with a global model and with personal ones.
_GLOBAL = {"k_hat": ("K̂", ".0f", 4), "movement": ("moved", ".4f", 7)}
_PERSONAL = {
    "alpha": ("alpha", "g", 4),
    "held_out": ("held-out LL", ".3f", 8),
    "disagreement": ("disagreement", ".4g", 8),
    "mapping": ("mapping", ".3g", 7),
}
_LIKELY = {"log_likelihood": ("log-likelihood of a row", ".4f", 8), "movement": ("moved", ".4f", 7)}
_POOLED = {"evidence": ("log evidence of a row", ".3f", 7), "change": ("moved", ".4f", 7)}


def exchange_line(record: ExchangeRecord) -> str:
    """Return what matters of an exchange on one line, failures named on lines of their own."""
    shown = next((names for names in (_PERSONAL, _POOLED) if set(names) & set(record.figures)), _GLOBAL)
    if "log_likelihood" in record.figures and "k_hat" not in record.figures:
        shown = {name: told for name, told in _LIKELY.items() if name in record.figures}
    parts = [
        f"{record.phase:<9}",
        *(
            f"{title} {format(record.figures[name], form) if name in record.figures else '-':>{width}}"
            for name, (title, form, width) in shown.items()
        ),
        f"sites: {len(record.answered)} answered, {len(record.late)} late, {len(record.failed)} failed",
        f"{size(record.bytes_down)} down, {size(record.bytes_up)} up",
    ]
    lines = ["  ".join(parts)]
    lines += [f"    {name} failed: {reason}" for name, reason in record.failed.items()]
    lines += [f"    {name} did not answer in time" for name in record.late]
    return "\n".join(lines)


def size(number: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if number < 999.95:  # below what one decimal would round up to 1000
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def report(outcome: Outcome) -> str:
    """Return the outcome as text: sites, count with what there is to say about it, scores, warnings."""
    if outcome.k_hat is None:
        return f"{site_table(outcome)}\n\nstatus: {outcome.status}"
    count = f"K̂ = {outcome.k_hat} global cluster{'' if outcome.k_hat == 1 else 's'}"
    if outcome.bounds is not None:
        low, high = outcome.bounds
        count += f" (at least {low} = max K_g, at most {high} = sum K_g)"
    lines = [site_table(outcome), "", count, *(f"  {sentence}" for sentence in outcome.words)]
    lines += [
        f"{text}: {_text(outcome.scores[name])}"
        for name, text in _LABEL_FREE.items()
        if name in outcome.scores
    ]
    if "ari" in outcome.scores:
        part = _part_of_rows(outcome)
        lines.append(f"against the true classes, which this data set happens to have{part}:")
        found = {name: _text(score) for name, score in outcome.scores.items()}
        lines += [
            f"  {text}: ARI {found[f'{prefix}ari']}, NMI {found[f'{prefix}nmi']}"
            for prefix, text in (
                ("", "global labels, pooled rows"),
                ("own_", "global labels by each site's own components"),
                ("personal_", "mean over sites"),
            )
            if f"{prefix}ari" in found
        ]
    if "center_error" in outcome.scores:
        lines.append(f"  mean distance of matched centres: {_text(outcome.scores['center_error'])}")
    lines += [f"warning: {warning}" for warning in outcome.warnings]
    lines.append(f"status: {outcome.status}")
    return "\n".join(lines)


def _part_of_rows(outcome: Outcome) -> str:
    """Say how many rows stand behind the scores; those in clusters too small at their site do not."""
    scored, rows = outcome.scores.get("rows_scored"), sum(site.rows for site in outcome.sites)
    return (
        ""
        if scored is None or scored >= rows
        else f" ({scored:.0f} of {rows} rows, the others' counts are withheld)"
    )


def site_table(outcome: Outcome) -> str:
    """Return one row for every site."""
    keys = {
        "cells": "cells",
        "components": "comp.",
        "k_g": "K_g",
        "k_eff": "K_eff",
        "k_counted": "counted",
        "chosen": "chosen",
        "held_out_silhouette": "held-out sil.",
        "held_out_log_likelihood": "held-out LL",
        "evidence": "evidence",
        "simplified_silhouette": "simplified sil.",
    }
    shown = {key: title for key, title in keys.items() if any(key in site.details for site in outcome.sites)}
    head = ["site", "rows", *shown.values(), "down", "up", "status"]
    body = [
        [
            site.name,
            str(site.rows),
            *(_text(site.details.get(key)) for key in shown),
            size(site.bytes_down),
            size(site.bytes_up),
            site.status,
        ]
        for site in outcome.sites
    ]
    return aligned([head, *body])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text in columns; the first and the last column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _text(value: Any) -> str:
    if value is None or value == {} or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_text(item)}" for name, item in value.items())
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: tuples as lists, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
