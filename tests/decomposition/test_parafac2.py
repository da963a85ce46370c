"""`parafac2`: planted components from every seed, with masks, signs, libraries and scales."""

import pickle

import numpy as np
import pytest

import latensor as lt
from latensor import InvalidInputError
from latensor.decomposition import Parafac2Decomposition, Status


def planted(seed, rank, noise, n_slices=12, columns=20, heights=(30, 35), nonnegative=False):
    """Ragged slices with known A and C, and noise as a ratio of norms."""
    rng = np.random.default_rng([seed, rank])
    loadings = rng.uniform(0.1, 1.1, (n_slices, rank))
    middle = rng.standard_normal((rank, rank))
    shared = rng.random((columns, rank)) if nonnegative else rng.standard_normal((columns, rank))
    slices = []
    for row in loadings:
        basis = np.linalg.qr(rng.standard_normal((rng.integers(*heights), rank)))[0]
        slices.append(basis @ (middle * row) @ shared.T)
    disturbance = [rng.standard_normal(x.shape) for x in slices]
    ratio = noise * norm(slices) / norm(disturbance)
    return [x + ratio * e for x, e in zip(slices, disturbance, strict=True)], (loadings, shared)


def norm(slices):
    return np.sqrt(sum((x**2).sum() for x in slices))


def residual(slices, found, mask=None):
    left = [np.asarray(x) - np.asarray(y) for x, y in zip(slices, found.slices(), strict=True)]
    if mask is None:
        return norm(left) / norm(slices)
    seen = [np.where(m, x, 0.0) for m, x in zip(mask, slices, strict=True)]
    return norm([np.where(m, e, 0.0) for m, e in zip(mask, left, strict=True)]) / norm(seen)


def congruence(found, truth):
    """The least congruence of a component, A and C together."""
    truth = lt.CPTensor(None, truth)
    mine = lt.CPTensor(None, (found.factors[0], found.factors[2]))
    product = np.ones((found.rank,) * 2)
    for a, b in zip(mine.normalized().factors, truth.normalized().factors, strict=True):
        product = product * np.abs(a.T @ b)
    from scipy.optimize import linear_sum_assignment

    return product[linear_sum_assignment(-product)].min()


@pytest.mark.parametrize("rank", [3, 5])
@pytest.mark.parametrize("data", range(5))
def test_every_seed_finds_the_planted_components(rank, data):
    slices, truth = planted(data, rank, 0.1)
    fits = [lt.parafac2(slices, rank, random_state=seed) for seed in range(2)]
    for found in fits:
        assert found.status is Status.CONVERGED
        assert congruence(found, truth) > 0.98
        assert found.residual == pytest.approx(fits[0].residual, rel=1e-6)
        assert found.residual < 0.1
        assert found.residual == pytest.approx(residual(slices, found), abs=1e-10)
        assert found.n_agreed >= 3
        assert (np.diff(found.history) <= 1e-14).all()


@pytest.mark.parametrize("data", range(2))
def test_hard_problems_have_one_answer(data):
    # Noise of half the signal and eight components: no congruence to expect, one optimum to find.
    slices, _ = planted(data, 8, 0.5)
    fits = [lt.parafac2(slices, 8, random_state=seed).residual for seed in range(3)]
    assert max(fits) <= min(fits) * (1 + 1e-5)


