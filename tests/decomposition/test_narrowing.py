"""Weak components that noise hides from a compression are found, and false optima are noticed."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition.auto.core import Core, Fit, NoiseFloor
from latensor.decomposition.auto.search import improved
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.problem import ContractibleProblem, DenseProblem
from latensor.decomposition.optimize.sweeps import Sweeps
from latensor.decomposition.subspace.compression import Compression, compress_dense, unfolding
from latensor.decomposition.subspace.narrowing import Directions, narrowed, refine_subspace, visible
from latensor.tensors.dense import DenseTensor

from .planted import compose


def buried(seed, d=60, rank=6, collinearity=0.9, noise=0.15, weakest=0.15):
    """A tensor of collinear components, the weakest near the noise, and its weighted factors."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(
        np.full((rank, rank), collinearity) + (1 - collinearity) * np.eye(rank)
    )
    factors = [np.linalg.qr(rng.standard_normal((d, rank)))[0] @ root.T for _ in range(3)]
    weights = np.linspace(1.0, weakest, rank)
    signal = compose(factors, weights)
    disturbance = rng.standard_normal(signal.shape)
    scale = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
    return signal + scale * disturbance, [f * np.cbrt(weights) for f in factors]


def compressed(tensor, rank, seed=0):
    compression = compress_dense(tensor, rank, np.random.default_rng(seed), np.sum(tensor**2))
    return compression, compression.base / (tensor.size - compression.core.size)


def optimum_near(tensor, factors, sweeps=25):
    """The relative residual that extrapolated sweeps reach from the true factors."""
    steps = Sweeps(DenseProblem(tensor))
    point = steps.start([np.ascontiguousarray(f.T) for f in factors])
    for _ in range(sweeps):
        point = steps.extrapolated(point)
    return np.sqrt(point.loss / np.sum(tensor**2))


@pytest.mark.parametrize(
    ("settings", "rank", "expected"),
    [
        ({"collinearity": 0.5, "noise": 0.05, "weakest": 0.5}, 6, Directions.CLEAR),
        ({}, 6, Directions.HIDDEN),
        # More structure than the rank has components for, and components for half of the rank.
        ({"collinearity": 0.5, "noise": 0.05, "weakest": 0.5}, 4, Directions.MIXED),
        ({"collinearity": 0.5, "noise": 0.05, "weakest": 0.5}, 12, Directions.FEWER),
    ],
)
def test_what_a_compression_shows(settings, rank, expected):
    for seed in range(3):
        tensor, _ = buried(seed, **settings)
        compression, variance = compressed(tensor, rank)
        assert visible(compression, tensor.shape, rank, variance) is expected


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_few_components_leave_no_residual_to_judge(rank):
    tensor, _ = buried(0, rank=rank, collinearity=0.5, noise=0.05, weakest=0.5)
    compression, variance = compressed(tensor, rank)
    assert visible(compression, tensor.shape, rank, variance) is Directions.MIXED


def test_structure_that_is_no_noise_is_mixed():
    x = np.linspace(0.0, 1.0, 60)
    tensor = np.exp(-3 * np.abs(x[:, None, None] - x[:, None] * x) * (1 + x))
    compression, variance = compressed(tensor, 8)
    assert visible(compression, tensor.shape, 8, variance) is Directions.MIXED


def test_nothing_to_judge_by_is_mixed():
    tensor, _ = buried(0)
    compression, variance = compressed(tensor, 6)
    whole = Compression(tensor, (None, None, None), 0.0)
    assert visible(whole, tensor.shape, 6, variance) is Directions.MIXED
    assert compression.core.shape == (16, 16, 16)


def test_narrowing_keeps_the_leading_directions_and_the_energy():
    tensor, _ = buried(1)
    wide, _ = compressed(tensor, 6)
    narrow = narrowed(wide, 6)
    assert narrow.core.shape == (6, 6, 6)
    np.testing.assert_array_equal(narrow.core, wide.core[:6, :6, :6])
    total = narrow.base + np.sum(narrow.core**2)
    np.testing.assert_allclose(total, np.sum(tensor**2), rtol=1e-12)


@pytest.mark.parametrize("kind", [DenseProblem, lambda t: ContractibleProblem(DenseTensor(t))])
def test_sharpened_bases_span_the_components(kind):
    for seed in range(3):
        tensor, factors = buried(seed, noise=0.12)
        before = tensor.copy()
        wide, _ = compressed(tensor, 6)
        sharp = refine_subspace(kind(tensor), wide, 6, np.random.default_rng(seed))
        plain = narrowed(wide, 6)
        assert sharp.core.shape == (6, 6, 6)
        # Of all cores of this size it holds the most, which a compression by energy does not.
        assert sharp.base < plain.base
        np.testing.assert_allclose(
            sharp.base + np.sum(sharp.core**2), np.sum(tensor**2), rtol=1e-12
        )
        image = tensor
        for mode, basis in enumerate(sharp.bases):
            np.testing.assert_allclose(basis @ basis.T, np.eye(6), atol=1e-12)
            image = np.moveaxis(np.tensordot(basis, image, axes=(1, mode)), 0, mode)
        np.testing.assert_allclose(image, sharp.core, atol=1e-12 * np.linalg.norm(tensor))
        for factor, basis, cut in zip(factors, sharp.bases, plain.bases, strict=True):
            weakest = factor[:, -1] / np.linalg.norm(factor[:, -1])
            others = np.linalg.qr(factor[:, :-1])[0]
            own = weakest - others @ (others.T @ weakest)
            own /= np.linalg.norm(own)
            assert np.linalg.norm(basis @ own) > 0.75
            assert np.linalg.norm(basis @ own) > np.linalg.norm(cut @ own) - 0.05
        np.testing.assert_array_equal(tensor, before)


