import threading
import warnings

import numpy as np
import pytest

from latensor.arrays import like, to_host
from latensor.decomposition import (
    AlternatingLeastSquares,
    Automatic,
    Decomposition,
    GaussNewton,
    Progress,
    Status,
    decompose,
)
from latensor.exceptions import InvalidInputError
from latensor.tensors import CPTensor, DenseTensor, MomentTensor, SparseTensor, TuckerTensor

from .planted import compose, planted, relative_error, worst_match

ALGORITHMS = [Automatic(), AlternatingLeastSquares(), GaussNewton()]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_every_algorithm_returns_the_same_kind_of_answer(algorithm):
    tensor, _ = planted(1, (9, 8, 7), 3, noise=0.1)
    result = decompose(tensor, 3, algorithm=algorithm, random_state=0)
    assert isinstance(result, Decomposition)
    weights, factors = result
    assert weights is result.weights
    assert factors is result.factors
    assert len(result) == 2
    assert result[0] is weights
    assert result.rank == 3
    assert result.fit == pytest.approx(1 - result.residual)
    assert result.residual == pytest.approx(relative_error(result, tensor), rel=1e-6)
    assert result.history.shape == (result.n_iter,)
    assert "tol" in str(Status.CONVERGED)
    assert "CONVERGED" in repr(result)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_components_come_in_a_fixed_order_and_sign(algorithm):
    tensor, _ = planted(2, (9, 8, 7), 3, noise=0.1)
    result = decompose(tensor, 3, algorithm=algorithm, random_state=0)
    assert np.all(np.diff(np.abs(result.weights)) <= 0)
    for factor in result.factors:
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1.0, atol=1e-12)
        assert np.all(factor[np.abs(factor).argmax(axis=0), np.arange(3)] > 0)


def test_negated_tensor_has_negated_weights():
    tensor, _ = planted(3, (9, 8, 7), 3)
    one = decompose(tensor, 3, random_state=0)
    other = decompose(-tensor, 3, random_state=0)
    np.testing.assert_allclose(one.weights, -other.weights, rtol=1e-8)
    for a, b in zip(one.factors, other.factors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_equal_weights_are_ordered_by_the_first_large_entry():
    identity = np.eye(4)
    tensor = compose([identity[:, [2, 0, 3, 1]]] * 3)
    result = decompose(tensor, 4, random_state=5)
    np.testing.assert_allclose(result.factors[0], identity, atol=1e-7)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_same_seed_gives_the_same_bits(algorithm):
    tensor, _ = planted(4, (30, 40, 35), 4, noise=0.2)

    def run():
        return decompose(tensor, 4, algorithm=algorithm, random_state=7, max_iter=30)

    first = run()
    results = [run()]
    thread = threading.Thread(target=lambda: results.append(run()))
    np.random.default_rng(0).standard_normal(10)
    thread.start()
    thread.join()
    for result in results:
        np.testing.assert_array_equal(first.weights, result.weights)
        for a, b in zip(first.factors, result.factors, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "tensor", "rank"),
    [
        ("zeros", np.zeros((4, 5, 6)), 3),
        ("ones", np.ones((4, 5, 6)), 3),
        ("large ones", np.ones((50, 40, 45)), 4),
        ("constant", np.full((3, 3, 3), -2.5), 2),
        ("rank one", np.einsum("i,j,k->ijk", *[RNG.standard_normal(40) for _ in range(3)]), 5),
        ("one slice", np.pad(np.ones((1, 4, 5)), ((2, 3), (0, 0), (0, 0))), 3),
        ("single entry", np.ones((1, 1, 1)), 1),
        ("vector", RNG.standard_normal(7), 1),
        ("matrix", RNG.standard_normal((4, 3)), 3),
        ("zero vector", np.zeros(5), 1),
        ("thin", np.ones((1, 9, 1)), 1),
        ("as many components as can be", RNG.standard_normal((2, 2, 2)), 4),
    ],
)
@pytest.mark.parametrize("algorithm", ["auto", AlternatingLeastSquares()], ids=["auto", "als"])
def test_degenerate_tensors_have_a_valid_answer(name, tensor, rank, algorithm):
    result = decompose(tensor, rank, algorithm=algorithm, random_state=0)
    assert relative_error(result, tensor) < 1e-6
    assert result.rank == rank
    assert np.isfinite(result.weights).all()
    assert all(np.isfinite(f).all() for f in result.factors)
    assert result.residual < 1e-6


