"""Dense algebra against literal loops over its definitions, on every library and dtype."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import definitions
import latensor as lt
from definitions import draw, tolerance

# Orders 1 to 6, with modes of dimension 1 and no two neighbours alike.
SHAPES = [(5,), (4, 3), (3, 4, 2), (2, 1, 3, 2), (2, 3, 2, 1, 2), (2, 2, 3, 2, 1, 2)]


@pytest.fixture(params=SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def shape(request):
    return request.param


def close(actual, expected, dtype, size=64):
    assert actual.dtype == np.dtype(dtype), f"{actual.dtype} instead of {dtype}"
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance(dtype, size) * scale)


@pytest.mark.parametrize("order", ["C", "F"])
def test_unfold_and_fold(library, dtype, rng, shape, order):
    tensor = draw(rng, shape, dtype)
    for mode in range(-len(shape), len(shape)):
        matrix = lt.unfold(library.array(tensor), mode, order=order)
        expected = definitions.unfold(tensor, mode % len(shape), order)
        np.testing.assert_array_equal(library.host(matrix), expected)
        back = lt.fold(matrix, mode, shape, order=order)
        np.testing.assert_array_equal(library.host(back), tensor)


def test_multilinear_with_matrices_vectors_and_none(library, dtype, rng, shape):
    tensor = draw(rng, shape, dtype)
    kinds = [lambda d: draw(rng, (d, 2), dtype), lambda d: draw(rng, d, dtype), lambda d: None]
    for turn in range(3):
        operands = [kinds[(m + turn) % 3](d) for m, d in enumerate(shape)]
        result = lt.multilinear(
            library.array(tensor), *(None if o is None else library.array(o) for o in operands)
        )
        close(library.host(result), definitions.multilinear(tensor, *operands), dtype)


def test_multilinear_of_a_matrix_is_the_familiar_product(library, rng):
    matrix, a, b = draw(rng, (4, 3)), draw(rng, (4, 2)), draw(rng, (3, 5))
    result = lt.multilinear(*library.arrays([matrix, a, b]))
    np.testing.assert_allclose(library.host(result), a.T @ matrix @ b, atol=1e-13)


def test_mode_product(library, dtype, rng, shape):
    tensor = draw(rng, shape, dtype)
    for mode, d in enumerate(shape):
        matrix, vector = draw(rng, (3, d), dtype), draw(rng, d, dtype)
        operands = [None] * len(shape)
        operands[mode] = matrix.T
        product = lt.mode_product(*library.arrays([tensor, matrix]), mode)
        close(library.host(product), definitions.multilinear(tensor, *operands), dtype)
        operands[mode] = vector
        product = lt.mode_product(*library.arrays([tensor, vector]), mode)
        close(library.host(product), definitions.multilinear(tensor, *operands), dtype)


def test_mttkrp_and_sweep(library, dtype, rng, shape):
    tensor = draw(rng, shape, dtype)
    factors = [draw(rng, (d, 3), dtype) for d in shape]
    run = lt.sweep(library.array(tensor), library.arrays(factors))
    for mode in [*range(len(shape)), *reversed(range(len(shape)))]:
        expected = definitions.mttkrp(tensor, factors, mode)
        result = lt.mttkrp(library.array(tensor), library.arrays(factors), mode)
        close(library.host(result), expected, dtype)
        close(library.host(run.mttkrp(mode)), expected, dtype)
        factors[mode] = draw(rng, factors[mode].shape, dtype)
        run.replace(mode, library.array(factors[mode]))


def test_mttkrp_does_not_read_the_factor_of_its_mode(rng):
    tensor = draw(rng, (3, 4, 2))
    factors = [draw(rng, (d, 2)) for d in tensor.shape]
    expected = lt.mttkrp(tensor, factors, 1)
    for unread in (None, np.full((4, 2), np.nan), "nothing"):
        result = lt.mttkrp(tensor, [factors[0], unread, factors[2]], 1)
        np.testing.assert_array_equal(result, expected)


class Counting(np.ndarray):
    """An array that counts the products taken with it, and how large its products are."""

    log: list

    def __array_finalize__(self, source):
        self.log = getattr(source, "log", [])

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [np.asarray(i) if isinstance(i, Counting) else i for i in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        self.log.append((ufunc.__name__, tuple(np.size(i) for i in plain), np.size(result)))
        return result


@pytest.mark.parametrize("shape", [(6, 5, 4), (4, 3, 5, 2), (2, 3, 4, 3, 2), (3,) * 6])
def test_a_sweep_touches_the_full_tensor_twice(rng, shape):
    tensor = draw(rng, shape).view(Counting)
    tensor.log = []
    factors = [draw(rng, (d, 2)) for d in shape]
    from latensor.tensors.dense import DenseTensor

    dense = DenseTensor(draw(rng, shape))
    dense.__dict__["_flat"] = tensor.reshape(-1)
    run = dense.sweep(factors)
    log = dense.__dict__["_flat"].log
    for _ in range(3):
        log.clear()
        for mode in range(len(shape)):
            run.mttkrp(mode)
            run.replace(mode, draw(rng, factors[mode].shape))
        full = [entry for entry in log if entry[0] == "matmul" and tensor.size in entry[1]]
        assert len(full) == 2


@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 3, 8, 2)])
def test_no_khatri_rao_product_is_larger_than_the_tensor(rng, shape, monkeypatch):
    from latensor.tensors import dense

    sizes = []
    original = dense.khatri_rao_rows

    def recording(xp, rows):
        result = original(xp, rows)
        if len(rows) > 1:
            sizes.append(result.size)
        return result

    monkeypatch.setattr(dense, "khatri_rao_rows", recording)
    tensor, rank = draw(rng, shape), 40
    factors = [draw(rng, (d, rank)) for d in shape]
    for mode in range(len(shape)):
        expected = definitions.mttkrp(tensor, factors, mode)
        np.testing.assert_allclose(lt.mttkrp(tensor, factors, mode), expected, atol=1e-12)
        np.testing.assert_allclose(lt.sweep(tensor, factors).mttkrp(mode), expected, atol=1e-12)
    assert sizes
    assert max(sizes) <= tensor.size


def test_outer_inner_kronecker_khatri_rao_hadamard(library, dtype, rng):
    vectors = [draw(rng, d, dtype) for d in (2, 3, 2)]
    matrices = [draw(rng, (d, 3), dtype) for d in (2, 4, 3)]
    close(library.host(lt.outer(*library.arrays(vectors))), definitions.outer(*vectors), dtype)
    close(
        library.host(lt.outer(library.arrays([matrices[0], vectors[1]]))),
        definitions.outer(matrices[0], vectors[1]),
        dtype,
    )
    close(
        library.host(lt.khatri_rao(library.arrays(matrices))),
        definitions.khatri_rao(matrices),
        dtype,
    )
    pair = definitions.kronecker(matrices[0], matrices[1])
    close(library.host(lt.kronecker(*library.arrays(matrices[:2]))), pair, dtype)
    close(
        library.host(lt.kronecker(library.arrays(matrices))),
        definitions.kronecker(pair, matrices[2]),
        dtype,
    )
    a, b = draw(rng, (3, 2, 2), dtype), draw(rng, (3, 2, 2), dtype)
    close(library.host(lt.hadamard(*library.arrays([a, b]))), a * b, dtype)
    close(np.asarray(library.host(lt.inner(*library.arrays([a, b])))), np.vdot(a, b), dtype)


def test_symmetrize(library, rng):
    for order in range(1, 6):
        tensor = draw(rng, (3,) * order)
        result = library.host(lt.symmetrize(library.array(tensor)))
        np.testing.assert_allclose(result, definitions.symmetrize(tensor), atol=1e-14)
        assert lt.asymmetry(library.array(result)) < 1e-14
        if order > 1:
            assert lt.asymmetry(library.array(tensor)) > 0.1
    assert lt.asymmetry(library.array(draw(rng, (2, 3)))) == np.inf


def test_slices_and_fibres(library, rng):
    tensor = draw(rng, (3, 4, 2, 5))
    given = library.array(tensor)
    np.testing.assert_array_equal(library.host(lt.fiber(given, 1, (2, 0, -1))), tensor[2, :, 0, -1])
    piece = lt.matrix_slice(given, (3, 0), (1, 1))
    np.testing.assert_array_equal(library.host(piece), tensor[:, 1, 1, :].T)
    slices = lt.frontal_slices(library.array(tensor[..., 0]))
    again = lt.from_frontal_slices(*slices)
    np.testing.assert_array_equal(library.host(again), tensor[..., 0])


@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    order=st.sampled_from(["C", "F"]),
)
@settings(max_examples=30, deadline=None)
def test_fold_inverts_unfold(data, shape, order):
    tensor = np.arange(float(np.prod(shape))).reshape(shape)
    mode = data.draw(st.integers(0, len(shape) - 1))
    unfolded = lt.unfold(tensor, mode, order=order)
    np.testing.assert_array_equal(lt.fold(unfolded, mode, shape, order=order), tensor)


@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_contraction_in_steps_equals_contraction_at_once(shape, seed):
    rng = np.random.default_rng(seed)
    tensor = rng.standard_normal(shape)
    operands = [rng.standard_normal((d, 3)) for d in shape]
    at_once = lt.multilinear(tensor, *operands)
    step = tensor
    for mode, operand in enumerate(operands):
        step = lt.mode_product(step, operand.T, mode)
    np.testing.assert_allclose(at_once, step, atol=1e-11)


@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed"])
def test_any_memory_layout_and_read_only_input(rng, layout):
    tensor = draw(rng, (4, 6, 5))
    given = {
        "C": tensor,
        "F": np.asfortranarray(tensor),
        "strided": np.repeat(tensor, 2, axis=1)[:, ::2],
        "reversed": tensor[::-1, :, ::-1].copy()[::-1, :, ::-1],
    }[layout]
    given.setflags(write=False)
    factors = [draw(rng, (d, 3)) for d in tensor.shape]
    for factor in factors:
        factor.setflags(write=False)
    for mode in range(3):
        expected = definitions.mttkrp(tensor, factors, mode)
        np.testing.assert_allclose(lt.mttkrp(given, factors, mode), expected, atol=1e-12)
    run = lt.sweep(given, factors)
    np.testing.assert_allclose(run.mttkrp(2), definitions.mttkrp(tensor, factors, 2), atol=1e-12)
    result = lt.multilinear(given, *factors)
    np.testing.assert_allclose(result, definitions.multilinear(tensor, *factors), atol=1e-12)


def test_integers_become_floats_and_precisions_are_promoted(library, rng):
    counts = library.module.asarray(np.arange(24).reshape(2, 3, 4))
    ones = [library.module.ones((d, 2)) for d in (2, 3, 4)]
    assert lt.mttkrp(counts, ones, 0).dtype == library.module.ones(1).dtype
    single = library.array(draw(rng, (2, 3, 4)), "float32")
    double = library.arrays([draw(rng, (d, 2)) for d in (2, 3, 4)], "float64")
    for result in (lt.mttkrp(single, double, 1), lt.multilinear(single, *double)):
        assert str(result.dtype).endswith("float64")
    mixed = lt.CPTensor(library.array([1.0, 2.0], "float32"), tuple(double))
    assert str(mixed.to_dense().dtype).endswith("float64")


def test_inner_products_over_some_modes_are_those_of_tensordot(library):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4, 5))
    found = np.asarray(library.host(lt.inner(*library.arrays([a, b]), n_modes=2)))
    np.testing.assert_allclose(found, np.tensordot(a, b, 2), rtol=1e-4)
    with pytest.raises(lt.InvalidInputError, match="must be the first of b"):
        lt.inner(a, b, n_modes=1)
    with pytest.raises(lt.InvalidInputError, match="n_modes=4 must be an integer from 1 to 3"):
        lt.inner(a, b, n_modes=4)
    with pytest.raises(lt.InvalidInputError, match="needs a dense array"):
        lt.inner(lt.SparseTensor.from_dense(a), b, n_modes=1)
