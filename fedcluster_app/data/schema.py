"""Whether two sites have the same columns, in the same order."""

from __future__ import annotations


def first_mismatch(reference: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """Say in words where `other` first departs from `reference`.

    Parameters
    ----------
    reference, other : tuple of str
        Column names; each tuple without duplicates.

    Returns
    -------
    str or None
        For example "column 3 is 'temp', expected 'temperature'" or "has 12 columns, expected 13: 'age' is
        missing"; None when the two are equal.
    """
    if len(reference) != len(other):
        parts = [
            f"{_listed([name for name in wanted if name not in had])} {what}"
            for wanted, had, what in ((reference, other, "missing"), (other, reference, "not expected"))
            if not set(wanted) <= set(had)
        ]
        return f"has {len(other)} columns, expected {len(reference)}: {', '.join(parts)}"
    for j, (expected, name) in enumerate(zip(reference, other, strict=True)):
        if name != expected:
            order = " (the same columns in another order)" if set(reference) == set(other) else ""
            return f"column {j + 1} is {name!r}, expected {expected!r}{order}"
    return None


def _listed(names: list[str]) -> str:
    """Return the first name and how many more there are, with the verb."""
    return f"{names[0]!r} is" if len(names) == 1 else f"{names[0]!r} and {len(names) - 1} more are"
