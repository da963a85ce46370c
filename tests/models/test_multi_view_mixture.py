import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.datasets.mixtures import make_multi_view
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.pearson import PearsonMixture
from latensor.models.views.multi_view import MultiViewMixture
from latensor.models.views.read_off import read_off
from latensor.moments.batch import Batch
from latensor.moments.views import (
    ViewCovariances,
    ViewCovarianceSums,
    ViewMoments,
    ViewThirdSums,
    best_core,
)
from mixture_population import matched


def population(weights, means, variances, weight=1e20):
    n_views = len(means)
    centers = [weights @ each for each in means]
    shifted = [each - center for each, center in zip(means, centers, strict=True)]
    cross = {
        (t, s): (shifted[t].T * weights) @ shifted[s]
        for t in range(n_views)
        for s in range(t + 1, n_views)
    }
    spreads = [weights @ (m**2 + v) for m, v in zip(shifted, variances, strict=True)]
    known = ViewCovariances(int(weight), weight, centers, spreads, cross)
    core = best_core(known, len(weights) - 1)
    third = np.einsum("j,ja,jb,jc->abc", weights, *(shifted[t] for t in core))
    squares = {
        (t, s): np.einsum("j,ji,jl->il", weights, shifted[t] ** 2 + variances[t], shifted[s])
        for t in range(n_views)
        for s in core
        if s != t
    }
    frames = [np.eye(means[t].shape[1]) for t in core]
    return ViewMoments(known, core, frames, third, squares)


@pytest.mark.parametrize(
    "k, sizes", [(1, (2, 2, 2)), (3, (3, 4, 5)), (4, (3, 3, 3)), (5, (6, 5, 9, 4))]
)
def test_population_moments_give_the_parameters_back(k, sizes):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = rng.dirichlet(np.full(k, 5.0))
        means = [rng.standard_normal((k, d)) for d in sizes]
        variances = [rng.uniform(0.5, 2, (k, d)) for d in sizes]
        moments = population(weights, means, variances)
        found = read_off(moments, k, ("gaussian",) * len(sizes), rng)
        order = matched(np.hstack(found.state.means), np.hstack(means))
        assert np.abs(found.state.weights[order] - weights).max() < 1e-8
        for t in range(len(sizes)):
            assert np.abs(found.state.means[t][order] - means[t]).max() < 1e-8
            assert np.abs(found.state.variances[t][order] - variances[t]).max() < 1e-8


@pytest.mark.parametrize("thin", [False, True])
def test_third_moments_are_those_of_the_definition(thin):
    rng = np.random.default_rng(0)
    views = [rng.exponential(size=(200, d)) + 1 for d in (3, 4, 2, 5)]
    weights = rng.uniform(0.5, 2, 200)
    total = weights.sum()
    centered = [view - weights @ view / total for view in views]
    frames = [rng.standard_normal((view.shape[1], 2)) for view in views[:3]]
    given = [scipy.sparse.csr_array(view) for view in views] if thin else views
    centres = tuple(np.full(v.shape[1], 0.0 if thin else 0.3) for v in views)
    whole = Batch(tuple(given), weights, np.arange(200, dtype=np.uint64))
    covariances, thirds = (
        pickle.loads(pickle.dumps(empty.update(whole.take(slice(0, 50))))).merge(
            empty.update(whole.take(slice(50, 200)))
        )
        for empty in (
            ViewCovarianceSums(centres),
            ViewThirdSums(centres, (0, 1, 2), tuple(frames)),
        )
    )
    known = covariances.finalize()
    moved = covariances.recentred(tuple(known.means)).finalize()
    for pair, matrix in known.cross.items():
        assert np.abs(moved.cross[pair] - matrix).max() < 1e-12
    found = thirds.central(known)
    mapped = [c @ f for c, f in zip(centered, frames, strict=False)]
    third = np.einsum("n,na,nb,nc->abc", weights, *mapped) / total
    assert np.abs(found.third - third).max() < 1e-11
    for (t, s), square in found.squares.items():
        expected = (centered[t] ** 2).T @ (mapped[s] * weights[:, None]) / total
        assert np.abs(square - expected).max() < 1e-11
    for (t, s), matrix in known.cross.items():
        expected = (centered[t].T * weights) @ centered[s] / total
        assert np.abs(matrix - expected).max() < 1e-12


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_the_error_falls_like_the_root_of_the_sample_size(kind):
    errors = {20_000: 0.0, 160_000: 0.0}
    for seed in range(4):
        for n_samples in errors:
            planted = make_multi_view(n_samples, (6, 8, 7), 3, kind=kind, random_state=seed)
            model = MultiViewMixture(3, refine=0, random_state=0).fit(planted.views)
            order = matched(np.hstack(model.means_), np.hstack(planted.means))
            gaps = np.hstack(model.means_)[order] - np.hstack(planted.means)
            errors[n_samples] += float((gaps**2).mean())
    assert 0.2 < np.sqrt(errors[160_000] / errors[20_000]) < 0.6


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
@pytest.mark.parametrize("seed", range(3))
def test_planted_views_are_found(kind, seed):
    planted = make_multi_view(4000, (10, 12, 9, 5), 4, kind=kind, random_state=seed)
    model = MultiViewMixture(4, random_state=0).fit(planted.views)
    assert model.kinds_ == (kind,) * 4
    order = matched(np.hstack(model.means_), np.hstack(planted.means))
    gaps = np.hstack(model.means_)[order] - np.hstack(planted.means)
    assert np.abs(gaps).max() < (0.25 if kind == "gaussian" else 0.1)
    assert np.abs(model.weights_[order] - planted.weights).max() < 0.05
    if kind == "gaussian":
        assert adjusted_rand_score(planted.labels, model.predict(planted.views)) > 0.95
    assert np.abs(model.predict_proba(planted.views).sum(axis=1) - 1).max() < 1e-12
    assert model.score(planted.views) == pytest.approx(model.lower_bound_, abs=1e-3)
    drawn, labels = model.sample(3000)
    assert [view.shape[1] for view in drawn] == [10, 12, 9, 5]
    assert adjusted_rand_score(labels, model.predict(drawn)) > 0.5