@pytest.mark.parametrize("shape", [(30, 20), (6, 50), (300, 200)])
def test_a_matrix_gets_its_singular_vectors(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    result = decompose(matrix, 4, random_state=0)
    values = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(np.abs(result.weights), values[:4], rtol=1e-10)
    best = np.sqrt(np.sum(values[4:] ** 2)) / np.linalg.norm(values)
    assert result.residual == pytest.approx(best, rel=1e-10)


@pytest.mark.parametrize("scale", [1e-200, 1e-80, 1e80, 1e200])
def test_scale_does_not_matter(scale):
    tensor, _ = planted(5, (9, 8, 7), 3, noise=0.1)
    plain = decompose(tensor, 3, random_state=0)
    scaled = decompose(tensor * scale, 3, random_state=0)
    np.testing.assert_allclose(scaled.weights / scale, plain.weights, rtol=1e-6)
    assert scaled.residual == pytest.approx(plain.residual, rel=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS[:2], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex64, np.complex128])
def test_dtype_is_kept(algorithm, dtype):
    tensor = (np.random.default_rng(0).standard_normal((20, 19, 18)) * 10).astype(dtype)
    tensor.setflags(write=False)
    result = decompose(tensor, 2, algorithm=algorithm, random_state=0, max_iter=20)
    expected = np.float64 if dtype == np.int64 else dtype
    assert result.weights.dtype == expected
    assert all(f.dtype == expected for f in result.factors)


def test_single_precision_loses_no_more_than_its_digits():
    tensor, factors = planted(6, (40, 50, 45), 4)
    result = decompose(tensor.astype(np.float32), 4, random_state=0)
    assert result.residual < 100 * np.finfo(np.float32).eps
    assert worst_match(result, factors) > 1 - 1e-5


@pytest.mark.parametrize("layout", ["fortran", "reversed", "strided", "read only"])
def test_memory_layout_does_not_matter(layout):
    tensor, _ = planted(7, (12, 11, 10), 3, noise=0.1)
    views = {
        "fortran": np.asfortranarray(tensor),
        "reversed": np.ascontiguousarray(tensor[::-1])[::-1],
        "strided": np.repeat(tensor, 2, axis=2)[:, :, ::2],
        "read only": tensor,
    }
    view = views[layout]
    view.setflags(write=False)
    copy = view.copy()
    expected = decompose(np.ascontiguousarray(tensor), 3, random_state=0)
    result = decompose(view, 3, random_state=0)
    np.testing.assert_array_equal(view, copy)
    np.testing.assert_array_equal(result.weights, expected.weights)


def _library(name):
    return pytest.importorskip(name)


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"algorithm": AlternatingLeastSquares()},
        {"algorithm": GaussNewton()},
        {"nonnegative": True},
        {"ridge": 0.1},
        {"symmetric": True},
    ],
    ids=lambda o: next(iter(o), "auto"),
)
def test_arrays_of_other_libraries_come_back_as_such(name, options):
    module = _library(name)
    rng = np.random.default_rng(8)
    factor = np.abs(rng.standard_normal((21, 3)))
    tensor = compose([factor] * 3)
    given = module.asarray(tensor.astype(np.float32))
    result = decompose(given, 3, random_state=0, **options)
    assert type(result.weights) is type(given)
    assert all(type(f) is type(given) for f in result.factors)
    assert result.weights.dtype == given.dtype
    host = CPTensor(to_host(result.weights), tuple(to_host(f) for f in result.factors))
    assert relative_error(host, tensor) < (0.2 if "ridge" in options else 2e-3)


def test_double_precision_torch_agrees_with_numpy():
    torch = _library("torch")
    tensor, _ = planted(9, (40, 30, 35), 3, noise=0.1)
    ours = decompose(tensor, 3, random_state=0)
    theirs = decompose(torch.asarray(tensor), 3, random_state=0)
    np.testing.assert_allclose(to_host(theirs.weights), ours.weights, rtol=1e-3)
    assert theirs.residual == pytest.approx(ours.residual, rel=1e-5)


