"""Federated fuzzy c-means: one site against fuzzy c-means written here, both averages, guards."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fedcluster_app.aggregation.ffcm import (
    FFCMState,
    FuzzySums,
    client_step,
    done,
    init,
    memberships,
    status,
    step,
)
from fedcluster_app.errors import ConfigError

SQUARE = np.zeros(2), np.ones(2)


def rows(seed, n=60, d=2):
    rng = np.random.default_rng(seed)
    return 0.15 * rng.random((n, d)) + 0.4 * rng.integers(0, 3, size=(n, 1))


def textbook_memberships(X, centers, m):
    """Bezdek's formula, entry by entry; no row may meet a centre."""
    U = np.empty((len(X), len(centers)))
    for i, x in enumerate(X):
        for j, c in enumerate(centers):
            ratios = [np.linalg.norm(x - c) / np.linalg.norm(x - other) for other in centers]
            U[i, j] = 1 / sum(ratio ** (2 / (m - 1)) for ratio in ratios)
    return U


def fuzzy_c_means(X, centers, m, exponent, steps):
    for _ in range(steps):
        W = textbook_memberships(X, centers, m) ** exponent
        centers = np.stack([np.average(X, axis=0, weights=W[:, j]) for j in range(len(centers))])
    return centers


@pytest.mark.parametrize("average", ["avg1", "avg2"])
@pytest.mark.parametrize("m", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("update", ["released", "textbook"])
def test_one_site_is_fuzzy_c_means(update, m, average):
    X, rng = rows(0), np.random.default_rng(1)
    state = init(3, *SQUARE, rng)
    start, exponent = state.centers, 1.0 if update == "released" else m
    for _ in range(4):
        sent = client_step(X, state.centers, fuzzifier=m, update=update, local_steps=2)
        state = step(state, {"a": sent}, rng, average=average)
    wanted = fuzzy_c_means(X, start, m, exponent, steps=8)
    found = state.centers
    # k-means over exactly k centres only renumbers them.
    order, other = np.argsort(found[:, 0]), np.argsort(wanted[:, 0])
    np.testing.assert_allclose(found[order], wanted[other], rtol=1e-9)


def test_converged_local_run_minimises_the_fuzzy_objective():
    X, m = rows(2), 2.0
    start = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]])
    sent = client_step(X, start, update="textbook", tolerance=1e-12)
    found = sent.sums / sent.supports[:, None]

    def objective(centers):
        U = textbook_memberships(X, centers, m)
        return (U**m * np.square(X[:, None] - centers).sum(axis=2)).sum()

    rng, least = np.random.default_rng(0), objective(found)
    for _ in range(20):
        assert objective(found + 0.01 * rng.normal(size=found.shape)) > least
    np.testing.assert_allclose(sent.supports, (textbook_memberships(X, found, m) ** m).sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("update", ["released", "textbook"])
def test_one_local_step_at_every_site_is_a_step_on_the_pooled_rows(update):
    parts = {s: rows(i, n) for i, (s, n) in enumerate([("a", 10), ("b", 33), ("c", 1)])}
    rng = np.random.default_rng(4)
    state = init(4, *SQUARE, rng)
    sent = {s: client_step(X, state.centers, update=update, local_steps=1) for s, X in parts.items()}
    pooled = client_step(np.concatenate(list(parts.values())), state.centers, update=update, local_steps=1)
    np.testing.assert_allclose(sum(p.sums for p in sent.values()), pooled.sums)
    np.testing.assert_allclose(
        step(state, sent, rng).centers, step(state, {"all": pooled}, rng).centers, rtol=1e-12
    )


def test_squared_membership_is_the_published_one_at_half_the_fuzzifier_less_one():
    X, centers = rows(3), rows(5, n=4)
    np.testing.assert_allclose(memberships(X, centers, fuzzifier=2.0), textbook_memberships(X, centers, 2.0))
    np.testing.assert_allclose(
        memberships(X, centers, fuzzifier=3.0, membership="squared"), textbook_memberships(X, centers, 2.0)
    )


def test_avg1_weighs_with_the_supports_and_avg2_does_not():
    def upload(centers, supports):
        return FuzzySums(np.array(centers) * np.array(supports)[:, None], np.array(supports))

    uploads = {"a": upload([[0.0], [1.0]], [3.0, 1.0]), "b": upload([[0.4], [0.8]], [1.0, 3.0])}
    state, rng = FFCMState(np.array([[0.0], [1.0]])), np.random.default_rng(0)
    np.testing.assert_allclose(step(state, uploads, rng).centers, [[0.1], [0.85]])
    second = step(step(state, uploads, rng, average="avg2"), uploads, rng, average="avg2")
    np.testing.assert_allclose(np.sort(second.centers, axis=0), [[0.2], [0.9]])


def test_avg2_is_kmeans_from_the_last_centres_and_needs_no_common_numbering():
    rng = np.random.default_rng(6)
    middles = np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]])
    uploads = {}
    for site in "abcd":
        supports = rng.uniform(1, 9, size=3)
        centers = middles[rng.permutation(3)] + 0.05 * rng.normal(size=(3, 2))
        uploads[site] = FuzzySums(centers * supports[:, None], supports)
    sent = np.concatenate([part.sums / part.supports[:, None] for part in uploads.values()])
    state = FFCMState(middles, round=1, movement=1.0)
    wanted = KMeans(3, init=middles, n_init=1).fit(sent).cluster_centers_
    np.testing.assert_allclose(step(state, uploads, rng, average="avg2").centers, wanted)


