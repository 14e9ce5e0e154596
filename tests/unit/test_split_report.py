from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedcluster_app.cardinality.closed_form import anisotropy, critical_size, join_bound
from fedcluster_app.cardinality.criteria import criterion_of, critical_size_full
from fedcluster_app.cardinality.merge import merge_path
from fedcluster_app.cardinality.report import explain
from fedcluster_app.cardinality.tree import split_tree


def blobs(*sizes, d=4, apart=8.0):
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(apart * i, 1, (n, d)) for i, n in enumerate(sizes)])


X = blobs(150, 100)


def outcomes(report):
    return {decision.outcome for decision in report.decisions}


def test_decisions_are_those_of_the_tree():
    report, tree = explain(X, 2.0, 10), split_tree(X, 10)
    assert [decision.parent for decision in report.decisions] == tree.parents.tolist()
    assert [decision.rows for decision in report.decisions] == [len(rows) for rows in tree.rows]
    for decision, mass, rows in zip(report.decisions, tree.masses, tree.rows, strict=True):
        assert (decision.outcome == "split") == (mass > 0)
        if decision.outcome == "split":
            assert decision.mass == mass
            assert decision.gain > decision.penalty
        assert decision.penalty == pytest.approx(3 * math.log(decision.rows))
        assert decision.anisotropy == pytest.approx(anisotropy(X[rows]), rel=1e-9)
        assert decision.critical_size == pytest.approx(critical_size(decision.anisotropy, 4), rel=1e-6)


def test_merges_and_components_are_those_of_the_fit():
    tree = split_tree(X, 10)
    (components,) = merge_path(tree.leaf_moments(10), [1.3])
    report = explain(X, 1.3, 10, unit=4.0)
    assert len(report.merges) == len(tree.leaves(10)) - len(components.counts) > 0
    assert all(step.ratio < 1.3 for step in report.merges)
    assert [part.rows for part in report.components] == components.counts.tolist()
    np.testing.assert_allclose([part.spread / 4 for part in report.components], np.sqrt(components.variances))
    assert report.merges[-1].spread in [pytest.approx(part.spread) for part in report.components]
    leaves = sorted(leaf for part in report.components for leaf in part.leaves)
    assert leaves == tree.leaves(10).tolist()


def test_every_outcome_is_named():
    assert {"split", "too few rows"} <= outcomes(explain(X, 2.0, 20))
    assert "gain too small" in outcomes(explain(blobs(60, d=64), 2.0, 5))
    assert outcomes(explain(np.ones((9, 2)), 2.0, 2)) == {"no spread"}
    outlier = np.concatenate([blobs(100), [[1e6] * 4]])
    assert [decision.outcome for decision in explain(outlier, 2.0, 5).decisions] == ["child too light"]
    # A full covariance of six rows in eight dimensions is singular.
    full = explain(blobs(40, 6, d=8, apart=20), 2.0, 2, criterion=criterion_of("mixture", "full"))
    assert full.decisions[0].outcome == "no two halves"
    assert math.isnan(full.decisions[0].gain)
    assert full.decisions[0].critical_size == critical_size_full(8)


def test_fragments_are_certain_when_alpha_cannot_join_them():
    doubtful, sound = explain(blobs(2000), 0.5, 10), explain(blobs(2000), 2.0, 10)
    assert len(doubtful.components) > 20
    assert sum(part.fragments for part in doubtful.components) > 10
    assert "may be one of fragments" in doubtful.warning
    assert doubtful.warning in str(doubtful)
    (one,) = sound.components
    assert one.join_bound == join_bound(one.anisotropy, 4) < 2.0
    assert not one.fragments
    assert sound.warning == ""


def test_text_is_aligned_and_json_is_strict():
    report = explain(np.concatenate([X, np.ones((30, 4))]), 1.3, 10)
    tables = str(report).split("\n\n")
    assert [table.splitlines()[0].split()[1] for table in tables[1:4]] == [
        "decisions",
        "merges",
        "components",
    ]
    assert len({len(line) for line in tables[1].splitlines()[1:]}) == 1
    assert "outcome" in tables[1]

    def refuse(constant):
        raise AssertionError(constant)

    record = json.loads(report.to_json(), parse_constant=refuse)
    assert len(record["decisions"]) == len(report.decisions)
    assert record["merges"][0]["ratio"] == report.merges[0].ratio
    assert record["warning"] == report.warning
    assert None in [decision["gain"] for decision in record["decisions"]]


def test_distance_order_is_reported_in_its_own_order():
    (components,) = merge_path(split_tree(X, 10).leaf_moments(10), [1.3], "distance")
    report = explain(X, 1.3, 10, order="distance")
    assert [part.rows for part in report.components] == components.counts.tolist()
