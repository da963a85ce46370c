import numpy as np
import pytest
from scipy.optimize import approx_fprime

from latensor.datasets.sources_mixed import make_ica
from latensor.refinement.ica import (
    N_FUNCTIONS,
    _equations,
    _sums,
    functions,
    gaussian_bound,
    misfit_p_value,
    newton_turn,
    noise_p_value,
    polish,
    polish_freely,
    released_move,
)


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
    for shares in (None, weights):
        w = np.full(5000, 1 / 5000) if shares is None else shares / shares.sum()
        found = _sums(scores, shares, rotation, 2)
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
            result = polish(scores, None, known, start, max_iter=50)
            assert result.converged or name == "ignored"
            gains = (projection @ result.rotation).T @ made.mixing
            errors[name].append(np.abs(gains - np.eye(4)).max())
    assert np.median(errors["known"]) < (0.1 if noise else 0.02)
    if noise:
        assert np.median(errors["ignored"]) > 2 * np.median(errors["known"])


def test_steps_converge_like_newton():
    made = make_ica(20_000, 4, 4, random_state=0)
    centered = made.samples - made.samples.mean(axis=0)
    left, _, _ = np.linalg.svd(centered, full_matrices=False)
    scores = left * np.sqrt(len(left))
    right = polish(scores, None, np.zeros((4, 4)), np.eye(4), max_iter=100).rotation
    rotation, sizes = right @ turn(0, 4, 0.05), []
    for _ in range(4):
        move, _ = newton_turn(_sums(scores, None, rotation, 1), np.zeros((4, 4)), 20_000.0)
        sizes.append(np.abs(move).max())
        u, _, v = np.linalg.svd(rotation @ (np.eye(4) + move))
        rotation = u @ v
    assert sizes[1] < 0.3 * sizes[0]
    assert sizes[3] < 0.05 * sizes[1]


def test_unknown_noise_leaves_no_bias():
    made = make_ica(100_000, 6, 3, noise=0.5, noise_kind="full", random_state=1)
    centered = made.samples - made.samples.mean(axis=0)
    start = np.linalg.pinv(made.mixing) + 0.05 * np.random.default_rng(0).standard_normal((3, 6))
    result = polish_freely(centered @ start.T, centered, None, max_iter=50)
    assert result.converged
    gains = result.unmixing.T @ start @ made.mixing
    gains /= np.abs(gains).max(axis=1, keepdims=True)
    assert np.abs(np.abs(gains) - np.eye(3)).max() < 0.04
    # Columns of the mixing matrix come out in the sensors, up to their length.
    cosines = np.einsum("dj,dj->j", result.mixing, made.mixing) / (
        np.linalg.norm(result.mixing, axis=0) * np.linalg.norm(made.mixing, axis=0)
    )
    assert cosines.min() > 0.999


@pytest.mark.parametrize("k", [1, 3, 6, 12])
def test_gaussian_scores_show_no_information(k):
    for seed in range(5):
        scores = np.random.default_rng(seed).standard_normal((5000, k))
        scores = (scores - scores.mean(axis=0)) @ np.linalg.inv(
            np.linalg.cholesky(np.cov(scores.T).reshape(k, k))
        ).T
        result = polish(scores, None, np.zeros((k, k)), np.eye(k), max_iter=30)
        # Once in many searches chance shows more.
        assert np.median(result.information) * 5000 < gaussian_bound(k)


def test_weights_count_rows_and_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    scores = rng.laplace(size=(9000, 3)) / np.sqrt(2)
    counts = rng.integers(0, 3, 9000).astype(float)
    start, none = turn(0, 3, 0.3), np.zeros((3, 3))
    weighted = polish(scores, counts, none, start, max_iter=20)
    repeated = polish(np.repeat(scores, counts.astype(int), 0), None, none, start, max_iter=20)
    assert np.abs(weighted.rotation - repeated.rotation).max() < 1e-9
    threads = polish(scores, counts, none, start, max_iter=20, n_threads=3)
    assert np.array_equal(threads.rotation, weighted.rotation)


