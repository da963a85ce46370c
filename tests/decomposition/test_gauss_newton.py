import numpy as np
import pytest

from latensor.decomposition import AlternatingLeastSquares, GaussNewton, Status, decompose
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt
from latensor.decomposition.optimize.masked import observe
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.setup import as_tensor
from latensor.exceptions import InvalidInputError

from .planted import planted, relative_error, worst_match


@pytest.mark.parametrize(
    ("shape", "rank"), [((8, 7), 2), ((9, 8, 7), 3), ((6, 5, 4, 7), 3), ((4, 5, 3, 4, 3), 2)]
)
def test_exact_tensors_are_recovered(shape, rank):
    tensor, factors = planted(1, shape, rank)
    result = decompose(tensor, rank, algorithm=GaussNewton(tol=1e-14), random_state=0)
    assert relative_error(result, tensor) < 1e-8
    if len(shape) > 2:
        assert worst_match(result, factors) > 1 - 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_collinear_components_take_fewer_steps_than_alternating(seed):
    tensor, _ = planted(seed, (15, 15, 15), 4, noise=1e-4, collinearity=0.95)
    init = decompose(tensor, 4, algorithm=AlternatingLeastSquares(max_iter=5), random_state=seed)
    newton = decompose(tensor, 4, algorithm=GaussNewton(target=1.05e-4), init=init)
    plain = decompose(
        tensor,
        4,
        algorithm=AlternatingLeastSquares(extrapolate=False, tol=0.0),
        init=init,
        max_iter=2 * newton.n_iter,
    )
    assert newton.status is Status.TARGET_REACHED
    assert newton.residual < plain.residual


def test_residual_never_rises_and_is_exact():
    tensor, _ = planted(3, (9, 8, 7), 4, noise=0.3)
    result = decompose(tensor, 4, algorithm=GaussNewton(), random_state=1)
    assert np.all(np.diff(result.history) <= 1e-12)
    assert result.residual == pytest.approx(relative_error(result, tensor), rel=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["dense", "complex", "observed"])
def test_system_agrees_with_the_jacobian(kind, ridge):
    shape, rank = (3, 4, 2), 2
    tensor, _ = planted(4, shape, 3, dtype=np.complex128 if kind == "complex" else np.float64)
    rng = np.random.default_rng(0)
    seen = np.ones(shape, dtype=bool)
    problem = DenseProblem(np.ascontiguousarray(tensor))
    if kind == "observed":
        seen[0, 1, 1] = seen[2, 2, 0] = seen[1, 3, 1] = False
        problem = observe(as_tensor(tensor), seen)
    free = FreeFactors(problem, ridge)
    start = [rng.standard_normal((rank, d)).astype(tensor.dtype) for d in shape]
    if kind == "complex":
        start = [f + 1j * rng.standard_normal(f.shape) for f in start]
    stacked, loss, equations = free.evaluate(free.stack(start))
    system = equations()

    def model(rows):
        return np.einsum("ra,rb,rc->abc", *rows)[seen]

    def columns(rows):
        result = []
        for mode, d in enumerate(shape):
            for r in range(rank):
                for i in range(d):
                    moved = [row.copy() for row in rows]
                    moved[mode][:] = 0.0
                    moved[mode][r, i] = 1.0
                    result.append(model(moved))
        return np.array(result).T

    rows = list(free.factors(stacked))
    jacobian = columns(rows)

    def pack(stacked):
        return np.concatenate([stacked[n, :, :d].reshape(-1) for n, d in enumerate(shape)])

    rest = model(rows) - tensor[seen]
    gradient = jacobian.conj().T @ rest + ridge * pack(stacked)
    x = np.zeros_like(stacked)
    for n, d in enumerate(shape):
        x[n, :, :d] = rng.standard_normal((rank, d))
    assert loss == pytest.approx(np.vdot(rest, rest).real + ridge * np.vdot(stacked, stacked).real)
    np.testing.assert_allclose(pack(system.gradient), gradient, atol=1e-10)
    normal = jacobian.conj().T @ jacobian + ridge * np.eye(jacobian.shape[1])
    np.testing.assert_allclose(pack(system.multiply(x)), normal @ pack(x), atol=1e-9)
    move, promised = LevenbergMarquardt(free, max_inner=500)._solve(system, 0.1)
    left = normal @ pack(move) + 0.1 * pack(move)
    assert np.linalg.norm(left + gradient) <= 0.011 * np.linalg.norm(gradient)
    model_gain = -2 * np.vdot(pack(move), gradient).real
    model_gain -= np.vdot(pack(move), normal @ pack(move)).real
    assert promised == pytest.approx(model_gain, rel=1e-9)


@pytest.mark.parametrize(
    ("tensor", "options", "message"),
    [
        (np.ones(4), {}, "order 1"),
        (np.ones((3, 3, 3)), {"ridge": 1.0}, "no setting 'ridge'"),
        (np.ones((3, 3, 3)), {"mask": np.ones((3, 3, 3), dtype=bool)}, "takes no mask"),
    ],
)
def test_what_it_cannot_do_is_refused(tensor, options, message):
    with pytest.raises(InvalidInputError, match=message):
        decompose(tensor, 1, algorithm=GaussNewton(), **options)


@pytest.mark.parametrize("fixed", [(), (1,)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_solves_within_the_spans_of_the_factors_equal_those_of_the_whole(dtype, fixed):
    tensor, _ = planted(5, (7, 3, 6), 4, noise=0.2, dtype=dtype)
    free = FreeFactors(DenseProblem(np.ascontiguousarray(tensor)), 0.1, fixed)
    rng = np.random.default_rng(1)
    start = [rng.standard_normal((2, d)).astype(dtype) for d in tensor.shape]
    system = free.evaluate(free.stack(start))[2]()
    steps = LevenbergMarquardt(free)
    damping = 1e-2 * system.scale
    x, promised = steps._solve(system, damping)
    assert system.inside.system.gradient.size < system.gradient.size
    rest = system.multiply(x) + damping * x + system.gradient
    assert np.linalg.norm(rest) < 1e-10 * np.linalg.norm(system.gradient)
    slope = np.vdot(x, system.gradient).real
    assert promised == pytest.approx(damping * np.vdot(x, x).real - slope, rel=1e-10)
