import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.univariate import PowerSums, shifted


def by_definition(numbers, weights=None):
    mean = np.average(numbers, weights=weights)
    return np.array([np.average((numbers - mean) ** p, weights=weights) for p in range(7)])


def numbers_of(seed, n=100):
    return np.random.default_rng(seed).exponential(2.0, n) + 100


def batch_of(numbers, weights=None):
    fractions = np.ones(len(numbers)) if weights is None else np.asarray(weights, dtype=float)
    return Batch(
        (np.reshape(numbers, (-1, 1)),), fractions, np.arange(len(numbers), dtype=np.uint64)
    )


EMPTY = PowerSums(101.0, 3.0)


def agree(found, wanted, bound=1e-10):
    scale = wanted[2] ** (np.arange(7) / 2) * np.array([1, 1, 1, 3, 10, 50, 300])
    assert (np.abs(found.central * found.unit ** np.arange(7) - wanted) <= bound * scale).all()


def test_the_moments_are_those_of_the_definition():
    numbers = numbers_of(0)
    weights = np.random.default_rng(1).uniform(0, 2, len(numbers))
    for fractions in (None, weights):
        summed = EMPTY.update(batch_of(numbers, fractions))
        for sums in (summed, summed.recentred(99.5, 0.7)):
            found = sums.finalize()
            agree(found, by_definition(numbers, fractions))
            assert found.mean == pytest.approx(np.average(numbers, weights=fractions), rel=1e-14)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 100), min_size=1, max_size=4))
def test_any_split_and_any_merge_give_the_same_moments(seed, cuts):
    numbers = numbers_of(seed)
    wanted = by_definition(numbers)
    parts = [batch_of(part) for part in np.split(numbers, sorted(cuts)) if len(part)]
    streamed = forward = backward = EMPTY
    for part in parts:
        streamed = streamed.update(part)
        forward = forward.merge(EMPTY.update(part))
    for part in parts[::-1]:
        backward = backward.merge(EMPTY.update(part))
    for other in (streamed, forward, backward, pickle.loads(pickle.dumps(forward))):
        agree(other.finalize(), wanted, 1e-9)
        assert other.finalize().count == len(numbers)


def test_a_weight_is_a_repetition():
    numbers = numbers_of(3, 40)
    counts = np.random.default_rng(0).integers(1, 4, len(numbers))
    weighted = EMPTY.update(batch_of(numbers, counts)).finalize()
    agree(weighted, by_definition(np.repeat(numbers, counts)))
    assert weighted.weight == counts.sum()


def test_a_shift_and_back_is_the_identity():
    sums = np.arange(1.0, 8.0)
    assert np.abs(shifted(shifted(sums, 0.7), -0.7) - sums).max() < 1e-12


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: EMPTY.finalize(), "no sample has been seen"),
        (lambda: EMPTY.merge(PowerSums(100.0, 3.0)), "different coordinates"),
        (lambda: EMPTY.update(batch_of([1e60, 0.0])).finalize(), "overflows.*smaller unit"),
    ],
)
def test_bad_input_is_told(act, text):
    with pytest.raises(InvalidInputError, match=text):
        act()
