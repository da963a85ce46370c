"""Sparse tensors: how they are made, what they turn into, and what they refuse."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from latensor.exceptions import InvalidInputError
from latensor.tensors import coordinates
from latensor.tensors.sparse import SparseTensor
from sparse_examples import dense_example, random_factors


def test_entries_are_sorted_summed_and_stripped_of_zeros():
    tensor = SparseTensor(
        [[2, 0], [0, 1], [2, 0], [1, 1], [0, 0], [1, 0], [1, 0]], [1, 2, 3, 0, 5, 7, -7]
    )
    assert tensor.shape == (3, 2)
    assert tensor.order == 2
    assert tensor.nnz == 3
    assert tensor.dtype == np.float64
    np.testing.assert_array_equal(tensor.coordinates, [[0, 0], [0, 1], [2, 0]])
    np.testing.assert_array_equal(tensor.values, [5, 2, 4])
    assert repr(tensor) == "SparseTensor(3 x 2, 3 nonzeros, float64)"


@settings(max_examples=40, deadline=None)
@given(
    npst.arrays(
        st.sampled_from([np.float32, np.float64]),
        npst.array_shapes(min_dims=1, max_dims=5, max_side=4),
        elements=st.sampled_from([0.0, 0.0, 1.0, -2.5, 0.125]),
    )
)
def test_dense_round_trip(array):
    tensor = SparseTensor.from_dense(array)
    assert tensor.dtype == array.dtype
    assert tensor.nnz == np.count_nonzero(array)
    np.testing.assert_array_equal(tensor.to_dense(), array)
    np.testing.assert_array_equal(SparseTensor.from_dense(tensor.to_dense()).values, tensor.values)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 60))
def test_order_of_the_rows_changes_nothing_and_duplicates_are_summed(seed, order, count):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, (count, order))
    values = rng.standard_normal(count)
    shuffled = rng.permutation(count)
    one = SparseTensor(rows, values, (3,) * order)
    other = SparseTensor(rows[shuffled], values[shuffled], (3,) * order)
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.values, other.values)
    summed = np.zeros((3,) * order)
    np.add.at(summed, tuple(rows.T), values)
    np.testing.assert_allclose(one.to_dense(), summed, atol=1e-13)


@pytest.mark.parametrize("dimension", [7, 300, 70_000, 2**33])
def test_sorting_by_kernel_equals_lexsort(dimension):
    rng = np.random.default_rng(0)
    count = coordinates._KERNEL_NONZEROS + 1
    rows = np.stack([rng.integers(0, d, count) for d in (dimension, 5, 40)], axis=1)
    values = rng.standard_normal(count)
    expected = np.lexsort([rows[:, m] for m in (1, 0, 2)])
    for kind in (np.int32, np.int64) if dimension < 2**31 else (np.int64,):
        sorted_rows, sorted_values = coordinates.sort_rows(
            rows.astype(kind), values, [2, 0, 1], (dimension, 5, 40)
        )
        np.testing.assert_array_equal(sorted_rows, rows[expected])
        np.testing.assert_array_equal(sorted_values, values[expected])


def test_shape_whose_product_overflows():
    shape = (2**40, 2**50, 2**31, 2**20)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, d, 50) for d in shape], axis=1)
    rows = np.concatenate([rows, rows[:10]])
    values = np.arange(1.0, 61.0)
    tensor = SparseTensor(rows, values, shape)
    assert tensor.nnz == 50
    assert tensor.coordinates.dtype == np.int64
    order = np.lexsort(rows[:50].T[::-1])
    np.testing.assert_array_equal(tensor.coordinates, rows[order])
    sums = values[:50] + np.concatenate([values[50:], np.zeros(40)])
    np.testing.assert_array_equal(tensor.values, sums[order])
    weights = rng.random(2**20)
    kept = tensor.contract_sparse(None, None, None, weights)
    assert kept.shape == shape[:3]
    np.testing.assert_allclose(kept.values, tensor.values * weights[tensor.coordinates[:, 3]])
    np.testing.assert_allclose(tensor.inner(tensor), tensor.norm() ** 2)
    with pytest.raises(InvalidInputError, match="TB"):
        tensor.to_dense()


def test_input_is_copied_and_tensor_is_frozen():
    rows, values = np.array([[0, 1], [1, 0]], np.int32), np.array([1.0, 2.0])
    rows.flags.writeable = values.flags.writeable = False
    tensor = SparseTensor(rows, values)
    assert not np.may_share_memory(tensor.coordinates, rows)
    assert not np.may_share_memory(tensor.values, values)
    for array in (tensor.coordinates, tensor.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        tensor.shape = (3, 3)


def test_foreign_byte_order():
    values = np.array([1.0, 2.0], ">f8")
    for tensor in (
        SparseTensor(np.array([[0], [1]], ">i4"), values),
        SparseTensor.from_dense(values),
    ):
        assert tensor.dtype.isnative
        np.testing.assert_array_equal(tensor.mttkrp([np.ones((2, 1))], 0), [[1], [2]])


def test_pickling():
    tensor = SparseTensor.from_dense(dense_example((4, 5, 3)))
    tensor.mttkrp(random_factors(tensor.shape, 2), 0)
    copy = pickle.loads(pickle.dumps(tensor))
    np.testing.assert_array_equal(copy.to_dense(), tensor.to_dense())
    assert not copy.values.flags.writeable


def test_norm_does_not_overflow():
    assert SparseTensor([[0], [1]], [3e200, 4e200]).norm() == pytest.approx(5e200, rel=1e-15)
    assert SparseTensor([[0], [1]], [3e-200j, 4e-200]).norm() == pytest.approx(5e-200, rel=1e-15)


def test_scaling_permuting_and_casting():
    dense = dense_example((3, 4, 5))
    tensor = SparseTensor.from_dense(dense)
    for scaled in (tensor * 2, 2 * tensor, np.float64(2) * tensor, tensor * np.float64(2)):
        np.testing.assert_array_equal(scaled.to_dense(), 2 * dense)
    np.testing.assert_array_equal((-tensor).to_dense(), -dense)
    assert (tensor * 0).nnz == 0
    assert (2 * tensor.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(tensor.permute((2, 0, -2)).to_dense(), dense.transpose(2, 0, 1))
    assert tensor.astype("complex64").dtype == np.complex64
    assert SparseTensor([[0], [1]], [1e-300, 1.0]).astype(np.float32).nnz == 1


# -- other libraries ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", [scipy.sparse.random, scipy.sparse.random_array])
def test_scipy_in_and_out(kind, make):
    shape = (6, 8)
    arguments = (6, 8) if make is scipy.sparse.random else (shape,)
    matrix = make(*arguments, density=0.3, format=kind, random_state=0)
    tensor = SparseTensor.from_scipy(matrix)
    np.testing.assert_array_equal(tensor.to_dense(), matrix.toarray())
    np.testing.assert_array_equal(tensor.to_scipy().toarray(), matrix.toarray())


@pytest.mark.parametrize("shape", [(9,), (3, 4, 5)])
def test_scipy_arrays_of_other_orders(shape):
    dense = dense_example(shape)
    np.testing.assert_array_equal(
        SparseTensor.from_scipy(scipy.sparse.coo_array(dense)).to_dense(), dense
    )


@pytest.mark.parametrize("kind", ["coo", "gcxs", "dok"])
def test_pydata_in_and_out(kind):
    sparse = pytest.importorskip("sparse")
    dense = dense_example((3, 4, 5))
    tensor = SparseTensor.from_coo(sparse.COO.from_numpy(dense).asformat(kind))
    np.testing.assert_array_equal(tensor.to_dense(), dense)
    np.testing.assert_array_equal(tensor.to_coo().todense(), dense)
    with pytest.raises(InvalidInputError, match="fill_value=1"):
        SparseTensor.from_coo(sparse.COO.from_numpy(np.ones(3), fill_value=1.0))


def test_pyttb_in_and_out():
    pyttb = pytest.importorskip("pyttb")
    dense = dense_example((3, 4, 5))
    tensor = SparseTensor.from_dense(dense)
    theirs = tensor.to_pyttb()
    np.testing.assert_array_equal(theirs.full().data, dense)
    np.testing.assert_array_equal(SparseTensor.from_pyttb(theirs).to_dense(), dense)
    factors = random_factors(dense.shape, 3)
    for mode in range(3):
        np.testing.assert_allclose(
            theirs.mttkrp(factors, mode), tensor.mttkrp(factors, mode), atol=1e-12
        )
    empty = SparseTensor(np.zeros((0, 2)), [], (3, 4))
    assert SparseTensor.from_pyttb(empty.to_pyttb()).shape == (3, 4)
    assert SparseTensor.from_pyttb(pyttb.sptensor(shape=(3, 4))).nnz == 0


def test_small_tensors_need_no_kernel_until_they_are_contracted():
    script = (
        "import sys; from latensor.tensors.sparse import SparseTensor; "
        "t = SparseTensor([[0, 1], [2, 0]], [1.0, 2.0]); t.to_dense(); t.norm(); t.to_scipy(); "
        "assert not {'numba', 'sparse', 'pyttb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- bad input ---------------------------------------------------------------------------------

BAD_INPUT = [
    ([1, 2], [1.0, 2.0], None, r"coordinates must be a matrix .* got shape \(2,\)"),
    (np.zeros((2, 0)), [1.0, 2.0], None, "coordinates must be a matrix"),
    (np.zeros((2, 2, 2)), [1.0, 2.0], None, "coordinates must be a matrix"),
    ([[0, 1], [0, -3]], [1.0, 2.0], None, r"coordinates\[1, 1\] = -3 is negative"),
    ([[0, 1], [0.5, 1]], [1.0, 2.0], None, r"coordinates\[1, 0\] = 0.5 is not a whole number"),
    ([[0, np.nan]], [1.0], None, r"coordinates\[0, 1\] = nan is not a whole number"),
    ([[0, 1], [4, 1]], [1.0, 2.0], (4, 2), r"coordinates\[1, 0\] = 4 is beyond mode 0.* 0 to 3"),
    ([[2**60]], [1.0], None, r"coordinates\[0, 0\] = 1152921504606846976 is too large"),
    (np.array([[2**64 - 1]], np.uint64), [1.0], None, "is too large"),
    ([[True, False]], [1.0], None, "coordinates have dtype bool"),
    (np.array([[0, "a"]], object), [1.0], None, "coordinates have dtype object"),
    ([["a"]], [1.0], None, "coordinates have dtype <U1"),
    (np.zeros((0, 2)), [], None, "coordinates are empty and shape is not given"),
    ([], [], (3,), "coordinates must be a matrix"),
    (None, [1.0], None, "coordinates must be an array"),
    ([[0, 1]], [1.0, 2.0], None, r"one number per row of coordinates \(1\), got shape \(2,\)"),
    ([[0, 1]], [[1.0]], None, r"got shape \(1, 1\)"),
    ([[0], [1]], [1.0, np.nan], None, r"values holds 1 NaN .* first at \(1,\)"),
    ([[0], [1]], [np.inf, 1.0], None, r"values holds 1 NaN or infinite entries of 2"),
    ([[0]], np.array([None], object), None, "values has dtype object"),
    ([[0]], ["x"], None, "values has dtype <U1"),
    ([[0]], np.ones(1, np.float16), None, "float16"),
    ([[0], [0]], [1e308, 1e308], None, r"coordinates \(0,\) add up to more than float64"),
    ([[0, 1]], [1.0], (2, 2, 2), "has 3 modes, but coordinates have 2 columns"),
    ([[0, 1]], [1.0], (2, 0), "dimension 0 in mode 1"),
    ([[0, 1]], [1.0], (2.5, 2), "must be a sequence of integers"),
    ([[0, 1]], [1.0], 3, "must be a sequence of integers"),
    ([[0, 1]], [1.0], (), "has no modes"),
]


@pytest.mark.parametrize(("rows", "values", "shape", "message"), BAD_INPUT)
def test_bad_input(rows, values, shape, message):
    with pytest.raises(InvalidInputError, match=message):
        SparseTensor(rows, values, shape)


def test_arrays_of_other_libraries_are_refused_by_name():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="values is a torch array"):
        SparseTensor([[0]], torch.ones(1))
    tensor = SparseTensor([[0, 1]], [1.0])
    with pytest.raises(
        InvalidInputError, match=r"tensor is a numpy array but factors\[1\] is a tor"
    ):
        tensor.mttkrp([torch.ones(1, 2), torch.ones(2, 2)], 0)


TENSOR = SparseTensor.from_dense(dense_example((3, 4, 5)))
HUGE = SparseTensor([[0, 0, 0]], [1.0], (10**6, 10**6, 10))
FACTORS = random_factors((3, 4, 5), 2)
BAD_CALLS = {
    "mode": (lambda: TENSOR.mttkrp(FACTORS, 3), "mode=3 is out of range .* order 3"),
    "mode kind": (lambda: TENSOR.mttkrp(FACTORS, 1.5), "mode=1.5 must be an integer"),
    "few factors": (lambda: TENSOR.mttkrp(FACTORS[:2], 0), "2 factors given .* order 3"),
    "rows": (lambda: TENSOR.mttkrp(FACTORS[::-1], 1), r"factors\[0\] has 5 rows, .* mode 0"),
    "ranks": (
        lambda: TENSOR.mttkrp([FACTORS[0], FACTORS[1][:, :1], FACTORS[2]], 0),
        "differ in rank",
    ),
    "vector": (
        lambda: TENSOR.mttkrp([FACTORS[0], FACTORS[1][:, 0], FACTORS[2]], 0),
        r"factors\[1\] must be a matrix",
    ),
    "nan factor": (
        lambda: TENSOR.mttkrp([FACTORS[0], FACTORS[1] * np.nan, FACTORS[2]], 0),
        r"factors\[1\] holds 8 NaN",
    ),
    "nan operand": (
        lambda: TENSOR.contract(None, np.full(4, np.nan), FACTORS[2][:, 0]),
        r"operands\[1\] holds 4 NaN",
    ),
    "nan matrix": (
        lambda: TENSOR.contract_sparse(None, FACTORS[1] * np.inf, FACTORS[2]),
        r"operands\[1\] holds 8 NaN",
    ),
    "operands": (lambda: TENSOR.contract(None, None), "2 operands given"),
    "operand rows": (
        lambda: TENSOR.contract(None, FACTORS[2], None),
        r"operands\[1\] has 5 rows, but mode 1",
    ),
    "nothing kept": (lambda: TENSOR.contract_sparse(*FACTORS), "none is: use contract"),
    "dense size": (lambda: HUGE.to_dense(), "10,000,000,000,000 entries, 80 TB"),
    "told size": (lambda: TENSOR.to_dense(max_size=59), "60 entries, 480 bytes, above max_size=59"),
    "contract size": (lambda: HUGE.contract(None, None, np.ones(10)), "8 TB"),
    "sparse size": (
        lambda: HUGE.contract_sparse(None, None, np.ones((10, 2)), max_size=1),
        "2 entries, 16 bytes",
    ),
    "gram size": (lambda: HUGE.unfold_gram(1), "8 TB"),
    "gram mode": (lambda: TENSOR.unfold_gram(5), "mode=5 is out of range"),
    "inner shape": (lambda: TENSOR.inner(np.ones((3, 4))), r"other has shape \(3, 4\)"),
    "inner nan": (lambda: TENSOR.inner(np.full((3, 4, 5), np.nan)), "other holds"),
    "inner objects": (lambda: TENSOR.inner(np.full((3, 4, 5), None)), "other has dtype object"),
    "inner kind": (lambda: TENSOR.inner(None), "other must be an array"),
    "permute": (lambda: TENSOR.permute((0, 0, 1)), "must name each of the 3 modes once"),
    "permute mode": (lambda: TENSOR.permute((0, 1, 3)), "modes=3 is out of range"),
    "cast": (lambda: TENSOR.astype(int), "must be float32"),
    "cast complex": (lambda: (TENSOR * 1j).astype(float), "lose its imaginary part"),
    "cast overflow": (lambda: (TENSOR * 1e300).astype(np.float32), "tensor as float32 holds"),
    "scale nan": (lambda: TENSOR * np.nan, "product with nan holds"),
    "scipy order": (lambda: TENSOR.to_scipy(), "order 3: only order 2"),
    "not scipy": (lambda: SparseTensor.from_scipy(np.ones(3)), "expected a SciPy sparse"),
    "not pydata": (lambda: SparseTensor.from_coo(np.ones(3)), "expected a sparse.COO"),
    "not pyttb": (lambda: SparseTensor.from_pyttb(np.ones(3)), "expected a pyttb.sptensor"),
    "dense nan": (lambda: SparseTensor.from_dense([1.0, np.nan]), "array holds 1 NaN"),
    "dense empty": (lambda: SparseTensor.from_dense(np.ones((0, 3))), "holds no tensor entries"),
    "dense scalar": (lambda: SparseTensor.from_dense(3.0), "holds no tensor entries"),
    "silently dense": (lambda: np.asarray(TENSOR), r"call its to_dense\(\)"),
    "replace shape": (
        lambda: TENSOR.sweep(FACTORS).replace(1, FACTORS[0]),
        r"mode 1 must have shape \(4, 2\), got \(3, 2\)",
    ),
    "replace complex": (
        lambda: TENSOR.sweep(FACTORS).replace(1, FACTORS[1] * 1j),
        "begun with real factors",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name):
    call, message = BAD_CALLS[name]
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_product_with_an_array_is_not_defined():
    with pytest.raises(TypeError):
        TENSOR * np.ones(3)
    with pytest.raises(TypeError):
        TENSOR * TENSOR


@pytest.mark.parametrize("shape", [(7, 5, 9), (3_000_000, 4_000_000, 2_000_000)])
def test_rows_are_sorted_stably_by_any_modes(shape):
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, min(d, 9), 400) for d in shape], axis=1)
    values = np.arange(400.0)
    for modes in ([2, 0, 1], [1], [0, 2]):
        found, kept = coordinates.sort_rows(rows, values, modes, shape)
        order = np.lexsort([rows[:, mode] for mode in reversed(modes)])
        np.testing.assert_array_equal(found, rows[order])
        np.testing.assert_array_equal(kept, values[order])
