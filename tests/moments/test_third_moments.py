import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample, row_hashes
from latensor.moments.third import GroupedThirdMoments, ThirdMomentAccumulator


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


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (50, 4), (5000, 7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_the_definition(shape, weighted):
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=shape) + 3
    weights = rng.uniform(0.5, 2, shape[0]) if weighted else None
    found = ThirdMomentAccumulator(3, squares=True).update(rows, weights).finalize()
    agree(found, by_definition(rows, weights), 1e-11)


@given(cuts=st.lists(st.integers(1, 59), max_size=4), seed=st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_any_split_and_merge_gives_the_same_moments(cuts, seed):
    rows = np.random.default_rng(seed).exponential(size=(60, 5))
    expected = by_definition(rows, None)
    parts = np.split(rows, sorted(set(cuts)))
    stream = ThirdMomentAccumulator(2, squares=True)
    merged = ThirdMomentAccumulator(2, squares=True)
    for part in parts:
        stream.update(part)
        merged.merge(ThirdMomentAccumulator(2, squares=True).update(part))
    agree(stream.finalize(), expected, 1e-11)
    agree(merged.finalize(), expected, 1e-11)
    agree(pickle.loads(pickle.dumps(merged)).finalize(), expected, 1e-11)


def test_many_features_keep_the_leading_directions_only():
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.standard_normal((60, 3)))[0]
    rows = rng.exponential(size=(3000, 3)) * 5 @ axes.T + 0.01 * rng.standard_normal((3000, 60))
    first = ThirdMomentAccumulator(6).update(rows[:1500])
    second = first.spawn().update(rows[1500:])
    whole = first.merge(second).finalize()
    assert whole.third.shape == (6, 6, 6)
    exact = by_definition(rows @ axes, None)[2]
    assert np.abs(whole.along(axes)[0] - exact).max() < 1e-3 * np.abs(exact).max()
    mixed = whole.between(axes, axes[:, :2], axes[:, :1])
    assert np.abs(mixed - exact[:, :2, :1]).max() < 1e-3 * np.abs(exact).max()
    other = ThirdMomentAccumulator(6).update(rows[:1400] @ np.diag(rng.uniform(0.5, 2, 60)))
    with pytest.raises(InvalidInputError, match="spawn"):
        first.merge(other)
    with pytest.raises(InvalidInputError, match="cannot merge"):
        first.merge(RowSample(3))


def test_first_rows_wait_until_they_can_tell_the_directions():
    rows = np.random.default_rng(2).exponential(size=(400, 40))
    early = ThirdMomentAccumulator(5).update(rows[:100])
    late = ThirdMomentAccumulator(5).update(rows[100:])
    joined = early.merge(late).finalize()
    assert joined.count == 400
    assert joined.third.shape == (5, 5, 5)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_no_bit(n_threads):
    rows = np.random.default_rng(3).exponential(size=(70_000, 4))
    one = ThirdMomentAccumulator(2, squares=True, n_threads=1).update(rows).finalize()
    many = ThirdMomentAccumulator(2, squares=True, n_threads=n_threads).update(rows).finalize()
    assert (one.third == many.third).all()
    assert (one.square_third == many.square_third).all()


def test_groups_sum_to_the_whole_and_can_be_repeated():
    rng = np.random.default_rng(4)
    rows, groups = rng.exponential(size=(90, 4)), np.arange(90) % 3
    moments = GroupedThirdMoments(rows, groups, 3, np.eye(4), rows.mean(axis=0), True)
    agree(moments.resampled(np.ones(3)), by_definition(rows, None), 1e-11)
    repeated = np.concatenate([rows[groups == 0], rows[groups == 2], rows[groups == 2]])
    counts = np.array([1.0, 0.0, 2.0])
    agree(moments.resampled(counts), by_definition(repeated, None), 1e-11)


def test_overflow_is_told():
    rows = 1e150 * np.random.default_rng(5).standard_normal((20, 3))
    with pytest.raises(InvalidInputError, match="overflows"):
        ThirdMomentAccumulator(2).update(rows)


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
