"""The condition number against its definition, known defective cases, and simulated errors."""

import itertools

import numpy as np
import pytest

import latensor as lt
from definitions import draw
from latensor import CPTensor
from latensor.diagnostics import certify, condition_number, conditioning, match
from latensor.diagnostics.components import components_of
from latensor.diagnostics.conditioning import sensitivity


def outer(vectors):
    result = vectors[0]
    for vector in vectors[1:]:
        result = np.multiply.outer(result, vector)
    return result


def by_definition(cp):
    """1 / sigma_min of the tangent spaces side by side, each from the derivatives themselves."""
    blocks = []
    for j in range(cp.rank):
        vectors = [f[:, j] / np.linalg.norm(f[:, j]) for f in cp.factors]
        columns = []
        if cp.is_symmetric:
            for direction in np.eye(cp.shape[0]):
                places = range(cp.order)
                moved = (
                    outer([direction if m == n else v for m, v in enumerate(vectors)])
                    for n in places
                )
                columns.append(sum(moved).ravel())
        else:
            for n, d in itertools.chain(
                *([(n, e) for e in np.eye(cp.shape[n])] for n in range(cp.order))
            ):
                columns.append(outer([d if m == n else v for m, v in enumerate(vectors)]).ravel())
        left, values, _ = np.linalg.svd(np.array(columns).T, full_matrices=False)
        blocks.append(left[:, values > 1e-10 * values[0]])
    return 1 / np.linalg.svd(np.concatenate(blocks, axis=1), compute_uv=False)[-1]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("shape", "rank"),
    [((4, 5, 6), 3), ((7, 3, 4), 4), ((3, 4, 2, 3), 3), ((6, 7, 8), 2), ((2, 3, 4), 1)],
)
def test_is_what_the_definition_says(rng, shape, rank, dtype):
    cp = CPTensor(draw(rng, rank, dtype), tuple(draw(rng, (d, rank), dtype) for d in shape))
    found = condition_number(cp)
    assert found.exact
    assert float(found) == pytest.approx(by_definition(cp), rel=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("d", "rank", "order"), [(5, 3, 3), (4, 4, 3), (4, 3, 4), (2, 2, 5)])
def test_symmetric_tensors_move_among_symmetric_ones(rng, d, rank, order, dtype):
    cp = CPTensor(draw(rng, rank, dtype), (draw(rng, (d, rank), dtype),) * order)
    assert float(condition_number(cp)) == pytest.approx(by_definition(cp), rel=1e-9)


