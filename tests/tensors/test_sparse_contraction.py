"""Contractions of sparse tensors against their definitions, at any order, size and thread count."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from latensor.tensors import _kernels, fibres
from latensor.tensors.cp import CPTensor
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tucker import TuckerTensor
from sparse_examples import (
    SHAPES,
    dense_example,
    literal_contract,
    literal_mttkrp,
    random_factors,
    random_tensor,
    tolerance,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("rank", [1, 2, 3, 17])
@pytest.mark.parametrize("order", range(1, 7))
def test_mttkrp_equals_definition(order, rank, dtype):
    tensor = SparseTensor.from_dense(dense_example(SHAPES[order], dtype=dtype))
    factors = random_factors(tensor.shape, rank, dtype)
    sweep = tensor.sweep(factors)
    for mode in range(order):
        expected = literal_mttkrp(tensor, factors, mode)
        for image in (tensor.mttkrp(factors, mode), sweep.mttkrp(mode)):
            assert image.dtype == dtype
            scale = np.abs(expected).max()
            np.testing.assert_allclose(
                image, expected, rtol=0, atol=tolerance(dtype, 10) * max(scale, 1)
            )


@pytest.mark.parametrize(
    "kinds",
    [kinds for order in (1, 2, 3) for kinds in itertools.product("nvm", repeat=order)]
    + [tuple(kinds) for kinds in ("nmvm", "mmmm", "vnnv", "mnmnm", "vvvvv", "mvmnvn", "mmmmmm")],
)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_contract_equals_definition(kinds, dtype):
    shape = SHAPES[len(kinds)]
    dense = dense_example(shape, 0.5, dtype)
    tensor = SparseTensor.from_dense(dense)
    operands = [
        None if kind == "n" else factor[:, 0] if kind == "v" else factor
        for m, kind in enumerate(kinds)
        for factor in [random_factors(shape, m % 3 + 1, dtype, seed=m)[m]]
    ]
    wide = [None if o is None else o.astype(np.complex128) for o in operands]
    expected = literal_contract(dense.astype(np.complex128), wide)
    result = tensor.contract(*operands)
    assert result.shape == expected.shape
    assert result.dtype == dtype
    atol = tolerance(dtype, 10) * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)
    if "n" in kinds:
        sparse = tensor.contract_sparse(*operands)
        assert sparse.dtype == dtype
        np.testing.assert_allclose(sparse.to_dense(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("values", "rows", "shape"),
    [([2.5], [[1, 2, 3]], (2, 3, 4)), ([], np.zeros((0, 3), int), (2, 3, 4))],
    ids=["one nonzero", "none"],
)
def test_almost_nothing(values, rows, shape):
    tensor = SparseTensor(rows, values, shape)
    dense = tensor.to_dense()
    factors = random_factors(shape, 3)
    for mode in range(3):
        np.testing.assert_allclose(
            tensor.mttkrp(factors, mode), literal_mttkrp(tensor, factors, mode), atol=1e-14
        )
        unfolding = np.moveaxis(dense, mode, 0).reshape(shape[mode], -1)
        np.testing.assert_allclose(tensor.unfold_gram(mode), unfolding @ unfolding.T)
    for operands in ([*factors], [None, factors[1], factors[2][:, 0]], [None] * 3):
        np.testing.assert_allclose(
            tensor.contract(*operands), literal_contract(dense, operands), atol=1e-14
        )
    kept = tensor.contract_sparse(None, factors[1][:, 0], None)
    np.testing.assert_allclose(kept.to_dense(), np.einsum("abc,b->ac", dense, factors[1][:, 0]))
    assert tensor.norm() == np.linalg.norm(dense)
    assert tensor.inner(tensor) == np.sum(dense**2)


# Short and long fibres, few and many root nodes, a single row that spans all tasks.
LARGE = {
    "short fibres": ((500, 400, 300), 250_000),
    "long fibres": ((60, 50, 800), 300_000),
    "few roots": ((3, 20, 5, 900), 150_000),
    "bundles": ((700, 600, 500, 400, 300), 120_000),
    "one row": ((1, 400_000), 200_000),
    "vector": ((400_000,), 200_000),
}


@pytest.fixture(scope="module")
def large_tensors():
    return {name: random_tensor(shape, count) for name, (shape, count) in LARGE.items()}


def set_threads(monkeypatch, count):
    monkeypatch.setattr(_kernels, "thread_count", lambda: count)
    monkeypatch.setattr(fibres, "_PARALLEL_WORK", 0)


@pytest.mark.parametrize("name", LARGE)
def test_large_results_are_right_and_equal_at_any_thread_count(name, large_tensors, monkeypatch):
    tensor = large_tensors[name]
    factors = random_factors(tensor.shape, 5)
    for mode in range(tensor.order):
        products = np.repeat(tensor.values[:, None], 5, axis=1)
        for m in set(range(tensor.order)) - {mode}:
            products *= factors[m][tensor.coordinates[:, m]]
        expected = np.zeros((tensor.shape[mode], 5))
        np.add.at(expected, tensor.coordinates[:, mode], products)
        scale = np.abs(products).sum(axis=0).max()
        images = []
        for threads in (1, 2, 7):
            set_threads(monkeypatch, threads)
            images.append(tensor.mttkrp(factors, mode))
        np.testing.assert_allclose(images[0], expected, rtol=0, atol=1e-13 * scale)
        np.testing.assert_array_equal(images[0], images[1])
        np.testing.assert_array_equal(images[0], images[2])


@pytest.mark.parametrize("name", LARGE)
def test_large_contractions_are_right_and_equal_at_any_thread_count(
    name, large_tensors, monkeypatch
):
    tensor = large_tensors[name]
    factors = random_factors(tensor.shape, 3)
    last = tensor.order - 1
    all_but_last = [*factors[:last], None] if last else [factors[0]]
    results = []
    for threads in (1, 3):
        set_threads(monkeypatch, threads)
        results.append((tensor.contract(*factors), tensor.contract(*all_but_last)))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    core, kept = results[0]
    if last:
        # The two ways go through different trees.
        np.testing.assert_allclose(np.tensordot(kept, factors[last], 1), core, rtol=1e-9, atol=1e-6)
    columns = np.ones((tensor.nnz, 1))
    for m in range(tensor.order):
        rows = factors[m][tensor.coordinates[:, m]]
        columns = (columns[:, :, None] * rows[:, None, :2]).reshape(tensor.nnz, -1)
    corner = core[(slice(0, 2),) * tensor.order].reshape(-1)
    scale = np.abs(tensor.values @ np.abs(columns)).max()
    np.testing.assert_allclose(corner, tensor.values @ columns, rtol=0, atol=1e-11 * scale)


def test_numba_thread_count_changes_nothing(large_tensors, monkeypatch):
    import numba

    monkeypatch.setattr(fibres, "_PARALLEL_WORK", 0)
    tensor = large_tensors["few roots"]
    factors = random_factors(tensor.shape, 4)
    before = numba.get_num_threads()
    try:
        images = []
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            assert _kernels.thread_count() == threads
            images.append(tensor.mttkrp(factors, 1))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*images)


def test_blocks_of_root_nodes_and_of_columns_give_the_same_core(large_tensors, monkeypatch):
    tensor = large_tensors["few roots"]
    factors = random_factors(tensor.shape, 3)
    whole = tensor.contract(*factors)
    part = tensor.contract(factors[0], factors[1][:, 0], *factors[2:])
    for entries, pieces in ((54, 2), (27, 3), (1, 3)):
        monkeypatch.setattr("latensor.tensors.sparse_contraction.BLOCK_ENTRIES", entries)
        assert len(tensor._nonzeros.tree(0).blocks(entries, 27)) >= pieces
        np.testing.assert_allclose(tensor.contract(*factors), whole, rtol=1e-10)
        again = tensor.contract(factors[0], factors[1][:, 0], *factors[2:])
        np.testing.assert_allclose(again, part, rtol=1e-10)


def test_large_cores_are_made_in_little_memory():
    # The rows of all roots would take 1 GB; the result takes 32 MB.
    tensor = random_tensor((1000, 1100, 1200), 300)
    narrow, *wide = random_factors(tensor.shape, 700)
    tracemalloc.start()
    core = tensor.contract(narrow[:, :8], *wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert core.shape == (8, 700, 700)
    assert peak < 5e8
    corner = tensor.contract(narrow[:, 3], wide[0][:, 698], wide[1][:, 7])
    np.testing.assert_allclose(core[3, 698, 7], corner, rtol=1e-9)


def test_small_tensors_start_no_threads(large_tensors, monkeypatch):
    def refuse(*_):
        raise AssertionError("a thread was started")

    monkeypatch.setattr(fibres, "ThreadPoolExecutor", refuse)
    set_threads(monkeypatch, 2)
    tensor = random_tensor((50, 60, 70), 90_000)
    tensor.mttkrp(random_factors(tensor.shape, 2), 0)
    with pytest.raises(AssertionError, match="a thread was started"):
        large_tensors["few roots"].mttkrp(random_factors(LARGE["few roots"][0], 2), 0)


def test_float32_sums_keep_their_digits():
    # A float32 running sum of ones stops growing at 2**24, and loses digits long before.
    count = 300_000
    rows = np.stack([np.zeros(count, int), np.arange(count)], axis=1)
    tensor = SparseTensor(rows, np.full(count, 0.1, np.float32))
    ones = np.ones((count, 1), np.float32)
    image = tensor.mttkrp([ones[:1], ones], 0)
    assert image.dtype == np.float32
    exact = count * np.float64(np.float32(0.1))
    assert abs(image[0, 0] - exact) <= np.finfo(np.float32).eps * exact
    assert abs(tensor.norm() - math.sqrt(0.1 * exact)) <= 2e-7 * tensor.norm()
    assert tensor.norm().dtype == np.float32


def test_sweep_uses_replaced_factors():
    tensor = SparseTensor.from_dense(dense_example((5, 6, 7)))
    factors = random_factors(tensor.shape, 4)
    sweep = tensor.sweep(factors)
    fresh = random_factors(tensor.shape, 4, seed=9)
    for mode in range(3):
        np.testing.assert_array_equal(sweep.mttkrp(mode), tensor.mttkrp(factors, mode))
        factors[mode] = fresh[mode]
        sweep.replace(mode, fresh[mode])
    np.testing.assert_array_equal(sweep.mttkrp(0), tensor.mttkrp(fresh, 0))


@pytest.mark.parametrize("density", [0.02, 0.9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_unfold_gram(density, dtype):
    dense = dense_example((12, 6, 9, 4), density, dtype)
    tensor = SparseTensor.from_dense(dense)
    for mode in range(-1, 3):
        unfolding = np.moveaxis(dense.astype(np.complex128), mode, 0).reshape(dense.shape[mode], -1)
        gram = tensor.unfold_gram(mode)
        assert gram.dtype == dtype
        np.testing.assert_allclose(
            gram, unfolding @ unfolding.conj().T, atol=tolerance(dtype, 500) * 20
        )


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_inner_with_every_kind(dtype):
    shape = (4, 5, 3)
    dense = dense_example(shape, 0.7, dtype)
    other = dense_example(shape, 0.6, dtype, seed=5)
    tensor = SparseTensor.from_dense(dense)
    expected = np.vdot(dense, other)
    np.testing.assert_allclose(tensor.inner(SparseTensor.from_dense(other)), expected)
    np.testing.assert_allclose(tensor.inner(other), expected)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(2).astype(dtype) * (1j if np.dtype(dtype).kind == "c" else 1)
    cp = CPTensor(weights, tuple(random_factors(shape, 2, dtype)))
    full = np.einsum("r,ar,br,cr->abc", cp.weights, *cp.factors)
    np.testing.assert_allclose(tensor.inner(cp), np.vdot(dense, full))
    core = rng.standard_normal((2, 5, 2)).astype(dtype)
    factors = random_factors(shape, 2, dtype)
    tucker = TuckerTensor(core, (factors[0], None, factors[2]))
    full = np.einsum("abc,ia,jc->ibj", core, factors[0], factors[2])
    np.testing.assert_allclose(tensor.inner(tucker), np.vdot(dense, full))
