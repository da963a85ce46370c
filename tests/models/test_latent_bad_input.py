"""Bad input of every kind, for every mixture, chain and unmixing."""

import numpy as np
import pytest

import latensor as lt
from latensor.exceptions import InvalidInputError, NotIdentifiableError

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((60, 4))
SYMBOLS = RNG.integers(0, 4, 60)
PLANTED = lt.datasets.make_spherical_mixture(400, 6, 2, separation=8, random_state=0).samples


def thrice(X):
    return [X, 2 * X, X[:, ::-1]]


MODELS = {
    "spherical": lambda k, X, **p: lt.SphericalGaussianMixture(k, random_state=0, **p).fit(X),
    "diagonal": lambda k, X, **p: lt.DiagonalGaussianMixture(k, random_state=0, **p).fit(X),
    "product": lambda k, X, refine=0: lt.ProductMixture(k, random_state=0).fit(X),
    "views": lambda k, X, **p: lt.MultiViewMixture(k, random_state=0, **p).fit(thrice(X)),
    "points": lambda k, X, **p: lt.GaussianHMM(k, random_state=0, **p).fit(X),
    "ica": lambda k, X, **p: lt.ICA(k, random_state=0, **p).fit(X),
    "pearson": lambda k, X, **p: lt.PearsonMixture(random_state=0, **p).fit(X[:, :1]),
    "symbols": lambda k, X, **p: lt.CategoricalHMM(k, random_state=0, **p).fit(X),
}
NUMBERS = [name for name in MODELS if name != "symbols"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("refine", [0, "auto"])
def test_nan_and_infinity(name, refine):
    for value in (np.nan, np.inf, -np.inf):
        X = (SYMBOLS[:, None] if name == "symbols" else DATA).astype(float)
        X[5, 0] = value
        if name in ("points", "symbols"):
            # NaN is an entry that was not observed, of which moments alone know nothing.
            if np.isnan(value) and refine != 0:
                assert np.isfinite(MODELS[name](2, X, refine=refine).transmat_).all()
                continue
            message = "missing entries.*refine" if np.isnan(value) else "infinite entries"
        else:
            message = "NaN or infinite entries of"
        with pytest.raises(InvalidInputError, match=message):
            MODELS[name](2, X, refine=refine)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("scale", [1e155, 1e200, 1e300])
def test_samples_whose_moments_overflow(name, scale):
    X = PLANTED.copy()
    X[:, 0] *= scale
    with pytest.raises(InvalidInputError, match=r"overflow.* in a\s+smaller unit"):
        MODELS[name](2, X)


@pytest.mark.parametrize("name", ["spherical", "diagonal", "product", "pearson"])
def test_samples_whose_moments_underflow(name):
    with pytest.raises(InvalidInputError, match="underflows: give the samples in a larger unit"):
        MODELS[name](2, 1e-150 * PLANTED)


@pytest.mark.parametrize("name", ["spherical", "diagonal"])
def test_the_number_of_components_of_samples_without_moments_is_not_one(name):
    for scale, unit in ((1e-150, "larger"), (1e150, "smaller")):
        with pytest.raises(InvalidInputError, match=f"flows.* in a {unit} unit"):
            MODELS[name]("auto", scale * PLANTED)


def test_features_of_very_different_units():
    units = np.geomspace(1e100, 1e-100, PLANTED.shape[1])
    found = MODELS["diagonal"](2, PLANTED * units).means_ / units
    np.testing.assert_allclose(found, MODELS["diagonal"](2, PLANTED).means_, atol=1e-6)
    units[[0, -1]] = 1e150, 1e-150
    for name in ("diagonal", "product"):
        with pytest.raises(InvalidInputError, match="third moment of X overflows"):
            MODELS[name](2, PLANTED * units)


def test_symbols_that_are_names():
    X = SYMBOLS.copy()
    X[7] = 10**9
    with pytest.raises(InvalidInputError, match=r"symbol 1000000000 in 60 rows.*Number"):
        MODELS["symbols"](2, X)
    X[7] = 999
    assert MODELS["symbols"](2, X).n_features_ == 1000


@pytest.mark.parametrize("name", NUMBERS)
def test_fewer_samples_than_components(name):
    texts = {
        "points": "n_samples=4 should be at least n_components=5",
        "ica": "n_components=5 exceeds the n_features=4",
        "pearson": "minimum of 2",
    }
    X = DATA[:1] if name == "pearson" else DATA[:4]
    text = texts.get(name, "n_components=5 exceeds the n_samples=4")
    with pytest.raises(InvalidInputError, match=text):
        MODELS[name](5, X)
    with pytest.raises(InvalidInputError, match="n_samples=4 should be at least n_components=5"):
        MODELS["symbols"](5, SYMBOLS[:4])


@pytest.mark.parametrize("name", ["spherical", "diagonal", "product", "views", "points", "symbols"])
def test_more_components_than_moments_determine(name):
    X = SYMBOLS if name == "symbols" else DATA
    with pytest.raises(NotIdentifiableError, match=r"condition number.*ower n_c"):
        MODELS[name](7, X, refine=0)
    if name == "product":
        return
    # Left to the likelihood, it is done, and the certificate says how.
    found = MODELS[name](7, X, refine="auto").certificate_
    assert found.verdict != "stable"


@pytest.mark.parametrize("name", ["spherical", "diagonal", "product", "views", "points", "ica"])
def test_constant_columns_are_named(name):
    X = PLANTED.copy()
    X[:, 5] = 0.1
    found = MODELS[name](2, X)
    place = 5
    if name == "views":
        # Every view has its own.
        assert found.certificate_.constant_features == (5, 11, 12)
    else:
        assert found.certificate_.constant_features == (place,)
    assert "does not vary" in " ".join(str(found.certificate_).split())
    assert found.certificate_.verdict != "stable"


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("refine", [0, "auto"])
@pytest.mark.parametrize("value", [3.0, 0.1])
def test_equal_samples_are_not_two_of_anything(name, refine, value):
    X = np.full((60, 4), value)
    if name == "points" and refine == "auto":
        found = MODELS[name](2, X)
        assert np.isfinite(found.means_).all()
        assert found.certificate_.verdict != "stable"
        return
    with pytest.raises((InvalidInputError, NotIdentifiableError)) as caught:
        MODELS[name](2, X, refine=refine)
    assert any(
        text in str(caught.value)
        for text in ("1 distinct samples", "are equal", "cannot tell 2 states", "do not show")
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_duplicate_points_give_finite_answers(name):
    X = np.repeat(PLANTED[:40], 5, axis=0)
    found = MODELS[name](2, X)
    names = ("mixing_",) if name == "ica" else ("means_",)
    for attribute in names:
        values = getattr(found, attribute)
        for each in values if isinstance(values, list) else [values]:
            assert np.isfinite(each).all()
    if name in ("spherical", "diagonal", "views"):
        with pytest.raises(InvalidInputError, match="exceeds the 2 distinct samples of 40"):
            MODELS[name](3, np.repeat(PLANTED[:2], 20, axis=0))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weights", [[-1.0], [np.nan], [0.0]])
def test_bad_weights(name, weights):
    X = SYMBOLS if name == "symbols" else DATA
    count = 1 if name in ("symbols", "points") else 60
    classes = {
        "spherical": lt.SphericalGaussianMixture,
        "diagonal": lt.DiagonalGaussianMixture,
        "product": lt.ProductMixture,
        "views": lt.MultiViewMixture,
        "points": lt.GaussianHMM,
        "ica": lt.ICA,
        "pearson": lt.PearsonMixture,
        "symbols": lt.CategoricalHMM,
    }
    given = thrice(X) if name == "views" else X[:, :1] if name == "pearson" else X
    for method in ("fit", "partial_fit"):
        with pytest.raises(InvalidInputError, match="sample_weight"):
            getattr(classes[name](2), method)(given, sample_weight=np.full(count, weights[0]))
        with pytest.raises(InvalidInputError, match="sample_weight"):
            getattr(classes[name](2), method)(given, sample_weight=np.ones(count + 1))


@pytest.mark.parametrize(
    "fit",
    [
        lambda X: lt.SphericalGaussianMixture(2).fit(X),
        lambda X: lt.SphericalGaussianMixture(2).fit([X[:20], X[20:]]),
        lambda X: lt.DiagonalGaussianMixture(2).partial_fit(X),
        lambda X: lt.ProductMixture(1).fit(X),
        lambda X: lt.MultiViewMixture(2).fit([X, X, X]),
        lambda X: lt.MultiViewMixture(2).fit([[X[:20]] * 3, [X[20:]] * 3]),
        lambda X: lt.PearsonMixture().fit(X[:, 0]),
        lambda X: lt.PCA(1).fit(X),
        lambda X: lt.CCA(1).fit(X.data, X),
        lambda X: lt.ICA(1).fit(X),
        lambda X: lt.SingleTopic(1).fit(abs(X)),
        lambda X: lt.LatentDirichletAllocation(1).fit(abs(X)),
    ],
)
def test_masked_entries_are_refused(fit):
    X = np.ma.masked_array(np.random.default_rng(0).standard_normal((40, 3)), mask=False)
    X[30, 0] = np.ma.masked
    with pytest.raises(InvalidInputError, match="masked array"):
        fit(X)


def test_masked_entries_are_missing_where_values_may_be():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((300, 3)) + 6 * rng.integers(0, 2, (300, 1))
    masked = np.ma.masked_array(data, mask=rng.random((300, 3)) < 0.1)
    gone = masked.filled(np.nan)
    masked.data[masked.mask] = 1e6
    expected = lt.GaussianMixture(2, random_state=0).fit(gone).means_
    for given in (masked, [masked[:100], masked[100:]]):
        found = lt.GaussianMixture(2, random_state=0).fit(given).means_
        assert np.array_equal(found, expected)


WITH_TARGETS = {
    "regressions": lambda X, y: lt.MixtureOfRegressions(2, random_state=0).fit(X, y),
    "network": lambda X, y: lt.TwoLayerNetwork(2, random_state=0).fit(X, y),
}


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_what_regressions_cannot_use(name):
    y = RNG.standard_normal(60)
    for X in (np.full_like(DATA, 0.1), 0 * DATA):
        with pytest.raises(InvalidInputError, match="no feature of X varies"):
            WITH_TARGETS[name](X, y)
    for scale, flow in ((1e200, "overflows"), (1e-200, "underflows")):
        for x, z, given in ((scale, 1.0, "X"), (1.0, scale, "y")):
            with pytest.raises(InvalidInputError, match=f"moment of {given} {flow}"):
                WITH_TARGETS[name](x * DATA, z * y)


def test_rows_of_unequal_length():
    models = [lt.PCA(1), lt.CategoricalHMM(2), lt.PearsonMixture(), lt.MixedMembershipBlockModel(2)]
    for model in (*models, lt.CPPLS(1), lt.CPClassifier()):
        with pytest.raises(InvalidInputError, match="inhomogeneous"):
            model.fit([[1, 2], [3]], *([[0, 1]] if "CP" in type(model).__name__ else []))


def test_directions_that_chance_chose_are_not_called_stable():
    for X in (DATA[:2], np.ones((40, 4)), np.zeros((40, 4))):
        assert lt.PCA(1 if len(X) < 40 else 2).fit(X).certificate_.verdict == "unstable"
    assert lt.PCA(4).fit(DATA).certificate_.verdict == "stable"


@pytest.mark.parametrize("name", ["spherical", "diagonal", "product"])
def test_more_components_than_distinct_samples(name):
    # Two points have one direction; a second one is rounding, and no noise stood beside it.
    with pytest.raises((InvalidInputError, NotIdentifiableError), match=r"distinct|dependent"):
        MODELS[name](3, np.repeat(DATA[:2], 300, axis=0)[:, [0, 1, 2, 3, 0, 1, 2, 3, 0]])


@pytest.mark.parametrize("n_features", [1, 2, 4, 8])
def test_views_of_too_few_features(n_features):
    with pytest.raises(NotIdentifiableError, match="n_features >= 3 x n_components"):
        lt.SphericalGaussianMixture(3, method="views").fit(np.tile(DATA, 2)[:, :n_features])


@pytest.mark.parametrize(
    ("model", "X"),
    [
        (lt.CPClassifier(1), RNG.standard_normal((20, 2, 2))),
        (lt.TwoLayerClassifier(2), RNG.standard_normal((20, 4))),
    ],
)
def test_labels_that_are_none(model, X):
    labels = np.arange(20) % 2
    for y, message in (
        (np.ma.masked_equal(labels, 1), "masked entries"),
        (np.where(labels, np.nan, 0.0), "NaN"),
        (labels + 0.5 * np.arange(20), "Unknown label type"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            model.fit(X, y)


def test_masked_adjacency():
    adjacency = np.ma.masked_array(np.ones((6, 6)), mask=np.eye(6, dtype=bool))
    with pytest.raises(InvalidInputError, match="masked entries"):
        lt.MixedMembershipBlockModel(2).fit(adjacency)
