import numpy as np
import pytest

from latensor.decomposition.algorithms.jennrich import (
    SimultaneousDiagonalization,
    group_modes,
)
from latensor.decomposition.algorithms.pencils import separate
from latensor.decomposition.result import Status
from latensor.exceptions import InvalidInputError
from latensor.tensors import CPTensor, MomentTensor

from .planted import compose, planted, relative_error, worst_match
from .symmetric_planted import noise_slope

EXACT = [
    ((6, 5, 4), 4),
    ((10, 12, 8), 8),
    ((7, 6, 2), 6),
    ((2, 6, 7), 6),
    ((6, 2, 7), 6),
    ((5, 4, 3, 3), 4),
    ((4, 4, 3, 3, 2), 9),
    ((3, 1, 4, 2), 3),
    ((5, 5, 3), 1),
    ((1, 1, 1), 1),
    ((4, 1, 1), 1),
    ((20, 20, 20), 15),
]


def jennrich(tensor, rank, seed=0, callback=None, **settings_):
    fit = SimultaneousDiagonalization(**settings_)
    return fit(tensor, rank, np.random.default_rng(seed), callback)


@pytest.mark.parametrize(("shape", "rank"), EXACT)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_exact_input_is_recovered_over_ten_seeds(shape, rank, dtype):
    for seed in range(10):
        tensor, factors = planted(seed, shape, rank, dtype=dtype)
        result = jennrich(tensor, rank, seed)
        assert relative_error(result, tensor) < 1e-10
        assert worst_match(result, factors) > 1 - 1e-10
        assert result.status is Status.CONVERGED


@pytest.mark.parametrize(("shape", "rank"), [((10, 9, 8), 4), ((12, 10, 3), 4), ((6, 5, 5, 4), 3)])
def test_the_error_is_proportional_to_the_noise(shape, rank):
    levels = [1e-4, 1e-3, 1e-2]
    for seed in range(5):
        errors = []
        for level in levels:
            tensor, factors = planted(seed, shape, rank, noise=level)
            score = worst_match(jennrich(tensor, rank, seed), factors)
            errors.append(np.sqrt(1 - score**2))
        assert noise_slope(errors, levels) == pytest.approx(1.0, abs=0.15)


def test_least_squares_sweeps_lower_the_residual_of_the_algebraic_solution():
    tensor, _ = planted(0, (10, 9, 8), 5, noise=0.05)
    raw, refined = jennrich(tensor, 5, refine=0), jennrich(tensor, 5)
    assert raw.n_iter == 1
    assert refined.residual < 0.999 * raw.residual
    assert (np.diff(refined.history) <= 1e-12).all()
    assert refined.history[0] == pytest.approx(raw.residual, rel=1e-6)


def test_close_eigenvalues_are_told_apart_by_other_pencils():
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((8, 8)), rng.standard_normal((8, 8))
    # The first four third-mode vectors differ by a ten-millionth.
    third = rng.standard_normal((6, 8))
    third[:, :4] = third[:, :1] + 1e-7 * rng.standard_normal((6, 4))
    result = jennrich(compose([first, second, third]), 8, refine=0)
    assert result.residual < 1e-9
    assert worst_match(result, [first, second, third]) > 1 - 1e-6


def test_separate_keeps_complex_pairs_together_and_stays_real():
    # A rotation has no real eigenvectors; beside it stands a component that has.
    slices = np.zeros((3, 3, 2))
    slices[:2, :2, 0], slices[:2, :2, 1] = np.eye(2), [[0.0, -1.0], [1.0, 0.0]]
    slices[2, 2] = [1.0, 2.0]
    basis = separate(slices, np.random.default_rng(0), 3)
    assert basis.dtype == np.float64
    assert np.linalg.matrix_rank(basis) == 3
    alone = np.abs(basis[2]) > 1 - 1e-12
    assert alone.sum() == 1
    np.testing.assert_allclose(basis[:2, alone], 0.0, atol=1e-12)


def test_a_tensor_without_a_real_decomposition_of_the_rank_gets_a_valid_fit():
    tensor = np.zeros((2, 2, 2))
    tensor[:, :, 0], tensor[:, :, 1] = np.eye(2), [[0.0, -1.0], [1.0, 0.0]]
    result = jennrich(tensor, 2)
    assert np.isfinite(result.weights).all()
    assert result.residual < 1.0
    exact = jennrich(tensor.astype(complex), 2)
    assert exact.residual < 1e-12


@pytest.mark.parametrize("kind", ["cp", "moment", "sparse"])
def test_tensors_that_are_not_dense_are_only_contracted(kind, rng):
    shape, weights = (60, 50, 40), np.array([3.0, 2.0, 1.0])
    factors = [rng.standard_normal((d, 3)) for d in shape]
    if kind == "cp":
        tensor = CPTensor(weights, tuple(factors))
    elif kind == "moment":
        tensor = MomentTensor(tuple(f.T for f in factors), weights)
    else:
        sparse = pytest.importorskip("latensor.tensors.sparse").SparseTensor
        factors = [np.eye(d)[:, :3] for d in shape]
        tensor = sparse(np.repeat(np.arange(3)[:, None], 3, axis=1), weights, shape)
    result = jennrich(tensor, 3)
    assert relative_error(result, compose(factors, weights)) < 1e-10


