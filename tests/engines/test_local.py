"""The fold: any cut of the data and any number of threads give the same bits."""

import itertools
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.engines import LocalEngine
from latensor.engines.blocks import first_units
from latensor.estimation.run import Run, seed_of
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind, mixed
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums
from latensor.moments.sums import Grouped, Joint, Sums
from latensor.moments.unit_sample import Sample
from latensor.sources.rows import RowReader
from latensor.sources.shards import Source

ROWS = np.random.default_rng(0).standard_normal((9000, 4)) + 3
READER = RowReader(4, "Test")
CENTRE = np.array([3.0, 3.0, 2.0, 1.0])


def accumulators():
    return {
        "covariance": CovarianceSums(CENTRE),
        "third": ThirdPowerSums(CENTRE, np.eye(4)[:, :2], squares=True),
        "sample": Sample(500, 7),
        "joint": Joint({"a": CovarianceSums(CENTRE), "b": Sample(10, 1)}),
        "groups": Grouped.of(CovarianceSums(CENTRE), 5, 3),
    }


def cut(sizes):
    edges = np.cumsum([0, *sizes])
    return [ROWS[a:b] for a, b in itertools.pairwise(edges)] + [ROWS[edges[-1] :]]


def source(batches, **more):
    return Source(Kind.ROWS, (batches,), READER, **more)


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for name in tree for leaf in leaves(tree[name])]
    if isinstance(tree, tuple | list):
        return [leaf for item in tree for leaf in leaves(item)]
    if isinstance(tree, Batch):
        return leaves((tree.parts, tree.weights, tree.keys))
    return [np.asarray(tree)]


def equal(one, other, tol=0.0):
    pairs = zip(leaves(one.message()), leaves(other.message()), strict=True)
    return all(np.allclose(a, b, rtol=tol, atol=tol * 10) for a, b in pairs)


class Buffer:
    """Batches in one piece of memory that is used again and again."""

    def __iter__(self):
        memory = np.empty((700, 4))
        for a in range(0, len(ROWS), 700):
            part = ROWS[a : a + 700]
            memory[: len(part)] = part
            yield memory[: len(part)]


@pytest.mark.parametrize("name", accumulators())
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("how", ["list", "buffer", "uneven"])
def test_no_cut_and_no_thread_changes_a_bit(name, threads, how):
    start = accumulators()[name]
    whole = LocalEngine(1).fold(source([ROWS]), start)
    batches = {"list": cut([1000] * 8), "uneven": cut([1, 4096, 0, 3]), "buffer": Buffer()}[how]
    again = LocalEngine(threads).fold(source(batches, copies=how == "buffer"), start)
    assert equal(whole, again)


@pytest.mark.parametrize("name", accumulators())
def test_merging_is_associative_commutative_and_changes_nothing(name):
    start = accumulators()[name]
    shards = [[ROWS[:2000]], [ROWS[2000:2100]], [ROWS[2100:]]]
    made = Source(Kind.ROWS, shards, READER)
    parts = [start.empty() for _ in shards]
    for i in range(3):
        for batch in made.batches(i):
            parts[i] = parts[i].update(batch)
    before = [pickle.dumps(part) for part in parts]
    a, b, c = parts
    whole = a.merge(b).merge(c)
    for other in (a.merge(b.merge(c)), c.merge(a).merge(b), b.merge(c.merge(a))):
        assert equal(whole, other, 1e-12)
    assert equal(whole, start.empty().merge(whole))
    assert equal(whole.merge(whole.empty()), whole)
    assert [pickle.dumps(part) for part in parts] == before
    assert equal(pickle.loads(pickle.dumps(whole)), whole)
    assert equal(start.empty().received(whole.message()), whole)


def test_an_accumulator_can_be_merged_with_itself():
    once = LocalEngine(1).fold(source([ROWS]), CovarianceSums(CENTRE))
    twice = once.merge(once)
    assert twice.finalize().weight == 2 * once.finalize().weight
    assert np.allclose(twice.finalize().covariance, once.finalize().covariance, rtol=1e-14)


def test_other_coordinates_are_refused():
    one = ThirdPowerSums(CENTRE, np.eye(4))
    with pytest.raises(InvalidInputError, match="different coordinates"):
        one.merge(ThirdPowerSums(CENTRE, np.eye(4)[:, :2]))


def test_covariances_around_other_centres_are_added_exactly():
    parts = [
        LocalEngine(1).fold(source([part]), CovarianceSums(centre))
        for part, centre in ((ROWS[:5000], CENTRE), (ROWS[5000:], 100 * CENTRE))
    ]
    for found in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
        assert np.allclose(found.finalize().covariance, np.cov(ROWS.T, bias=True), rtol=1e-9)
    assert parts[1].empty().merge(parts[0]).finalize().count == 5000


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(0, 3))
def test_groups_halve_scale_and_resample(sizes, salt):
    batches = cut(sizes)
    grouped = LocalEngine(1).fold(
        source(batches, salt=salt), Grouped.of(CovarianceSums(CENTRE), 4, 11)
    )
    whole = grouped.resampled(np.ones(4)).finalize()
    assert whole.count == len(ROWS)
    assert np.allclose(whole.covariance, np.cov(ROWS.T, bias=True), rtol=1e-12)
    doubled = grouped.resampled(np.full(4, 2.0)).finalize()
    assert np.allclose(doubled.covariance, whole.covariance, rtol=1e-13)


