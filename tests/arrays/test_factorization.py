import warnings

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from latensor.arrays import library_name, to_host
from latensor.arrays.factorization import (
    leading_eigenpairs,
    low_rank_approximation,
    pseudo_inverse,
    solve_positive,
    svd_with_next,
    truncated_svd,
)
from latensor.exceptions import ConvergenceWarning, InvalidInputError

KINDS = ["numpy", "torch", "jax", "csr_matrix", "csc_array", "coo_array", "operator"]
DENSE = ["numpy", "torch", "jax"]
METHODS = ["auto", "exact", "gram", "randomized"]


def make(kind, matrix):
    if kind == "numpy":
        return matrix
    if kind == "torch":
        return pytest.importorskip("torch").asarray(matrix)
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(matrix)
    if kind == "operator":
        return aslinearoperator(matrix)
    return getattr(scipy.sparse, kind)(matrix)


def tolerance(array, factor=200.0):
    return factor * np.finfo(to_host(array).dtype).eps


def with_spectrum(rng, rows, columns, values, dtype=np.float64):
    def basis(size):
        draw = rng.standard_normal((size, len(values)))
        if np.dtype(dtype).kind == "c":
            draw = draw + 1j * rng.standard_normal(draw.shape)
        return np.linalg.qr(draw)[0]

    return ((basis(rows) * values) @ basis(columns).conj().T).astype(dtype)


def check_triplets(found, matrix, rank):
    left, values, right = (to_host(part) for part in found)
    bound = 50 * max(matrix.shape) * np.finfo(matrix.dtype).eps
    exact = np.linalg.svd(matrix, compute_uv=False)
    scale = max(exact[0], 1e-30)
    assert left.shape == (matrix.shape[0], rank)
    assert right.shape == (matrix.shape[1], rank)
    assert np.all(np.diff(values) <= bound * scale)
    assert np.abs(values - exact[:rank]).max() <= bound * scale
    assert np.abs(left.conj().T @ left - np.eye(rank)).max() <= bound
    assert np.abs(right.conj().T @ right - np.eye(rank)).max() <= bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (200, 90), (90, 200)])
def test_truncated_svd_agrees_with_lapack(kind, dtype, shape):
    if kind == "jax" and (dtype in ("float64", "complex64")) == (shape in [(30, 20), (90, 200)]):
        pytest.skip("jax compiles every shape: each dtype sees two of the four")
    rng = np.random.default_rng(1)
    matrix = with_spectrum(rng, *shape, 2.0 ** -np.arange(15), dtype)
    given_matrix = make(kind, matrix)
    found = truncated_svd(given_matrix, 6)
    check_triplets(found, matrix, 6)
    left, values, right = (to_host(part) for part in found)
    assert left.dtype == right.dtype == matrix.dtype
    assert values.dtype == matrix.real.dtype
    assert np.abs(matrix @ right - left * values).max() <= 50 * max(shape) * tolerance(matrix, 1)
    if kind in DENSE:
        assert {library_name(part) for part in found} == {kind}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["numpy", "csr_array"])
@pytest.mark.parametrize(
    "name, values",
    [
        ("decay", 10.0 ** -np.arange(0, 12, 0.5)),
        ("flat", np.ones(24)),
        ("pairs", np.repeat(2.0 ** -np.arange(12), 2)),
        ("low rank", np.r_[3.0, 2.0, 1.0, np.zeros(21)]),
        ("zero", np.zeros(24)),
    ],
)
def test_every_method_gives_orthonormal_triplets_whatever_the_spectrum(method, kind, name, values):
    rng = np.random.default_rng(2)
    matrix = with_spectrum(rng, 120, 70, values)
    check_triplets(truncated_svd(make(kind, matrix), 8, method=method), matrix, 8)


@pytest.mark.parametrize("method", METHODS)
def test_small_singular_values_survive_squaring(method):
    values = np.r_[1.0, 1e-3, 1e-5, 1e-6, 1e-9, 1e-10]
    matrix = with_spectrum(np.random.default_rng(3), 300, 100, values)
    found = truncated_svd(matrix, 6, method=method).singular_values
    assert np.abs(found - values).max() < 1e-14


