import numpy as np
import pytest

from latensor.models.ica.scores import (
    EDGES,
    N_CELLS,
    cells,
    counted,
    estimate_scores,
    functions,
)


def draws(kind, n, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    values = {
        "laplace": lambda: rng.laplace(size=n) / np.sqrt(2),
        "uniform": lambda: rng.uniform(-np.sqrt(3), np.sqrt(3), n),
        "gaussian": lambda: rng.standard_normal(n),
        "exponential": lambda: rng.exponential(size=n) - 1,
        "binary": lambda: rng.choice([-1.0, 1.0], n),
    }[kind]()
    values = values + noise * rng.standard_normal(n)
    return ((values - values.mean()) / values.std())[:, None]


def score_of(values, weights=None):
    return estimate_scores(counted(values, weights))


def test_cells_hold_what_lies_between_their_edges():
    values = np.array([[-9.0], [-8.0], [0.0], [0.01], [7.999], [50.0]])
    assert (cells(values)[:, 0] // 16).tolist() == [0, 0, N_CELLS // 2, N_CELLS // 2, *[511] * 2]
    values = draws("laplace", 5000)
    expected, _ = np.histogram(np.clip(values, EDGES[0], EDGES[-1] - 1e-9), EDGES)
    counts = counted(values, None)
    assert np.array_equal(counts.sum(axis=2)[0], expected)
    # Halves are about halves.
    assert np.abs(counts.sum(axis=1)[0] - 2500).max() < 250


def test_weights_count_samples():
    values = draws("laplace", 2000)
    counts = np.random.default_rng(1).integers(0, 3, 2000)
    weighted = counted(values, counts.astype(float))
    assert np.array_equal(weighted, counted(np.repeat(values, counts, axis=0), None))


def test_the_derivative_is_that_of_the_score():
    score = score_of(draws("laplace", 20_000))
    points = np.linspace(-9, 9, 1001)[:, None] + 1e-4
    values, slopes = score(points)
    later, _ = score(points + 1e-7)
    inside = cells(points) // 16 == cells(points + 1e-7) // 16
    assert np.abs((later - values) / 1e-7 - slopes)[inside].max() < 1e-5
    # Continuous from cell to cell, and beyond the last.
    assert np.abs(later - values).max() < 1e-4


@pytest.mark.parametrize("kind", ["laplace", "uniform", "gaussian", "exponential"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_it_tells_more_than_the_smooth_functions_alone(kind, noise):
    # Of fresh samples, 2 E[g'] - E[g^2] is what a function tells.
    def told(values, slopes):
        return 2 * slopes.mean() - values.var()

    fitted, fresh = draws(kind, 20_000, 0, noise), draws(kind, 200_000, 1, noise)
    found = told(*score_of(fitted)(fresh))
    base, base_slopes = functions(fitted)
    base = np.vstack([fitted.T, base[:, :, 0]])
    base_slopes = np.vstack([np.ones(len(fitted)), base_slopes[:, :, 0]])
    combination = np.linalg.solve(np.cov(base), base_slopes.mean(axis=1))
    values, slopes = functions(fresh)
    values = combination @ np.vstack([fresh.T, values[:, :, 0]])
    slopes = combination @ np.vstack([np.ones(len(fresh)), slopes[:, :, 0]])
    assert found > 0.995 * told(values, slopes)
    if kind in ("uniform", "exponential") and noise == 0:
        assert found > 1.3 * told(values, slopes)
    if kind == "gaussian":
        assert found == pytest.approx(1.0, abs=0.02)


def test_the_score_of_a_gaussian_is_a_straight_line():
    score = score_of(draws("gaussian", 50_000))
    points = np.linspace(-2, 2, 9)[:, None]
    assert np.abs(score(points)[0] - points).max() < 0.1
    assert np.abs(score.bend).max() < 0.1
    assert np.abs(score.second_bend).max() < 0.2


@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("kind", ["laplace", "binary"])
def test_few_or_equal_samples_give_numbers(n, kind):
    score = score_of(draws(kind, n, seed=3))
    values, slopes = score(np.array([[-1.0], [0.0], [100.0]]))
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
