import numpy as np
import pytest

from latensor.models.mixtures.pearson_roots import (
    mixture_moments,
    sixth_error,
    solve,
)
from latensor.moments.univariate import SixMoments


def population(weights, means, variances, weight=1e24):
    mean = float(weights @ means)
    central = mixture_moments(weights, means - mean, variances, 6)
    return SixMoments(int(weight), weight, mean, central)


def planted(seed, kind):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.15, 0.85)
    weights, means = np.array([first, 1 - first]), rng.uniform(-3, 3, 2)
    # Means closer than a third of a deviation leave nothing for five moments to hold on to.
    means[1] += np.sign(means[1] - means[0]) * 0.5
    variances = rng.uniform(0.3, 2, 2)
    if kind == "equal variances":
        variances[1] = variances[0]
    elif kind == "symmetric":
        weights, variances = np.array([0.5, 0.5]), np.full(2, variances[0])
    elif kind == "equal means":
        means[1], variances[1] = means[0], variances[0] + 1.5
    return weights, means, variances


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["any", "equal variances", "symmetric", "equal means"])
def test_population_moments_give_the_parameters_back(seed, kind):
    weights, means, variances = planted(seed, kind)
    best = solve(population(weights, means, variances))[0]
    assert best.exact
    found, true = (
        np.column_stack([state[0], np.ravel(state[1]), state[2]])
        for state in (
            (best.state.weights, best.state.means, best.state.covariances),
            (weights, means, variances),
        )
    )
    column = 2 if kind == "equal means" else 1
    found, true = found[np.argsort(found[:, column])], true[np.argsort(true[:, column])]
    assert np.abs(found - true).max() < 1e-8
    assert sixth_error(best, population(weights, means, variances, 1e6)) < 1e-6


def test_moments_of_a_gaussian_are_those_of_the_table():
    normal = mixture_moments(np.ones(1), np.zeros(1), np.full(1, 4.0), 6)
    assert np.allclose(normal, [1, 0, 4, 0, 3 * 16, 0, 15 * 64])
    shifted = mixture_moments(np.array([0.5, 0.5]), np.array([-1.0, 1.0]), np.zeros(2), 6)
    assert np.allclose(shifted, [1, 0, 1, 0, 1, 0, 1])


def test_every_admissible_root_meets_five_moments():
    moments = population(np.array([0.42, 0.58]), np.array([13.4, 19.3]), np.array([20.4, 9.7]))
    roots = [root for root in solve(moments) if root.exact]
    assert len(roots) == 2
    for root in roots:
        means = root.state.means[:, 0] - moments.mean
        found = mixture_moments(root.state.weights, means, root.state.covariances, 5)
        scale = moments.central[2] ** (np.arange(6) / 2)
        assert np.abs((found - moments.central[:6]) / scale).max() < 1e-6
    assert roots[0].misfit < roots[1].misfit


def test_exactly_symmetric_moments_have_roots():
    half = np.array([0.5, 0.5])
    moments = population(half, np.array([-2.0, 2.0]), np.ones(2))
    assert moments.central[3] == 0
    assert np.abs(np.sort(solve(moments)[0].state.means[:, 0]) - [-2, 2]).max() < 1e-8
