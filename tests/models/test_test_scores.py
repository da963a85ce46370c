"""The test scores of the monograph: one matrix, two decompositions; one tensor, one (2.1, 3.1)."""

import numpy as np
import pytest

from latensor.arrays.factorization import truncated_svd
from latensor.decomposition import decompose

STUDENTS = ("Alice", "Bob", "Carol", "Dave", "Eve")
SCORES = np.array(
    [[19, 26, 17, 21], [8, 17, 9, 12], [7, 12, 7, 9], [15, 29, 16, 21], [31, 40, 27, 33]]
)
VERBAL, QUANTITATIVE = np.array([4, 3, 2, 5, 6]), np.array([3, 1, 1, 2, 5])
VERBAL_NEEDS, QUANTITATIVE_NEEDS = np.array([1, 5, 2, 3]), np.array([5, 2, 3, 3])
OTHER_VERBAL, OTHER_QUANTITATIVE_NEEDS = np.array([1, 2, 1, 3, 1]), np.array([6, 7, 5, 6])
# How much each talent counts in a written and in an oral exam.
VERBAL_FORMATS, QUANTITATIVE_FORMATS = np.array([1.0, 2.0]), np.array([3.0, 1.0])


def test_the_matrix_has_two_decompositions_into_the_same_number_of_parts():
    first = np.outer(VERBAL, VERBAL_NEEDS) + np.outer(QUANTITATIVE, QUANTITATIVE_NEEDS)
    second = np.outer(OTHER_VERBAL, VERBAL_NEEDS) + np.outer(QUANTITATIVE, OTHER_QUANTITATIVE_NEEDS)
    assert (first == SCORES).all()
    assert (second == SCORES).all()
    # They even disagree about who has the best command of words.
    assert STUDENTS[VERBAL.argmax()] == "Eve"
    assert STUDENTS[OTHER_VERBAL.argmax()] == "Dave"


def test_any_invertible_mixture_of_the_parts_is_another_decomposition():
    rng = np.random.default_rng(0)
    left = np.c_[VERBAL, QUANTITATIVE]
    right = np.c_[VERBAL_NEEDS, QUANTITATIVE_NEEDS]
    mixture = rng.standard_normal((2, 2))
    mixed = (left @ mixture) @ (right @ np.linalg.inv(mixture).T).T
    assert np.abs(mixed - SCORES).max() < 1e-12


def test_the_svd_finds_the_rank_and_its_own_parts_not_the_students():
    left, values, right = truncated_svd(SCORES, 3)
    assert values[2] < 1e-13 * values[0]
    assert np.abs((left[:, :2] * values[:2]) @ right[:, :2].T - SCORES).max() < 1e-12
    cosines = left[:, :2].T @ (
        np.c_[VERBAL, QUANTITATIVE] / np.linalg.norm([VERBAL, QUANTITATIVE], axis=1)
    )
    assert np.abs(cosines).max(axis=0).min() < 0.999


@pytest.mark.parametrize("seed", range(5))
def test_the_tensor_has_one_decomposition_and_it_is_found(seed):
    formats = np.c_[VERBAL_FORMATS, QUANTITATIVE_FORMATS]
    truth = [np.c_[VERBAL, QUANTITATIVE], np.c_[VERBAL_NEEDS, QUANTITATIVE_NEEDS], formats]
    tensor = np.einsum("ir,jr,kr->ijk", *truth)
    found = decompose(tensor, 2, random_state=seed)
    for factor, expected in zip(found.tensor.factors, truth, strict=True):
        units = [matrix / np.linalg.norm(matrix, axis=0) for matrix in (factor, expected)]
        cosines = np.abs(units[0].T @ units[1])
        assert np.abs(cosines.max(axis=0) - 1).max() < 1e-8
        assert set(cosines.argmax(axis=0)) == {0, 1}
    assert np.abs(found.tensor.to_dense() - tensor).max() < 1e-6
