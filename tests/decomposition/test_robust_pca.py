"""Low rank plus gross errors: exact where it can be, told where it cannot."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.linalg import block_diag

import latensor as lt
from latensor.decomposition import Status
from latensor.tensors.tucker import TuckerTensor


def planted(shape, rank, fraction, seed, kind="uniform", noise=0.0):
    """A low-rank matrix or tensor, gross errors and their sum with noise."""
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal((d, rank)) for d in shape]
    if len(shape) == 2:
        low = factors[0] @ factors[1].T
    else:
        low = TuckerTensor(rng.standard_normal((rank,) * len(shape)), factors).to_dense()
    size = 10.0 * np.abs(low).mean()
    drawn = {"uniform": rng.uniform(-size, size, shape), "one-sided": np.full(shape, size),
             "exponential": rng.exponential(size, shape),
             "small": rng.choice([-0.1 * size, 0.1 * size], shape),
             "huge": 1e8 * rng.uniform(-size, size, shape)}[kind]  # fmt: skip
    gross = np.where(rng.random(shape) < fraction, drawn, 0.0)
    return low, gross, low + gross + noise * low.std() * rng.standard_normal(shape)


def error(found, low):
    return np.linalg.norm(found.low_rank.to_dense() - low) / np.linalg.norm(low)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shape", "fraction", "kind", "missing"),
    [
        ((150, 120), 0.05, "uniform", 0.0),
        ((150, 120), 0.3, "uniform", 0.0),
        ((150, 120), 0.1, "one-sided", 0.0),
        ((150, 120), 0.1, "small", 0.0),
        ((150, 120), 0.1, "huge", 0.0),
        ((150, 120), 0.1, "uniform", 0.3),
        ((150, 120), 0.0, "uniform", 0.0),
        ((600, 60), 0.1, "uniform", 0.0),
        ((30, 25, 28), 0.1, "uniform", 0.0),
        ((30, 25, 28), 0.1, "uniform", 0.2),
        ((12, 11, 10, 9), 0.1, "uniform", 0.0),
    ],
)
def test_gross_errors_are_removed_exactly(shape, fraction, kind, missing, seed):
    low, gross, data = planted(shape, 2, fraction, seed, kind)
    observed = np.random.default_rng(seed).random(shape) >= missing
    found = lt.robust_pca(np.where(observed, data, np.nan), 2, mask=observed)
    assert error(found, low) < 1e-8
    assert found.status is Status.CONVERGED
    assert ((found.sparse.to_dense() != 0) == ((gross != 0) & observed)).all()
    np.testing.assert_allclose(
        found.sparse.to_dense(), gross * observed, atol=1e-6 * abs(low).max()
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("fraction", "kind", "missing"),
    [(0.2, "one-sided", 0.0), (0.35, "one-sided", 0.0), (0.35, "one-sided", 0.2),
     (0.35, "exponential", 0.0), (0.45, "one-sided", 0.0)],
)  # fmt: skip
def test_many_errors_of_one_sign(fraction, kind, missing, seed):
    low, _, data = planted((300, 300), 3, fraction, seed, kind)
    found = lt.robust_pca(data, 3, mask=np.random.default_rng(seed).random(low.shape) >= missing)
    assert error(found, low) < 1e-8
    assert found.status is Status.CONVERGED


def test_columns_may_have_errors_of_one_sign_with_different_probabilities():
    rng = np.random.default_rng(0)
    low = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 300))
    hit = rng.random(low.shape) < rng.uniform(0.1, 0.4, 300)
    found = lt.robust_pca(low + hit * 10 * np.abs(low).mean(), 3)
    assert error(found, low) < 1e-8


def test_errors_of_one_sign_and_noise():
    low, _, data = planted((300, 300), 3, 0.35, 0, "one-sided", noise=0.1)
    found = lt.robust_pca(data, 3)
    # Noise times the root of parameters over entries without an error is .0176.
    assert error(found, low) < 0.022
    assert found.status is Status.CONVERGED


@pytest.mark.parametrize(("shape", "given"), [((150, 120), 3), ((150, 120), 6), ((24, 24, 24), 4)])
def test_a_rank_above_the_true_one_is_lowered(shape, given):
    low, _, data = planted(shape, 2, 0.1, 0)
    found = lt.robust_pca(data, given)
    assert error(found, low) < 1e-8
    assert found.rank == (2 if len(shape) == 2 else (2,) * len(shape))


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(150, 120), (24, 26, 28)])
def test_the_rank_is_found(shape, noise, missing):
    low, _, data = planted(shape, 3, 0.08, 1, noise=noise)
    observed = np.random.default_rng(5).random(shape) >= missing
    found = lt.robust_pca(data, mask=observed)
    assert found.rank == (3 if len(shape) == 2 else (3,) * 3)
    assert error(found, low) < (1e-8 if noise == 0 else 0.08)


def test_noise_is_neither_low_rank_nor_sparse():
    low, gross, data = planted((300, 300), 5, 0.1, 0, noise=0.1)
    found = lt.robust_pca(data, 5)
    # The error of 5 directions each: noise times the root of parameters over entries, .018.
    assert error(found, low) < 0.022
    assert found.noise == pytest.approx(0.1 * low.std(), rel=0.15)
    assert ((found.sparse.to_dense() != 0) != (gross != 0)).mean() < 0.01
    assert found.status is Status.CONVERGED


def test_the_error_is_linear_in_small_noise():
    errors = []
    for noise in (1e-4, 1e-3, 1e-2):
        low, _, data = planted((150, 120), 2, 0.1, 3, noise=noise)
        errors.append(error(lt.robust_pca(data, 2), low) / noise)
    assert max(errors) < 1.2 * min(errors)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("shape", [(60, 50), (16, 15, 14)])
@pytest.mark.parametrize("rank", [2, None])
def test_the_answer_scales_with_the_data(scale, shape, rank):
    low, _, data = planted(shape, 2, 0.05, 0)
    one, other = lt.robust_pca(data, rank), lt.robust_pca(data * scale, rank)
    np.testing.assert_allclose(other.low_rank.to_dense() / scale, low, atol=1e-8 * abs(low).max())
    np.testing.assert_allclose(other.sparse.values / scale, one.sparse.values, rtol=1e-8)


def test_single_precision_stays():
    low, _, data = planted((60, 50), 2, 0.05, 0)
    found = lt.robust_pca(data.astype(np.float32), 2)
    assert found.low_rank.weights.dtype == np.float32
    assert found.sparse.dtype == np.float32
    assert error(found, low) < 1e-5
    assert found.status is Status.CONVERGED


@pytest.mark.parametrize("shape", [(60, 50), (16, 15, 14)])
@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries(name, shape):
    library = pytest.importorskip(name)
    low, _, data = planted(shape, 2, 0.05, 0)
    given = library.asarray(data.astype(np.float32))
    found = lt.robust_pca(given, 2, mask=library.ones(shape, dtype=bool))
    assert type(found.low_rank.factors[0]) is type(given)
    assert np.linalg.norm(np.asarray(found.low_rank.to_dense()) - low) < 1e-4 * np.linalg.norm(low)


def test_matrices_come_as_singular_triplets():
    low, _, data = planted((60, 50), 3, 0.05, 0)
    given = data.copy()
    given.flags.writeable = False
    found = lt.robust_pca(given, 3)
    left, right = found.low_rank.factors
    for factor in (left, right):
        np.testing.assert_allclose(factor.T @ factor, np.eye(3), atol=1e-12)
    assert (np.diff(found.low_rank.weights) <= 0).all()
    np.testing.assert_allclose(
        found.low_rank.weights, np.linalg.svd(low, compute_uv=False)[:3], rtol=1e-8
    )
    assert "gross errors" in repr(found)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4, 5)])
@pytest.mark.parametrize("rank", [None, 2])
def test_zero_is_zero(shape, rank):
    with pytest.warns(UserWarning, match="no signal"):
        found = lt.robust_pca(np.zeros(shape), rank)
    assert not found.low_rank.to_dense().any()
    assert found.sparse.nnz == 0


def test_an_answer_that_nothing_confirms_is_told():
    # Many errors of one sign: their mean is a matrix of rank one as strong as the rest.
    _, _, data = planted((60, 60), 5, 0.3, 0, "one-sided")
    with pytest.warns(lt.ConvergenceWarning, match="different ways"):
        assert lt.robust_pca(data, 5).status is Status.UNCONFIRMED


@pytest.mark.filterwarnings("ignore::latensor.ConvergenceWarning")
@pytest.mark.parametrize("rank", [5, None])
@pytest.mark.parametrize("kind", ["uniform", "one-sided", "exponential"])
@pytest.mark.parametrize("fraction", [0.3, 0.48])
def test_no_wrong_answer_is_called_converged(kind, fraction, rank):
    # Nearly half of a small matrix: there are answers on which two ways agree, and full ranks.
    low, _, data = planted((60, 60), 5, fraction, 0, kind)
    found = lt.robust_pca(data, rank)
    assert found.status is Status.UNCONFIRMED or error(found, low) < 1e-8


@pytest.mark.filterwarnings("ignore::latensor.ConvergenceWarning")
@pytest.mark.parametrize("rank", [5, 6, 7, None])
@pytest.mark.parametrize(("fraction", "seed"), [(0.1, 3), (0.1, 4), (0.2, 2), (0.2, 3)])
def test_directions_that_meet_errors_of_a_few_slices_are_not_believed(fraction, seed, rank):
    # Ranks above the true one were met exactly in four of five entries, off by .3 and CONVERGED.
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((60, 5)) @ rng.standard_normal((5, 60))
    size = 10 * np.abs(low).mean()
    hit = rng.random(low.shape) < fraction
    data = low + np.where(hit, rng.uniform(-size, size, low.shape), 0.0)
    found = lt.robust_pca(data, rank)
    assert found.status is Status.UNCONFIRMED or error(found, low) < 1e-8
    if fraction == 0.1 and rank in (5, 6):
        assert found.rank == 5


@pytest.mark.filterwarnings("ignore::latensor.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_errors_that_were_taken_for_noise_are_not_believed(noise, seed):
    # Every column has errors with a probability of its own: a rank of one, without any error, and
    # noise of four times the data left half of each column's entries close together, off zero.
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((60, 5)) @ rng.standard_normal((5, 60))
    hit = rng.random(low.shape) < rng.uniform(0, 0.8, 60)
    data = low + np.where(hit, 10 * np.abs(low).mean(), 0.0)
    data += noise * low.std() * rng.standard_normal(low.shape)
    found = lt.robust_pca(data)
    assert found.status is Status.UNCONFIRMED or error(found, low) < 0.2


HIDDEN_ROW = np.ones((6, 5), bool)
HIDDEN_ROW[2] = False
FEW = np.eye(6, 5, dtype=bool) | np.eye(6, 5, -1, dtype=bool)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.ones(4), {}, r"shape \(4,\)"),
        (np.ones((6, 5), complex), {}, "complex"),
        (np.full((6, 5), np.nan), {}, "30 NaN"),
        (np.ones((6, 5)), {"rank": 0}, "rank=0 must be a positive integer"),
        (np.ones((6, 5)), {"rank": True}, "rank=True"),
        (np.ones((6, 5)), {"rank": 6}, "rank=6 is above 5"),
        (np.ones((6, 5)), {"rank": (1, 2)}, "the same for rows and columns"),
        (np.ones((6, 5, 4)), {"rank": (1, 2)}, "2 entries for a tensor of order 3"),
        (np.ones((6, 5, 4)), {"rank": (1, 4, 2)}, "product of the others"),
        (np.ones((6, 5)), {"mask": np.ones((5, 6))}, r"mask has shape \(5, 6\)"),
        (np.ones((6, 5)), {"mask": np.full((6, 5), 2)}, "truth values"),
        (np.ones((6, 5)), {"mask": HIDDEN_ROW}, "slice 2 of mode 0"),
        (np.ones((6, 5)), {"rank": 1, "mask": FEW}, "10 observed entries .* at least 20"),
        (np.array([[np.inf, 1.0], [1.0, 1.0]]), {"rank": 1}, "1 NaN or infinite"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(data, options, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.robust_pca(data, **options)


@pytest.mark.parametrize(
    "sizes, rank, seed",
    [((50, 50), 2, 0), ((100, 100), 2, 0), ((150, 50), 2, 0), ((150, 50), 2, 1), ((40,) * 5, 1, 0)],
    ids=str,
)
def test_blocks_are_not_left_out_though_most_entries_are_zero(sizes, rank, seed):
    """A rank that is too low meets the zeros around blocks too; it had been called CONVERGED."""
    rng = np.random.default_rng(seed)
    low = block_diag(*(rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n)) for n in sizes))
    errors = np.where(rng.random(low.shape) < 0.05, rng.normal(size=low.shape), 0.0)
    for given in (None, rank * len(sizes)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lt.ConvergenceWarning)
            found = lt.robust_pca(low + errors, given)
        assert found.rank == rank * len(sizes)
        assert np.linalg.norm(found.low_rank.to_dense() - low) < 1e-10 * np.linalg.norm(low)


def test_one_entry_among_zeros_divides_by_nothing():
    values = np.zeros((30, 20))
    values[2, 5] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", lt.ConvergenceWarning)
        found = lt.robust_pca(values)
    assert np.isfinite(found.low_rank.to_dense()).all()
