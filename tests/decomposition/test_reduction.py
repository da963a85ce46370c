"""Entangled components are told apart, and a rank near the dimensions does not hide a lost one."""

from __future__ import annotations

import numpy as np
import pytest

from latensor.decomposition import decompose
from latensor.decomposition.auto import Automatic
from latensor.decomposition.auto.contests import Contests
from latensor.decomposition.auto.core_fit import CoreFit
from latensor.decomposition.auto.reduction import cheapest_reduction, similarity
from latensor.decomposition.optimize.alternating import Sweeps, balanced
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.starts import random_start
from latensor.decomposition.subspace.compression import compress_dense, compress_to_signal

from .planted import compose, planted, relative_error, worst_match


def point_of(factors):
    """The point of (d, rank) factors on the tensor that they make."""
    return Sweeps(DenseProblem(compose(factors))).start(
        balanced([np.ascontiguousarray(f.T) for f in factors])
    )


def split(factors, component, rng):
    """The same tensor with one component as a sum of two that differ in the last mode only."""
    part = rng.standard_normal(factors[-1].shape[0])
    result = [np.column_stack([f, f[:, component]]) for f in factors]
    result[-1][:, component] -= part
    result[-1][:, -1] = part
    return result


def three_for_two(factors, rng):
    """The same tensor with its first two components as three, none of which can be dropped.

    a b c + p q r = a b c + a q r + (p - a) q r.
    """
    a, b, c = (f[:, 0] for f in factors)
    p, q, r = (f[:, 1] for f in factors)
    mixed = [
        np.column_stack([a, a, p - a]),
        np.column_stack([b, q, q]),
        np.column_stack([c, r, r]),
    ]
    return [np.column_stack([m, f[:, 2:]]) for m, f in zip(mixed, factors, strict=True)]


@pytest.mark.parametrize("entangle", [lambda f, rng: split(f, 1, rng), three_for_two])
@pytest.mark.parametrize("seed", range(5))
def test_a_group_that_is_one_too_large_is_found(entangle, seed):
    _, factors = planted(seed, (14, 13, 12), 6, collinearity=0.3)
    more = entangle(factors, np.random.default_rng(seed))
    point = point_of(more)
    np.testing.assert_allclose(compose(more), compose(factors), atol=1e-12)
    reduction = cheapest_reduction(point, np.random.default_rng(0), cheap=1e-12)
    assert reduction.cost < 1e-20
    reduced = reduction.apply(point.factors)
    # The cost is a squared norm: its root is what entries may differ by.
    np.testing.assert_allclose(compose([f.T for f in reduced]), compose(factors), atol=1e-10)


@pytest.mark.parametrize("order", [3, 4])
def test_a_component_that_is_nothing_is_dropped(order):
    _, factors = planted(1, (9, 8, 7, 6)[:order], 3)
    more = [np.column_stack([f, 1e-6 * f[:, 0]]) for f in factors]
    reduction = cheapest_reduction(point_of(more), np.random.default_rng(0), cheap=1e-9)
    assert reduction.rows is None
    assert reduction.group == (3,)


def test_the_newest_component_is_not_taken_back():
    _, factors = planted(2, (9, 8, 7), 4)
    weak = [np.column_stack([f[:, :3], 0.3 * f[:, 3]]) for f in factors]
    free = cheapest_reduction(point_of(weak), np.random.default_rng(0), cheap=0.0)
    kept = cheapest_reduction(point_of(weak), np.random.default_rng(0), cheap=0.0, protected=3)
    assert 3 in free.group
    assert kept.group != (3,)
    assert kept.cost >= free.cost


def test_similarity_leaves_out_the_least_similar_mode():
    _, factors = planted(3, (9, 8, 7), 3)
    factors = [f.copy() for f in factors]
    factors[0][:, 2], factors[1][:, 2] = factors[0][:, 0], factors[1][:, 0]
    alike = similarity([f.T for f in factors])
    assert alike[0, 2] == pytest.approx(1.0)
    assert alike[0, 1] < 0.99
    np.testing.assert_array_equal(alike.diagonal(), 0.0)


# A rank near the dimensions


