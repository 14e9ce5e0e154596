"""IFCA: one model is pooled EM, blocks of sites are recovered, starts lie far apart, guards."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedcluster_app.aggregation import fedem
from fedcluster_app.aggregation.ifca import (
    IFCAState,
    best,
    candidates,
    client_finish,
    client_scores,
    client_step,
    done,
    init,
    status,
    step,
)
from fedcluster_app.errors import ConfigError, DataError
from fedcluster_app.metrics.mixtures import center_error
from fedcluster_app.mixtures import Mixture, em

MIDDLES = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 6.0]])
SHIFTS = {"a": 0, "b": 0, "c": 30, "d": 30, "e": -30, "f": -30}


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(seed, shift=0.0, n=60):
    return shift + MIDDLES[rng(seed).integers(0, 3, size=n)] + rng(seed + 50).normal(size=(n, 2))


BLOCKS = {s: rows(i, shift, 45 + i) for i, (s, shift) in enumerate(SHIFTS.items())}


def models(X, k=3):
    return candidates({s: fedem.client_start(part, k, rng()) for s, part in X.items()})


def start(X, b, seed):
    found = models(X)
    return init(found, {s: client_scores(part, found.values()) for s, part in X.items()}, b, rng(seed))


def run(X, state, rounds=100, tolerance=1e-6, min_count=2.0, **options):
    while not done(state, tolerance=tolerance, max_rounds=rounds):
        sent = {s: client_step(part, state.models, min_count=min_count) for s, part in X.items()}
        state = step(state, sent, **options)
    return state


def assert_same(one, other, atol=1e-10):
    np.testing.assert_allclose(one.weights, other.weights, atol=atol)
    np.testing.assert_allclose(one.means, other.means, atol=atol)
    np.testing.assert_allclose(one.covariances, other.covariances, atol=atol)


@pytest.mark.parametrize("reg_covar", [0.0, 1e-2])
def test_one_model_is_em_on_the_pooled_rows_with_shared_weights(reg_covar):
    X = {s: rows(i, n=30 + 10 * i) for i, s in enumerate("abc")}
    begun = start(X, 1, 0)
    state = run(X, begun, rounds=6, tolerance=0.0, min_count=0, reg_covar=reg_covar)
    wanted = em.init(begun.models[0])
    for _ in range(6):
        wanted = em.step(wanted, np.concatenate(list(X.values())), reg_covar=reg_covar)
    assert_same(state.models[0], wanted.mixture)
    np.testing.assert_allclose(state.trace, wanted.trace)
    assert status(state, tolerance=0.0, max_rounds=6) == "max_rounds"


@pytest.mark.parametrize("seed", range(5))
def test_blocks_of_sites_far_apart_are_recovered_from_every_start(seed):
    state = run(BLOCKS, start(BLOCKS, 3, seed))
    assert status(state, tolerance=1e-6) == "converged"
    choice = {s: part.model for s, part in state.uploads.items()}
    assert (
        choice["a"] == choice["b"] != choice["c"] == choice["d"] != choice["e"] == choice["f"] != choice["a"]
    )
    for site, shift in SHIFTS.items():
        assert center_error(client_finish(BLOCKS[site], state.models).means, MIDDLES + shift) < 0.8


def test_each_model_is_em_on_the_rows_of_the_sites_that_chose_it():
    X = {s: rows(i, shift=i, n=40) for i, s in enumerate("abcd")}
    state = start(X, 2, 1)
    score = {
        s: [
            sum(
                np.log(
                    sum(
                        w * multivariate_normal.pdf(x, m, S)
                        for w, m, S in zip(model.weights, model.means, model.covariances, strict=True)
                    )
                )
                for x in part
            )
            for model in state.models
        ]
        for s, part in X.items()
    }
    after = run(X, state, rounds=1, min_count=0, reg_covar=0.0)
    np.testing.assert_allclose(after.log_likelihood, sum(max(totals) for totals in score.values()) / 160)
    for number, model in enumerate(state.models):
        own = [X[s] for s in X if int(np.argmax(score[s])) == number]
        assert own
        wanted = em.step(em.init(model), np.concatenate(own))
        assert_same(after.models[number], wanted.mixture)


@pytest.mark.parametrize("seed", range(4))
def test_the_log_likelihood_never_falls_though_sites_change_their_minds(seed):
    X = {s: rows(i, shift=0.7 * i, n=40) for i, s in enumerate("abcdef")}
    state = run(X, start(X, 3, seed), min_count=0, reg_covar=0.0, rounds=40)
    assert len(state.trace) > 3
    assert np.diff(state.trace).min() > -1e-12


def test_starts_are_drawn_in_proportion_to_what_rows_lose():
    found = {s: Mixture(np.ones(1), np.full((1, 1), float(i)), np.ones(1)) for i, s in enumerate("abcd")}
    table = -np.array(
        [[0.0, 5.0, 1.0, 3.0], [5.0, 0.0, 4.0, 2.0], [1.0, 4.0, 0.0, 6.0], [3.0, 2.0, 6.0, 0.0]]
    )
    counts, draws = np.zeros((4, 4)), rng(0)
    for _ in range(4000):
        state = init(found, dict(zip("abcd", table, strict=True)), 2, draws)
        first, second = (int(model.means[0, 0]) for model in state.models)
        counts[first, second] += 1
    wanted = -table.T / -table.sum(axis=0)[:, None] / 4
    np.testing.assert_allclose(counts / 4000, wanted, atol=0.025)
    assert len(init(found, dict(zip("abcd", table, strict=True)), 9, draws).models) == 4


def test_no_site_is_drawn_twice_though_its_rows_prefer_anothers_model():
    found = {s: Mixture(np.ones(1), np.full((1, 1), float(i)), np.ones(1)) for i, s in enumerate("abc")}
    scores = dict(zip("abc", -np.array([[9.0, 9.0, 0.0], [9.0, 8.0, 0.0], [9.0, 9.0, 0.0]]), strict=True))
    for seed in range(20):
        state = init(found, scores, 3, rng(seed))
        assert {model.means[0, 0] for model in state.models} == {0.0, 1.0, 2.0}


def test_equal_models_are_drawn_once_each_and_an_unchosen_model_stays():
    X = dict.fromkeys("abc", rows(0))
    begun = start(X, 2, 0)
    after = run(X, begun, rounds=3, tolerance=0.0)
    assert [part.model for part in after.uploads.values()] == [0, 0, 0]
    assert after.models[1] is begun.models[1]
    assert len(start(X, 3, 0).models) == 3


def test_restarts_keep_the_run_of_largest_likelihood():
    runs = [IFCAState((), trace=trace) for trace in ((-3.0, -2.0), (-2.5, -1.0), (-4.0, -1.5))]
    assert best(runs) is runs[1]
    assert best([IFCAState(()), runs[0]]) is runs[0]


def test_order_of_the_sites_changes_nothing():
    backwards = dict(reversed(BLOCKS.items()))
    one, other = (run(X, start(X, 3, 4), rounds=5, tolerance=0.0) for X in (BLOCKS, backwards))
    for a, b in zip(one.models, other.models, strict=True):
        assert a.covariances.tobytes() == b.covariances.tobytes()
    assert one.trace == other.trace


def test_a_silent_site_keeps_its_last_sums_and_small_components_are_withheld():
    begun = start(BLOCKS, 3, 0)
    sums = {s: client_step(part, begun.models) for s, part in BLOCKS.items()}
    late = step(step(begun, {s: sums[s] for s in "abc"}), {s: sums[s] for s in "def"})
    for a, b in zip(late.models, step(begun, sums).models, strict=True):
        assert_same(a, b, atol=0)
    few = client_step(np.concatenate([rows(0)[:1], rows(0, 30.0)[:9]]), begun.models, min_count=100)
    assert not few.stats.mass.any()
    assert few.rows == 10


def test_guards_for_sites_with_few_rows_or_none_and_unequal_k():
    X = {
        "none": np.empty((0, 2)),
        "one": rows(8, n=1),
        "few": rows(9, n=4),
        "many": rows(7),
        "far": rows(6, 40.0),
    }
    found = candidates({s: fedem.client_start(part, 3 if s == "far" else 2, rng()) for s, part in X.items()})
    assert list(found) == ["far", "few", "many"]
    scores = {s: client_scores(part, found.values()) for s, part in X.items()}
    np.testing.assert_array_equal(scores["none"], np.zeros(3))
    state = run(X, init(found, scores, 2, rng(3)), rounds=4, tolerance=0.0)
    assert {model.n_components for model in state.models} <= {1, 2, 3}
    assert state.uploads["none"].rows == 0
    assert client_finish(X["none"], state.models) is state.models[0]
    with pytest.raises(ConfigError, match="at least 1"):
        init(found, scores, 0, rng())
    with pytest.raises(DataError, match="got none"):
        init({}, {}, 2, rng())
    with pytest.raises(DataError, match="many"):
        init(found, {s: scores[s] for s in ("far", "few")}, 2, rng())
