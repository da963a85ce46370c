"""Batches that the caller makes, and what `as_source` takes for what."""

import numpy as np
import pytest
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.sources import BatchSource, DocumentSource, MatrixSource, as_source

FIRST = np.array([[1, 0, 2], [0, 0, 0]])
SECOND = np.array([[0, 4, 0]])


class Again:
    """Starts anew each time, as a loader of files would."""

    def __init__(self, *passes):
        self.passes = passes
        self.started = 0

    def __iter__(self):
        batches = self.passes[min(self.started, len(self.passes) - 1)]
        self.started += 1
        yield from batches


def dense(source):
    return np.concatenate([batch.toarray() for batch in source])


@pytest.mark.parametrize(
    "batches",
    [
        [FIRST, SECOND],
        (scipy.sparse.csr_matrix(FIRST), scipy.sparse.coo_array(SECOND)),
        Again([FIRST, SECOND]),
        Again([FIRST.tolist(), SECOND.tolist()]),
        [np.zeros((0, 3)), FIRST, np.zeros((0, 3)), SECOND],
    ],
)
def test_batches_are_given_as_they_are(batches):
    source = as_source(batches)
    assert isinstance(source, BatchSource)
    assert isinstance(source, DocumentSource)
    assert (source.n_features, source.n_documents, source.vocabulary) == (3, None, None)
    for _ in range(2):
        given = list(source)
        assert [batch.shape for batch in given] == [(2, 3), (1, 3)]
        for batch in given:
            assert isinstance(batch, scipy.sparse.csr_array)
            assert batch.indices.dtype == np.int32
        np.testing.assert_array_equal(dense(source), np.concatenate([FIRST, SECOND]))
    assert source.n_documents == 3


def test_dtype_is_the_batch_s_own():
    source = BatchSource([FIRST.astype(np.float64), SECOND])
    assert [batch.dtype for batch in source] == [np.float64, np.float32]


def test_batches_of_every_library(library):
    source = as_source([library.array(FIRST), library.array(SECOND)])
    np.testing.assert_array_equal(dense(source), np.concatenate([FIRST, SECOND]))


def test_words_of_batches():
    assert BatchSource([FIRST], vocabulary=["a", "b", "c"]).vocabulary == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match="holds 2 words"):
        BatchSource([FIRST], vocabulary=["a", "b"])


@pytest.mark.parametrize("once", [iter([FIRST]), (b for b in [FIRST]), map(np.asarray, [FIRST])])
def test_iterators_that_are_read_once_are_refused(once):
    for make in (BatchSource, as_source):
        with pytest.raises(InvalidInputError, match=r"only once.*a list.*__iter__.*partial_fit"):
            make(once)


def test_an_object_around_one_iterator_is_refused():
    class Fake:
        inner = iter([FIRST])

        def __iter__(self):
            return self.inner

    with pytest.raises(InvalidInputError, match="only once"):
        BatchSource(Fake())


@pytest.mark.parametrize(
    "batches, message",
    [
        ([], "empty"),
        ([np.zeros((0, 3))], "empty"),
        (Again([]), "empty"),
        ([FIRST, np.ones((1, 4))], "batch 1 of X has 4 columns, but the first batch has 3"),
        ([FIRST, np.ones(3)], "batch 1 of X must be a matrix"),
        ([FIRST, -SECOND], "batch 1 of X holds -4 at row 0, column 1"),
        ([FIRST / 4], "batch 0 of X holds 0.25 at row 0, column 0: moments need counts"),
        (Again(["ab"]), "batch 0 of X must be an array"),
    ],
)
def test_bad_batches(batches, message):
    with pytest.raises(InvalidInputError, match=message):
        list(as_source(batches))


def test_a_second_pass_that_differs_is_refused():
    source = BatchSource(Again([FIRST], [FIRST, SECOND], [FIRST]))
    assert len(list(source)) == 2
    with pytest.raises(InvalidInputError, match=r"gave 3 documents on the first pass and 2 now"):
        list(source)


@pytest.mark.parametrize(
    "matrix", [FIRST, FIRST.tolist(), list(FIRST), scipy.sparse.csc_array(FIRST), tuple(FIRST)]
)
def test_matrices_are_told_from_batches(matrix):
    source = as_source(matrix, 1)
    assert isinstance(source, MatrixSource)
    assert len(list(source)) == 2
    np.testing.assert_array_equal(dense(source), FIRST)


def test_a_source_stays_itself():
    source = MatrixSource(FIRST)
    assert as_source(source) is source


@pytest.mark.parametrize(
    "value, message",
    [
        ("corpus.txt", "X is the str 'corpus.txt'.*read_documents"),
        (["a text", "another"], "X is a list of texts: count their words"),
        ({}, "X is a dict"),
        ({1, 2}, "X is a set"),
        (5, "X must be a matrix"),
        (None, "X must be an array"),
        ([], "X is an empty list"),
    ],
)
def test_what_is_no_source(value, message):
    with pytest.raises(InvalidInputError, match=message):
        as_source(value)
