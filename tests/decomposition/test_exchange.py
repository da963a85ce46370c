"""Exchanges of components between optima of nearly the same loss."""

from __future__ import annotations

import numpy as np
import pytest

from latensor.decomposition import decompose
from latensor.decomposition.auto.exchange import Exchange
from latensor.decomposition.optimize.alternating import Sweeps
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.levenberg_marquardt import NewtonSteps
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.starts import random_start
from latensor.tensors import CPTensor


def rugged(seed):
    """Blocks of ones at random: no few components and noise, so that optima abound."""
    rng = np.random.default_rng(seed)
    return (rng.random((9, 8, 7)) < 0.2).astype(float)


def settled(problem, rank, seed):
    sweeps = Sweeps(problem)
    point = sweeps.start(random_start(problem.shape, rank, np.random.default_rng(seed)))
    for _ in range(200):
        point = sweeps.extrapolated(point)
    return point


def walked(seed, *, budget=1500, monitor=None):
    problem = DenseProblem(rugged(seed))
    point = settled(problem, 4, seed)
    monitor = monitor or Monitor(problem.squared_norm)
    exchange = Exchange(problem, np.random.default_rng(seed), monitor, _assembled, 1e-7)
    return problem, point, exchange.run(point, budget, budget)


def _assembled(point):
    return CPTensor(np.ones(len(point.factors[0])), tuple(f.T for f in point.factors))


def test_exchanges_find_better_optima_and_never_worse_ones():
    gains = []
    for seed in range(4):
        problem, before, after = walked(seed)
        assert after.loss <= before.loss
        assert after.factors[0].shape == before.factors[0].shape
        assert problem.explicit_loss(after.factors) == pytest.approx(after.loss, rel=1e-9)
        gains.append(1 - after.loss / before.loss)
    assert max(gains) > 1e-3


def test_the_same_generator_gives_the_same_walk():
    first, second = (walked(1, budget=600)[2] for _ in range(2))
    assert all((a == b).all() for a, b in zip(first.factors, second.factors, strict=True))


def test_every_better_optimum_is_told_and_falls():
    monitor = Monitor(float((rugged(2) ** 2).sum()))
    _, before, after = walked(2, monitor=monitor)
    assert after.loss < before.loss
    assert (np.diff(monitor.history) <= 0).all()
    assert monitor.history[-1] == monitor.relative(after.loss)


def test_a_callback_stops_the_walk():
    seen = []

    def stop(state):
        seen.append(state.tensor.shape)
        return True

    monitor = Monitor(float((rugged(2) ** 2).sum()), callback=stop)
    walked(2, monitor=monitor)
    assert seen == [(9, 8, 7)]


def test_steps_from_a_converged_point_stay_finite():
    problem = DenseProblem(rugged(0))
    newton = NewtonSteps(problem)
    point = newton.start(settled(problem, 2, 0).factors)
    for _ in range(60):
        point = newton.step(point)
    assert np.isfinite(point.damping)
    assert np.isfinite(point.loss)
    assert all(np.isfinite(factor).all() for factor in newton.step(point).factors)


def test_a_whole_decomposition_of_rugged_data_is_reproducible():
    tensor = (np.random.default_rng(3).random((30, 28, 26)) < 0.05).astype(float)
    first, second = (decompose(tensor, 3, random_state=5) for _ in range(2))
    assert first.residual == second.residual
    assert (first.factors[0] == second.factors[0]).all()
