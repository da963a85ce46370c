import numbers
from types import SimpleNamespace

import numpy as np
import pytest

from latensor.estimation import Choice, Interval, check_parameters, rank_by_fraction, rank_by_gap
from latensor.exceptions import InvalidInputError

TABLE = {
    "count": (Interval(numbers.Integral, 1), Choice((None, "all"))),
    "fraction": (Interval(numbers.Real, 0, 1, closed="neither"),),
    "flag": (Choice((True, False)),),
}


@pytest.mark.parametrize(
    "name, value, accepted",
    [
        ("count", 1, True),
        ("count", np.int64(3), True),
        ("count", None, True),
        ("count", "all", True),
        ("count", 0, False),
        ("count", True, False),
        ("count", 1.0, False),
        ("count", "some", False),
        ("count", np.array([1, 2]), False),
        ("fraction", 0.5, True),
        ("fraction", np.float32(0.5), True),
        ("fraction", 0.0, False),
        ("fraction", 1, False),
        ("fraction", np.nan, False),
        ("flag", True, True),
        ("flag", 1, False),
    ],
)
def test_a_parameter_is_checked_against_its_ranges(name, value, accepted):
    estimator = SimpleNamespace(**{"count": 1, "fraction": 0.5, "flag": True, name: value})
    if accepted:
        check_parameters(estimator, TABLE)
        return
    with pytest.raises(InvalidInputError, match=f"{name}=.* of SimpleNamespace must be "):
        check_parameters(estimator, TABLE)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("random_state", "seed", "random_state='seed' must be None, an integer"),
        ("random_state", -1, "random_state=-1"),
        ("callback", 3, "callback=3 of SimpleNamespace must be a function or None"),
    ],
)
def test_seeds_and_callbacks_are_checked_everywhere(name, value, message):
    estimator = SimpleNamespace(count=1, fraction=0.5, flag=True, **{name: value})
    with pytest.raises(InvalidInputError, match=message):
        check_parameters(estimator, TABLE)


def test_checking_draws_nothing_from_a_random_state():
    state = np.random.RandomState(3)
    check_parameters(SimpleNamespace(count=1, fraction=0.5, flag=True, random_state=state), TABLE)
    assert state.randint(1000) == np.random.RandomState(3).randint(1000)


def test_the_message_lists_what_is_allowed():
    estimator = SimpleNamespace(count=0, fraction=0.5, flag=True)
    with pytest.raises(InvalidInputError, match="an integer at least 1, or None or 'all'"):
        check_parameters(estimator, TABLE)
    estimator = SimpleNamespace(count=1, fraction=2, flag=True)
    with pytest.raises(InvalidInputError, match="a number above 0 and below 1"):
        check_parameters(estimator, TABLE)


@pytest.mark.parametrize(
    "variances, dimension, expected",
    [
        ([100.0, 50.0, 10.0, 1.0, 0.9, 0.8], 6, 3),
        ([5.0, 4.0, 0.0, 0.0], 4, 2),
        ([5.0], 1, 1),
        ([0.0, 0.0], 2, 1),
        (np.r_[9.0, 8.0, np.linspace(1.0, 0.5, 37), 1e-9], 40, 2),
    ],
)
def test_the_gap_is_the_largest_ratio(variances, dimension, expected):
    assert rank_by_gap(np.asarray(variances), dimension) == expected


def test_a_fraction_that_is_not_reached_is_none():
    variances = np.array([5.0, 3.0, 1.0])
    assert rank_by_fraction(variances, 10.0, 0.4) == 1
    assert rank_by_fraction(variances, 10.0, 0.7) == 2
    assert rank_by_fraction(variances, 10.0, 0.95) is None
    assert rank_by_fraction(np.zeros(2), 0.0, 0.5) == 1
