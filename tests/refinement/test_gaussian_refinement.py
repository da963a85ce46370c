import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from latensor.engines import LocalEngine
from latensor.moments.batch import Batch, Kind
from latensor.refinement.em import em
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.family import Statistics
from latensor.refinement.mixture_moves import split_and_merge, spreads
from latensor.refinement.mixture_search import search, starts_of
from latensor.refinement.mixture_starts import Coordinates, plus_plus
from latensor.refinement.responsibilities import divide_by_largest, normalize_rows
from latensor.sources.shards import Source


def example(seed=0, n=400, k=4, d=3, spread=8.0):
    rng = np.random.default_rng(seed)
    means = spread * rng.standard_normal((k, d))
    labels = rng.integers(0, k, n)
    return means[labels] + rng.standard_normal((n, d)), means, labels


def family_and_state(kind, samples, means):
    k, d = means.shape
    name = "diag" if kind == "diagonal" else "spherical"
    covariance = np.cov(samples.T)
    family = GaussianFamily.of(
        name, samples.mean(axis=0), covariance, 1e-9, common=kind == "common"
    )
    shape = (k, d) if kind == "diagonal" else k
    return family, family.inside(MixtureState(np.full(k, 1 / k), means, np.full(shape, 1.5)))


def batch(samples, weights=None):
    weights = np.ones(len(samples)) if weights is None else weights
    return Batch((samples,), weights, np.arange(len(samples), dtype=np.uint64))


def logs_of(family, samples, state):
    return family.log_density(state, family.prepare(batch(samples)))


def expect(points, family, state):
    return Statistics(family, state, True).update(points)


def em_fit(points, family, state, **settings):
    return em(lambda start: start.update(points), family, state, prepared=True, **settings)


