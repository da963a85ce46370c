"""CP plus a sparse component: gross errors are found, and the components come back."""

import numpy as np
import pytest

import latensor as lt


def spoilt(seed=0, noise=0.0, fraction=0.1, shape=(12, 13, 14), scale=1.0):
    """A planted tensor with gross errors ten times as large as its entries."""
    rng = np.random.default_rng(seed)
    truth = lt.CPTensor(None, tuple(rng.standard_normal((d, 2)) for d in shape))
    exact = truth.to_dense()
    count = round(fraction * exact.size)
    errors = np.zeros(exact.size)
    places = rng.choice(exact.size, count, replace=False)
    errors[places] = 10 * exact.std() * rng.choice([-1.0, 1.0], count) * rng.uniform(0.5, 2, count)
    errors = errors.reshape(shape)
    tensor = exact + noise * exact.std() * rng.standard_normal(shape) + errors
    return truth, exact, errors, scale * tensor


@pytest.mark.parametrize("fraction", [0.02, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_exact_tensors_with_gross_errors_come_back_exactly(seed, fraction):
    _, exact, errors, tensor = spoilt(seed, fraction=fraction)
    found = lt.decompose(tensor, 2, sparsity=int((errors != 0).sum()), random_state=0)
    np.testing.assert_allclose(found.tensor.to_dense(), exact, atol=1e-9)
    np.testing.assert_allclose(found.sparse.to_dense(), errors, atol=1e-9)
    assert np.all(np.diff(found.history) <= 1e-12)


def test_the_residual_is_what_both_leave_over_and_the_certificate_leaves_the_errors_out():
    truth, _, _, tensor = spoilt(1, noise=0.1)
    found = lt.decompose(tensor, 2, sparsity=0.1, random_state=0)
    rest = tensor - found.tensor.to_dense() - found.sparse.to_dense()
    assert found.residual == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(tensor), rel=1e-9)
    assert found.sparse.nnz == round(0.1 * tensor.size)
    assert lt.match(truth, found).score > 0.999
    assert lt.match(truth, lt.decompose(tensor, 2, random_state=0)).score < 0.9
    assert found.certificate.observed == tensor.size - found.sparse.nnz
    assert found.certificate.verdict == "stable"


def test_options_go_with_it(library):
    _, exact, errors, _ = spoilt(2, noise=0.01)
    positive = np.abs(exact) + errors
    found = lt.decompose(
        library.array(positive), 3, sparsity=0.1, nonnegative=True, random_state=0, max_iter=50
    )
    assert library.owns(found.weights)
    assert all((library.host(f) >= 0).all() for f in found.factors)
    whole = np.asarray(found.sparse.to_dense())
    places = whole != 0
    assert found.sparse.nnz == round(0.1 * positive.size)
    assert (errors != 0)[places].mean() > 0.9
    left = positive - library.host(found.tensor.to_dense())
    np.testing.assert_allclose(whole[places], left[places], atol=1e-6 * np.abs(left).max())


@pytest.mark.parametrize("scale", [1e-100, 1e60])
def test_results_do_not_depend_on_the_unit(scale):
    _, exact, _, tensor = spoilt(0, scale=scale)
    found = lt.decompose(tensor, 2, sparsity=0.1, random_state=0)
    np.testing.assert_allclose(found.tensor.to_dense() / scale, exact, atol=1e-8)


@pytest.mark.parametrize("sparsity", [0, -1, 0.0, 1.0, 2184, True, "some", np.nan])
def test_bad_numbers_are_refused(sparsity):
    _, _, _, tensor = spoilt()
    with pytest.raises(lt.InvalidInputError, match="sparsity="):
        lt.decompose(tensor, 2, sparsity=sparsity)


def test_masks_and_sparse_tensors_are_refused():
    _, _, _, tensor = spoilt()
    with pytest.raises(lt.InvalidInputError, match="sparsity needs a dense tensor"):
        lt.decompose(tensor, 2, sparsity=3, mask=np.ones(tensor.shape, dtype=bool))
    with pytest.raises(lt.InvalidInputError, match="not a SparseTensor"):
        lt.decompose(lt.SparseTensor.from_dense(tensor), 2, sparsity=3)


@pytest.mark.slow
def test_turns_end_where_fits_to_the_same_entries_use_up_their_iterations():
    rng = np.random.default_rng(9)
    matrix = rng.standard_normal((9, 2)) @ rng.standard_normal((2, 3))
    matrix += 0.1 * rng.standard_normal(matrix.shape)
    found = lt.decompose(matrix, 2, nonnegative=(0,), sparsity=1, max_iter=40)
    assert len(found.history) < 100  # the limit
    assert np.all(np.diff(found.history) <= 1e-12)


def test_a_complex_fit_has_a_certificate_and_a_summary():
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, 2)) + 1j * rng.standard_normal((d, 2)) for d in (6, 5, 7)]
    tensor = lt.CPTensor(None, factors).to_dense() + 0.01 * rng.standard_normal((6, 5, 7))
    tensor[1, 2, 3] += 50j
    found = lt.decompose(tensor, 2, sparsity=1, random_state=0)
    assert found.sparse.coordinates.tolist() == [[1, 2, 3]]
    assert found.residual < found.certificate.residual < 0.01  # which leaves the sparse entry out
    assert np.isfinite(found.certificate.errors.components).all()
    assert "j" in str(found.summary())  # the imaginary parts are not dropped


def test_infinite_entries_are_refused():
    tensor = np.ones((3, 4, 5))
    tensor[0, 1, 2] = np.inf
    with pytest.raises(lt.InvalidInputError, match=r"tensor holds 1 NaN or infinite"):
        lt.decompose(tensor, 1, sparsity=2)
