import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn import decomposition
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.arrays import library_name, to_host
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.matrices.pca import PCA

SHARED = (
    "components_",
    "mean_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "noise_variance_",
)


@parametrize_with_checks([PCA(), PCA(n_components=1), PCA("gap", whiten=True)])
def test_the_estimator_contract(estimator, check):
    check(estimator)


def planted(rng, n_samples, n_features, scales=(5.0, 3.0, 2.0), noise=0.1, mean=2.0):
    axes = np.linalg.qr(rng.standard_normal((n_features, len(scales))))[0]
    scores = rng.standard_normal((n_samples, len(scales))) * scales
    return mean + scores @ axes.T + noise * rng.standard_normal((n_samples, n_features))


def make(kind, matrix):
    if kind == "torch":
        return pytest.importorskip("torch").asarray(matrix)
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(matrix)
    return {"numpy": np.asarray, "csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_matrix}[
        kind
    ](matrix)


def agree(one, other, bound, names=SHARED):
    for name in names:
        first, second = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        scale = max(np.abs(second).max(), 1e-12)
        assert np.abs(first - second).max() <= bound * scale, name


@pytest.mark.parametrize("shape", [(80, 6), (30, 50), (300, 100), (100, 300)])
@pytest.mark.parametrize("kind", ["numpy", "csr", "csc", "torch"])
@pytest.mark.parametrize("whiten", [False, True])
def test_agrees_with_scikit_learn(shape, kind, whiten):
    data = planted(np.random.default_rng(0), *shape)
    peer = decomposition.PCA(3, svd_solver="full", whiten=whiten).fit(data)
    ours = PCA(3, whiten=whiten).fit(make(kind, data))
    agree(ours, peer, 1e-9)
    scores = to_host(ours.transform(make(kind, data)))
    assert np.abs(scores - peer.transform(data)).max() < 1e-8
    back = to_host(ours.inverse_transform(scores))
    assert np.abs(back - peer.inverse_transform(scores)).max() < 1e-8
    if shape[0] > shape[1]:
        # The likelihood is that of the data: whether scores are scaled must not change it.
        peer = decomposition.PCA(3, svd_solver="full").fit(data)
        assert ours.score(make(kind, data)) == pytest.approx(peer.score(data), rel=1e-8)
        each = to_host(ours.score_samples(make(kind, data)))
        assert np.abs(each - peer.score_samples(data)).max() < 1e-6


def test_all_components_agree_with_scikit_learn_even_when_badly_scaled():
    data = planted(np.random.default_rng(1), 200, 8) * 10.0 ** -np.arange(8)
    peer, ours = decomposition.PCA(svd_solver="full").fit(data), PCA().fit(data)
    agree(ours, peer, 1e-9)
    relative = ours.explained_variance_ / peer.explained_variance_ - 1
    assert np.abs(relative).max() < 1e-6


def test_the_affine_projection_is_the_closest_one():
    rng = np.random.default_rng(2)
    data = planted(rng, 40, 6, noise=1.0)
    model = PCA(2).fit(data)
    projector, offset = model.projector_, model.offset_
    assert np.abs(projector @ projector - projector).max() < 1e-14
    assert np.abs(offset - (np.eye(6) - projector) @ data.mean(axis=0)).max() < 1e-14
    reconstructed = data @ projector.T + offset
    assert np.abs(reconstructed - model.inverse_transform(model.transform(data))).max() < 1e-12

    def cost(p, p0):
        return ((data - data @ p.T - p0) ** 2).sum() / len(data)

    best = cost(projector, offset)
    variances = np.linalg.eigvalsh(np.cov(data.T, bias=True))
    assert best == pytest.approx(variances[:4].sum(), rel=1e-12)
    for _ in range(50):
        basis = np.linalg.qr(model.components_.T + 0.1 * rng.standard_normal((6, 2)))[0]
        assert cost(basis @ basis.T, offset + 0.01 * rng.standard_normal(6)) > best


@pytest.mark.parametrize("kind", ["numpy", "csr"])
@pytest.mark.parametrize("seed", range(3))
def test_streams_splits_and_merges_agree_with_fit(kind, seed):
    rng = np.random.default_rng(seed)
    data = planted(rng, 120, 9)
    whole = PCA(3).fit(data)
    batches = [make(kind, part) for part in np.split(data, [1, 30, 70])]
    streamed = PCA(3)
    for batch in batches:
        streamed.partial_fit(batch)
    agree(streamed, whole, 1e-9)
    left, right = PCA(3), PCA(3)
    left.partial_fit(batches[0]).partial_fit(batches[1])
    right.partial_fit(batches[2]).partial_fit(batches[3])
    left.components_, right.components_  # noqa: B018
    right_before = pickle.dumps(right)
    agree(left.merge(right), whole, 1e-9)
    assert pickle.dumps(right) == right_before
    agree(pickle.loads(pickle.dumps(left)), whole, 1e-9)


