"""Tucker with missing entries, with given factors, and from several starts."""

import numpy as np
import pytest

import latensor as lt
from definitions import draw
from latensor import InvalidInputError
from latensor.decomposition import Status


def planted(rng, shape, ranks, noise=0.0, dtype="float64"):
    factors = [np.linalg.qr(draw(rng, (d, r), dtype))[0] for d, r in zip(shape, ranks, strict=True)]
    signal = lt.TuckerTensor(draw(rng, ranks, dtype), tuple(factors)).to_dense()
    disturbance = draw(rng, shape, dtype)
    ratio = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
    return np.asarray(signal + ratio * disturbance, dtype=dtype)


def relative_error(tensor, found):
    return np.linalg.norm(np.asarray(found.to_dense()) - tensor) / np.linalg.norm(tensor)


# Several starts.


@pytest.mark.parametrize("method", ["auto", "hooi"])
@pytest.mark.parametrize("ranks", [(3, 2, 4), (2, 2, 2), (5, 5, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_random_tensors_are_fitted_no_worse_than_by_tensorly(seed, ranks, method):
    tensorly = pytest.importorskip("tensorly")
    from tensorly.decomposition import tucker

    tensor = np.random.default_rng(seed).random((10, 10, 10))
    found = lt.tucker(tensor, ranks, method=method, random_state=0)
    for options in ({}, {"tol": 1e-9, "n_iter_max": 1000}):
        theirs = tensorly.tucker_to_tensor(tucker(tensor, list(ranks), **options))
        error = np.linalg.norm(tensor - theirs) / np.linalg.norm(tensor)
        assert found.residual <= error * (1 + 1e-9)
    assert found.residual == pytest.approx(relative_error(tensor, found), abs=1e-10)
    assert found.status is Status.CONVERGED


def test_the_optimum_of_the_defect_and_the_same_one_every_time():
    tensor = np.random.default_rng(2).random((10, 10, 10))
    residuals = {lt.tucker(tensor, (3, 2, 4), random_state=s).residual for s in range(3)}
    assert max(residuals) < 0.46175
    assert max(residuals) - min(residuals) < 1e-8
    for kind in ("float32", "complex128"):
        single = lt.tucker(draw(np.random.default_rng(0), (6, 5, 7), kind), (2, 3, 2))
        assert single.core.dtype == kind


# Missing entries.


@pytest.mark.parametrize("missing", [0.2, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_missing_entries_are_predicted_to_the_noise(missing, seed):
    rng = np.random.default_rng(seed)
    truth = planted(rng, (20, 18, 15), (3, 2, 3))
    noise = 0.01 * np.linalg.norm(truth) / np.sqrt(truth.size)
    tensor = truth + noise * rng.standard_normal(truth.shape)
    mask = rng.random(tensor.shape) > missing
    found = lt.tucker(np.where(mask, tensor, np.nan), (3, 2, 3), mask=mask)
    left = np.where(mask, tensor - found.to_dense(), 0.0)
    stated = np.linalg.norm(left) / np.linalg.norm(np.where(mask, tensor, 0.0))
    assert found.residual == pytest.approx(stated, abs=1e-10)
    assert relative_error(truth, found) < 0.01
    assert (np.diff(found.history) <= 1e-12).all()
    for factor in found.factors:
        np.testing.assert_allclose(factor.T @ factor, np.eye(factor.shape[1]), atol=1e-12)
    again = lt.tucker(np.where(mask, tensor, 7e5), (3, 2, 3), mask=mask)
    assert again.residual == found.residual


def test_exact_tensors_with_holes_are_completed():
    rng = np.random.default_rng(0)
    truth = planted(rng, (12, 11, 10), (2, 2, 2))
    mask = rng.random(truth.shape) > 0.5
    found = lt.tucker(truth, 2, mask=mask, tol=1e-12, max_iter=3000)
    assert relative_error(truth, found) < 1e-6
    whole = lt.tucker(truth + rng.standard_normal(truth.shape), 2, mask=np.ones(truth.shape))
    free = lt.tucker(truth + 0 * mask, 2)
    assert whole.status is Status.CONVERGED
    assert free.residual < 1e-12


def test_masks_on_every_library(library, dtype, rng):
    if library.name == "jax" and dtype != "float32":
        pytest.skip("compiled anew for every dtype: one is enough")
    tensor = planted(rng, (8, 7, 6), (2, 2, 2), 0.05, dtype)
    mask = rng.random(tensor.shape) > 0.2
    found = lt.tucker(library.array(tensor), 2, mask=library.array(mask), max_iter=4)
    dense = library.host(found.to_dense())
    assert dense.dtype == tensor.dtype
    seen = np.where(mask, tensor, 0.0)
    left = np.linalg.norm(np.where(mask, tensor - dense, 0.0)) / np.linalg.norm(seen)
    assert left == pytest.approx(found.residual, abs=1e-5)
    assert found.residual < 0.2


@pytest.mark.parametrize("scale", [1e-300, 1e300])
@pytest.mark.parametrize("masked", [False, True])
def test_scale_equivariance(scale, masked, rng):
    tensor = planted(rng, (6, 5, 7), (2, 2, 2), 0.2)
    tensor /= 10 * np.abs(tensor).max()
    mask = rng.random(tensor.shape) > 0.1 if masked else None
    base, scaled = (lt.tucker(t, 2, mask=mask) for t in (tensor, scale * tensor))
    assert scaled.residual == pytest.approx(base.residual, rel=1e-8)
    np.testing.assert_allclose(scaled.core / scale, base.core, atol=1e-6 * np.abs(base.core).max())


# Given factors.


@pytest.mark.parametrize("kind", ["orthonormal", "general", "dependent"])
@pytest.mark.parametrize("fixed", [(0,), (1, 2), (0, 1, 2)])
def test_given_factors_stay_and_the_others_are_the_best_beside_them(kind, fixed, rng):
    tensor = planted(rng, (9, 8, 7), (3, 3, 2), 0.5)
    factors = [rng.standard_normal((d, r)) for d, r in zip((9, 8, 7), (3, 3, 2), strict=True)]
    if kind == "orthonormal":
        factors = [np.linalg.qr(f)[0] for f in factors]
    elif kind == "dependent":
        factors[1][:, 2] = factors[1][:, 0]
    init = (np.zeros((3, 3, 2)), factors)
    found = lt.tucker(tensor, (3, 3, 2), init=init, fixed_modes=fixed, tol=1e-12, max_iter=2000)
    assert found.residual == pytest.approx(relative_error(tensor, found), abs=1e-12)
    for mode in fixed:
        np.testing.assert_array_equal(found.factors[mode], factors[mode])
    # Projected on the given factors, the tensor has the same best fit in the other modes.
    spans = [np.linalg.svd(f, full_matrices=False)[0] for f in factors]
    if kind == "dependent":
        spans[1] = spans[1][:, :2]
    seen = tensor
    for mode in fixed:
        seen = lt.mode_product(seen, spans[mode] @ spans[mode].T, mode)
    free = [m for m in range(3) if m not in fixed]
    outside = np.linalg.norm(tensor) ** 2 - np.linalg.norm(seen) ** 2
    inside = 0.0
    if free:
        best = lt.tucker(seen, [(3, 3, 2)[m] for m in free], modes=free, tol=1e-12, max_iter=2000)
        inside = (best.residual * np.linalg.norm(seen)) ** 2
    expected = np.sqrt((inside + outside) / np.linalg.norm(tensor) ** 2)
    assert found.residual <= expected * (1 + 1e-3)
    assert found.residual >= np.sqrt(outside) / np.linalg.norm(tensor) - 1e-12


def test_given_factors_with_masks_factored_tensors_and_nonnegative_parts(rng):
    truth = planted(rng, (10, 9, 8), (2, 2, 2))
    exact = lt.tucker(truth, 2)
    mask = rng.random(truth.shape) > 0.3
    found = lt.tucker(truth, 2, init=exact, fixed_modes=[1], mask=mask, tol=1e-12, max_iter=2000)
    np.testing.assert_array_equal(found.factors[1], exact.factors[1])
    assert relative_error(truth, found) < 1e-6
    cp = lt.CPTensor(None, [rng.standard_normal((d, 4)) for d in (12, 11, 10)])
    dense = cp.to_dense()
    init = (
        np.zeros((2, 3, 3)),
        [rng.standard_normal((d, r)) for d, r in ((12, 2), (11, 3), (10, 3))],
    )
    beside = [lt.tucker(t, (2, 3, 3), init=init, fixed_modes=[0]) for t in (cp, dense)]
    for found in beside:
        np.testing.assert_allclose(found.factors[0], init[1][0], rtol=1e-12)
        assert relative_error(dense, found) == pytest.approx(found.residual, abs=1e-10)
    assert beside[0].residual == pytest.approx(beside[1].residual, rel=1e-3)
    parts = lt.CPTensor(None, [rng.random((d, 2)) for d in (10, 9, 8)]).to_dense()
    start = lt.tucker(parts, 2, nonnegative=True, random_state=0)
    given = lt.tucker(parts, 2, nonnegative=True, init=start, fixed_modes=[0])
    np.testing.assert_allclose(given.factors[0], start.factors[0], rtol=1e-12)
    assert given.residual <= start.residual * (1 + 1e-9)
    assert min(float(np.min(a)) for a in (given.core, *given.factors)) >= 0


def test_refusals(rng):
    tensor = rng.random((5, 6, 7))
    mask = np.ones(tensor.shape, bool)
    few = np.arange(210).reshape(tensor.shape) < 20
    init = lt.tucker(tensor, 2)
    for options, message in [
        ({"mask": mask[0]}, r"mask has shape \(6, 7\), but the tensor \(5, 6, 7\)"),
        ({"mask": mask * 2.5}, "mask must hold truth values"),
        ({"mask": few}, "mask leaves 20 observed entries for the 32 free parameters"),
        ({"mask": mask, "nonnegative": True}, "mask with nonnegative=True is not offered"),
        ({"mask": mask, "method": "hosvd"}, "mask needs ranks as integers and method='auto'"),
        ({"fixed_modes": [0]}, r"fixed_modes=\(0,\) needs init"),
        ({"fixed_modes": [5], "init": init}, "fixed_modes=5 is out of range"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            lt.tucker(tensor, 2, **options)
    with pytest.raises(InvalidInputError, match="mask needs ranks as integers"):
        lt.tucker(tensor, error=0.1, mask=mask)
    sparse = lt.SparseTensor(np.zeros((1, 3), int), np.ones(1), (5, 6, 7))
    with pytest.raises(InvalidInputError, match="mask is for dense arrays"):
        lt.tucker(sparse, 2, mask=mask)
    partial = lt.tucker(tensor, (2, 2), modes=(1, 2))
    with pytest.raises(InvalidInputError, match="names mode 0, which has no factor"):
        lt.tucker(tensor, (2, 2), modes=(1, 2), init=partial, fixed_modes=[0])


# What is stated is true.


@pytest.mark.parametrize("kind", ["dense", "sparse", "cp", "tucker", "train"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_stated_residual_is_the_true_one(kind, dtype):
    bound = 1e-10 if dtype == "float64" else 1e-5
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.integers(2, 7, 3 + seed % 2))
        factors = [rng.standard_normal((d, 2)).astype(dtype) for d in shape]
        dense = lt.CPTensor(None, factors).to_dense()
        if kind in ("dense", "train", "sparse"):
            noise = (0.0, 0.1, 3.0)[seed % 3]
            dense = (dense + noise * rng.standard_normal(shape)).astype(dtype)
        if kind == "sparse":
            dense = np.where(rng.random(shape) < 0.5, dense, 0).astype(dtype)
        coordinates = np.argwhere(dense)
        tensor = {
            "dense": lambda x=dense: x,
            "sparse": lambda x=dense, c=coordinates: lt.SparseTensor(c, x[tuple(c.T)], x.shape),
            "cp": lambda f=factors: lt.CPTensor(None, f),
            "tucker": lambda x=dense: lt.tucker(x, x.shape).tensor,
            "train": lambda x=dense: lt.tensor_train(x, error=1e-5),
        }[kind]()
        dense = tensor if kind == "dense" else tensor.to_dense()
        ranks = tuple(int(rng.integers(1, d + 1)) for d in shape)
        given = [
            rng.standard_normal((d, r)).astype(dtype) for d, r in zip(shape, ranks, strict=True)
        ]
        init = (np.zeros(ranks, dtype), given)
        for options in (
            {"ranks": ranks},
            {"ranks": shape},
            {"error": 0.1},
            {"ranks": ranks, "method": "randomized"},
            {"ranks": ranks, "init": init, "fixed_modes": [0, 2]},
            {"ranks": ranks, "nonnegative": True, "max_iter": 10},
        ):
            found = lt.tucker(tensor, **options, random_state=seed)
            assert found.residual == pytest.approx(relative_error(dense, found), abs=bound), options
            assert "error" not in options or found.residual <= 0.1


@pytest.mark.parametrize("origin", ["tensorly", "pyttb"])
def test_starts_may_be_tucker_tensors_of_other_libraries(origin):
    pytest.importorskip(origin)
    tensor = planted(np.random.default_rng(0), (6, 5, 4), (2, 2, 2), noise=0.1)
    start = lt.tucker(tensor, 2, max_iter=1).tensor
    given = start.to_pyttb() if origin == "pyttb" else start.to_tensorly()
    for options in ({}, {"fixed_modes": (0,)}):
        found = lt.tucker(tensor, 2, init=given, **options)
        assert found.residual == lt.tucker(tensor, 2, init=start, **options).residual


def test_a_start_may_be_factors_alone():
    rng = np.random.default_rng(0)
    truth = lt.TuckerTensor(
        rng.standard_normal((2, 3, 2)),
        tuple(np.linalg.qr(rng.standard_normal((d, r)))[0] for d, r in ((5, 2), (6, 3), (4, 2))),
    )
    found = lt.tucker(truth.to_dense(), (2, 3, 2), init=list(truth.factors), max_iter=3)
    assert found.residual < 1e-10
    with pytest.raises(lt.InvalidInputError, match="init must be"):
        lt.tucker(np.abs(truth.to_dense()), 2, init=list(truth.factors), nonnegative=True)
