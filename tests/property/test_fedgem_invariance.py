"""FedGEM: nothing that has no meaning may change the result."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.aggregation.fedgem import (
    Balls,
    Components,
    client_finish,
    client_step,
    finish,
    init,
    step,
)

seeds = st.integers(0, 2**32 - 1)
quiet = settings(deadline=None, derandomize=True, max_examples=40)


def federation(rng, d=3):
    """Rows and starting means of two to five sites, K_g = 1 included."""
    truth = rng.normal(0, 4, (5, d))
    sites = {}
    for g in range(int(rng.integers(2, 6))):
        own = rng.choice(5, int(rng.integers(1, 5)), replace=False)
        X = truth[rng.choice(own, 40)] + rng.normal(size=(40, d))
        sites[f"site-{g}"] = (X, truth[own] + rng.normal(0, 0.5, (len(own), d)))
    return sites


def run(sites, n_rounds=3):
    means = {name: theta for name, (_, theta) in sites.items()}
    state = init()
    for _ in range(n_rounds):
        state = step(state, {name: client_step(X, means[name]).balls for name, (X, _) in sites.items()})
        means = dict(state.means)
    return state, finish(state, {name: client_finish(X, means[name]) for name, (X, _) in sites.items()})


def random_uploads(rng):
    """Last uploads with coinciding means, empty components, K_g = 1, and equal distances (a grid)."""
    uploads = {}
    for g in range(int(rng.integers(1, 7))):
        k = int(rng.integers(1, 6))
        means = rng.integers(-2, 3, (k, 2)) * 1.0 if rng.random() < 0.5 else rng.normal(0, 2, (k, 2))
        counts = rng.integers(0, 50, k)
        spread, rows = float(rng.uniform(0.1, 2)), int(counts.sum()) + 1
        uploads[f"site-{g}"] = Components(means, counts, means, rng.uniform(0, 2, k), spread, rows)
    return uploads


def state_of(uploads):
    return step(init(), {name: Balls(c.means, np.zeros(len(c.means))) for name, c in uploads.items()})


def together(labels):
    """Which components share a cluster: the grouping without its numbering."""
    stacked = np.concatenate(list(labels.values()))
    return stacked[:, None] == stacked


def assert_same_result(found, expected):
    assert found.k_hat == expected.k_hat
    np.testing.assert_allclose(found.final_radius, expected.final_radius, rtol=1e-6)
    np.testing.assert_allclose(found.path.v, expected.path.v, rtol=1e-6)
    np.testing.assert_array_equal(found.path.k_hat, expected.path.k_hat)
    np.testing.assert_allclose(found.path.bic, expected.path.bic, rtol=1e-8)


@quiet
@given(seeds)
def test_shift_and_rotation_of_the_features(seed):
    rng = np.random.default_rng(seed)
    sites = federation(rng)
    shift, rotation = rng.normal(0, 50, 3), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    moved = {name: (X @ rotation + shift, theta @ rotation + shift) for name, (X, theta) in sites.items()}
    (state, expected), (other, found) = run(sites), run(moved)
    for name, means in state.means.items():
        np.testing.assert_allclose(other.means[name], means @ rotation + shift, atol=1e-7)
        np.testing.assert_array_equal(found.labels[name], expected.labels[name])
    assert_same_result(found, expected)
    np.testing.assert_allclose(found.centers, expected.centers @ rotation + shift, atol=1e-7)


@quiet
@given(seeds)
def test_names_of_sites_and_order_of_components(seed):
    rng = np.random.default_rng(seed)
    sites = federation(rng)
    names = dict(zip(sites, rng.permutation(list(sites)).tolist(), strict=True))
    turns = {name: rng.permutation(len(theta)) for name, (_, theta) in sites.items()}
    renamed = {names[name]: (X, theta[turns[name]]) for name, (X, theta) in sites.items()}
    (state, expected), (other, found) = run(sites), run(renamed)
    assert_same_result(found, expected)
    for name, turn in turns.items():
        np.testing.assert_allclose(other.means[names[name]], state.means[name][turn], atol=1e-9)
    aligned = {name: found.labels[names[name]][np.argsort(turn)] for name, turn in turns.items()}
    np.testing.assert_array_equal(together(aligned), together(expected.labels))


@quiet
@given(seeds)
def test_order_of_rows(seed):
    rng = np.random.default_rng(seed)
    sites = federation(rng)
    shuffled = {name: (rng.permutation(X), theta) for name, (X, theta) in sites.items()}
    (state, expected), (other, found) = run(sites), run(shuffled)
    assert_same_result(found, expected)
    for name, means in state.means.items():
        np.testing.assert_allclose(other.means[name], means, atol=1e-9)
        np.testing.assert_array_equal(found.labels[name], expected.labels[name])


@quiet
@given(seeds)
def test_order_of_arrival_changes_no_byte(seed):
    rng = np.random.default_rng(seed)
    sites = federation(rng)
    shuffled = {name: sites[name] for name in rng.permutation(list(sites)).tolist()}
    (state, expected), (other, found) = run(sites), run(shuffled)
    assert list(other.means) == list(state.means) == sorted(sites)
    assert list(found.labels) == list(expected.labels) == sorted(sites)
    for name in sites:
        assert other.means[name].tobytes() == state.means[name].tobytes()
        assert found.labels[name].tobytes() == expected.labels[name].tobytes()
    assert found.centers.tobytes() == expected.centers.tobytes()
    for part in ("v", "k_hat", "bic"):
        assert getattr(found.path, part).tobytes() == getattr(expected.path, part).tobytes()
    assert (other.movement, other.k_hat) == (state.movement, state.k_hat)
    assert (found.k_hat, found.final_radius) == (expected.k_hat, expected.final_radius)


@settings(quiet, max_examples=150)
@given(seeds, st.sampled_from(["squared", "length"]))
def test_the_nearest_first_path_is_nested_and_monotone(seed, reading):
    uploads = random_uploads(np.random.default_rng(seed))
    state = state_of(uploads)

    def at(v):
        return finish(state, uploads, final_radius=v, radius_is=reading)

    path = at(0.0).path
    sizes = [len(c.means) for c in uploads.values()]
    assert path.v[0] == 0
    assert (np.diff(path.v) > 0).all()
    assert (np.diff(path.k_hat) < 0).all()
    finer = np.eye(sum(sizes), dtype=bool)
    for v, k_hat in zip(path.v, path.k_hat, strict=True):
        cut = at(float(v))
        coarser = together(cut.labels)
        assert cut.k_hat == k_hat
        assert max(sizes) <= cut.k_hat <= sum(sizes)
        assert cut.bounds == (max(sizes), sum(sizes))
        assert (coarser >= finer).all(), "a larger v only unites"
        finer = coarser
    np.testing.assert_array_equal(together(at(float("inf")).labels), finer)


@settings(quiet, max_examples=100)
@given(seeds, st.floats(0, 20), st.sampled_from(["nearest", "released"]))
def test_every_grouping_is_admissible(seed, v, order):
    uploads = random_uploads(np.random.default_rng(seed))
    result = finish(state_of(uploads), uploads, final_radius=v, order=order)
    for labels in result.labels.values():
        assert len(set(labels.tolist())) == len(labels), "two components of a site share a cluster"
    stacked = np.concatenate([result.labels[name] for name in sorted(uploads)])
    assert list(dict.fromkeys(stacked.tolist())) == list(range(result.k_hat)), "numbered by first appearance"
    means = np.concatenate([uploads[name].means for name in sorted(uploads)])
    for cluster, center in enumerate(result.centers):
        np.testing.assert_allclose(center, means[stacked == cluster].mean(axis=0), atol=1e-12)


@settings(quiet, max_examples=100)
@given(seeds)
def test_the_choice_is_the_best_cut_of_the_path(seed):
    uploads = random_uploads(np.random.default_rng(seed))
    state = state_of(uploads)
    chosen = finish(state, uploads)
    if np.isfinite(chosen.path.bic).any():
        # Of equal scores, up to rounding, the last: it leaves no cluster without rows.
        best = int(np.flatnonzero(np.isclose(chosen.path.bic, chosen.path.bic.max(), rtol=1e-12, atol=0))[-1])
        assert (chosen.final_radius, chosen.k_hat) == (chosen.path.v[best], chosen.path.k_hat[best])
    again = finish(state, uploads, final_radius=chosen.final_radius)
    for name, labels in chosen.labels.items():
        np.testing.assert_array_equal(again.labels[name], labels)


@quiet
@given(seeds)
def test_an_update_never_leaves_the_ball(seed):
    rng = np.random.default_rng(seed)
    sent = {}
    for g in range(int(rng.integers(1, 6))):
        k = int(rng.integers(1, 5))
        sent[f"site-{g}"] = Balls(rng.normal(size=(k, 2)), rng.choice([0, 1, 30], k) * rng.uniform(size=k))
    state = step(init(), sent)
    for name, balls in sent.items():
        moved = np.linalg.norm(state.means[name] - balls.means, axis=1)
        assert (moved <= balls.radii * (1 + 1e-12) + 1e-12).all()
