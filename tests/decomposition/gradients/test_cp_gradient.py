"""Gradients of CP results against finite differences of a plain Gauss-Newton iteration."""

import numpy as np
import pytest

import latensor as lt
from differentiation import gradient, in_library

STEP = 1e-4


def planted(shape, rank, *, seed=0, noise=0.1, kind="free", dtype=float):
    rng = np.random.default_rng(seed)

    def normal(*size):
        values = rng.standard_normal(size)
        return values + 1j * rng.standard_normal(size) if dtype is complex else values

    weights = np.linspace(1.0, 2.0, rank)
    if kind == "symmetric":
        factor = normal(shape[0], rank)
        signs = np.where(np.arange(rank) % 2, -1.0, 1.0)
        exact = lt.CPTensor(weights * signs, (factor,) * len(shape)).to_dense()
        return lt.symmetrize(exact + noise * normal(*shape)), None, rng
    factors = [normal(d, rank) for d in shape]
    if kind == "nonnegative":
        factors = [np.maximum(f + 0.5, 0.0) for f in factors]
    exact = lt.CPTensor(weights.astype(dtype), tuple(factors)).to_dense()
    return exact + noise * normal(*shape), factors, rng


def canonical_solution(tensor, start, mask, ridge, kind, fixed):
    """Weights and unit factors of the solution next to `start`, by Gauss-Newton steps."""
    wide = tensor.dtype
    order = tensor.ndim
    blocks = [0] if kind == "symmetric" else [m for m in range(order) if m not in fixed]
    powers = order if kind == "symmetric" else len(blocks)
    sizes = [start.factors[b].size for b in blocks]
    phases = start.weights / np.abs(start.weights)

    def factors_of(z):
        z = z.view(complex) if wide.kind == "c" else z
        parts = np.split(z, np.cumsum(sizes)[:-1])
        parts = [p.reshape(start.factors[b].shape) for p, b in zip(parts, blocks, strict=True)]
        if kind == "symmetric":
            return [parts[0] * phases, *[parts[0]] * (order - 1)], parts
        found = dict(zip(blocks, parts, strict=True))
        return [found.get(m, start.factors[m]) for m in range(order)], parts

    def residuals(z):
        factors, _ = factors_of(z)
        left = ((tensor - lt.CPTensor(None, tuple(factors)).to_dense()) * mask).ravel()
        left = left.view(float) if wide.kind == "c" else left
        return np.concatenate([left, np.sqrt(ridge) * z])

    def jacobian(z):
        factors, parts = factors_of(z)
        columns = []
        for block, part in zip(blocks, parts, strict=True):
            total = 0.0
            for mode in range(order) if kind == "symmetric" else (block,):
                others = [f for m, f in enumerate(factors) if m != mode]
                product = lt.khatri_rao(*others) if len(others) > 1 else others[0]
                scale = phases if kind == "symmetric" and mode == 0 else 1.0
                moved = np.einsum("ij,kr->ikjr", np.eye(len(part)), product * scale)
                moved = moved.reshape(len(part), *(f.shape[0] for f in others), -1)
                total = total + np.moveaxis(moved, 0, mode)
            columns.append(-(total * mask[..., None]).reshape(tensor.size, -1))
        joined = np.concatenate(columns, axis=1)
        if wide.kind == "c":
            pairs = np.stack([joined, 1j * joined], axis=2).reshape(tensor.size, -1)
            joined = np.stack([pairs.real, pairs.imag], axis=1).reshape(-1, pairs.shape[1])
        return np.concatenate([joined, np.sqrt(ridge) * np.eye(joined.shape[1])])

    begin = [start.factors[b] * np.abs(start.weights) ** (1 / powers) for b in blocks]
    if kind != "symmetric":
        begin[0] = begin[0] * phases
    z = np.concatenate([np.ascontiguousarray(b).ravel() for b in begin]).view(float)
    # Entries that a bound holds stay at zero; the others are free near the solution.
    free = z > 0 if kind == "nonnegative" else np.ones(len(z), dtype=bool)

    for _ in range(100):
        step = np.linalg.lstsq(jacobian(z)[:, free], -residuals(z), rcond=1e-10)[0]
        z[free] += step
        if np.linalg.norm(step) <= 1e-15 * np.linalg.norm(z):
            break
    factors, parts = factors_of(z)
    if fixed:
        weights = np.prod([np.linalg.norm(p, axis=0) for p in parts], axis=0)
        units = [f if m in fixed else f / np.linalg.norm(f, axis=0) for m, f in enumerate(factors)]
        return [weights, *units]
    form = lt.CPTensor(None, tuple(factors)).canonical()
    if kind == "symmetric":  # weights of odd orders are positive in place of the largest entries
        signs = np.sign((form.factors[-1] * start.factors[0]).sum(axis=0))
        return [form.weights * signs**order, form.factors[-1] * signs]
    return [form.weights, *form.factors]