def test_moments_are_those_of_definition():
    weights = np.random.default_rng(1).integers(0, 3, len(ROWS)).astype(float)
    found = LocalEngine(2).fold(
        source([(ROWS, weights)]),
        Joint({"c": CovarianceSums(CENTRE), "t": ThirdPowerSums(CENTRE, np.eye(4), True)}),
    )
    known = found["c"].finalize()
    repeated = np.repeat(ROWS, weights.astype(int), axis=0)
    centered = repeated - repeated.mean(axis=0)
    assert np.allclose(known.mean, repeated.mean(axis=0), rtol=1e-14)
    assert np.allclose(known.covariance, centered.T @ centered / len(repeated), rtol=1e-13)
    third = found["t"].central(known)
    expected = np.einsum("ni,nj,nl->ijl", centered, centered, centered) / len(repeated)
    assert np.allclose(third.third, expected, atol=1e-11)
    moved = found["c"].recentred(np.zeros(4)).finalize()
    assert np.allclose(moved.covariance, known.covariance, rtol=1e-12)


@pytest.mark.parametrize("kind", [Kind.ROWS, Kind.SEQUENCES])
def test_the_first_units_are_looked_for_in_all_shards(kind):
    """Those of sequences, too: intervals count as many as they have groups."""
    many = Source(kind, (None,) * 4, None)
    units = Batch((ROWS[:30],), np.ones(30), np.arange(30, dtype=np.uint64))

    def read(number, wanted):
        return [units.take(slice(10 * number, 10 * number + min(wanted, 10)))] if number < 3 else []

    assert (first_units(many, 25, read).keys == units.keys[:25]).all()
    assert len(first_units(many, 99, read)) == 30
    assert len(first_units(many, None, read)) == (10 if kind is Kind.SEQUENCES else 30)
    with pytest.raises(InvalidInputError, match="no sample"):
        first_units(many, 5, lambda number, wanted: [])


def test_a_sample_is_unbiased_and_its_prefix_is_one():
    found = LocalEngine(1).fold(source([ROWS]), Sample(4000, 3))
    assert len(found.units) == 4000
    assert found.count == 9000
    assert not found.is_everything
    deviation = ROWS.std(axis=0) / np.sqrt(4000)
    assert (np.abs(found.units.rows.mean(axis=0) - ROWS.mean(axis=0)) < 4 * deviation).all()
    assert (
        found.first(100).keys == LocalEngine(1).fold(source([ROWS]), Sample(100, 3)).units.keys
    ).all()
    filtered = LocalEngine(1).fold(source([ROWS]), Sample.expecting(500, 3, 9000))
    assert (filtered.units.keys == found.first(500).keys).all()
    assert (found.in_order().keys[1:] > found.in_order().keys[:-1]).all()


def test_mixed_numbers_are_distinct_and_even():
    numbers = mixed(np.arange(100_000, dtype=np.uint64), 5)
    assert len(np.unique(numbers)) == 100_000
    counts = np.bincount((numbers % np.uint64(10)).astype(int))
    assert (np.abs(counts - 10_000) < 500).all()


@dataclass(frozen=True, eq=False)
class Failing(Sums):
    def summed(self, batch):
        raise InvalidInputError("broken")


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_of_threads_reach_the_caller(threads):
    with pytest.raises(InvalidInputError, match="broken"):
        LocalEngine(threads).fold(source([ROWS] * 5), Failing())


def test_answers_per_unit_keep_their_order():
    blocks = list(LocalEngine(3).map(source(cut([100] * 60)), lambda batch: batch.rows[:, 0]))
    assert (np.concatenate(blocks) == ROWS[:, 0]).all()


def test_a_source_that_changes_is_noticed():
    class Growing:
        passes = 0

        def __iter__(self):
            self.passes += 1
            yield ROWS[: 100 * self.passes]

    run = Run(source(Growing()), 0)
    run.fold("first", CovarianceSums(CENTRE))
    with pytest.raises(InvalidInputError, match="100 samples on the first pass and 200 now"):
        run.fold("second", CovarianceSums(CENTRE))


def test_units_of_weight_zero_never_get_there():
    weights = np.zeros(len(ROWS))
    weights[5] = 2.0
    found = LocalEngine(1).fold(source([(ROWS, weights)]), Sample(10, 0))
    assert found.count == 1
    assert (found.units.rows == ROWS[5:6]).all()
    with pytest.raises(InvalidInputError, match="no sample"):
        Run(source([(ROWS, 0 * weights)]), 0).fold("x", CovarianceSums(CENTRE))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (ROWS[:, :3], "3 features, but Test is expecting 4"),
        (ROWS[0], "Expected 2D"),
        (np.full((2, 4), np.nan), "NaN"),
        (np.array([["a"] * 4]), "numbers"),
        ((ROWS, -np.ones(len(ROWS))), "negative"),
        ((ROWS, np.ones(3)), "one number per sample"),
        (ROWS.astype(complex), "Complex|numbers"),
    ],
)
def test_bad_batches_are_refused(batch, message):
    with pytest.raises(InvalidInputError, match=message):
        LocalEngine(1).fold(source([ROWS, batch]), CovarianceSums(CENTRE))


def test_seeds():
    assert seed_of(3) == seed_of(np.int64(3)) != seed_of(4)
    assert seed_of(np.random.default_rng(1)) == seed_of(np.random.default_rng(1))
    assert seed_of(None) != seed_of(None)