def test_sharpening_leaves_short_modes_alone():
    rng = np.random.default_rng(5)
    factors = [rng.standard_normal((d, 4)) for d in (60, 3, 50)]
    tensor = compose(factors, [1.0, 0.5, 0.3, 0.05])
    tensor += 0.3 * rng.standard_normal(tensor.shape)
    wide, _ = compressed(tensor, 4)
    assert wide.bases[1] is None
    sharp = refine_subspace(DenseProblem(tensor), wide, 4, rng)
    assert sharp.bases[1] is None
    assert sharp.core.shape == (4, 3, 4)
    np.testing.assert_allclose(sharp.base + np.sum(sharp.core**2), np.sum(tensor**2), rtol=1e-12)


def test_the_sharp_floor_tells_a_missing_component():
    for seed in range(4):
        tensor, factors = buried(seed, d=80, rank=8, noise=0.15, weakest=0.2)
        wide, _ = compressed(tensor, 8)
        sharp = refine_subspace(DenseProblem(tensor), wide, 8, np.random.default_rng(seed))
        variance = sharp.base / (tensor.size - sharp.core.size)
        core = Sweeps(DenseProblem(sharp.core))
        inside = [f.T @ u.T for f, u in zip(factors, sharp.bases, strict=True)]
        losses = []
        for rows in (inside, [f[:-1] for f in inside]):
            point = core.start(rows)
            for _ in range(60):
                point = core.extrapolated(point)
            losses.append(point.loss)
        floor = NoiseFloor(tensor.shape, variance, sharp=True)
        assert losses[0] <= floor.level(sharp.core.shape, 8) < losses[1]


def test_the_floor_of_a_core_with_spare_directions_is_higher():
    shape, core = (60, 60, 60), (16, 16, 16)
    blunt = NoiseFloor(shape, 1.0).level(core, 6)
    assert NoiseFloor(shape, 1.0, sharp=True).level(core, 6) < blunt


def test_misplaced_components_are_replaced():
    """A fit with two components merged and one to spare comes down to the level of the noise."""
    tensor, factors = buried(3, d=80, rank=8, noise=0.1, weakest=0.3)
    wide, _ = compressed(tensor, 8)
    narrow = refine_subspace(DenseProblem(tensor), wide, 8, np.random.default_rng(0))
    variance = narrow.base / (tensor.size - narrow.core.size)
    floor = NoiseFloor(tensor.shape, variance, sharp=True)
    monitor = Monitor(float(np.sum(tensor**2)), base=narrow.base)
    core = Core(narrow, 8, np.random.default_rng(1), monitor, lambda f: None, 1e-7, floor)
    inside = [np.ascontiguousarray(f.T @ u.T) for f, u in zip(factors, narrow.bases, strict=True)]
    for rows in inside:
        rows[6] = rows[7] = 0.5 * (rows[6] + rows[7])
        rows[5] = rows[4]
    stuck = Fit(tuple(inside), Sweeps(core.problem).start(inside).loss)
    assert not core.accepts(stuck)
    best = improved(core, stuck, thorough=True)
    assert core.accepts(best)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"d": 80, "rank": 8, "noise": 0.1, "weakest": 0.2},
        {"d": 80, "rank": 8, "noise": 0.15, "weakest": 0.2},
    ],
)
def test_weak_components_are_found_from_every_seed(settings):
    for seed in range(8):
        tensor, factors = buried(seed, **settings)
        result = lt.decompose(tensor, factors[0].shape[1], random_state=seed)
        assert result.residual <= optimum_near(tensor, factors) * (1 + 1e-4)


def test_same_seed_same_result():
    tensor, _ = buried(2)
    first, second = (lt.decompose(tensor, 6, random_state=4) for _ in range(2))
    for one, other in zip(first.factors, second.factors, strict=True):
        np.testing.assert_array_equal(one, other)


def test_single_precision_and_order_four():
    rng = np.random.default_rng(8)
    root = np.linalg.cholesky(0.9 * np.ones((4, 4)) + 0.1 * np.eye(4)).T
    factors = [np.linalg.qr(rng.standard_normal((30, 4)))[0] @ root for _ in range(4)]
    signal = compose(factors, [1.0, 0.7, 0.4, 0.1])
    noise = rng.standard_normal(signal.shape)
    tensor = signal + 0.15 * noise * np.linalg.norm(signal) / np.linalg.norm(noise)
    weighted = [f * np.array([1.0, 0.7, 0.4, 0.1]) ** 0.25 for f in factors]
    best = optimum_near(tensor, weighted)
    for dtype, margin in ((np.float64, 1e-4), (np.float32, 2e-4)):
        result = lt.decompose(tensor.astype(dtype), 4, random_state=0)
        assert result.factors[0].dtype == dtype
        assert result.residual <= best * (1 + margin)


def test_unfolding_of_a_core_is_sorted_by_energy():
    tensor, _ = buried(4)
    wide, _ = compressed(tensor, 6)
    sharp = refine_subspace(DenseProblem(tensor), wide, 6, np.random.default_rng(0))
    last = np.linalg.norm(unfolding(sharp.core, 1), axis=1)
    assert (np.diff(last) <= 0.05 * last[0]).all()
