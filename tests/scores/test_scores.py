"""Score functions: E[y S_m(x)] = E[grad^m f(x)], by quadrature for every kind."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.special import logsumexp

import latensor as lt
from latensor.exceptions import InvalidInputError
from latensor.scores import GaussianScores, MixtureScores
from latensor.value_files import decode, encode

WEIGHTS = np.array([0.3, 0.7])
MEANS = np.array([[-1.0, 0.5], [0.8, -0.4]])
COVARIANCES = np.array([[[0.6, 0.2], [0.2, 0.5]], [[0.4, -0.1], [-0.1, 0.7]]])
DIRECTION = np.array([0.7, -0.4])

# A grid on which the trapezoidal rule is exact to rounding for densities that are smooth.
LINE = np.linspace(-9, 9, 145)
GRID = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), axis=-1).reshape(-1, 2)


def quartic(xp, rows):
    """A log density, up to a constant, that is not Gaussian."""
    return -(rows[:, 0] ** 4) / 4 - rows[:, 1] ** 2 / 2 + xp.sin(rows[:, 0] * rows[:, 1]) / 2


def by_torch():
    import torch

    return lt.scores.from_log_density(lambda rows: quartic(torch, rows))


def by_jax():
    import jax.numpy as jnp

    return lt.scores.from_log_density(lambda rows: quartic(jnp, rows), library="jax")


def matched():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 120)
    return lt.scores.score_matching(MEANS[labels] * 2 + 0.6 * rng.standard_normal((120, 2)))


SCORES = {
    "gaussian": lambda: GaussianScores(MEANS[0], COVARIANCES[0]),
    "mixture": lambda: MixtureScores(WEIGHTS, MEANS, COVARIANCES),
    "torch": by_torch,
    "jax": by_jax,
    "matched": matched,
}


def logs(name, scores, rows):
    return quartic(np, rows) if name in ("torch", "jax") else scores.log_density(rows)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_moments_are_expected_derivatives(name, order):
    scores = SCORES[name]()
    density = np.exp(logs(name, scores, GRID) - logsumexp(logs(name, scores, GRID)))
    used = density > 1e-25
    rows, density = GRID[used], density[used]
    wave = rows @ DIRECTION + 0.3
    # f = sin(c'x + b), whose derivatives are c^(x)m times sin, cos, -sin, -cos.
    derivative = [np.sin, np.cos, lambda t: -np.sin(t), lambda t: -np.cos(t)][order](wave)
    expected = derivative @ density
    for _ in range(order):
        expected = np.multiply.outer(expected, DIRECTION)
    found = scores.moment(rows, np.sin(wave), order, sample_weight=density)
    assert np.abs(found - expected).max() < (2e-4 if name == "jax" else 1e-8)


@pytest.mark.parametrize("name", ["gaussian", "mixture", "torch", "matched"])
def test_contractions_sums_and_projections_agree(name):
    scores, rng = SCORES[name](), np.random.default_rng(1)
    rows, basis, y = rng.standard_normal((5, 2)), rng.standard_normal((2, 3)), rng.random((5, 2))
    u, v = basis[:, 0], basis[:, 1]
    second, third = scores.second(rows), scores.third(rows)
    assert np.abs(third - third.transpose(0, 3, 1, 2)).max() < 1e-12
    assert np.abs(scores.contract(rows, u) - second @ u).max() < 1e-12
    assert np.abs(scores.contract(rows, u, v) - (third @ v) @ u).max() < 1e-12
    each = {1: "nq,na,ai->iq", 2: "nq,nab,ai,bj->ijq", 3: "nq,nabc,ai,bj,ck->ijkq"}
    for order, full in ((1, scores.first(rows)), (2, second), (3, third)):
        expected = np.einsum(each[order], y, full, *[basis] * order) / len(rows)
        found = scores.moment(rows, y, order, basis=basis)
        assert np.abs(found - expected).max() < 1e-12
        one = scores.moment(rows, y[:, 0], order, basis=basis)
        assert np.abs(one - expected[..., 0]).max() < 1e-12


def test_every_way_to_a_mixture_gives_the_same_scores():
    import torch

    known = MixtureScores(WEIGHTS, MEANS, COVARIANCES)
    parts = torch.distributions.MultivariateNormal(
        torch.as_tensor(MEANS), torch.as_tensor(COVARIANCES)
    )
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.as_tensor(WEIGHTS)), parts
    )
    rows = np.random.default_rng(0).standard_normal((4, 2))
    by_density = lt.scores.from_log_density(mixture.log_prob)
    by_score = lt.scores.from_score(lt.scores.from_log_density(mixture.log_prob).score)
    for order in ("first", "second", "third"):
        expected = getattr(known, order)(rows)
        for scores in (by_density, by_score):
            assert np.abs(getattr(scores, order)(rows) - expected).max() < 1e-11
    found = known.third(torch.as_tensor(rows))
    assert isinstance(found, torch.Tensor)
    assert np.abs(found.numpy() - known.third(rows)).max() == 0
    assert known.first(rows.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_scores_of_fitted_mixtures(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2)) + 4 * rng.integers(0, 2, (300, 1))
    model = lt.GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
    scores, step = lt.scores.of_mixture(model), 1e-6
    assert np.abs(scores.log_density(X) - model.score_samples(X)).max() < 1e-10
    shifts = step * np.eye(2)
    numeric = [
        (model.score_samples(X + s) - model.score_samples(X - s)) / (2 * step) for s in shifts
    ]
    assert np.abs(scores.first(X) + np.transpose(numeric)).max() < 1e-6


def test_score_matching_learns_what_a_gaussian_cannot():
    rng = np.random.default_rng(3)
    truth = MixtureScores([0.5, 0.5], [[-1.2, 0.0], [1.2, 0.0]], [0.3 * np.eye(2)] * 2)
    errors = []
    for n in (3_000, 30_000):
        labels = rng.integers(0, 2, n)
        X = truth.means[labels] + np.sqrt(0.3) * rng.standard_normal((n, 2))
        found = lt.scores.score_matching(X, random_state=0)
        gaps = [s.first(X) - truth.first(X) for s in (found, lt.scores.of_gaussian(X))]
        errors.append([(gap**2).sum(axis=1).mean() for gap in gaps])
    assert errors[0][0] < errors[0][1] / 3
    assert errors[1][0] < errors[0][0] / 1.5
    assert found.loss < 0


def test_score_matching_of_a_gaussian_stays_near_it():
    X = np.random.default_rng(0).standard_normal((2000, 3))
    found, gaussian = lt.scores.score_matching(X), lt.scores.of_gaussian(X)
    assert ((found.first(X) - gaussian.first(X)) ** 2).mean() < 0.03


@pytest.mark.parametrize("name", ["gaussian", "mixture", "matched"])
def test_scores_can_be_stored_and_sent(name):
    scores = SCORES[name]()
    arrays = {}
    for copy in (pickle.loads(pickle.dumps(scores)), decode(encode(scores, arrays), arrays)):
        assert np.array_equal(copy.third(MEANS), scores.third(MEANS))


def test_extreme_scales_and_far_rows_stay_finite():
    for scale in (1e-60, 1.0, 1e60):
        scores = MixtureScores(WEIGHTS, MEANS * scale, COVARIANCES * scale**2)
        found = scores.third(np.array([[50.0, -80.0]]) * scale)
        plain = MixtureScores(WEIGHTS, MEANS, COVARIANCES).third(np.array([[50.0, -80.0]]))
        assert np.allclose(found * scale**3, plain, rtol=1e-9)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda s: s.first(np.zeros(2)), r"rows \(n, d\)"),
        (lambda s: s.first(np.zeros((3, 5))), "5 features, but the density has 2"),
        (lambda s: s.first(np.full((3, 2), np.nan)), "NaN"),
        (lambda s: s.moment(MEANS, [1.0], 1), "y has shape"),
        (lambda s: s.moment(MEANS, [1.0, 2.0], 4), "order=4"),
        (lambda s: s.moment(MEANS, ["a", "b"], 1), "y must be numbers"),
        (lambda s: s.moment(MEANS, [1, 2], 1, sample_weight=[0, 0]), "sample_weight"),
        (lambda s: s.moment(MEANS, [1, 2], 1, basis=np.eye(3)), "basis has 3"),
        (lambda s: s.contract(MEANS), "one or two vectors"),
        (lambda s: s.contract(MEANS, [1.0, 2.0, 3.0]), "a vector has 3"),
        (lambda s: GaussianScores([0, 0], [[1, 1], [1, 1]]).first(MEANS), "not positive definite"),
        (lambda s: GaussianScores([0, 0], np.eye(3)), r"\(d,\) and \(d, d\)"),
        (lambda s: MixtureScores([1], MEANS, COVARIANCES), r"\(k, d, d\)"),
        (lambda s: MixtureScores([-1, 2], MEANS, COVARIANCES), "at least 0"),
        (lambda s: MixtureScores([np.nan, 2], MEANS, COVARIANCES), "NaN"),
        (lambda s: lt.scores.of_mixture(lt.PCA(1)), "PCA has not all"),
        (lambda s: lt.scores.of_gaussian(np.zeros(3)), "at least 2 rows"),
        (lambda s: lt.scores.from_log_density(3), "must be a function"),
        (lambda s: lt.scores.from_score(3), "must be a function"),
        (lambda s: lt.scores.from_score(lambda x: x, library="numpy"), "'torch' or 'jax'"),
        (lambda s: lt.scores.from_log_density(lambda x: x).first(MEANS), "one number per row"),
        (lambda s: lt.scores.from_score(lambda x: x[:, 0]).first(MEANS), "of shape"),
        (lambda s: lt.scores.score_matching(np.zeros((2, 2))), "at least 4 rows"),
        (lambda s: lt.scores.score_matching(np.ones((9, 2))), "0 of 2 directions"),
        (lambda s: lt.scores.score_matching(GRID, n_centres=0), "n_centres=0"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(MixtureScores(WEIGHTS, MEANS, COVARIANCES))


def test_a_hand_computed_third_score():
    # One feature, variance 4: S_3 = a^3 - 3 a / 4 with a = (x - 1) / 4.
    scores = GaussianScores([1.0], [[4.0]])
    for x in (-1.0, 0.0, 5.0):
        a = (x - 1) / 4
        assert scores.third([[x]])[0, 0, 0, 0] == pytest.approx(a**3 - 3 * a / 4)
    # Independent features: entries of unequal indices are products of lower scores.
    two = GaussianScores([0.0, 0.0], np.diag([1.0, 4.0])).third([[0.5, 2.0]])[0]
    for i, j, k in itertools.permutations((0, 0, 1)):
        assert two[i, j, k] == pytest.approx((0.5**2 - 1) * 0.5)
