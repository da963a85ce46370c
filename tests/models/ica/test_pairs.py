import numpy as np
import pytest

from latensor.datasets.sources_mixed import make_ica
from latensor.models.ica.pairs import Means, pair_moves, refine_pairs
from latensor.models.ica.rotation import refine_rotation, refine_unconstrained
from models.unmixing import over_scores as over


def fractions_of(unmixing, mixing):
    """What every unmixed source holds of the others, (k, k)."""
    gains = unmixing.T @ mixing
    return gains / np.diag(gains)[:, None] - np.eye(len(gains))


def population(a, b, c, noise=0.0):
    """Means of two sources of score function phi = 2 tanh, to first order in them and noise."""
    grid = np.linspace(-12, 12, 40_001)
    density = np.exp(-2 * np.log(np.cosh(grid)))
    density /= density.sum()
    scale = np.sqrt((density * grid**2).sum())
    phi, slope = 2 * np.tanh(grid) * scale, 2 / np.cosh(grid) ** 2 * scale**2
    s = (density * slope).sum()
    q, m = (density * phi**2).sum(), (density * phi * grid / scale).sum()
    adjusted = m - noise * s
    crossed = np.array(
        [
            [m, s * (1 - noise) * a + adjusted * b + s * c],
            [s * (1 - noise) * b + adjusted * a + s * c, m],
        ]
    )
    both = np.array([[q, 0], [0, q]]) + (s * adjusted * (a + b) + s * s * c) * (1 - np.eye(2))
    second = np.array([[1, a + b + c], [a + b + c, 1]])
    return Means(crossed, both, second, np.zeros((2, 2)), np.full(2, s), np.zeros(2), np.zeros(2))


MANY = np.full((2, 2), 1e12)


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (1e-3, 0.0), (2e-3, -1e-3)])
def test_fractions_are_found_exactly(a, b):
    moves, p_value = pair_moves(population(a, b, 0.0), np.zeros((2, 2)), MANY)
    assert moves[0, 1] == pytest.approx(a, abs=1e-9)
    assert moves[1, 0] == pytest.approx(b, abs=1e-9)
    assert p_value > 0.1
    # The same under noise of a known covariance, here not correlated.
    found, _ = pair_moves(population(a, b, 0.0, 0.2), 0.2 * np.eye(2), MANY)
    assert np.abs(found - [[0, a], [b, 0]]).max() < 1e-9


@pytest.mark.parametrize("c", [1e-3, -3e-3])
def test_correlated_noise_is_told_from_fractions(c):
    means = population(2e-3, -1e-3, c)
    moves, p_value = pair_moves(means, None, MANY)
    assert np.abs(moves - [[0, 2e-3], [-1e-3, 0]]).max() < 1e-8
    assert p_value < 1e-10
    biased, _ = pair_moves(means, np.zeros((2, 2)), MANY)
    assert np.abs(biased - moves).max() > 0.1 * abs(c)


def test_noise_that_does_not_show_is_taken_for_none():
    # Of so few samples a correlation of 0.01 is chance, and costs nothing.
    means, few = population(0.02, -0.01, 0.01), np.full((2, 2), 1e3)
    known, _ = pair_moves(means, np.zeros((2, 2)), few)
    unknown, p_value = pair_moves(means, None, few)
    assert p_value > 0.1
    assert np.array_equal(known, unknown)


def test_gaussian_pairs_stay_where_they_are():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((5000, 3))
    found = refine_pairs(over(scores), np.zeros((3, 3)), np.eye(3))
    unit = found.unmixing / np.linalg.norm(found.unmixing, axis=0)
    assert np.abs(unit - np.eye(3)).max() < 0.1
    one = refine_pairs(over(scores[:, :1], None, scores), None, np.eye(1), with_sensors=True)
    assert np.isnan(one.noise_p_value)
    assert np.isnan(one.energy_correlation)


@pytest.mark.parametrize("sources", ["student", ("laplace", "uniform")])
def test_noise_is_seen_where_it_is_and_only_there(sources):
    values = {0.0: [], 0.3: []}
    for noise, seen in values.items():
        for seed in range(12):
            made = make_ica(10_000, 4, 4, sources=sources, noise=noise, random_state=seed)
            centered = made.samples - made.samples.mean(axis=0)
            start = np.linalg.inv(made.mixing).T
            seen.append(refine_pairs(over(centered), np.zeros((4, 4)), start).noise_p_value)
    quiet, loud = (np.array(seen) for seen in values.values())
    # P-values without noise are spread evenly.
    assert (quiet < 1e-3).sum() == 0
    assert 0.15 < np.median(quiet) < 0.85
    assert (loud < 1e-3).sum() >= 9


def test_dependent_samples_show_less():
    made = make_ica(10_000, 4, 4, noise=0.15, random_state=0)
    centered, start = made.samples - made.samples.mean(axis=0), np.linalg.inv(made.mixing).T
    free = refine_pairs(over(centered), np.zeros((4, 4)), start)
    held = refine_pairs(over(centered), np.zeros((4, 4)), start, dependence=np.full((4, 4), 30.0))
    assert free.noise_p_value < held.noise_p_value
    assert held.dependence == 30