def test_symbols_sparse_views_and_dense_views_are_the_same():
    planted = make_multi_view(3000, (5, 6, 7), 3, kind="categorical", random_state=3)
    expected = MultiViewMixture(3, random_state=0).fit(planted.views)
    for views in (
        [scipy.sparse.csc_array(view) for view in planted.views],
        [np.argmax(view, axis=1) for view in planted.views],
    ):
        model = MultiViewMixture(3, random_state=0).fit(views)
        assert np.abs(np.hstack(model.means_) - np.hstack(expected.means_)).max() < 1e-6
        assert (model.predict(views) == expected.predict(planted.views)).all()


@pytest.mark.parametrize("refine", [0, "auto"])
def test_streams_merges_and_weights(refine):
    planted = make_multi_view(3000, (5, 6, 7), 3, random_state=4)
    model = MultiViewMixture(3, refine=refine, random_state=0)
    whole = clone(model).fit(planted.views)
    first = clone(model).partial_fit([view[:1200] for view in planted.views])
    worker = first.spawn().partial_fit([view[1200:] for view in planted.views])
    merged = first.merge(worker)
    for t in range(3):
        assert np.abs(merged.means_[t] - whole.means_[t]).max() < 1e-5
    weights = np.random.default_rng(0).integers(0, 3, 3000)
    weighted = clone(model).fit(planted.views, sample_weight=weights)
    repeated = clone(model).fit([np.repeat(view, weights, axis=0) for view in planted.views])
    assert np.abs(np.hstack(weighted.means_) - np.hstack(repeated.means_)).max() < 1e-6
    assert MultiViewMixture("auto", random_state=0).fit(planted.views).n_components_ == 3


def test_more_components_than_features_are_fitted_by_likelihood():
    planted = make_multi_view(3000, (2, 2, 2), 5, separation=8, random_state=5)
    model = MultiViewMixture(5, random_state=0).fit(planted.views)
    assert model.certificate_.method.startswith("k-means++")
    assert adjusted_rand_score(planted.labels, model.predict(planted.views)) > 0.8


GOOD = make_multi_view(60, (3, 4, 3), 2, random_state=6).views


