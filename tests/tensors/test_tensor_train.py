"""Tensor trains: every operation beside its dense counterpart, on every library and dtype."""

import copy
import pickle

import numpy as np
import pytest

import latensor as lt
from definitions import draw, tolerance
from latensor import InvalidInputError

SHAPE, RANKS = (3, 4, 2, 5), (2, 3, 2)


def cores_of(rng, shape=SHAPE, ranks=RANKS, dtype="float64"):
    bounds = (1, *ranks, 1)
    return [draw(rng, (bounds[m], d, bounds[m + 1]), dtype) for m, d in enumerate(shape)]


def dense_of(cores):
    total = cores[0]
    for core in cores[1:]:
        total = np.tensordot(total, core, axes=1)
    return total[0, ..., 0]


@pytest.fixture
def train(rng):
    return lt.TensorTrain(tuple(cores_of(rng)))


def test_what_an_algorithm_asks_of_a_tensor(library, dtype, rng):
    cores = cores_of(rng, dtype=dtype)
    dense, bound = dense_of(cores), tolerance(dtype, 120) * 50
    train = lt.TensorTrain(tuple(library.arrays(cores)))
    assert isinstance(train, lt.Contractible)
    assert (train.shape, train.ranks, train.order) == (SHAPE, RANKS, 4)
    np.testing.assert_allclose(library.host(train.to_dense()), dense, atol=bound)
    assert float(library.host(train.norm())) == pytest.approx(np.linalg.norm(dense), rel=bound)
    factors = [draw(rng, (d, 3), dtype) for d in SHAPE]
    sweep = lt.sweep(train, library.arrays(factors))
    for mode in (0, 1, 2, 3, 1):
        expected = lt.mttkrp(dense, factors, mode)
        np.testing.assert_allclose(
            library.host(lt.mttkrp(train, library.arrays(factors), mode)), expected, atol=bound
        )
        np.testing.assert_allclose(library.host(sweep.mttkrp(mode)), expected, atol=bound)
        factors[mode] = draw(rng, (SHAPE[mode], 3), dtype)
        sweep.replace(mode, library.array(factors[mode]))


@pytest.mark.parametrize("kinds", ["mmmm", "vvvv", "vmvm", "nvvn", "vvnm", "nnnn", "mvvv", "vnnv"])
def test_contractions(kinds, rng, train):
    shapes = {"m": lambda d: (d, 3), "v": lambda d: (d,)}
    operands = [
        None if k == "n" else rng.standard_normal(shapes[k](d))
        for k, d in zip(kinds, SHAPE, strict=True)
    ]
    expected = lt.multilinear(train.to_dense(), *operands)
    found = lt.multilinear(train, *operands)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_sums_products_and_inner_products(dtype, rng):
    a = lt.TensorTrain(tuple(cores_of(rng, dtype=dtype)))
    b = lt.TensorTrain(tuple(cores_of(rng, ranks=(3, 2, 4), dtype=dtype)))
    x, y = a.to_dense(), b.to_dense()
    close = {"atol": 1e-11}
    np.testing.assert_allclose((a + b).to_dense(), x + y, **close)
    np.testing.assert_allclose((a - 2.5 * b).to_dense(), x - 2.5 * y, **close)
    np.testing.assert_allclose((-a).to_dense(), -x, **close)
    np.testing.assert_allclose((a * b).to_dense(), x * y, **close)
    assert (a + b).ranks == (5, 5, 6)
    assert (a * b).ranks == (6, 6, 8)
    expected = np.vdot(x, y)
    sparse = lt.SparseTensor.from_dense(y) if hasattr(lt.SparseTensor, "from_dense") else None
    for other in filter(lambda o: o is not None, (b, y, lt.tucker(y, y.shape).tensor, sparse)):
        np.testing.assert_allclose(a.inner(other), expected, **close)
        np.testing.assert_allclose(lt.inner(a, other), expected, **close)
        np.testing.assert_allclose(lt.inner(other, a), np.conj(expected), **close)
    points = np.array([[0, 1, 1, 4], [2, -1, 0, 0]])
    np.testing.assert_allclose(a.entries(points), [x[0, 1, 1, 4], x[2, -1, 0, 0]], **close)


