import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.decomposition import AlternatingLeastSquares, Status, decompose
from latensor.decomposition.optimize.nonnegative import nonnegative_rows
from latensor.decomposition.optimize.problem import DenseProblem, contract_rows, squared_norm
from latensor.decomposition.optimize.solves import solve_gram
from latensor.exceptions import InvalidInputError
from latensor.tensors import CPTensor

from .planted import compose, planted, relative_error, worst_match


def als(tensor, rank, seed=0, init=None, **settings_):
    fit = AlternatingLeastSquares(**settings_)
    return fit(tensor, rank, np.random.default_rng(seed), init=init)


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((9,), 1), ((8, 7), 3), ((10, 9, 8), 4), ((6, 5, 4, 7), 3), ((4, 5, 3, 4, 3), 2)],
)
@pytest.mark.parametrize("extrapolate", [False, True])
def test_exact_tensors_of_every_order_are_fitted(shape, rank, extrapolate):
    tensor, _ = planted(1, shape, rank)
    result = als(tensor, rank, extrapolate=extrapolate, tol=1e-14, max_iter=2000)
    assert relative_error(result, tensor) < 1e-6
    assert result.residual == pytest.approx(relative_error(result, tensor), abs=1e-12)


@pytest.mark.parametrize("start", ["leading", "random"])
@pytest.mark.parametrize("extrapolate", [False, True])
def test_residual_never_rises(start, extrapolate):
    tensor, _ = planted(2, (12, 11, 10), 5, noise=0.3, collinearity=0.7)
    result = als(tensor, 5, start=start, extrapolate=extrapolate, max_iter=60)
    assert np.all(np.diff(result.history) <= 1e-12)
    assert len(result.history) == result.n_iter


def test_full_rank_of_a_random_tensor_within_seventy_sweeps():
    for seed in range(5):
        tensor = np.random.default_rng(seed).standard_normal((6, 8, 7))
        assert als(tensor, 42, seed, max_iter=70).residual < 0.01


def test_extrapolation_saves_sweeps_on_collinear_components():
    tensor, _ = planted(3, (20, 20, 20), 4, noise=1e-3, collinearity=0.9)
    plain = als(tensor, 4, extrapolate=False, max_iter=2000, target=1.1e-3)
    fast = als(tensor, 4, max_iter=2000, target=1.1e-3)
    assert fast.status is Status.TARGET_REACHED
    assert fast.n_iter < plain.n_iter


def test_ridge_solves_the_penalized_equations():
    tensor, _ = planted(4, (7, 6, 5), 2, noise=0.1)
    ridge = 0.7
    result = als(tensor, 2, ridge=ridge, tol=1e-15, max_iter=5000, extrapolate=False)
    # At the optimum all factors have equal norms; put the weights back evenly.
    factors = [np.asarray(f) * np.cbrt(np.asarray(result.weights)) for f in result.factors]
    gamma = (factors[1].T @ factors[1]) * (factors[2].T @ factors[2])
    right = np.einsum("abc,br,cr->ar", tensor, factors[1], factors[2])
    left = factors[0] @ (gamma + ridge * np.eye(2))
    np.testing.assert_allclose(left, right, atol=1e-4 * np.abs(right).max())
    assert result.residual > als(tensor, 2).residual


def test_rank_deficient_gram_has_a_least_norm_solution():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 6))
    rows[2] = rows[1]
    gamma = rows @ rows.T
    right = gamma @ rng.standard_normal((3, 4))
    solution = solve_gram(gamma.copy(), right)
    np.testing.assert_allclose(gamma @ solution, right, atol=1e-8)
    zero = solve_gram(np.zeros((2, 2)), np.zeros((2, 3)))
    np.testing.assert_array_equal(zero, np.zeros((2, 3)))


@pytest.mark.parametrize("name", ["init weights", "negative weight", "pair without weights"])
def test_init_is_honoured_exactly_and_not_changed(name):
    rng = np.random.default_rng(5)
    factors = [rng.standard_normal((d, 2)) for d in (4, 4, 4)]
    weights = np.array([3.0, -0.5 if name == "negative weight" else 0.25])
    if name == "pair without weights":
        weights = np.ones(2)
    tensor = compose(factors, weights)
    copies = [f.copy() for f in factors]
    for array in [*factors, weights]:
        array.setflags(write=False)
    init = (None, factors) if name == "pair without weights" else CPTensor(weights, factors)
    result = als(tensor, 2, init=init, max_iter=1, extrapolate=False)
    assert result.history[0] < 1e-12
    for factor, copy in zip(factors, copies, strict=True):
        np.testing.assert_array_equal(factor, copy)


def test_result_of_one_run_starts_the_next():
    tensor, _ = planted(6, (9, 8, 7), 3, noise=0.2)
    first = als(tensor, 3, max_iter=4)
    second = als(tensor, 3, init=first, max_iter=20)
    assert second.history[0] <= first.residual + 1e-12


@pytest.mark.parametrize("fixed", [(0,), (1,), (2,), (0, 2), (-1,)])
def test_fixed_modes_stay_bitwise_fixed(fixed):
    tensor, factors = planted(7, (9, 8, 7), 3, noise=0.1)
    weights = np.array([1.0, -2.0, 0.5])
    result = als(tensor, 3, init=(weights, factors), fixed_modes=fixed, max_iter=30)
    for mode in fixed:
        np.testing.assert_array_equal(result.factors[mode], factors[mode])
    assert result.residual == pytest.approx(relative_error(result, tensor), rel=1e-9)
    assert np.all(np.diff(result.history) <= 1e-12)


