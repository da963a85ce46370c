import itertools
import pickle

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from sklearn import cross_decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.arrays import library_name, to_host
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.models.matrices.cca import CCA
from latensor.models.matrices.noise_correlation import largest_noise_correlation

NAMES = ("correlations_", "x_weights_", "y_weights_", "x_loadings_", "y_loadings_", "x_mean_")


@parametrize_with_checks([CCA(1), CCA(1, ridge=0.1)])
def test_the_estimator_contract(estimator, check):
    check(estimator)


def views(rng, n_samples=400, sizes=(7, 5), strengths=(3.0, 1.0, 0.4), mean=1.0):
    shared = rng.standard_normal((n_samples, len(strengths))) * strengths
    return [
        mean
        + shared @ rng.standard_normal((len(strengths), size))
        + rng.standard_normal((n_samples, size))
        for size in sizes
    ]


def make(kind, matrix):
    if kind == "torch":
        return pytest.importorskip("torch").asarray(matrix)
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(matrix)
    return {"numpy": np.asarray, "csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_matrix}[
        kind
    ](matrix)


def exact_correlations(x, y, count):
    joint = np.cov(np.hstack([x, y]).T)
    d = x.shape[1]
    within = scipy.linalg.block_diag(joint[:d, :d], joint[d:, d:])
    return scipy.linalg.eigh(joint, within)[0][::-1][:count] - 1


def agree(one, other, bound):
    for name in NAMES:
        first, second = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        assert np.abs(first - second).max() <= bound * max(np.abs(second).max(), 1.0), name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["numpy", "csr", "csc", "torch"])
def test_correlations_solve_the_generalized_eigenproblem(seed, kind):
    x, y = views(np.random.default_rng(seed))
    model = CCA(5).fit(make(kind, x), make(kind, y))
    assert np.abs(model.correlations_ - exact_correlations(x, y, 5)).max() < 1e-9
    x_scores, y_scores = (to_host(part) for part in model.transform(make(kind, x), make(kind, y)))
    for scores in (x_scores, y_scores):
        assert np.abs(np.cov(scores.T, bias=True) - np.eye(5)).max() < 1e-9
    cross = (x_scores - x_scores.mean(axis=0)).T @ (y_scores - y_scores.mean(axis=0)) / len(x)
    assert np.abs(cross - np.diag(model.correlations_)).max() < 1e-9
    loadings = (x - x.mean(axis=0)).T @ x_scores / len(x)
    assert np.abs(loadings - model.x_loadings_).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_scikit_learn_where_it_converges(seed):
    x, y = views(np.random.default_rng(seed))
    peer = cross_decomposition.CCA(3, max_iter=5000, tol=1e-14).fit(x, y)
    theirs = [np.corrcoef(*pair)[0, 1] for pair in zip(*(s.T for s in peer.transform(x, y)))]  # noqa: B905
    ours = CCA(3).fit(x, y)
    assert np.abs(ours.correlations_ - theirs).max() < 1e-6
    assert ours.score(x, y) == pytest.approx(ours.correlations_.mean(), rel=1e-10)


@pytest.mark.parametrize("kind", ["numpy", "csr"])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_streams_and_merges_agree_with_fit(kind, ridge):
    x, y = views(np.random.default_rng(1))
    whole = CCA(2, ridge=ridge).fit(x, y)
    streams = [CCA(2, ridge=ridge), CCA(2, ridge=ridge)]
    for stream, cuts in zip(streams, ((0, 1, 150), (150, 222, 400)), strict=True):
        for low, high in itertools.pairwise(cuts):
            stream.partial_fit(make(kind, x[low:high]), make(kind, y[low:high]))
    merged = pickle.loads(pickle.dumps(streams[0])).merge(streams[1])
    agree(merged, whole, 1e-8)
    fits = [CCA(2, ridge=ridge).fit(x[rows], y[rows]) for rows in (slice(0, 90), slice(90, 400))]
    agree(fits[0].merge(fits[1]), whole, 1e-8)
    agree(CCA(2, ridge=ridge).fit(x[:90], y[:90]).partial_fit(x[90:], y[90:]), whole, 1e-8)


