import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.decomposition.algorithms.joint_diagonalization import (
    JointDiagonalization,
    diagonal_of,
    off_diagonal,
)
from latensor.decomposition.result import Status
from latensor.exceptions import InvalidInputError
from latensor.tensors import CPTensor, MomentTensor, TuckerTensor

from .planted import compose
from .symmetric_planted import component_errors, noise_slope, symmetric

SHAPES = [(5, 5, 3), (9, 4, 3), (6, 6, 4), (7, 3, 4), (5, 3, 5), (1, 1, 3), (6, 1, 3)]


def diagonalize(tensor, rank, seed=0, callback=None, **settings_):
    return JointDiagonalization(**settings_)(tensor, rank, np.random.default_rng(seed), callback)


def reference_sweep(matrices, vectors):
    """One cyclic Jacobi sweep on a stack (m, k, k), by whole rotation matrices."""
    matrices, vectors = matrices.copy(), vectors.copy()
    size = len(vectors)
    for p in range(size - 1):
        for q in range(p + 1, size):
            h = np.stack([matrices[:, p, p] - matrices[:, q, q], 2 * matrices[:, p, q]], axis=1)
            gram = h.T @ h
            on, off = gram[0, 0] - gram[1, 1], 2 * gram[0, 1]
            angle = 0.5 * np.arctan2(off, on + np.hypot(on, off))
            rotation = np.eye(size)
            rotation[[p, q], [p, q]] = np.cos(angle)
            rotation[q, p], rotation[p, q] = np.sin(angle), -np.sin(angle)
            matrices = rotation.T @ matrices @ rotation
            vectors = rotation.T @ vectors
    return matrices, vectors


@pytest.mark.parametrize(("size", "count"), [(2, 1), (5, 3), (8, 8), (3, 20)])
def test_the_kernel_does_what_the_reference_does(rng, size, count):
    from latensor.decomposition.algorithms._kernels import jacobi_sweep

    matrices = rng.standard_normal((count, size, size))
    matrices = matrices + matrices.transpose(0, 2, 1)
    vectors = np.linalg.qr(rng.standard_normal((size, size)))[0]
    expected, turned = reference_sweep(matrices, vectors)
    rows, columns = np.triu_indices(size)
    packed = np.ascontiguousarray(matrices[:, rows, columns].T)
    places = np.zeros((size, size), np.int64)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    own = vectors.copy()
    largest = jacobi_sweep(packed, places, own)
    np.testing.assert_allclose(packed.T, expected[:, rows, columns], atol=1e-12)
    np.testing.assert_allclose(own, turned, atol=1e-13)
    assert 0 < largest <= 1
    energy = (expected**2).sum() - (np.einsum("lii->li", expected) ** 2).sum()
    assert off_diagonal(packed, size) == pytest.approx(energy)


@pytest.mark.parametrize(("dimension", "rank", "order"), SHAPES)
def test_exact_input_is_recovered_over_twenty_seeds(dimension, rank, order):
    for seed in range(20):
        tensor, vectors, weights = symmetric(seed, dimension, rank, order, orthogonal=True)
        result = diagonalize(tensor, rank, seed)
        vector_error, weight_error, _ = component_errors(result, vectors, weights)
        assert max(vector_error.max(), weight_error.max()) < 1e-12
        assert result.residual < 1e-13
        assert result.off_diagonal < 1e-26
        assert result.status is Status.CONVERGED


@pytest.mark.parametrize(("dimension", "rank", "order"), [(8, 8, 3), (10, 5, 3), (6, 4, 4)])
def test_the_error_is_proportional_to_the_noise(dimension, rank, order):
    levels = [1e-4, 1e-3, 1e-2]
    for seed in range(5):
        errors = []
        for level in levels:
            tensor, vectors, weights = symmetric(seed, dimension, rank, order, level, True)
            result = diagonalize(tensor, rank, seed)
            errors.append(component_errors(result, vectors, weights)[0].max())
        assert noise_slope(errors, levels) == pytest.approx(1.0, abs=0.1)
        assert errors[-1] < 0.1


def test_equal_weights_are_no_obstacle(rng):
    vectors = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    result = diagonalize(compose([vectors] * 3), 6)
    assert component_errors(result, vectors, np.ones(6))[0].max() < 1e-12


def test_the_off_diagonal_fraction_is_that_of_the_slices():
    tensor, _, _ = symmetric(3, 6, 6, 3, noise=0.3, orthogonal=True)
    result = diagonalize(tensor, 6)
    basis = np.asarray(result.factors[0])
    turned = np.einsum("abc,ai,bj->ijc", tensor, basis, basis)
    diagonal = np.einsum("iic->ic", turned)
    fraction = 1 - (diagonal**2).sum() / (turned**2).sum()
    assert result.off_diagonal == pytest.approx(fraction, rel=1e-6)
    assert result.history[-1] == pytest.approx(np.sqrt(fraction), rel=1e-6)
    assert (np.diff(result.history) <= 1e-12).all()
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)


def test_the_rotation_is_the_best_one_nearby(rng):
    tensor, _, _ = symmetric(4, 5, 5, 3, noise=0.2, orthogonal=True)
    basis = np.asarray(diagonalize(tensor, 5).factors[0])

    def energy(directions):
        return (np.einsum("abc,ai,bi->ic", tensor, directions, directions) ** 2).sum()

    for _ in range(50):
        skew = 1e-4 * rng.standard_normal((5, 5))
        turned = np.linalg.qr(basis @ (np.eye(5) + skew - skew.T))[0]
        assert energy(turned) <= energy(basis) * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["cp", "tucker", "moment", "sparse"])