CASES = {
    "free": ((4, 5, 6), 2, {}),
    "exact": ((3, 4, 3, 3), 2, {"noise": 0.0}),
    "matrix": ((6, 7), 1, {}),
    "ridge": ((4, 5, 6), 2, {"ridge": 0.5}),
    "complex": ((4, 5, 6), 2, {"dtype": complex}),
    "complex ridge": ((3, 4, 5), 2, {"dtype": complex, "ridge": 0.3}),
    "symmetric": ((5, 5, 5), 2, {"kind": "symmetric"}),
    "symmetric with a negative largest entry": ((5, 5, 5), 2, {"kind": "symmetric", "seed": 3}),
    "symmetric even": ((4, 4, 4, 4), 2, {"kind": "symmetric"}),
    "nonnegative": ((4, 5, 6), 2, {"kind": "nonnegative"}),
    "fixed": ((4, 5, 6), 2, {"fixed": (1,)}),
    "one mode free": ((4, 5, 6), 2, {"fixed": (0, 2)}),
    "masked": ((6, 7, 8), 2, {"observed": 0.6}),
    "large": ((4, 5, 6), 2, {"scale": 1e90}),
    "small ridge": ((4, 5, 6), 2, {"scale": 1e-3, "ridge": 1e-5}),
}


# JAX compiles every case anew: it sees those that its rule treats differently.
IN_JAX = ("free", "complex", "symmetric")
PAIRS = [(case, "torch") for case in CASES] + [(case, "jax") for case in IN_JAX]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_gradient_is_that_of_the_least_squares_solution(case, name):
    pytest.importorskip(name)
    shape, rank, extra = CASES[case]
    extra = dict(extra)
    kind, fixed = extra.pop("kind", "free"), extra.pop("fixed", ())
    fraction, ridge, scale = (
        extra.pop("observed", 1.0),
        extra.pop("ridge", 0.0),
        extra.pop("scale", 1),
    )
    tensor, factors, rng = planted(shape, rank, kind=kind, **extra)
    tensor = tensor * scale
    mask = rng.random(shape) < fraction
    options = {"ridge": ridge, "random_state": 0, "max_iter": 3000, "tol": 1e-12}
    if fraction < 1:
        options["mask"] = mask
    if fixed:
        options |= {"fixed_modes": fixed, "init": (None, [in_library(name, f) for f in factors])}
    if kind != "free":
        options[kind] = True
    if kind == "symmetric":
        del options["ridge"]
    plain = dict(options)
    if fixed:
        plain["init"] = (None, factors)
    start = lt.decompose(tensor, rank, **plain)
    cotangents = [rng.standard_normal(rank) / scale]
    cotangents += [rng.standard_normal((d, rank)) for d in shape[: 1 if kind == "symmetric" else 9]]

    def value(found):
        products = [np.sum(c * a) for c, a in zip(cotangents, found, strict=True)]
        return float(np.real(sum(products)))

    def followed(array):
        result = lt.decompose(array, rank, **options)
        outputs = [result.weights, *result.factors[: len(cotangents) - 1]]
        return sum(
            (in_library(name, c) * a.real).sum() for c, a in zip(cotangents, outputs, strict=True)
        )

    found = gradient(name, followed, tensor)
    direction = rng.standard_normal(shape) * scale
    if tensor.dtype.kind == "c":
        direction = direction + 1j * rng.standard_normal(shape) * scale
    if kind == "symmetric":
        direction = lt.symmetrize(direction)

    def solved(sign):
        moved = (tensor + sign * STEP * direction) / scale
        smaller = lt.CPTensor(start.weights / scale, start.factors)
        shrunk = ridge * scale ** (2 / len(shape) - 2)
        weights, *units = canonical_solution(moved, smaller, mask, shrunk, kind, fixed)
        return value([weights * scale, *units])

    # Central differences of a function with derivatives of order one: step^2 and rounding / step.
    numeric = (solved(1.0) - solved(-1.0)) / (2 * STEP)
    analytic = float(np.real(np.sum(found.conj() * direction)))
    assert analytic == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_default_tolerance_gives_the_gradient_of_the_solution():
    torch = pytest.importorskip("torch")
    tensor, _, rng = planted((6, 5, 4), 3, seed=6, noise=1.0)
    cotangents = [rng.standard_normal((d, 3)) for d in (1, 6, 5, 4)]
    found = []
    for options in ({}, {"tol": 1e-14, "max_iter": 5000}):
        array = torch.tensor(tensor, requires_grad=True)
        weights, factors = lt.decompose(array, 3, random_state=0, **options)
        outputs = zip(cotangents, (weights, *factors), strict=True)
        sum((torch.tensor(c) * a).sum() for c, a in outputs).backward()
        found.append(array.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-7 * np.abs(found[1]).max())


