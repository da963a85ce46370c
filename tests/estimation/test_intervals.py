import numpy as np
import pytest

from latensor.estimation.parameter_intervals import PROBABILITY, REAL, Bootstrap
from latensor.exceptions import InvalidInputError

VALUES = np.random.default_rng(0).standard_normal((30, 2))


def moves_of(settings):
    """How far the means of resampled groups lie from that of all."""
    counts = settings.counts(np.random.default_rng(1))
    return counts @ VALUES / counts.sum(axis=1, keepdims=True) - VALUES.mean(axis=0)


def test_a_mean_has_the_interval_of_its_standard_error():
    middle, settings = np.array([5.0, -5.0]), Bootstrap.of(0.9, 4000, 30)
    found = settings.ends(middle, moves_of(settings), REAL)
    # Student's t of 29 degrees of freedom, and the unbiased estimate of the spread.
    error = 1.699 * VALUES.std(axis=0, ddof=1) / np.sqrt(30)
    assert np.abs((found.high - middle) / error - 1).max() < 0.1
    assert np.abs((middle - found.low) / error - 1).max() < 0.1


def test_ends_stay_where_parameters_can_be():
    settings = Bootstrap.of(0.9, 50, 30)
    found = settings.ends(np.array([0.01, 0.99]), moves_of(settings), PROBABILITY)
    assert found.low[0] == 0
    assert found.high[1] == 1


@pytest.mark.parametrize(
    "settings, message",
    [
        ((0.0, 10, 10), "level=0"),
        ((True, 10, 10), "level=True|level"),
        (("x", 10, 10), "level='x'"),
        ((0.9, 0, 10), "n_resamples"),
        ((0.9, 10, 4), "n_groups=4"),
        ((0.9, 10, 2.5), "n_groups"),
    ],
)
def test_bad_settings_are_told(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Bootstrap.of(*settings)
