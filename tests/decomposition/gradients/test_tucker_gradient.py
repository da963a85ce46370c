"""Gradients of Tucker results against finite differences of a plain orthogonal iteration."""

import numpy as np
import pytest

import latensor as lt
from differentiation import gradient, in_library

STEP = 1e-5
TIGHT = {"method": "hooi", "tol": 1e-16, "max_iter": 2000}

CASES = {
    "noise": ((5, 6, 7), (2, 3, 2), {}),
    "planted": ((5, 6, 7), (2, 2, 2), {"noise": 0.05}),
    "exact": ((4, 5, 4), (2, 2, 2), {"noise": 0.0}),
    "order 4": ((3, 4, 3, 3), (2, 2, 1, 2), {"noise": 0.2}),
    "matrix": ((6, 5), (2, 2), {"noise": 0.3}),
    "whole mode": ((5, 3, 6), (2, 3, 2), {"noise": 0.2}),
    "some modes": ((5, 3, 6), (2, 2), {"noise": 0.2, "modes": (0, 2)}),
    "complex": ((4, 5, 4), (2, 2, 2), {"noise": 0.2, "dtype": complex}),
    "scaled": ((5, 6, 7), (2, 2, 2), {"noise": 0.05, "scale": 1e150}),
}


def planted(shape, ranks, modes, noise, dtype, scale):
    rng = np.random.default_rng(1)

    def normal(*size):
        values = rng.standard_normal(size)
        return values + 1j * rng.standard_normal(size) if dtype is complex else values

    kept = dict(zip(modes or range(len(shape)), ranks, strict=True))
    core = normal(*(kept.get(m, d) for m, d in enumerate(shape)))
    factors = [normal(d, kept[m]) if m in kept else None for m, d in enumerate(shape)]
    exact = lt.TuckerTensor(core, tuple(factors)).to_dense()
    noisy = normal(*shape)
    fraction = 1.0 if noise is None else noise
    signal = 0.0 if noise is None else 1.0
    tensor = signal * exact / np.abs(exact).std() + fraction * noisy
    return tensor * scale, rng


def plain_iteration(tensor, start, scale):
    """Orthogonal iteration from `start` until nothing changes, with the signs of `start`."""
    factors = list(start.factors)
    for _ in range(3000):
        change = 0.0
        for mode, factor in enumerate(factors):
            if factor is not None:
                others = [None if m == mode else f for m, f in enumerate(factors)]
                turned = [None if f is None else f.conj() for f in others]
                partial = lt.unfold(lt.multilinear(tensor, *turned), mode)
                left = np.linalg.svd(partial, full_matrices=False)[0][:, : factor.shape[1]]
                first = np.argmax(np.abs(factor), axis=0)
                phases = left[first, np.arange(left.shape[1])]
                left = left * (np.abs(phases) / phases)
                change = max(change, np.abs(left - factor).max())
                factors[mode] = left
        if change < 1e-15:
            break
    turned = [None if f is None else f.conj() for f in factors]
    return lt.TuckerTensor(scale * lt.multilinear(tensor, *turned), tuple(factors))


PAIRS = [(case, "torch") for case in CASES] + [(case, "jax") for case in ("matrix", "complex")]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_gradient_is_that_of_the_best_subspaces(case, name):
    pytest.importorskip(name)
    shape, ranks, extra = CASES[case]
    modes, scale = extra.get("modes"), extra.get("scale", 1.0)
    dtype = extra.get("dtype", float)
    tensor, rng = planted(shape, ranks, modes, extra.get("noise"), dtype, scale)
    start = lt.tucker(tensor, ranks, modes=modes, **TIGHT)
    outputs = [start.core, *(f for f in start.factors if f is not None)]
    cotangents = [rng.standard_normal(a.shape) for a in outputs]
    cotangents[0] /= scale

    def value(result):
        found = [result.core, *(f for f in result.factors if f is not None)]
        return float(sum(np.sum(c * a.real) for c, a in zip(cotangents, found, strict=True)))

    def followed(array):
        result = lt.tucker(array, ranks, modes=modes, **TIGHT)
        found = [result.core, *(f for f in result.factors if f is not None)]
        return sum(
            (in_library(name, c) * a.real).sum() for c, a in zip(cotangents, found, strict=True)
        )

    found = gradient(name, followed, tensor)
    direction = rng.standard_normal(shape) * scale
    if dtype is complex:
        direction = direction + 1j * rng.standard_normal(shape) * scale

    def solved(sign):
        return value(plain_iteration((tensor + sign * STEP * direction) / scale, start, scale))

    numeric = (solved(1.0) - solved(-1.0)) / (2 * STEP)
    analytic = float(np.real(np.sum(found.conj() * direction)))
    assert analytic == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_default_tolerance_gives_the_gradient_of_the_solution():
    torch = pytest.importorskip("torch")
    tensor, _ = planted((6, 7, 8), (2, 2, 2), None, 0.3, float, 1.0)
    found = []
    for options in ({}, TIGHT):
        array = torch.tensor(tensor, requires_grad=True)
        lt.tucker(array, (2, 2, 2), random_state=0, **options).core[0, 0, 0].backward()
        found.append(array.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "sequential"}, "method='sequential' does not end at a least-squares"),
        ({"nonnegative": True}, "tucker with nonnegative"),
    ],
)
def test_what_has_no_gradient_is_refused(options, words):
    torch = pytest.importorskip("torch")
    array = torch.rand(4, 4, 4, dtype=torch.float64, requires_grad=True)
    result = lt.tucker(array, 2, random_state=0, **options)
    with pytest.raises(lt.NotIdentifiableError, match=words):
        result.core.sum().backward()


def test_equal_singular_values_are_refused_unless_they_do_not_matter():
    torch = pytest.importorskip("torch")
    tensor = np.zeros((4, 4, 4))
    tensor[[0, 1], [0, 1], [0, 1]] = 1.0
    array = torch.tensor(tensor, requires_grad=True)
    result = lt.tucker(array, 2, method="hooi")
    (result.to_dense() ** 2).sum().backward(retain_graph=True)
    np.testing.assert_allclose(array.grad.numpy(), 2 * tensor, atol=1e-10)
    with pytest.raises(lt.NotIdentifiableError, match="equal singular values"):
        (result.factors[0] * torch.tensor(np.arange(8.0).reshape(4, 2))).sum().backward()