@pytest.mark.parametrize("kind", ["cp", "tucker", "sparse", "moment", "dense"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_every_kind_of_tensor_is_decomposed(kind, algorithm):
    rng = np.random.default_rng(10)
    factors = [rng.standard_normal((d, 3)) for d in (30, 30, 30)]
    weights = np.array([3.0, 2.0, 1.0])
    dense = compose(factors, weights)
    tensors = {
        "cp": CPTensor(weights, tuple(factors)),
        "tucker": TuckerTensor(compose([np.eye(3)] * 3, weights), tuple(factors)),
        "sparse": SparseTensor.from_dense(dense),
        "moment": MomentTensor(factors[0].T, weights=weights, order=3),
        "dense": DenseTensor(dense),
    }
    if kind == "moment":
        dense = compose([factors[0]] * 3, weights / weights.sum())
        dense *= np.linalg.norm(to_host(tensors[kind].contract(None, None, None))) / np.linalg.norm(
            dense
        )
    result = decompose(tensors[kind], 3, algorithm=algorithm, random_state=1)
    assert relative_error(result, dense) < 1e-5


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_callback_sees_the_state_and_may_stop(algorithm):
    tensor, _ = planted(11, (40, 30, 35), 4, noise=0.3, collinearity=0.6)
    seen = []

    def callback(state):
        assert isinstance(state, Progress)
        seen.append((state.iteration, state.residual, state.tensor))
        return state.iteration == 3

    result = decompose(tensor, 4, algorithm=algorithm, random_state=0, callback=callback, tol=0.0)
    assert result.status is Status.STOPPED
    assert [iteration for iteration, _, _ in seen] == [1, 2, 3]
    assert result.n_iter == 3
    for _, residual, cp in seen:
        assert isinstance(cp, CPTensor)
        assert residual == pytest.approx(relative_error(cp, tensor), rel=1e-6)
    assert result.residual == pytest.approx(seen[-1][1], rel=1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_target_and_max_iter_end_a_run(algorithm):
    tensor, _ = planted(12, (14, 13, 12), 4, noise=0.2, collinearity=0.8)
    early = decompose(tensor, 4, algorithm=algorithm, random_state=0, target=0.5)
    assert early.status is Status.TARGET_REACHED
    assert relative_error(early, tensor) <= 0.5
    short = decompose(tensor, 4, algorithm=algorithm, random_state=0, max_iter=2, tol=0.0)
    assert short.status is Status.MAX_ITER
    assert short.n_iter == 2
    assert "max_iter" in str(short.status)


@pytest.mark.parametrize(
    ("tensor", "rank", "options", "message"),
    [
        (np.ones((3, 3, 3)), 0, {}, "rank=0"),
        (np.ones((3, 3, 3)), -2, {}, "rank=-2"),
        (np.ones((3, 3, 3)), 1.5, {}, "rank=1.5"),
        (np.ones((3, 3, 3)), True, {}, "rank=True"),
        (np.array(3.0), 1, {}, "at least one mode"),
        (np.ones((3, 0, 3)), 1, {}, "empty"),
        ("tensor", 1, {}, "tensor"),
        (np.array([[["a"]]]), 1, {}, "dtype"),
        (np.ones((3, 3, 3)), 2, {"algorithm": "newton"}, "must be one of auto, als"),
        (np.ones((2, 2, 2)), 1000, {}, "rank=1000 is above 4, the product"),
        (np.ones((3, 3, 3)), 2, {"nonnegative": "no"}, "nonnegative='no'"),
        (np.ones((3, 3, 3)), 2, {"nonnegative": (0, 3)}, "nonnegative"),
        (np.ones((3, 3, 3)), 2, {"nonnegative": 1}, "nonnegative=1"),
        (np.ones((3, 3, 3)), 2, {"ridge": -1.0}, "ridge"),
        (np.ones((3, 3, 3)), 2, {"algorithm": "shared_factor", "symmetric": False}, "one factor"),
        (np.ones((3, 3, 3)), 2, {"random_state": "seed"}, "random_state"),
        (np.ones((3, 3, 3)), 2, {"tol": -1.0}, "tol"),
        (np.ones((3, 3, 3)), 2, {"max_iter": 0}, "max_iter"),
        (np.ones((3, 3, 3)), 2, {"fixed_modes": [0]}, "needs init"),
        (np.ones((3, 4, 3)), 2, {"symmetric": True}, "not symmetric"),
        (np.arange(27.0).reshape(3, 3, 3), 2, {"symmetric": True}, "not symmetric.*of its norm"),
        (np.ones((3, 3, 3)) * 1j, 2, {"nonnegative": True}, "complex"),
    ],
)
def test_bad_input_is_refused(tensor, rank, options, message):
    with pytest.raises(InvalidInputError, match=message):
        decompose(tensor, rank, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS[1:]], ids=["auto", "als", "newton"])
def test_nonfinite_entries_are_refused_with_their_position(bad, algorithm):
    tensor = np.ones((4, 5, 6))
    tensor[1, 2, 3] = bad
    with pytest.raises(InvalidInputError, match=r"1 NaN or infinite.*\(1, 2, 3\)"):
        decompose(tensor, 2, algorithm=algorithm)


def test_nonfinite_entries_on_a_device_are_refused_too():
    torch = _library("torch")
    tensor = torch.ones((4, 5, 6))
    tensor[1, 2, 3] = float("nan")
    with pytest.raises(InvalidInputError, match=r"\(1, 2, 3\)"):
        decompose(tensor, 2)


def test_callback_works_with_zero_tolerance():
    tensor, _ = planted(13, (6, 5, 4), 2)
    seen = []
    decompose(tensor, 2, tol=0.0, max_iter=5, callback=seen.append, random_state=0)
    assert seen


def test_values_like_reference_are_not_aliased():
    tensor, factors = planted(14, (6, 5, 4), 2)
    result = decompose(
        tensor,
        2,
        algorithm=AlternatingLeastSquares(max_iter=1),
        init=(None, factors),
        fixed_modes=(0,),
    )
    assert not np.shares_memory(result.factors[0], factors[0])
    assert like(1.0, tensor).dtype == tensor.dtype


@pytest.mark.parametrize(
    "options",
    [{"algorithm": name} for name in ("auto", "als", "gauss_newton")]
    + [{"ridge": 1e-3}, {"fixed_modes": (0,)}, {"algorithm": "als", "fixed_modes": (0,)}],
)
def test_a_real_start_serves_a_complex_tensor(options):
    rng = np.random.default_rng(15)
    real = CPTensor(None, tuple(rng.standard_normal((d, 2)) for d in (4, 5, 6)))
    turned = CPTensor(None, tuple(f * (1 + 0.3j) for f in real.factors))
    with warnings.catch_warnings():
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        result = decompose(turned.to_dense(), 2, init=real, **options)
    assert result.factors[1].dtype == np.complex128
    assert result.residual < (1e-2 if "ridge" in options else 1e-7)
    with pytest.raises(InvalidInputError, match="init is complex, but the tensor is real"):
        decompose(real.to_dense(), 2, init=turned, **options)


def test_factors_that_no_memory_holds_are_refused():
    indices = np.array([[0, 0, 0], [999_999_999, 1, 1]])
    tensor = SparseTensor(indices, np.ones(2), (1_000_000_000, 2, 2))
    with pytest.raises(InvalidInputError, match=r"3,000,000,012 entries.*indices that occur"):
        decompose(tensor, 3)


def test_a_model_is_applied_to_new_samples_by_fixing_the_other_modes():
    tensor, factors = planted(4, (9, 6, 5), 2)
    model = decompose(tensor, 2)
    more = np.random.default_rng(5).standard_normal((13, 2))
    new = compose([more, *factors[1:]])
    for start in (model, model.tensor.to_tensorly(), model.tensor.to_pyttb()):
        found = decompose(new, 2, init=start, fixed_modes=(1, 2))
        assert found.residual < 1e-10
        np.testing.assert_array_equal(found.factors[1], model.factors[1])
    assert model.factors[0].shape == (9, 2)
    with pytest.raises(InvalidInputError, match="init has shape"):
        decompose(new, 2, init=model, fixed_modes=(0,))
    with pytest.raises(InvalidInputError, match="init has shape"):
        decompose(new, 2, init=model)
