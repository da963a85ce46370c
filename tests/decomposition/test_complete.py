"""`complete`: exact where enough entries were observed, and honest where they were not."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse

import latensor as lt
from latensor.decomposition import Status
from latensor.decomposition.optimize.masked import observe_entries, sufficient_entries
from latensor.exceptions import ConvergenceWarning, InvalidInputError, NotIdentifiableError


def sampled(shape, rank, n, seed, noise=0.0, scale=1.0):
    """A planted CP tensor, and `n` of its entries as coordinates and values."""
    rng = np.random.default_rng(seed)
    truth = lt.CPTensor(scale * np.ones(rank), [rng.standard_normal((d, rank)) for d in shape])
    flat = rng.choice(int(np.prod(shape)), n, replace=False)
    coordinates = np.stack(np.unravel_index(flat, shape), axis=1)
    values = truth.at(coordinates)
    values = values + noise * values.std() * rng.standard_normal(n)
    return truth, coordinates, values


def error_everywhere(found, truth, seed=0):
    rng = np.random.default_rng(seed + 1000)
    rows = np.stack([rng.integers(0, d, 5000) for d in truth.shape], axis=1)
    expected = truth.at(rows)
    largest = np.abs(expected).max()
    return np.linalg.norm((found.tensor.at(rows) - expected) / largest) / np.linalg.norm(
        expected / largest
    )


@pytest.mark.parametrize(
    ("shape", "rank", "n"),
    [
        ((40, 40, 40), 3, 2000),  # 2.6 d^1.5 k, 3 % of the entries
        ((100, 100, 100), 5, 12500),
        ((15, 16, 17), 3, 612),
        ((12, 10, 8, 9), 2, 1200),
        ((60, 50), 2, 1500),
        ((200, 30, 4), 2, 4000),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_few_entries_give_the_whole_tensor(shape, rank, n, seed):
    truth, coordinates, values = sampled(shape, rank, n, seed)
    found = lt.complete((coordinates, values, shape), rank, random_state=seed)
    assert error_everywhere(found, truth) < 1e-6
    assert found.held_out_error < 1e-6
    assert found.status is Status.CONVERGED


# Draws in which every start from the leading directions misses the same component.
@pytest.mark.parametrize(("ratio", "seed"), [(2.5, 1), (2.5, 17), (1.5, 1), (1.5, 3)])
def test_a_component_that_no_start_finds_is_found_in_what_the_others_leave(ratio, seed):
    shape, rank = (50, 50, 50), 3
    truth, coordinates, values = sampled(shape, rank, int(ratio * 50**1.5 * rank), seed)
    found = lt.complete((coordinates, values, shape), rank)
    assert error_everywhere(found, truth) < 1e-6
    assert found.status is Status.CONVERGED


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_held_out_error_is_the_error_where_nothing_was_observed(noise):
    truth, coordinates, values = sampled((40, 40, 40), 3, 6000, 0, noise)
    found = lt.complete((coordinates, values, (40, 40, 40)), 3)
    # Of noisy entries: the noise itself, and what it does to 354 parameters.
    assert found.held_out_error == pytest.approx(noise, rel=0.25)
    assert error_everywhere(found, truth) < 0.4 * noise
    assert "Missing entries" in str(found.certificate)


@pytest.mark.parametrize("fraction", [0.06, 0.12])
@pytest.mark.parametrize("seed", range(3))
def test_no_failure_is_silent(fraction, seed):
    shape = (15, 16, 17)
    truth, coordinates, values = sampled(shape, 3, int(fraction * 4080), seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = lt.complete((coordinates, values, shape), 3, random_state=seed)
    if error_everywhere(found, truth) > 1e-6:
        assert found.status is Status.UNCONFIRMED
        assert found.certificate.verdict == "unstable"
        text = str(next(w.message for w in caught if w.category is ConvergenceWarning))
        assert f"{sufficient_entries(shape, 3):,} entries would do" in text


@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize("shape", [(5, 4, 4, 3), (8, 7, 6)])
def test_small_noisy_tensors_take_few_starts(shape, noise, monkeypatch):
    """Three fits that agree, each from the first start: ten entries left out tell little."""
    from latensor.decomposition.auto import complete

    starts, drawn = [], complete.observed_start
    monkeypatch.setattr(
        complete, "observed_start", lambda *given: starts.append(given) or drawn(*given)
    )
    rng = np.random.default_rng(1)
    truth = lt.CPTensor(None, [rng.standard_normal((d, 2)) for d in shape]).to_dense()
    mask = rng.random(shape) < 0.9
    noisy = truth + noise * truth.std() * rng.standard_normal(shape)
    found = lt.decompose(noisy, 2, mask=mask, random_state=0)
    planted = np.linalg.norm((noisy - truth)[mask]) / np.linalg.norm(noisy[mask])
    assert found.residual < planted
    assert found.status is Status.CONVERGED
    assert len(starts) <= 5


def test_arrays_with_nan_masks_and_triples_are_one_mechanism():
    shape = (12, 11, 10)
    _, coordinates, values = sampled(shape, 2, 600, 3)
    dense = np.full(shape, np.nan)
    dense[tuple(coordinates.T)] = values
    triple = lt.complete((coordinates, values, shape), 2)
    by_nan = lt.complete(dense, 2)
    by_mask = lt.complete(np.nan_to_num(dense), 2, mask=~np.isnan(dense))
    masked = lt.complete(np.ma.masked_invalid(dense), 2)
    general = lt.decompose(dense, 2, mask=~np.isnan(dense))
    for other in (by_nan, by_mask, masked, general):
        np.testing.assert_array_equal(other.weights, triple.weights)
        assert other.held_out_error == triple.held_out_error
    shuffled = np.random.default_rng(0).permutation(len(values))
    again = lt.complete((coordinates[shuffled], values[shuffled], shape), 2)
    np.testing.assert_array_equal(again.weights, triple.weights)


def test_zeros_are_values():
    # One component that is zero in half of its entries: as many observed zeros as other values.
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, 1)) for d in (12, 11, 10)]
    factors[0][::2] = 0.0
    truth = lt.CPTensor([1.0], factors)
    coordinates = np.argwhere(rng.random(truth.shape) < 0.3)
    found = lt.complete((coordinates, truth.at(coordinates), truth.shape), 1)
    assert error_everywhere(found, truth) < 1e-8


@pytest.mark.slow
def test_the_rank_is_found_by_entries_left_out():
    truth, coordinates, values = sampled((20, 18, 16), 2, 1500, 5, 0.05)
    found = lt.complete((coordinates, values, truth.shape), "auto")
    assert found.rank == 2
    assert found.selection.rank == 2


@pytest.mark.parametrize("scale", [1e-200, 1e150])
def test_extreme_scales(scale):
    truth, coordinates, values = sampled((15, 14, 13), 2, 900, 1, scale=scale)
    found = lt.complete((coordinates, values, truth.shape), 2)
    assert error_everywhere(found, truth) < 1e-6


def test_single_precision_stays():
    truth, coordinates, values = sampled((15, 14, 13), 2, 900, 1)
    found = lt.complete((coordinates, values.astype(np.float32), truth.shape), 2)
    assert found.weights.dtype == np.float32
    assert error_everywhere(found, truth) < 1e-5


def test_nonnegative_factors_and_a_ridge_hold():
    rng = np.random.default_rng(2)
    truth = lt.CPTensor(np.ones(3), [rng.random((d, 3)) for d in (20, 18, 16)])
    coordinates = np.argwhere(rng.random(truth.shape) < 0.3)
    triple = (coordinates, truth.at(coordinates), truth.shape)
    found = lt.complete(triple, 3, nonnegative=True)
    assert min(f.min() for f in found.factors) >= 0
    assert error_everywhere(found, truth) < 1e-3
    assert lt.complete(triple, 3, ridge=1.0).residual > found.residual


def test_results_can_be_stored_with_what_was_observed(tmp_path):
    truth, coordinates, values = sampled((15, 14, 13), 2, 900, 1, 0.1)
    found = lt.complete((coordinates, values, truth.shape), 2)
    read = lt.load(found.save(tmp_path / "completion.npz"))
    again = pickle.loads(pickle.dumps(found))
    for other in (read, again):
        assert other.held_out_error == found.held_out_error
        assert str(other.certificate) == str(found.certificate)


def test_modes_too_long_for_a_gram_matrix():
    shape = (2000, 20, 20)
    truth, coordinates, values = sampled(shape, 1, 30_000, 2)
    found = lt.complete((coordinates, values, shape), 1)
    assert error_everywhere(found, truth) < 1e-6


SHAPE = (5, 4, 3)
ROWS = np.argwhere(np.ones(SHAPE))
VALUES = np.arange(60.0)


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        ((np.vstack([ROWS, ROWS[:1]]), np.arange(61.0), SHAPE), r"1 rows that occur.*\(0, 0, 0\)"),
        ((ROWS + 1, VALUES, SHAPE), "beyond mode"),
        ((ROWS - 1, VALUES, SHAPE), "negative"),
        ((ROWS, VALUES[:-1], SHAPE), "one number per row"),
        ((ROWS, np.where(VALUES == 7, np.nan, VALUES), SHAPE), "values"),
        ((ROWS, VALUES + 0j, SHAPE), "complex"),
        ((ROWS, VALUES, (5, 4)), "has 2 modes"),
        ((ROWS[ROWS[:, 1] != 2], VALUES[ROWS[:, 1] != 2], SHAPE), "slice 2 of mode 1"),
        ((ROWS.astype(float) + 0.5, VALUES, SHAPE), "whole number"),
        (lt.SparseTensor(ROWS, VALUES, SHAPE), "zeros that were observed"),
        (scipy.sparse.csr_array(np.eye(3)), "zeros that were observed"),
        ("tensor", "triple"),
        (np.full(SHAPE, "x"), "triple"),
        (np.full(SHAPE, 1.0, dtype=object), "triple"),
        (np.full(SHAPE, np.nan), "slice 0 of mode 0"),
    ],
)
def test_bad_input_is_refused_in_words(triple, message):
    with pytest.raises(InvalidInputError, match=message):
        lt.complete(triple, 1)


def test_sparse_arrays_of_pydata_are_refused_in_the_same_words():
    sparse = pytest.importorskip("sparse")
    with pytest.raises(InvalidInputError, match="zeros that were observed"):
        lt.complete(sparse.COO(ROWS.T, VALUES, SHAPE), 1)


def test_masks_beside_a_triple_and_too_few_entries_are_refused():
    with pytest.raises(InvalidInputError, match="mask goes with an array"):
        lt.complete((ROWS, VALUES, SHAPE), 1, mask=np.ones(SHAPE, dtype=bool))
    _, coordinates, values = sampled((30, 30, 30), 5, 400, 0)
    with pytest.raises(NotIdentifiableError, match=r"400 entries were observed.*about 3520"):
        lt.complete((coordinates, values, (30, 30, 30)), 5)


def test_equations_over_entries_agree_with_their_definition():
    rng = np.random.default_rng(0)
    coordinates = np.argwhere(rng.random((4, 5, 3, 2)) < 0.5)
    values = rng.standard_normal(len(coordinates))
    problem = observe_entries(coordinates, values, (4, 5, 3, 2))
    rows, change = ([rng.standard_normal((2, d)) for d in problem.shape] for _ in range(2))
    products = problem.products(rows)
    step = 1e-6
    moved = [[f + sign * step * x for f, x in zip(rows, change, strict=True)] for sign in (1, -1)]
    slope = (problem.model(moved[0]) - problem.model(moved[1])) / (2 * step)
    np.testing.assert_allclose(products.spread(change), slope, atol=1e-8)
    jacobian = np.zeros((len(values), 4, 2, 5))
    for mode in range(4):
        others = [rows[m][:, problem.coordinates[m]] for m in range(4) if m != mode]
        design = np.prod(others, axis=0).T
        jacobian[np.arange(len(values)), mode, :, problem.coordinates[mode]] = design
        matrices, right = products.equations(mode)
        for i in range(problem.shape[mode]):
            part = problem.coordinates[mode] == i
            np.testing.assert_allclose(matrices[i], design[part].T @ design[part], atol=1e-12)
            np.testing.assert_allclose(right[i], design[part].T @ problem.entries[part], atol=1e-12)
        np.testing.assert_allclose(products.gathered(problem.entries, mode), right.T, atol=1e-12)
    jacobian = jacobian.reshape(len(values), -1)
    np.testing.assert_allclose(products.curvature(), np.triu(jacobian.T @ jacobian), atol=1e-12)
