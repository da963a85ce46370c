"""Multilinear partial least squares: what TensorLy's CP_PLSR promises, and PLS for matrices."""

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression

import latensor as lt

SHAPES = [((10, 8, 6), 1), ((10, 8, 6, 4), 3), ((12, 7), 2)]


def planted(shape, outputs, rank=3, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal((d, rank)) for d in shape]
    X = lt.CPTensor(np.ones(rank), factors).to_dense()
    Y = factors[0] @ rng.standard_normal((rank, outputs))
    return X + noise * rng.standard_normal(X.shape), Y


@pytest.mark.parametrize("shape, outputs", SHAPES)
def test_factors_are_unit_and_scores_come_back(shape, outputs):
    X, Y = planted(shape, outputs, noise=0.1)
    model = lt.CPPLS(3).fit(X, Y)
    for factor in (*model.x_factors_[1:], model.y_factors_[1]):
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1)
    x_scores, y_scores = model.transform(X, Y)
    np.testing.assert_allclose(x_scores, model.x_factors_[0], atol=1e-9)
    np.testing.assert_allclose(y_scores, model.y_factors_[0], atol=1e-9)
    assert [f.shape for f in model.x_factors_] == [(d, 3) for d in shape]


@pytest.mark.parametrize("shape, outputs", SHAPES)
def test_planted_targets_are_explained_and_more_components_explain_more(shape, outputs):
    X, Y = planted(shape, outputs)
    scores = [lt.CPPLS(r).fit(X, Y).score(X, Y) for r in range(1, 7)]
    assert np.all(np.diff(scores) > -1e-9)
    assert scores[-1] > 0.999


def test_matrices_are_partial_least_squares():
    X, Y = planted((30, 8), 1, rank=5, noise=0.2)
    mine = lt.CPPLS(3).fit(X, Y)
    peer = PLSRegression(3, scale=False).fit(X, Y)
    np.testing.assert_allclose(mine.predict(X), peer.predict(X).reshape(-1, 1), atol=1e-6)


def test_the_covariance_is_the_largest():
    X, Y = planted((20, 6, 5), 2, noise=0.5)
    model = lt.CPPLS(1).fit(X, Y)
    best = float(model.x_factors_[0][:, 0] @ model.y_factors_[0][:, 0])
    rng = np.random.default_rng(1)
    centred, targets = X - X.mean(axis=0), Y - Y.mean(axis=0)
    for _ in range(200):
        a, b, q = (rng.standard_normal(d) for d in (6, 5, 2))
        a, b, q = (v / np.linalg.norm(v) for v in (a, b, q))
        value = np.einsum("nij,i,j->n", centred, a, b) @ (targets @ q)
        assert value <= best + 1e-9


def test_entries_that_do_not_vary_have_no_weight():
    X, Y = planted((15, 6, 5), 2, noise=0.1)
    X[:, 0] = 1.0
    assert np.abs(lt.CPPLS(3).fit(X, Y).x_factors_[1][0]).max() < 1e-9


def test_collinear_entries_files_and_rows(tmp_path):
    X, Y = planted((40, 30, 20), 2, noise=0.3)
    model = lt.CPPLS(3).fit(X[:30], Y[:30])
    assert model.score(X[30:], Y[30:]) > 0.9
    loaded = lt.load(model.save(tmp_path / "model.npz"))
    assert np.array_equal(loaded.predict(X), model.predict(X))
    rows = lt.CPPLS(3, shape=(30, 20)).fit(X[:30].reshape(30, -1), Y[:30])
    np.testing.assert_allclose(rows.predict(X.reshape(40, -1)), model.predict(X))


def test_bad_input():
    X, Y = planted((10, 8, 6), 1)
    with pytest.raises(lt.InvalidInputError, match="10 samples but y has 9"):
        lt.CPPLS(1).fit(X, Y[:9])
    with pytest.raises(lt.InvalidInputError, match="expecting"):
        lt.CPPLS(1).fit(X, Y).predict(X.transpose(0, 2, 1))
    with pytest.raises(lt.InvalidInputError, match="n_components"):
        lt.CPPLS(0).fit(X, Y)
    with pytest.raises(lt.InvalidInputError, match=r"n_components=11 exceeds .* 10 samples of 48"):
        lt.CPPLS(11).fit(X, Y)
    with pytest.raises(lt.InvalidInputError, match=r"n_components=7 exceeds .* 10 samples of 6"):
        lt.CPPLS(7).fit([(X[:4, 0], Y[:4]), (X[4:, 0], Y[4:])])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_any_unit_gives_the_same_components(scale):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4, 3)), rng.standard_normal(30)
    plain, other = lt.CPPLS(2).fit(X, y), lt.CPPLS(2).fit(scale * X, y)
    np.testing.assert_allclose(other.coef_ * scale, plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(other.predict(scale * X), plain.predict(X), rtol=1e-8)
    np.testing.assert_allclose(lt.CPPLS(2).fit(X, scale * y).coef_ / scale, plain.coef_, rtol=1e-8)
    with pytest.raises(lt.InvalidInputError, match=r"coefficients of y.*overflow"):
        lt.CPPLS(2).fit(1e-200 * X, 1e200 * y)


@pytest.mark.parametrize("shape, outputs", [*SHAPES, ((60, 4, 3), 1), ((60, 5), 2)])
def test_covariances_give_what_rows_give(shape, outputs, tmp_path):
    X, Y = planted(shape, outputs, noise=0.3)
    whole = lt.CPPLS(3).fit(X, Y)
    half = len(X) // 2
    batches = [(X[:half], Y[:half]), (X[half:], Y[half:])]
    source = lt.CPPLS(3).fit(lt.sources.partitions([[batch] for batch in batches]))
    stream = lt.CPPLS(3).partial_fit(*batches[0])
    worker = stream.spawn().partial_fit(*batches[1])
    stream.merge(worker)
    for model in (source, stream, lt.load(source.save(tmp_path / "model.npz"))):
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-9)
        np.testing.assert_allclose(model.inner_coef_, whole.inner_coef_, atol=1e-9)
        for mine, other in zip(model.x_factors_[1:], whole.x_factors_[1:], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-8)
        assert model.x_factors_[0] is None
        assert model.y_factors_[0] is None
        np.testing.assert_allclose(model.transform(X), whole.x_factors_[0], atol=1e-8)


def test_weights_count_samples():
    X, Y = planted((20, 5, 4), 2, noise=0.3)
    counts = np.random.default_rng(0).integers(0, 3, 20)
    weighted = lt.CPPLS(2).fit(X, Y, counts.astype(float))
    again = lt.CPPLS(2).fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0))
    np.testing.assert_allclose(weighted.coef_, again.coef_, atol=1e-9)
    batches = lt.CPPLS(2).fit([(X[:9], Y[:9], counts[:9]), (X[9:], Y[9:], counts[9:])])
    np.testing.assert_allclose(batches.coef_, again.coef_, atol=1e-9)


def test_a_fit_of_an_array_says_how_to_go_on():
    X, Y = planted((20, 5, 4), 2)
    model = lt.CPPLS(2).fit(X, Y)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(lt.InvalidInputError, match="give all batches to partial_fit"):
        model.partial_fit(X, Y)
    with pytest.raises(lt.InvalidInputError, match="1 sample"):
        lt.CPPLS(1).fit([(X[:1], Y[:1])])
