import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.moments.fourth import (
    MOST_DIRECTIONS,
    FourthMomentAccumulator,
    homogeneous_sums,
    packed,
    recentered,
    unpacked,
)


def samples(seed, n=300, d=3, offset=5.0):
    rng = np.random.default_rng(seed)
    return offset + rng.laplace(size=(n, d)) @ rng.standard_normal((d, d))


def by_definition(data, weights=None):
    """The fourth cumulant of samples, entry by entry."""
    mean = np.average(data, axis=0, weights=weights)
    y = data - mean
    shares = np.full(len(data), 1 / len(data)) if weights is None else weights / weights.sum()
    c = np.einsum("n,na,nb->ab", shares, y, y)
    fourth = np.einsum("n,na,nb,nc,nd->abcd", shares, y, y, y, y)
    return (
        fourth
        - np.einsum("ab,cd->abcd", c, c)
        - np.einsum("ac,bd->abcd", c, c)
        - np.einsum("ad,bc->abcd", c, c)
    )


def test_the_cumulant_is_that_of_the_definition():
    data = samples(0)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(data))
    for shares in (None, weights):
        found = FourthMomentAccumulator(3).update(data, shares).finalize()
        wanted = by_definition(data, shares)
        assert np.abs(found.cumulant - wanted).max() < 1e-11 * np.abs(wanted).max()
        assert np.allclose(found.mean, np.average(data, axis=0, weights=shares), rtol=1e-13)
    directions = np.random.default_rng(2).standard_normal((3, 2))
    along = FourthMomentAccumulator(3).update(data).finalize().along(directions)
    wanted = by_definition(data @ directions)
    assert np.abs(along - wanted).max() < 1e-11 * np.abs(wanted).max()


def test_gaussian_noise_of_any_covariance_does_not_enter():
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((400_000, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    cumulant = FourthMomentAccumulator(2).update(noise).finalize().cumulant
    # Entries have a standard error of at most sqrt(24 / n) times the square of the variance.
    assert np.abs(cumulant).max() < 5 * np.sqrt(24 / len(noise)) * noise.var(axis=0).max() ** 2


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_any_split_and_any_merge_give_the_same_moment(seed, cuts):
    data = samples(seed, n=60)
    whole = FourthMomentAccumulator(3).update(data).finalize()
    parts = [part for part in np.split(data, sorted(cuts)) if len(part)]
    streamed = FourthMomentAccumulator(3)
    for part in parts:
        streamed.update(part)
    # Every worker has a center of its own.
    workers = [FourthMomentAccumulator(3).update(part) for part in parts]
    forward, backward = FourthMomentAccumulator(3), FourthMomentAccumulator(3)
    for worker in workers:
        forward.merge(worker)
    for worker in workers[::-1]:
        backward.merge(worker)
    scale = np.abs(whole.cumulant).max()
    for other in (streamed, forward, backward, pickle.loads(pickle.dumps(forward))):
        found = other.finalize()
        assert np.abs(found.cumulant - whole.cumulant).max() < 1e-10 * scale
        assert np.abs(found.covariance - whole.covariance).max() < 1e-11 * scale
        assert found.count == len(data)


def test_a_weight_is_a_repetition():
    data = samples(4, n=50)
    counts = np.random.default_rng(0).integers(0, 4, len(data))
    weighted = FourthMomentAccumulator(3).update(data, counts.astype(float)).finalize()
    repeated = FourthMomentAccumulator(3).update(np.repeat(data, counts, axis=0)).finalize()
    scale = np.abs(repeated.cumulant).max()
    assert np.abs(weighted.cumulant - repeated.cumulant).max() < 1e-11 * scale
    assert weighted.weight == repeated.weight == counts.sum()


def test_moving_the_center_is_exact():
    data, shift = samples(5, n=40, offset=0.0), np.array([0.3, -1.0, 2.0])
    zero, eye = np.zeros(3), np.eye(3)
    moved = recentered(unpacked(homogeneous_sums(data, None, zero, eye)), shift)
    there = homogeneous_sums(data, None, shift, eye)
    assert np.abs(packed(moved) - there).max() < 1e-11 * np.abs(there).max()


def test_many_features_are_kept_along_leading_directions():
    rng = np.random.default_rng(6)
    axes = np.linalg.qr(rng.standard_normal((40, 3)))[0]
    data = 10 * rng.laplace(size=(4000, 3)) @ axes.T + 0.1 * rng.standard_normal((4000, 40))
    first = FourthMomentAccumulator(5)
    for part in np.split(data[:2000], 8):
        first.update(part)
    second = first.spawn().update(data[2000:])
    found = first.merge(second).finalize()
    assert found.basis.shape == (40, 5)
    wanted = by_definition(data @ axes)
    assert np.abs(found.along(axes) - wanted).max() < 0.02 * np.abs(wanted).max()
    with pytest.raises(InvalidInputError, match=r"different directions.*spawn\(\)"):
        first.merge(FourthMomentAccumulator(5).update(data[1000:3000]))


def test_rows_that_wait_for_a_basis_are_not_lost():
    data = samples(7, n=90, d=30)
    waiting, ready = FourthMomentAccumulator(4), FourthMomentAccumulator(4)
    waiting.update(data[:50])
    ready.update(data[50:]).spawn()
    assert waiting.merge(ready).finalize().fourth_weight == 90
    assert FourthMomentAccumulator(4).update(data[:50]).finalize().fourth_weight == 50


def test_the_bits_do_not_depend_on_the_threads():
    data = samples(8, n=30_000, d=4)
    one = homogeneous_sums(data, None, data.mean(axis=0), np.eye(4), 1)
    assert np.array_equal(one, homogeneous_sums(data, None, data.mean(axis=0), np.eye(4), 3))


def test_the_input_is_left_alone_and_single_precision_is_enough():
    data = samples(9).astype(np.float32)
    data.setflags(write=False)
    found = FourthMomentAccumulator(3).update(data).finalize()
    wanted = by_definition(data.astype(np.float64))
    assert np.abs(found.cumulant - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: FourthMomentAccumulator(MOST_DIRECTIONS + 1), r"rank=65.*lower n_components"),
        (lambda: FourthMomentAccumulator(2).finalize(), "no sample has been seen"),
        (lambda: FourthMomentAccumulator(2).merge(3), "cannot merge a int"),
        (lambda: FourthMomentAccumulator(2).update(1e100 * samples(0)), "overflows.*smaller unit"),
    ],
)
def test_bad_input_is_told(act, text):
    with pytest.raises(InvalidInputError, match=text):
        act()
