"""CP and Tucker classifiers: likelihood, derivatives, labels of any kind, bad input."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.estimation import checkpoint
from latensor.models.regression.class_objective import ClassRows
from latensor.models.regression.design import regression_of_rows
from latensor.models.regression.losses import ClassLoss
from latensor.models.regression.solve import Ridge, evaluated, minimize
from latensor.models.regression.starts import cp_starts

DIGITS = load_digits()


WIDE = lt.TuckerClassifier((2, 1), shape=(-1, 1))


def too_hard(estimator):
    if isinstance(estimator, lt.CPPLS):
        return {}
    if estimator is WIDE:
        return {"check_fit2d_1feature": "a sample of one feature has no weights of rank two"}
    reason = "weights of rank one cannot tell the three classes of this check apart"
    return {"check_classifiers_train": reason}


@parametrize_with_checks(
    [lt.CPClassifier(1, shape=(-1, 1)), lt.TuckerClassifier(1, shape=(-1, 1)), WIDE, lt.CPPLS(1)],
    expected_failed_checks=too_hard,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def pair(first, second):
    chosen = np.isin(DIGITS.target, (first, second))
    return DIGITS.images[chosen] / 16, DIGITS.target[chosen]


def test_full_rank_is_logistic_regression():
    X, y = pair(3, 8)
    rows = X.reshape(len(X), -1)
    scale = np.mean((rows - rows.mean(axis=0)) ** 2)
    full = lt.CPClassifier(8, alpha=0.1, tol=1e-12).fit(X, y)
    C = 1 / (0.1 * len(X) * scale)
    plain = LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(rows, y)
    np.testing.assert_allclose(full.coef_.to_dense().ravel(), plain.coef_[0], atol=1e-3)
    np.testing.assert_allclose(full.predict_proba(X), plain.predict_proba(rows), atol=1e-3)


@pytest.mark.parametrize("q", [1, 3])
def test_gradient_and_leave_one_out(q):
    rng = np.random.default_rng(0)
    n = 30
    X, codes = rng.standard_normal((n, 12)), rng.integers(0, max(q, 2), n)
    labels = (codes[:, None] == (np.arange(q) if q > 1 else [1])).astype(float)
    X[:, 0] += codes
    regression = regression_of_rows(X, labels, np.ones(n), (4, 3), intercept=True)
    loss, start = ClassLoss(labels, np.ones(n)), cp_starts(regression, 2)[0][0]
    at, b = start.linearize(regression.design), np.full(q, 0.1)
    _, right = loss.normal(start, at, b)
    theta, step = np.concatenate([start.pack(), b]), 1e-6

    def value(t):
        there = start.unpack(t[:-q])
        return loss.value(there.linearize(regression.design).fitted, t[-q:])

    numeric = [(value(theta + step * e) - value(theta - step * e)) / (2 * step)
               for e in np.eye(len(theta))]  # fmt: skip
    np.testing.assert_allclose(right, -np.array(numeric), atol=1e-5)
    ridge = Ridge(0.3 * n)
    objective = ClassRows(loss, regression.design)
    whole = minimize(objective, evaluated(objective, start, ridge), tol=1e-10)
    true = 0.0
    for i in range(n):
        weights = np.ones(n)
        weights[i] = 1e-12
        fewer = ClassRows(ClassLoss(labels, weights), regression.design)
        start = evaluated(fewer, whole.weights, ridge, whole.intercepts)
        without = minimize(fewer, start, tol=1e-10)
        only = ClassLoss(labels[i : i + 1], np.ones(1))
        true += only.value(without.point.at.fitted[i : i + 1], without.intercepts)
    assert objective.left_out(whole) == pytest.approx(true, rel=0.02)


def test_digits():
    X, y = pair(3, 8)
    order = np.random.default_rng(0).permutation(len(y))
    a, b = order[:100], order[100:]
    model = lt.CPClassifier(3).fit(X[a], y[a])
    assert model.score(X[b], y[b]) > 0.96
    np.testing.assert_allclose(model.predict_proba(X[b]).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    images, labels = DIGITS.images[:300] / 16, DIGITS.target[:300]
    many = lt.TuckerClassifier((4, 4), alpha=0.01).fit(images, labels.astype(str))
    assert many.coef_.shape == (8, 8, 10)
    assert many.score(images, labels.astype(str)) > 0.95


def test_sparse_weighted_saved(tmp_path):
    X, y = pair(1, 8)
    X, y = X[:80], y[:80]
    names = np.array(["one", "eight"], dtype=object)[(y == 8).astype(int)]
    rows = scipy.sparse.csr_matrix(X.reshape(80, -1))
    dense = lt.CPClassifier(2, alpha=0.1).fit(X, names)
    sparse = lt.CPClassifier(2, alpha=0.1, shape=(8, 8)).fit(rows, names)
    np.testing.assert_allclose(sparse.predict_proba(rows), dense.predict_proba(X), atol=1e-6)
    loaded = lt.load(dense.save(tmp_path / "model.npz"))
    assert np.array_equal(loaded.predict(X), dense.predict(X))
    counts = np.random.default_rng(0).integers(0, 3, 80)
    weighted = lt.CPClassifier(1, alpha=0.1, tol=1e-9).fit(X, names, sample_weight=counts)
    again = lt.CPClassifier(1, alpha=0.1, tol=1e-9).fit(
        np.repeat(X, counts, 0), np.repeat(names, counts)
    )
    np.testing.assert_allclose(weighted.predict_proba(X), again.predict_proba(X), atol=1e-3)
    chosen = lt.CPClassifier("auto", max_rank=2, alpha=0.1).fit(X, names)
    assert chosen.rank_ in (1, 2)
    assert chosen.selection_


@pytest.mark.parametrize(
    "change, match",
    [
        ({"X": np.ones((20, 12))}, "LogisticRegression"),
        ({"y": np.ones(20)}, "2 classes"),
        ({"y": np.arange(19) % 2}, "20 samples but y has 19"),
        ({"y": None}, "y"),
        ({"rank": 9}, "exceeds"),
        ({"shape": 3}, "shape"),
        ({"rank": "auto", "X": np.eye(8).reshape(8, 4, 2), "y": np.arange(8) % 2}, "got 8"),
    ],
)
def test_bad_input(change, match):
    data = {"X": np.random.default_rng(0).standard_normal((20, 4, 3)), "y": np.arange(20) % 2}
    data.update({k: v for k, v in change.items() if k in data})
    settings = {k: v for k, v in change.items() if k not in data}
    with pytest.raises(ValueError, match=match):
        lt.CPClassifier(**settings).fit(data["X"], data["y"])


def cut(X, y, *more, parts=3):
    edges = itertools.pairwise(np.linspace(0, len(y), parts + 1).astype(int))
    return [tuple(values[a:b] for values in (X, y, *more)) for a, b in edges]


def three_classes():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((240, 4, 3, 2))
    logits = np.stack([X[:, 0, 0, 0], X[:, 1, 1, 1], X[:, 2, 2, 0]], axis=1)
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("make", [lt.CPClassifier, lt.TuckerClassifier])
def test_batches_give_what_an_array_gives(make, intercept):
    X, y = three_classes()
    weights = np.random.default_rng(0).integers(1, 3, len(y)).astype(float)
    settings = {"fit_intercept": intercept, "classes": [0, 1, 2]}
    whole = make(2, **settings).fit(X, y, weights)
    batches = make(2, **settings).fit(cut(X, y, weights))
    np.testing.assert_allclose(batches.coef_.to_dense(), whole.coef_.to_dense(), atol=1e-6)
    np.testing.assert_allclose(batches.intercept_, whole.intercept_, atol=1e-6)
    assert batches.alpha_ == whole.alpha_
    assert batches.certificate_.loss_left_out == pytest.approx(whole.certificate_.loss_left_out)
    assert batches.certificate_.loss < batches.certificate_.loss_null


def test_sparse_batches_are_not_made_dense():
    X, y = pair(3, 8)
    rows = scipy.sparse.csr_array(X.reshape(len(X), -1))
    settings = {"shape": (8, 8), "classes": (3, 8), "alpha": 0.1}
    whole = lt.CPClassifier(2, **settings).fit(X, y)
    sparse = lt.CPClassifier(2, **settings).fit(cut(rows, y))
    np.testing.assert_allclose(sparse.coef_.to_dense(), whole.coef_.to_dense(), atol=1e-6)


def test_the_rank_of_a_source_is_chosen_on_a_sample():
    X, y = pair(3, 8)
    settings = {"max_rank": 2, "alpha": 0.1, "classes": (3, 8)}
    found = lt.CPClassifier("auto", **settings).fit(cut(X[:120], y[:120]))
    assert [score.rank for score in found.selection_] == [1, 2]
    again = lt.CPClassifier(found.rank_, **settings).fit(cut(X[:120], y[:120]))
    assert np.array_equal(found.coef_.to_dense(), again.coef_.to_dense())


def test_a_checkpoint_and_a_file_change_no_bit(tmp_path):
    X, y = pair(3, 8)
    parts = lt.sources.partitions([[batch] for batch in cut(X, y)])
    plain = lt.CPClassifier(2, classes=(3, 8)).fit(parts)

    def interrupt(name, number):
        if number == 6:
            raise KeyboardInterrupt

    model = lt.CPClassifier(2, classes=(3, 8))
    with pytest.raises(KeyboardInterrupt):
        model.fit(parts, checkpoint=tmp_path / "kept", callback=interrupt)
    resumed = model.fit(parts, checkpoint=tmp_path / "kept")
    loaded = lt.load(resumed.save(tmp_path / "model.npz"))
    for other in (resumed, loaded):
        assert np.array_equal(other.coef_.to_dense(), plain.coef_.to_dense())
    assert np.array_equal(loaded.predict(X), plain.predict(X))
    answers = plain.predict_proba(lt.sources.partitions([[X[:100]], [X[100:]]]))
    assert np.array_equal(np.concatenate(list(answers)), plain.predict_proba(X))


class EndedError(Exception):
    pass


@pytest.mark.parametrize("make", [lt.CPClassifier, lt.TuckerClassifier])
def test_a_checkpoint_keeps_the_last_step_of_a_ridge(tmp_path, monkeypatch, make):
    """A folder does not grow with the steps, and a fit ended between any two ends the same."""
    monkeypatch.setattr(checkpoint, "_FIRST_COST", 0.0)
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    X, y = three_classes()
    parts = lt.sources.partitions([[batch] for batch in cut(X, y)])

    def model(**settings):
        return make(2, classes=[0, 1, 2], **settings)

    sizes, passes = [], []
    for steps in (2, 12):
        folder, seen = tmp_path / str(steps), []
        model(alpha=1e-4, tol=1e-15, max_iter=steps).fit(
            parts, checkpoint=folder, callback=lambda name, number, seen=seen: seen.append(name)
        )
        passes.append(len(seen))
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    assert passes[1] >= passes[0] + 10
    assert sizes[1] < 1.05 * sizes[0]
    plain = model().fit(parts)
    for limit in range(3, 200, 4):

        def end(name, number, limit=limit):
            if number == limit:
                raise EndedError

        try:
            found = model().fit(parts, checkpoint=tmp_path / "kept", callback=end)
            break
        except EndedError:
            continue
    assert limit > 20
    assert np.array_equal(found.coef_.to_dense(), plain.coef_.to_dense())
    assert found.certificate_ == plain.certificate_
    assert found.n_iter_ == plain.n_iter_


def test_streams_keep_their_samples():
    X, y = pair(3, 8)
    names = np.array(["three", "eight"])[(y == 8).astype(int)]
    whole = lt.CPClassifier(2).fit(X, names)
    stream, other = lt.CPClassifier(2), lt.CPClassifier(2)
    stream.partial_fit(X[:100], names[:100], classes=["three", "eight"])
    other.partial_fit(X[200:], names[200:], classes=["three", "eight"])
    stream.partial_fit(X[100:200], names[100:200]).merge(other)
    np.testing.assert_allclose(stream.coef_.to_dense(), whole.coef_.to_dense(), atol=1e-9)
    with pytest.raises(ValueError, match="give all batches to partial_fit"):
        whole.partial_fit(X, names)
    with pytest.raises(ValueError, match="give all batches to partial_fit"):
        whole.merge(stream)
    with pytest.raises(ValueError, match="give all batches to fit as one source"):
        stream.spawn()
    with pytest.raises(ValueError, match="'four'"):
        stream.partial_fit(X[:2], ["four", "eight"])


def test_samples_of_weight_zero_may_have_any_label():
    X, y = pair(3, 8)
    labels, weights = y.copy(), np.ones(len(y))
    labels[:5], weights[:5] = 7, 0
    found = lt.CPClassifier(1, alpha=0.1).fit(X, labels, weights)
    assert found.classes_.tolist() == [3, 8]
    without = lt.CPClassifier(1, alpha=0.1).fit(X[5:], y[5:])
    np.testing.assert_allclose(found.coef_.to_dense(), without.coef_.to_dense(), atol=1e-9)


def test_bad_sources():
    X, y = pair(3, 8)
    with pytest.raises(ValueError, match="give all labels as classes"):
        lt.CPClassifier(1).fit(cut(X, y))
    with pytest.raises(ValueError, match="label 3, which is none of the 2 classes"):
        lt.CPClassifier(1, classes=(7, 8)).fit(cut(X, y))
    with pytest.raises(ValueError, match="2 classes in the data"):
        lt.CPClassifier(1, classes=(3, 8)).fit(cut(X[y == 3], y[y == 3]))
    with pytest.raises(ValueError, match="8192: give all samples to fit as one array"):
        lt.CPClassifier(1, classes=(0, 1)).fit([(np.ones((4, 100, 100)), np.arange(4) % 2)] * 2)
    with pytest.raises(ValueError, match=r"samples of shape \(7, 8\)"):
        lt.CPClassifier(1, classes=(3, 8)).fit([(X[:9], y[:9]), (X[9:, 1:], y[9:])])


def test_labels_of_several_types_are_named():
    X, y = np.zeros((4, 3, 2)), np.array(["a", "b", None, "a"], dtype=object)
    with pytest.raises(lt.InvalidInputError, match="several types"):
        lt.CPClassifier(1).fit(X, y)


@pytest.mark.parametrize("model", [lt.CPClassifier(1), lt.TuckerClassifier((1, 1)), lt.CPPLS(1)])
def test_a_fit_in_memory_tells_its_callback(model):
    told = []
    model.fit(*pair(3, 8), callback=lambda *told_: told.append(told_))
    assert told == [("fit", 0)]