def crowded(seed, d=52, rank=40, noise=0.01):
    """Many collinear components of weights 0.1 to 1 in noise, with their factors."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(0.5 * np.ones((rank, rank)) + 0.5 * np.eye(rank))
    factors = [np.linalg.qr(rng.standard_normal((d, rank)))[0] @ root.T for _ in range(3)]
    weights = rng.uniform(0.1, 1.0, rank)
    signal = compose(factors, weights)
    disturbance = rng.standard_normal(signal.shape)
    scale = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
    return signal + scale * disturbance, factors


@pytest.mark.parametrize("seed", range(6))
def test_no_component_is_lost_at_a_rank_near_the_dimensions(seed):
    tensor, factors = crowded(seed)
    result = decompose(tensor, 40, random_state=seed)
    assert worst_match(result, factors) > 0.9
    assert relative_error(result, tensor) == pytest.approx(result.residual, rel=1e-6)


def test_exact_input_at_a_rank_near_the_dimensions():
    tensor, factors = crowded(0, noise=0.0)
    result = decompose(tensor, 40, random_state=0)
    assert relative_error(result, tensor) < 1e-12
    assert worst_match(result, factors) > 1 - 1e-6


def test_signal_is_what_stands_out_of_a_flat_tail():
    tensor, _ = crowded(1)
    total = float(np.sum(tensor**2))
    found = compress_to_signal(tensor, 40, total)
    assert found is not None
    assert found.core.shape == (40, 40, 40)
    variance = found.base / (tensor.size - found.core.size)
    assert variance == pytest.approx(1e-4 * total / tensor.size, rel=0.05)
    # Components beyond the rank are no noise, and neither are spectra that fall steadily.
    assert compress_to_signal(tensor, 38, total) is None
    x = np.linspace(0.0, 1.0, 52)
    smooth = np.exp(-3 * np.abs(x[:, None, None] - x[:, None] * x) * (1 + x))
    assert compress_to_signal(smooth, 40, float(np.sum(smooth**2))) is None


def test_a_mode_that_is_as_short_as_the_rank_stays():
    tensor, _ = planted(0, (60, 20, 58), 20, noise=0.05)
    found = compress_to_signal(tensor, 20, float(np.sum(tensor**2)))
    assert found is not None
    assert found.core.shape == (20, 20, 20)
    assert found.bases[1] is None


# Several optima


def ragged(seed, shape=(16, 15, 14)):
    """Data with no low rank, as measured data are: heavy-tailed entries."""
    return np.random.default_rng(seed).standard_t(3, size=shape)


@pytest.mark.parametrize("seed", range(3))
def test_contests_never_raise_the_loss(seed):
    tensor = ragged(seed)
    rng = np.random.default_rng(seed)
    monitor = Monitor(float(np.sum(tensor**2)))
    fit = CoreFit(tensor, 4, rng, monitor, lambda point: None, None, 1e-7)
    point = fit.run()
    better = Contests(fit).improved(point)
    assert better.loss <= point.loss
    assert better.factors[0].shape == (4, 16)
    other = fit.polish(fit.sweeps.start(random_start(tensor.shape, 4, rng)))
    assert better.loss <= other.loss * (1 + 0.02)


def test_thorough_fits_are_at_least_as_good_and_repeatable():
    rough, thorough = [], []
    for seed in range(4):
        tensor = ragged(seed, (40, 38, 36))
        fast = Automatic(thorough=False)(tensor, 6, np.random.default_rng(seed))
        slow = Automatic()(tensor, 6, np.random.default_rng(seed))
        again = Automatic()(tensor, 6, np.random.default_rng(seed))
        for one, two in zip(slow.factors, again.factors, strict=True):
            np.testing.assert_array_equal(one, two)
        rough.append(fast.residual)
        thorough.append(slow.residual)
    assert np.mean(thorough) < np.mean(rough)


def test_a_target_is_met_without_contests():
    tensor = ragged(0, (40, 38, 36))
    whole = decompose(tensor, 6, random_state=0)
    easy = decompose(tensor, 6, target=1.01 * whole.residual, random_state=0)
    assert easy.residual <= 1.01 * whole.residual
    assert len(easy.history) < len(whole.history)
    assert easy.status.name == "TARGET_REACHED"


def test_a_short_mode_shows_its_signal_without_a_sketch():
    tensor, _ = planted(4, (60, 58, 56), 20, noise=0.05)
    total = float(np.sum(tensor**2))
    found = compress_dense(tensor, 20, np.random.default_rng(0), total)
    assert found.clear
    assert found.core.shape == (20, 20, 20)
    # With components that noise hides, and without any noise, spare directions are kept.
    for other in (planted(4, (60, 58, 56), 20, noise=2.0)[0], planted(4, (60, 58, 56), 20)[0]):
        wide = compress_dense(other, 20, np.random.default_rng(0), float(np.sum(other**2)))
        assert not wide.clear
        assert wide.core.shape == (40, 40, 40)
