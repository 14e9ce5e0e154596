from __future__ import annotations

import itertools

import numpy as np

from fedcluster_app.streams import stream


def draws(seed: int, *names: str | int) -> tuple[int, ...]:
    # Raw words: NumPy promises that these never change.
    return tuple(stream(seed, *names).bit_generator.random_raw(3).tolist())


def test_the_same_names_give_the_same_numbers_whatever_was_drawn_before() -> None:
    first = draws(42, "site-00", "count")
    for other in range(5):
        draws(other, "site-00", "init")
    assert draws(42, "site-00", "count") == first


def test_every_other_seed_site_purpose_and_order_of_names_is_another_stream() -> None:
    names: list[tuple[str | int, ...]] = [
        (),
        ("a",),
        ("b",),
        ("a", "count"),
        ("count", "a"),
        ("a", "init"),
        ("a", "init", 1),
        ("a", "init", 2),
        ("ainit",),
        ("a init",),
    ]
    found = {draws(seed, *parts) for seed, parts in itertools.product((0, 1, 2**32 - 1), names)}
    assert len(found) == 3 * len(names)


def test_the_numbers_are_pinned() -> None:
    # A changed stream changes every published result of a seed.
    assert draws(42, "site-00", "count") == (12503691559824084894, 12223715775682845402, 2983195293004562472)
    assert draws(42, "Åre", 3) != draws(42, "Are", 3)


def test_streams_of_neighbouring_sites_are_not_alike() -> None:
    sample = np.array([stream(0, f"site-{site:02d}", "count").standard_normal(400) for site in range(20)])
    correlations = np.corrcoef(sample)[np.triu_indices(20, k=1)]
    assert np.abs(correlations).max() < 0.25
