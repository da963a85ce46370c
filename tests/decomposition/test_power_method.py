import numpy as np
import pytest

from latensor.decomposition.algorithms.deflation import Deflated
from latensor.decomposition.algorithms.power_method import PowerMethod
from latensor.decomposition.algorithms.rank_one import ascend_symmetric, escape
from latensor.decomposition.result import Status
from latensor.exceptions import InvalidInputError
from latensor.tensors import CPTensor, DenseTensor, MomentTensor, spectral_norm

from .planted import compose, relative_error, worst_match
from .symmetric_planted import component_errors, noise_slope, symmetric, symmetrized

SHAPES = [(5, 5, 3), (9, 4, 3), (5, 5, 4), (7, 3, 4), (4, 3, 5), (3, 3, 6), (1, 1, 3)]


def power(tensor, rank, seed=0, callback=None, **settings_):
    return PowerMethod(**settings_)(tensor, rank, np.random.default_rng(seed), callback)


@pytest.mark.parametrize(("dimension", "rank", "order"), SHAPES)
def test_exact_input_is_recovered_over_ten_seeds_with_its_signs(dimension, rank, order):
    for seed in range(10):
        tensor, vectors, weights = symmetric(seed, dimension, rank, order, orthogonal=True)
        result = power(tensor, rank, seed)
        vector_error, weight_error, _ = component_errors(result, vectors, weights)
        assert max(vector_error.max(), weight_error.max()) < 1e-10
        assert result.residual < 1e-10
        assert result.status is Status.CONVERGED


@pytest.mark.parametrize("order", [3, 4])
def test_the_error_is_proportional_to_the_noise(order):
    levels = [1e-4, 1e-3, 1e-2]
    for seed in range(5):
        errors = []
        for level in levels:
            tensor, vectors, weights = symmetric(seed, 6, 5, order, level, orthogonal=True)
            errors.append(component_errors(power(tensor, 5, seed), vectors, weights)[0].max())
        assert noise_slope(errors, levels) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", [1e-3, 1e-2])
def test_the_bounds_of_the_perturbation_theorem_hold(seed, level):
    tensor, vectors, weights = symmetric(seed, 6, 6, 3, orthogonal=True, signs="positive")
    noise = level * symmetrized(np.random.default_rng(seed), tensor.shape)
    size = float(spectral_norm(noise))
    result = power(tensor + noise, 6, seed)
    vector_error, weight_error, paired = component_errors(result, vectors, weights)
    assert (vector_error <= 8 * size / weights[paired]).all()
    assert (weight_error <= 5 * size).all()
    left = tensor - compose([np.asarray(f) for f in result.factors], np.asarray(result.weights))
    assert float(spectral_norm(left)) <= 55 * size


def test_spurious_eigenvectors_are_left_along_the_direction_of_ascent():
    weights = np.array([2.0, 1.0])
    tensor = compose([np.eye(3)[:, :2]] * 3, weights)
    spurious = np.array([0.5, 1.0, 0.0]) / np.hypot(0.5, 1.0)
    deflated = Deflated(DenseTensor(tensor))
    value = np.einsum("abc,a,b,c", tensor, spurious, spurious, spurious)
    np.testing.assert_allclose(
        np.einsum("abc,b,c->a", tensor, spurious, spurious), value * spurious, atol=1e-15
    )
    ends, _, done = ascend_symmetric(deflated, spurious[:, None], 50, 1e-13, 0.0, None)
    assert done.all()
    np.testing.assert_allclose(ends[:, 0], spurious, atol=1e-12)
    away = escape(deflated, spurious, value, ends)
    tops, heights, _ = ascend_symmetric(deflated, away, 50, 1e-13, 0.0, None)
    assert (heights > value).all()
    assert {int(np.argmax(np.abs(tops[:, j]))) for j in range(2)} <= {0, 1}
    for j in range(2):
        assert escape(deflated, tops[:, j], heights[j], ends) is None


