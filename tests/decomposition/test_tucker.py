import copy
import pickle
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latensor as lt
from definitions import draw, tolerance
from latensor.decomposition.result import Status
from latensor.decomposition.tucker import TuckerDecomposition, tucker

METHODS = ("auto", "sequential", "hosvd", "hooi", "randomized")


def planted(rng, shape, ranks, noise=0.0, dtype="float64"):
    factors = [np.linalg.qr(draw(rng, (d, r), dtype))[0] for d, r in zip(shape, ranks, strict=True)]
    signal = lt.TuckerTensor(draw(rng, ranks, dtype), tuple(factors)).to_dense()
    disturbance = draw(rng, shape, dtype)
    ratio = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
    return np.ascontiguousarray(signal + np.asarray(ratio * disturbance, dtype=dtype))


def planted_parts(rng, shape, rank, noise=0.0):
    core = rng.random((rank,) * len(shape)) * (rng.random((rank,) * len(shape)) < 0.5)
    factors = [rng.random((d, rank)) * (rng.random((d, rank)) < 0.5) for d in shape]
    signal = lt.TuckerTensor(core, tuple(factors)).to_dense()
    disturbance = rng.standard_normal(shape)
    return signal + noise * np.linalg.norm(signal) / np.linalg.norm(disturbance) * disturbance


def relative_error(tensor, found):
    return np.linalg.norm(np.asarray(found.to_dense()) - tensor) / np.linalg.norm(tensor)


def all_orthogonality(core):
    """The largest inner product of two slices, and of squared norms that rise."""
    worst = 0.0
    for mode in range(core.ndim):
        rows = np.moveaxis(core, mode, 0).reshape(core.shape[mode], -1)
        gram = rows @ rows.conj().T
        worst = max(worst, np.abs(gram - np.diag(gram.diagonal())).max())
        worst = max(worst, np.diff(gram.diagonal().real).max(initial=0.0))
    return worst


# Exact cases.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("shape", "ranks"),
    [
        ((12, 15, 9), (3, 4, 2)),
        ((7,), (1,)),
        ((9, 6), (2, 2)),
        ((5, 6, 4, 3), (2, 3, 2, 3)),
        ((3, 4, 2, 3, 2), (2, 2, 2, 1, 2)),
        ((200, 3, 150), (2, 3, 4)),
        ((1, 5, 4), (1, 2, 2)),
    ],
)
def test_exact_multilinear_rank_is_recovered(method, shape, ranks):
    for seed in range(3):
        tensor = planted(np.random.default_rng(seed), shape, ranks)
        found = tucker(tensor, ranks, method=method, random_state=seed)
        assert found.ranks == ranks
        assert relative_error(tensor, found) < 1e-12
        assert found.residual < 1e-12
        for factor, r in zip(found.factors, ranks, strict=True):
            np.testing.assert_allclose(factor.T @ factor, np.eye(r), atol=1e-13)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_every_library_and_dtype(library, dtype, noise, rng):
    tensor = planted(rng, (9, 7, 8), (2, 3, 2), noise, dtype)
    expected = tucker(tensor.astype(np.result_type(dtype, "float64")), (2, 3, 2), method="hooi")
    for method in METHODS:
        found = tucker(library.array(tensor), (2, 3, 2), method=method, random_state=1)
        core = library.host(found.core)
        factors = [library.host(f) for f in found.factors]
        assert core.dtype == tensor.dtype
        assert all(f.dtype == tensor.dtype for f in factors)
        bound = tolerance(dtype, tensor.size)
        error = np.linalg.norm(library.host(found.to_dense()) - tensor) / np.linalg.norm(tensor)
        assert error == pytest.approx(found.residual, abs=bound)
        assert error <= expected.residual * (1.0 if noise == 0 else 1.01) + bound
        for factor in factors:
            gram = factor.conj().T @ factor
            np.testing.assert_allclose(gram, np.eye(gram.shape[0]), atol=bound)


def test_order_two_is_the_truncated_svd(rng):
    matrix = draw(rng, (30, 20), "complex128")
    values = np.linalg.svd(matrix)[1]
    best = np.sqrt((values[4:] ** 2).sum() / (values**2).sum())
    for method in ("auto", "sequential", "hosvd", "hooi"):
        found = tucker(matrix, 4, method=method)
        assert found.residual == pytest.approx(best, rel=1e-12)
        np.testing.assert_allclose(np.abs(found.core), np.diag(values[:4]), atol=1e-10)
    wide = tucker(matrix, (3, 5))
    assert wide.ranks == (3, 5)
    assert wide.residual == pytest.approx(
        np.sqrt((values[3:] ** 2).sum() / (values**2).sum()), rel=1e-12
    )