@pytest.mark.parametrize("seed", range(6))
def test_scores_need_not_be_quite_white_nor_centered(seed):
    rng = np.random.default_rng(seed)
    scores = rng.laplace(size=(9000, 3)) / np.sqrt(2) + 0.02 * rng.standard_normal(3)
    scores = scores @ (np.eye(3) + 0.02 * rng.standard_normal((3, 3)))
    result = polish(scores, None, np.zeros((3, 3)), turn(seed, 3, 0.2), max_iter=30)
    assert result.converged
    gains = np.abs(result.rotation)
    assert np.abs(gains - np.round(gains)).max() < 0.1


def square_scores(made):
    """White scores of samples of as many sensors as sources, and their true rotation."""
    centered = made.samples - made.samples.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(centered.T, bias=True))
    projection = vectors / np.sqrt(values)
    left, _, right = np.linalg.svd(projection.T @ made.mixing)
    return centered @ projection, projection, left @ right


@pytest.mark.parametrize("sources", ["uniform", ("laplace", "uniform")])
def test_letting_the_rotation_go_is_more_exact(sources):
    bound, free = [], []
    for seed in range(6):
        made = make_ica(10_000, 4, 4, sources=sources, random_state=seed)
        scores, projection, start = square_scores(made)
        found = polish(scores, None, np.zeros((4, 4)), start, max_iter=30)
        assert np.abs(np.linalg.norm(found.unmixing, axis=0) - 1).max() < 1e-12
        for kept, turned in ((bound, found.rotation), (free, found.unmixing)):
            gains = (projection @ turned).T @ made.mixing
            kept.append(((gains / np.diag(gains)[:, None] - np.eye(4)) ** 2).sum())
    assert np.median(free) < 0.9 * np.median(bound)


def test_the_released_move_solves_the_equations_of_each_pair():
    rng = np.random.default_rng(0)
    scores = rng.laplace(size=(20_000, 3)) / np.sqrt(2)
    noise, truth = np.zeros((3, 3)), np.eye(3)
    move = truth + released_move(_sums(scores, None, truth, 1), noise, 20_000.0)
    following = released_move(_sums(scores, None, move, 1), noise, 20_000.0)
    assert np.abs(following).max() < 0.1 * np.abs(move - truth).max()
    # By hand for one pair: least squares over three equations in units of their errors.
    sums = _sums(scores, None, truth, 1)
    equations, information = _equations(sums, noise)
    v = sums.squares
    design = np.array([[-information[0] / v[0], 0], [0, -information[1] / v[1]], [1, 1]])
    sizes = np.sqrt([information[0] * v[1], information[1] * v[0], v[0] * v[1]])
    values = np.array([equations[0, 1], equations[1, 0], sums.second[0, 1]])
    solved = np.linalg.lstsq(design / sizes[:, None], values / sizes, rcond=None)[0]
    found = -released_move(sums, noise, 20_000.0)
    assert found[1, 0] == pytest.approx(solved[0], rel=1e-9)
    assert found[0, 1] == pytest.approx(solved[1], rel=1e-9)


@pytest.mark.parametrize("sources", ["student", ("laplace", "uniform")])
def test_noise_is_seen_where_it_is_and_only_there(sources):
    values = {0.0: [], 0.3: []}
    for noise, seen in values.items():
        for seed in range(12):
            made = make_ica(10_000, 4, 4, sources=sources, noise=noise, random_state=seed)
            scores, _, start = square_scores(made)
            found = polish(scores, None, np.zeros((4, 4)), start, max_iter=30)
            free = polish_freely(scores @ found.unmixing, scores, None, max_iter=30)
            seen.append((found.noise_p_value, free.noise_p_value))
    quiet, loud = (np.array(seen) for seen in values.values())
    # P-values without noise are spread evenly.
    assert (quiet < 1e-3).sum() == 0
    assert 0.15 < np.median(quiet) < 0.85
    assert (loud < 1e-3).any(axis=1).sum() >= 10


def test_one_source_shows_no_noise():
    scores = np.random.default_rng(0).laplace(size=(500, 1))
    sums = _sums(scores, None, np.eye(1), 1)
    assert np.isnan(misfit_p_value(sums, np.zeros((1, 1)), 500.0))
    assert np.isnan(noise_p_value(np.eye(1), np.ones(1), 500.0))
