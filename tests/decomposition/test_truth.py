"""What results say of themselves is true: statuses, residuals, options, at every scale."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latensor as lt
from latensor.decomposition import GaussNewton, PowerMethod, Status, decompose
from latensor.decomposition.auto.complete import complete_entries, split
from latensor.decomposition.auto.constrained import Constraints
from latensor.decomposition.auto.core import Fit
from latensor.decomposition.decompose import ALGORITHMS
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import CONVERGED_STEPS, Monitor
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt
from latensor.decomposition.optimize.masked import observe
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.optimize.sweeps import Sweeps, balanced
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    nonnegative_modes,
    starting_factors,
)
from latensor.exceptions import ConvergenceWarning, InvalidInputError, NotIdentifiableError

from .planted import compose, planted, relative_error


def gain_of_further_steps(tensor, result, mask=None, ridge=0.0, nonnegative=(), **settings):
    """The fraction of the loss that Gauss-Newton steps, or ten times as many sweeps, take off."""
    data = as_tensor(tensor)
    problem = as_problem(data) if mask is None else observe(data, mask)
    signed = nonnegative_modes(nonnegative, len(problem.shape))
    signs = min(set(range(len(problem.shape))) - set(signed), default=0)
    rows = balanced(starting_factors(result, problem.shape, result.rank, signs))
    if signed:
        sweeps = Sweeps(problem, None, ridge, signed)
        point = sweeps.start(rows)
        before = point.loss
        for _ in range(10 * CONVERGED_STEPS):
            point = sweeps.extrapolated(point)
        return (before - point.loss) / before
    model = FreeFactors(problem, ridge)
    walk = LevenbergMarquardt(model, **settings)
    point = walk.start(model.stack(rows))
    before = point.loss
    for _ in range(CONVERGED_STEPS):
        point = walk.step(point)
    return (before - point.loss) / before


@pytest.mark.parametrize(("d", "rank"), [(6, 4), (7, 8), (8, 6), (9, 3)])
@pytest.mark.parametrize("algorithm", ["auto", "als", "gauss_newton"])
def test_converged_means_that_further_steps_gain_less_than_tol(algorithm, d, rank):
    for seed in range(2):
        tensor = np.random.default_rng(seed).standard_normal((d, d, d))
        result = decompose(tensor, rank, algorithm=algorithm, tol=1e-7)
        if result.status is Status.CONVERGED:
            assert gain_of_further_steps(tensor, result) < CONVERGED_STEPS * 1e-7


# Noise whose fits have components that grow and cancel: gains lie where damping hides them, and
# 50 steps from what an ordinary test calls the end gain up to 2e-5.
@pytest.mark.parametrize("seed", [2006, 2038, 2044, 2084])
def test_converged_is_true_where_components_grow_and_cancel(seed):
    rng = np.random.default_rng(seed)
    shape, rank = tuple(int(d) for d in rng.integers(5, 11, 3)), int(rng.integers(2, 9))
    tensor = rng.standard_normal(shape)
    result = decompose(tensor, rank, tol=1e-7)
    gains = [
        gain_of_further_steps(tensor, result, first=damping) for damping in (1e-3, 1e-6, 1e-12)
    ]
    assert result.status is not Status.CONVERGED or max(gains) < CONVERGED_STEPS * 1e-7
    assert "no best fit exists" in str(Status.MAX_ITER)


def test_residuals_are_stated_exactly_where_components_cancel():
    rng = np.random.default_rng(0)
    array = rng.standard_normal((3, 3, 6, 2))
    grown = rng.standard_normal((3, 2))
    factors = [
        grown[:, [0, 0]] + 1e-7 * grown[:, ::-1],
        *(rng.standard_normal((d, 2)) for d in (3, 6, 2)),
    ]
    start = lt.CPTensor(np.array([1e7, -1e7]), tuple(f[:, [0, 0]] + 1e-7 * f for f in factors))
    for tensor in (array, lt.SparseTensor.from_dense(array), lt.TuckerTensor(array, (None,) * 4)):
        found = decompose(tensor, 2, algorithm="als", init=start, max_iter=1, fixed_modes=(0, 1))
        exact = np.linalg.norm(array - found.tensor.to_dense()) / np.linalg.norm(array)
        assert found.residual == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize(
    "options", [{"symmetric": True}, {"algorithm": "als"}, {"algorithm": "gauss_newton"}]
)
def test_residuals_of_nearly_exact_fits_of_factored_tensors_are_stated_exactly(options):
    rng = np.random.default_rng(1)
    array = lt.CPTensor(None, (rng.standard_normal((4, 2)),) * 3).to_dense()
    result = decompose(lt.TuckerTensor(array, (None,) * 3), 2, **options)
    recomputed = np.linalg.norm(array - result.tensor.to_dense()) / np.linalg.norm(array)
    assert result.residual == pytest.approx(recomputed, abs=1e-13)


def test_residuals_in_single_precision_are_those_of_the_numbers_returned():
    array = np.random.default_rng(0).standard_normal((7, 8, 9)).astype(np.float32)
    result = decompose(array, 8)
    assert np.abs(result.weights).max() > 100 * np.linalg.norm(array)  # components cancel
    model = lt.CPTensor(*(_doubled(part) for part in result.tensor)).to_dense()
    recomputed = np.linalg.norm(array - model) / np.linalg.norm(array.astype(np.float64))
    assert result.residual == pytest.approx(recomputed, rel=1e-10)


def _doubled(part):
    if isinstance(part, tuple):
        return tuple(_doubled(factor) for factor in part)
    return np.asarray(part, dtype=np.float64)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("nonnegative", [True, (0, 2), (1,), False])
def test_every_pair_of_options_acts(nonnegative, mask):
    rng = np.random.default_rng(3)
    tensor = compose([rng.standard_normal((d, 2)) for d in (7, 6, 5)])
    options = {"nonnegative": nonnegative}
    if mask:
        options["mask"] = rng.random(tensor.shape) < 0.8
    free, bound = (decompose(tensor, 2, ridge=ridge, **options) for ridge in (0.0, 1.0))
    signed = {True: (0, 1, 2), False: ()}.get(nonnegative, nonnegative)
    for result in (free, bound):
        assert all((result.factors[mode] >= 0).all() for mode in signed)
    assert np.abs(bound.weights).sum() < 0.99 * np.abs(free.weights).sum()
    if signed == (1,):
        assert (free.factors[0] < 0).any()


@pytest.mark.parametrize("symmetric", [None, True])
@pytest.mark.parametrize(("order", "rank"), [(5, 9), (5, 7), (6, 9)])
def test_ranks_above_the_dimensions_of_high_orders_are_exact(order, rank, symmetric):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        factor = rng.standard_normal((4, rank))
        tensor = compose([factor] * order, rng.uniform(0.5, 2, rank))
        assert decompose(tensor, rank, symmetric=symmetric).residual < 1e-10


@pytest.mark.parametrize("algorithm", [PowerMethod(), "joint_diagonalization", "symmetric_als"])
def test_symmetric_weights_are_positive_at_odd_order(algorithm):
    for seed in range(3):
        basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 5)))[0]
        tensor = compose([basis] * 3, [3.0, 2.0, 1.5, 1.0, 0.5])
        result = decompose(tensor, 5, algorithm=algorithm)
        np.testing.assert_allclose(result.weights, [3.0, 2.0, 1.5, 1.0, 0.5], rtol=1e-8)
        np.testing.assert_allclose(result.factors[0], basis, atol=1e-8)


def kinds(tensor, cp):
    samples = np.random.default_rng(5).standard_normal((9, 4))
    return {
        "dense": (lambda c: tensor * c),
        "sparse": (lambda c: lt.SparseTensor.from_dense(tensor * c)),
        "cp": (lambda c: lt.CPTensor(cp.weights * c, cp.factors)),
        "tucker": (lambda c: lt.TuckerTensor(tensor * c, (None, None, None))),
        "moment": (lambda c: lt.MomentTensor(samples, np.full(9, c / 9))),
    }


@settings(max_examples=25, deadline=None)
@given(
    exponent=st.integers(-300, 300),
    kind=st.sampled_from(["dense", "sparse", "cp", "tucker", "moment"]),
)
def test_components_scale_with_the_tensor(exponent, kind):
    tensor, factors = planted(2, (6, 5, 4), 2, noise=0.1)
    make = kinds(tensor, lt.CPTensor(np.array([2.0, 1.0]), tuple(factors)))[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        one, other = (decompose(make(c), 2) for c in (1.0, 10.0**exponent))
    np.testing.assert_allclose(other.weights / 10.0**exponent, one.weights, rtol=1e-4)
    assert other.residual == pytest.approx(one.residual, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_sparse_parts_trains_and_tucker_forms_of_any_kind_scale_too(scale):
    tensor, _ = planted(2, (4, 5, 3), 2, noise=0.1)
    tensor /= np.abs(tensor).max()
    fits = [
        lambda c: decompose(tensor * c, 1, sparsity=3),
        lambda c: decompose(lt.tensor_train(tensor * c, 3), 2),
        lambda c: lt.tucker(lt.SparseTensor.from_dense(tensor * c), 2, random_state=0),
    ]
    for fit in fits:
        one, other = fit(1.0), fit(scale)
        assert other.residual == pytest.approx(one.residual, abs=1e-6)
        np.testing.assert_allclose(
            np.asarray(other.tensor.to_dense()) / scale, one.tensor.to_dense(), atol=1e-4
        )
    opposed = lt.CPTensor(None, (np.eye(2) * 1e-200, np.eye(2) * 1e200, np.eye(2) * scale))
    train = lt.tensor_train(opposed, 2).to_dense() / scale
    np.testing.assert_allclose(train, np.eye(2)[:, :, None] * np.eye(2), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_starts_and_fixed_factors_of_any_size_lead_to_the_same_fit(scale):
    tensor, factors = planted(2, (6, 5, 4), 2, noise=0.1)
    options = [{"algorithm": a} for a in ("auto", "als", "gauss_newton")]
    options += [{"fixed_modes": (1,)}, {"fixed_modes": (1,), "algorithm": "als"}]
    for extra in options:
        one = decompose(tensor, 2, init=(None, factors), **extra)
        other = decompose(tensor * scale, 2, init=(None, factors), **extra)
        assert other.residual == pytest.approx(one.residual, rel=1e-6), extra
        np.testing.assert_allclose(other.weights / scale, one.weights, rtol=1e-3)
    mixed = [factors[0], factors[1] * scale ** (1 / 30), factors[2]]
    for algorithm in ("auto", "als"):
        fixed = decompose(tensor, 2, init=(None, mixed), fixed_modes=(1,), algorithm=algorithm)
        assert fixed.residual == pytest.approx(one.residual, rel=1e-6)


def test_other_libraries_ridges_and_callbacks_scale_too():
    torch = pytest.importorskip("torch")
    tensor, _ = planted(2, (6, 5, 4), 2, noise=0.1)
    plain = decompose(tensor, 2)
    scaled = decompose(torch.tensor(tensor) * 1e200, 2)
    np.testing.assert_allclose(np.asarray(scaled.weights) / 1e200, plain.weights, rtol=1e-5)
    told = {1.0: [], 2.0**500: []}
    for scale, seen in told.items():
        decompose(tensor * scale, 2, callback=lambda s, seen=seen: seen.append(s.tensor.weights))
    once, scaled_up = (np.array(seen) / scale for scale, seen in told.items())
    np.testing.assert_allclose(scaled_up, once, rtol=1e-12)
    # A ridge of 1 is nothing beside 1e80 times the tensor.
    assert decompose(tensor * 1e80, 2, ridge=1.0).residual == pytest.approx(
        plain.residual, rel=1e-6
    )
    for order in (2, 3):
        whole = tensor if order == 3 else tensor[0]
        one = decompose(whole, 2, ridge=0.1)
        other = decompose(whole * 2.0**500, 2, ridge=0.1 * 2.0 ** (500 * (2 - 2 / order)))
        np.testing.assert_allclose(other.weights / 2.0**500, one.weights, rtol=1e-5)
    with pytest.raises(InvalidInputError, match="leave the range"):
        decompose(np.full((6, 6, 6), 1.7e308), 1)


def test_names_defaults_and_objects_of_other_libraries():
    tensor, factors = planted(1, (7, 6, 5), 2)
    np.testing.assert_array_equal(decompose(tensor, 2).weights, decompose(tensor, 2).weights)
    start = lt.CPTensor(None, tuple(factors))
    for init in (start.to_pyttb(), start.to_tensorly()):
        for algorithm in ("auto", "als", "gauss_newton"):
            assert decompose(tensor, 2, algorithm=algorithm, init=init).residual < 1e-8
    square = compose(
        [np.linalg.qr(np.random.default_rng(s).standard_normal((5, 2)))[0] for s in range(3)]
    )
    assert decompose(square, 2, algorithm="power_method", symmetric=False).residual < 1e-8


def test_zero_tensors_and_vectors_are_no_numerical_errors():
    assert decompose(np.zeros((3, 3, 3)), 2, algorithm=GaussNewton()).residual == 0.0
    torch = pytest.importorskip("torch")
    assert decompose(torch.arange(4.0), 1).residual < 1e-6


@pytest.mark.parametrize("fraction", [0.2, 0.15, 0.12])
def test_exact_tensors_are_completed_from_few_entries(fraction):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tensor = compose([rng.standard_normal((d, 3)) for d in (15, 16, 17)])
        mask = rng.random(tensor.shape) < fraction
        result = decompose(np.where(mask, tensor, np.nan), 3, mask=mask, random_state=seed)
        assert relative_error(result, tensor) < 1e-6


def test_small_tensors_are_completed_where_annealed_starts_agree_on_another_optimum():
    rng = np.random.default_rng(2)
    truth = compose([rng.random((d, 3)) for d in (3, 2, 3, 3, 2)])
    mask = rng.random(truth.shape) < 0.7
    found = decompose(truth, 3, mask=mask)
    assert found.status is Status.CONVERGED
    assert relative_error(found, truth) < 1e-8


def test_too_few_observed_entries_are_refused_with_how_many_are_needed():
    mask = np.zeros((5, 5, 5), dtype=bool)
    mask[np.arange(5), np.arange(5), np.arange(5)] = True
    with pytest.raises(
        NotIdentifiableError, match=r"5 entries were observed.* at least 26 entries"
    ):
        decompose(np.ones((5, 5, 5)), 2, mask=mask)


def test_starts_that_do_not_agree_are_told():
    rng = np.random.default_rng(0)
    tensor = rng.standard_normal((6, 6, 6))
    mask = rng.random(tensor.shape) < 0.4
    with pytest.warns(ConvergenceWarning, match="may be wrong where nothing was observed"):
        assert decompose(tensor, 4, mask=mask).status is Status.UNCONFIRMED


def test_unseen_entries_contradict_a_fit_that_describes_only_what_it_saw():
    rng = np.random.default_rng(1)
    truth, wrong = ([rng.standard_normal((2, d)) for d in (9, 8, 7)] for _ in range(2))
    tensor = np.einsum("ra,rb,rc->abc", *truth)
    observed = observe(as_tensor(tensor), rng.random(tensor.shape) < 0.5)
    part, rest = split(observed, 44, rng)
    assert len(part.entries) + len(rest.entries) == len(observed.entries)

    def descend(entries, rows):
        """The truth for all entries, with noise; something else for a part of them."""
        factors = truth if entries is observed else wrong
        noisy = tuple(f + 1e-3 * rng.standard_normal(f.shape) for f in factors)
        return Fit(noisy, observed.explicit_loss(noisy), Status.CONVERGED)

    monitor = Monitor(observed.squared_norm)
    found = complete_entries(observed, 2, Constraints(), rng, descend, lambda _: wrong, monitor)
    assert found.best.contradicted
    assert found.best.held_out_error > 0.5
    assert found.agreements == 0


def test_parallel_components_under_a_penalty_are_a_saddle():
    rng = np.random.default_rng(0)
    rows = [np.abs(rng.standard_normal((1, d))) for d in (6, 5, 4)]
    problem = as_problem(as_tensor(np.einsum("ra,rb,rc->abc", *rows)))
    sweeps = Sweeps(problem, None, 0.1)
    point = sweeps.start([np.tile(f, (2, 1)) / 2 ** (1 / 3) for f in balanced(rows)])
    for _ in range(10):  # later rounding leads away
        point = sweeps.sweep(point)
    held = {"ridge": 0.1}
    assert not has_converged(problem, point.factors, 1e-7, **held)
    alone = sweeps.start([f[:1] * 2 ** (1 / 3) for f in point.factors])
    for _ in range(100):
        alone = sweeps.sweep(alone)
    assert alone.loss < point.loss
    assert has_converged(problem, alone.factors, 1e-7, **held)


@pytest.mark.parametrize(("order", "d", "rank"), [(4, 4, 6), (5, 4, 9), (6, 4, 6)])
@pytest.mark.parametrize("symmetric", [None, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_exact_fit_has_converged(order, d, rank, symmetric, dtype):
    rng = np.random.default_rng(order)
    factor, weights = rng.standard_normal((d, rank)), rng.uniform(0.5, 2.0, rank)
    tensor = lt.CPTensor(weights, (factor,) * order).to_dense().astype(dtype)
    result = decompose(tensor, rank, symmetric=symmetric)
    assert result.residual < (1e-10 if dtype == np.float64 else 2e-6)
    assert result.status is Status.CONVERGED


@pytest.mark.parametrize("algorithm", ["jennrich", "symmetric_spectral"])
def test_converged_is_said_of_the_tensor_and_not_of_its_core(algorithm):
    rng = np.random.default_rng(0)
    for _ in range(4):
        factor = rng.standard_normal((6, 4))
        array = lt.CPTensor(None, (factor,) * 3).to_dense()
        result = decompose(array, 3, algorithm=algorithm)  # a core of 3 x 3 x 3 leaves some out
        if result.status is Status.CONVERGED:
            tol = ALGORITHMS[algorithm]().tol
            assert gain_of_further_steps(array, result) < CONVERGED_STEPS * tol