def test_fits_that_kept_all_components_merge_and_go_on_exactly():
    data = planted(np.random.default_rng(3), 90, 7)
    whole = PCA().fit(data)
    agree(PCA().fit(data[:40]).merge(PCA().fit(data[40:])), whole, 1e-9)
    agree(PCA().fit(data[:40]).partial_fit(data[40:]), whole, 1e-9)
    agree(PCA().fit(data[:40]).merge(PCA().partial_fit(data[40:])), whole, 1e-9)


def test_fits_that_dropped_components_say_how_much_a_merge_may_miss():
    data = planted(np.random.default_rng(4), 400, 7, noise=0.5)
    whole = PCA(3).fit(data)
    merged = PCA(3).fit(data[:200]).merge(PCA(3).fit(data[200:]))
    error = merged.certificate_.error * merged.explained_variance_[0]
    assert 0 < error < 2.0
    assert np.abs(merged.explained_variance_ - whole.explained_variance_).max() <= error
    total = whole.explained_variance_.sum() + whole.noise_variance_ * 4
    found = merged.explained_variance_.sum() + merged.noise_variance_ * 4
    assert found == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("kind", ["numpy", "csr"])
def test_a_stream_of_many_features_keeps_no_square_matrix(kind):
    rng = np.random.default_rng(5)
    axes = np.linalg.qr(rng.standard_normal((5000, 3)))[0]
    data = 1.0 + (rng.standard_normal((90, 3)) * (9.0, 6.0, 3.0)) @ axes.T
    whole = PCA(2).fit(data)
    one, other = PCA(2), PCA(2)
    one.partial_fit(make(kind, data[:20])).partial_fit(make(kind, data[20:50]))
    other.partial_fit(make(kind, data[50:]))
    merged = one.merge(other)
    agree(merged, whole, 1e-7)
    assert merged.certificate_.error < 1e-9
    state = pickle.dumps(merged)
    assert len(state) < 5000 * 110 * 8


@pytest.mark.parametrize("kind", ["numpy", "csr"])
def test_weights_are_repetitions(kind):
    rng = np.random.default_rng(6)
    data, weights = planted(rng, 40, 5), rng.integers(0, 4, 40)
    repeated = PCA(2).fit(make(kind, np.repeat(data, weights, axis=0)))
    agree(PCA(2).fit(make(kind, data), sample_weight=weights), repeated, 1e-9)
    streamed = PCA(2).partial_fit(make(kind, data[:9]), sample_weight=weights[:9])
    agree(streamed.partial_fit(make(kind, data[9:]), sample_weight=weights[9:]), repeated, 1e-9)


@pytest.mark.parametrize("n_features, seed", [(20, 0), (20, 1), (20, 2), (1100, 0)])
def test_n_components_by_gap_and_by_fraction(n_features, seed):
    data = planted(np.random.default_rng(seed), 1100, n_features, noise=0.02)
    assert PCA("gap").fit(data).n_components_ == 3
    assert PCA("auto").fit(scipy.sparse.csr_array(data)).n_components_ == 3
    fractions = PCA(3).fit(data).explained_variance_ratio_.cumsum()
    for count in (1, 2, 3):
        assert PCA(float(fractions[count - 1]) - 1e-6).fit(data).n_components_ == count
    peer = decomposition.PCA(0.9995, svd_solver="full").fit(data)
    assert PCA(0.9995).fit(data).n_components_ == peer.n_components_


def test_noise_free_data_has_its_gap_at_its_rank():
    data = planted(np.random.default_rng(7), 60, 30, noise=0.0)
    assert PCA("gap").fit(data).n_components_ == 3
    assert PCA().fit(data).n_components_ == 3


def test_the_certificate_measures_the_gap():
    rng = np.random.default_rng(8)
    scores = np.linalg.qr(rng.standard_normal((50, 3)) - 0.0)[0]
    scores = np.linalg.qr(scores - scores.mean(axis=0))[0] * np.sqrt(49 * np.array([4.0, 2.0, 1.0]))
    certificate = PCA(2).fit(scores).certificate_
    assert certificate.gap == pytest.approx(0.25)
    assert certificate.condition == pytest.approx(2.0)
    assert certificate.next_variance == pytest.approx(1.0)
    assert certificate.error == 0.0


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_other_libraries_come_back_as_they_came(kind):
    data = planted(np.random.default_rng(9), 60, 8).astype(np.float32)
    model = PCA(3).fit(make(kind, data))
    peer = decomposition.PCA(3, svd_solver="full").fit(data.astype(float))
    agree(model, peer, 1e-3)
    assert model.components_.dtype == np.float32
    scores = model.transform(make(kind, data))
    assert library_name(scores) == library_name(model.inverse_transform(scores)) == kind
    assert np.abs(to_host(scores) - peer.transform(data.astype(float))).max() < 1e-3
    assert library_name(model.score_samples(make(kind, data))) == kind
    agree(PCA(3).partial_fit(make(kind, data[:30])).partial_fit(make(kind, data[30:])), peer, 1e-3)
    with pytest.raises(InvalidInputError, match="expecting 8 features"):
        model.transform(make(kind, data[:, :3]))


