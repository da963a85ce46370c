"""What holds for every tensor function: bad input, mixtures, gradients, agreement with TensorLy."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import latensor as lt
from definitions import draw
from latensor import InvalidInputError

T = np.arange(24.0).reshape(2, 3, 4)
F = [np.ones((2, 2)), np.ones((3, 2)), np.ones((4, 2))]
BAD = np.array([[1.0, np.nan], [np.inf, 2.0], [0.0, 0.0]])

REFUSED = {
    "unfold mode": (lambda: lt.unfold(T, 3), r"mode=3 is out of range .* order 3"),
    "unfold negative": (lambda: lt.unfold(T, -4), r"mode=-4 is out of range"),
    "unfold fractional": (lambda: lt.unfold(T, 1.5), r"mode=1.5 must be an integer"),
    "unfold truth": (lambda: lt.unfold(T, True), r"mode=True must be an integer"),
    "unfold order": (lambda: lt.unfold(T, 0, order="K"), r"order='K' must be 'C'"),
    "unfold scalar": (lambda: lt.unfold(3.0, 0), r"tensor is a single number"),
    "unfold empty": (lambda: lt.unfold(np.ones((2, 0, 3)), 0), r"tensor is empty"),
    "unfold object": (lambda: lt.unfold(np.array([[None, 1]]), 0), r"dtype object, not numbers"),
    "unfold text": (lambda: lt.unfold("abc", 0), r"tensor must be an array, not str"),
    "unfold ragged": (lambda: lt.unfold([[1, 2], [3]], 0), r"tensor cannot be read as an array"),
    "unfold dates": (lambda: lt.unfold(np.array(["2020"], "M8[D]"), 0), r"datetime64.* not numb"),
    "unfold half": (lambda: lt.unfold(np.ones(3, "f2"), 0), r"float16, in which contractions"),
    "unfold factored": (lambda: lt.unfold(lt.CPTensor(None, F), 0), r"call tensor.to_dense\(\)"),
    "fold shape": (lambda: lt.fold(np.ones((2, 5)), 0, (2, 3)), r"shape \(2, 5\) is not the"),
    "fold ndim": (lambda: lt.fold(np.ones(6), 0, (2, 3)), r"matrix must be a matrix"),
    "fiber count": (lambda: lt.fiber(T, 0, (1,)), r"must hold 2 indices.*\[1, 2\]"),
    "fiber range": (lambda: lt.fiber(T, 0, (3, 0)), r"the index of mode 1 is 3, out of range"),
    "slice twice": (lambda: lt.matrix_slice(T, (0, 0), (1,)), r"names one mode twice"),
    "slices differ": (
        lambda: lt.from_frontal_slices(np.ones((2, 2)), np.ones((2, 3))),
        r"slices\[1\] has shape \(2, 3\)",
    ),
    "slices none": (lambda: lt.from_frontal_slices(), r"slices is empty"),
    "slices of matrix": (lambda: lt.frontal_slices(np.ones((2, 2))), r"tensor must have order 3"),
    "product width": (lambda: lt.mode_product(T, np.ones((2, 5)), 1), r"must have 3 columns"),
    "product ndim": (lambda: lt.mode_product(T, T, 1), r"matrix must have 3 columns"),
    "multilinear count": (lambda: lt.multilinear(T, None, None), r"2 operands given .* order 3"),
    "multilinear rows": (lambda: lt.multilinear(T, F[0], F[0], F[2]), r"operands\[1\] has 2 rows"),
    "multilinear ndim": (lambda: lt.multilinear(T, T, None, None), r"operands\[0\] must be a vec"),
    "multilinear width": (
        lambda: lt.multilinear(T, np.ones((2, 0)), None, None),
        r"operands\[0\] has no columns",
    ),
    "multilinear nan": (lambda: lt.multilinear(T, None, BAD, None), r"operands\[1\] holds 2 NaN"),
    "tensor nan": (
        lambda: lt.multilinear(np.where(T == 13, np.nan, T), *F),
        r"tensor holds 1 NaN or infinite entries of 24, the first at \(1, 0, 1\)",
    ),
    "mttkrp count": (lambda: lt.mttkrp(T, F[:2], 0), r"2 factors given for a tensor of order 3"),
    "mttkrp rows": (lambda: lt.mttkrp(T, [F[0], F[2], F[2]], 0), r"factors\[1\] has 4 rows"),
    "mttkrp rank": (
        lambda: lt.mttkrp(T, [F[0], np.ones((3, 5)), F[2]], 0),
        r"differ in rank \(columns\): factors\[1\]: 5, factors\[2\]: 2",
    ),
    "mttkrp ndim": (lambda: lt.mttkrp(T, [F[0], np.ones(3), F[2]], 0), r"factors\[1\] must be a m"),
    "mttkrp none": (lambda: lt.mttkrp(T, [None, np.ones((3, 0)), F[2]], 0), r"no columns"),
    "mttkrp mode": (lambda: lt.mttkrp(T, F, 7), r"mode=7 is out of range"),
    "mttkrp cp": (lambda: lt.mttkrp(T, lt.CPTensor(None, F), 0), r"give cp.factors"),
    "mttkrp array": (lambda: lt.mttkrp(T, np.ones((3, 2)), 0), r"must be a sequence of 3 matrices"),
    "mttkrp nan": (lambda: lt.mttkrp(T, [None, BAD, F[2]], 0), r"factors\[1\] holds 2 NaN"),
    "inner shape": (lambda: lt.inner(T, T[:1]), r"a has shape \(2, 3, 4\) but b has shape \(1"),
    "inner nan": (lambda: lt.inner(BAD, BAD), r"a holds 2 NaN"),
    "khatri-rao rank": (lambda: lt.khatri_rao([F[0], T[0]]), r"matrices\[1\] has 4 columns"),
    "khatri-rao ndim": (lambda: lt.khatri_rao([F[0], T]), r"matrices\[1\] must be a matrix"),
    "khatri-rao none": (lambda: lt.khatri_rao([F[0], None]), r"matrices holds None"),
    "hadamard shape": (lambda: lt.hadamard(F[0], F[1]), r"tensors\[1\] has shape \(3, 2\)"),
    "kronecker ndim": (lambda: lt.kronecker(T, T), r"matrices\[0\] must be a matrix"),
    "outer nan": (lambda: lt.outer([1.0, np.nan], [1.0]), r"tensors\[0\] holds 1 NaN"),
    "symmetrize shape": (lambda: lt.symmetrize(T), r"cannot be symmetric"),
    "frobenius nan": (lambda: lt.frobenius_norm(BAD), r"tensor holds 2 NaN"),
    "spectral restarts": (lambda: lt.spectral_norm(T, n_restarts=0), r"n_restarts=0 must be a pos"),
    "spectral nan": (lambda: lt.spectral_norm(BAD), r"tensor holds 2 NaN"),
    "spectral seed": (lambda: lt.spectral_norm(T, random_state="x"), r"random_state='x' must be"),
    "kruskal ndim": (lambda: lt.kruskal_rank(T), r"matrix must be a matrix"),
    "kruskal nan": (lambda: lt.kruskal_rank(BAD), r"matrix holds 2 NaN"),
    "kruskal tol": (lambda: lt.kruskal_rank(F[0], tol=-1), r"tol=-1 must be a number of"),
    "cp ranks": (lambda: lt.CPTensor(None, (F[0], T[0])), r"differ in rank \(columns\): \[2, 4\]"),
    "cp weights": (lambda: lt.CPTensor(np.ones(3), F), r"weights must have shape \(2,\)"),
    "cp nothing": (lambda: lt.CPTensor(None, ()), r"at least one matrix"),
    "cp vector": (lambda: lt.CPTensor(None, (np.ones(3),)), r"factors\[0\] must be a matrix"),
    "cp nan": (lambda: lt.CPTensor(None, (BAD, BAD)).to_dense(), r"factors\[0\] holds 2 NaN"),
    "tucker count": (lambda: lt.TuckerTensor(T, F[:2]), r"2 factors given for a core of order 3"),
    "tucker columns": (lambda: lt.TuckerTensor(T, F), r"factors\[1\] must be a matrix with 3 col"),
    "tucker core": (lambda: lt.TuckerTensor(1.0, ()), r"core must have modes"),
    "tucker nan": (lambda: lt.TuckerTensor(BAD, (None, None)).to_dense(), r"core holds 2 NaN"),
    "moment order": (lambda: lt.MomentTensor(F[0], order=0), r"order=0 must be a positive int"),
    "moment ndim": (lambda: lt.MomentTensor(T), r"samples must be a matrix of samples"),
    "moment empty": (lambda: lt.MomentTensor(np.ones((0, 3))), r"samples must be a matrix of samp"),
    "moment weights": (lambda: lt.MomentTensor(F[1], np.ones(2)), r"weights must have shape \(3"),
    "moment nan": (lambda: lt.MomentTensor(BAD), r"samples holds 2 NaN .* first at \(0, 1\)"),
    "moment views": (lambda: lt.MomentTensor((F[0], F[1])), r"samples\[0\]: 2, samples\[1\]: 3"),
    "moment both": (lambda: lt.MomentTensor((F[0], F[0]), order=3), r"leave order out"),
    "moment no views": (lambda: lt.MomentTensor(()), r"empty tuple"),
    "moment none": (lambda: lt.MomentTensor((F[0], None)), r"samples\[1\] is None"),
    "cp none": (lambda: lt.CPTensor(None, (F[0], None)), r"factors\[1\] is None"),
    "tucker none": (lambda: lt.TuckerTensor(None, (F[0],)), r"core is None"),
    "mttkrp missing": (lambda: lt.mttkrp(T, [None, None, F[2]], 0), r"factors\[1\] is None"),
    "sweep missing": (lambda: lt.sweep(T, [None, *F[1:]]), r"factors\[0\] is None"),
    "fold fraction": (lambda: lt.fold(np.ones((2, 12)), 0, (2, 3.5, 4)), r"shape\[1\]=3.5 must"),
    "fold number": (lambda: lt.fold(np.ones((2, 12)), 0, 24), r"shape=24 must be a sequence"),
    "fiber number": (lambda: lt.fiber(T, 0, 1), r"at=1 must be a sequence"),
    "slice number": (lambda: lt.matrix_slice(T, 0, (0,)), r"modes=0 must name two modes"),
    "product nan": (lambda: lt.mode_product(T, BAD.T, 1), r"matrix holds 2 NaN"),
    "product empty": (lambda: lt.mode_product(T, np.ones((0, 3)), 1), r"matrix is empty"),
    "outer empty": (lambda: lt.outer(np.ones(2), np.ones(0)), r"tensors\[1\] is empty"),
    "symmetrize nan": (lambda: lt.symmetrize(BAD[:2]), r"tensor holds 2 NaN"),
    "masked": (lambda: lt.frobenius_norm(np.ma.masked_invalid(BAD)), r"masked array"),
    "sparse masked": (lambda: lt.SparseTensor.from_dense(np.ma.masked_invalid(BAD)), r"masked"),
    "tucker norm nan": (lambda: lt.TuckerTensor(BAD, (None, None)).norm(), r"core holds 2 NaN"),
    "decompose nan": (lambda: lt.decompose(lt.TuckerTensor(BAD, (None, None)), 1), r"2 NaN"),
    "inner cp nan": (lambda: lt.inner(lt.CPTensor([np.nan, 1], F), T), r"a.weights holds 1 NaN"),
    "inner tucker nan": (lambda: lt.inner(BAD, lt.TuckerTensor(BAD, (None,) * 2)), r"a holds 2"),
    "cp too large": (
        lambda: lt.CPTensor(None, (np.ones((10**5, 1)),) * 8).to_dense(),
        r"entries, 8e\+29 TB|above max_size",
    ),
    "tucker too large": (
        lambda: lt.TuckerTensor(np.ones((1,) * 4), (np.ones((10**4, 1)),) * 4).to_dense(),
        r"above max_size=134,217,728",
    ),
    "max_size": (lambda: lt.CPTensor(None, F).to_dense(max_size=None), r"max_size=None must be"),
    "kruskal tol text": (lambda: lt.kruskal_rank(F[0], tol="a"), r"tol='a' must be a number"),
    "kruskal tol nan": (lambda: lt.kruskal_rank(F[0], tol=np.nan), r"tol=nan must be a number"),
    "spectral tol": (lambda: lt.spectral_norm(T, tol="x"), r"tol='x' must be a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_a_clear_error(name):
    call, text = REFUSED[name]
    with pytest.raises(InvalidInputError, match=text):
        call()


@pytest.mark.parametrize("kind", ["dense", "cp", "sparse"])
def test_sweeps_check_modes_and_replacements(kind):
    tensor = {"dense": T, "cp": lt.CPTensor(None, F), "sparse": lt.SparseTensor.from_dense(T)}[kind]
    run = lt.sweep(tensor, F)
    np.testing.assert_allclose(run.mttkrp(-1), run.mttkrp(2))
    with pytest.raises(InvalidInputError, match="mode=7 is out of range"):
        run.mttkrp(7)
    with pytest.raises(InvalidInputError, match="mode=3 is out of range"):
        run.replace(3, F[0])
    with pytest.raises(InvalidInputError, match=r"mode 1 must have shape \(3, 2\)"):
        run.replace(1, F[0])
    run.replace(0, [[1, 2], [3, 4]])
    expected = lt.mttkrp(tensor, [np.array([[1.0, 2], [3, 4]]), *F[1:]], 1)
    np.testing.assert_allclose(run.mttkrp(1), expected)

    def poisoned():
        run.replace(0, np.array([[np.nan, 2], [3, 4]]))
        return run.mttkrp(1)

    with pytest.raises(InvalidInputError, match="holds 1 NaN"):
        poisoned()
    with pytest.raises(InvalidInputError):
        lt.sweep(tensor, F[:2])


def test_sparse_contraction_finds_nan_where_no_entry_is():
    sparse = lt.SparseTensor([[0, 0, 1]], [1.0], (2, 3, 4))
    bad = np.array([np.nan, 1, 1, 1])
    with pytest.raises(InvalidInputError, match=r"operands\[2\] holds 1 NaN"):
        sparse.contract(None, None, bad)
    with pytest.raises(InvalidInputError, match=r"factors\[2\] holds 1 NaN"):
        sparse.mttkrp([None, np.ones((3, 1)), bad[:, None]], 0)


def test_lists_of_arrays_and_numbers_are_arrays():
    rows = [np.ones(3), np.zeros(3)]
    assert lt.unfold(rows, 0).shape == (2, 3)
    assert lt.MomentTensor(rows, list(np.ones(2))).shape == (3, 3, 3)
    assert lt.CPTensor(list(np.ones(2)), F).rank == 2
    single = tuple(factor.astype("float32") for factor in F)
    assert lt.CPTensor([1.0, 2.0], single).to_dense().dtype == np.float32


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
def test_a_shared_factor_stays_shared_through_conversion(dtype):
    factor = np.ones((3, 2), dtype)
    assert lt.CPTensor([1.0, 2.0], (factor,) * 3).is_symmetric
    assert lt.CPTensor(np.ones(2), (factor,) * 3).is_symmetric


def test_a_tensor_of_ones_own_kind_is_enough():
    class Own:
        shape = T.shape
        reference = T

        def contract(self, *operands):
            return lt.multilinear(T, *operands)

        def mttkrp(self, factors, mode):
            return lt.mttkrp(T, factors, mode)

        def norm(self):
            return lt.frobenius_norm(T)

        def sweep(self, factors):
            return lt.sweep(T, factors)

    assert isinstance(Own(), lt.Contractible)
    assert lt.inner(Own(), T) == pytest.approx(lt.inner(T, T))
    assert lt.inner(T, Own()) == pytest.approx(lt.inner(T, T))
    assert lt.inner(lt.CPTensor(None, F), Own()) == pytest.approx(T.sum() * 2)
    assert lt.spectral_norm(Own()).lower == pytest.approx(lt.spectral_norm(T).lower)
    assert lt.decompose(Own(), 2, random_state=0).residual < 1e-2


def test_dense_tensors_survive_pickling():
    import pickle

    from latensor.tensors import DenseTensor

    again = pickle.loads(pickle.dumps(DenseTensor(T)))
    np.testing.assert_array_equal(again.array, T)


def test_overflow_is_not_blamed_on_the_input():
    huge = np.full((2, 2), 1e300)
    with np.errstate(over="ignore"):
        assert np.isinf(lt.multilinear(huge, np.full(2, 1e300), np.ones(2)))


def test_mixing_libraries_names_both_arguments():
    torch = pytest.importorskip("torch")
    with pytest.raises(
        InvalidInputError, match=r"tensor is a numpy array but factors\[1\] is a torch"
    ):
        lt.mttkrp(T, [None, torch.ones(3, 2), F[2]], 0)
    with pytest.raises(
        InvalidInputError, match=r"factors\[1\]: torch on cpu, float32, shape \(3, 2\)"
    ):
        lt.mttkrp(T, [None, torch.ones(3, 2), F[2]], 0)
    with pytest.raises(InvalidInputError, match=r"weights is a torch array but factors\[0\]"):
        lt.CPTensor(torch.ones(2), F)
    with pytest.raises(InvalidInputError, match="one library"):
        lt.inner(torch.ones(2, 3, 4), T)
    sparse = lt.SparseTensor.from_dense(T)
    with pytest.raises(InvalidInputError, match="torch"):
        sparse.mttkrp([torch.ones(d, 2) for d in T.shape], 0)


def test_mixing_devices_names_both_arguments():
    torch = pytest.importorskip("torch")
    elsewhere = torch.ones(3, 2, device="meta")
    with pytest.raises(InvalidInputError, match=r"tensor is on cpu but operands\[1\] is on meta"):
        lt.multilinear(torch.asarray(T), None, elsewhere, None)


# Contractions through which a gradient must flow, as functions of a tensor and three factors.
CONTRACTIONS = {
    "multilinear": lambda t, a, b, c: lt.multilinear(t, a, b, c),
    "partial": lambda t, a, b, c: lt.multilinear(t, a, None, c[:, 0]),
    "mode_product": lambda t, a, b, c: lt.mode_product(t, b.T, 1),
    "mttkrp 0": lambda t, a, b, c: lt.mttkrp(t, [a, b, c], 0),
    "mttkrp 1": lambda t, a, b, c: lt.mttkrp(t, [a, b, c], 1),
    "mttkrp 2": lambda t, a, b, c: lt.mttkrp(t, [a, b, c], 2),
    "sweep": lambda t, a, b, c: lt.sweep(t, [a, b, c]).mttkrp(1),
    "cp": lambda t, a, b, c: lt.CPTensor(None, (a, b, c)).to_dense() * t,
    "cp norm": lambda t, a, b, c: lt.CPTensor(None, (a, b, c)).norm() * t,
    "cp inner": lambda t, a, b, c: lt.inner(lt.CPTensor(None, (a, b, c)), t),
    "cp normalized": lambda t, *f: lt.CPTensor(None, f).normalized().weights * t[0, 0, :2],
    "tucker": lambda t, a, b, c: lt.TuckerTensor(t, (a.T, b.T, c.T)).to_dense(),
    "tucker norm": lambda t, a, b, c: lt.TuckerTensor(t, (a.T, b.T, c.T)).norm(),
    "tucker inner": lambda t, a, b, c: lt.inner(lt.TuckerTensor(t, (None, None, None)), t),
    "moment": lambda t, a, b, c: lt.MomentTensor(b).contract(None, a[0], a[0]) * t[0, 0, 0],
    "moment mttkrp": lambda t, a, b, c: lt.MomentTensor(b).mttkrp([a.T @ a] * 3, 0) * t[0, 0, 0],
    "khatri_rao": lambda t, a, b, c: lt.khatri_rao([a, b, c]),
    "kronecker": lambda t, a, b, c: lt.kronecker(a, b),
    "outer": lambda t, a, b, c: lt.outer(a[:, 0], b[:, 0], c[:, 0]),
    "hadamard": lambda t, a, b, c: lt.hadamard(a, a),
    "inner": lambda t, a, b, c: lt.inner(t, t),
    "symmetrize": lambda t, a, b, c: lt.symmetrize(lt.multilinear(t, a, b, c)),
    "unfold": lambda t, a, b, c: lt.fold(lt.unfold(t, 1), 1, (2, 3, 4)),
    "frobenius": lambda t, a, b, c: lt.frobenius_norm(t),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_gradients_flow_in_torch_and_jax(name, rng):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    call = CONTRACTIONS[name]
    values = [draw(rng, (2, 3, 4)), *(draw(rng, (d, 2)) for d in (2, 3, 4))]
    given = [torch.asarray(v).requires_grad_() for v in values]
    (call(*given) ** 2).sum().backward()
    ours = [np.zeros(v.shape) if v.grad is None else v.grad.numpy() for v in given]

    def loss(*arrays):
        return (call(*arrays) ** 2).sum()

    theirs = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*map(jax.numpy.asarray, values))
    assert any(np.abs(gradient).max() > 0 for gradient in ours)
    for index, value in enumerate(values):
        np.testing.assert_allclose(ours[index], np.asarray(theirs[index]), atol=1e-9)
        direction = draw(rng, value.shape)
        step = 1e-6
        up, down = (
            [*values[:index], value + s * direction, *values[index + 1 :]] for s in (step, -step)
        )
        slope = (np.sum(call(*up) ** 2) - np.sum(call(*down) ** 2)) / (2 * step)
        expected = float((ours[index] * direction).sum())
        assert slope == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_tensorly_agrees_with_every_shared_function(seed):
    tl = pytest.importorskip("tensorly")
    from tensorly import tenalg

    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 7, size=rng.integers(2, 6)))
    tensor, factors = draw(rng, shape), [draw(rng, (d, 4)) for d in shape]
    weights = draw(rng, 4)
    close = {"rtol": 1e-12, "atol": 1e-12 * np.linalg.norm(tensor) * 4 ** len(shape)}
    cp = lt.CPTensor(weights, tuple(factors))
    for mode, d in enumerate(shape):
        unfolded = lt.unfold(tensor, mode)
        np.testing.assert_array_equal(unfolded, tl.unfold(tensor, mode))
        np.testing.assert_array_equal(
            lt.fold(unfolded, mode, shape), tl.fold(unfolded, mode, shape)
        )
        matrix = draw(rng, (3, d))
        np.testing.assert_allclose(
            lt.mode_product(tensor, matrix, mode), tenalg.mode_dot(tensor, matrix, mode), **close
        )
        np.testing.assert_allclose(
            lt.mode_product(tensor, matrix[0], mode),
            tenalg.mode_dot(tensor, matrix[0], mode),
            **close,
        )
        theirs = tenalg.unfolding_dot_khatri_rao(tensor, (None, factors), mode)
        np.testing.assert_allclose(lt.mttkrp(tensor, factors, mode), theirs, **close)
    np.testing.assert_allclose(
        lt.multilinear(tensor, *factors),
        tenalg.multi_mode_dot(tensor, factors, transpose=True),
        **close,
    )
    np.testing.assert_allclose(lt.khatri_rao(factors), tenalg.khatri_rao(factors), **close)
    np.testing.assert_allclose(lt.kronecker(factors[:2]), tenalg.kronecker(factors[:2]), **close)
    np.testing.assert_allclose(
        lt.outer([f[:, 0] for f in factors]), tenalg.outer([f[:, 0] for f in factors]), **close
    )
    assert lt.inner(tensor, tensor + 1) == pytest.approx(
        tenalg.inner(tensor, tensor + 1), rel=1e-12
    )
    assert lt.frobenius_norm(tensor) == pytest.approx(tl.norm(tensor), rel=1e-12)
    np.testing.assert_allclose(cp.to_dense(), tl.cp_to_tensor((weights, factors)), **close)
    assert cp.norm() == pytest.approx(tl.cp_tensor.cp_norm((weights, factors)), rel=1e-12)
    core, wide = draw(rng, (2,) * len(shape)), [draw(rng, (d, 2)) for d in shape]
    np.testing.assert_allclose(
        lt.TuckerTensor(core, tuple(wide)).to_dense(), tl.tucker_to_tensor((core, wide)), **close
    )
    complex_factors = [draw(rng, (d, 2), "complex128") for d in shape]
    theirs = tenalg.unfolding_dot_khatri_rao(tensor, (None, complex_factors), 0)
    np.testing.assert_allclose(lt.mttkrp(tensor, complex_factors, 0), theirs, **close)


def test_tensorly_objects_go_in_and_out(rng):
    tl = pytest.importorskip("tensorly")
    cp = lt.CPTensor(draw(rng, 2), tuple(draw(rng, (d, 2)) for d in (3, 4, 2)))
    theirs = cp.to_tensorly()
    np.testing.assert_allclose(theirs.to_tensor(), cp.to_dense(), atol=1e-13)
    for back in (lt.from_tensorly(theirs), lt.from_tensorly((cp.weights, list(cp.factors)))):
        np.testing.assert_array_equal(back.to_dense(), cp.to_dense())
    assert lt.from_tensorly((None, list(cp.factors))).rank == 2
    assert float(lt.frobenius_norm(theirs)) == pytest.approx(float(cp.norm()))
    tucker = lt.TuckerTensor(draw(rng, (2, 3)), (draw(rng, (4, 2)), None))
    np.testing.assert_allclose(tucker.to_tensorly().to_tensor(), tucker.to_dense(), atol=1e-13)
    back = lt.from_tensorly(tucker.to_tensorly())
    assert isinstance(back, lt.TuckerTensor)
    np.testing.assert_allclose(back.to_dense(), tucker.to_dense(), atol=1e-13)
    assert isinstance(
        lt.from_tensorly(tl.cp_tensor.CPTensor((None, list(cp.factors)))), lt.CPTensor
    )
    for wrong in (3, (1, 2, 3), (draw(rng, (2, 2)), list(cp.factors))):
        with pytest.raises(InvalidInputError):
            lt.from_tensorly(wrong)


def test_pyttb_objects_go_in_and_out(rng):
    ttb = pytest.importorskip("pyttb")
    cp = lt.CPTensor(draw(rng, 2), tuple(draw(rng, (d, 2)) for d in (3, 4, 2)))
    theirs = cp.to_pyttb()
    np.testing.assert_allclose(theirs.full().double(), cp.to_dense(), atol=1e-13)
    np.testing.assert_allclose(lt.from_pyttb(theirs).to_dense(), cp.to_dense(), atol=1e-13)
    tucker = lt.TuckerTensor(draw(rng, (2, 3)), (draw(rng, (4, 2)), None))
    back = lt.from_pyttb(tucker.to_pyttb())
    np.testing.assert_allclose(back.to_dense(), tucker.to_dense(), atol=1e-13)
    dense = ttb.tensor(np.asfortranarray(T))
    np.testing.assert_array_equal(lt.from_pyttb(dense), T)
    assert float(lt.frobenius_norm(dense)) == pytest.approx(np.linalg.norm(T))
    sparse = lt.SparseTensor.from_dense(T)
    np.testing.assert_array_equal(lt.from_pyttb(sparse.to_pyttb()).to_dense(), T)
    with pytest.raises(InvalidInputError, match="expected a pyttb"):
        lt.from_pyttb(T)


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_import_is_light_and_lazy():
    heavy = "torch jax numba matplotlib sklearn pandas tensorly pyttb sparse"
    code = f"import sys, latensor; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert run_python(code) == "[]"
    assert run_python(code.replace(";", "; latensor.unfold; latensor.CPTensor;", 1)) == "[]"


def test_import_costs_little_more_than_scipy_linalg():
    def seconds(module):
        code = (
            f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
        )
        return min(float(run_python(code)) for _ in range(3))

    assert seconds("latensor") <= seconds("scipy.linalg") + 0.1


def test_every_public_name_resolves_and_is_listed():
    for name in lt.__all__:
        assert getattr(lt, name) is not None
        assert name in dir(lt)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lt.nothing  # noqa: B018


@pytest.mark.parametrize(
    "call", [lambda t: lt.decompose(t, 2), lambda t: lt.tucker(t, 2), lambda t: lt.spectral_norm(t)]
)
def test_a_tensor_without_entries_is_refused(call):
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match=r'tensor of shape \(3, 4, 5\) is on the device "m'):
        call(torch.empty(3, 4, 5, device="meta"))


def test_arrays_of_other_libraries_give_no_warning_of_theirs():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    fit = lt.decompose(T, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lt.certify(fit, torch.tensor(T, requires_grad=True))
        lt.spectral_norm(jnp.asarray(T))
        lt.tucker(jnp.asarray(T), 1, mask=np.arange(T.size).reshape(T.shape) > 0)
