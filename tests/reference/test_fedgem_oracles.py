"""FedGEM against slow, literal computations: the radius program, the label rules, the BIC of real rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedcluster_app.aggregation.fedgem import Balls, client_finish, client_step, finish, init, step
from fedcluster_app.aggregation.grouping import cluster_labels, merging_pairs, pair_order
from fedcluster_app.aggregation.scan import cross_site_pairs


def bisected_radius(W, Q, mass, shift, halvings=200):
    """Largest eps in [0, D] for which some alpha >= Gamma satisfies the published quadratic, by bisection."""
    low, high = 0.0, shift
    for _ in range(halvings):
        eps = (low + high) / 2
        alpha = max(mass, (Q - W + mass * eps) / (2 * eps))
        if eps * alpha**2 + (W - Q - mass * eps) * alpha + mass * Q <= 0:
            low = eps
        else:
            high = eps
    return np.sqrt(low)


@pytest.mark.parametrize("seed", range(50))
def test_published_radius_solves_the_published_program(seed):
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(1, 22)), int(rng.integers(2, 6))
    centers = rng.normal(0, 3, (k, d))
    X = centers[rng.integers(0, k, 120)] + rng.normal(size=(120, d))
    theta = centers + rng.normal(0, 1, (k, d))
    result = client_step(X, theta)
    R = result.responsibilities.astype(np.longdouble)
    for j, (mean, radius) in enumerate(zip(result.balls.means, result.balls.radii, strict=True)):
        if result.mass[j] < 1e-3:
            continue
        W, Q = (R[:, j] @ np.square(X - m).sum(axis=1) for m in (mean, theta[j]))
        expected = bisected_radius(W, Q, R[:, j].sum(), np.square(mean - theta[j]).sum())
        np.testing.assert_allclose(radius, float(expected), rtol=1e-9)


def released_labels(first, second, site):
    """The label rules of the authors' code, one pair after the other."""
    label: dict[int, int] = {}
    members: dict[int, set[int]] = {}

    def sites(cluster):
        return {site[m] for m in members[cluster]}

    for i, j in zip(first, second, strict=True):
        a, b = label.get(i), label.get(j)
        if a is None and b is None:
            new = len(members)
            members[new] = {i, j}
            label[i] = label[j] = new
        elif a is None or b is None:
            cluster, joining = (b, i) if a is None else (a, j)
            if site[joining] not in sites(cluster):
                members[cluster].add(joining)
                label[joining] = cluster
        elif a != b and not sites(a) & sites(b):
            for m in members[b]:
                label[m] = a
            members[a] |= members[b]
            members[b] = set()
    for i in range(len(site)):
        label.setdefault(i, len(members) + i)
    numbers = {c: position for position, c in enumerate(dict.fromkeys(label[i] for i in range(len(site))))}
    return [numbers[label[i]] for i in range(len(site))]


@pytest.mark.parametrize("order", ["nearest", "released"])
def test_constrained_linkage_equals_the_released_label_rules(order):
    rng = np.random.default_rng(11)
    vetoed = 0
    for _ in range(300):
        site = np.repeat(np.arange(int(rng.integers(1, 7))), 1)
        site = np.repeat(site, rng.integers(1, 7, len(site)))
        centers = rng.normal(size=(len(site), 2))
        radii = rng.uniform(0, rng.choice([0.3, 0.8, 3.0]), len(site))
        pairs = cross_site_pairs(centers, site, radii)
        offered = pair_order(pairs.distance / (radii[pairs.first] + radii[pairs.second]), order)
        merged = merging_pairs(pairs, offered, site)
        labels = cluster_labels(pairs.first[merged], pairs.second[merged], site)
        expected = released_labels(
            pairs.first[offered].tolist(), pairs.second[offered].tolist(), site.tolist()
        )
        assert labels.tolist() == expected
        vetoed += len(site) - len(merged) > len(set(expected)) - 1 and len(offered) > len(merged)
    assert vetoed > 100


@pytest.mark.parametrize("seed", range(4))
def test_bic_is_that_of_the_rows_at_every_cut(seed):
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 3, (5, 3))
    rows = {}
    for g in range(4):
        own = rng.choice(5, int(rng.integers(2, 5)), replace=False)
        rows[f"s{g}"] = (
            own,
            np.concatenate([truth[c] + rng.normal(size=(int(rng.integers(9, 60)), 3)) for c in own]),
        )
    theta = {name: truth[own] + rng.normal(0, 0.4, (len(own), 3)) for name, (own, _) in rows.items()}
    theta["s0"] = np.append(theta["s0"], [[1e3, 0, 0]], axis=0)  # holds no rows
    state = step(init(), {name: Balls(m, np.zeros(len(m))) for name, m in theta.items()})
    uploads = {name: client_finish(X, theta[name]) for name, (_, X) in rows.items()}
    X = np.concatenate([X for _, X in rows.values()])
    path = finish(state, uploads).path
    assert len(path.v) > 5
    for v, k_hat, bic in zip(path.v, path.k_hat, path.bic, strict=True):
        cut = finish(state, uploads, final_radius=float(v))
        assert cut.k_hat == k_hat
        nearest = {n: np.square(X[:, None] - uploads[n].means).sum(2).argmin(1) for n, (_, X) in rows.items()}
        labels = np.concatenate([cut.labels[name][own] for name, own in nearest.items()])
        used = np.unique(labels)
        log_likelihood = 0.0
        for cluster in used:
            own = X[labels == cluster]
            density = multivariate_normal(own.mean(0), own.var(0).mean() * np.eye(3))
            log_likelihood += density.logpdf(own).sum() + len(own) * np.log(len(own) / len(X))
        constant = 3 * len(X) * np.log(2 * np.pi)
        np.testing.assert_allclose(
            bic, 2 * log_likelihood + constant - len(used) * (3 + 2) * np.log(len(X)), rtol=1e-10
        )