def test_last_mode_alone_can_be_projected_onto_fixed_ones():
    tensor, factors = planted(8, (9, 8, 7), 3)
    init = (None, [factors[0], factors[1], np.ones((7, 3))])
    result = als(tensor, 3, init=init, fixed_modes=(0, 1), max_iter=3)
    assert relative_error(result, tensor) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_nonnegative_components_are_recovered(seed):
    rng = np.random.default_rng(seed)
    factors = [np.maximum(rng.standard_normal((d, 4)), 0) + 0.01 for d in (15, 14, 13)]
    tensor = compose(factors)
    result = decompose(tensor, 4, nonnegative=True, random_state=seed, tol=1e-12, max_iter=3000)
    assert min(f.min() for f in result.factors) >= 0
    assert result.weights.min() >= 0
    assert worst_match(result, factors) > 0.999
    assert np.all(np.diff(result.history) <= 1e-12)


def test_nonnegative_fit_of_negative_data_meets_its_optimality_conditions():
    tensor, _ = planted(9, (8, 7, 6), 3, noise=0.5)
    result = als(tensor, 2, nonnegative=True, max_iter=5000, tol=1e-14)
    assert result.status is Status.CONVERGED
    factors = [np.asarray(f) for f in result.factors]
    factors[0] = factors[0] * np.asarray(result.weights)
    for mode, pattern in enumerate(["abc,br,cr->ar", "abc,ar,cr->br", "abc,ar,br->cr"]):
        others = [f for m, f in enumerate(factors) if m != mode]
        gradient = factors[mode] @ np.prod([f.T @ f for f in others], axis=0)
        gradient = gradient - np.einsum(pattern, tensor, *others)
        scale = np.abs(np.einsum(pattern, tensor, *others)).max()
        inside = factors[mode] > 1e-6 * factors[mode].max()
        assert np.abs(gradient[inside]).max(initial=0.0) < 1e-3 * scale
        assert gradient[~inside].min(initial=0.0) > -1e-3 * scale


def test_nonnegative_update_never_raises_the_loss():
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((4, 30))
    gamma, right = basis @ basis.T, basis @ rng.standard_normal((30, 6))
    before = rng.random((4, 6))
    after = nonnegative_rows(gamma, right, before)

    def loss(x):
        return np.vdot(x, gamma @ x) - 2 * np.vdot(x, right)

    assert loss(after) < loss(before)
    assert after.min() >= 0


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(1, 4),
    st.sampled_from([np.float64, np.complex128]),
    st.integers(0, 10),
)
@settings(max_examples=40, deadline=None)
def test_products_are_mttkrps_in_any_order_of_modes(shape, rank, dtype, seed):
    tensor, _ = planted(seed, tuple(shape), 2, dtype=dtype)
    rng = np.random.default_rng(seed)
    factors = [f.T.copy() for f in planted(seed + 1, tuple(shape), rank, dtype=dtype)[1]]
    products = DenseProblem(np.ascontiguousarray(tensor)).products(factors)
    for mode in rng.permutation(len(shape)):
        letters = "abcde"[: len(shape)]
        others = [m for m in range(len(shape)) if m != mode]
        pattern = ",".join([letters, *(f"r{letters[m]}" for m in others)])
        expected = np.einsum(
            f"{pattern}->r{letters[mode]}" if others else f"{letters}->{letters}",
            tensor,
            *(factors[m].conj() for m in others),
        )
        np.testing.assert_allclose(
            products.mttkrp(mode), np.broadcast_to(expected, (rank, shape[mode])), atol=1e-10
        )
        factors[mode] = factors[mode] * 1.5
        products.replace(mode, factors[mode])


def test_small_products_agree_with_einsum():
    rng = np.random.default_rng(0)
    partial = rng.standard_normal((3, 4, 5, 6))
    rows = [rng.standard_normal((3, d)) for d in (4, 5, 6)]
    expected = np.einsum("rabc,ra,rc->rb", partial, rows[0], rows[2])
    np.testing.assert_allclose(contract_rows(partial, rows, 1), expected)
    assert squared_norm(np.ones((300, 300), dtype=np.float32)) == 90000.0


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tensors_are_fitted(dtype):
    tensor, factors = planted(10, (9, 8, 7), 3, dtype=dtype)
    result = als(tensor, 3, max_iter=2000, tol=1e-13)
    tolerance = 1e-3 if dtype == np.complex64 else 1e-6
    assert relative_error(result, tensor) < tolerance
    assert result.weights.dtype == dtype
    assert worst_match(result, factors) > 1 - 10 * tolerance


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"tol": -1.0}, "tol"),
        ({"tol": float("nan")}, "tol"),
        ({"ridge": -0.1}, "ridge"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2.5}, "max_iter"),
        ({"target": -0.5}, "target"),
        ({"start": "warm"}, "start"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(InvalidInputError, match=message):
        AlternatingLeastSquares(**settings_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init": (None, [np.ones((4, 2))] * 3)}, "rank 2"),
        ({"init": (None, [np.ones((5, 3))] * 3)}, "shape"),
        ({"init": "svd"}, "init"),
        ({"init": (None, [np.full((4, 3), np.nan)] * 3)}, "init.factors"),
        ({"fixed_modes": (0,)}, "needs init"),
        ({"fixed_modes": (3,), "init": (None, [np.ones((4, 3))] * 3)}, "out of range"),
        ({"fixed_modes": (0, 1, 2), "init": (None, [np.ones((4, 3))] * 3)}, "leave one"),
        (
            {"fixed_modes": (0,), "nonnegative": True, "init": (None, [-np.ones((4, 3))] * 3)},
            "negative entries",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        decompose(np.ones((4, 4, 4)), 3, algorithm=AlternatingLeastSquares(), **arguments)
