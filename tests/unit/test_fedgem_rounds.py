"""FedGEM at the server, round by round: overlaps, intersection points, drop-outs, stopping."""

from itertools import combinations

import numpy as np
import pytest

from fedcluster_app.aggregation import scan
from fedcluster_app.aggregation.fedgem import Balls, FedGEMState, done, init, status, step
from fedcluster_app.aggregation.scan import cross_site_pairs, intersection_points
from fedcluster_app.errors import ConfigError


def balls(*centers_and_radii):
    centers, radii = zip(*centers_and_radii, strict=True)
    return Balls(np.array(centers, dtype=float), np.array(radii, dtype=float))


def random_balls(seed, sizes=(3, 5, 1, 4), d=3):
    rng = np.random.default_rng(seed)
    return {f"s{g}": Balls(rng.normal(size=(k, d)), rng.uniform(0, 1, k)) for g, k in enumerate(sizes)}


@pytest.mark.parametrize("block", [1, 40, 1 << 22])
def test_scan_finds_exactly_the_touching_pairs_of_different_sites_in_index_order(monkeypatch, block):
    monkeypatch.setattr(scan, "_BLOCK", block)
    rng = np.random.default_rng(0)
    centers, radii, site = rng.normal(size=(40, 3)), rng.uniform(0, 0.8, 40), np.repeat(np.arange(5), 8)
    distance = np.linalg.norm(centers[:, None] - centers, axis=2)
    cross = [(i, j) for i, j in combinations(range(40), 2) if site[i] != site[j]]
    touching = [(i, j) for i, j in cross if distance[i, j] <= radii[i] + radii[j]]
    assert 20 < len(touching) < len(cross)
    for wanted, reach in ((cross, None), (touching, radii)):
        pairs = cross_site_pairs(centers, site, reach)
        found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
        assert found == wanted
        np.testing.assert_allclose(pairs.distance, [distance[pair] for pair in wanted])


@pytest.mark.parametrize(
    ("w", "r1", "r2", "where"),
    [
        (2.0, 5.0, 5.0, 1.0),  # both hold the midpoint
        (2.0, 0.5, 1.8, 0.5),  # as far as ball 1 reaches
        (2.0, 1.8, 0.5, 1.5),  # as near as ball 2 allows
        (2.0, 1.5, 0.5, 1.5),  # contact in one point
        (2.0, 2.0, 0.0, 2.0),  # a point in a ball
        (2.0, 0.0, 2.0, 0.0),
        (0.0, 0.0, 0.0, 0.0),  # coinciding centres
        (1e-320, 1.0, 1.0, 0.0),
    ],
)
def test_intersection_point_by_hand(w, r1, r2, where):
    args = [np.array([value]) for value in (r1, r2, w)]
    point = intersection_points(np.zeros((1, 1)), np.array([[w]]), *args)
    np.testing.assert_allclose(point, [[where]], atol=1e-300)


def test_intersection_point_does_not_depend_on_which_ball_is_first():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 500, 3))
    r, s = rng.uniform(0, 2, (2, 500))
    w = np.linalg.norm(a - b, axis=1)
    touch = w <= r + s
    a, b, r, s, w = (part[touch] for part in (a, b, r, s, w))
    np.testing.assert_allclose(
        intersection_points(a, b, r, s, w), intersection_points(b, a, s, r, w), atol=1e-14
    )


@pytest.mark.parametrize("block", [4, 1 << 22])
def test_new_mean_is_the_plain_average_of_centre_and_intersection_points(monkeypatch, block):
    monkeypatch.setattr(scan, "_BLOCK", block)
    sent = random_balls(2)
    state = step(init(), sent)
    flat = [
        (n, k, m, r) for n, b in sent.items() for k, (m, r) in enumerate(zip(b.means, b.radii, strict=True))
    ]
    for name, k, mean, radius in flat:
        points = [mean]
        for other, _, partner, reach in flat:
            w = np.linalg.norm(mean - partner)
            if other != name and w <= radius + reach:
                along = min(max(0.5, 1 - reach / w), radius / w)
                points.append(mean + along * (partner - mean))
        np.testing.assert_allclose(state.means[name][k], np.mean(points, axis=0))
        assert np.linalg.norm(state.means[name][k] - mean) <= radius + 1e-12


