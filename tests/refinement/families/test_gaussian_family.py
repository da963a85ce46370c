"""The Gaussian family against scikit-learn, against brute force, and by the laws of EM."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import COVARIANCE_TYPES, as_matrices, merge_costs
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def batch_of(rows, weights=None):
    n = len(rows)
    return Batch((rows,), np.ones(n) if weights is None else weights, np.arange(n, dtype=np.uint64))


def clusters(n, d, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    return rows + 4 * rng.integers(0, 3, (n, 1)) + 100


def peer_of(rows, kind, k, seed=0):
    peer = GaussianMixture(k, covariance_type=kind, random_state=seed, max_iter=3, tol=0)
    with pytest.warns(ConvergenceWarning):
        peer.fit(rows)
    return peer, MixtureState(peer.weights_, peer.means_, peer.covariances_)


def family_of(rows, kind, **settings):
    return GaussianFamily.of(kind, rows.mean(axis=0), np.cov(rows.T), 1e-6, **settings)


@KINDS
@pytest.mark.parametrize("d, k", [(3, 2), (12, 4), (20, 2)])
def test_one_step_is_that_of_scikit_learn(kind, d, k):
    rows = clusters(700, d)
    peer, outer = peer_of(rows, kind, k)
    family = family_of(rows, kind)
    state = family.inside(outer)
    sums = family.expect(state, family.prepare(batch_of(rows)))
    assert abs(sums["log_likelihood"] / sums["weight"] - peer.score(rows)) < 1e-10
    peer._m_step(rows, peer._estimate_log_prob_resp(rows)[1])
    found = family.outside(family.maximize(sums, state))
    np.testing.assert_allclose(found.weights, peer.weights_, rtol=1e-9)
    np.testing.assert_allclose(found.means, peer.means_, rtol=1e-9)
    np.testing.assert_allclose(found.covariances, peer.covariances_, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("products", [True, False])
def test_products_and_cholesky_factors_give_the_same_sums(products):
    rows = clusters(3000, 6)
    _, outer = peer_of(rows, "full", 3)
    family = family_of(rows, "full")
    state = family.inside(outer)
    other = GaussianFamily(
        family.covariance_type, family.centre, family.transform, family.floor, products
    )
    one = family.expect(state, family.prepare(batch_of(rows)))
    two = other.expect(state, other.prepare(batch_of(rows)))
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-10, atol=1e-9)


@KINDS
def test_unobserved_entries_have_marginal_densities(kind):
    rows = clusters(40, 4)
    _, outer = peer_of(clusters(500, 4), kind, 3)
    hidden = rows.copy()
    hidden[np.random.default_rng(1).random(rows.shape) < 0.4] = np.nan
    hidden[0] = np.nan
    matrices = as_matrices(kind, outer.covariances, 3, 4)
    for missing in (True, False):
        family = family_of(rows, kind, missing=missing)
        logs = family.log_density(family.inside(outer), family.prepare(batch_of(hidden)))
        for i, row in enumerate(hidden):
            seen = ~np.isnan(row)
            for j in range(3):
                value = np.log(outer.weights[j])
                if seen.any():
                    value += multivariate_normal.logpdf(
                        row[seen], outer.means[j][seen], matrices[j][np.ix_(seen, seen)]
                    )
                assert logs[i, j] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_expected_sums_of_unobserved_entries_are_those_of_regression(kind):
    """sum r E x x' by conditional means and covariances, row by row."""
    rows = clusters(60, 3)
    hidden = rows.copy()
    hidden[np.random.default_rng(2).random(rows.shape) < 0.3] = np.nan
    _, outer = peer_of(clusters(500, 3), kind, 2)
    matrices = as_matrices(kind, outer.covariances, 2, 3)
    expected = []
    for missing in (True, False):
        family = family_of(rows, kind, missing=missing)
        state = family.inside(outer)
        prepared = family.prepare(batch_of(hidden))
        found = family.outside(family.maximize(family.expect(state, prepared), state))
        logs = family.log_density(state, prepared)
        fractions = np.exp(logs - logsumexp(logs, axis=1)[:, None])
        first, second = np.zeros((2, 3)), np.zeros((2, 3, 3))
        for fraction, row in zip(fractions, hidden, strict=True):
            seen = ~np.isnan(row)
            for j in range(2):
                mean, cov = outer.means[j], matrices[j]
                gain = cov[:, seen] @ np.linalg.inv(cov[np.ix_(seen, seen)])
                guess = mean + gain @ (row[seen] - mean[seen])
                left = cov - gain @ cov[seen]
                first[j] += fraction[j] * guess
                second[j] += fraction[j] * (np.outer(guess, guess) + left)
        counts = fractions.sum(axis=0)
        means = first / counts[:, None]
        expected = second / counts[:, None, None] - means[:, :, None] * means[:, None, :]
        if kind == "tied":
            expected = np.tensordot(counts / counts.sum(), expected, axes=1)
        np.testing.assert_allclose(found.means, means, rtol=1e-8)
        np.testing.assert_allclose(found.covariances, expected, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7])