def test_rounding_keeps_its_promise_and_finds_the_ranks_of_a_sum(train, rng):
    doubled = train + 3.0 * train
    assert doubled.round(1e-12).ranks == RANKS
    np.testing.assert_allclose(doubled.round(1e-12).to_dense(), 4 * train.to_dense(), rtol=1e-10)
    dense = train.to_dense()
    for error in (0.0, 1e-3, 0.2, 0.7):
        rounded = train.round(error)
        left = np.linalg.norm(rounded.to_dense() - dense) / np.linalg.norm(dense)
        assert left <= error + 1e-14
        assert rounded.residual == pytest.approx(left, abs=1e-12)
    assert train.round(ranks=(1, 2, 2)).ranks == (1, 2, 2)
    # The difference of nearly equal trains has a norm to many digits.
    nearby = lt.TensorTrain((*train.cores[:-1], train.cores[-1] * (1 + 1e-10)))
    assert float((nearby - train).norm()) == pytest.approx(1e-10 * np.linalg.norm(dense), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_scales(scale, train):
    large = scale * train
    assert float(large.norm()) == pytest.approx(float(train.norm()) * scale, rel=1e-12)
    assert large.round(0.3).ranks == train.round(0.3).ranks


def test_tensorly_and_copies(train):
    tensorly = pytest.importorskip("tensorly")
    theirs = train.to_tensorly()
    np.testing.assert_allclose(tensorly.tt_to_tensor(theirs), train.to_dense(), atol=1e-12)
    again = lt.from_tensorly(theirs)
    assert isinstance(again, lt.TensorTrain)
    assert again.ranks == RANKS
    found = pickle.loads(pickle.dumps(copy.copy(train)))
    np.testing.assert_array_equal(found.to_dense(), train.to_dense())
    assert [core.shape for core in train] == [(1, 3, 2), (2, 4, 3), (3, 2, 2), (2, 5, 1)]
    assert repr(train) == "TensorTrain(3 x 4 x 2 x 5, ranks (2, 3, 2), numpy, float64)"


def test_order_one():
    train = lt.TensorTrain((np.arange(3.0).reshape(1, 3, 1),))
    assert train.ranks == ()
    np.testing.assert_allclose(train.to_dense(), [0, 1, 2])
    np.testing.assert_allclose((train + train).to_dense(), [0, 2, 4])
    np.testing.assert_allclose(train.mttkrp([np.ones((3, 2))], 0), [[0, 0], [1, 1], [2, 2]])
    assert float(train.round(0.1).norm()) == pytest.approx(5**0.5)


def test_refusals(train, rng):
    one = np.ones((1, 2, 1))
    for cores, message in [
        ((), "at least one array"),
        ((one, np.ones((2, 3, 1))), r"cores\[1\] must have shape \(1, dimension, rank\)"),
        ((np.ones((1, 2, 2)),), "must end with rank 1, not 2"),
        ((None,), r"cores\[0\] is None"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            lt.TensorTrain(cores)
    for call, message in [
        (lambda: train.round(), "give error"),
        (lambda: train.round(1.5), r"error=1.5 must be a number in \[0, 1\)"),
        (lambda: train.round(ranks=(1, 2)), "has 2 entries for a tensor of order 4: give 3"),
        (lambda: train.round(ranks=0), r"ranks\[0\]=0 must be an integer"),
        (lambda: train.inner(np.ones(3)), "other has shape"),
        (lambda: train + lt.TensorTrain((one,)), "shapes differ"),
        (lambda: train.entries([[0, 0, 0, 9]]), "coordinates leave mode 3, of dimension 5"),
        (lambda: train.entries([[0.5] * 4]), "must be integers of shape"),
        (lambda: train.to_dense(max_size=10), "above max_size=10"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            call()
