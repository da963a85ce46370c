"""Matrices of counts as batches: the same numbers, canonical, the caller's arrays untouched."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from latensor.exceptions import InvalidInputError
from latensor.sources import MatrixSource, as_source

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0], [1, 1, 1, 70000], [0, 0, 5, 0]])
FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr")


def dense(source):
    return np.concatenate([batch.toarray() for batch in source])


def assert_canonical(batch, dtype=np.float32):
    assert isinstance(batch, scipy.sparse.csr_array)
    assert batch.dtype == dtype
    assert batch.indices.dtype == np.int32
    fresh = scipy.sparse.csr_array((batch.data, batch.indices, batch.indptr), shape=batch.shape)
    assert fresh.has_canonical_format
    assert (batch.data > 0).all()


@pytest.mark.parametrize("make", [scipy.sparse.coo_array, scipy.sparse.coo_matrix])
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("batch_size", [1, 2, 5, 4096])
def test_sparse_formats(make, layout, batch_size):
    source = MatrixSource(make(COUNTS).asformat(layout), batch_size)
    assert (source.n_documents, source.n_features, source.vocabulary) == (5, 4, None)
    for _ in range(2):
        batches = list(source)
        assert [batch.shape[0] for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
        for batch in batches:
            assert_canonical(batch)
        np.testing.assert_array_equal(dense(source), COUNTS)


@pytest.mark.parametrize(
    "kind", ["b1", "i1", "u1", "i2", "u2", "i8", "u8", "f2", "f4", "f8", ">f8"]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_dtypes(kind, sparse):
    counts = np.minimum(COUNTS, 1 if kind == "b1" else 100).astype(kind)
    if sparse:
        if kind in ("f2", ">f8"):
            pytest.skip("SciPy has no such sparse matrices")
        counts = scipy.sparse.csr_array(counts)
    source = MatrixSource(counts, 2)
    wide = kind.endswith("f8")
    for batch in source:
        assert_canonical(batch, np.float64 if wide else np.float32)
    np.testing.assert_array_equal(dense(source), np.minimum(COUNTS, 1 if kind == "b1" else 100))


def test_counts_that_single_precision_rounds_are_given_in_double():
    counts = np.array([[2**24 + 1, 1]])
    (batch,) = MatrixSource(counts)
    assert_canonical(batch, np.float64)
    assert batch.toarray().tolist() == counts.tolist()


def test_a_canonical_matrix_is_shared_not_copied():
    for dtype in (np.float32, np.float64):
        counts = scipy.sparse.csr_array(COUNTS.astype(dtype))
        for batch in MatrixSource(counts, 2):
            if batch.nnz:
                assert np.shares_memory(batch.data, counts.data)
                assert np.shares_memory(batch.indices, counts.indices)


def test_repeated_unsorted_and_zero_entries_are_tidied_in_a_copy():
    data = np.array([1.0, 2.0, 0.0, 4.0], np.float32)
    indices, offsets = np.array([3, 0, 1, 3]), np.array([0, 4, 4])
    for array in (data, indices, offsets):
        array.flags.writeable = False
    matrix = scipy.sparse.csr_matrix((data, indices, offsets), shape=(2, 4), copy=False)
    (batch,) = MatrixSource(matrix)
    assert_canonical(batch)
    assert batch.toarray().tolist() == [[2, 0, 0, 5], [0, 0, 0, 0]]
    assert matrix.data.tolist() == [1, 2, 0, 4]
    assert matrix.indices.tolist() == [3, 0, 1, 3]


def test_repeated_entries_of_few_bits_do_not_wrap_around():
    matrix = scipy.sparse.csr_array(
        (np.full(3, 100, np.uint8), np.zeros(3, np.int32), np.array([0, 3])), shape=(1, 1)
    )
    (batch,) = MatrixSource(matrix)
    assert batch.toarray() == 300


def test_long_indices_become_short():
    matrix = scipy.sparse.csr_array(COUNTS.astype(np.float32))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    for batch in MatrixSource(matrix, 2):
        assert_canonical(batch)
    np.testing.assert_array_equal(dense(MatrixSource(matrix)), COUNTS)


def test_read_only_input(library):
    counts = COUNTS.astype(np.float32)
    counts.flags.writeable = False
    source = MatrixSource(library.array(counts) if library.name != "numpy" else counts, 3)
    np.testing.assert_array_equal(dense(source), COUNTS)


def test_frames_bring_their_words():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COUNTS, columns=["ant", "bee", "cat", "dog"])
    source = as_source(frame)
    assert source.vocabulary == ["ant", "bee", "cat", "dog"]
    np.testing.assert_array_equal(dense(source), COUNTS)
    assert as_source(pandas.DataFrame(COUNTS)).vocabulary is None


def test_other_sparse_arrays():
    sparse = pytest.importorskip("sparse")
    np.testing.assert_array_equal(dense(as_source(sparse.COO.from_numpy(COUNTS))), COUNTS)


def test_given_words():
    assert MatrixSource([[1, 2]], vocabulary=("a", "b")).vocabulary == ["a", "b"]
    assert MatrixSource([[1, 2]], vocabulary=np.array(["a", "b"])).vocabulary == ["a", "b"]


def test_pickling():
    again = pickle.loads(pickle.dumps(MatrixSource(COUNTS, 2)))
    np.testing.assert_array_equal(dense(again), COUNTS)


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(
        np.int64, arrays.array_shapes(min_dims=2, max_dims=2), elements=st.integers(0, 9)
    ),
    st.integers(1, 7),
)
def test_batches_put_together_are_the_matrix(counts, batch_size):
    np.testing.assert_array_equal(dense(MatrixSource(counts, batch_size)), counts)


def with_entry(value, dtype=np.float64):
    counts = np.zeros((6, 5), dtype)
    counts[0, 0], counts[3, 2], counts[5, 4] = 1, value, 2
    return counts


BAD = [
    (with_entry(np.nan), r"holds nan at row 3, column 2: remove NaN"),
    (with_entry(np.inf), r"holds inf at row 3, column 2: remove NaN"),
    (with_entry(-np.inf), r"holds -inf at row 3, column 2: remove NaN"),
    (with_entry(-2), r"holds -2 at row 3, column 2: .* negative"),
    (with_entry(-2, np.int8), r"holds -2 at row 3, column 2: .* negative"),
    (with_entry(2.0**53), r"holds 9.0072e\+15 at row 3, column 2: counts must be below 9e\+15"),
    (with_entry(1e200), r"holds 1e\+200 at row 3, column 2: counts must be below"),
    (
        with_entry(0.57),
        r"holds 0.57 at row 3, column 2: moments need counts: give the output of "
        r"CountVectorizer, not of TfidfVectorizer",
    ),
    (with_entry(1j, np.complex128), "complex"),
    (np.ones(3), r"matrix .* shape \(3,\)"),
    (np.ones((2, 2, 2)), r"matrix .* shape \(2, 2, 2\)"),
    (np.zeros((0, 3)), r"no documents: shape \(0, 3\)"),
    (np.zeros((3, 0)), r"no words: shape \(3, 0\)"),
    (np.array([["a", "b"]]), "not of numbers"),
    ([[1, 2], [3]], "cannot be read as an array|Python objects"),
    (None, "must be an array"),
    (np.ma.masked_array(np.ones((2, 2))), "masked"),
]


@pytest.mark.parametrize("counts, message", BAD)
def test_bad_matrices(counts, message):
    with pytest.raises(InvalidInputError, match=f"counts.*({message})"):
        MatrixSource(counts)


@pytest.mark.parametrize("value", [np.nan, -1.0, 0.5])
@pytest.mark.parametrize("layout", FORMATS)
def test_bad_entries_of_sparse_matrices(value, layout):
    matrix = scipy.sparse.coo_array(with_entry(value)).asformat(layout)
    with pytest.raises(InvalidInputError, match="row 3, column 2"):
        MatrixSource(matrix)


def test_the_first_bad_entry_is_found_behind_many_good_ones():
    counts = scipy.sparse.csr_array(np.ones((700, 1000), np.float32))
    counts.data[650_123] = 1.5
    with pytest.raises(InvalidInputError, match=r"holds 1\.5 at row 650, column 123"):
        MatrixSource(counts)


def test_damaged_sparse_matrices():
    matrix = scipy.sparse.csr_array(COUNTS)
    matrix.indices[1] = 9
    with pytest.raises(InvalidInputError, match="damaged sparse matrix"):
        MatrixSource(matrix)
    matrix = scipy.sparse.csr_array(COUNTS)
    matrix.indptr[2] = -1
    with pytest.raises(InvalidInputError, match="damaged sparse matrix"):
        MatrixSource(matrix)


def test_sparse_tensors_of_other_libraries_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="dense"):
        MatrixSource(torch.eye(3).to_sparse())


@pytest.mark.parametrize(
    "vocabulary, message",
    [
        (["a"], r"holds 1 words, but the documents have 2 columns"),
        (["a", "a"], r"holds 'a' twice, at 0 and 1"),
        (["a", 3], r"vocabulary\[1\] is 3: words must be strings"),
        ([], "empty"),
        ({"a": 0, "b": 1}, "is a dict: give the words as a list"),
        ("ab", "is a str"),
        (5, "is a int"),
    ],
)
def test_bad_words(vocabulary, message):
    with pytest.raises(InvalidInputError, match=message):
        MatrixSource([[1, 2]], vocabulary=vocabulary)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, None])
def test_bad_batch_size(batch_size):
    with pytest.raises(InvalidInputError, match="batch_size"):
        MatrixSource(COUNTS, batch_size)