@pytest.mark.parametrize("precision", ["float32", "float64", "complex64"])
def test_the_result_is_of_the_callers_library_and_dtype(library, precision):
    dtype = "float32" if library.name == "jax" else precision  # each dtype is compiled anew
    tensor, _ = planted(0, (6, 5, 4), 3, dtype=dtype)
    result = jennrich(library.array(tensor, dtype), 3)
    assert library.owns(result.weights)
    assert all(str(f.dtype).endswith(dtype) for f in (*result.factors, result.weights))
    host = CPTensor(library.host(result.weights), [library.host(f) for f in result.factors])
    assert relative_error(host, tensor) < (1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize(
    ("tensor", "rank"),
    [
        (np.zeros((4, 3, 5)), 3),
        (np.ones((4, 3, 5)), 3),
        (compose([np.ones((4, 2)), np.eye(4)[:, :2], np.eye(4)[:, :2]]), 3),
        (planted(0, (6, 5, 4), 2)[0], 5),
    ],
)
def test_degenerate_tensors_give_a_valid_result(tensor, rank):
    result = jennrich(tensor, rank)
    assert result.rank == rank
    assert np.isfinite(result.weights).all()
    for factor in result.factors:
        assert np.isfinite(factor).all()
    assert result.residual <= 1.0


def test_rank_deficient_input_is_fitted_exactly_with_zero_weights():
    tensor, _ = planted(0, (6, 5, 4), 2)
    result = jennrich(tensor, 5)
    assert result.residual < 1e-12
    assert np.abs(result.weights[2:]).max() < 1e-10
    zero = jennrich(np.zeros((4, 3, 5)), 2)
    assert (zero.weights == 0).all()
    assert zero.residual == 0.0


def test_the_same_seed_gives_the_same_bits_and_the_input_stays():
    tensor, _ = planted(1, (7, 6, 5), 4, noise=0.01)
    kept = tensor.copy()
    tensor.flags.writeable = False
    first, second = jennrich(tensor, 4, 3), jennrich(tensor, 4, 3)
    assert np.array_equal(first.weights, second.weights)
    assert np.array_equal(tensor, kept)


def test_a_callback_may_stop():
    tensor, _ = planted(1, (9, 8, 7), 4, noise=0.1)
    stopped = jennrich(tensor, 4, callback=lambda state: state.tensor.rank == 4)
    assert stopped.status is Status.STOPPED
    assert stopped.n_iter == 1


@pytest.mark.parametrize(
    ("shape", "rank", "groups"),
    [
        ((6, 5, 2), 5, ((0,), (1,), (2,))),
        ((2, 5, 6), 5, ((1,), (2,), (0,))),
        ((4, 4, 4, 4), 4, ((0,), (1,), (2, 3))),
        ((3, 3, 3, 3, 3), 8, ((0, 1), (2, 3), (4,))),
    ],
)
def test_modes_are_merged_only_where_the_rank_needs_it(shape, rank, groups):
    assert group_modes(shape, rank) == groups


def with_nan():
    tensor = np.ones((3, 4, 3))
    tensor[1, 2, 0] = np.inf
    return tensor


@pytest.mark.parametrize(
    ("tensor", "rank", "settings_", "match"),
    [
        (np.ones((4, 3, 2)), 4, {}, "rank=4 is above the 3 .*AlternatingLeastSquares"),
        (np.ones((4, 3, 1)), 2, {}, "rank=2 is above the 1 .* a third at least 2"),
        (np.ones((1, 1, 1)), 2, {}, "rank=2 is above the 1"),
        (np.ones((4, 3)), 2, {}, "order 2"),
        (np.ones((4, 3, 2)), 0, {}, "rank=0"),
        (with_nan(), 2, {}, r"first at \(1, 2, 0\)"),
        (np.ones((4, 3, 2)), 2, {"n_pencils": 0}, "n_pencils=0"),
    ],
)
def test_bad_input_is_refused(tensor, rank, settings_, match):
    with pytest.raises(InvalidInputError, match=match):
        jennrich(tensor, rank, **settings_)


@pytest.mark.parametrize(("shape", "rank"), [((10, 10, 10), 10), ((12, 12, 6), 12)])
@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2])
def test_noise_at_full_rank_loses_no_component(shape, rank, noise):
    """Ten seeds, among them such whose first pencil merges two components."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        factors = [rng.standard_normal((d, rank)) for d in shape]
        signal = compose(factors)
        disturbance = rng.standard_normal(shape)
        scale = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
        found = SimultaneousDiagonalization()(signal + scale * disturbance, rank, rng)
        assert found.residual < noise
        assert found.residual == pytest.approx(found.history[-1], rel=1e-5)
        score = 1.0
        for own, true in zip(found.factors, factors, strict=True):
            score = score * np.abs(own.T @ (true / np.linalg.norm(true, axis=0)))
        assert score.max(axis=0).min() > 1 - 0.5 * min(1.0, 10 * noise)
