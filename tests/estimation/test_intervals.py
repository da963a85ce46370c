import numpy as np
import pytest

from latensor.estimation.intervals import PROBABILITY, Bootstrap, matched, random_groups
from latensor.exceptions import InvalidInputError, NotIdentifiableError

VALUES = np.random.default_rng(0).standard_normal((30, 2))


def mean(multiplicities):
    return {"mean": multiplicities @ VALUES / multiplicities.sum()}


def test_a_mean_has_the_interval_of_its_standard_error():
    fitted = {"mean": np.array([5.0, -5.0])}
    settings = Bootstrap.of(0.9, 4000, 30)
    found = settings.intervals(fitted, mean, {}, np.random.default_rng(1))["mean"]
    error = VALUES.std(axis=0) / np.sqrt(30)
    # Laid around what was fitted, wherever the resamples lie.
    assert np.abs((found.high - fitted["mean"]) / (1.645 * error) - 1).max() < 0.1
    assert np.abs((fitted["mean"] - found.low) / (1.645 * error) - 1).max() < 0.1


def test_ends_stay_where_parameters_can_be():
    fitted = {"mean": np.array([0.01, 0.99])}
    settings = Bootstrap.of(0.9, 50, 30)
    found = settings.intervals(fitted, mean, {"mean": PROBABILITY}, np.random.default_rng(1))
    assert found["mean"].low[0] == 0
    assert found["mean"].high[1] == 1


@pytest.mark.parametrize("known", [0.0, 0.3, 0.9, 1.0])
def test_resamples_that_cannot_be_read_are_left_out_unless_they_are_most(known):
    rng = np.random.default_rng(3)

    def read(multiplicities):
        first = (multiplicities == 1).all()
        return mean(multiplicities) if first or rng.random() < known else None

    settings = Bootstrap.of(0.9, 100, 30)
    fitted = {"mean": np.zeros(2)}
    if known > 0.5:
        found = settings.intervals(fitted, read, {}, np.random.default_rng(1))["mean"]
        assert (found.low < found.high).all()
    else:
        with pytest.raises(NotIdentifiableError, match=r"of 100 resamples.*no intervals"):
            settings.intervals(fitted, read, {}, np.random.default_rng(1))


def test_components_are_matched_by_the_nearest():
    fitted = {"means": np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), "weights": np.arange(3)}
    order = [2, 0, 1]
    moved = {"means": fitted["means"][order] + 0.5, "weights": fitted["weights"][order]}
    found = matched(moved, fitted, "means")
    assert np.array_equal(found["weights"], [0, 1, 2])
    assert np.abs(found["means"] - fitted["means"]).max() == 0.5


def test_groups_are_equal_parts_at_random():
    groups = random_groups(103, 10, np.random.default_rng(0))
    assert set(np.bincount(groups)) == {10, 11}
    assert not np.array_equal(groups, np.arange(103) % 10)


@pytest.mark.parametrize(
    "settings, message",
    [
        ((0, 1, 1), "level=0"),
        (("0.9", 5, 5), "level='0.9'"),
        ((None, 5, 5), "level=None"),
        ((0.9, 0, 5), "n_resamples"),
        ((0.9, 5, 2.5), "n_groups"),
        ((0.9, 5, 4), "at least 5"),
    ],
)
def test_bad_settings_are_told(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Bootstrap.of(*settings)