def fit(views=GOOD, n_components=2, **parameters):
    return MultiViewMixture(n_components, random_state=0, **parameters).fit(views)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: fit(GOOD[:2]), InvalidInputError, "2 views: three or more"),
        (lambda: fit(GOOD[0]), InvalidInputError, "must be a list of three"),
        (lambda: fit([GOOD[0], GOOD[1][:5], GOOD[2]]), InvalidInputError, "60, 5, 60 rows"),
        (lambda: fit([v[:0] for v in GOOD]), InvalidInputError, r"0 sample\(s\)"),
        (lambda: fit([GOOD[0], GOOD[1], GOOD[2] * np.nan]), InvalidInputError, r"X\[2\].*NaN"),
        (lambda: fit([GOOD[0], GOOD[1], GOOD[2] * 1j]), InvalidInputError, "Complex"),
        (lambda: fit(n_components=61), InvalidInputError, "n_samples=60"),
        (lambda: fit(n_components=6, refine=0), NotIdentifiableError, "at most 4 are"),
        (lambda: fit(kinds="other"), InvalidInputError, "kinds='other'"),
        (lambda: fit(kinds=("gaussian",)), InvalidInputError, "each of 3 views"),
        (lambda: fit(kinds=("categorical",) * 3), InvalidInputError, "not negative"),
        (lambda: fit().predict(GOOD[:2]), InvalidInputError, "2 views"),
        (lambda: fit().predict([*GOOD[:2], GOOD[1]]), InvalidInputError, r"X\[2\] has 4 features"),
        (lambda: fit([*GOOD, np.arange(-1, 59)]), InvalidInputError, "symbols from -1"),
        (lambda: fit(refine=-2), InvalidInputError, "refine=-2"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


class CheckedViews(MultiViewMixture):
    """Views come as a list; scikit-learn's checks give one matrix, which is then seen thrice."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit([X, X, X], y, sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit([X, X, X], y, sample_weight)

    def fit_predict(self, X, y=None, sample_weight=None):
        return self.fit(X, y, sample_weight).predict(X)

    def predict(self, X):
        return super().predict([X, X, X])

    def predict_proba(self, X):
        return super().predict_proba([X, X, X])

    def score_samples(self, X):
        return super().score_samples([X, X, X])

    def score(self, X, y=None):
        return super().score([X, X, X])


WIDTH = "n_features_in_ counts the columns of all views, thrice those of the one matrix"
CLASSIFIER = "the check takes whatever has predict_proba and sparse input for a classifier"
EXPECTED = {
    "check_n_features_in": WIDTH,
    "check_n_features_in_after_fitting": WIDTH,
    "check_estimator_sparse_array": CLASSIFIER,
    "check_estimator_sparse_matrix": CLASSIFIER,
}


@parametrize_with_checks(
    [CheckedViews(random_state=0), CheckedViews(1, refine=0)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


def test_frames_objects_and_other_libraries_are_views():
    views = make_multi_view(300, (3, 4, 3), 2, random_state=6).views
    expected = MultiViewMixture(2, refine=3, random_state=0).fit(views)
    torch = pytest.importorskip("torch")
    for given in (
        [pd.DataFrame(view) for view in views],
        [view.astype(object) for view in views],
        [view.tolist() for view in views],
        [torch.asarray(view) for view in views],
        [pd.DataFrame(views[0]), torch.asarray(views[1]), scipy.sparse.coo_array(views[2])],
    ):
        found = MultiViewMixture(2, refine=3, random_state=0).fit(given)
        assert np.abs(np.hstack(found.means_) - np.hstack(expected.means_)).max() < 1e-8
        assert (found.predict(given) == expected.predict(views)).all()


@pytest.mark.parametrize(
    "kind, refine, k, n",
    [("gaussian", 0, 3, 2000), ("categorical", 0, 2, 20_000), ("gaussian", "auto", 3, 2000)],
)
def test_intervals_hold_the_truth(kind, refine, k, n):
    inside = []
    for seed in range(8 if refine == 0 else 4):
        planted = make_multi_view(n, (5, 6, 4), k, kind=kind, random_state=seed)
        model = MultiViewMixture(k, refine=refine, random_state=0).fit(planted.views)
        found = model.intervals(planted.views, level=0.9, n_resamples=40, n_groups=30)
        order = matched(np.hstack(planted.means), np.hstack(model.means_))
        for t in range(3):
            low, high, truth = found["means"].low[t], found["means"].high[t], planted.means[t]
            assert kind == "gaussian" or (low.min() >= 0 and high.max() <= 1)
            inside.append(((low <= truth[order]) & (truth[order] <= high)).mean())
        fraction = planted.weights[order]
        inside.append(
            ((found["weights"].low <= fraction) & (fraction <= found["weights"].high)).mean()
        )
    assert 0.75 < np.mean(inside) < (0.99 if refine == 0 else 1)


def test_equal_samples_are_fewer_than_components():
    for views in ([np.full((40, 2), 0.1)] * 3, [np.repeat([[0.0], [1.0]], 20, axis=0)] * 3):
        with pytest.raises(InvalidInputError, match="distinct samples of 40"):
            MultiViewMixture(3, random_state=0).fit(views)


class OneBuffer:
    """Batches that are all written into the same memory."""

    def __init__(self, views, size):
        self.views, self.size = views, size

    def __iter__(self):
        buffers = [np.empty((self.size, view.shape[1])) for view in self.views]
        for a in range(0, len(self.views[0]), self.size):
            for buffer, view in zip(buffers, self.views, strict=True):
                buffer[:] = view[a : a + self.size]
            yield buffers
        for buffer in buffers:
            buffer[:] = np.nan


def test_a_buffer_may_be_used_again():
    views = make_multi_view(3000, (5, 6, 7), 3, random_state=4).views
    model = MultiViewMixture(3, refine=3, random_state=0)
    whole = clone(model).fit(views)
    streamed = clone(model)
    for batch in OneBuffer(views, 500):
        streamed.partial_fit(batch)
    for found in (streamed, clone(model).fit(OneBuffer(views, 500))):
        for t in range(3):
            assert np.array_equal(found.means_[t], whole.means_[t])


class FewInMemory(MultiViewMixture):
    _row_limit = 5000


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_a_source_larger_than_its_sample_is_fitted_as_well_as_in_memory(kind):
    planted = make_multi_view(20_000, (4, 5, 4), 3, kind=kind, random_state=1)
    whole = MultiViewMixture(3, tol=1e-8, random_state=0).fit(planted.views)
    few = FewInMemory(3, tol=1e-8, random_state=0).fit(OneBuffer(planted.views, 500))
    assert few.converged_
    gaps = np.hstack(few.means_) - np.hstack(whole.means_)
    errors = np.sqrt((gaps**2).mean())
    order = matched(np.hstack(whole.means_), np.hstack(planted.means))
    true = np.hstack(whole.means_)[order] - np.hstack(planted.means)
    assert errors < 0.1 * np.sqrt((true**2).mean())
    if kind == "categorical":
        return
    # A stream goes on from the fit, refined by what it has seen.
    again = FewInMemory(3, tol=1e-8, random_state=0).fit([v[:15_000] for v in planted.views])
    again.partial_fit([v[15_000:] for v in planted.views])
    gaps = np.hstack(again.means_) - np.hstack(whole.means_)
    assert np.sqrt((gaps**2).mean()) < 0.5 * np.sqrt((true**2).mean())


def test_looking_at_streams_changes_nothing():
    views = make_multi_view(2000, (3, 4, 3), 2, random_state=6).views
    model = MultiViewMixture(2, refine=2, random_state=0)
    left, right = (
        clone(model).partial_fit([v[part] for v in views])
        for part in (
            slice(0, 1200),
            slice(1200, None),
        )
    )
    before = pickle.dumps(right._stream.held)
    assert left.means_[0].shape == right.means_[0].shape == (2, 3)
    left.merge(right)
    assert pickle.dumps(right._stream.held) == before
    whole = clone(model).fit(views)
    assert np.abs(np.hstack(left.means_) - np.hstack(whole.means_)).max() < 1e-10
    assert not hasattr(MultiViewMixture(6, refine=0).partial_fit(views), "means_")


@pytest.mark.filterwarnings("ignore::latensor.exceptions.ConvergenceWarning")
def test_what_em_has_not_ended_is_not_stable(rng):
    labels = rng.integers(2, size=400)
    views = [3 * rng.normal(size=(2, 3))[labels] + rng.normal(size=(400, 3)) for _ in range(3)]
    line = np.array([0.0, 6.0])[labels] + rng.normal(size=400)
    fits = [
        MultiViewMixture(2, max_iter=1, random_state=0).fit(views),
        PearsonMixture(max_iter=1, random_state=0).fit(line),
    ]
    for model in fits:
        assert not model.converged_
        assert "Convergence" in [s.topic for s in model.certificate_.statements]
        assert model.certificate_.verdict != "stable"
