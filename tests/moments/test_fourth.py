import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.fourth import homogeneous_sums, packed, recentered, unpacked
from latensor.moments.fourth_sums import FourthPowerSums
from latensor.moments.row_sums import CovarianceSums
from latensor.moments.sums import Joint


def samples(seed, n=300, d=3, offset=5.0):
    rng = np.random.default_rng(seed)
    return offset + rng.laplace(size=(n, d)) @ rng.standard_normal((d, d))


def summed(data, weights=None, centre=None, basis=None):
    """Covariance and fourth powers of samples, each part around a centre of its own."""
    known = np.ones(len(data)) if weights is None else weights
    centre = data[0].astype(float) if centre is None else centre
    basis = np.eye(data.shape[1]) if basis is None else basis
    keys = np.arange(len(data), dtype=np.uint64)
    start = Joint({"c": CovarianceSums(centre), "f": FourthPowerSums(centre, basis)})
    return start.update(Batch((data,), known, keys))


def moment(sums):
    return sums["f"].central(sums["c"].finalize())


def by_definition(data, weights=None):
    """The fourth cumulant of samples, entry by entry."""
    mean = np.average(data, axis=0, weights=weights)
    y = data - mean
    fractions = np.full(len(data), 1 / len(data)) if weights is None else weights / weights.sum()
    c = np.einsum("n,na,nb->ab", fractions, y, y)
    fourth = np.einsum("n,na,nb,nc,nd->abcd", fractions, y, y, y, y)
    return (
        fourth
        - np.einsum("ab,cd->abcd", c, c)
        - np.einsum("ac,bd->abcd", c, c)
        - np.einsum("ad,bc->abcd", c, c)
    )


def test_the_cumulant_is_that_of_the_definition():
    data = samples(0)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(data))
    for fractions in (None, weights):
        found = moment(summed(data, fractions))
        wanted = by_definition(data, fractions)
        assert np.abs(found.cumulant - wanted).max() < 1e-11 * np.abs(wanted).max()
        assert np.allclose(found.mean, np.average(data, axis=0, weights=fractions), rtol=1e-13)
    directions = np.random.default_rng(2).standard_normal((3, 2))
    along = moment(summed(data)).along(directions)
    wanted = by_definition(data @ directions)
    assert np.abs(along - wanted).max() < 1e-11 * np.abs(wanted).max()


def test_gaussian_noise_of_any_covariance_does_not_enter():
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((400_000, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    cumulant = moment(summed(noise)).cumulant
    # Entries have a standard error of at most sqrt(24 / n) times the square of the variance.
    assert np.abs(cumulant).max() < 5 * np.sqrt(24 / len(noise)) * noise.var(axis=0).max() ** 2


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_any_split_and_any_merge_give_the_same_moment(seed, cuts):
    data = samples(seed, n=60)
    whole = moment(summed(data))
    parts = [part for part in np.split(data, sorted(cuts)) if len(part)]
    # Every worker has a centre of its own.
    workers = [summed(part) for part in parts]
    forward, backward = workers[0], workers[-1]
    for worker in workers[1:]:
        forward = forward.merge(worker)
    for worker in workers[-2::-1]:
        backward = backward.merge(worker)
    scale = np.abs(whole.cumulant).max()
    for other in (forward, backward, pickle.loads(pickle.dumps(forward))):
        found = moment(other)
        assert np.abs(found.cumulant - whole.cumulant).max() < 1e-10 * scale
        assert np.abs(found.covariance - whole.covariance).max() < 1e-11 * scale
        assert found.count == len(data)


def test_a_weight_is_a_repetition():
    data = samples(4, n=50)
    counts = np.random.default_rng(0).integers(0, 4, len(data))
    weighted = moment(summed(data, counts.astype(float)))
    repeated = moment(summed(np.repeat(data, counts, axis=0)))
    scale = np.abs(repeated.cumulant).max()
    assert np.abs(weighted.cumulant - repeated.cumulant).max() < 1e-11 * scale
    assert weighted.weight == repeated.weight == counts.sum()


def test_moving_the_center_is_exact():
    data, shift = samples(5, n=40, offset=0.0), np.array([0.3, -1.0, 2.0])
    zero, eye = np.zeros(3), np.eye(3)
    moved = recentered(unpacked(homogeneous_sums(data, None, zero, eye)), shift)
    there = homogeneous_sums(data, None, shift, eye)
    assert np.abs(packed(moved) - there).max() < 1e-11 * np.abs(there).max()


def test_other_directions_are_not_merged():
    data, axes = samples(6, d=4), np.eye(4)
    first, second = summed(data, basis=axes[:, :2]), summed(data, basis=axes[:, 1:3])
    with pytest.raises(InvalidInputError, match=r"different coordinates.*spawn\(\)"):
        first.merge(second)


def test_a_part_of_the_rows_is_drawn_by_their_numbers():
    data = samples(7, n=20_000, d=2)
    units = Batch((data,), np.ones(len(data)), np.arange(len(data), dtype=np.uint64))
    centre = data.mean(axis=0)
    part = FourthPowerSums(centre, np.eye(2), 0.25, 3).update(units)
    known = CovarianceSums(centre).update(units).finalize()
    found = part.central(known)
    assert found.weight == 20_000
    assert abs(found.fourth_weight - 5000) < 5 * np.sqrt(20_000 * 0.25 * 0.75)


def test_the_input_is_left_alone_and_single_precision_is_enough():
    data = samples(9).astype(np.float32)
    data.setflags(write=False)
    found = moment(summed(data))
    wanted = by_definition(data.astype(np.float64))
    assert np.abs(found.cumulant - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_bad_input_is_told():
    with pytest.raises(InvalidInputError, match="no sample has been seen"):
        moment(summed(samples(0)).empty())
    with pytest.raises(InvalidInputError, match=r"overflows.*smaller unit"):
        summed(1e100 * samples(0))