def test_the_second_derivative_is_seen_in_high_dimensions_too():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((400, 2)))[0]
    tensor = CPTensor(np.array([2.0, 1.0]), (basis,) * 3)
    spurious = basis @ (np.array([0.5, 1.0]) / np.hypot(0.5, 1.0))
    away = escape(Deflated(tensor), spurious, 2 / np.sqrt(5), basis)
    assert away is not None
    tops, heights, _ = ascend_symmetric(Deflated(tensor), away, 50, 1e-13, 0.0, None)
    assert (heights > 2 / np.sqrt(5) + 0.1).all()
    np.testing.assert_allclose(np.abs(basis.T @ tops).max(axis=0), 1.0, atol=1e-8)
    assert escape(Deflated(tensor), basis[:, 0], 2.0, basis) is None


@pytest.mark.parametrize("order", [3, 4])
def test_the_adaptive_shift_makes_the_iteration_monotone(order):
    falls = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        deflated = Deflated(DenseTensor(symmetrized(rng, (4,) * order)))
        starts = rng.standard_normal((4, 6))
        starts /= np.linalg.norm(starts, axis=0)
        for shift in (None, 0.0):
            heights = np.array(
                [
                    np.abs(ascend_symmetric(deflated, starts, n, 0.0, 0.0, shift)[1])
                    for n in range(12)
                ]
            )
            drops = np.diff(heights, axis=0) < -1e-10
            if shift is None:
                assert not drops.any()
            else:
                falls += int(drops.any())
    assert falls > 0  # without the shift it is not


def test_a_fixed_shift_finds_the_same():
    tensor, vectors, weights = symmetric(1, 5, 3, 3, orthogonal=True, signs="positive")
    result = power(tensor, 3, shift=0.5, max_iter=500)
    assert component_errors(result, vectors, weights)[0].max() < 1e-10


@pytest.mark.parametrize("shape", [(6, 5, 7), (4, 5, 6, 3), (3, 4, 3, 3, 4)])
def test_the_asymmetric_variant_recovers_orthogonal_factors_over_ten_seeds(shape):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        factors = [np.linalg.qr(rng.standard_normal((d, 3)))[0] for d in shape]
        tensor = compose(factors, rng.uniform(0.5, 2.0, 3))
        result = power(tensor, 3, seed, symmetric=False)
        assert relative_error(result, tensor) < 1e-10
        assert worst_match(result, factors) > 1 - 1e-12


def test_the_asymmetric_variant_takes_complex_tensors(rng):
    factors = [
        np.linalg.qr(rng.standard_normal((d, 3)) + 1j * rng.standard_normal((d, 3)))[0]
        for d in (5, 4, 6)
    ]
    tensor = compose(factors, [3.0, 2.0, 1.0])
    result = power(tensor, 3, symmetric=False)
    assert relative_error(result, tensor) < 1e-12
    assert result.weights.dtype == np.complex128