def test_avg2_starts_from_kmeans_plus_plus_in_the_first_round_only(monkeypatch):
    drawn = []

    def seeds(sent, k, rng):
        drawn.append(sent)
        return sent[[0, 4, 5]]

    monkeypatch.setattr("fedcluster_app.aggregation.ffcm.kmeans_plus_plus", seeds)
    rng = np.random.default_rng(8)
    sent = rng.random((6, 2))
    uploads = {"a": FuzzySums(2 * sent[:3], np.full(3, 2.0)), "b": FuzzySums(sent[3:], np.ones(3))}
    first = step(FFCMState(np.full((3, 2), 9.0)), uploads, rng, average="avg2")
    wanted = KMeans(3, init=sent[[0, 4, 5]], n_init=1).fit(sent).cluster_centers_
    np.testing.assert_allclose(first.centers, wanted)
    step(first, uploads, rng, average="avg2")
    assert len(drawn) == 1


def test_a_loose_tolerance_stops_after_the_second_step():
    X, centers = rows(1), rows(7, n=3)
    loose, two = client_step(X, centers, tolerance=1e9), client_step(X, centers, local_steps=2)
    np.testing.assert_array_equal(loose.sums, two.sums)
    assert np.abs(client_step(X, centers).sums - two.sums).max() > 1e-6


def test_a_vanishing_support_is_sent_as_zeros():
    sent = client_step(np.array([[0.001, 0.0]]), np.eye(2) - [[1, 0], [0, 0]], fuzzifier=1.2, local_steps=1)
    np.testing.assert_array_equal(sent.supports > 0, [True, False])
    np.testing.assert_array_equal(sent.sums[1], [0, 0])


def test_rounds_converge_and_stop():
    parts = {s: rows(i, 40) for i, s in enumerate("abc")}
    for average in ("avg1", "avg2"):
        rng = np.random.default_rng(0)
        state = init(3, *SQUARE, rng)
        while not done(state, max_rounds=200):
            sent = {s: client_step(X, state.centers) for s, X in parts.items()}
            state = step(state, sent, rng, average=average)
        assert status(state, max_rounds=200) == "converged"
        assert 1 < state.round < 200
    assert status(state, tolerance=0.0, max_rounds=state.round) == "max_rounds"
    assert status(state, tolerance=0.0, max_rounds=state.round + 1) == "running"