def test_all_methods_and_seeds_agree_on_noise():
    matrix = np.random.default_rng(4).standard_normal((400, 300))
    exact = truncated_svd(matrix, 5, method="exact")
    for method in METHODS:
        for seed in (0, 1):
            found = truncated_svd(matrix, 5, method=method, random_state=seed)
            assert np.abs(found.singular_values - exact.singular_values).max() < 1e-10
            assert np.abs(found.left - exact.left).max() < 1e-7


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits(method, kind):
    if (kind, method) in [("operator", "gram"), ("jax", "auto")]:
        pytest.skip("an operator has no Gram matrix, and jax compiles every shape")
    matrix = np.random.default_rng(5).standard_normal((150, 80)).astype(np.float32)
    first, second = (truncated_svd(make(kind, matrix), 4, method=method) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert (to_host(one) == to_host(other)).all()


def test_the_largest_entry_of_a_left_vector_is_positive_and_ties_are_stable():
    hadamard = scipy.linalg.hadamard(8).astype(float)
    left = truncated_svd(hadamard @ np.diag(np.arange(8, 0, -1.0)), 8).left
    assert (left[0] > 0).all()
    jittered = truncated_svd(
        hadamard @ np.diag(np.arange(8, 0, -1.0))
        + 1e-13 * np.random.default_rng(0).standard_normal((8, 8)),
        8,
    ).left
    assert np.abs(left - jittered).max() < 1e-11
    turned = truncated_svd(1j * np.diag([3.0, 2.0, 1.0]), 3)
    assert np.abs(turned.left - np.eye(3)).max() < 1e-15
    assert np.abs(turned.right + 1j * np.eye(3)).max() < 1e-15


def test_fixed_power_iterations_read_the_matrix_a_fixed_number_of_times():
    matrix = with_spectrum(np.random.default_rng(6), 300, 200, 2.0 ** -np.arange(40))
    products = []
    operator = LinearOperator(
        matrix.shape,
        matvec=lambda v: matrix @ v,
        matmat=lambda b: products.append("M") or matrix @ b,
        rmatmat=lambda b: products.append("M'") or matrix.T @ b,
        dtype=float,
    )
    found = truncated_svd(operator, 5, n_power_iterations=2)
    assert len(products) == 6
    assert np.abs(found.singular_values - 2.0 ** -np.arange(5)).max() < 1e-12


def test_a_bulk_without_a_gap_still_gives_its_values():
    matrix = np.random.default_rng(7).standard_normal((700, 600))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = truncated_svd(matrix, 3, method="randomized").singular_values
    assert np.abs(found / np.linalg.svd(matrix, compute_uv=False)[:3] - 1).max() < 1e-10


@pytest.mark.parametrize("seed", range(2))
def test_copies_of_a_value_are_found_beyond_the_size_of_a_block(seed):
    values = np.r_[np.full(12, 2.0), np.linspace(1.9, 0.01, 788)]
    matrix = scipy.sparse.diags_array(np.random.default_rng(seed).permutation(values)).tocsr()
    found = truncated_svd(matrix, 15, method="randomized", random_state=seed)
    assert np.abs(found.singular_values - values[:15]).max() < 1e-12
    pairs = leading_eigenpairs(matrix, 15, random_state=seed)
    assert np.abs(pairs.values - values[:15]).max() < 1e-12


@pytest.mark.parametrize("shape", [(90, 40), (900, 700)])
def test_the_next_value_is_the_edge_of_the_gap(shape):
    values = np.r_[5.0, 4.0, 3.0, np.linspace(0.5, 0.1, 30)]
    matrix = with_spectrum(np.random.default_rng(0), *shape, values)
    found, following = svd_with_next(matrix, 3)
    assert np.abs(found.singular_values - values[:3]).max() < 1e-12
    assert following == pytest.approx([0.5], rel=1e-2)
    assert svd_with_next(matrix[:3], 3)[1].shape == (0,)


def test_large_sparse_matrix_is_never_made_dense():
    rng = np.random.default_rng(8)
    matrix = scipy.sparse.random_array((9_000, 8_000), density=1e-4, rng=rng, format="csr")
    left, values, right = truncated_svd(matrix, 3)
    assert np.abs(matrix @ right - left * values).max() < 1e-7 * values[0]


@pytest.mark.parametrize("kind", DENSE)
def test_low_rank_approximation_is_as_close_as_eckart_and_young_say(kind):
    matrix = with_spectrum(np.random.default_rng(9), 12, 9, np.arange(9, 0, -1.0))
    matrix = matrix.astype(np.float32)
    rest = matrix - to_host(low_rank_approximation(make(kind, matrix), 4))
    assert np.linalg.norm(rest, 2) == pytest.approx(5.0, rel=1e-5)
    assert np.linalg.norm(rest) == pytest.approx(np.sqrt((np.arange(1, 6) ** 2).sum()), rel=1e-5)


@pytest.mark.parametrize("kind", [*DENSE, "csr_array", "operator"])
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (1, 6)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_pseudo_inverse_obeys_the_penrose_conditions_at_any_rank(kind, shape, dtype):
    if kind == "jax" and shape != (7, 4):
        pytest.skip("jax compiles every shape")
    matrix = with_spectrum(np.random.default_rng(10), *shape, np.r_[2.0, 1.0][: min(shape)], dtype)
    inverse = to_host(pseudo_inverse(make(kind, matrix)))
    bound = tolerance(matrix)
    assert inverse.shape == shape[::-1]
    assert inverse.dtype == matrix.dtype
    assert np.abs(matrix @ inverse @ matrix - matrix).max() < bound
    assert np.abs(inverse @ matrix @ inverse - inverse).max() < bound
    for product in (matrix @ inverse, inverse @ matrix):
        assert np.abs(product - product.conj().T).max() < bound


def test_pseudo_inverse_of_zero_is_zero():
    assert (pseudo_inverse(np.zeros((3, 2))) == np.zeros((2, 3))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [6, 40, 700])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_leading_eigenpairs_come_by_magnitude_with_their_signs(kind, size, dtype):
    if kind == "jax" and size != 40:
        pytest.skip("jax compiles every shape: one size stands for all")
    rng = np.random.default_rng(11)
    values = np.r_[-5.0, 4.0, 3.0, -2.0, 1.0]
    basis = with_spectrum(rng, size, size, np.ones(size if size < 100 else 5), dtype)
    basis = np.linalg.qr(basis)[0][:, :5]
    matrix = ((basis * values) @ basis.conj().T).astype(dtype)
    matrix = (matrix + matrix.conj().T) / 2
    found, vectors = (to_host(part) for part in leading_eigenpairs(make(kind, matrix), 4))
    bound = tolerance(matrix, 50 * size)
    assert np.abs(found - values[:4]).max() < bound
    assert np.abs(matrix @ vectors - vectors * found).max() < bound
    assert vectors.dtype == matrix.dtype
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(4)].real > 0).all()


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("columns", [None, 1, 5])
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_solve_positive_gives_the_least_norm_solution_at_any_rank(kind, dtype, columns, rank):
    if kind == "jax" and columns == 1:
        pytest.skip("jax compiles every shape: a vector and five columns stand for all")
    rng = np.random.default_rng(12)
    factor = with_spectrum(rng, 6, rank, np.linspace(1, 2, rank), dtype)
    gram = factor @ factor.conj().T
    shape = (6,) if columns is None else (6, columns)
    expected = (np.linalg.pinv(gram, rcond=1e-4) @ rng.standard_normal(shape)).astype(dtype)
    found = to_host(solve_positive(make(kind, gram), make(kind, gram @ expected)))
    assert found.shape == shape
    assert found.dtype == np.dtype(dtype)
    assert np.abs(found - expected).max() < tolerance(gram, 500)