def test_a_step_never_lowers_the_likelihood(kind, fraction):
    rows = clusters(600, 4)
    rng = np.random.default_rng(3)
    hidden = np.where(rng.random(rows.shape) < fraction, np.nan, rows)
    family = GaussianFamily.of(kind, rows.mean(axis=0), np.cov(rows.T), 0.0, missing=fraction > 0)
    prepared = family.prepare(batch_of(hidden, rng.uniform(0.5, 2, len(rows))))
    state = family.inside(peer_of(rows, kind, 3)[1])
    values = []
    for _ in range(15):
        sums = family.expect(state, prepared)
        values.append(float(sums["log_likelihood"] / sums["weight"]))
        new = family.maximize(sums, state)
        assert family.complete(sums, new) >= family.complete(sums, state) - 1e-9 * abs(values[-1])
        state = new
    assert np.diff(values).min() > -1e-12 * abs(values[0])


@KINDS
def test_pack_and_unpack_are_inverse(kind):
    rows = clusters(300, 5)
    family = family_of(rows, kind)
    state = family.inside(peer_of(rows, kind, 3)[1])
    again = family.unpack(family.pack(state), state)
    for name in ("weights", "means", "covariances"):
        value = getattr(state, name)
        # Entries near zero are differences of larger ones.
        np.testing.assert_allclose(
            getattr(again, name), value, rtol=1e-10, atol=1e-10 * np.abs(value).max()
        )


def test_features_without_variance_and_huge_units_are_safe():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 4)) * [1e-120, 1.0, 1e120, 0.0]
    rows[:, 3] = 7.0
    for kind in ("full", "tied", "diag"):
        family = GaussianFamily.of(kind, rows.mean(axis=0), np.cov(rows.T), 0.0)
        prepared = family.prepare(batch_of(rows))
        assert np.isfinite(prepared.rows).all()


def test_merging_costs_nothing_for_equal_components_and_is_symmetric():
    rng = np.random.default_rng(1)
    means = np.vstack([np.zeros((2, 3)), rng.standard_normal((2, 3)) * 5])
    for kind in COVARIANCE_TYPES:
        shape = {"full": (4, 3, 3), "tied": (3, 3), "diag": (4, 3), "spherical": (4,)}[kind]
        cov = np.broadcast_to(np.eye(3) if len(shape) > 1 and shape[-2:] == (3, 3) else 1.0, shape)
        weights = np.array([0.1, 0.2, 0.3, 0.4])
        pairs = np.array([0, 1, 0]), np.array([1, 0, 2])
        costs = merge_costs(kind, weights, means, cov, *pairs)
        assert abs(costs[0]) < 1e-12
        assert costs[0] == pytest.approx(costs[1], abs=1e-12)
        assert costs[2] > 0.1


@pytest.mark.parametrize("kind", ["diag", "spherical"])
@pytest.mark.parametrize("observed", [True, False])
def test_densities_of_narrow_components_far_from_the_centre_keep_their_digits(kind, observed):
    rng = np.random.default_rng(0)
    deviation = np.sqrt(1e-12)
    family = GaussianFamily.scaled(kind, np.zeros(2), np.ones(2), 0.0)
    means = np.array([[0.7, -0.9], [-0.7, 0.9]])
    variances = np.full((2, 2) if kind == "diag" else 2, 1e-12)
    rows = means[0] + deviation * rng.standard_normal((50, 2))
    rows[0, 0] = rows[0, 0] if observed else np.nan
    state = MixtureState(np.ones(2), means, variances)
    found = family.log_density(state, family.prepare(batch_of(rows)))[1:, 0]
    gaps = (rows[1:] - means[0]) / deviation
    expected = -(gaps**2).sum(axis=1) / 2 - np.log(2 * np.pi * 1e-12)
    assert np.abs(found - expected).max() < 1e-8