@pytest.mark.parametrize("kind", ["cp", "moment", "sparse"])
def test_tensors_that_are_not_dense_are_only_contracted(kind, rng):
    vectors = np.linalg.qr(rng.standard_normal((300, 3)))[0]
    weights = np.array([3.0, 2.0, 1.0])
    if kind == "cp":
        tensor = CPTensor(weights, (vectors,) * 3)
    elif kind == "moment":
        tensor = MomentTensor(vectors.T, weights)
    else:
        sparse = pytest.importorskip("latensor.tensors.sparse").SparseTensor
        vectors = np.eye(300)[:, :3]
        tensor = sparse(np.repeat(np.arange(3)[:, None], 3, axis=1), weights, (300,) * 3)
    vector_error, weight_error, _ = component_errors(power(tensor, 3), vectors, weights)
    assert max(vector_error.max(), weight_error.max()) < 1e-10


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("variant", [True, False])
def test_the_result_is_of_the_callers_library_and_dtype(library, precision, variant):
    dtype = "float32" if library.name == "jax" else precision  # each dtype is compiled anew
    tensor, _, _ = symmetric(0, 5, 3, 3, orthogonal=True)
    # Few starts: every batch size is compiled anew by libraries that compile.
    result = power(library.array(tensor, dtype), 3, symmetric=variant, n_restarts=6)
    assert library.owns(result.weights)
    assert all(str(f.dtype).endswith(dtype) for f in (*result.factors, result.weights))
    if variant:
        assert all(f is result.factors[0] for f in result.factors)
    host = CPTensor(library.host(result.weights), [library.host(f) for f in result.factors])
    assert relative_error(host, tensor) < (1e-10 if dtype == "float64" else 1e-5)
    assert result.residual < (1e-10 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("variant", [True, False])
def test_zero_and_rank_deficient_tensors_get_zero_weights(variant):
    zero = power(np.zeros((4, 4, 4)), 3, symmetric=variant)
    assert (zero.weights == 0).all()
    np.testing.assert_allclose(np.linalg.norm(zero.factors[0], axis=0), 1.0)
    tensor, _, _ = symmetric(0, 6, 2, 3, orthogonal=True)
    result = power(tensor, 4, symmetric=variant)
    assert (result.weights[2:] == 0).all()
    assert result.residual < 1e-12
    np.testing.assert_allclose(result.factors[0].T @ result.factors[0], np.eye(4), atol=1e-10)
    ones = power(np.ones((4, 4, 4)), 2, symmetric=variant)
    assert ones.weights[0] == pytest.approx(8.0)


def test_history_counts_components_and_a_callback_may_stop():
    tensor, _, weights = symmetric(2, 5, 4, 3, orthogonal=True)
    full = power(tensor, 4)
    assert full.n_iter == 4
    falling = np.sort(np.abs(weights))[::-1]
    expected = np.sqrt(np.maximum(1 - np.cumsum(falling**2) / (falling**2).sum(), 0))
    np.testing.assert_allclose(full.history, expected, atol=1e-7)
    stopped = power(tensor, 4, callback=lambda state: state.iteration == 2)
    assert stopped.status is Status.STOPPED
    assert (stopped.weights[2:] == 0).all()
    np.testing.assert_allclose(stopped.weights[:2], full.weights[:2])
    noisy, _, _ = symmetric(2, 5, 4, 3, noise=0.3, orthogonal=True)
    assert power(noisy, 4, max_iter=1).status is Status.MAX_ITER


def test_the_same_seed_gives_the_same_bits():
    tensor, _, _ = symmetric(1, 6, 4, 3, noise=0.05, orthogonal=True)
    first, second = power(tensor, 4, 3), power(tensor, 4, 3)
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(first.factors[0], second.factors[0])


def test_the_input_is_left_untouched():
    tensor, _, _ = symmetric(1, 5, 5, 3, orthogonal=True)
    kept = tensor.copy()
    tensor.flags.writeable = False
    power(tensor, 5)
    assert np.array_equal(tensor, kept)


def with_nan():
    tensor = np.ones((3, 3, 3))
    tensor[1, 2, 0] = np.nan
    return tensor


@pytest.mark.parametrize(
    ("tensor", "rank", "settings_", "match"),
    [
        (np.arange(27.0).reshape(3, 3, 3), 2, {}, r"not symmetric: swapping two modes changes it"),
        (np.ones((3, 3, 4)), 2, {}, "modes differ in dimension"),
        (np.ones((3, 3)), 2, {}, "order 2"),
        (np.ones((3, 3)), 2, {"symmetric": False}, "order 2"),
        (with_nan(), 2, {}, r"first at \(1, 2, 0\)"),
        (with_nan(), 2, {"symmetric": False}, r"first at \(1, 2, 0\)"),
        (np.ones((3, 3, 3)), 4, {}, "rank=4 is above the 3 .* use AlternatingLeastSquares"),
        (np.ones((5, 2, 3)), 3, {"symmetric": False}, "rank=3 is above the 2"),
        (np.ones((3, 3, 3)), 0, {}, "rank=0"),
        (np.ones((3, 3, 3), dtype=complex), 2, {}, "complex"),
        (np.ones((3, 3, 3)), 2, {"n_restarts": 0}, "n_restarts=0"),
        (np.ones((3, 3, 3)), 2, {"max_iter": 0}, "max_iter=0"),
        (np.ones((3, 3, 3)), 2, {"symmetric": False, "shift": 1.0}, "shift"),
    ],
)
def test_bad_input_is_refused(tensor, rank, settings_, match):
    with pytest.raises(InvalidInputError, match=match):
        power(tensor, rank, **settings_)
