from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from fedcluster_app.aggregation.micro.cells import Cells
from fedcluster_app.aggregation.micro.em import Shrinkage, fit, from_partition
from simulations.experiments.federations import DEVELOPMENT, HELD_BACK, Blobs, federation
from simulations.experiments.k_criteria import RULES, Figures, evidence
from simulations.experiments.k_rules import Trial, main, read, run, summarise, write


def rows_as_cells(X):
    n = len(X)
    return Cells(np.zeros(n, int), np.arange(n) % 2, np.ones(n), X, np.zeros_like(X), 1)


def test_evidence_of_one_cluster_is_the_product_of_predictive_densities():
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(30, 1))
    cells = rows_as_cells(X)
    start = from_partition(cells, np.zeros(30, int), Shrinkage.of(cells))
    found = evidence(cells, fit(cells, start, Shrinkage.of(cells)))
    # Prior: mean of the rows, worth one row; variance that of the rows, 4 = 3 q + 1 degrees of freedom.
    freedom, rows, mean, scale = 4.0, 1.0, X.mean(), 2.0 * X.var()
    expected = 0.0
    for x in X[:, 0]:
        width = np.sqrt(scale * (rows + 1) / (rows * freedom))
        expected += student.logpdf(x, freedom, mean, width)
        scale += rows / (rows + 1) * (x - mean) ** 2
        mean, rows, freedom = (rows * mean + x) / (rows + 1), rows + 1, freedom + 1
    assert found == pytest.approx(expected, abs=1e-6)


def test_evidence_prefers_two_clusters_where_there_are_two():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0]], 40, axis=0)
    cells = rows_as_cells(X)
    shrinkage = Shrinkage.of(cells)
    partitions = [np.zeros(80, int), np.repeat([0, 1], 40), np.repeat([0, 1], 40) + 2 * (np.arange(80) % 2)]
    one, two, four = (
        evidence(cells, fit(cells, from_partition(cells, labels, shrinkage), shrinkage))
        for labels in partitions
    )
    assert two > one
    assert two > four


def path_figures(held, bic, separation):
    m = len(bic)
    zeros = np.zeros(m)
    return Figures(
        k=np.arange(1, m + 1),
        log_likelihood=zeros,
        bic=np.array(bic),
        separation=np.array(separation),
        held_out=np.tile(np.array(held)[:, None] / 6, (1, 6)),
        held_entropy=np.tile(np.arange(m)[:, None] * 1.0, (1, 6)),
        entropy=zeros,
        evidence=-np.array(bic) / 2,
        alike=np.eye(m) + 0.5 * (np.abs(np.subtract.outer(range(m), range(m))) == 1),
        stable=zeros,
    )


def test_rules_choose_from_figures():
    found = path_figures([0, 50, 98.5, 99, 100], [9, 7, 5, 6, 8], [np.nan, 0.5, 0.3, 0.4, 0.6])
    chosen = {name: rule(found) for name, rule in RULES.items()}
    assert chosen["bic"] == chosen["evidence"] == chosen["hold_98"] == chosen["sep"] == 3
    assert chosen["hold"] == 5
    # Every site loses the same: there is no error to be within.
    assert chosen["hold_1se"] == 5
    assert chosen["geometric"] == round((3 * 5 * 3) ** (1 / 3)) == 4
    assert chosen["median"] == chosen["fewest"] == 3
    # Each further cluster costs three units of half the entropy.
    assert chosen["hold - entropy / 2"] == 3
    assert chosen["central of range"] == 4


def test_summary_weighs_sets_equally_and_interpolates():
    one = path_figures([0, 9, 1], [9, 1, 5], [np.nan, 1, 2])
    trials = [
        Trial("a", 0, 2, one, (0.0, 1.0, 0.5)),
        Trial("a", 1, 2, one, (0.0, 0.8, 0.5)),
        Trial("b", 0, 3, one, (0.0, 0.4, 0.7)),
    ]
    truth, bic = summarise(trials, ["true K", "bic"])
    assert truth.agreement == pytest.approx((0.9 + 0.7) / 2)
    assert truth.error == 0
    assert bic.agreement == pytest.approx((0.9 + 0.4) / 2)
    assert bic.error == 0.5
    assert bic.worst == pytest.approx(0.3)
    assert bic.low <= bic.agreement - truth.agreement <= bic.high
    assert bic.by_set["b"] == (0.4, 1.0)


def test_no_set_is_both_for_development_and_held_back():
    assert not set(DEVELOPMENT) & set(HELD_BACK)
    assert not [source for source in HELD_BACK.values() if source in DEVELOPMENT.values()]


@pytest.mark.parametrize("shape", ["round", "elongated", "t", "uniform"])
def test_blobs_are_of_unit_variance_and_the_same_for_a_seed(shape):
    source = Blobs(shape, 3, 4, 3, 2, 3, rows=(300, 500))
    cells, dealt = federation(source, 5, "blobs", "")
    again, _ = federation(source, 5, "blobs", "")
    assert cells.means.tobytes() == again.means.tobytes()
    assert cells.n_sites == len(dealt.train) == 3
    assert cells.n_rows == sum(map(len, dealt.train.values()))
    # In the common scaling all variances are 1 together with the distance of the clusters.
    rows = np.concatenate(list(dealt.train.values()))
    assert np.trace(np.cov(dealt.X[rows].T, bias=True)) == pytest.approx(4, rel=0.06)


def test_paths_are_read_as_they_were_written(tmp_path, capsys):
    trial = run("easy", 0, "")
    assert trial.k_true == 5
    assert max(trial.agreement) > 0.9
    file = tmp_path / "paths.json"
    write(file, [trial])
    (same,) = read(file)
    assert same.agreement == list(trial.agreement)
    assert (same.figures.held_out == trial.figures.held_out).all()
    main(["--read", str(file)])
    assert "geometric" in capsys.readouterr().out
