"""A site under method="microcluster": what it sends of its rows, and how it labels them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from fedcluster_app.client import SiteClient
from fedcluster_app.data.scaling import lower_triangle, symmetric_matrix
from fedcluster_app.messages import (
    AskHello,
    AskLabels,
    AskMicroClusters,
    AskMicroRound,
    Hello,
    Labelled,
    MicroClustersSent,
    MicroSums,
    Refusal,
)
from fedcluster_app.metrics.additive import score_sums
from fedcluster_app.mixtures.densities import log_densities, log_joint, responsibilities
from fedcluster_app.mixtures.mixture import Mixture
from fedcluster_app.mixtures.weights import site_weights
from fedcluster_app.packing import flatten, listed, unflatten, unlisted
from fedcluster_app.wire import decode, encode

Rows = NDArray[np.float64]
Make = Callable[..., Context]
ASK = AskMicroClusters(np.array([1.0, -1.0]), np.array([2.0, 0.5]), None, None, seed=0)
CROSS = Mixture(
    np.array([0.9, 0.1]),
    np.array([[0.0, 0.0], [1.0, 1.0]]),
    np.array([[[9.0, 0.5], [0.5, 0.25]], [[0.25, -0.1], [-0.1, 9.0]]]),
)


@pytest.fixture
def site(tmp_path: Path) -> Make:
    """Make a real site of scaled rows: its file holds them as they are before the scaling of ``ASK``."""

    def make(rows: Rows, node: dict[str, Any] | None = None, **run: Any) -> Context:
        path = tmp_path / "ward.csv"
        np.savetxt(path, rows * ASK.scale + ASK.center, delimiter=",", header="a,b", comments="", fmt="%.17g")
        own = {"site-name": "ward", "data-path": str(path), "labels-path": str(tmp_path / "labels.csv")}
        config = {name.replace("_", "-"): value for name, value in run.items()}
        return Context(7, 101, {**own, **(node or {})}, RecordDict(), {"method": "microcluster", **config})

    return make


def rows(n: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).normal(size=(n, 2)) * [3.0, 1.0]


def fit(where: Context, ask: object, answer: type) -> Any:
    arrays, _, scalars = SiteClient(where).fit(*listed(encode(ask)))
    return decode(unlisted(arrays, scalars), answer, sender="site")


def labelled(where: Context, ask: AskLabels) -> tuple[Any, NDArray[np.int64]]:
    said = SiteClient(where).evaluate(*listed(encode(ask)))[2]
    lines = Path(str(where.node_config["labels-path"])).read_text().split()[1:]
    found = np.array([line.split(",")[1] for line in lines], dtype=np.int64)
    return decode(unflatten(said), Labelled, sender="site"), found


def ask_labels(clusters: Mixture, **changes: Any) -> AskLabels:
    asked = AskLabels(
        ASK.center,
        ASK.scale,
        None,
        None,
        weights=clusters.weights,
        means=clusters.means,
        covariances=lower_triangle(clusters.covariances),
        offset=None,
        gain=None,
        fit_weights=False,
        own_labels=None,
        names=None,
    )
    return replace(asked, **changes)


# The greeting


@pytest.mark.parametrize(
    ("columns", "run", "full"),
    [
        (3, {"pca": 0}, True),
        (3, {"pca": 9}, True),
        (3, {"pca": 0, "micro-axes": 1.0}, False),
        (3, {"pca": 0, "method": "fedgem"}, False),
        (2, {"pca": 0}, False),
        (3, {"pca": 2, "micro-axes": 1.0}, True),
    ],
)
def test_second_moments_are_full_where_axes_will_be_taken(
    columns: int, run: dict[str, Any], full: bool, tmp_path: Path
) -> None:
    path, X = tmp_path / "ward.csv", np.random.default_rng(0).normal(size=(30, columns))
    np.savetxt(path, X, delimiter=",", header=",".join("abc"[:columns]), comments="", fmt="%.17g")
    node = {"site-name": "ward", "data-path": str(path)}
    where = Context(7, 101, node, RecordDict(), {"method": "microcluster", **run})
    said = SiteClient(where).get_properties(flatten(encode(AskHello(""))))
    hello = decode(unflatten(said), Hello, sender="site")
    assert (hello.scatter is None, hello.scatter_triangle is None) == (full, not full)
    if hello.scatter_triangle is not None:
        covariance = symmetric_matrix(hello.scatter_triangle, columns) / 30
        np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), rtol=1e-10)


# Micro-clusters


@pytest.mark.parametrize(("n", "halves"), [(5, 1), (9, 1), (10, 2), (11, 2), (250, 2)])
def test_the_cells_are_of_all_rows(n: int, halves: int, site: Make) -> None:
    X = rows(n)
    sent = fit(site(X), ASK, MicroClustersSent)
    assert sent.counts.sum() == n
    assert sent.counts.min() >= 5
    assert np.unique(sent.halves).tolist() == list(range(halves))
    mean = sent.counts @ sent.means / n
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
    spread = sent.counts @ (sent.variances + np.square(sent.means - mean)) / n
    np.testing.assert_allclose(spread, X.var(axis=0), rtol=1e-9)
    assert sent.k_counted == 0


def test_settings_reach_the_cells(site: Make) -> None:
    X = rows(400)
    assert len(fit(site(X), ASK, MicroClustersSent).counts) > 20
    few = fit(site(X, micro_max_cells=3), ASK, MicroClustersSent)
    assert np.bincount(few.halves).tolist() == [3, 3]
    large = fit(site(X, micro_cell_rows=100), ASK, MicroClustersSent)
    assert np.bincount(large.halves).tolist() == [2, 2]
    strict = fit(site(X, {"min-count": 30}, min_count=3), ASK, MicroClustersSent)
    assert strict.counts.min() >= 30
    assert fit(site(X, {"min-count": 2}, min_count=40), ASK, MicroClustersSent).counts.min() >= 40


def test_the_seed_and_the_name_fix_the_cells(site: Make) -> None:
    X = rows(100)
    one, same, seed, name = (
        fit(site(X, node, **run), ASK, MicroClustersSent).means.tobytes()
        for node, run in (({}, {}), ({}, {}), ({}, {"seed": 1}), ({"site-name": "other"}, {}))
    )
    assert one == same
    assert len({one, seed, name}) == 3


def test_equal_rows_and_a_constant_column(site: Make) -> None:
    sent = fit(site(np.zeros((40, 2))), ASK, MicroClustersSent)
    np.testing.assert_allclose(sent.means, 0.0, atol=1e-12)
    np.testing.assert_allclose(sent.variances, 0.0, atol=1e-12)
    sent = fit(site(rows(60) * [1.0, 0.0]), ASK, MicroClustersSent)
    np.testing.assert_allclose(sent.variances[:, 1], 0.0, atol=1e-12)


@pytest.mark.parametrize("ask", [ASK, None], ids=["cells", "round"])
def test_a_site_with_too_few_rows_sends_nothing(ask: AskMicroClusters | None, site: Make) -> None:
    said = fit(site(rows(4)), ask or ask_round(), Refusal)
    assert said.reason.endswith("has 4 rows, fewer than min-count=5; it only receives")


def test_the_count_is_made_by_the_estimator_that_votes(site: Make) -> None:
    X = np.vstack([rows(60, 1), rows(60, 2) + np.array([0.0, 40.0])])
    assert fit(site(X, count_vote="consensus", estimator="asm"), ASK, MicroClustersSent).k_counted == 2
    said = fit(site(X, count_vote="oracle"), ASK, Refusal)
    assert "estimator 'oracle' reads the true classes" in said.reason


# A round of federated EM


def ask_round(**changes: Any) -> AskMicroRound:
    asked = AskMicroRound(
        ASK.center,
        ASK.scale,
        None,
        None,
        seed=0,
        means=CROSS.means,
        covariances=lower_triangle(CROSS.covariances),
        members=np.zeros(2, dtype=np.int64),
        rows=np.array([-1]),
        weights=CROSS.weights,
        offset=None,
        gain=None,
    )
    return replace(asked, **changes)


def test_a_round_sends_the_sums_of_the_e_step(site: Make) -> None:
    X = rows(200)
    R, likelihood = responsibilities(X, CROSS)
    sent = fit(site(X), ask_round(), MicroSums)
    np.testing.assert_allclose(sent.mass, R.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(sent.log_likelihood, [likelihood.sum()], rtol=1e-9)
    np.testing.assert_array_equal(sent.held_out, [0.0])
    for k, mean in enumerate(CROSS.means):
        np.testing.assert_allclose(sent.first[k], R[:, k] @ (X - mean), rtol=1e-8)
        second = ((X - mean) * R[:, k, None]).T @ (X - mean)
        np.testing.assert_allclose(symmetric_matrix(sent.second[k], 2), second, rtol=1e-8)


def test_the_weights_stay_at_the_site_from_round_to_round(site: Make) -> None:
    X = rows(200)
    where = site(X)
    first = fit(where, ask_round(), MicroSums)
    # What the coordinator says of the weights counts once: the site has its own since.
    second = fit(where, ask_round(weights=np.array([0.5, 0.5])), MicroSums)
    own = replace(CROSS, weights=first.mass / first.mass.sum())
    np.testing.assert_allclose(second.mass, responsibilities(X, own)[0].sum(axis=0), rtol=1e-6)


def test_a_round_takes_offset_and_gain_out(site: Make) -> None:
    X, offset, gain = rows(200), np.array([5.0, -3.0]), np.array([2.0, 0.5])
    plain = fit(site(X), ask_round(), MicroSums)
    shifted = fit(site(X * gain + offset), ask_round(offset=offset, gain=gain), MicroSums)
    for name in ("mass", "first", "second", "log_likelihood"):
        np.testing.assert_allclose(getattr(shifted, name), getattr(plain, name), rtol=1e-6, atol=1e-6)


# Labels


def test_rows_go_by_full_covariances_and_the_weights_that_came(site: Make) -> None:
    X = rows(300)
    said, found = labelled(site(X), ask_labels(CROSS))
    expected = log_joint(X, CROSS).argmax(axis=1)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) == 2
    sums = score_sums(X, expected, CROSS.means)
    np.testing.assert_array_equal(said.counts, sums.rows)
    np.testing.assert_allclose(said.within, sums.within)
    turned = replace(CROSS, weights=CROSS.weights[::-1])
    assert (labelled(site(X), ask_labels(turned))[1] != found).any()


def test_weights_are_fitted_at_the_site_where_it_is_told_to(site: Make) -> None:
    X = rows(300)[:, ::-1] + [1.0, 1.0]  # nearly all of the second cluster
    fitted = site_weights(log_densities(X, CROSS), CROSS.weights)
    assert fitted[1] > 0.8
    _, found = labelled(site(X), ask_labels(CROSS, fit_weights=True))
    np.testing.assert_array_equal(found, log_joint(X, replace(CROSS, weights=fitted)).argmax(axis=1))
    assert (found != labelled(site(X), ask_labels(CROSS))[1]).any()


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_site_with_too_few_rows_labels_them_and_sends_no_sums(n: int, site: Make) -> None:
    said, found = labelled(site(rows(n)), ask_labels(CROSS, fit_weights=True))
    assert said.counts is None
    assert len(found) == n


def test_labels_and_scores_are_those_of_the_rows_without_offset_and_gain(site: Make) -> None:
    X, offset, gain = rows(300), np.array([5.0, -3.0]), np.array([2.0, 0.5])
    plain, expected = labelled(site(X), ask_labels(CROSS))
    said, found = labelled(site(X * gain + offset), ask_labels(CROSS, offset=offset, gain=gain))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(said.within, plain.within, rtol=1e-9)
    said, found = labelled(site(X + offset), ask_labels(CROSS, offset=offset))
    np.testing.assert_array_equal(found, expected)


def test_one_variance_a_cluster_is_a_covariance_too(site: Make) -> None:
    X = rows(100)
    spherical = Mixture(np.full(2, 0.5), CROSS.means, np.array([0.5, 2.0]))
    full = Mixture(np.full(2, 0.5), CROSS.means, np.stack([0.5 * np.eye(2), 2.0 * np.eye(2)]))
    ask = replace(ask_labels(full), covariances=spherical.covariances[:, None])
    np.testing.assert_array_equal(labelled(site(X), ask)[1], labelled(site(X), ask_labels(full))[1])
