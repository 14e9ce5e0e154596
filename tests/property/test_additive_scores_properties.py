"""Score sums add over any sites; scores follow shift, rotation and scale."""

from __future__ import annotations

from functools import reduce

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcluster_app.metrics import additive, score_sums, scores

FAST = settings(deadline=None, derandomize=True, max_examples=80)
seeds = st.integers(0, 2**32 - 1)


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n, d, k = rng.integers(1, 40), rng.integers(1, 5), rng.integers(1, 5)
    return rng.normal(size=(n, d)), rng.integers(k, size=n), rng.normal(size=(k, d)), rng


def assert_scores_close(a: dict[str, float], b: dict[str, float]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_allclose(value, b[name], rtol=1e-8, atol=1e-10, err_msg=name)


@given(seed=seeds, cuts=st.lists(st.integers(0, 40), max_size=4))
@FAST
def test_sums_of_sites_give_the_scores_of_the_whole(seed: int, cuts: list[int]) -> None:
    X, labels, centers, _ = random_case(seed)
    edges = sorted(min(cut, len(X)) for cut in cuts)
    sites = zip(np.split(X, edges), np.split(labels, edges), strict=True)
    merged = reduce(additive.merge, (score_sums(*site, centers) for site in sites))
    whole = score_sums(X, labels, centers)
    np.testing.assert_array_equal(merged.rows, whole.rows)
    assert_scores_close(scores(merged, centers), scores(whole, centers))


@given(seed=seeds, scale=st.sampled_from([1e-2, 1.0, 1e4]))
@FAST
def test_invariances(seed: int, scale: float) -> None:
    X, labels, centers, rng = random_case(seed)
    result = scores(score_sums(X, labels, centers), centers)
    order = rng.permutation(len(X))
    assert_scores_close(scores(score_sums(X[order], labels[order], centers), centers), result)
    names = rng.permutation(len(centers))
    renamed = centers[np.argsort(names)]
    assert_scores_close(scores(score_sums(X, names[labels], renamed), renamed), result)
    Q, _ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))
    shift = 10 * rng.normal(size=X.shape[1])
    moved, centers_moved = scale * (X @ Q + shift), scale * (centers @ Q + shift)
    assert_scores_close(scores(score_sums(moved, labels, centers_moved), centers_moved), result)