def test_the_reported_entry():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    tensor = torch.rand(4, 4, 4, dtype=torch.float64, requires_grad=True)
    lt.decompose(tensor, 1, random_state=0).weights[0].backward()
    host = tensor.detach().numpy()

    def weight(value):
        moved = host.copy()
        moved[1, 2, 3] += value
        return lt.decompose(moved, 1, random_state=0, tol=1e-15).weights[0]

    numeric = (weight(1e-4) - weight(-1e-4)) / 2e-4
    assert float(tensor.grad[1, 2, 3]) == pytest.approx(numeric, rel=1e-5)


def followed_torch(tensor, rank, **options):
    torch = pytest.importorskip("torch")
    return lt.decompose(torch.tensor(tensor, requires_grad=True), rank, random_state=0, **options)


@pytest.mark.parametrize(
    ("tensor", "rank", "options", "words"),
    [
        ((3, 3, 3), 9, {}, "not isolated|not an isolated|Newton|no least-squares"),
        ((4, 5, 6), 2, {"target": 0.9}, "TARGET_REACHED"),
        ((4, 5, 6), 3, {"max_iter": 1, "algorithm": "als"}, "MAX_ITER"),
        ((5, 5, 5), 2, {"algorithm": "power"}, "PowerMethod does not end at a least-squares"),
    ],
    ids=["over-parametrized", "target", "max_iter", "power method"],
)
def test_what_has_no_gradient_is_refused(tensor, rank, options, words):
    rng = np.random.default_rng(3)
    values = rng.standard_normal(tensor)
    options = dict(options)
    if options.get("algorithm") == "power":
        basis = np.linalg.qr(rng.standard_normal((5, 5)))[0][:, :2]
        values = lt.CPTensor(np.array([2.0, 1.0]), (basis,) * 3).to_dense()
        options["algorithm"] = lt.decomposition.PowerMethod()
    if options.get("algorithm") == "als":
        options["algorithm"] = lt.decomposition.AlternatingLeastSquares()
    result = followed_torch(values, rank, **options)
    with pytest.raises(lt.NotIdentifiableError, match=words):
        result.weights.sum().backward()


def test_a_component_of_weight_zero_has_no_gradient():
    rank_one = np.einsum("i,j,k->ijk", *[np.arange(1.0, 5.0)] * 3)
    result = followed_torch(rank_one, 2)
    with pytest.raises(lt.NotIdentifiableError, match="no gradient"):
        result.factors[0].sum().backward()


def test_jit_is_refused_with_a_sentence():
    jax = pytest.importorskip("jax")
    with pytest.raises(lt.InvalidInputError, match=r"jax\.jit"):
        jax.jit(lambda x: lt.decompose(x, 1).weights)(jax.numpy.ones((2, 3, 4)))


def test_jacobians_of_both_libraries_agree():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    tensor, _, _ = planted((3, 4, 3), 2)

    def weights(array):
        return lt.decompose(array, 2, random_state=0).weights

    by_torch = torch.autograd.functional.jacobian(weights, torch.tensor(tensor)).numpy()
    by_jax = np.asarray(jax.jacrev(weights)(jax.numpy.asarray(tensor)))
    np.testing.assert_allclose(by_torch, by_jax, rtol=1e-8, atol=1e-10)


def test_results_of_containers_do_not_require_gradients():
    torch = pytest.importorskip("torch")
    factors = tuple(torch.rand(d, 2, dtype=torch.float64, requires_grad=True) for d in (4, 5, 6))
    result = lt.decompose(lt.CPTensor(None, factors), 2, random_state=0)
    assert not result.weights.requires_grad
    with torch.no_grad():
        tensor = torch.rand(3, 3, 3, requires_grad=True)
        assert not lt.decompose(tensor, 1).weights.requires_grad
