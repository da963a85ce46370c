"""Every public function of arrays: a result that requires gradients has the right ones."""

import numpy as np
import pytest

import latensor as lt
from differentiation import gradient, in_library
from latensor.arrays import leading_eigenpairs, solve_positive

RNG = np.random.default_rng(0)
TENSOR = RNG.standard_normal((3, 4, 5))
CUBE = RNG.standard_normal((3, 3, 3))
MATRIX = RNG.standard_normal((6, 4))
FACTOR = RNG.standard_normal((4, 3))
POSITIVE = (lambda m: m @ m.T)(RNG.standard_normal((5, 5)))
# All singular values beyond the second are zero.
LOW = np.random.default_rng(2).standard_normal((6, 2)) @ np.eye(2, 5, 1)
# A spectrum with gaps, of a size that the iterative methods take.
LARGE = RNG.standard_normal((90, 70)) @ np.diag(0.9 ** np.arange(70))


def like(array, values):
    name = "torch" if type(array).__module__.startswith("torch") else "jax"
    return in_library(name, np.array(values))


def others(x, mode):
    factors = [like(x, np.ones((d, x.shape[1]))) for d in TENSOR.shape]
    factors[mode] = x
    return factors


def hermitian(x):
    return (x + x.T.conj()) / 2


FUNCTIONS = {
    "low_rank_approximation": (lambda x: lt.low_rank_approximation(x, 2), MATRIX),
    "low_rank_approximation, large": (lambda x: lt.low_rank_approximation(x, 2), LARGE),
    "pseudo_inverse": (lt.pseudo_inverse, MATRIX),
    "truncated_svd": (lambda x: lt.truncated_svd(x, 2), MATRIX),
    "truncated_svd, gram": (lambda x: lt.truncated_svd(x, 2, method="gram"), LARGE),
    "truncated_svd, randomized": (lambda x: lt.truncated_svd(x, 2, method="randomized"), LARGE),
    "truncated_svd, low rank": (lambda x: lt.truncated_svd(x, 2), LOW),
    "low_rank_approximation, low rank": (lambda x: lt.low_rank_approximation(x, 2), LOW),
    "leading_eigenpairs": (lambda x: leading_eigenpairs(hermitian(x), 2), POSITIVE),
    "solve_positive": (lambda x: solve_positive(x @ x.T.conj(), x), POSITIVE),
    "whiten": (lambda x: lt.whiten(hermitian(x), 3), POSITIVE),
    "fiber": (lambda x: lt.fiber(x, 0, (1, 2)), TENSOR),
    "fold, unfold": (lambda x: lt.fold(lt.unfold(x, 1), 1, (3, 4, 5)), TENSOR),
    "frobenius_norm": (lt.frobenius_norm, TENSOR),
    "frontal_slices": (lt.frontal_slices, TENSOR),
    "hadamard": (lambda x: lt.hadamard(x, x), TENSOR),
    "inner": (lambda x: lt.inner(x, 2 * x), TENSOR),
    "khatri_rao": (lambda x: lt.khatri_rao(x, x), FACTOR),
    "kronecker": (lambda x: lt.kronecker(x, x), FACTOR),
    "matrix_slice": (lambda x: lt.matrix_slice(x, (0, 1), (2,)), TENSOR),
    "mode_product": (lambda x: lt.mode_product(like(x, TENSOR), x.T, 1), FACTOR),
    "mttkrp": (lambda x: lt.mttkrp(like(x, TENSOR), others(x, 1), 0), FACTOR),
    "multilinear": (lambda x: lt.multilinear(like(x, TENSOR), None, x, None), FACTOR),
    "outer": (lambda x: lt.outer(x[:, 0], x[:, 1]), FACTOR),
    "sweep": (lambda x: lt.sweep(like(x, TENSOR), others(x, 1)).mttkrp(0), FACTOR),
    "symmetrize": (lt.symmetrize, CUBE),
    "CPTensor.to_dense": (lambda x: lt.CPTensor(None, (x, x, x)).to_dense(), FACTOR),
    "CPTensor.norm": (lambda x: lt.CPTensor(None, (x, x, x)).norm(), FACTOR),
    "CPTensor.canonical": (lambda x: lt.CPTensor(None, (x, x, x)).canonical(), FACTOR),
    "TuckerTensor.norm": (lambda x: lt.TuckerTensor(x[:3], (x, x)).norm(), FACTOR),
    "MomentTensor.contract": (lambda x: lt.MomentTensor(x).contract(x[0], x[1], None), MATRIX),
}
# JAX compiles each of them anew: it sees those that have code of their own for it.
IN_JAX = (
    "truncated_svd", "truncated_svd, low rank", "leading_eigenpairs", "whiten", "frobenius_norm",
    "CPTensor.to_dense",
)  # fmt: skip
COMPLEX = (
    "low_rank_approximation", "pseudo_inverse", "truncated_svd", "leading_eigenpairs", "whiten",
    "frobenius_norm", "inner", "khatri_rao", "multilinear", "CPTensor.norm", "CPTensor.canonical",
)  # fmt: skip