def test_solve_positive_with_ridge_and_at_zero():
    gram, rhs = np.diag([1.0, 0.0]), np.array([3.0, 2.0])
    assert solve_positive(gram, rhs, ridge=1.0) == pytest.approx([1.5, 2.0])
    assert (solve_positive(np.zeros((2, 2)), rhs) == 0).all()


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    seed=st.integers(0, 99),
    method=st.sampled_from(METHODS),
)
def test_a_full_rank_svd_composes_to_the_matrix(rows, columns, seed, method):
    matrix = np.random.default_rng(seed).standard_normal((rows, columns))
    left, values, right = truncated_svd(matrix, min(rows, columns), method=method)
    assert np.abs((left * values) @ right.T - matrix).max() < 1e-12
    transposed = truncated_svd(matrix.T, min(rows, columns), method=method)
    assert np.abs(transposed.singular_values - values).max() < 1e-12


def test_inputs_may_be_read_only_lists_and_integers():
    matrix = np.arange(12.0).reshape(4, 3)
    matrix.flags.writeable = False
    from_list = truncated_svd(matrix.astype(int).tolist(), 2)
    assert (from_list.left == truncated_svd(matrix, 2).left).all()
    assert (truncated_svd(scipy.sparse.csr_array(matrix.astype(int)), 2).left.shape) == (4, 2)


