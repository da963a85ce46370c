"""Communities: exact moments, planted networks, every kind of input, what is refused."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.datasets import make_block_model
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.graphs.nodes import Nodes
from latensor.models.graphs.star import read_star
from latensor.models.graphs.sums import ExplainedEdges, simplex_least_squares
from latensor.moments.batch import Batch

PLANTED = make_block_model(600, 3, alpha0=0.2, degree=40, random_state=0)


def model(k=3, **settings):
    return lt.MixedMembershipBlockModel(k, random_state=0, **settings)


def error(found, truth):
    gaps = np.abs(found[:, :, None] - truth[:, None, :]).sum(axis=0)
    rows, columns = linear_sum_assignment(gaps)
    return np.abs(found[:, rows] - truth[:, columns]).sum(axis=1).mean() / 2


@pytest.mark.parametrize("seed", range(20))
def test_population_moments_give_the_communities_back(seed):
    rng = np.random.default_rng(seed)
    k = 4
    alpha = rng.uniform(0.1, 0.6, k)
    total = alpha.sum()
    columns = [rng.standard_normal((k, k)) + 3 * np.eye(k) for _ in range(3)]
    one, eye = alpha / total, np.eye(k)
    two = (np.diag(alpha) + np.outer(alpha, alpha)) / (total * (total + 1))
    three = np.einsum("i,j,k->ijk", alpha, alpha, alpha)
    pairs = np.diag(alpha)
    three += np.einsum("ij,k->ijk", pairs, alpha) + np.einsum("ik,j->ijk", pairs, alpha)
    three += np.einsum("jk,i->ijk", pairs, alpha)
    three += 2 * np.einsum("i,ij,ik->ijk", alpha, eye, eye)
    three /= total * (total + 1) * (total + 2)
    a, b, c = columns
    found = read_star(
        np.stack([f @ one for f in columns]),
        np.stack([a @ two @ b.T, a @ two @ c.T, b @ two @ c.T]),
        np.einsum("ijk,ai,bj,ck->abc", three, a, b, c),
        total,
        rng,
    )
    order = linear_sum_assignment(np.abs(found.columns[2].T[:, None] - c.T[None]).sum(axis=2))[1]
    assert np.abs(found.weights - one[order]).max() < 1e-8
    for got, expected in zip(found.columns, columns, strict=True):
        assert np.abs(got - expected[:, order]).max() < 1e-8


def test_explained_edges_are_those_of_all_pairs_of_communities():
    rng = np.random.default_rng(0)
    n, k = 12, 3
    out = np.triu(rng.poisson(1.0, (n, n)), 1).astype(float)
    weights, block = rng.random((n, k)), rng.random((k, k))
    flows = np.einsum("ik,kl,jl->ijkl", weights, block, weights)
    flows /= flows.sum(axis=(2, 3), keepdims=True)
    for directed in (False, True):
        matrix = out if directed else out + out.T
        # Loops count for nothing.
        rows = scipy.sparse.csr_array(matrix + np.eye(n))
        batch = Batch((rows,), np.ones(n), np.arange(n, dtype=np.uint64))
        nodes = Nodes(n, np.array([0]), directed)
        found = ExplainedEdges(nodes, weights, block).update(batch)
        counts = np.einsum("ij,ijkl->ik", matrix, flows)
        if directed:
            counts = counts + np.einsum("ij,ijkl->jl", matrix, flows)
        assert np.abs(found.counts() - counts).max() < 1e-10
        assert np.abs(found.seen()["block"] - np.einsum("ij,ijkl->kl", matrix, flows)).max() < 1e-10


def test_least_squares_on_the_simplex():
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((9, 3))
    truth = rng.dirichlet(np.ones(3), 20)
    gram = basis.T @ basis
    found = simplex_least_squares(gram, truth @ gram, 2000)
    assert np.abs(found - truth).max() < 1e-6
    found = simplex_least_squares(np.eye(3), np.array([[3.0, -1.0, 0.0]]), 2000)
    assert np.abs(found[0] - [1, 0, 0]).max() < 1e-9


@pytest.mark.parametrize(
    "n, k, alpha0, degree, most",
    [(2000, 5, 0.0, 40, 0.03), (2000, 5, 0.5, 40, 0.13), (3000, 5, 0.5, 100, 0.09)],
)
def test_planted_memberships_are_found(n, k, alpha0, degree, most):
    for seed in range(3):
        data = make_block_model(n, k, alpha0=alpha0, degree=degree, random_state=seed)
        found = model(k).fit(data.adjacency)
        assert found.certificate_.method == "tensor"
        assert error(found.membership_, data.membership) < most
        assert np.abs(found.membership_.sum(axis=1) - 1).max() < 1e-9
        assert (np.diff(found.membership_.sum(axis=0)) <= 1e-6).all()


@pytest.mark.slow
def test_the_error_falls_like_the_root_of_the_edges():
    errors = []
    for n, degree in ((1000, 40), (4000, 160)):
        data = [make_block_model(n, 3, alpha0=0.5, degree=degree, random_state=s) for s in range(3)]
        errors.append(np.mean([error(model().fit(d.adjacency).membership_, d.membership)
                               for d in data]))  # fmt: skip
    assert 0.3 < errors[1] / errors[0] < 0.7


def test_communities_that_avoid_themselves_and_directed_ones():
    avoiding = make_block_model(200, 2, alpha0=0, degree=20, ratio=5, random_state=1)
    found = model(2).fit(avoiding.adjacency)
    assert adjusted_rand_score(avoiding.membership.argmax(1), found.labels_) > 0.9
    assert found.block_matrix_[0, 0] < found.block_matrix_[0, 1]
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    rates = np.array([[0.2, 0.1], [0.02, 0.15]])[np.ix_(labels, labels)]
    directed = (rng.random((300, 300)) < rates).astype(float)
    found = model(2, alpha0=0.1).fit(directed)
    assert found.directed_
    assert adjusted_rand_score(labels, found.labels_) > 0.8
    ratio = found.block_matrix_[0, 1] / found.block_matrix_[1, 0]
    assert max(ratio, 1 / ratio) > 3
    assert not model(2, directed=False).fit(directed).directed_


def test_every_kind_of_input_gives_the_same():
    networkx = pytest.importorskip("networkx")
    adjacency = PLANTED.adjacency
    whole = model().fit(adjacency)
    edges = np.argwhere(np.triu(adjacency.toarray()))
    graph = networkx.from_scipy_sparse_array(adjacency)
    for given in (
        adjacency.toarray(),
        adjacency.tocsc(),
        [adjacency[:100], adjacency[100:]],
        edges,
        np.column_stack([edges, np.ones(len(edges))]),
        np.vstack([edges, edges[:, ::-1]]),
        graph,
    ):
        again = model().fit(given)
        assert np.array_equal(again.membership_, whole.membership_)
    named = networkx.relabel_nodes(graph, {i: f"n{i}" for i in range(600)})
    assert model().fit(named).node_names_[:2] == ["n0", "n1"]
    assert not model(2).fit([(0, 1), (1, 2), (2, 0), (2, 3)]).directed_
    assert np.array_equal(model(n_jobs=2).fit(adjacency).membership_, whole.membership_)


def test_small_graphs_say_so_and_isolated_nodes_are_kept():
    adjacency = PLANTED.adjacency.tolil()
    adjacency[:5] = 0
    adjacency[:, :5] = 0
    found = model().fit(adjacency.tocsr())
    text = str(found.certificate_)
    assert found.certificate_.isolated == 5
    assert "5 nodes without edges" in text
    assert "Too few nodes or edges for third moments" in text
    assert np.abs(found.membership_[:5] - found.membership_[5:].mean(axis=0)).max() < 1e-9
    pieces = scipy.sparse.block_diag([PLANTED.adjacency] * 2)
    assert "2 connected components" in str(model().fit(pieces).certificate_)
    noise = make_block_model(300, 1, alpha0=0, degree=10, random_state=0)
    assert model(2).fit(noise.adjacency).certificate_.verdict == "unstable"


def test_answers_files_and_samples(tmp_path):
    found = model().fit(PLANTED.adjacency)
    assert found.score(PLANTED.adjacency) == pytest.approx(found.history_[-1], abs=1e-9)
    assert (found.predict(PLANTED.adjacency[:200]) == found.labels_[:200]).mean() > 0.97
    chances = found.predict_proba(PLANTED.adjacency)
    assert error(chances, found.membership_) < 0.05
    new = PLANTED.adjacency[[0]] * 0
    assert found.predict_proba(new).sum() == pytest.approx(1)
    for again in (lt.load(found.save(tmp_path / "g")), pickle.loads(pickle.dumps(found))):
        assert np.array_equal(again.membership_, found.membership_)
        assert str(again.certificate_) == str(found.certificate_)
        assert again.score(PLANTED.adjacency) == found.score(PLANTED.adjacency)
    drawn = found.sample(random_state=1)
    assert drawn.shape == (600, 600)
    assert abs(drawn.sum() / PLANTED.adjacency.sum() - 1) < 0.1
    assert (drawn != drawn.T).nnz == 0


def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path):
    class EndedError(Exception):
        pass

    def end(name, number):
        if number == 6:
            raise EndedError

    whole = model().fit(PLANTED.adjacency)
    with pytest.raises(EndedError):
        model().fit(PLANTED.adjacency, callback=end, checkpoint=tmp_path / "c")
    again = model().fit(PLANTED.adjacency, checkpoint=tmp_path / "c")
    assert np.array_equal(again.membership_, whole.membership_)


def test_held_out_edges_are_predicted():
    rng = np.random.default_rng(0)
    pairs = np.argwhere(np.triu(np.ones((600, 600)), 1))
    hidden = pairs[rng.random(len(pairs)) < 0.1]
    seen = PLANTED.adjacency.tolil()
    seen[hidden[:, 0], hidden[:, 1]] = 0
    seen[hidden[:, 1], hidden[:, 0]] = 0
    scores = [model(k).fit(seen.tocsr()).score(PLANTED.adjacency, pairs=hidden) for k in (1, 3)]
    assert scores[1] > scores[0] + 0.01


@pytest.mark.parametrize(
    "given, settings, wrong, message",
    [
        (np.ones((4, 5)), {}, InvalidInputError, "square"),
        (-np.ones((4, 4)), {}, InvalidInputError, "Negative values"),
        (np.full((4, 4), np.nan), {}, InvalidInputError, "NaN"),
        (np.zeros((4, 4)), {"k": 2}, NotIdentifiableError, "no edges"),
        (np.ones((3, 3)), {"k": 4}, InvalidInputError, "n_components=4 exceeds"),
        (np.array([[0, 1], [0.5, 2], [1, 2]]), {}, InvalidInputError, "whole numbers"),
        (np.array([[0, 1], [5, 10**9], [1, 2]]), {}, InvalidInputError, "number the nodes"),
        (np.ones(4), {}, InvalidInputError, "expected"),
        ([np.ones((2, 3)), np.ones((1, 4))], {}, InvalidInputError, "different widths"),
        (PLANTED.adjacency, {"alpha0": -1}, InvalidInputError, "alpha0=-1"),
        (PLANTED.adjacency, {"start": "x"}, InvalidInputError, "start='x'"),
    ],
)
def test_bad_input(given, settings, wrong, message):
    with pytest.raises(wrong, match=message):
        model(**settings).fit(given)


def test_communities_that_moments_do_not_show():
    # A complete graph has none: the fit goes on from eigenvectors, and says what was seen.
    complete = np.ones((600, 600)) - np.eye(600)
    with pytest.raises(NotIdentifiableError, match=r"spectrum 1, .* of the largest"):
        model(k=2, start="tensor").fit(complete)
    found = " ".join(str(model(k=2, max_iter=2).fit(complete).certificate_).split())
    assert "do not show that many communities (spectrum 1, " in found
    assert "Too few nodes" not in found


def test_a_network_is_one_sample():
    found = model().fit(PLANTED.adjacency)
    for call in (
        lambda: found.partial_fit(PLANTED.adjacency),
        lambda: found.merge(found),
        lambda: found.spawn(),
    ):
        with pytest.raises(InvalidInputError, match="one sample"):
            call()
    assert not any(hasattr(model(), name) for name in ("partial_fit", "merge", "spawn"))
    with pytest.raises(InvalidInputError, match="no intervals"):
        found.intervals(PLANTED.adjacency)
    with pytest.raises(InvalidInputError, match="expecting 600 features"):
        found.score(PLANTED.adjacency[:10, :10])
    with pytest.raises(InvalidInputError, match="pairs"):
        found.score(PLANTED.adjacency, pairs=[1, 2])


def test_planted_networks_refuse_what_makes_no_sense():
    with pytest.raises(InvalidInputError, match="degree=50"):
        make_block_model(20, 2, degree=50)
    with pytest.raises(InvalidInputError, match="ratio"):
        make_block_model(20, 2, ratio=-1)
    assert not (make_block_model(200, 2, directed=True, degree=9).adjacency.diagonal()).any()


SQUARE = "samples of this check are no square adjacency"
CLASSES = "predict_proba has memberships, not classes of y"


@parametrize_with_checks(
    [lt.MixedMembershipBlockModel(2)],
    expected_failed_checks=lambda estimator: {
        "check_n_features_in_after_fitting": SQUARE,
        "check_estimators_nan_inf": SQUARE,
        "check_clustering": SQUARE,
        "check_estimator_sparse_array": CLASSES,
        "check_estimator_sparse_matrix": CLASSES,
    },
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
