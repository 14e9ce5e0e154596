"""GTVMin at a site: what is held back, what is held out, and what stays there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedcluster_app.config import as_run_config, parse_run_config
from fedcluster_app.messages import AskGTVRound, AskGTVStart, GTVMemory, GTVMixture
from fedcluster_app.messages.gtvmin import stacked
from fedcluster_app.mixtures.densities import responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.site import Site
from fedcluster_app.steps import gtvmin

EYE = np.eye(2)
SCALING: dict[str, Any] = {
    "center": np.zeros(2),
    "scale": np.ones(2),
    "components": None,
    "score_scale": None,
}


def mixture(*means: tuple[float, float], weights: Any = None) -> Mixture:
    k = len(means)
    shares = np.full(k, 1 / k) if weights is None else np.array(weights)
    return Mixture(shares, np.array(means), np.tile(EYE, (k, 1, 1)))


def rows(*sizes: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(10.0 * j, 1.0, (n, 2)) for j, n in enumerate(sizes)])


@pytest.fixture
def site(tmp_path: Path) -> Any:
    def make(X: np.ndarray, **values: Any) -> Site:
        path = tmp_path / "a.csv"
        path.write_text("x,y\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()))
        settings = {
            "method": "gtvmin",
            "components": 2,
            "alpha": 1.0,
            "discrepancy": "mmd",
            "gtv-starts": 3,
            "gtv-folds": 3,
        }
        config = as_run_config(
            parse_run_config(settings | {k.replace("_", "-"): v for k, v in values.items()})
        )
        return Site(Context(1, 1, {"site-name": "a", "data-path": str(path)}, RecordDict(), config))

    return make


def ask(own: Mixture, *others: Mixture, number: int = 1, alpha: float = 1.0, turn: int = 0) -> AskGTVRound:
    return AskGTVRound(
        **SCALING,
        round=number,
        turn=turn,
        alpha=alpha,
        neighbours=tuple(f"n{position}" for position in range(len(others))),
        edges=np.ones(len(others)) if others else None,
        **stacked([own, *others]),
    )


def test_what_stands_on_too_few_rows_stays_as_it_was() -> None:
    X = rows(20, 4)
    before, after = mixture((0, 0), (10, 10)), mixture((0.5, 0), (10.5, 10), weights=[0.8, 0.2])
    for least, kept in ((4, []), (5, [1]), (30, [0, 1])):
        found = gtvmin._held_back(X, before, after, least)
        for c in (0, 1):
            expected = before if c in kept else after
            np.testing.assert_array_equal(found.means[c], expected.means[c])
        weights = after.weights if not kept else before.weights
        np.testing.assert_allclose(found.weights, weights)
    # The others share what the small one leaves.
    three = mixture((0, 0), (10, 10), (20, 20), weights=[0.4, 0.4, 0.2])
    moved = mixture((0, 0), (10, 10), (20, 20), weights=[0.6, 0.3, 0.1])
    found = gtvmin._held_back(rows(20, 20, 4), three, moved, 5)
    np.testing.assert_allclose(found.weights, [0.8 * 2 / 3, 0.8 / 3, 0.2])
    # Also if it has only just come to its rows: the step was made with those it had before.
    empty = mixture((0, 0), (30, 30))
    found = gtvmin._held_back(X, empty, mixture((0, 0), (5, 5)), 5)
    np.testing.assert_array_equal(found.means[1], [30, 30])


def test_a_component_of_few_rows_is_none_at_the_start(site: Any) -> None:
    found = gtvmin.start(site(rows(40, 4), min_count=5), AskGTVStart(**SCALING))
    assert found.k_counted == 2
    assert len(found.weights) == 1
    assert found.held_out_rows == 44
    assert gtvmin.start(site(rows(40, 5), min_count=5), AskGTVStart(**SCALING)).weights.shape == (2,)


def test_a_component_of_shared_rows_is_none_at_the_start(site: Any) -> None:
    """Six rows are nearest to it, but only four in total belong to it: in rounds it would be held back."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0, 1, (60, 2)), rng.normal(2.2, 0.5, (6, 2))])
    for seed in range(3):
        here = site(X, min_count=5, components=4, seed=seed)
        found = gtvmin.start(here, AskGTVStart(**SCALING)).mixture
        assert responsibilities(X, found)[0].sum(axis=0).min() >= 5 - 1e-6