@pytest.mark.parametrize("kind", ["numpy", "csr"])
def test_weights_are_repetitions(kind):
    rng = np.random.default_rng(2)
    x, y = views(rng, 60)
    weights = rng.integers(0, 3, 60)
    repeated = CCA(2).fit(
        make(kind, np.repeat(x, weights, axis=0)), make(kind, np.repeat(y, weights, axis=0))
    )
    agree(CCA(2).fit(make(kind, x), make(kind, y), sample_weight=weights), repeated, 1e-8)


@pytest.mark.parametrize("kind", ["numpy", "csr"])
def test_fewer_samples_than_features(kind):
    rng = np.random.default_rng(3)
    x, y = views(rng, 40, (60, 50), (5.0, 5.0))
    fresh = views(rng, 40, (60, 50), (0.0, 0.0))
    model = CCA(2).fit(make(kind, x), make(kind, y))
    assert np.abs(model.correlations_ - 1).max() < 1e-8
    assert model.certificate_.saturated
    assert model.certificate_.x_rank == 39
    assert abs(model.score(*fresh)) < 0.5
    ridged = CCA(2, ridge=1.0).fit(make(kind, x), make(kind, y))
    assert ridged.correlations_[1] < 1.0
    assert np.abs(np.cov(ridged.transform(x).T, bias=True).diagonal() - 1).max() < 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_a_ridge_generalizes_where_plain_cca_memorizes(seed):
    rng = np.random.default_rng(seed)
    maps = [rng.standard_normal((1, size)) for size in (60, 50)]

    def draw(n_samples):
        shared = 3 * rng.standard_normal((n_samples, 1))
        return [shared @ m + rng.standard_normal((n_samples, m.shape[1])) for m in maps]

    train, test = draw(45), draw(500)
    plain, ridged = CCA(1).fit(*train).score(*test), CCA(1, ridge=1.0).fit(*train).score(*test)
    assert ridged > 0.9
    assert ridged > plain


def test_badly_scaled_views_keep_their_digits():
    rng = np.random.default_rng(4)
    x, y = views(rng)
    scales = 10.0 ** np.arange(-5, 2)
    plain, scaled = CCA(4).fit(x, y), CCA(4).fit(x * scales, y)
    assert np.abs(plain.correlations_ - scaled.correlations_).max() < 1e-9
    assert np.abs(scaled.x_weights_ * scales[:, None] - plain.x_weights_).max() < 1e-6


def test_n_directions_equals_cca_after_pca():
    x, y = views(np.random.default_rng(5), 300, (9, 8))
    reduced = []
    for view in (x, y):
        centered = view - view.mean(axis=0)
        reduced.append(centered @ np.linalg.svd(centered, full_matrices=False)[2][:4].T)
    found = CCA(2, n_directions=4).fit(x, y)
    assert np.abs(found.correlations_ - CCA(2).fit(*reduced).correlations_).max() < 1e-10
    assert found.certificate_.x_rank == found.certificate_.y_rank == 4


def test_large_sparse_views():
    rng = np.random.default_rng(6)
    topics = rng.integers(0, 3, 3000)
    pair = []
    for _ in range(2):
        rates = np.full((3, 3000), 0.002)
        for topic in range(3):
            rates[topic, topic * 50 : topic * 50 + 50] = 0.3
        pair.append(scipy.sparse.csr_array(rng.poisson(rates[topics])).astype(float))
    model = CCA(2, n_directions=5, random_state=0).fit(*pair)
    assert model.correlations_.min() > 0.8
    assert np.abs(np.cov(model.transform(pair[0]).T, bias=True) - np.eye(2)).max() < 1e-7


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_other_libraries_come_back_as_they_came(kind):
    x, y = (view.astype(np.float32) for view in views(np.random.default_rng(7)))
    model = CCA(2).fit(make(kind, x), make(kind, y))
    assert model.x_weights_.dtype == np.float32
    assert np.abs(model.correlations_ - exact_correlations(x, y, 2)).max() < 1e-4
    scores = model.transform(make(kind, x), make(kind, y))
    assert {library_name(part) for part in scores} == {kind}
    streamed = CCA(2).partial_fit(make(kind, x[:100]), make(kind, y[:100]))
    streamed.partial_fit(make(kind, x[100:]), make(kind, y[100:]))
    assert np.abs(streamed.correlations_ - model.correlations_).max() < 1e-4


