import numpy as np
import pytest

from latensor.decomposition import AlternatingLeastSquares, Automatic, Status, decompose
from latensor.decomposition.auto import automatic, complete
from latensor.decomposition.optimize.masked import observe
from latensor.decomposition.optimize.sweeps import Sweeps
from latensor.decomposition.setup import as_tensor
from latensor.exceptions import ConvergenceWarning, InvalidInputError
from latensor.tensors import SparseTensor

from .planted import compose, planted, relative_error


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shape", "fraction"), [((20, 18, 16), 0.9), ((20, 18, 16), 0.3), ((9, 8, 7, 6), 0.4)]
)
def test_hidden_entries_are_recovered_from_the_observed_ones(seed, shape, fraction):
    tensor, _ = planted(seed, shape, 3)
    mask = np.random.default_rng(seed).random(shape) < fraction
    result = decompose(np.where(mask, tensor, np.nan), 3, mask=mask, random_state=seed, tol=1e-12)
    assert relative_error(result, tensor) < 1e-8
    assert result.residual < 1e-8


def test_hidden_values_do_not_matter():
    tensor, _ = planted(1, (9, 8, 7), 2, noise=0.2)
    mask = np.random.default_rng(0).random(tensor.shape) < 0.7
    given = np.where(mask, tensor, 1e30)
    given.setflags(write=False)
    mask.setflags(write=False)
    one = decompose(given, 2, mask=mask, random_state=0)
    other = decompose(np.where(mask, tensor, np.inf), 2, mask=mask, random_state=0)
    np.testing.assert_array_equal(one.weights, other.weights)


def test_residual_counts_observed_entries_only():
    tensor, _ = planted(2, (9, 8, 7), 2, noise=0.3)
    mask = np.random.default_rng(0).random(tensor.shape) < 0.6
    result = decompose(tensor, 2, mask=mask, random_state=0)
    model = compose([np.asarray(f) for f in result.factors], np.asarray(result.weights))
    expected = np.linalg.norm((tensor - model)[mask]) / np.linalg.norm(tensor[mask])
    assert result.residual == pytest.approx(expected, rel=1e-9)
    assert np.all(np.diff(result.history) <= 1e-12)


def test_a_mask_of_ones_changes_nothing():
    tensor, _ = planted(3, (9, 8, 7), 3, noise=0.3)
    masked = decompose(tensor, 3, mask=np.ones(tensor.shape, dtype=bool), random_state=0)
    plain = decompose(tensor, 3, random_state=0)
    assert masked.residual == pytest.approx(plain.residual, rel=1e-6)


def test_fixed_modes_ridge_and_signs_hold_under_a_mask():
    rng = np.random.default_rng(4)
    factors = [rng.random((d, 2)) for d in (9, 8, 7)]
    tensor = compose(factors) + 0.01 * rng.standard_normal((9, 8, 7))
    mask = rng.random(tensor.shape) < 0.7
    fixed = decompose(tensor, 2, mask=mask, init=(None, factors), fixed_modes=(1,))
    np.testing.assert_array_equal(fixed.factors[1], factors[1])
    positive = decompose(tensor - 0.2, 3, mask=mask, nonnegative=True, random_state=0)
    assert min(f.min() for f in positive.factors) >= 0
    penalized = decompose(tensor, 2, mask=mask, ridge=1.0, random_state=0)
    free = decompose(tensor, 2, mask=mask, random_state=0)
    assert penalized.residual > free.residual


def test_row_equations_are_those_of_the_observed_entries():
    rng = np.random.default_rng(5)
    tensor = rng.standard_normal((4, 5, 3))
    mask = rng.random(tensor.shape) < 0.6
    mask[:, 0, 0] = mask[0, :, 0] = mask[0, 0, :] = True
    observed = observe(as_tensor(tensor), mask)
    rows = [rng.standard_normal((2, d)) for d in tensor.shape]
    products = observed.products(rows)
    matrices, right = observed.gamma(products, (), 1), products.mttkrp(1)
    for j in range(5):
        design = np.array([rows[0][:, a] * rows[2][:, c] for a, c in np.argwhere(mask[:, j])])
        np.testing.assert_allclose(matrices[j], design.T @ design, atol=1e-12)
        np.testing.assert_allclose(right[:, j], design.T @ tensor[:, j][mask[:, j]], atol=1e-12)
    point = Sweeps(observed).start(rows)
    rest = (tensor - np.einsum("ra,rb,rc->abc", *rows))[mask]
    assert point.loss == pytest.approx(rest @ rest)


