import numpy as np
import pytest
from scipy.optimize import approx_fprime

from latensor.datasets.sources_mixed import make_ica
from latensor.models.ica.rotation import (
    gaussian_bound,
    newton_turn,
    refine_rotation,
    refine_unconstrained,
)
from latensor.models.ica.scores import N_FUNCTIONS, functions
from latensor.models.ica.sums import TurnSums
from models.unmixing import over_scores


def turn(seed, k, angle):
    rng = np.random.default_rng(seed)
    generator = rng.standard_normal((k, k))
    left, _, right = np.linalg.svd(np.eye(k) + angle * (generator - generator.T))
    return left @ right


def test_slopes_are_the_derivatives():
    for value in (-2.0, -0.3, 0.0, 1.7):
        for m in range(N_FUNCTIONS):
            numeric = approx_fprime([value], lambda y, m=m: functions(y[None])[0][m, 0, 0], 1e-7)
            assert functions(np.array([[value]]))[1][m, 0, 0] == pytest.approx(numeric[0], abs=1e-5)


def test_sums_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    scores, weights = rng.laplace(size=(5000, 3)), rng.uniform(0.5, 2, 5000)
    rotation = turn(1, 3, 0.4)
    values, slopes = functions(scores @ rotation)
    for fractions in (None, weights):
        w = np.full(5000, 1 / 5000) if fractions is None else fractions / fractions.sum()
        found = over_scores(scores, fractions, n_jobs=2)(TurnSums(rotation)).finalize()
        turned = scores @ rotation
        turned = turned - w @ turned
        cross = np.einsum("n,mni,nj->mij", w, values, turned)
        products = np.einsum("n,mni,lni->mli", w, values, values)
        for one, other in (
            (found.cross, cross),
            (found.products, products),
            (found.means, np.einsum("n,mni->mi", w, values)),
            (found.slopes, np.einsum("n,mni->mi", w, slopes)),
            (found.squares, w @ turned**2),
            (found.second, (turned * w[:, None]).T @ turned),
        ):
            assert np.abs(one - other).max() < 1e-12 * np.abs(other).max()


def whitened(made):
    """Coordinates (d, k) that whiten the signal, the true rotation and the noise in the scores."""
    left, scale, _ = np.linalg.svd(made.mixing, full_matrices=False)
    projection = left / scale
    noise = projection.T @ made.noise_covariance @ projection
    signal = np.cov(((made.samples - made.mean) @ projection).T) - noise
    values, vectors = np.linalg.eigh(signal)
    root = vectors / np.sqrt(values)
    projection, noise = projection @ root, root.T @ noise @ root
    u, _, v = np.linalg.svd(projection.T @ made.mixing)
    return projection, u @ v, noise


@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_noise_of_known_covariance_leaves_no_bias(noise):
    errors = {"known": [], "ignored": []}
    for seed in range(4):
        made = make_ica(60_000, 8, 4, noise=noise, noise_kind="full", random_state=seed)
        projection, truth, covariance = whitened(made)
        scores = (made.samples - made.samples.mean(axis=0)) @ projection
        start = truth @ turn(seed, 4, 0.1)
        for name, known in (("known", covariance), ("ignored", 0 * covariance)):
            result = refine_rotation(over_scores(scores), known, start, max_iter=50)
            assert result.converged or name == "ignored"
            gains = (projection @ result.unmixing).T @ made.mixing
            errors[name].append(np.abs(gains - np.eye(4)).max())
    assert np.median(errors["known"]) < (0.1 if noise else 0.02)
    if noise:
        assert np.median(errors["ignored"]) > 2 * np.median(errors["known"])


def test_steps_converge_like_newton():
    made = make_ica(20_000, 4, 4, random_state=0)
    centered = made.samples - made.samples.mean(axis=0)
    left, _, _ = np.linalg.svd(centered, full_matrices=False)
    scores = left * np.sqrt(len(left))
    right = refine_rotation(over_scores(scores), np.zeros((4, 4)), np.eye(4), max_iter=100).unmixing
    rotation, sizes = right @ turn(0, 4, 0.05), []
    for _ in range(4):
        sums = over_scores(scores)(TurnSums(rotation)).finalize()
        move, _ = newton_turn(sums, np.zeros((4, 4)))
        sizes.append(np.abs(move).max())
        u, _, v = np.linalg.svd(rotation @ (np.eye(4) + move))
        rotation = u @ v
    assert sizes[1] < 0.3 * sizes[0]
    assert sizes[3] < 0.05 * sizes[1]


def test_unknown_noise_leaves_no_bias():
    made = make_ica(100_000, 6, 3, noise=0.5, noise_kind="full", random_state=1)
    centered = made.samples - made.samples.mean(axis=0)
    start = np.linalg.pinv(made.mixing) + 0.05 * np.random.default_rng(0).standard_normal((3, 6))
    result = refine_unconstrained(over_scores(centered @ start.T), max_iter=50)
    assert result.converged
    assert result.nearly
    gains = result.unmixing.T @ start @ made.mixing
    gains /= np.abs(gains).max(axis=1, keepdims=True)
    assert np.abs(np.abs(gains) - np.eye(3)).max() < 0.04


def test_steps_that_are_long_to_the_end_are_told():
    scores = np.random.default_rng(0).laplace(size=(5000, 3)) / np.sqrt(2)
    result = refine_rotation(over_scores(scores), np.zeros((3, 3)), turn(0, 3, 0.4), max_iter=1)
    assert not result.nearly
    assert not result.converged


@pytest.mark.parametrize("k", [1, 3, 6, 12])
def test_gaussian_scores_show_no_information(k):
    for seed in range(5):
        scores = np.random.default_rng(seed).standard_normal((5000, k))
        scores = (scores - scores.mean(axis=0)) @ np.linalg.inv(
            np.linalg.cholesky(np.cov(scores.T).reshape(k, k))
        ).T
        result = refine_rotation(over_scores(scores), np.zeros((k, k)), np.eye(k), max_iter=30)
        # Once in many searches chance shows more.
        assert np.median(result.information) * 5000 < gaussian_bound(k)


def test_weights_count_rows_and_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    scores = rng.laplace(size=(9000, 3)) / np.sqrt(2)
    counts = rng.integers(0, 3, 9000).astype(float)
    start, none = turn(0, 3, 0.3), np.zeros((3, 3))
    weighted = refine_rotation(over_scores(scores, counts), none, start, max_iter=20)
    repeated = refine_rotation(
        over_scores(np.repeat(scores, counts.astype(int), 0)), none, start, max_iter=20
    )
    assert np.abs(weighted.unmixing - repeated.unmixing).max() < 1e-9
    threads = refine_rotation(over_scores(scores, counts, n_jobs=3), none, start, max_iter=20)
    assert np.array_equal(threads.unmixing, weighted.unmixing)


@pytest.mark.parametrize("seed", range(6))
def test_scores_need_not_be_quite_white_nor_centered(seed):
    rng = np.random.default_rng(seed)
    scores = rng.laplace(size=(9000, 3)) / np.sqrt(2) + 0.02 * rng.standard_normal(3)
    scores = scores @ (np.eye(3) + 0.02 * rng.standard_normal((3, 3)))
    result = refine_rotation(over_scores(scores), np.zeros((3, 3)), turn(seed, 3, 0.2), max_iter=30)
    assert result.converged
    gains = np.abs(result.unmixing)
    assert np.abs(gains - np.round(gains)).max() < 0.1