def test_the_certificate_and_the_shape_of_a_single_target():
    x, y = views(np.random.default_rng(8))
    model = CCA(2).fit(x, y)
    all_pairs = CCA(5).fit(x, y)
    gap = all_pairs.correlations_[1] - all_pairs.correlations_[2]
    assert model.certificate_.gap == pytest.approx(gap, rel=1e-8)
    assert not model.certificate_.saturated
    single = CCA(1).fit(x, y[:, 0])
    regression = np.linalg.lstsq(np.c_[np.ones(400), x], y[:, 0])[0]
    fitted = np.c_[np.ones(400), x] @ regression
    assert single.correlations_[0] == pytest.approx(np.corrcoef(fitted, y[:, 0])[0, 1], rel=1e-9)
    assert single.x_rotations_ is single.x_weights_


X, Y = views(np.random.default_rng(9), 20, (4, 3))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: CCA(4).fit(X, Y), RankDeficientError, "n_components=4 exceeds the 3 pairs"),
        (lambda: CCA(0).fit(X, Y), InvalidInputError, "n_components=0 of CCA"),
        (lambda: CCA(ridge=-1).fit(X, Y), InvalidInputError, "ridge=-1 of CCA must be a number"),
        (lambda: CCA(n_directions=0).fit(X, Y), InvalidInputError, "n_directions=0"),
        (lambda: CCA().fit(X, Y[:9]), InvalidInputError, "X has 20 samples but y has 9"),
        (lambda: CCA().fit(X), InvalidInputError, "requires y to be passed"),
        (lambda: CCA().fit(X, Y * np.nan), InvalidInputError, "y holds 60 NaN"),
        (lambda: CCA().fit(X / 0.0, Y), InvalidInputError, "X holds 80 NaN or infinite"),
        (lambda: CCA(1).fit(X, np.ones(20)), RankDeficientError, "y is constant"),
        (lambda: CCA(1).fit(X * 0, Y), RankDeficientError, "x is constant"),
        (lambda: CCA(1).fit(X[:1], Y[:1]), InvalidInputError, "minimum of 2"),
        (lambda: CCA(1).fit(X, Y).transform(X[:, :2]), InvalidInputError, "expecting 4 features"),
        (lambda: CCA(1).fit(X, Y).transform(X, Y[:, :2]), InvalidInputError, "expecting 3"),
        (
            lambda: CCA(1).partial_fit(X, Y).partial_fit(X, Y[:, :2]),
            InvalidInputError,
            "expecting 3",
        ),
        (lambda: CCA().merge(CCA()), InvalidInputError, "self must be a CCA that has seen samples"),
        (
            lambda: CCA().partial_fit(np.ones((2, 8000)), np.ones((2, 800))),
            InvalidInputError,
            "8800 features together",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kinds", [("dense", "dense"), ("csr", "dense"), ("csr", "csr")])
def test_a_source_of_pairs_is_fitted_as_its_rows_are(kinds):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5000, 4)) * (rng.random((5000, 4)) < 0.5) + 0.0
    y = x[:, :3] @ rng.standard_normal((3, 3)) + 0.3 * (rng.random((5000, 3)) < 0.4)
    weights = rng.integers(0, 3, 5000).astype(float)
    whole = CCA(2).fit(x, y, sample_weight=weights)

    def kept(view, kind):
        return scipy.sparse.csr_array(view) if kind == "csr" else view

    cuts = [slice(0, 10), slice(10, 3000), slice(3000, 5000)]
    batches = [(kept(x[c], kinds[0]), kept(y[c], kinds[1]), weights[c]) for c in cuts]
    found = CCA(2).fit(batches)
    assert np.abs(found.correlations_ - whole.correlations_).max() < 1e-10
    assert np.abs(found.x_weights_ - whole.x_weights_).max() < 1e-8
    assert np.abs(found.y_loadings_ - whole.y_loadings_).max() < 1e-8