def test_large_sparse_data_is_centred_without_being_made_dense():
    rng = np.random.default_rng(10)
    noise = scipy.sparse.random_array((3000, 20_000), density=5e-4, rng=rng, format="csr")
    signal = scipy.sparse.csr_array(
        np.outer(rng.random(3000), np.r_[np.ones(20), np.zeros(19_980)])
    )
    data = scipy.sparse.csr_array(noise + 3 * signal)
    model = PCA(1).fit(data)
    assert np.abs(model.components_[0, :20]).min() > 0.2
    assert np.abs(model.mean_ - data.mean(axis=0)).max() < 1e-12
    assert np.abs(model.transform(data).mean(axis=0)).max() < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_the_subspace_error_falls_with_the_number_of_samples(seed):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    errors = []
    for n_samples in (200, 20_000):
        scores = rng.standard_normal((n_samples, 2)) * (3.0, 2.0)
        data = scores @ axes.T + rng.standard_normal((n_samples, 10))
        found = PCA(2).fit(data).components_
        errors.append(np.linalg.norm(axes - found.T @ (found @ axes)))
    assert 0.03 < errors[1] / errors[0] < 0.4


def test_frames_names_and_read_only_input():
    data = planted(np.random.default_rng(11), 30, 3)
    data.flags.writeable = False
    frame = pd.DataFrame(data, columns=["a", "b", "c"])
    model = PCA(2).set_output(transform="pandas").fit(frame)
    assert list(model.transform(frame).columns) == ["pca0", "pca1"]
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    agree(clone(model).fit(frame), PCA(2).fit(data), 1e-13)


def test_degenerate_data_gives_valid_results():
    constant = PCA(1).fit(np.full((5, 3), 7.0))
    assert constant.explained_variance_[0] == 0
    assert (constant.transform(np.full((2, 3), 7.0)) == 0).all()
    assert np.abs(np.linalg.norm(constant.components_, axis=1) - 1).max() < 1e-12
    zero = PCA(whiten=True).fit(np.zeros((4, 2)))
    assert np.isfinite(zero.transform(np.ones((3, 2)))).all()
    column = np.c_[np.arange(9.0), np.full(9, 4.0)]
    whitened = PCA(2, whiten=True).fit_transform(column)
    assert np.std(whitened[:, 0], ddof=1) == pytest.approx(1.0)
    assert (whitened[:, 1] == 0).all()


