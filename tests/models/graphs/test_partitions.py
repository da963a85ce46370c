"""Communities of a network whose rows stand in partitions: the same fit, what is sent, refused."""

import itertools
import json
import pickle

import dask.array
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

import latensor as lt
from latensor.datasets import make_block_model
from latensor.engines import LocalEngine
from latensor.estimation import checkpoint
from latensor.exceptions import InvalidInputError
from latensor.models.graphs.nodes import Nodes, Pieces, RowCounts
from latensor.models.graphs.sums import Census, ExplainedEdges, PartSums
from latensor.moments.batch import Batch, Kind
from latensor.sources.shards import Source

PLANTED = make_block_model(600, 3, alpha0=0.2, degree=40, random_state=0).adjacency
DIRECTED = make_block_model(640, 2, degree=20, directed=True, random_state=1).adjacency


def model(k=3, **settings):
    return lt.MixedMembershipBlockModel(k, random_state=0, **settings)


def parts(matrix, *edges):
    cut = [0, *edges, matrix.shape[0]]
    blocks = [[matrix[a:b]] for a, b in itertools.pairwise(cut)]
    return lt.sources.partitions(blocks)


def numbered(blocks):
    """A source whose shards are blocks of rows."""
    return Source(
        Kind.GRAPH,
        [
            [((scipy.sparse.csr_array(block),), np.ones(len(block)))] if len(block) else []
            for block in blocks
        ],
        partitioned=True,
    )


@pytest.mark.parametrize("directed", [False, True])
def test_rows_alone_give_products_of_both_directions(directed):
    rng = np.random.default_rng(0)
    n = 40
    matrix = rng.poisson(0.4, (n, n)) * 1.0
    matrix = matrix if directed else matrix + matrix.T
    source = numbered([matrix[:13], matrix[13:13], matrix[13:30], matrix[30:]])
    np.fill_diagonal(matrix, 0)
    both = matrix + matrix.T if directed else matrix
    first = LocalEngine(1).fold(source, RowCounts()).first_nodes()
    nodes = Nodes(n, first, directed)
    part, right = rng.integers(3, size=n), rng.standard_normal((n, 2))
    views = LocalEngine(1).fold(source, PartSums(nodes, part, 3, right)).table()
    expected = np.stack([both[:, part == m] @ right[part == m] for m in range(3)], axis=1)
    assert np.abs(views - expected).max() < 1e-12
    whole = PartSums(nodes, np.zeros(n, dtype=np.int64), 1, views.reshape(n, -1))
    found = LocalEngine(1).fold(source, whole).table().reshape(views.shape)
    for m in range(3):
        step = both[:, part == m].T @ expected[:, m]
        assert np.abs(found[part == m, m] - step).max() < 1e-12
    census = LocalEngine(1).fold(source, Census(nodes, rng.standard_normal((2, 2, n))))
    assert census.is_symmetric is not directed
    assert np.abs(census.degrees(directed) - both.sum(axis=1)).max() < 1e-12


def is_symmetric(matrix):
    n = matrix.shape[0]
    batch = Batch((scipy.sparse.csr_array(matrix),), np.ones(n), np.arange(n, dtype=np.uint64))
    marks = np.random.default_rng(0).standard_normal((2, 2, n))
    return Census(Nodes(n, np.array([0]), True), marks).update(batch).is_symmetric


def test_one_edge_of_one_direction_is_seen_and_rounding_is_not():
    matrix = PLANTED * 0.1
    assert is_symmetric(matrix)
    rng = np.random.default_rng(0)
    rounded = matrix.copy()
    rounded.data = rounded.data * (1 + 1e-15 * rng.standard_normal(len(rounded.data)))
    assert is_symmetric(rounded)
    for place in rng.integers(matrix.nnz, size=20):
        other = matrix.copy()
        other.data[place] *= 1.001
        assert not is_symmetric(other)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20), st.integers(0, 20))
def test_components_joined_are_those_of_all_edges(edges, cut):
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    one, two = (Pieces.of(12, *part.T) for part in (ends[:cut], ends[cut:]))
    adjacency = scipy.sparse.coo_array((np.ones(len(ends)), tuple(ends.T)), shape=(12, 12))
    labels = connected_components(adjacency, directed=False)[1]
    for found in (one + two, two + one, Pieces.of(12, *ends.T)):
        smallest = [int(np.flatnonzero(labels == label)[0]) for label in labels]
        assert found.labels.tolist() == smallest
        assert found.count == (np.bincount(labels) > 1).sum()


@pytest.mark.parametrize("matrix, k", [(PLANTED, 3), (DIRECTED, 2)])
def test_partitions_give_what_the_matrix_gives(matrix, k):
    whole = model(k).fit(matrix)
    looped = scipy.sparse.csr_array(matrix + scipy.sparse.eye_array(matrix.shape[0]))
    for source in (
        parts(matrix, 0, 100, 100, 333),
        parts(looped, 50),
        parts(matrix.toarray().astype(int), 300),
        lt.sources.partitions([[matrix[:90].todok()], [matrix[90:].tocoo()]]),
        dask.array.from_array(matrix.toarray(), chunks=(250, 170)),
    ):
        found = model(k).fit(source)
        assert np.abs(found.membership_ - whole.membership_).max() < 1e-8
        assert np.abs(found.block_matrix_ - whole.block_matrix_).max() < 1e-8
        assert found.directed_ is whole.directed_
        assert str(found.certificate_) == str(whole.certificate_)
    assert model(k, directed=True).fit(parts(matrix, 200)).directed_