@pytest.mark.parametrize("sources", ["uniform", ("laplace", "uniform"), ("exponential", "laplace")])
def test_without_noise_it_is_more_exact_than_a_rotation(sources):
    bound, free = [], []
    for seed in range(6):
        made = make_ica(10_000, 4, 4, sources=sources, random_state=seed)
        centered = made.samples - made.samples.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(centered.T, bias=True))
        projection = vectors / np.sqrt(values)
        left, _, right = np.linalg.svd(projection.T @ made.mixing)
        scores, none = centered @ projection, np.zeros((4, 4))
        turned = refine_rotation(over(scores), none, left @ right, max_iter=30).unmixing
        pairs = refine_pairs(over(scores), none, turned).unmixing
        for kept, found in ((bound, turned), (free, pairs)):
            kept.append((fractions_of(projection @ found, made.mixing) ** 2).sum())
    assert np.median(free) < 0.8 * np.median(bound)


def test_unknown_noise_costs_what_the_bound_says():
    """The variance 1 / (n J_i (v_j - 1 / J_j)), measured; one by one it is J_j v_j times that."""
    n, errors, single = 20_000, [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sources = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, 3))
        root = np.linalg.cholesky([[0.1, 0.03, 0.0], [0.03, 0.1, 0.0], [0.0, 0.0, 0.1]])
        scores = sources + rng.standard_normal((n, 3)) @ root.T
        errors.append(fractions_of(refine_pairs(over(scores), None, np.eye(3)).unmixing, np.eye(3)))
        single.append(
            fractions_of(refine_unconstrained(over(scores), max_iter=30).unmixing, np.eye(3))
        )
    # J = 1.62 for a uniform source with noise of variance 0.1.
    bound = 1 / (n * 1.62 * (1.1 - 1 / 1.62))
    off = ~np.eye(3, dtype=bool)
    measured = np.mean([(e[off] ** 2).mean() for e in errors])
    assert 0.5 * bound < measured < 1.6 * bound
    assert measured < 0.8 * np.mean([(e[off] ** 2).mean() for e in single])


def test_correlated_noise_of_known_covariance_leaves_no_bias():
    n, found = 200_000, []
    noise = np.array([[0.3, 0.2], [0.2, 0.3]])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        sources = np.column_stack([rng.exponential(size=n) - 1, rng.uniform(-1.73, 1.73, n)])
        scores = sources + rng.standard_normal((n, 2)) @ np.linalg.cholesky(noise).T
        found.append(fractions_of(refine_pairs(over(scores), noise, np.eye(2)).unmixing, np.eye(2)))
    assert np.abs(np.mean(found, axis=0)).max() < 0.006


def test_sensors_show_the_mixing():
    made = make_ica(100_000, 6, 3, noise=0.4, noise_kind="full", random_state=1)
    centered = made.samples - made.samples.mean(axis=0)
    start = np.linalg.pinv(made.mixing)
    result = refine_pairs(
        over(centered @ start.T, None, centered), None, np.eye(3), with_sensors=True
    )
    cosines = np.einsum("dj,dj->j", result.mixing, made.mixing) / (
        np.linalg.norm(result.mixing, axis=0) * np.linalg.norm(made.mixing, axis=0)
    )
    assert cosines.min() > 0.999
    product = result.unmixing.T @ start @ result.mixing
    assert np.abs(product - np.eye(3)).max() < 0.03


def test_energies_that_go_together_are_told():
    rng = np.random.default_rng(0)
    loudness = np.exp(0.5 * rng.standard_normal((20_000, 1)))
    together = refine_pairs(over(loudness * rng.standard_normal((20_000, 3))), None, np.eye(3))
    alone = refine_pairs(over(rng.laplace(size=(20_000, 3))), None, np.eye(3))
    assert together.energy_correlation > 0.1
    assert alone.energy_correlation < 0.02
    # Noise that sources share does not count.
    noise = rng.standard_normal((20_000, 1)) * np.array([1.0, 0.8, 0.9])
    shared = refine_pairs(over(rng.laplace(size=(20_000, 3)) + noise), None, np.eye(3))
    assert shared.energy_correlation < 0.05


def test_weights_count_rows_and_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    scores = rng.laplace(size=(90_000, 3)) / np.sqrt(2) + 0.1
    counts = rng.integers(0, 3, 90_000).astype(float)
    scores.setflags(write=False)
    for noise in (np.zeros((3, 3)), None):
        weighted = refine_pairs(over(scores, counts, scores), noise, np.eye(3), with_sensors=True)
        rows = np.repeat(scores, counts.astype(int), 0)
        repeated = refine_pairs(over(rows, None, rows), noise, np.eye(3), with_sensors=True)
        threads = refine_pairs(over(scores, counts, scores, 3), noise, np.eye(3), with_sensors=True)
        for name in ("unmixing", "mixing"):
            one = getattr(weighted, name)
            assert np.abs(one - getattr(repeated, name)).max() < 1e-8
            assert np.array_equal(one, getattr(threads, name))
