"""The model file of a method that leaves every site its own mixture; the unit of its features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcluster_app.coupling import bandwidths_of, bounds_of, draws, settings_of
from fedcluster_app.data.scaling import Scaling
from fedcluster_app.errors import DataError
from fedcluster_app.gtvmin.projection import Bounds, infeasible
from fedcluster_app.gtvmin.starts import within_variance
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.options import GTVConfig
from fedcluster_app.results.load import load_model
from fedcluster_app.results.personal import PersonalModels

EYE = np.eye(2)


def mixture(*means: tuple[float, float], scale: float = 1.0) -> Mixture:
    k = len(means)
    return Mixture(np.full(k, 1 / k), np.array(means), np.tile(scale * EYE, (k, 1, 1)))


def models() -> PersonalModels:
    scaling = Scaling(np.array([10.0, 0.0]), np.array([2.0, 1.0]))
    mixtures = {"a": mixture((0, 0), (5, 5)), "b": mixture((5, 5), (0, 0), (0, 9))}
    return PersonalModels(("x", "y"), scaling, mixtures, {"a": np.array([1, 0]), "b": np.array([0, 1, 2])})


def test_the_same_row_has_the_same_number_at_every_site(tmp_path: Path) -> None:
    models().save(tmp_path / "model.npz")
    back = load_model(tmp_path / "model.npz")
    rows = np.array([[10.0, 0.0], [20.0, 5.0]])
    for made in (models(), back):
        assert made.predict(rows, site="a").tolist() == [1, 0]
        assert made.predict(rows, ("x", "y"), site="b").tolist() == [1, 0]
        assert made.predict(np.array([[10.0, 9.0]]), site="b").tolist() == [2]
    models().save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def test_the_site_must_be_said() -> None:
    for site in (None, "c"):
        with pytest.raises(DataError, match=r"has its own mixture; expected one of a, b, got (none|c)"):
            models().predict(np.zeros((1, 2)), site=site)
    with pytest.raises(DataError, match="expected shape"):
        models().predict(np.zeros((1, 3)), site="a")


def test_sizes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"names: expected one for every component"):
        PersonalModels(("x", "y"), models().scaling, {"a": mixture((0, 0))}, {"a": np.array([0, 1])})
    with pytest.raises(ValueError, match="expected shape"):
        PersonalModels(("x",), models().scaling, {"a": mixture((0, 0))}, {"a": np.array([0])})


@pytest.mark.parametrize("score_scale", [None, np.array([2.0, 5.0])])
def test_features_in_another_unit_are_the_same_divided(score_scale: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0][:, :2]
    for scaling in (
        Scaling(X.mean(axis=0), X.std(axis=0), axes, score_scale),
        Scaling(X.mean(axis=0), X.std(axis=0)),
    ):
        np.testing.assert_allclose(scaling.in_units(0.3).apply(X), scaling.apply(X) / 0.3, rtol=1e-12)


def test_variance_within_components() -> None:
    assert within_variance(mixture((0, 0), (9, 9), scale=3.0)) == pytest.approx(3.0)
    uneven = Mixture(np.array([0.75, 0.25]), np.zeros((2, 2)), np.array([EYE, np.diag([1.0, 9.0])]))
    assert within_variance(uneven) == pytest.approx(0.75 * 1 + 0.25 * 5)


BOUNDS = Bounds(0.1, 10.0, 0.5, 4.0)


@pytest.mark.parametrize(
    ("came", "reason"),
    [
        (mixture((0, 0), (1, 1)), None),
        (mixture((0, 0), scale=0.5), None),
        (Mixture(np.array([0.95, 0.05]), np.zeros((2, 2)), np.array([EYE, EYE])), "a weight is 0.05"),
        (mixture((0, 11)), "a mean has length 11, expected at most 10"),
        (mixture((0, 0), scale=0.4), "variances reach from 0.4 to 0.4, expected 0.5 to 4"),
        (mixture((0, 0), scale=4.1), "variances reach from 4.1"),
        (Mixture(np.ones(1), np.zeros((1, 2)), np.array([[[3.0, 2.0], [2.0, 3.0]]])), "from 1 to 5"),
        (Mixture(np.ones(1), np.zeros((1, 2)), np.ones(1)), "expected full covariances, got spherical"),
    ],
)
def test_what_lies_outside_the_bounds_is_told(came: Mixture, reason: str | None) -> None:
    said = infeasible(came, BOUNDS)
    assert said is None if reason is None else said is not None and reason in said


def test_settings_of_a_run() -> None:
    gtv = GTVConfig(discrepancy="kl", guard="off", weight_floor=0.03, variance_floor=0.2)
    settings = settings_of(gtv, 0.7, 8)
    assert (settings.discrepancy, settings.alpha, settings.guard) == ("kl", 0.7, False)
    assert settings.bandwidths == (1.0, 2.0, 4.0, 8.0)
    assert bandwidths_of(2) == (0.5, 1.0, 2.0, 4.0)
    assert (bounds_of(gtv).weight_floor, bounds_of(gtv).variance_floor) == (0.03, 0.2)


def test_draws_differ_by_receiver_sender_round_and_part() -> None:
    streams = [
        draws(*key)(sender).random()
        for key in ((0, "a", 1, 0), (0, "b", 1, 0), (0, "a", 2, 0), (0, "a", 1, 1), (1, "a", 1, 0))
        for sender in ("x", "y")
    ]
    assert len(set(streams)) == len(streams)
    assert draws(0, "a", 1, 0)("x").random() == streams[0]