def test_rows_as_lists_of_neighbours_in_files(tmp_path):
    weighted = PLANTED * 0.1
    whole = model(refine=2).fit(weighted)
    for number, (a, b) in enumerate(((0, 350), (350, 600))):
        with open(tmp_path / f"{number}.jsonl", "w") as stream:
            for i in range(a, b):
                row = weighted[[i]]
                record = {"to": row.indices.tolist(), "weight": row.data.tolist()}
                stream.write(json.dumps(record) + "\n")
    files = {"words": "to", "counts": "weight", "n_features": 600}
    source = lt.sources.shards(str(tmp_path / "*.jsonl"), **files)
    found = model(refine=2).fit(source)
    assert np.abs(found.membership_ - whole.membership_).max() < 1e-8
    labels = np.concatenate(list(found.predict(source)))
    assert np.array_equal(labels, found.predict(weighted))
    with pytest.raises(InvalidInputError, match="of a network, nodes"):
        model().fit(lt.sources.shards(str(tmp_path / "*.jsonl"), words="to"))


def test_answers_of_collections_are_collections():
    found = model().fit(PLANTED)
    blocks = [
        dask.array.from_delayed(
            dask.delayed(block), block.shape, block.dtype, meta=scipy.sparse.csr_array((0, 0))
        )
        for block in (PLANTED[:350], PLANTED[350:])
    ]
    rows = dask.array.concatenate(blocks)
    assert np.array_equal(
        model().fit(rows).membership_, model().fit(parts(PLANTED, 350)).membership_
    )
    for method in ("predict", "predict_proba"):
        expected = getattr(found, method)(PLANTED)
        answers = getattr(found, method)(rows)
        assert isinstance(answers, dask.array.Array)
        assert np.array_equal(answers.compute(), expected)
        local = list(getattr(found, method)(parts(PLANTED, 350)))
        assert np.array_equal(np.concatenate(local), expected)


@pytest.mark.parametrize("directed", [False, True])
def test_a_partition_sends_the_rows_of_its_own_nodes(directed):
    """Undirected edges stand in the rows of both ends: nothing is sent about other nodes."""
    n, k, b = 20_000, 10, 500
    rows = scipy.sparse.random_array((b, n), density=20 / n, rng=np.random.default_rng(0))
    batch = Batch((scipy.sparse.csr_array(rows),), np.ones(b), np.arange(b, dtype=np.uint64))
    nodes = Nodes(n, np.array([0]), directed)
    weights = np.ones((n, k))
    sizes = {
        PartSums(nodes, np.zeros(n, dtype=int), 3, weights): 3 * k,
        ExplainedEdges(nodes, weights, np.ones((k, k))): k,
    }
    for start, width in sizes.items():
        sent = len(pickle.dumps(start.update(batch).message()))
        expected = 8 * width * (b + n * directed)
        assert expected <= sent < 1.02 * expected + 2000


@pytest.mark.parametrize("matrix, k", [(PLANTED, 3), (DIRECTED, 2)])
def test_a_checkpoint_does_not_grow_with_the_steps(tmp_path, monkeypatch, matrix, k):
    monkeypatch.setattr(checkpoint, "_FIRST_COST", 0.0)
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    sizes = []
    for steps in (2, 9):
        folder = tmp_path / str(steps)
        fitted = model(k, refine=steps).fit(parts(matrix, 300), checkpoint=folder)
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
        again = model(k, refine=steps).fit(parts(matrix, 300), checkpoint=folder)
        assert np.array_equal(again.membership_, fitted.membership_)
    assert sizes[1] < 1.02 * sizes[0]


def with_entry(matrix, i, j, value):
    changed = matrix.tolil()
    changed[i, j] = value
    return changed.tocsr()


EDGES = np.argwhere(PLANTED.toarray())


@pytest.mark.parametrize(
    "source, settings, message",
    [
        (parts(PLANTED[:500], 200), {}, "500 rows in its partitions, but 600 columns"),
        (parts(scipy.sparse.vstack([PLANTED] * 2, "csr"), 600), {}, "1200 rows"),
        (parts(EDGES, 100), {"k": 2}, "list of edges.*group the edges by their first node"),
        (parts(np.c_[EDGES, np.ones(len(EDGES))], 100), {"k": 4}, "list of edges"),
        (parts(with_entry(PLANTED, 450, 3, -1.0), 400), {}, r"weight of -1.*\(partition 1\)"),
        (parts(with_entry(PLANTED, 450, 3, np.nan), 400), {}, r"NaN.*\(partition 1\)"),
        (parts(DIRECTED, 100), {"directed": False}, "not symmetric, but directed=False"),
        (parts(PLANTED, 100), {"k": 601}, "n_components=601 exceeds"),
        (lt.sources.partitions([[(PLANTED, np.full(600, 2.0))]]), {}, "nodes have no weights"),
        (lt.sources.partitions([[PLANTED[:9]], [PLANTED[9:, :8]]]), {}, r"\(partition 1\)"),
    ],
)
def test_what_is_refused(source, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        model(**settings).fit(source)


def test_a_network_in_partitions_has_no_score():
    found = model(refine=0).fit(PLANTED)
    with pytest.raises(InvalidInputError, match="adjacency is of shape"):
        found.score(parts(PLANTED, 100))