@pytest.mark.parametrize("X", [np.array([[3.0, 4.0]]), np.zeros((30, 2)), np.full((30, 2), 7.3)])
def test_rows_that_are_all_equal_have_a_start(site: Any, X: np.ndarray) -> None:
    here = site(X, min_count=1, gtv_folds=0)
    here = Site(
        Context(
            1,
            1,
            {"site-name": "a", "data-path": here.node.data_path, "min-count": 1},
            RecordDict(),
            as_run_config(here.config),
        )
    )
    found = gtvmin.start(here, AskGTVStart(**SCALING)).mixture
    np.testing.assert_allclose(found.weights @ found.means, X.mean(axis=0))
    assert np.linalg.eigvalsh(found.covariances).min() > 0


def test_only_sums_tell_of_mixtures_made_without_some_rows(site: Any) -> None:
    """Beside the mixture of all rows, one without some of them would give rows away as differences."""
    here = site(rows(30, 30))
    begun = gtvmin.start(here, AskGTVStart(**SCALING))
    told = gtvmin.advance(here, ask(begun.mixture, mixture((0, 0), (10, 10))))
    assert isinstance(told, GTVMixture)
    assert told.means.shape == (2, 2)  # one mixture
    kept = here.memory.load(GTVMemory)
    assert len(kept.mixtures) == 6  # three parts, as they are and as they started
    # The score is that of each row under a mixture that it took no part in.
    X, parts = here.rows(ask(begun.mixture).scaling), gtvmin._parts(here, 60)
    assert sorted(np.concatenate([np.flatnonzero(part) for part in parts]).tolist()) == list(range(60))
    scores = [
        responsibilities(X[part], made)[1].sum() for part, made in zip(parts, kept.mixtures[:3], strict=True)
    ]
    assert told.held_out == pytest.approx(sum(scores))
    assert told.held_out_rows == 60


def test_held_out_mixtures_go_on_and_begin_anew(site: Any) -> None:
    here = site(rows(30, 30))
    own, other = mixture((1, 0), (9, 9)), mixture((0, 0), (10, 10))
    first = gtvmin.advance(here, ask(own, other))
    second = gtvmin.advance(here, ask(own, other, number=2))
    assert second.held_out != first.held_out
    again = gtvmin.advance(here, ask(own, other, number=3, turn=1))
    assert again.held_out == pytest.approx(first.held_out, rel=1e-12)
    # Also where the site was not asked, or not heard, in the first round of that turn.
    later = gtvmin.advance(here, ask(own, other, number=9, turn=2))
    assert later.held_out == pytest.approx(first.held_out, rel=1e-12)
    starts = here.memory.load(GTVMemory).mixtures[3:]
    for part, begun in zip(gtvmin._parts(here, 60), starts, strict=True):
        assert begun.n_components == 2
        assert part.sum() == 20


def test_sites_too_small_for_parts_hold_nothing_out(site: Any) -> None:
    here = site(rows(7, 7), min_count=5)
    assert gtvmin._parts(here, 14) == []
    assert gtvmin.start(here, AskGTVStart(**SCALING)).held_out_rows == 0
    told = gtvmin.advance(here, ask(mixture((0, 0), (10, 10))))
    assert (told.held_out, told.held_out_rows) == (0, 0)
    assert here.memory.load(GTVMemory) is None


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (3e6, 5e3), (-2e-5, 1e-6)])
def test_starts_are_the_same_in_any_unit(site: Any, shift: float, scale: float) -> None:
    plain = gtvmin.start(site(rows(30, 30)), AskGTVStart(**SCALING)).mixture
    moved = gtvmin.start(site(shift + scale * rows(30, 30)), AskGTVStart(**SCALING)).mixture
    np.testing.assert_allclose((moved.means - shift) / scale, plain.means, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moved.covariances / scale**2, plain.covariances, rtol=1e-6, atol=1e-6)


def test_an_impossible_neighbour_is_refused(site: Any) -> None:
    from fedcluster_app.errors import DataError

    narrow = Mixture(np.ones(1), np.zeros((1, 2)), 1e-9 * EYE[None])
    with pytest.raises(DataError, match="the mixture of 'n0' that came cannot be used: variances"):
        gtvmin.advance(site(rows(30, 30)), ask(mixture((0, 0)), narrow))