def test_truncated_svd_can_be_traced_by_jax():
    jax = pytest.importorskip("jax")
    matrix = jax.numpy.asarray(np.random.default_rng(0).standard_normal((6, 4)), dtype="float32")
    found = jax.jit(lambda m: truncated_svd(m, 2).singular_values)(matrix)
    assert np.abs(found - truncated_svd(matrix, 2).singular_values).max() < 1e-5


BAD = np.array([[1.0, np.nan], [np.inf, 2.0]])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: truncated_svd(BAD, 1), r"matrix holds 2 NaN or infinite entries of 4.*\(0, 1\)"),
        (lambda: truncated_svd(scipy.sparse.csr_array(BAD), 1), "stored values"),
        (lambda: truncated_svd(aslinearoperator(BAD), 1), "product with matrix"),
        (lambda: truncated_svd(np.ones((3, 2)), 3), "rank=3 exceeds the 2 .*at most 2"),
        (lambda: truncated_svd(np.ones((3, 2)), 0), "rank=0 must be a positive integer"),
        (lambda: truncated_svd(np.ones((3, 2)), 1.5), "rank=1.5 must be a positive integer"),
        (lambda: truncated_svd(np.ones(3), 1), "must be a matrix"),
        (lambda: truncated_svd(scipy.sparse.coo_array(np.ones(3)), 1), "must be a matrix"),
        (lambda: truncated_svd(np.ones((0, 2)), 1), "empty"),
        (lambda: truncated_svd(scipy.sparse.csr_array((0, 2)), 1), "empty"),
        (lambda: truncated_svd(np.array([[1, "a"]], dtype=object), 1), "not numbers"),
        (lambda: truncated_svd(np.ones((2, 2), dtype=np.float16), 1), "float16"),
        (lambda: truncated_svd(None, 1), "matrix must hold at least one"),
        (lambda: truncated_svd(np.ones((2, 2)), 1, method="fast"), "method='fast' must be one"),
        (lambda: truncated_svd(np.ones((2, 2)), 1, n_oversamples=-1), "n_oversamples=-1"),
        (lambda: truncated_svd(np.ones((2, 2)), 1, n_power_iterations=-1), "n_power_iterations"),
        (
            lambda: truncated_svd(aslinearoperator(np.ones((99, 99))), 1, method="gram"),
            "use method='randomized'",
        ),
        (
            lambda: truncated_svd(
                LinearOperator((99, 99), matvec=lambda v: v, dtype=float), 1, method="randomized"
            ),
            "without rmatvec",
        ),
        (lambda: pseudo_inverse(np.ones((2, 2)), tolerance=2), "tolerance=2"),
        (lambda: leading_eigenpairs(np.ones((2, 3)), 1), "must be square"),
        (lambda: leading_eigenpairs(np.arange(4.0).reshape(2, 2), 1), "must be symmetric.*3.3e-01"),
        (
            lambda: leading_eigenpairs(aslinearoperator(np.triu(np.ones((300, 300)))), 1),
            "must be symmetric",
        ),
        (lambda: leading_eigenpairs(np.eye(2), 3), "rank=3 exceeds the 2"),
        (lambda: solve_positive(np.eye(2), np.ones(3)), r"gram must be \(k, k\)"),
        (lambda: solve_positive(np.full((2, 2), np.nan), np.ones(2)), "gram holds NaN"),
        (lambda: solve_positive(np.eye(2), np.ones(2), ridge=-1.0), "ridge=-1.0"),
    ],
)
def test_bad_input_is_refused_with_its_name(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
