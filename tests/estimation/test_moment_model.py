import numpy as np
import pytest

from latensor.estimation.moment_model import MomentModel, component_order
from latensor.exceptions import InvalidInputError


class Sums:
    def __init__(self):
        self.total = 0.0
        self.weight = 0.0

    def update(self, samples, weights):
        numbers = np.ones(len(samples)) if weights is None else weights
        self.total = self.total + numbers @ samples
        self.weight += numbers.sum()
        return self

    def merge(self, other):
        self.total = self.total + other.total
        self.weight += other.weight
        return self

    def spawn(self):
        return Sums()


class Mean(MomentModel):
    """The least model: a mean, which the polish replaces by that of the rows it gets."""

    _read_off_names = frozenset({"mean_", "polished_"})

    def __init__(self, refine=0, n_jobs=None):
        self.refine = refine
        self.n_jobs = n_jobs

    def _new_moments(self):
        return Sums()

    def _read_off(self, moments):
        self.mean_ = moments.total / moments.weight
        self.polished_ = 0

    def _polish(self, samples, weights):
        numbers = np.ones(len(samples)) if weights is None else weights
        self.mean_ = numbers @ samples / numbers.sum()
        self.polished_ = len(samples)


ROWS = np.random.default_rng(0).standard_normal((30, 3))


@pytest.mark.parametrize("refine", [0, 2])
def test_streams_and_merges_read_off_when_asked(refine):
    whole = Mean(refine).fit(ROWS)
    stream = Mean(refine).partial_fit(ROWS[:10])
    assert "mean_" not in vars(stream)
    worker = stream.spawn().partial_fit(ROWS[10:])
    assert np.abs(stream.mean_ - ROWS[:10].mean(axis=0)).max() < 1e-12
    merged = stream.merge(worker)
    assert "mean_" not in vars(merged)
    assert np.abs(merged.mean_ - whole.mean_).max() < 1e-12
    assert merged.polished_ == (30 if refine else 0) == whole.polished_
    assert np.abs(worker.mean_ - ROWS[10:].mean(axis=0)).max() < 1e-12


def test_weights_are_repetitions_and_zero_weights_are_gone():
    counts = np.arange(30) % 3
    found = Mean(1).fit(ROWS, sample_weight=counts)
    assert np.abs(found.mean_ - np.repeat(ROWS, counts, axis=0).mean(axis=0)).max() < 1e-12
    assert found.polished_ == 20


def test_a_stream_after_a_fit_goes_on_without_its_rows():
    model = Mean(2).fit(ROWS[:20]).partial_fit(ROWS[20:])
    assert np.abs(model.mean_ - ROWS.mean(axis=0)).max() < 1e-12
    assert model.polished_ == 0
    again = model.fit(ROWS[:5])
    assert np.abs(again.mean_ - ROWS[:5].mean(axis=0)).max() < 1e-12


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Mean().merge(Mean()), "self must be a Mean that has seen"),
        (lambda: Mean().fit(ROWS).merge(3), "other must be a Mean"),
        (lambda: Mean().fit(ROWS).merge(Mean().fit(ROWS[:, :2])), "2 features, but self 3"),
        (lambda: Mean().spawn(), "must have seen samples"),
        (lambda: Mean().fit(ROWS * np.nan), "90 NaN"),
        (lambda: Mean().fit(ROWS, sample_weight=-np.ones(30)), "not be negative"),
        (lambda: Mean().fit(ROWS).partial_fit(ROWS[:, :2]), "expecting 3 features"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="mean_"):
        Mean().mean_  # noqa: B018
    with pytest.raises(AttributeError, match="other_"):
        Mean().fit(ROWS).other_  # noqa: B018


def test_components_are_ordered_by_weight_then_by_their_first_large_entry():
    vectors = np.array([[0.1, 5.0], [4.0, 1.0], [6.0, 1.0], [9.0, 9.0]])
    weights = np.array([0.2, 0.2, 0.2 + 1e-14, 0.4])
    assert component_order(weights, vectors).tolist() == [3, 2, 1, 0]