def leaves(value):
    """All arrays in a result."""
    if isinstance(value, lt.CPTensor):
        return [value.weights, *value.factors]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    if hasattr(value, "__dataclass_fields__"):
        return leaves([getattr(value, name) for name in value.__dataclass_fields__])
    return [value] if hasattr(value, "dtype") else []


def cases():
    for name in FUNCTIONS:
        yield pytest.param(name, "torch", float, id=f"{name}-torch")
        if name in COMPLEX:
            yield pytest.param(name, "torch", complex, id=f"{name}-torch-complex")
        if name in IN_JAX:
            yield pytest.param(name, "jax", float, id=f"{name}-jax")


@pytest.mark.parametrize(("name", "framework", "kind"), list(cases()))
def test_gradients_are_those_of_finite_differences(name, framework, kind):
    pytest.importorskip(framework)
    function, point = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    direction = rng.standard_normal(point.shape)
    if kind is complex:
        point = point + 1j * rng.standard_normal(point.shape)
        direction = direction + 1j * rng.standard_normal(point.shape)
        if point.shape[0] == point.shape[1]:
            point = hermitian(point) @ hermitian(point)
    shapes = [np.shape(leaf) for leaf in leaves(function(in_library(framework, point)))]
    cotangents = [rng.standard_normal(shape) for shape in shapes]

    def value(array):
        found = leaves(function(array))
        parts = [leaf.real if kind is complex else leaf for leaf in found]
        return sum(
            (in_library(framework, c) * p).sum() for c, p in zip(cotangents, parts, strict=True)
        )

    found = gradient(framework, value, point)
    step = 1e-5
    ahead, behind = (
        float(value(in_library(framework, point + s * direction))) for s in (step, -step)
    )
    numeric = (ahead - behind) / (2 * step)
    assert float(np.real(np.sum(found.conj() * direction))) == pytest.approx(numeric, rel=1e-5)


def by_algorithm(name, **settings):
    def run(x):
        algorithm = getattr(lt.decomposition, name)(**settings)
        return algorithm(x, 2, np.random.default_rng(0)).tensor

    return run


ORTHOGONAL = lt.CPTensor(
    np.array([3.0, 2.0]), (np.linalg.qr(RNG.standard_normal((4, 4)))[0][:, :2],) * 3
).to_dense()
DETACHED = {
    "spectral_norm": (lt.spectral_norm, TENSOR),
    "kruskal_rank": (lt.kruskal_rank, FACTOR),
    "certify": (lambda x: lt.certify(lt.CPTensor(None, (x, x, x))), FACTOR),
    "select_rank": (lambda x: lt.select_rank(x, max_rank=2), TENSOR),
    "decompose a CPTensor": (lambda x: lt.decompose(lt.CPTensor(None, (x,) * 3), 2), FACTOR),
    "tucker of a MomentTensor": (lambda x: lt.tucker(lt.MomentTensor(x), 2).tensor.core, MATRIX),
    **{
        name: (by_algorithm(name), ORTHOGONAL)
        for name in (
            "AlternatingLeastSquares", "Automatic", "GaussNewton", "PowerMethod", "SharedFactor",
            "SimultaneousDiagonalization", "SymmetricLeastSquares", "SymmetricSpectral",
        )
    },
    "AlternatingLeastSquares of a CPTensor": (
        lambda x: by_algorithm("AlternatingLeastSquares")(lt.CPTensor(None, (x, x, x))), FACTOR,
    ),
    "JointDiagonalization": (
        lambda x: lt.decomposition.JointDiagonalization()(x, 2, np.random.default_rng(0)),
        ORTHOGONAL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DETACHED)
def test_iterations_that_are_not_followed_give_results_without_gradients(name):
    torch = pytest.importorskip("torch")
    function, point = DETACHED[name]
    found = leaves(function(torch.tensor(point, requires_grad=True)))
    assert not any(getattr(leaf, "requires_grad", False) for leaf in found)


@pytest.mark.parametrize("model", ["PCA", "ICA", "SphericalGaussianMixture"])
def test_models_hold_no_gradients(model):
    torch = pytest.importorskip("torch")
    rows = np.concatenate([RNG.standard_normal((60, 4)) + 4 * np.eye(4)[j] for j in range(2)])
    fitted = getattr(lt, model)(2).fit(torch.tensor(rows, requires_grad=True))
    held = [value for value in vars(fitted).values() if isinstance(value, torch.Tensor)]
    assert not any(value.requires_grad for value in held)


def test_vectors_of_equal_singular_values_have_no_gradient():
    torch = pytest.importorskip("torch")
    matrix = torch.eye(3, dtype=torch.float64).requires_grad_()
    lt.truncated_svd(matrix, 2).singular_values.sum().backward()
    matrix = torch.diag(torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)).requires_grad_()
    lt.truncated_svd(matrix, 1).left[1, 0].backward()
    np.testing.assert_allclose(matrix.grad.numpy()[1], [0.5, 0.0, 0.0], atol=1e-12)
    with pytest.raises(lt.NotIdentifiableError, match="no gradient"):
        lt.truncated_svd(matrix, 2).left.sum().backward()