def test_overfitted_correlations_are_told_from_real_ones():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 21)), rng.standard_normal((40, 12))
    overfit = CCA(2).fit(x, y)
    assert overfit.correlations_[0] > 0.9
    assert overfit.certificate_.n_above_noise == 0
    signal = rng.standard_normal((2000, 1))
    x, y = rng.standard_normal((2000, 21)) + signal, rng.standard_normal((2000, 12)) + signal
    assert CCA(3).fit(x, y).certificate_.n_above_noise == 1
    assert np.isnan(CCA(1, ridge=0.1).fit(x, y).certificate_.noise_correlation)


@pytest.mark.parametrize(("p", "q", "n"), [(3, 3, 30), (12, 21, 60), (2, 10, 200), (1, 1, 50)])
def test_the_noise_correlation_is_the_right_quantile(p, q, n):
    rng = np.random.default_rng(p)
    largest = []
    for _ in range(600):
        views = [rng.standard_normal((n, size)) for size in (p, q)]
        bases = [np.linalg.qr(view - view.mean(axis=0))[0] for view in views]
        largest.append(np.linalg.norm(bases[0].T @ bases[1], 2))
    above = np.mean(np.array(largest) > largest_noise_correlation(p, q, n))
    # One in a hundred, and three standard deviations of 600 draws; exact for one column is less.
    assert above <= 0.01 + 3 * np.sqrt(0.01 / 600)


def test_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.standard_normal((d, d)))[0] for d in (4, 3)]
    correlations, inside = np.array([0.9, 0.5]), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((800, 4)), rng.standard_normal((800, 3))
        y[:, :2] = correlations * x[:, :2] + np.sqrt(1 - correlations**2) * y[:, :2]
        x, y = x @ bases[0].T * 100, y @ bases[1].T
        model = CCA(2).fit(x, y)
        found = model.intervals(x, y, n_resamples=60)
        signs = np.sign((model.x_weights_ * bases[0][:, :2]).sum(axis=0))
        for name, value in (
            ("correlations", correlations),
            ("x_weights", bases[0][:, :2] * signs / 100),
            ("y_loadings", bases[1][:, :2] * signs),
        ):
            low, high = found[name].low, found[name].high
            assert low.shape == getattr(model, f"{name}_").shape
            inside.append(((low <= value) & (value <= high)).ravel())
    # Of 96 intervals of 95 %, which depend on each other within a data set.
    assert np.concatenate(inside).mean() > 0.87
    with pytest.raises(InvalidInputError, match="n_directions=2"):
        CCA(2, n_directions=2).fit(x, y).intervals(x, y)


def _walk(rng, shape):
    """Autoregressions of .97."""
    found = rng.standard_normal(shape)
    for t in range(1, len(found)):
        found[t] += 0.97 * found[t - 1]
    return found


def _gross(rng, shape):
    found = rng.standard_normal(shape)
    found[0] += 30
    return found


@pytest.mark.parametrize("draw", [_walk, _gross], ids=["in time", "one row"])
@pytest.mark.parametrize("seed", range(4))
def test_independent_views_are_not_taken_for_related_ones(seed, draw):
    rng = np.random.default_rng(seed)
    x, y = draw(rng, (300, 8)), draw(rng, (300, 8))
    for given in ((x, y), ([(x[:100], y[:100]), (x[100:], y[100:])], None)):
        certificate = CCA(1).fit(*given).certificate_
        assert certificate.n_above_noise == 0
        assert certificate.verdict == "unstable"