def test_gram_and_singular_values_agree(rng, monkeypatch):
    plain = CPTensor(None, tuple(draw(rng, (d, 6)) for d in (8, 7, 6)))
    shared = CPTensor(None, (draw(rng, (8, 6)),) * 3)
    close = CPTensor(None, tuple(draw(rng, (d, 1)) + 1e-4 * draw(rng, (d, 2)) for d in (5, 5, 5)))
    for cp in (plain, shared, close):
        exact = sensitivity(components_of(cp, "cp"))
        with monkeypatch.context() as patch:
            patch.setattr(conditioning, "_SMALL", 0)
            other = sensitivity(components_of(cp, "cp"))
        assert other.condition.value == pytest.approx(exact.condition.value, rel=1e-7)
        np.testing.assert_allclose(other.vectors, exact.vectors, rtol=1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(conditioning, "LARGEST_GRAM", 0)
            bound = condition_number(cp)
        assert not bound.exact
        assert 1 <= bound.value <= exact.condition.value * (1 + 1e-9)


def test_orthogonal_components_have_condition_one(rng):
    bases = [np.linalg.qr(draw(rng, (d, 4)))[0] for d in (6, 5, 4)]
    assert float(condition_number((rng.uniform(1e-3, 1e3, 4), bases))) == pytest.approx(1)


@pytest.mark.parametrize(
    ("shape", "rank", "symmetric"),
    [
        ((3, 3, 3), 4, False),  # 28 parameters for 27 numbers
        ((4, 4), 2, False),  # matrices
        ((3, 3, 3, 3), 5, True),  # quartics in three variables: the exception of Clebsch
        ((2, 2, 2, 2), 3, False),  # four qubits: defective though 15 < 16
    ],
)
def test_families_of_decompositions_have_infinite_condition(rng, shape, rank, symmetric):
    factors = tuple(draw(rng, (d, rank)) for d in shape)
    cp = CPTensor(None, (factors[0],) * len(shape) if symmetric else factors)
    assert condition_number(cp).value > 1e13


def test_degenerate_pairs_and_zero_components(rng):
    first, moved = draw(rng, (5, 3)), draw(rng, (5, 3))
    previous = 1.0
    for size in (1e-1, 1e-2, 1e-3):
        columns = [
            np.stack([a, a + size * b], axis=1) for a, b in zip(first.T, moved.T, strict=True)
        ]
        kappa = condition_number((None, columns)).value
        assert kappa > 50 * previous
        previous = kappa
    dead = CPTensor(np.array([1.0, 0.0]), tuple(draw(rng, (d, 2)) for d in (4, 4, 4)))
    assert condition_number(dead).value == np.inf


def test_condition_bounds_the_change_of_the_components(rng):
    cp = CPTensor(np.array([2.0, 1.0]), tuple(draw(rng, (d, 2)) for d in (4, 5, 3))).canonical()
    kappa = condition_number(cp).value
    dense = cp.to_dense()
    ratios = []
    for seed in range(20):
        noise = 1e-6 * np.random.default_rng(seed).standard_normal(dense.shape)
        fit = lt.decompose(dense + noise, 2, init=cp, tol=0.0, max_iter=300, random_state=0)
        aligned = match(cp, fit).aligned
        change = 0.0
        for j in range(2):
            parts = [
                CPTensor(x.weights[[j]], tuple(f[:, [j]] for f in x.factors)).to_dense()
                for x in (cp, aligned)
            ]
            change += np.sum((parts[0] - parts[1]) ** 2)
        ratios.append(np.sqrt(change) / np.linalg.norm(noise))
    assert max(ratios) <= kappa


@pytest.mark.parametrize(("shape", "rank"), [((12, 9, 5), 3), ((4, 5, 6), 4)])
def test_error_bars_are_the_spread_over_noise(shape, rank):
    rng = np.random.default_rng(3)
    truth = CPTensor(
        rng.uniform(1, 3, rank), tuple(rng.standard_normal((d, rank)) + 0.5 for d in shape)
    ).canonical()
    dense, sigma, trials = truth.to_dense(), 1e-3, 60
    weights, vectors, noises = [], [], []
    for seed in range(trials):
        noise = sigma * np.random.default_rng(seed).standard_normal(shape)
        fit = lt.decompose(dense + noise, rank, init=truth, random_state=0)
        aligned = match(truth, fit).aligned.normalized()
        weights.append(aligned.weights - truth.weights)
        moved = zip(aligned.factors, truth.factors, strict=True)
        vectors.append([np.linalg.norm(f - g, axis=0) for f, g in moved])
        noises.append(certify(fit, dense + noise).errors.noise)
    errors = certify(truth, dense + noise).errors
    # A standard deviation from 60 trials is known to about 9 %.
    spread = np.sqrt(np.mean(np.square(weights), axis=0))
    np.testing.assert_allclose(spread / np.array(errors.weights), 1, atol=0.35)
    spread = np.sqrt(np.mean(np.square(vectors), axis=0)).T
    np.testing.assert_allclose(spread / np.array(errors.vectors), 1, atol=0.35)
    assert np.mean(noises) == pytest.approx(sigma, rel=0.05)


def test_error_bars_of_symmetric_tensors():
    rng = np.random.default_rng(5)
    factor = rng.standard_normal((7, 3))
    truth = CPTensor(np.array([3.0, 2.0, 1.0]), (factor,) * 3).canonical()
    dense = truth.to_dense()
    moved = sensitivity(components_of(truth, "truth"))
    sigma, vectors, weights = 1e-4, [], []
    units = truth.factors[0]
    for seed in range(60):
        noise = lt.symmetrize(sigma * np.random.default_rng(seed).standard_normal(dense.shape))
        # One Gauss-Newton step from the truth: the estimate to first order.
        basis, sizes = [], []
        for j in range(3):
            for direction in np.eye(7):
                terms = (
                    outer([direction if m == n else units[:, j] for m in range(3)])
                    for n in range(3)
                )
                basis.append(truth.weights[j] * sum(terms).ravel())
        step = np.linalg.lstsq(np.array(basis).T, noise.ravel(), rcond=None)[0].reshape(3, 7)
        along = np.sum(step.T * units, axis=0)
        vectors.append(np.linalg.norm(step.T - units * along, axis=0))
        weights.append(3 * truth.weights * along)
        sizes.append(step)
    spread = np.sqrt(np.mean(np.square(vectors), axis=0)) / sigma
    np.testing.assert_allclose(spread / moved.vectors[:, 0], 1, atol=0.3)
    spread = np.sqrt(np.mean(np.square(weights), axis=0)) / sigma
    np.testing.assert_allclose(spread / moved.weights, 1, atol=0.35)