def test_sparse_tensor_and_sparse_mask_stay_sparse():
    tensor, _ = planted(6, (20, 18, 16), 3)
    mask = np.random.default_rng(6).random(tensor.shape) < 0.3
    coordinates = np.argwhere(mask)
    observed = SparseTensor(coordinates, tensor[mask], tensor.shape)
    pattern = SparseTensor(coordinates, np.ones(len(coordinates)), tensor.shape)
    result = decompose(observed, 3, mask=pattern, random_state=0, tol=1e-12)
    assert relative_error(result, tensor) < 1e-8


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_hidden_slice_is_refused_by_name(mode):
    mask = np.ones((4, 5, 6), dtype=bool)
    np.moveaxis(mask, mode, 0)[3] = False
    with pytest.raises(InvalidInputError, match=f"slice 3 of mode {mode}"):
        decompose(np.ones((4, 5, 6)), 2, mask=mask)


@pytest.mark.parametrize(
    ("tensor", "mask", "message"),
    [
        (np.ones((3, 3, 3)), np.ones((3, 3), dtype=bool), "shape"),
        (np.ones((3, 3, 3)), np.full((3, 3, 3), 0.5), "truth values"),
        (np.ones((3, 3, 3), dtype=complex), np.ones((3, 3, 3), dtype=bool), "complex"),
        (
            SparseTensor(np.zeros((1, 3), dtype=int), [1.0], (2, 2, 2)),
            np.ones((2, 2, 2), dtype=bool),
            "SparseTensor as mask",
        ),
    ],
)
def test_bad_masks_are_refused(tensor, mask, message):
    with pytest.raises(InvalidInputError, match=message):
        decompose(tensor, 2, mask=mask, algorithm=AlternatingLeastSquares())


def test_nonfinite_observed_entries_are_refused_with_their_position():
    tensor = np.ones((3, 4, 5))
    tensor[1, 2, 3] = np.nan
    mask = np.ones(tensor.shape, dtype=bool)
    with pytest.raises(InvalidInputError, match=r"\(1, 2, 3\)"):
        decompose(tensor, 2, mask=mask)
    mask[1, 2, 3] = False
    assert decompose(tensor, 2, mask=mask, random_state=0).residual < 1e-10


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_weights_do_not_run_away_where_no_best_fit_exists(seed, monkeypatch):
    # Of typical rank five: rank four comes ever nearer with components that grow and cancel.
    tensor = np.random.default_rng(seed).standard_normal((5, 5, 2))
    mask = np.ones(tensor.shape, dtype=bool)
    mask[0, 0, 0] = False
    norm = np.linalg.norm(tensor[mask])
    result = decompose(tensor, 4, mask=mask, random_state=seed)
    monkeypatch.setattr(automatic, "WILD", np.inf)
    free = decompose(tensor, 4, mask=mask, random_state=seed)
    assert np.abs(free.weights).max() > 10 * norm
    assert np.abs(result.weights).max() < 0.7 * np.abs(free.weights).max()
    assert np.abs(result.weights).max() < 12 * norm
    assert result.residual <= free.residual * (1 + 1e-3)


@pytest.mark.slow
def test_tolerances_act_on_masked_fits_and_no_second_start_is_asked_for_without_a_search():
    rng = np.random.default_rng(8)
    tensor = compose([rng.standard_normal((d, 2)) for d in (9, 8, 7)])
    tensor = tensor + 0.5 * rng.standard_normal(tensor.shape)
    mask = rng.random(tensor.shape) < 0.8
    loose, tight = (decompose(tensor, 3, mask=mask, tol=tol) for tol in (1e-2, 1e-9))
    assert loose.n_iter < tight.n_iter
    one = decompose(tensor, 3, mask=mask, algorithm=Automatic(thorough=False))
    assert one.status is not Status.UNCONFIRMED
    assert one.residual == pytest.approx(tight.residual, rel=0.05)


def test_noise_that_no_start_predicts_is_not_searched_to_the_end(monkeypatch):
    begin, drawn = complete.observed_start, []
    monkeypatch.setattr(complete, "observed_start", lambda *given: drawn.append(1) or begin(*given))
    rng = np.random.default_rng(201)
    tensor = rng.standard_normal((10, 11, 12))
    with pytest.warns(ConvergenceWarning):
        found = decompose(tensor, 3, mask=rng.random(tensor.shape) < 0.8)
    assert found.held_out_error >= 1.0
    assert found.status is Status.UNCONFIRMED
    assert len(drawn) < complete.STARTS