@pytest.mark.parametrize("average", ["avg1", "avg2"])
def test_order_of_the_sites_changes_nothing_and_silent_sites_keep_their_last_word(average):
    state = init(3, *SQUARE, np.random.default_rng(0))
    sent = {s: client_step(rows(i, 20), state.centers) for i, s in enumerate("cab")}
    one = step(state, sent, np.random.default_rng(1), average=average)
    other = step(state, dict(reversed(sent.items())), np.random.default_rng(1), average=average)
    assert one.centers.tobytes() == other.centers.tobytes()
    again = {"a": client_step(rows(1, 20), one.centers)}
    lost = step(one, again, np.random.default_rng(2), average=average)
    full = step(one, {**sent, **again}, np.random.default_rng(2), average=average)
    assert lost.centers.tobytes() == full.centers.tobytes()


def test_rows_on_a_centre_and_coinciding_centres():
    centers = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    U = memberships(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]), centers)
    np.testing.assert_allclose(U, [[0.5, 0.5, 0], [0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])
    same = client_step(np.full((5, 2), 0.3), np.full((2, 2), 0.3))
    np.testing.assert_allclose(same.sums / same.supports[:, None], np.full((2, 2), 0.3))
    near = memberships(np.full((1, 2), 1e-300), np.array([[0.0, 0.0], [1.0, 1.0]]), fuzzifier=1.01)
    np.testing.assert_allclose(near, [[1.0, 0.0]])


@pytest.mark.parametrize("average", ["avg1", "avg2"])
def test_clusters_and_sites_without_support(average):
    rng = np.random.default_rng(0)
    state = FFCMState(np.array([[0.2, 0.2], [0.8, 0.8]]))
    none = client_step(np.empty((0, 2)), state.centers)
    np.testing.assert_array_equal(none.supports, [0, 0])
    assert step(state, {"a": none}, rng, average=average).centers.tobytes() == state.centers.tobytes()
    # The only row sits on the first centre: nothing is known about the second.
    one = client_step(np.array([[0.2, 0.2]]), state.centers)
    np.testing.assert_array_equal(one.supports, [1, 0])
    after = step(state, {"a": none, "b": one}, rng, average=average)
    assert np.isfinite(after.centers).all()
    assert after.centers.shape == (2, 2)
    if average == "avg1":
        np.testing.assert_array_equal(after.centers, state.centers)


def test_centres_start_between_the_corners():
    low, high = np.array([-3.0, 5.0, 0.0]), np.array([-2.0, 5.0, 1e-3])
    centers = init(200, low, high, np.random.default_rng(0)).centers
    assert (centers >= low).all()
    assert (centers <= high).all()
    np.testing.assert_allclose((centers[:, 0] + 3).std(), 12**-0.5, rtol=0.1)
    unit = init(4, np.zeros(2), np.ones(2), np.random.default_rng(1)).centers
    np.testing.assert_array_equal(unit, np.random.default_rng(1).random((4, 2)))


@pytest.mark.parametrize("update", ["released", "textbook"])
def test_what_a_site_leaves_out_is_nothing_or_enough(update):
    rng = np.random.default_rng(3)
    hidden_seen = 0
    for _ in range(60):
        X = rng.normal(size=(rng.integers(5, 30), 2)) + 6 * rng.integers(0, 3, size=(1, 1))
        centers = 6 * rng.integers(0, 3, size=(4, 1)) + rng.normal(size=(4, 2))
        sent = client_step(X, centers, update=update, local_steps=3, min_count=5)
        assert ((sent.supports == 0) | (sent.supports >= 5)).all()
        assert (sent.sums[sent.supports == 0] == 0).all()
        left = len(X) - sent.supports.sum()
        assert left < 1e-9 or left >= 5
        hidden_seen += bool((sent.supports == 0).any())
        if left < 1e-9:  # all rows are in, so their total is
            np.testing.assert_allclose(sent.sums.sum(axis=0), X.sum(axis=0))
    assert hidden_seen > 5


def test_refusals():
    X, state = np.zeros((3, 2)), FFCMState(np.ones((1, 2)))
    for call in (
        lambda: memberships(X, X, fuzzifier=1.0),
        lambda: memberships(X, X, membership="cubed"),
        lambda: client_step(X, X, update="new"),
        lambda: client_step(X, X, local_steps=0),
        lambda: init(0, *SQUARE, np.random.default_rng(0)),
        lambda: step(state, {}, np.random.default_rng(0), average="avg3"),
    ):
        with pytest.raises(ConfigError, match="expected"):
            call()
