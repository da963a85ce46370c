import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from latensor.estimation.sample_source import as_batches, is_weighted_matrix
from latensor.exceptions import InvalidInputError

ROWS = np.arange(24.0).reshape(12, 2)


class Again:
    """Batches that can be gone over any number of times."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


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
    [[ROWS], (ROWS, ROWS), [pd.DataFrame(ROWS)], [(ROWS, np.ones(12))], Again([ROWS])],
)
def test_what_holds_matrices_is_a_source(given):
    assert as_batches(given, is_weighted_matrix) is given


def test_an_iterator_is_read_only_once():
    for once in (iter([ROWS]), (part for part in [ROWS])):
        with pytest.raises(InvalidInputError, match=r"read only once.*partial_fit"):
            as_batches(once, is_weighted_matrix)