def test_hosvd_takes_the_singular_vectors_of_the_unfoldings(rng):
    tensor = rng.standard_normal((5, 6, 7))
    found = tucker(tensor, (5, 6, 7), method="hosvd")
    assert relative_error(tensor, found) < 1e-13
    assert all_orthogonality(found.core) < 1e-10
    truncated = tucker(tensor, (2, 3, 4), method="hosvd")
    for mode, rank in enumerate((2, 3, 4)):
        left = np.linalg.svd(lt.unfold(tensor, mode))[0][:, :rank]
        overlap = np.abs(np.diagonal(left.T @ truncated.factors[mode]))
        np.testing.assert_allclose(overlap, 1.0, atol=1e-10)


@pytest.mark.parametrize("method", ["auto", "sequential", "hooi", "randomized"])
def test_canonical_form(method, rng):
    tensor = rng.standard_normal((10, 8, 9))
    found = tucker(tensor, (4, 3, 5), method=method, random_state=0)
    assert all_orthogonality(found.core) < 1e-10
    for factor in found.factors:
        largest = factor[np.abs(factor).argmax(axis=0), np.arange(factor.shape[1])]
        assert (largest > 0).all()


# How good, how close.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(12, 10, 11), (30, 20, 3), (6, 7, 5, 6), (90, 5, 80)])
def test_orthogonal_iteration_is_best_and_truncation_near_it(shape, seed):
    rng = np.random.default_rng(seed)
    ranks = tuple(max(1, d // 3) for d in shape)
    tensor = rng.standard_normal(shape) + planted(rng, shape, ranks) * 2
    results = {m: tucker(tensor, ranks, method=m, random_state=0).residual for m in METHODS}
    best = tucker(tensor, ranks, method="hooi", tol=1e-10, max_iter=1000)
    assert results["hooi"] <= results["sequential"] * (1 + 1e-12)
    assert results["auto"] <= results["sequential"] * (1 + 1e-3)
    for residual in results.values():
        assert best.residual * (1 - 1e-3) <= residual <= np.sqrt(len(shape)) * best.residual
    lower = max(
        np.sqrt((np.linalg.svd(lt.unfold(tensor, m), compute_uv=False)[r:] ** 2).sum())
        for m, r in enumerate(ranks)
    )
    assert best.residual >= lower / np.linalg.norm(tensor) - 1e-12


def test_orthogonal_iteration_never_rises(rng):
    tensor = rng.standard_normal((12, 11, 10, 4))
    found = tucker(tensor, (3, 3, 3, 2), method="hooi", tol=0.0, max_iter=30)
    assert found.n_iter == len(found.history) > 3
    assert (np.diff(found.history) <= 0).all()
    assert found.residual == pytest.approx(found.history[-1], rel=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    error=st.floats(1e-9, 0.9),
    decay=st.floats(0.0, 2.0),
    method=st.sampled_from(METHODS),
)
def test_target_error_is_kept(seed, shape, error, decay, method):
    rng = np.random.default_rng(seed)
    core = rng.standard_normal(shape)
    for mode, d in enumerate(shape):
        core = core * (10.0 ** (-decay * np.arange(d))).reshape(
            [-1 if m == mode else 1 for m in range(len(shape))]
        )
    turns = tuple(np.linalg.qr(rng.standard_normal((d, d)))[0] for d in shape)
    tensor = lt.TuckerTensor(core, turns).to_dense()
    found = tucker(tensor, error=error, method=method, random_state=0)
    assert relative_error(tensor, found) <= error + 1e-13
    assert found.residual <= error


def test_target_error_finds_the_planted_ranks(rng):
    tensor = planted(rng, (20, 30, 25), (4, 3, 5), 0.2)
    for method in METHODS:
        assert tucker(tensor, error=0.21, method=method, random_state=0).ranks == (4, 3, 5)
    assert tucker(tensor, 1 - 0.21**2).ranks == (4, 3, 5)


def test_fraction_of_energy(rng):
    tensor = rng.standard_normal((8, 9, 10))
    found = tucker(tensor, 0.7)
    kept = np.linalg.norm(found.core) ** 2 / np.linalg.norm(tensor) ** 2
    assert kept >= 0.7
    per_mode = tucker(tensor, (3, 0.5, 0.9), method="hosvd")
    assert per_mode.ranks[0] == 3
    for mode, fraction in ((1, 0.5), (2, 0.9)):
        squares = np.linalg.svd(lt.unfold(tensor, mode), compute_uv=False) ** 2
        needed = 1 + np.argmax(np.cumsum(squares) >= fraction * squares.sum())
        assert per_mode.ranks[mode] == needed


def test_small_singular_values_survive(rng):
    """A Gram loses what is below 1e-8 of the largest; a target below that must still be met."""
    shape = (12, 12, 12)
    core = np.zeros(shape)
    core[np.arange(12), np.arange(12), np.arange(12)] = 10.0 ** -np.arange(12)
    turns = tuple(np.linalg.qr(rng.standard_normal((12, 12)))[0] for _ in shape)
    tensor = lt.TuckerTensor(core, turns).to_dense()
    found = tucker(tensor, error=3e-10)
    assert found.ranks == (10, 10, 10)
    assert relative_error(tensor, found) < 3e-10
    for method in ("auto", "sequential", "hosvd", "hooi", "randomized"):
        assert relative_error(tensor, tucker(tensor, 11, method=method, random_state=0)) < 2e-11


# Kinds of input.


@pytest.mark.parametrize("modes", [(0,), (0, 2), (2, 1), (-1,)])
def test_partial(modes, rng):
    tensor = planted(rng, (10, 12, 9), (3, 4, 2), 0.1)
    ranks = tuple((3, 4, 2)[m] for m in modes)
    found = tucker(tensor, ranks, modes=modes)
    chosen = {m % 3 for m in modes}
    assert found.shape == tensor.shape
    for mode in range(3):
        assert (found.factors[mode] is None) == (mode not in chosen)
        assert found.ranks[mode] == ((3, 4, 2) if mode in chosen else tensor.shape)[mode]
    assert relative_error(tensor, found) == pytest.approx(found.residual, rel=1e-10)
    assert found.residual < 0.1
    assert tucker(tensor, error=0.1, modes=modes).residual <= 0.1


def test_sparse_agrees_with_dense(rng):
    where = np.stack([rng.integers(0, d, 1500) for d in (25, 30, 20)], axis=1)
    sparse = lt.SparseTensor(where, rng.standard_normal(1500), (25, 30, 20))
    dense = sparse.to_dense()
    for method in METHODS:
        ours = tucker(sparse, (3, 4, 2), method=method, random_state=0)
        other = tucker(dense, (3, 4, 2), method=method, random_state=0)
        assert relative_error(dense, ours) == pytest.approx(ours.residual, rel=1e-8)
        assert ours.residual == pytest.approx(other.residual, rel=2e-2)
    assert tucker(sparse, error=0.6, random_state=0).residual <= 0.6
    assert tucker(sparse, 2, nonnegative=True, random_state=0).residual < 1


def test_a_large_sparse_tensor_is_never_made_dense(rng):
    """TensorLy tries 60 GB on a tensor like this (its issue 101)."""
    shape = (3000, 2500, 6000)
    where = np.stack([rng.integers(0, d, 4000) for d in shape], axis=1)
    block = np.argwhere(np.ones((12, 12, 12)))
    rows = np.concatenate([block, block + 12])
    values = np.concatenate([np.full(4000, 0.05), np.repeat([2.0, 1.0], 12**3)])
    sparse = lt.SparseTensor(np.concatenate([where, rows]), values, shape)
    tracemalloc.start()
    found = tucker(sparse, 2, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9  # the dense tensor has 45e9 entries
    assert found.residual < 0.05
    inside = [np.linalg.norm(f[:24]) for f in found.factors]
    assert min(inside) > 0.999 * np.sqrt(2)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_factored_input_is_reduced_exactly(dtype, rng):
    factors = tuple(draw(rng, (d, 4), dtype) for d in (40, 3, 30))
    cp = lt.CPTensor(draw(rng, (4,), dtype), factors)
    for form in (cp, tucker(cp, (4, 3, 4)).tensor):
        for ranks in ((2, 2, 3), (4, 3, 4), (6, 3, 5)):
            closely = {"method": "hooi", "tol": 1e-13, "max_iter": 1000}
            ours = tucker(form, ranks, **closely)
            other = tucker(cp.to_dense(), ranks, **closely)
            assert ours.ranks == ranks
            assert ours.residual == pytest.approx(other.residual, abs=1e-10)
            assert relative_error(cp.to_dense(), ours) == pytest.approx(ours.residual, abs=1e-13)
    huge = lt.CPTensor(None, tuple(rng.standard_normal((20_000, 3)) for _ in range(4)))
    found = tucker(huge, 3)
    assert found.ranks == (3,) * 4
    assert found.residual < 1e-12


def test_moment_tensor_is_contracted(rng):
    samples = rng.standard_normal((400, 3)) ** 3 @ rng.standard_normal((3, 30))
    moment = lt.MomentTensor(samples + 0.1 * rng.standard_normal((400, 30)))
    for method in METHODS:
        ours = tucker(moment, 3, method=method, random_state=0)
        other = tucker(moment.to_dense(), 3, method=method, random_state=0)
        assert ours.residual == pytest.approx(other.residual, rel=1e-2)
    assert tucker(moment, error=0.05, random_state=0).residual <= 0.05


# Nonnegative.


@pytest.mark.parametrize("seed", range(4))
def test_nonnegative_recovers_a_planted_model(seed):
    rng = np.random.default_rng(seed)
    tensor = planted_parts(rng, (15, 12, 14), 2)
    found = tucker(tensor, 2, nonnegative=True, tol=1e-9, random_state=0)
    assert relative_error(tensor, found) < 1e-3
    assert found.residual == pytest.approx(relative_error(tensor, found), abs=1e-7)


def test_nonnegative_never_rises_and_stays_nonnegative(library, rng):
    tensor = planted_parts(rng, (14, 10, 12), 3, 0.2)
    found = tucker(library.array(tensor), (3, 2, 3), nonnegative=True, random_state=0)
    assert (np.diff(found.history) <= 0).all()
    arrays = [found.core, *found.factors]
    assert all((library.host(a) >= 0).all() for a in arrays)
    for factor in found.factors:
        np.testing.assert_allclose(np.linalg.norm(library.host(factor), axis=0), 1.0, atol=1e-12)
    unconstrained = tucker(tensor, (3, 2, 3), random_state=0)
    assert unconstrained.residual <= found.residual < unconstrained.residual + 0.1


def test_nonnegative_from_a_start_and_partial(rng):
    tensor = planted_parts(rng, (10, 8, 9), 2, 0.1)
    first = tucker(tensor, 2, nonnegative=True, max_iter=2, random_state=0)
    before = copy.deepcopy(first)
    second = tucker(tensor, 2, nonnegative=True, init=first)
    assert second.residual <= first.residual * (1 + 1e-12)
    np.testing.assert_array_equal(first.core, before.core)
    partial = tucker(tensor, 2, modes=(0, 2), nonnegative=True, random_state=0)
    assert partial.factors[1] is None
    assert partial.ranks == (2, 8, 2)
    assert partial.residual <= second.residual + 1e-6
    assert relative_error(tensor, partial) == pytest.approx(partial.residual, rel=1e-8)


# The result, the start, the callback.


def test_result_unpacks_pickles_and_shows(rng):
    tensor = rng.standard_normal((6, 5, 4))
    found = tucker(tensor, 2)
    assert isinstance(found, TuckerDecomposition)
    core, factors = found
    assert core is found.core is found.tensor.core
    assert factors is found.factors
    assert len(found) == 2
    assert found[0] is core
    assert found.fit == 1 - found.residual
    assert found.status is Status.CONVERGED
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.core, core)
    assert "6 x 5 x 4, core 2 x 2 x 2" in repr(found)
    np.testing.assert_allclose(found.to_dense(), found.tensor.to_dense())


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bits(method):
    tensor = np.random.default_rng(0).standard_normal((200, 5, 180))
    a, b = (tucker(tensor, 3, method=method, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(a.core, b.core)
    for left, right in zip(a.factors, b.factors, strict=True):
        np.testing.assert_array_equal(left, right)


def test_nonnegative_same_seed_same_bits(rng):
    tensor = planted_parts(rng, (20, 5, 18), 3, 0.1)
    a, b = (tucker(tensor, 2, nonnegative=True, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(a.core, b.core)


def test_start_is_used_and_left_alone(rng):
    tensor = rng.standard_normal((9, 8, 7))
    done = tucker(tensor, 3, method="hooi", tol=1e-12, max_iter=500)
    core, factors = done.core.copy(), [f.copy() for f in done.factors]
    again = tucker(tensor, 3, init=(core, factors))
    assert again.n_iter == 1
    assert again.residual == pytest.approx(done.residual, rel=1e-10)
    for factor, kept in zip(factors, done.factors, strict=True):
        np.testing.assert_array_equal(factor, kept)
    cp = lt.CPTensor(None, tuple(rng.standard_normal((d, 5)) for d in (9, 8, 7)))
    rough = tucker(cp, 3, init=done)
    assert rough.residual <= tucker(cp, 3, method="sequential").residual * 1.2


def test_callback_sees_every_sweep_and_may_stop(rng):
    tensor = rng.standard_normal((9, 8, 7))
    seen = []

    def stop_at_three(progress):
        seen.append((progress.iteration, progress.residual, progress.tensor))
        return progress.iteration == 3

    for settings_ in ({"method": "hooi"}, {"nonnegative": True}):
        seen.clear()
        found = tucker(tensor, 2, tol=0.0, callback=stop_at_three, random_state=0, **settings_)
        assert found.status is Status.STOPPED
        assert [s[0] for s in seen] == [1, 2, 3]
        assert seen[-1][1] == found.history[-1]
        np.testing.assert_allclose(seen[-1][2].to_dense(), found.to_dense(), atol=1e-12)
    limited = tucker(tensor, 2, method="hooi", tol=0.0, max_iter=2)
    assert limited.status is Status.MAX_ITER
    assert limited.n_iter == 2


# Plain, odd and bad input.


@pytest.mark.parametrize("settings_", [{"method": m} for m in METHODS] + [{"nonnegative": True}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_and_constant_tensors(settings_, dtype):
    for value in (0.0, 1.0, 2.5e-20):
        tensor = np.full((4, 5, 6), value, dtype=dtype)
        found = tucker(tensor, (2, 3, 2), random_state=0, **settings_)
        assert found.ranks == (2, 3, 2)
        # Without orthonormal factors the loss is a difference of squares.
        power = 0.5 if "nonnegative" in settings_ else 1.0
        assert found.residual < 10 * np.finfo(dtype).eps ** power
        np.testing.assert_allclose(found.to_dense(), tensor, rtol=1e-4)
        if "method" in settings_:
            assert tucker(tensor, error=0.1, random_state=0, **settings_).ranks == (1, 1, 1)
            for factor in found.factors:
                np.testing.assert_allclose(factor.T @ factor, np.eye(factor.shape[1]), atol=1e-6)


@pytest.mark.parametrize(
    ("value", "dtype"), [(1e200, "float64"), (1e-200, "float64"), (1e30, "float32")]
)
def test_extreme_scales(value, dtype, rng):
    tensor = (planted_parts(rng, (6, 5, 4), 2) * value).astype(dtype)
    for settings_ in ({}, {"method": "sequential"}, {"nonnegative": True, "tol": 1e-9}):
        found = tucker(tensor, 2, random_state=0, **settings_)
        assert found.residual < 1e-3
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(found.to_dense() / value, tensor / value, atol=1e-2)


def test_ranks_above_the_product_of_the_others(rng):
    tensor = rng.standard_normal((10, 3, 2))
    for method in METHODS:
        found = tucker(tensor, (8, 1, 2), method=method, random_state=0)
        assert found.ranks == (8, 1, 2)
        np.testing.assert_allclose(found.factors[0].T @ found.factors[0], np.eye(8), atol=1e-12)
        assert relative_error(tensor, found) == pytest.approx(found.residual, rel=1e-8)


def test_input_is_left_alone_whatever_its_layout(rng):
    tensor = np.asfortranarray(rng.integers(0, 5, (7, 6, 5)))
    tensor.flags.writeable = False
    before = tensor.copy()
    expected = tucker(np.ascontiguousarray(tensor, dtype=float), 2).residual
    for view in (tensor, tensor.tolist(), np.ascontiguousarray(tensor[::-1])[::-1]):
        assert tucker(view, 2).residual == pytest.approx(expected, rel=1e-12)
    assert tucker(tensor, 2, nonnegative=True, random_state=0).core.dtype == np.float64
    np.testing.assert_array_equal(tensor, before)


def test_long_modes_take_little_time_and_memory(rng):
    """TensorLy asks for a 4.5 TiB array here (its issue 526)."""
    tensor = planted(rng, (512, 3, 3, 512), (4, 3, 3, 4), 0.5)
    tucker(tensor, (4, 3, 3, 4), random_state=0)
    for method in METHODS:
        tracemalloc.start()
        found = tucker(tensor, (4, 3, 3, 4), method=method, random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2.5 * tensor.nbytes
        assert found.residual < 0.45
    began = time.process_time()
    tucker(tensor, (4, 3, 3, 4), random_state=0)
    assert time.process_time() - began < 1.0  # a tenth of it on an idle machine


BAD = [
    ({"ranks": 4}, r"ranks=4 exceeds the dimension 3 of mode 1.*ranks=\(4, 3, 4\)"),
    ({"ranks": (2, 5, 2)}, r"ranks\[1\]=5 exceeds the dimension 3 of mode 1"),
    ({"ranks": (2, 9), "modes": (0, 2)}, r"ranks\[1\]=9 exceeds the dimension 5 of mode 2"),
    ({"ranks": 0}, "ranks=0 must be at least 1"),
    ({"ranks": (2, -1, 2)}, r"ranks\[1\]=-1 must be at least 1"),
    ({"ranks": 1.0}, "ranks=1.0 must be an integer"),
    ({"ranks": True}, "ranks=True must be an integer"),
    ({"ranks": "all"}, "ranks='all' must be an integer"),
    ({"ranks": (2, 2)}, "has 2 entries for a tensor of order 3: give 3"),
    ({"ranks": (2, 2, 2), "modes": (0, 1)}, r"has 3 entries for modes=\(0, 1\): give 2"),
    ({"ranks": None}, "give either ranks"),
    ({"ranks": 2, "error": 0.1}, "give either ranks"),
    ({"error": 0.0}, r"error=0.0 must be a number in \(0, 1\)"),
    ({"error": 1.5}, "error=1.5 must be"),
    ({"ranks": 2, "modes": (3,)}, "modes=3 is out of range"),
    ({"ranks": 2, "modes": (0, 0)}, "must name each mode to compress once"),
    ({"ranks": 2, "modes": ()}, "must name each mode to compress once"),
    ({"ranks": 2, "method": "svd"}, "method='svd' must be one of auto"),
    ({"ranks": 2, "method": "sequential", "tol": 1e-3}, "leaves tol without effect"),
    ({"ranks": 2, "method": "hosvd", "init": ()}, "leaves init without effect"),
    ({"error": 0.1, "max_iter": 3}, "leaves max_iter without effect"),
    ({"ranks": 2, "tol": -1}, "tol=-1 must be"),
    ({"ranks": 2, "max_iter": 0}, "max_iter=0 must be"),
    ({"ranks": 0.9, "nonnegative": True}, "nonnegative=True needs ranks as integers"),
    ({"ranks": 2, "nonnegative": True, "method": "hooi"}, "leave method out"),
    ({"ranks": 2, "init": 3}, "init must be a TuckerTensor, a Tucker tensor of TensorLy or pyttb"),
    ({"ranks": 2, "random_state": "x"}, "random_state='x' must be"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments(arguments, message, rng):
    with pytest.raises(lt.InvalidInputError, match=message):
        tucker(rng.standard_normal((4, 3, 5)), **arguments)


def test_bad_tensors_and_starts(rng, library):
    tensor = rng.standard_normal((4, 3, 5))
    for bad in (np.nan, np.inf):
        spoiled = tensor.copy()
        spoiled[2, 1, 3] = bad
        for settings_ in ({"ranks": 2}, {"error": 0.1}, {"ranks": 2, "nonnegative": True}):
            with pytest.raises(lt.InvalidInputError, match=r"tensor holds 1 NaN.*\(2, 1, 3\)"):
                tucker(library.array(spoiled), **settings_)
    with pytest.raises(lt.InvalidInputError, match="single number"):
        tucker(3.0, 1)
    with pytest.raises(lt.InvalidInputError, match="empty"):
        tucker(np.zeros((3, 0, 2)), 1)
    with pytest.raises(lt.InvalidInputError, match="needs a real tensor"):
        tucker(tensor + 0j, 2, nonnegative=True)
    good = tucker(tensor, 2)
    with pytest.raises(lt.InvalidInputError, match=r"ranks \(2, 2, 2\), but .* ranks \(2, 3, 2\)"):
        tucker(tensor, (2, 3, 2), init=good)
    with pytest.raises(lt.InvalidInputError, match="negative entries"):
        tucker(tensor, 2, init=good, nonnegative=True)
    factors = [f.copy() for f in good.factors]
    factors[0][1, 1] = np.nan
    with pytest.raises(lt.InvalidInputError, match=r"init.factors\[0\] holds 1 NaN"):
        tucker(tensor, 2, init=(good.core, factors))
    with pytest.raises(lt.InvalidInputError, match="init is complex"):
        tucker(tensor, 2, init=(good.core + 0j, good.factors))
