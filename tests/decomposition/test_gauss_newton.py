import numpy as np
import pytest

from latensor.decomposition import AlternatingLeastSquares, GaussNewton, Status, decompose
from latensor.decomposition.optimize.levenberg_marquardt import NewtonSteps, _System
from latensor.decomposition.optimize.problem import DenseProblem
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


def test_system_agrees_with_the_jacobian():
    shape, rank = (3, 4, 2), 2
    tensor, _ = planted(4, shape, 3)
    rng = np.random.default_rng(0)
    problem = DenseProblem(np.ascontiguousarray(tensor))
    point = NewtonSteps(problem).start([rng.standard_normal((rank, d)) for d in shape])
    system = _System(point)

    def model(rows):
        return np.einsum("ra,rb,rc->abc", *rows).reshape(-1)

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

    rows = list(point.factors)
    jacobian = columns(rows)
    gradient = jacobian.T @ (model(rows) - tensor.reshape(-1))

    def pack(stacked):
        return np.concatenate([stacked[n, :, :d].reshape(-1) for n, d in enumerate(shape)])

    x = np.zeros((3, rank, 4))
    for n, d in enumerate(shape):
        x[n, :, :d] = rng.standard_normal((rank, d))
    np.testing.assert_allclose(pack(system.gradient), gradient, atol=1e-10)
    np.testing.assert_allclose(
        pack(system.multiply(x, 0.5)), jacobian.T @ (jacobian @ pack(x)) + 0.5 * pack(x), atol=1e-9
    )
    solution = pack(system.solve(0.1, 500))
    left = jacobian.T @ (jacobian @ solution) + 0.1 * solution
    assert np.linalg.norm(left + gradient) <= 0.011 * np.linalg.norm(gradient)


@pytest.mark.parametrize(
    ("tensor", "options", "message"),
    [
        (np.ones((3, 3, 3), dtype=complex), {}, "complex"),
        (np.ones(4), {}, "order 1"),
        (np.ones((3, 3, 3)), {"ridge": 1.0}, "no setting 'ridge'"),
        (np.ones((3, 3, 3)), {"mask": np.ones((3, 3, 3), dtype=bool)}, "takes no mask"),
    ],
)
def test_what_it_cannot_do_is_refused(tensor, options, message):
    with pytest.raises(InvalidInputError, match=message):
        decompose(tensor, 2, algorithm=GaussNewton(), **options)
