"""Fits that follow a stream."""

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition import StochasticLeastSquares


def batches(rng, means, n, size, noise=1.0):
    for _ in range(n // size):
        labels = rng.integers(means[0].shape[1], size=size)
        yield tuple(m.T[labels] + noise * rng.standard_normal((size, len(m))) for m in means)


def angles(means, factors):
    found = [
        1 - np.abs((m / np.linalg.norm(m, axis=0)).T @ np.asarray(f)).max(axis=1) ** 2
        for m, f in zip(means, factors, strict=True)
    ]
    return float(np.sqrt(np.max(found)))


@pytest.mark.parametrize("d, k, seed", [(30, 4, 0), (30, 4, 1), (60, 10, 2)])
def test_a_stream_is_worth_as_much_as_all_its_samples_at_once(d, k, seed):
    rng = np.random.default_rng(seed)
    means = [rng.standard_normal((d, k)) for _ in range(3)]
    seen = list(batches(rng, means, 12000, 500))
    start = lt.decompose(lt.MomentTensor(seen[:4]), k)
    fit = StochasticLeastSquares(start.tensor, 2000)
    for batch in seen[4:]:
        fit = fit.update(batch)
    whole = lt.decompose(lt.MomentTensor(seen), k)
    assert fit.n_samples == 12000
    assert fit.collapsed == ()
    assert angles(means, fit.tensor.factors) < 1.05 * angles(means, whole.factors)
    assert angles(means, fit.tensor.factors) < 0.6 * angles(means, start.factors)
    ordered = [np.sort(np.abs(t.weights)) for t in (fit.tensor, whole)]
    np.testing.assert_allclose(*ordered, rtol=0.02)


def test_a_step_is_that_of_the_gradient(rng):
    factors = tuple(rng.standard_normal((d, 2)) for d in (4, 3, 5))
    start = lt.CPTensor(None, factors).normalized()
    views = tuple(rng.standard_normal((7, d)) for d in (4, 3, 5))
    fit = StochasticLeastSquares(start, 21.0).update(views)
    step, (a, b, c) = 7 / 28, start.factors
    gram = (a.T @ a) * (b.T @ b)
    scaled = c * start.weights
    slope = scaled @ gram - lt.MomentTensor(views).mttkrp([a, b, c], 2)  # half the gradient
    expected = scaled - step * slope @ np.linalg.inv(gram)
    expected /= np.linalg.norm(expected, axis=0)
    signs = np.sign(np.sum(expected * fit.tensor.factors[2], axis=0))
    np.testing.assert_allclose(fit.tensor.factors[2] * signs, expected, atol=1e-12)


def test_weights_count_samples(rng):
    start = lt.CPTensor(None, tuple(rng.standard_normal((4, 2)) for _ in range(3)))
    rows = rng.standard_normal((6, 4))
    twice = StochasticLeastSquares(start, 10).update(rows, np.full(6, 2.0))
    repeated = StochasticLeastSquares(start, 10).update(np.vstack([rows, rows]))
    for one, other in zip(twice.tensor.factors, repeated.tensor.factors, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert twice.n_samples == 22


def test_a_component_that_the_data_lack_is_told(rng):
    means = [rng.standard_normal((20, 3)) for _ in range(3)]
    start = lt.CPTensor(np.full(3, 1 / 3), tuple(means))
    fit = StochasticLeastSquares(start, 100)
    (batch,) = batches(rng, [m[:, :2] for m in means], 5000, 5000, noise=0.1)
    with pytest.warns(lt.ConvergenceWarning, match=r"components \[2\] vanished"):
        fit = fit.update(batch)
    assert fit.collapsed == (2,)


REFUSED = {
    "tensor": (lambda: StochasticLeastSquares(np.ones((2, 2)), 5), "expected the CPTensor"),
    "n_samples": (lambda: StochasticLeastSquares(START, 0), "n_samples=0"),
    "shape": (lambda: StochasticLeastSquares(START, 5).update(np.ones((2, 4))), r"\(4, 4, 4\)"),
    "batches": (
        lambda: StochasticLeastSquares(START, 5).update([np.ones((2, 3))]),
        "call update with each",
    ),
    "weights": (
        lambda: StochasticLeastSquares(START, 5).update(np.ones((2, 3)), np.array([1.0, -1.0])),
        "must not be negative",
    ),
}
START = lt.CPTensor(None, (np.eye(3)[:, :2],) * 3)


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(lt.InvalidInputError, match=message):
        call()