def test_two_sites_meet_halfway_and_a_far_component_stays():
    state = step(init(), {"b": balls(([2, 0], 1.5), ([9, 9], 1)), "a": balls(([0, 0], 1.5))})
    assert list(state.means) == ["a", "b"]
    np.testing.assert_allclose(state.means["a"], [[0.5, 0]])
    np.testing.assert_allclose(state.means["b"], [[1.5, 0], [9, 9]])
    assert (state.round, state.k_hat) == (1, 2)


def test_components_of_one_site_never_meet():
    state = step(init(), {"a": balls(([0, 0], 5), ([1, 0], 5)), "b": balls(([50, 0], 0))})
    np.testing.assert_array_equal(state.means["a"], [[0, 0], [1, 0]])
    assert state.k_hat == 3


def test_balls_in_contact_touch():
    assert step(init(), {"a": balls(([0.0], 1.25)), "b": balls(([2.0], 0.75))}).k_hat == 1
    assert step(init(), {"a": balls(([0.0], 1.25)), "b": balls(([2.0], 0.74))}).k_hat == 2
    assert step(init(), {"a": balls(([3.0], 0)), "b": balls(([3.0], 0))}).k_hat == 1


def test_pairs_that_touch_at_the_smallest_scale_come_first():
    # A chain b2 - a1 - b1 - a2. The inner pair is the closest, and first by index, but touches last (.95
    # against .92); taken first it would veto both others.
    sent = {"a": balls(([0.0], 0.1), ([1.19], 0.99)), "b": balls(([0.19], 0.1), ([-1.0], 0.99))}
    assert step(init(), sent).k_hat == 2
    assert step(init(), sent, order="released").k_hat == 3
    with pytest.raises(ConfigError, match="pair order"):
        step(init(), sent, order="random")


def test_silent_site_keeps_its_ball_and_a_new_one_joins_late():
    sent = random_balls(3)
    first = step(init(), sent)
    moved = {"s0": Balls(sent["s0"].means + 0.01, sent["s0"].radii)}
    second = step(first, moved)
    full = step(first, {**sent, **moved})
    for name in sent:
        np.testing.assert_array_equal(second.means[name], full.means[name])
        assert second.balls[name] is (moved["s0"] if name == "s0" else sent[name])
    assert second.movement == full.movement < np.inf
    third = step(second, {"late": balls(([0, 0, 0], 0.1))})
    assert list(third.means) == ["late", "s0", "s1", "s2", "s3"]
    assert third.movement == np.inf
    assert first.round == 1, "a state is a value: later steps leave it alone"


def test_a_round_without_answers_only_counts():
    first = step(init(), random_balls(4))
    silent = step(first, {})
    assert (silent.round, silent.movement, silent.means) == (2, first.movement, first.means)
    assert not done(silent, max_rounds=3)
    assert step(init(), {}).k_hat == 0


def test_movement_is_the_largest_displacement_between_server_results():
    first = step(init(), {"a": balls(([0, 0], 0), ([5, 5], 0)), "b": balls(([20, 0], 0))})
    assert first.movement == np.inf
    second = step(first, {"a": balls(([0, 0.1], 0), ([5 + 3, 5 + 4], 0)), "b": balls(([20, 0], 0))})
    assert second.movement == pytest.approx(5)
    assert step(second, {"a": balls(([0, 0], 0))}).movement == np.inf, "another K_g is a new site"


def test_stopping_by_movement_or_rounds_says_which():
    assert status(FedGEMState()) == "running"
    assert status(FedGEMState(round=3, movement=1e-3)) == "converged"
    assert status(FedGEMState(round=3, movement=1.1e-3)) == "running"
    assert status(FedGEMState(round=10, movement=1.1e-3)) == "max_rounds"
    assert status(FedGEMState(round=10, movement=0.0)) == "converged"
    assert not done(FedGEMState(round=2, movement=0.5))
    assert done(FedGEMState(round=2, movement=0.5), tolerance=0.5)
    assert done(FedGEMState(round=2, movement=0.5), max_rounds=2)


def test_site_without_components_changes_nothing():
    sent = random_balls(5)
    state = step(init(), {**sent, "s00": Balls(np.zeros((0, 3)), np.zeros(0))})
    assert state.means["s00"].shape == (0, 3)
    for name in sent:
        np.testing.assert_array_equal(state.means[name], step(init(), sent).means[name])


def test_one_site_alone():
    sent = {"only": balls(([0, 0], 3), ([1, 0], 3))}
    state = step(step(init(), sent), sent)
    np.testing.assert_array_equal(state.means["only"], sent["only"].means)
    assert (state.k_hat, state.movement) == (2, 0)