GOOD = np.random.default_rng(12).standard_normal((6, 4))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: PCA(5).fit(GOOD), InvalidInputError, "n_components=5 exceeds the 4 .*at most 4"),
        (lambda: PCA(4).fit(GOOD[:3]), InvalidInputError, "n_components=4 exceeds the 3"),
        (lambda: PCA(0).fit(GOOD), InvalidInputError, "n_components=0 of PCA must be an integer"),
        (lambda: PCA(1.5).fit(GOOD), InvalidInputError, "n_components=1.5"),
        (lambda: PCA("many").fit(GOOD), InvalidInputError, "'gap'"),
        (lambda: PCA(whiten="yes").fit(GOOD), InvalidInputError, "whiten='yes'"),
        (lambda: PCA().fit(GOOD[0]), InvalidInputError, "Expected 2D array"),
        (lambda: PCA().fit(GOOD[:1]), InvalidInputError, "minimum of 2"),
        (
            lambda: PCA().fit(np.where(GOOD > 2, np.nan, GOOD / 0.0)),
            InvalidInputError,
            r"X holds 24 NaN or infinite entries of 24, the first at \(0, 0\)",
        ),
        (lambda: PCA().fit(GOOD * 1j), InvalidInputError, "Complex data not supported"),
        (lambda: PCA().fit(np.array([["a", "b"]] * 3)), InvalidInputError, "convert"),
        (lambda: PCA().fit(GOOD, sample_weight=np.zeros(6)), InvalidInputError, "zero for every"),
        (lambda: PCA().fit(GOOD, sample_weight=-np.ones(6)), InvalidInputError, "not be negative"),
        (lambda: PCA().fit(GOOD).transform(GOOD[:, :2]), InvalidInputError, "expecting 4 features"),
        (lambda: PCA(2).fit(GOOD).inverse_transform(GOOD), InvalidInputError, r"\(n, 2\)"),
        (lambda: PCA().merge(PCA()), InvalidInputError, "self must be a PCA that has seen"),
        (lambda: PCA().fit(GOOD).merge(3), InvalidInputError, "other must be a PCA"),
        (
            lambda: PCA().fit(GOOD).merge(PCA().fit(GOOD[:, :2])),
            InvalidInputError,
            "2 features, but self 4",
        ),
        (lambda: PCA(3).partial_fit(GOOD[:2]).components_, InvalidInputError, "at most 2"),
        (lambda: PCA().fit(GOOD[:3]).score(GOOD), NotIdentifiableError, "unbounded"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    basis, variances = np.linalg.qr(rng.standard_normal((5, 5)))[0], np.array([9.0, 5, 2, 1, 0.8])
    inside = []
    for seed in range(6):
        rows = np.random.default_rng(seed).standard_normal((800, 5)) * np.sqrt(variances)
        rows = rows @ basis.T + 3
        model = PCA(0.7).fit(rows)
        found = model.intervals(rows, n_resamples=60)
        truth = basis.T[: model.n_components_]
        truth = truth * np.sign((model.components_ * truth).sum(axis=1))[:, None]
        for name, value in (
            ("components", truth),
            ("mean", np.full(5, 3.0)),
            ("explained_variance", variances[: model.n_components_]),
        ):
            low, high = found[name].low, found[name].high
            assert low.shape == getattr(model, f"{name}_").shape
            inside.append(((low <= value) & (value <= high)).ravel())
    # Of 114 intervals of 95 %, which depend on each other within a data set.
    assert np.concatenate(inside).mean() > 0.88


def test_intervals_of_a_source_are_those_of_its_rows():
    rows = np.random.default_rng(0).standard_normal((300, 4)) * [4, 2, 1, 1]
    model = PCA(2).fit(rows)
    plain, batches = (model.intervals(x, n_resamples=20) for x in (rows, [rows[:100], rows[100:]]))
    for name, found in plain.items():
        np.testing.assert_allclose(found.low, batches[name].low, atol=1e-10)


def test_intervals_refuse_what_no_group_can_keep():
    rows = np.random.default_rng(0).standard_normal((300, 1001))
    with pytest.raises(InvalidInputError, match="at most 1000"):
        PCA(2).fit(rows).intervals(rows)


@pytest.mark.parametrize("n_components", [1, "auto", None, 0.9])
def test_equal_rows_have_no_direction(n_components):
    # Their mean has rounding, which was one with all of the variance, called stable.
    row = np.random.default_rng(0).standard_normal(5)
    model = PCA(n_components).fit(np.tile(row, (600, 1)))
    assert model.certificate_.verdict == "unstable"
    assert not model.explained_variance_.any()


def _gross(rng, shape, n_gross):
    rows = rng.standard_normal(shape)
    rows[:n_gross] += 30 * rng.standard_normal((n_gross, shape[1]))
    return rows


@pytest.mark.parametrize("n_gross", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_direction_that_few_rows_make_is_not_stable(seed, n_gross):
    rows = _gross(np.random.default_rng(seed), (300, 8), n_gross)
    for given in (rows, [rows[:100], rows[100:]]):
        assert PCA(1).fit(given).certificate_.verdict == "unstable"


@pytest.mark.parametrize("kind", ["normal", "t", "sparse"])
def test_the_certificate_of_batches_is_that_of_the_array(kind):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 9)) * 3
    rows += rng.standard_t(5, rows.shape) if kind == "t" else rng.standard_normal(rows.shape)
    given = scipy.sparse.csr_array(rows) if kind == "sparse" else rows
    one = PCA(2).fit(given).certificate_
    other = PCA(2).fit([given[:200], given[200:]]).certificate_
    assert one.verdict == other.verdict == "stable"
    assert one.angle == pytest.approx(other.angle, rel=1e-6)


@pytest.mark.parametrize("n_components", ["auto", "gap"])
def test_the_number_that_the_spectrum_says_has_its_reason(n_components, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 8))
    model = PCA(n_components).fit(rows + 0.01 * rng.standard_normal((400, 8)))
    assert model.selection_.n_components == model.n_components_ == 3
    assert "factor of" in model.summary()
    drop = model.explained_variance_[-1] / model.certificate_.next_variance
    assert model.selection_.tests["drop"] == pytest.approx(drop)
    assert str(lt.load(model.save(tmp_path / "m")).selection_) == str(model.selection_)
    assert PCA(n_components).fit(np.zeros((5, 2))).selection_.n_components == 1
    assert not hasattr(PCA(2).fit(rows), "selection_")
