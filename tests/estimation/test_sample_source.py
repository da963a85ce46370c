import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from latensor.estimation.sample_source import SampleBatches, as_batches, is_weighted_matrix
from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample

ROWS = np.arange(24.0).reshape(12, 2)


def batches(given):
    return SampleBatches(given, lambda batch, first: (batch, None), len)


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        ROWS.tolist(),
        [(1.0, 2.0), (3.0, 4.0)],
        [np.array([1.0, 2.0]), np.array([3.0, 4.0])],
        pd.DataFrame(ROWS),
        scipy.sparse.csr_array(ROWS),
        "text",
        None,
        7,
        [],
        {"a": ROWS},
    ],
)
def test_what_is_in_memory_is_no_source(given):
    assert as_batches(given, is_weighted_matrix) is None


@pytest.mark.parametrize(
    "given",
    [[ROWS], (ROWS, ROWS), [pd.DataFrame(ROWS)], [(ROWS, np.ones(12))], batches([ROWS])],
)
def test_what_holds_matrices_is_a_source(given):
    assert as_batches(given, is_weighted_matrix) is given


def test_an_iterator_is_read_only_once():
    for once in (iter([ROWS]), (part for part in [ROWS])):
        with pytest.raises(InvalidInputError, match=r"read only once.*partial_fit"):
            as_batches(once, is_weighted_matrix)


def test_the_head_stops_early_and_the_first_pass_fills_the_sample():
    source = batches([ROWS[:4], ROWS[4:9], ROWS[9:]])
    held, complete = source.head(5)
    assert [len(part) for part, _ in held] == [4, 5]
    assert not complete
    assert source.head(12)[1]
    sample = RowSample(100)
    recorded = source.recorded(sample, lambda rows: rows)
    for _ in range(2):
        assert sum(len(part) for part, _ in recorded) == 12
    assert sample.count == 12


def test_a_source_must_give_the_same_again():
    given = [ROWS, ROWS]
    source = batches(given)
    list(source)
    given.pop()
    with pytest.raises(InvalidInputError, match=r"24 samples on the first pass and 12 now"):
        list(source)


def test_another_reading_must_give_as_many_samples():
    given = [ROWS, ROWS]
    source = batches(given)
    list(source)
    again = source.read_by(lambda batch, first: (-batch, None))
    assert [part[0, 1] for part, _ in again] == [-1, -1]
    given.pop()
    with pytest.raises(InvalidInputError, match=r"24 samples on the first pass and 12 now"):
        list(again)


def test_batches_without_a_sample_are_left_out():
    source = SampleBatches([ROWS[:0], ROWS], lambda b, _: (b, None) if len(b) else None, len)
    assert len(list(source)) == 1
    empty = SampleBatches([ROWS[:0]], lambda b, _: None, len)
    with pytest.raises(InvalidInputError, match="no batch with a sample"):
        empty.head(5)
