"""Consensus EM: tracking against EM on the pooled rows, leaky against dense matrices, silence, guards."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedcluster_app.errors import ConfigError
from fedcluster_app.gtvmin import Bounds, complete, erdos_renyi, from_edges, kmeans_start, ring
from fedcluster_app.gtvmin.aligned import align
from fedcluster_app.gtvmin.consensus_em import Message
from fedcluster_app.gtvmin.consensus_em import init as node_init
from fedcluster_app.gtvmin.consensus_em import step as node_step
from fedcluster_app.gtvmin.consensus_gains import Gains, gains
from fedcluster_app.gtvmin.consensus_moments import moments_about
from fedcluster_app.gtvmin.consensus_network import ConsensusSettings, done, finish, init, status, step
from fedcluster_app.gtvmin.graph import Graph
from fedcluster_app.mixtures import Mixture, collect, sample

TRUTH = Mixture(np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 7.0]]), np.ones(3))
LEAKY = ConsensusSettings(filter="leaky")


def rng(seed=0):
    return np.random.default_rng(seed)


def network(sizes=(30, 45, 8, 60, 2), p=0.3):
    """Sites, of which one has fewer rows than there are components, and a start from the others."""
    parts = {f"s{i}": sample(TRUTH, n, rng(i))[0] for i, n in enumerate(sizes)}
    starts = {name: kmeans_start(X, 3, rng(1), Bounds()) for name, X in parts.items()}
    return parts, align(starts, 3).pooled, erdos_renyi(list(parts), p, rng(2))


def pooled_em(X, mixture, steps):
    """EM by the book, with densities of SciPy."""
    weights, means, covariances = mixture.weights, mixture.means, mixture.covariances
    for _ in range(steps):
        parts = zip(weights, means, covariances, strict=True)
        joint = np.stack([w * multivariate_normal(m, S).pdf(X) for w, m, S in parts], axis=1)
        R = joint / joint.sum(axis=1, keepdims=True)
        weights = R.mean(axis=0)
        means = R.T @ X / R.sum(axis=0)[:, None]
        covariances = np.stack([np.cov(X.T, aweights=r, ddof=0) for r in R.T])
    return weights, means, covariances


def run(parts, start, graph, settings, number):
    state = init(parts, start, graph, settings)
    for _ in range(number):
        state = step(state, parts, graph, settings)
    return state


def totals(state):
    own = sum(node.own for node in state.nodes.values())
    return own, sum(node.estimate for node in state.nodes.values())


@pytest.mark.parametrize("make", [ring, complete])
def test_tracking_ends_in_em_on_the_pooled_rows(make):
    parts, start, _ = network()
    found = finish(run(parts, start, make(list(parts)), ConsensusSettings(), 120))
    wanted = pooled_em(np.concatenate(list(parts.values())), start, 80)
    for mixture in found.values():
        for mine, theirs in zip((mixture.weights, mixture.means, mixture.covariances), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_short_steps_end_in_the_same_em():
    parts, start, _ = network()
    graph, short = ring(list(parts)), ConsensusSettings(step_size=0.5)
    found = finish(run(parts, start, graph, short, 150))
    _, means, _ = pooled_em(np.concatenate(list(parts.values())), start, 80)
    for mixture in found.values():
        np.testing.assert_allclose(mixture.means, means, atol=1e-6)
    state = run(parts, start, graph, short, 4)
    after = step(state, parts, graph, short)
    for name, X in parts.items():
        fresh = node_init(X, after.nodes[name].mixture, state.nodes[name].origin).own
        halfway = (state.nodes[name].own + fresh) / 2
        np.testing.assert_allclose(after.nodes[name].own, halfway, rtol=1e-9, atol=1e-9)


def test_sums_over_the_network_agree_in_every_round():
    parts, start, graph = network()
    state = init(parts, start, graph)
    for _ in range(15):
        state = step(state, parts, graph)
        own, estimates = totals(state)
        np.testing.assert_allclose(estimates, own, rtol=1e-9, atol=1e-9)
        assert own[:, 0].sum() == pytest.approx(sum(map(len, parts.values())))


def test_tracking_is_the_matrix_recursion():
    parts, start, graph = network()
    names, degrees = list(graph.names), [len(graph.neighbours(name)) for name in graph.names]
    M = np.zeros((5, 5))
    for a, b in graph.edges:
        i, j = names.index(a), names.index(b)
        M[i, j] = M[j, i] = 1 / (1 + max(degrees[i], degrees[j]))
    M += np.diag(1 - M.sum(axis=1))
    state = init(parts, start, graph)
    for _ in range(6):
        x = np.stack([node.estimate for node in state.nodes.values()])
        u = np.stack([node.own for node in state.nodes.values()])
        state = step(state, parts, graph)
        new = np.stack([node.own for node in state.nodes.values()])
        found = np.stack([node.estimate for node in state.nodes.values()])
        np.testing.assert_allclose(found, np.einsum("ij,jkp->ikp", M, x) + new - u, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gain", [None, 0.05])
def test_leaky_filter_is_its_dense_matrix(gain):
    parts, start, graph = network()
    settings = ConsensusSettings(filter="leaky", gain=gain)
    A = np.array([[float(b in graph.neighbours(a)) for b in graph.names] for a in graph.names])
    D, one = np.diag(A.sum(axis=1)), np.eye(5)
    g = 1 / (2 * A.sum(axis=1).max() + 2) if gain is None else gain
    state = init(parts, start, graph, settings)
    for _ in range(6):
        x = np.stack([node.estimate for node in state.nodes.values()]).reshape(5, -1)
        u = np.stack([node.own for node in state.nodes.values()]).reshape(5, -1)
        state = step(state, parts, graph, settings)
        found = np.stack([node.estimate for node in state.nodes.values()]).reshape(5, -1)
        np.testing.assert_allclose(
            found, x + g * ((A - D) @ x + (A + one) @ u - (D + one) @ x), rtol=1e-9, atol=1e-9
        )


def test_leaky_comes_near_the_pooled_mixture_and_not_to_it():
    parts, start, _ = network()
    graph = ring(list(parts))
    leaky = finish(run(parts, start, graph, LEAKY, 60))
    _, means, _ = pooled_em(np.concatenate(list(parts.values())), start, 80)
    gaps = [np.linalg.norm(mixture.means - means, axis=1).max() for mixture in leaky.values()]
    assert 1e-3 < max(gaps) < 1


def test_sum_is_right_again_after_silence_and_after_lost_answers():
    parts, start, graph = network(p=0.8)
    state = run(parts, start, graph, ConsensusSettings(), 2)
    off = []
    for event in ({"silent": ["s1"]}, {"lost": ["s0", "s3"]}, {"silent": ["s2", "s3"], "lost": ["s4"]}):
        state = step(state, parts, graph, **event)
        own, estimates = totals(state)
        off.append(np.abs(own - estimates).max())
    assert max(off) > 1e-3
    # What was lost is heard in the next round; the one after has the flows of every edge agree.
    state = step(step(state, parts, graph), parts, graph)
    own, estimates = totals(state)
    np.testing.assert_allclose(estimates, own, rtol=1e-9, atol=1e-9)
    found = finish(run_on(state, parts, graph, 120))
    _, means, _ = pooled_em(np.concatenate(list(parts.values())), start, 80)
    for mixture in found.values():
        np.testing.assert_allclose(mixture.means, means, atol=1e-6)


def run_on(state, parts, graph, number):
    for _ in range(number):
        state = step(state, parts, graph)
    return state


def test_one_silent_round_is_made_good_in_the_next():
    parts, start, graph = network()
    state = step(run(parts, start, graph, ConsensusSettings(), 3), parts, graph, silent=["s1"])
    own, estimates = totals(state)
    assert np.abs(own - estimates).max() > 1e-3
    own, estimates = totals(step(state, parts, graph))
    np.testing.assert_allclose(estimates, own, rtol=1e-9, atol=1e-9)


def test_who_is_left_out_takes_its_rows_along():
    parts, start, _ = network(sizes=(30, 40, 50))
    whole = from_edges([("s0", "s1"), ("s1", "s2"), ("s0", "s2")])
    state = run(parts, start, whole, ConsensusSettings(), 5)
    rest = Graph(("s0", "s1"), (("s0", "s1"),), (1.0,))
    left = {name: parts[name] for name in rest.names}
    nodes = {name: state.nodes[name] for name in rest.names}
    state = run_on(type(state)(nodes, nodes), left, rest, 100)
    _, means, _ = pooled_em(np.concatenate(list(left.values())), start, 80)
    for mixture in finish(state).values():
        np.testing.assert_allclose(mixture.means, means, atol=1e-6)


def test_order_of_the_sites_changes_no_byte():
    parts, start, graph = network()
    for settings in (ConsensusSettings(), LEAKY):
        one = finish(run(parts, start, graph, settings, 5))
        turned = from_edges([(b, a) for a, b in reversed(graph.edges)])
        other = finish(run(dict(reversed(parts.items())), start, turned, settings, 5))
        for name in parts:
            assert one[name].covariances.tobytes() == other[name].covariances.tobytes()
    gain, state = gains(graph, "s0"), init(parts, start, graph)
    mail = {name: Message(state.nodes[name].estimate, 0 * state.nodes[name].own) for name in gain.neighbours}
    flipped = dict(reversed(mail.items()))
    a, b = (node_step(state.nodes["s0"], parts["s0"], received, gain) for received in (mail, flipped))
    assert a.estimate.tobytes() == b.estimate.tobytes()


def test_one_site_is_em_and_stops():
    X = sample(TRUTH, 90, rng(3))[0]
    start = kmeans_start(X, 3, rng(), Bounds()).mixture
    alone = Graph(("a",), (), ())
    state = init({"a": X}, start, alone)
    while not done(state, tolerance=1e-9, max_rounds=100):
        state = step(state, {"a": X}, alone)
    assert status(state, tolerance=1e-9, max_rounds=100) == "converged"
    weights, means, _ = pooled_em(X, start, 100)
    np.testing.assert_allclose(state.nodes["a"].mixture.means, means, atol=1e-6)
    np.testing.assert_allclose(state.nodes["a"].mixture.weights, weights, atol=1e-6)
    assert status(init({"a": X}, start, alone), max_rounds=0) == "max_rounds"


@pytest.mark.parametrize("settings", [ConsensusSettings(), LEAKY])
def test_no_rows_coinciding_rows_and_small_components(settings):
    parts, start, _ = network(sizes=(30, 40))
    parts |= {"none": np.empty((0, 2)), "same": np.ones((7, 2)), "row": np.full((1, 2), 30.0)}
    state = run(parts, start, complete(list(parts)), settings, 20)
    for node in state.nodes.values():
        assert np.isfinite(node.mixture.means).all()
    assert np.isnan(state.nodes["none"].log_likelihood)
    np.testing.assert_array_equal(state.nodes["none"].own, 0.0)
    shy = node_init(parts["row"], start, np.zeros(2), min_count=5)
    np.testing.assert_array_equal(shy.own, 0.0)
    # Nobody has anything to say: the start stays.
    stays = node_step(shy, parts["row"], {}, Gains({}), min_count=5).mixture
    np.testing.assert_array_equal(stays.means, shy.mixture.means)


def test_moments_add_over_rows_and_are_plain_sums_about_their_origin():
    X, R, origin = rng(1).normal(size=(20, 2)), rng(2).dirichlet(np.ones(3), size=20), np.array([3.0, -1.0])
    whole = moments_about(origin, collect(X, R, "full"))
    halves = [moments_about(origin, collect(X[s], R[s], "full")) for s in (slice(7), slice(7, None))]
    np.testing.assert_allclose(whole, sum(halves), rtol=1e-9, atol=1e-9)
    Y = X - origin
    squares = np.einsum("nk,ni,nj->kij", R, Y, Y)
    np.testing.assert_allclose(whole[:, 3:], squares[:, [0, 1, 1], [0, 0, 1]])
    np.testing.assert_allclose(whole[:, 1:3], R.T @ Y)


def test_gains_bounds_and_edge_weights():
    graph = from_edges([("a", "b", 2.0), ("b", "c", 0.5)])
    assert gains(graph, "a").neighbours == {"b": 2.0 / 3.5}
    assert gains(graph, "b").neighbours == {"a": 2.0 / 3.5, "c": 0.5 / 3.5}
    leaky = gains(graph, "b", "leaky")
    assert leaky.own == 1 / 7
    assert leaky.neighbours == {"a": 2 / 7, "c": 0.5 / 7}
    for gain in (0.0, 0.2, float("nan")):
        with pytest.raises(ConfigError, match="gain: expected more than 0 and at most"):
            gains(graph, "b", "leaky", gain)
    with pytest.raises(ConfigError, match="filter"):
        gains(graph, "b", "kalman")


def test_refusals():
    parts, start, graph = network()
    with pytest.raises(ConfigError, match=r"tables: expected one for every site .* differing in s4"):
        init({name: X for name, X in parts.items() if name != "s4"}, start, graph)
    two = Mixture(np.full(2, 0.5), start.means[:2], start.covariances[:2])
    with pytest.raises(ConfigError, match="same number of components"):
        init(parts, {name: two if name == "s3" else start for name in parts}, graph)
    state = init(parts, start, graph)
    other = node_init(parts["s1"], two, np.zeros(2))
    name = next(iter(graph.neighbours("s0")))
    with pytest.raises(ConfigError, match=f"neighbour {name}: expected statistics"):
        node_step(state.nodes["s0"], parts["s0"], {name: Message(other.own, other.own)}, gains(graph, "s0"))
    with pytest.raises(ConfigError, match="weight floor"):
        node_init(parts["s1"], start, np.zeros(2), bounds=Bounds(weight_floor=0.4))
