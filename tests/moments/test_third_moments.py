import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, mixed
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums
from latensor.moments.rows import RowSample, row_hashes
from latensor.moments.sums import Grouped, Joint


def by_definition(rows, weights):
    weights = np.ones(len(rows)) if weights is None else weights
    total = weights.sum()
    mean = weights @ rows / total
    y = rows - mean
    third = np.einsum("n,na,nb,nc->abc", weights, y, y, y) / total
    norm = np.einsum("n,n,na->a", weights, (y**2).sum(axis=1), y) / total
    squares = np.einsum("n,ni,nl->il", weights, y**2, y) / total
    return mean, (y.T * weights) @ y / total, third, norm, squares


def agree(moment, expected, bound):
    found = (
        moment.mean,
        moment.covariance,
        moment.third,
        moment.norm_third,
        moment.square_third,
    )
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - other).max() <= bound * max(np.abs(other).max(), 1.0)


def batch_of(rows, weights=None):
    fractions = np.ones(len(rows)) if weights is None else weights
    return Batch((rows,), fractions, np.arange(len(rows), dtype=np.uint64))


def empty(width, basis=None, centre=3.0):
    """Covariance and third powers around a centre, along a basis."""
    middle = np.full(width, centre)
    basis = np.eye(width) if basis is None else basis
    return Joint(
        {"covariance": CovarianceSums(middle), "third": ThirdPowerSums(middle, basis, True)}
    )


def moment_of(sums):
    return sums["third"].central(sums["covariance"].finalize())


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (50, 4), (5000, 7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_the_definition(shape, weighted):
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=shape) + 3
    weights = rng.uniform(0.5, 2, shape[0]) if weighted else None
    found = moment_of(empty(shape[1]).update(batch_of(rows, weights)))
    agree(found, by_definition(rows, weights), 1e-11)


@given(cuts=st.lists(st.integers(1, 59), max_size=4), seed=st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_any_split_and_merge_gives_the_same_moments(cuts, seed):
    rows = np.random.default_rng(seed).exponential(size=(60, 5))
    expected = by_definition(rows, None)
    stream = merged = empty(5, centre=0.5)
    for part in np.split(rows, sorted(set(cuts))):
        stream = stream.update(batch_of(part))
        merged = merged.merge(empty(5, centre=0.5).update(batch_of(part)))
    agree(moment_of(stream), expected, 1e-11)
    agree(moment_of(merged), expected, 1e-11)
    agree(moment_of(pickle.loads(pickle.dumps(merged))), expected, 1e-11)


def test_moments_along_and_between_directions_of_the_basis():
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.standard_normal((60, 3)))[0]
    rows = rng.exponential(size=(3000, 3)) * 5 @ axes.T
    turned = axes @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    whole = moment_of(empty(60, turned).update(batch_of(rows)))
    assert whole.third.shape == (3, 3, 3)
    exact = by_definition(rows @ axes, None)[2]
    assert np.abs(whole.along(axes)[0] - exact).max() < 1e-10 * np.abs(exact).max()
    between = whole.between(axes, axes[:, :2], axes[:, :1])
    assert np.abs(between - exact[:, :2, :1]).max() < 1e-10 * np.abs(exact).max()
    with pytest.raises(InvalidInputError, match="spawn"):
        empty(60, turned).merge(empty(60, axes))


def test_groups_sum_to_the_whole_and_can_be_repeated():
    rows = np.random.default_rng(4).exponential(size=(90, 4))
    moments = Grouped.of(empty(4), 3, seed=0).update(batch_of(rows))
    agree(moment_of(moments.resampled(np.ones(3))), by_definition(rows, None), 1e-11)
    groups = mixed(np.arange(90, dtype=np.uint64), 0) % np.uint64(3)
    repeated = np.concatenate([rows[groups == 0], rows[groups == 2], rows[groups == 2]])
    found = moment_of(moments.resampled(np.array([1.0, 0.0, 2.0])))
    agree(found, by_definition(repeated, None), 1e-11)


def test_overflow_is_told():
    rows = 1e150 * np.random.default_rng(5).standard_normal((20, 3))
    with pytest.raises(InvalidInputError, match="overflows"):
        moment_of(empty(3).update(batch_of(rows)))


@given(order=st.permutations(range(40)), cut=st.integers(0, 40))
@settings(max_examples=15, deadline=None)
def test_a_row_sample_does_not_depend_on_order_or_split(order, cut):
    rows = np.random.default_rng(6).integers(0, 4, (40, 2)).astype(float)
    whole = RowSample(7).update(rows)
    shuffled = rows[list(order)]
    split = RowSample(7).update(shuffled[:cut]).merge(RowSample(7).update(shuffled[cut:]))
    assert (split.samples == whole.samples).all()
    assert np.abs(split.weights - whole.weights).max() < 1e-12
    assert split.weight == whole.weight == 40


def test_weights_of_rows_are_repetitions_and_equal_rows_are_one():
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [-0.0, 1.0], [5.0, 5.0]])
    weights = np.array([2.0, 1.0, 1.0, 0.0])
    found = RowSample(10).update(rows, weights)
    repeated = RowSample(10).update(rows[[0, 0, 1, 2]])
    assert (found.samples == repeated.samples).all()
    assert (found.weights == repeated.weights).all()
    assert len(found.samples) == 2
    assert len(np.unique(row_hashes(np.arange(40_000.0).reshape(-1, 2)))) == 20_000
    with pytest.raises(InvalidInputError, match="same limit"):
        found.merge(RowSample(3))
