"""FedGEM's last stage by hand: radii, the K_g = 1 rule, silent sites, degenerate input."""

import numpy as np
import pytest

from fedcluster_app.aggregation.fedgem import (
    Balls,
    Components,
    FedGEMState,
    client_finish,
    client_step,
    finish,
    init,
    spherical_bic,
    step,
)
from fedcluster_app.errors import ConfigError, DataError


def components(means, *, rows=100, spread=1.0, counts=None, scatter=1.0):
    means = np.array(means, dtype=float)
    k = len(means)
    counts = np.full(k, rows // k) if counts is None else np.array(counts)
    return Components(means, counts, means, np.full(k, scatter), spread, rows)


def state_of(uploads):
    """The state after rounds in which nothing moved."""
    return step(init(), {name: Balls(c.means, np.zeros(len(c.means))) for name, c in uploads.items()})


def grouping(uploads, v, **options):
    return finish(state_of(uploads), uploads, final_radius=v, **options)


@pytest.mark.parametrize("reading", ["squared", "length"])
def test_final_radius_by_hand(reading):
    # Site a: R_min 10, K_g 2, N 100, so size 2 at v = 1; site b: R_min 40, K_g 3, N 400, so size 6.
    uploads = {
        "a": components([[0.0], [10.0]], rows=100),
        "b": components([[3.0], [43.0], [90.0]], rows=400),
    }
    touch = 3 / (2 + 6) if reading == "length" else (3 / (np.sqrt(2) + np.sqrt(6))) ** 2
    below, above = (grouping(uploads, touch * f, radius_is=reading) for f in (0.999, 1.001))
    assert (below.k_hat, above.k_hat) == (5, 4)
    assert above.path.v[1] == pytest.approx(touch)
    np.testing.assert_array_equal(above.labels["a"], [0, 1])
    np.testing.assert_array_equal(above.labels["b"], [0, 2, 3])
    np.testing.assert_allclose(above.centers, [[1.5], [10], [43], [90]])
    assert above.bounds == (3, 5)


def test_r_min_is_that_of_the_last_server_result_not_of_the_extra_step():
    uploads = {"a": components([[0.0], [10.0]]), "b": components([[3.0], [13.0]])}
    state = state_of({**uploads, "a": components([[0.0], [90.0]])})
    sizes = np.sqrt([90 * 2 / 10, 10 * 2 / 10])
    result = finish(state, uploads, final_radius=0.0)
    assert result.path.v[1] == pytest.approx((3 / sizes.sum()) ** 2)


def test_single_component_sites_take_the_smallest_r_min_of_the_others():
    uploads = {
        "a": components([[0.0, 0.0]], spread=77.0),
        "b": components([[1.0, 0.0], [9.0, 0.0]]),
        "c": components([[500.0, 0.0], [504.0, 0.0]]),
    }
    sizes = np.sqrt([4 * 1 / 10, 8 * 2 / 10])
    result = grouping(uploads, 1.0)
    assert result.path.v[1] == pytest.approx((1 / sizes.sum()) ** 2)
    assert result.k_hat >= 2


def test_single_component_everywhere_scales_with_the_spread():
    uploads = {"a": components([[0.0]], spread=1.0), "b": components([[1.0]], spread=3.0)}
    touch = (1 / np.sqrt([2 * 1 / 10, 2 * 3 / 10]).sum()) ** 2
    assert grouping(uploads, touch * 0.99).k_hat == 2
    result = grouping(uploads, touch * 1.01)
    assert (result.k_hat, result.bounds) == (1, (1, 2))
    assert result.collapsed == ()


def test_nearest_order_is_not_misled_by_index_order():
    # The first component of b touches both of a's at v = inf; only its own partner is right.
    uploads = {"a": components([[0.0], [10.0]]), "b": components([[10.1], [0.1]])}
    nearest, released = (grouping(uploads, float("inf"), order=order) for order in ("nearest", "released"))
    assert nearest.k_hat == released.k_hat == 2
    np.testing.assert_array_equal(nearest.labels["b"], [1, 0])
    np.testing.assert_array_equal(released.labels["b"], [0, 1])
    np.testing.assert_array_equal(nearest.path.v, released.path.v)


def test_bic_takes_the_evident_grouping():
    rng = np.random.default_rng(0)
    truth = np.array([[0.0, 0], [12, 0], [0, 12], [12, 12]])
    uploads, classes = {}, {"a": [0, 1, 2], "b": [3, 2], "c": [1, 3, 0, 2]}
    for name, own in classes.items():
        X = np.concatenate([truth[c] + rng.normal(size=(60, 2)) for c in own])
        uploads[name] = client_finish(X, truth[own] + 0.3)
    result = finish(state_of(uploads), uploads)
    assert result.k_hat == 4
    cluster_of = dict(zip([*classes["a"], 3], [0, 1, 2, 3], strict=True))
    for name, own in classes.items():
        assert result.labels[name].tolist() == [cluster_of[c] for c in own]
    assert np.abs(result.centers - truth).max() < 0.5
    assert result.final_radius == result.path.v[np.argmax(result.path.bic)]


def test_silent_site_takes_part_with_its_last_balls_as_equal_components():
    uploads = {"a": components([[0.0], [10.0]]), "b": components([[0.1], [10.1]])}
    state = state_of(uploads)
    full = finish(state, uploads, final_radius=1.0)
    absent = finish(state, {"a": uploads["a"]}, final_radius=1.0, fallback={"b": (100, 1.0)})
    np.testing.assert_array_equal(absent.labels["b"], full.labels["b"])
    np.testing.assert_array_equal(absent.path.v, full.path.v)
    # As b's components are equal, and as wide as a's, nothing is lost.
    np.testing.assert_allclose(absent.path.bic, full.path.bic, rtol=1e-12)
    with pytest.raises(DataError, match="site 'b': silent in the last exchange"):
        finish(state, {"a": uploads["a"]})


def test_a_cluster_that_only_a_silent_site_has_is_kept():
    uploads = {"a": components([[0.0], [10.0]]), "b": components([[0.1], [30.0]])}
    absent = finish(state_of(uploads), {"a": uploads["a"]}, fallback={"b": (100, 1.0)})
    assert absent.k_hat == 3
    assert absent.labels["b"].tolist() == [0, 2]


def test_without_any_statistics_the_factor_is_one():
    uploads = {n: components([[x], [x + 10.0]], counts=[0, 0]) for n, x in (("a", 0.0), ("b", 0.1))}
    result = finish(state_of(uploads), uploads)
    assert np.isnan(result.path.bic).all()
    assert (result.final_radius, result.k_hat) == (1.0, 2)


def test_withheld_components_are_grouped_but_not_scored():
    full = {"a": components([[0.0], [10.0]]), "b": components([[0.1], [10.1]])}
    some = {**full, "b": components([[0.1], [10.1]], counts=[50, 0])}
    result = finish(state_of(full), some, final_radius=1.0)
    assert result.k_hat == 2
    start = spherical_bic(np.array([50.0, 50, 50]), np.full(3, 50.0), 1)
    assert result.path.bic[0] == pytest.approx(start)


def test_one_site_only_keeps_its_components():
    uploads = {"only": components([[0.0, 0.0], [3.0, 0.0], [9.0, 0.0]])}
    result = finish(state_of(uploads), uploads)
    assert (result.k_hat, result.bounds, result.final_radius) == (3, (3, 3), 0.0)
    np.testing.assert_array_equal(result.labels["only"], [0, 1, 2])
    np.testing.assert_array_equal(result.path.k_hat, [3])


def test_coinciding_centres_touch_at_zero():
    uploads = {n: components([[1.0, 2.0], [5.0, 5.0]]) for n in "abc"}
    result = grouping(uploads, 0.0)
    assert result.k_hat == 2
    np.testing.assert_array_equal(result.path.v, [0.0])
    np.testing.assert_array_equal(result.path.k_hat, [2])
    np.testing.assert_allclose(result.centers, [[1, 2], [5, 5]])


def test_balls_of_size_zero_never_grow():
    # Both sites have two equal means: R_min = 0.
    uploads = {"a": components([[0.0], [0.0]]), "b": components([[1.0], [1.0]])}
    result = grouping(uploads, float("inf"))
    assert (result.k_hat, result.collapsed) == (4, ("a", "b"))


def test_bic_floors_the_variance_of_constant_rows():
    uploads = {n: components([[0.0], [10.0]], scatter=0.0) for n in "ab"}
    result = finish(state_of(uploads), uploads)
    assert np.isfinite(result.path.bic).all()
    assert result.k_hat == 2


def test_two_of_three_means_at_one_point_are_a_collapse():
    result = grouping({"a": components([[0.0], [0.0], [9.0]]), "b": components([[0.0], [9.0]])}, 1.0)
    assert result.collapsed == ("a",)


def test_site_without_components_has_no_labels():
    uploads = {
        "a": components([[0.0], [10.0]]),
        "empty": components(np.zeros((0, 1)), counts=np.zeros(0, int)),
    }
    result = grouping(uploads, 1.0)
    assert (result.k_hat, result.bounds) == (2, (2, 2))
    assert result.labels["empty"].shape == (0,)


def test_collapse_of_a_site_is_named():
    rng = np.random.default_rng(0)
    sites = {"narrow": 0.3 * rng.normal(size=(300, 3)), "wide": rng.normal(size=(300, 3)) * [4, 1, 1]}
    means = {name: X[:3] for name, X in sites.items()}
    state = init()
    for _ in range(10):
        state = step(state, {name: client_step(X, means[name]).balls for name, X in sites.items()})
        means = dict(state.means)
    result = finish(state, {name: client_finish(X, means[name]) for name, X in sites.items()})
    assert result.collapsed == ("narrow",)


def test_bad_options_and_nothing_to_group():
    uploads = {"a": components([[0.0], [10.0]])}
    for bad in (-1.0, float("nan"), "best"):
        with pytest.raises(ConfigError, match="final radius: expected bic or a number >= 0"):
            grouping(uploads, bad)
    with pytest.raises(ConfigError, match="nested"):
        grouping(uploads, "bic", order="released")
    with pytest.raises(ConfigError, match="pair order"):
        grouping(uploads, 1.0, order="random")
    with pytest.raises(ConfigError, match="final radius reading"):
        grouping(uploads, 1.0, radius_is="area")
    with pytest.raises(DataError, match="at least one component"):
        finish(FedGEMState(), {})