def test_exact_slices_are_fitted_exactly_and_in_canonical_form():
    slices, truth = planted(0, 3, 0.0)
    found = lt.parafac2(slices, 3, random_state=0)
    assert found.residual < 1e-10
    assert congruence(found, truth) > 1 - 1e-8
    loadings, middle, columns = found.factors
    np.testing.assert_allclose(middle, middle.T, atol=1e-12)
    assert np.linalg.eigvalsh(middle).min() > 0
    for factor in found.factors:
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1.0, rtol=1e-12)
    assert (np.diff(found.weights) <= 0).all()
    assert (found.weights > 0).all()
    assert (loadings > 0).all()
    assert (columns[np.abs(columns).argmax(axis=0), range(3)] > 0).all()
    crossed = [b.T @ b for b in found.tensor.evolving_factors()]
    for projection, product in zip(found.projections, crossed, strict=True):
        np.testing.assert_allclose(projection.T @ projection, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(product, crossed[0], atol=1e-12)
    other = lt.parafac2(slices, 3, random_state=5)
    for a, b in zip(found.factors, other.factors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("missing", [0.1, 0.4])
def test_missing_entries_are_not_fitted(missing):
    slices, truth = planted(1, 3, 0.1)
    rng = np.random.default_rng(0)
    mask = [rng.random(x.shape) > missing for x in slices]
    holes = [np.where(m, x, np.nan) for m, x in zip(mask, slices, strict=True)]
    found = lt.parafac2(holes, 3, mask=mask, random_state=0)
    assert found.residual == pytest.approx(residual(slices, found, mask), abs=1e-10)
    assert congruence(found, truth) > 0.99
    hidden = residual(slices, found, [~m for m in mask])
    assert hidden < 0.15
    assert (np.diff(found.history) <= 1e-14).all()
    # Whatever stands in the holes is not read.
    again = lt.parafac2(
        [np.where(m, x, 1e6) for m, x in zip(mask, slices, strict=True)],
        3,
        mask=mask,
        random_state=0,
    )
    assert again.residual == found.residual
    whole = [np.ones_like(m) for m in mask]
    assert lt.parafac2(slices, 3, mask=whole, random_state=0).residual == pytest.approx(
        lt.parafac2(slices, 3, random_state=0).residual, rel=1e-6
    )


@pytest.mark.parametrize("modes", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_nonnegative_modes(modes, masked):
    slices, truth = planted(3, 3, 0.1, nonnegative=True)
    mask = [np.random.default_rng(0).random(x.shape) > 0.1 for x in slices] if masked else None
    found = lt.parafac2(slices, 3, nonnegative=modes, mask=mask, random_state=0)
    for mode in modes:
        assert found.factors[mode].min() >= 0
    assert congruence(found, truth) > 0.98
    free = lt.parafac2(slices, 3, mask=mask, random_state=0)
    assert free.residual * (1 - 1e-9) <= found.residual < free.residual * 1.01


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_library(library, dtype):
    slices, _ = planted(2, 3, 0.05, heights=(6, 9), columns=7)
    found = lt.parafac2([library.array(x, dtype) for x in slices], 3, random_state=0)
    for array in (found.weights, *found.factors, *found.projections, *found.slices()):
        assert library.host(array).dtype == dtype
    assert found.residual < 0.05
    left = [library.host(y) - x for x, y in zip(slices, found.slices(), strict=True)]
    assert norm(left) / norm(slices) == pytest.approx(found.residual, abs=1e-5)
    assert found.tensor.rank == 3


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_scale_equivariance(scale):
    slices, _ = planted(2, 2, 0.1, n_slices=6, heights=(6, 9), columns=5)
    slices = [x / 10 for x in slices]
    base = lt.parafac2(slices, 2, random_state=0)
    scaled = lt.parafac2([x * scale for x in slices], 2, random_state=0)
    assert scaled.residual == pytest.approx(base.residual, rel=1e-8)
    np.testing.assert_allclose(scaled.weights / scale, base.weights, rtol=1e-4)


def test_tensors_wide_slices_and_one_component():
    slices, truth = planted(4, 2, 0.1, heights=(9, 10))
    found = lt.parafac2(np.stack(slices), 2, random_state=0)
    assert found.tensor.to_dense().shape == (12, 9, 20)
    assert residual(slices, found) == pytest.approx(found.residual, abs=1e-10)
    # More columns than all rows together: the fit works in the space that the rows span.
    wide, truth = planted(4, 2, 0.01, n_slices=5, columns=80, heights=(9, 12))
    found = lt.parafac2(wide, 2, random_state=0)
    assert congruence(found, truth) > 0.95
    assert residual(wide, found) == pytest.approx(found.residual, abs=1e-10)
    again = lt.parafac2(wide, 2, init=found)
    assert again.residual <= found.residual * (1 + 1e-9)
    # With one component the stacked slices have rank one: the answer is their leading direction.
    one = lt.parafac2(slices, 1, random_state=0)
    values = np.linalg.svd(np.concatenate(slices), compute_uv=False)
    assert one.residual == pytest.approx(np.sqrt((values[1:] ** 2).sum()) / norm(slices), rel=1e-8)
    tall = lt.parafac2(slices, 9, max_iter=30, n_starts=1, random_state=0)
    assert tall.residual == pytest.approx(residual(slices, tall), abs=1e-10)
    assert tall.status is Status.MAX_ITER


def test_starts_from_a_fit_from_tensorly_and_by_a_callback():
    slices, _ = planted(0, 3, 0.1)
    found = lt.parafac2(slices, 3, random_state=0)
    triple = (found.weights, list(found.factors), list(found.projections))
    for init in (found, found.tensor, triple):
        again = lt.parafac2(slices, 3, init=init)
        assert again.n_starts == 1
        assert again.residual <= found.residual * (1 + 1e-9)
    states = []
    stopped = lt.parafac2(slices, 3, random_state=0, callback=lambda s: states.append(s) or True)
    assert stopped.status is Status.STOPPED
    assert isinstance(states[0].tensor, lt.Parafac2Tensor)
    tensorly = pytest.importorskip("tensorly")
    theirs = found.tensor.to_tensorly()
    assert lt.parafac2(slices, 3, init=theirs).residual <= found.residual * (1 + 1e-9)
    for x, y in zip(
        tensorly.parafac2_tensor.parafac2_to_slices(theirs), found.slices(), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=1e-12)
    assert isinstance(lt.from_tensorly(theirs), lt.Parafac2Tensor)
    copy = pickle.loads(pickle.dumps(found))
    assert isinstance(copy, Parafac2Decomposition)
    assert copy.residual == found.residual
    weights, factors, projections = found
    assert (len(weights), len(factors), len(projections)) == (3, 3, 12)
    assert "of 10 starts agree, CONVERGED" in repr(found)
    assert repr(found.tensor).startswith("Parafac2Tensor(12 slices of 30-34 x 20, rank 3")


def test_degenerate_input():
    zero = lt.parafac2([np.zeros((4, 3))] * 5, 2)
    assert zero.residual == 0.0
    assert not any(x.any() for x in zero.slices())
    slices, _ = planted(0, 2, 0.0, n_slices=5, heights=(6, 8), columns=5)
    crowded = lt.parafac2([*slices, np.zeros((6, 5))], 4, random_state=0, max_iter=300)
    assert np.isfinite(crowded.residual)
    assert crowded.residual < 1e-3


def test_refusals():
    slices, _ = planted(0, 2, 0.1, n_slices=4, heights=(4, 7), columns=5)
    mask = [np.ones(x.shape, bool) for x in slices]
    few = [np.arange(x.size).reshape(x.shape) < 5 for x in slices]
    for arguments, message in [
        (([], 2), "slices is empty"),
        ((np.ones((3, 3)), 2), "must be a list of matrices or a tensor of order 3"),
        ((lt.SparseTensor.from_dense(np.ones((3, 3, 3))), 2), "needs a dense array"),
        (([*slices, np.ones((5, 4))], 2), r"slices\[4\] has 4 columns, but slices\[0\] has 5"),
        (([np.full((4, 3), np.nan)] * 3, 2), r"slices\[0\] holds 12 NaN"),
        (([x + 1j for x in slices], 2), "slices are complex"),
        ((slices, 0), "rank=0 must be an integer of at least 1"),
        ((slices, 7), r"rank=7 exceeds the \d rows of slices\[\d\]"),
        ((slices, 2, {"nonnegative": (1,)}), "nonnegative=1 asks for row factors"),
        ((slices, 2, {"nonnegative": True}), "must list modes"),
        ((slices, 2, {"mask": mask[:3]}), "mask has the shapes"),
        ((slices, 2, {"mask": few}), "mask leaves 20 observed entries for the"),
        ((slices, 2, {"init": 3}), "init must be a Parafac2Tensor or a triple"),
        ((slices, 2, {"n_starts": 0}), "n_starts=0 must be"),
        ((slices, 2, {"tol": -1.0}), "tol=-1.0 must be"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            lt.parafac2(*arguments[:2], **(arguments[2] if len(arguments) > 2 else {}))
    with pytest.raises(InvalidInputError, match="and rank=3 was asked for"):
        lt.parafac2(slices, 3, init=lt.parafac2(slices, 2, random_state=0))
    with pytest.raises(InvalidInputError, match=r"make no array: use slices\(\)"):
        lt.parafac2(slices, 2, random_state=0).tensor.to_dense()


def test_the_certificate_expects_the_errors_that_noise_makes():
    rng = np.random.default_rng(0)
    loads, middle = rng.uniform(0.5, 1.5, (8, 2)), rng.standard_normal((2, 2))
    columns = rng.standard_normal((10, 2))
    bases = [np.linalg.qr(rng.standard_normal((12, 2)))[0] for _ in range(8)]
    slices = [p @ (middle * a) @ columns.T for p, a in zip(bases, loads, strict=True)]
    exact = lt.parafac2(slices, 2, n_starts=2, random_state=0).certificate
    assert exact.verdict == "stable"
    assert max(exact.errors) < 1e-10
    observed, expected = [], []
    for seed in range(10):
        noise = np.random.default_rng(seed)
        noisy = [x + 0.005 * noise.standard_normal(x.shape) for x in slices]
        found = lt.parafac2(noisy, 2, n_starts=2, random_state=0)
        assert found.certificate.noise == pytest.approx(0.005, rel=0.2)
        unit = columns / np.linalg.norm(columns, axis=0)
        cosines = np.abs(unit.T @ found.factors[2]).max(axis=0)
        observed.append(np.sqrt(1 - cosines**2))
        expected.append(found.certificate.errors)
    ratio = np.linalg.norm(observed, axis=0) / np.linalg.norm(expected, axis=0)
    assert np.all((ratio > 0.5) & (ratio < 1.6)), ratio


@pytest.mark.parametrize("rank", [1, 2])
def test_noise_alone_is_unstable(rank):
    rng = np.random.default_rng(rank)
    slices = [rng.standard_normal((12, 10)) for _ in range(8)]
    found = lt.parafac2(slices, rank, n_starts=2, max_iter=50, random_state=0)
    assert found.certificate.verdict == "unstable"
    assert "noise alone" in str(found.certificate).replace("\n       ", " ")
    masks = [rng.random((12, 10)) < 0.9 for _ in range(8)]
    masked = lt.parafac2(slices, rank, mask=masks, n_starts=1, max_iter=20, random_state=0)
    assert masked.n_observed == masked.certificate.observed == sum(m.sum() for m in masks)
