"""What goes on along edges, against finite differences of the discrepancy."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster_app.gtvmin import euclidean, mmd
from fedcluster_app.gtvmin.blocks import Blocks, blocks, moved
from fedcluster_app.gtvmin.edges import edge_reports
from fedcluster_app.gtvmin.graph import from_edges
from fedcluster_app.gtvmin.objective import mmd_distances
from fedcluster_app.gtvmin.settings import Settings
from fedcluster_app.mixtures.mixture import Mixture

D = {"mmd": mmd.discrepancy, "euclidean": euclidean.discrepancy}


def mixture(seed: int, k: int = 2, d: int = 2) -> Mixture:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(k, d, d))
    return Mixture(
        rng.dirichlet(np.full(k, 5.0)), rng.normal(size=(k, d)), A @ A.transpose(0, 2, 1) + np.eye(d)
    )


def draws(receiver: str, sender: str) -> np.random.Generator:
    return np.random.default_rng([ord(receiver), ord(sender)])


def slope(discrepancy: str, own: Mixture, other: Mixture) -> float:
    """Norm of the gradient by central differences along an orthonormal basis of the parameters."""
    theta, h = blocks(own), 1e-5
    k, d = theta.means.shape
    directions = [Blocks(w, np.zeros((k, d)), np.zeros((k, d, d))) for w in np.eye(k)]
    directions += [Blocks(np.zeros(k), m.reshape(k, d), np.zeros((k, d, d))) for m in np.eye(k * d)]
    for c in range(k):
        for i, j in zip(*np.tril_indices(d), strict=True):
            S = np.zeros((k, d, d))
            S[c, i, j] = S[c, j, i] = 1.0 if i == j else np.sqrt(0.5)
            directions.append(Blocks(np.zeros(k), np.zeros((k, d)), S))
    measure = D[discrepancy]
    slopes = [
        (measure(moved(theta, way, h), blocks(other)) - measure(moved(theta, way, -h), blocks(other)))
        / (2 * h)
        for way in directions
    ]
    return float(np.linalg.norm(slopes))


@pytest.mark.parametrize("discrepancy", ["mmd", "euclidean"])
def test_pulls_are_norms_of_gradients(discrepancy: str) -> None:
    models = {"a": mixture(0), "b": mixture(1), "c": mixture(2)}
    graph = from_edges([("a", "b", 0.5), ("b", "c", 2.0)])
    settings = Settings(discrepancy=discrepancy, alpha=3.0)
    found = edge_reports(models, graph, settings, draws)
    for report, (a, b, weight) in zip(found, [("a", "b", 0.5), ("b", "c", 2.0)], strict=True):
        assert report.ends == (a, b)
        assert report.weight == weight
        assert report.disagreement == pytest.approx(D[discrepancy](blocks(models[a]), blocks(models[b])))
        for pull, (own, other) in zip(report.pulls, ((a, b), (b, a)), strict=True):
            assert pull == pytest.approx(
                3.0 * weight * slope(discrepancy, models[own], models[other]), rel=1e-5
            )


def test_equal_ends_neither_disagree_nor_pull() -> None:
    models = {"a": mixture(0), "b": mixture(0)}
    for discrepancy in ("mmd", "euclidean"):
        settings = Settings(discrepancy=discrepancy)
        (report,) = edge_reports(models, from_edges([("a", "b")]), settings, draws)
        assert report.disagreement == pytest.approx(0, abs=1e-12)
        assert report.pulls == pytest.approx((0, 0), abs=1e-9)


def test_kl_is_estimated_from_the_streams_of_the_edge() -> None:
    models = {"a": mixture(0), "b": mixture(1)}
    settings = Settings(discrepancy="kl", samples=4000)
    (report,) = edge_reports(models, from_edges([("a", "b")]), settings, draws)
    assert report.disagreement > 0
    assert report.pulls[0] > 0
    (again,) = edge_reports(models, from_edges([("a", "b")]), settings, draws)
    assert again == report


def test_distances_of_all_pairs() -> None:
    models = [mixture(seed) for seed in range(4)]
    found = mmd_distances(models)
    assert found.shape == (4, 4)
    np.testing.assert_array_equal(found, found.T)
    assert (found.diagonal() == 0).all()
    for i in range(4):
        for j in range(i):
            assert found[i, j] == pytest.approx(
                mmd.discrepancy(blocks(models[i]), blocks(models[j])), abs=1e-12
            )