def densities(samples, state):
    deviations = np.sqrt(state.covariances).reshape(len(state.weights), -1)
    deviations = np.broadcast_to(deviations, state.means.shape)
    logs = [
        np.log(w) + norm.logpdf(samples, m, s).sum(axis=1)
        for w, m, s in zip(state.weights, state.means, deviations, strict=True)
    ]
    return np.stack(logs, axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_responsibilities_agree_with_their_reference(weighted):
    rng = np.random.default_rng(0)
    logs = 300 * rng.standard_normal((50, 6)) - 500
    weights = rng.uniform(0, 2, 50) if weighted else None
    found = logs.copy()
    sums = normalize_rows(found, weights)
    assert np.abs(sums - logsumexp(logs, axis=1)).max() < 1e-12 * 1000
    factors = weights if weighted else np.ones(50)
    expected = np.exp(logs - logsumexp(logs, axis=1)[:, None]) * factors[:, None]
    assert np.abs(found - expected).max() < 1e-13
    relative = logs.copy()
    assert (divide_by_largest(relative) == logs.max(axis=1)).all()
    assert np.abs(relative - np.exp(logs - logs.max(axis=1)[:, None])).max() < 1e-15


def test_rows_of_density_zero_have_no_likelihood():
    logs = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    sums = normalize_rows(logs)
    assert sums.tolist() == [-np.inf, 0.0]
    assert logs[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", ["common", "differing", "diagonal"])
def test_a_step_is_that_of_the_textbook(kind):
    samples, means, _ = example()
    weights = np.random.default_rng(1).uniform(0.5, 2, len(samples))
    family, state = family_and_state(kind, samples, means + 0.5)
    rows = family.prepare(batch(samples, weights))
    outside = family.outside(state)
    logs = densities(samples, outside)
    assert np.abs(logs_of(family, samples, state) - logs).max() < 1e-9
    found = expect(rows, family, state)
    assert found.value == pytest.approx(
        weights @ logsumexp(logs, axis=1) / weights.sum(), rel=1e-12
    )
    owned = np.exp(logs - logsumexp(logs, axis=1)[:, None]) * weights[:, None]
    counts = owned.sum(axis=0)
    after = family.outside(found.maximized())
    expected = owned.T @ samples / counts[:, None]
    assert np.abs(after.weights - counts / counts.sum()).max() < 1e-12
    assert np.abs(after.means - expected).max() < 1e-9
    gaps = (samples[:, None] - expected[None]) ** 2
    variances = np.einsum("nk,nkd->kd", owned, gaps) / counts[:, None]
    if kind == "differing":
        variances = variances.mean(axis=1)
    elif kind == "common":
        variances = np.full(len(counts), counts @ variances.mean(axis=1) / counts.sum())
    assert np.abs(after.covariances - variances).max() < 1e-7


@pytest.mark.parametrize("kind", ["common", "differing", "diagonal"])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_likelihood_never_falls(kind, accelerate):
    samples, means, _ = example(seed=2, spread=1.5)
    family, state = family_and_state(kind, samples, means + 1.0)
    design = family.prepare(batch(samples))
    values = [
        em_fit(design, family, state, max_iter=n, accelerate=accelerate).log_likelihood
        for n in range(1, 40, 3)
    ]
    assert (np.diff(values) > -1e-10).all()


def test_extrapolation_needs_fewer_passes_for_the_same_optimum():
    samples, means, _ = example(seed=3, n=2000, spread=1.2)
    family, state = family_and_state("differing", samples, means)
    design = family.prepare(batch(samples))
    plain = em_fit(design, family, state, max_iter=5000, tol=1e-10, accelerate=False)
    fast = em_fit(design, family, state, max_iter=5000, tol=1e-10)
    assert fast.log_likelihood > plain.log_likelihood - 1e-5
    assert fast.n_iter < plain.n_iter / 2


def test_threads_change_no_bit():
    samples, means, _ = example(n=70_000)
    family, state = family_and_state("differing", samples, means)
    source = Source.of(Kind.ROWS, batch(samples))
    one, two = (LocalEngine(n).fold(source, Statistics(family, state)).seen() for n in (1, 2))
    assert (one["first"] == two["first"]).all()
    assert one["log_likelihood"] == two["log_likelihood"]


def test_single_precision_rows_are_computed_in_double():
    samples, means, _ = example()
    family, state = family_and_state("differing", samples, means)
    single = samples.astype(np.float32)
    gap = logs_of(family, single, state) - logs_of(family, single.astype(float), state)
    assert np.abs(gap).max() < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_split_and_merge_repairs_a_wrong_optimum(seed):
    samples, means, _ = example(seed, n=1000, k=5, d=4)
    # Two components share one cluster and one covers two.
    wrong = means.copy()
    wrong[0] = (means[0] + means[1]) / 2
    wrong[1] = means[2] + 0.5
    family, state = family_and_state("differing", samples, wrong)
    design = family.prepare(batch(samples))
    stuck = em_fit(design, family, state, max_iter=100)
    _, right_state = family_and_state("differing", samples, means)
    right = em_fit(design, family, right_state, max_iter=100)
    repaired, value, n_moves = split_and_merge(family, design, stuck.state)
    assert value > right.log_likelihood - 1e-3
    assert n_moves >= 1 or stuck.log_likelihood > right.log_likelihood - 1e-3
    assert spreads(family, design, repaired).max() < 1.25


@pytest.mark.parametrize("kind", ["common", "diagonal"])
def test_the_search_finds_separated_clusters_without_moments(kind):
    samples, means, _ = example(7, n=1500, k=6, d=2, spread=15.0)
    family, state = family_and_state(kind, samples, means)
    design = family.prepare(batch(samples))
    oracle = em_fit(design, family, state, max_iter=100).log_likelihood
    coordinates = Coordinates.of(family, batch(samples), design)
    starts = starts_of(family, coordinates, 6, np.random.default_rng(0), {}, few=True)
    found = search(family, design, starts)
    assert found.start.startswith("many clusters merged")
    assert found.log_likelihood > oracle - 2e-3


def test_plus_plus_takes_every_distinct_point_and_survives_duplicates():
    rows = np.repeat(np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]]), 4, axis=0)
    centers = plus_plus(rows, np.ones(12), 3, np.random.default_rng(0))
    assert len(np.unique(centers, axis=0)) == 3
    assert plus_plus(rows, np.ones(12), 5, np.random.default_rng(0)).shape == (5, 2)