def test_tensors_that_are_not_dense_are_only_contracted(kind, rng):
    vectors = np.linalg.qr(rng.standard_normal((40, 3)))[0]
    weights = np.array([3.0, 2.0, 1.0])
    if kind == "cp":
        tensor = CPTensor(weights, (vectors,) * 3)
    elif kind == "tucker":
        core = compose([np.eye(3)] * 3, weights)
        tensor = TuckerTensor(core, (vectors,) * 3)
    elif kind == "moment":
        tensor = MomentTensor(vectors.T, weights)
    else:
        sparse = pytest.importorskip("latensor.tensors.sparse").SparseTensor
        vectors = np.eye(40)[:, :3]
        tensor = sparse(np.repeat(np.arange(3)[:, None], 3, axis=1), weights, (40, 40, 40))
    result = diagonalize(tensor, 3)
    vector_error, weight_error, _ = component_errors(result, vectors, weights)
    assert max(vector_error.max(), weight_error.max()) < 1e-10


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_result_is_of_the_callers_library_and_dtype(library, precision):
    dtype = "float32" if library.name == "jax" else precision  # each dtype is compiled anew
    tensor, vectors, weights = symmetric(0, 6, 4, 3, orthogonal=True)
    result = diagonalize(library.array(tensor, dtype), 4)
    assert library.owns(result.weights)
    assert all(str(f.dtype).endswith(dtype) for f in (*result.factors, result.weights))
    assert all(f is result.factors[0] for f in result.factors)
    host = CPTensor(library.host(result.weights), [library.host(f) for f in result.factors])
    vector_error, weight_error, _ = component_errors(host, vectors, weights)
    assert max(vector_error.max(), weight_error.max()) < (1e-12 if dtype == "float64" else 1e-5)


def test_zero_and_rank_deficient_tensors_get_zero_weights():
    zero = diagonalize(np.zeros((4, 4, 4)), 3)
    assert (zero.weights == 0).all()
    assert zero.residual == 0.0
    np.testing.assert_allclose(np.linalg.norm(zero.factors[0], axis=0), 1.0)
    tensor, _, _ = symmetric(0, 6, 2, 3, orthogonal=True)
    result = diagonalize(tensor, 5)
    assert result.residual < 1e-13
    assert np.abs(result.weights[2:]).max() < 1e-13


def test_the_same_seed_gives_the_same_bits():
    tensor, _, _ = symmetric(1, 7, 5, 3, noise=0.1)
    first, second = diagonalize(tensor, 5, 3), diagonalize(tensor, 5, 3)
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(first.factors[0], second.factors[0])


def test_the_input_is_left_untouched():
    tensor, _, _ = symmetric(1, 5, 5, 3, orthogonal=True)
    kept = tensor.copy()
    tensor.flags.writeable = False
    diagonalize(tensor, 5)
    assert np.array_equal(tensor, kept)


def test_a_callback_sees_every_sweep_and_may_stop():
    tensor, _, _ = symmetric(2, 8, 8, 3, noise=0.3, orthogonal=True)
    seen = []
    full = diagonalize(tensor, 8, callback=lambda state: seen.append(state.tensor.rank) or False)
    assert seen == [8] * full.n_iter
    assert diagonalize(tensor, 8, callback=lambda state: True).status is Status.STOPPED
    assert diagonalize(tensor, 8, max_iter=1).status is Status.MAX_ITER


def with_nan():
    tensor = np.ones((3, 3, 3))
    tensor[1, 2, 0] = np.nan
    return tensor


@pytest.mark.parametrize(
    ("tensor", "rank", "match"),
    [
        (np.arange(27.0).reshape(3, 3, 3), 2, r"not symmetric: swapping two modes changes it by"),
        (np.ones((3, 3, 4)), 2, r"modes differ in dimension \(shape \(3, 3, 4\)\)"),
        (np.ones((3, 3)), 2, "order 2"),
        (with_nan(), 2, r"first at \(1, 2, 0\)"),
        (np.ones((3, 3, 3)), 4, "rank=4 is above the 3 .* use AlternatingLeastSquares"),
        (np.ones((3, 3, 3)), 0, "rank=0"),
        (np.ones((3, 3, 3)), 1.5, "rank=1.5"),
        (np.ones((3, 3, 3), dtype=complex), 2, "complex.*SimultaneousDiagonalization"),
    ],
)
def test_bad_input_is_refused(tensor, rank, match):
    with pytest.raises(InvalidInputError, match=match):
        diagonalize(tensor, rank)


@pytest.mark.parametrize("name", ["max_iter", "n_slices"])
def test_bad_settings_are_refused(name):
    with pytest.raises(InvalidInputError, match=name):
        diagonalize(compose([np.eye(3)] * 4), 2, **{name: 0})


def test_an_asymmetric_tensor_that_is_not_dense_is_refused(rng):
    factors = tuple(rng.standard_normal((5, 2)) for _ in range(3))
    with pytest.raises(InvalidInputError, match="not symmetric"):
        diagonalize(CPTensor(None, factors), 2)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.integers(3, 5), size=st.integers(1, 4))
def test_diagonal_of_contracts_with_every_column(seed, order, size):
    rng = np.random.default_rng(seed)
    core, vectors = rng.standard_normal((size,) * order), rng.standard_normal((size, 3))
    letters = "abcde"[:order]
    pattern = ",".join([letters, *(f"{m}z" for m in letters)])
    expected = np.einsum(f"{pattern}->z", core, *[vectors] * order)
    np.testing.assert_allclose(diagonal_of(core, vectors), expected, atol=1e-11)


def test_importing_the_module_does_not_import_numba():
    code = (
        "import sys, latensor.decomposition.algorithms.joint_diagonalization;"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
