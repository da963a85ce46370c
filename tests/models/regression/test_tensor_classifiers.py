"""CP and Tucker classifiers: likelihood, derivatives, labels of any kind, bad input."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.models.regression.class_path import leave_one_out
from latensor.models.regression.design import regression_of_rows
from latensor.models.regression.losses import ClassLoss
from latensor.models.regression.solve import Ridge, evaluated, minimize
from latensor.models.regression.starts import cp_starts

DIGITS = load_digits()


def too_hard(estimator):
    reason = "weights of rank one cannot tell the three classes of this check apart"
    return {} if isinstance(estimator, lt.CPPLS) else {"check_classifiers_train": reason}


@parametrize_with_checks(
    [lt.CPClassifier(1, shape=(-1, 1)), lt.TuckerClassifier(1, shape=(-1, 1)), lt.CPPLS(1)],
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
    whole = minimize(loss, regression, evaluated(loss, regression, start, ridge), tol=1e-10)
    true = 0.0
    for i in range(n):
        weights = np.ones(n)
        weights[i] = 1e-12
        fewer = ClassLoss(labels, weights)
        start = evaluated(fewer, regression, whole.weights, ridge, whole.intercepts)
        without = minimize(fewer, regression, start, tol=1e-10)
        only = ClassLoss(labels[i : i + 1], np.ones(1))
        true += only.value(without.at.fitted[i : i + 1], without.intercepts)
    assert leave_one_out(loss, whole) == pytest.approx(true, rel=0.02)


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
        ({"X": np.ones((20, 12))}, "Ridge"),
        ({"y": np.ones(20)}, "2 classes"),
        ({"y": np.arange(19) % 2}, "20 samples but y has 19"),
        ({"y": None}, "y"),
        ({"rank": 9}, "exceeds"),
        ({"shape": 3}, "shape"),
    ],
)
def test_bad_input(change, match):
    data = {"X": np.random.default_rng(0).standard_normal((20, 4, 3)), "y": np.arange(20) % 2}
    data.update({k: v for k, v in change.items() if k in data})
    settings = {k: v for k, v in change.items() if k not in data}
    with pytest.raises(ValueError, match=match):
        lt.CPClassifier(**settings).fit(data["X"], data["y"])


def test_sources_are_refused_with_a_reason():
    X, y = pair(3, 8)
    batches = [(X[:100], y[:100]), (X[100:], y[100:])]
    for given in (batches, lt.sources.partitions([[batch] for batch in batches])):
        for model in (lt.CPClassifier(1), lt.TuckerClassifier(1), lt.CPPLS(1)):
            with pytest.raises(ValueError, match=r"in memory and no source: .*give arrays X and y"):
                model.fit(given)
