"""What fit, partial_fit, merge and spawn promise for every model, whatever it is."""

import tracemalloc
import warnings

import numpy as np
import pytest
import sklearn.base
import sklearn.exceptions

import latensor as lt
from latensor.exceptions import ConvergenceWarning, InvalidInputError

ROWS = lt.datasets.make_spherical_mixture(300, 4, 2, separation=8, random_state=0).samples
VIEWS = lt.datasets.make_multi_view(300, (4, 4, 4), 2, random_state=4).views
SOURCES = lt.datasets.make_ica(600, 4, 2, noise=0.1, random_state=0).samples
LINE = lt.datasets.make_pearson(300, separation=5, random_state=1).samples

# Estimator and data by name; data are the arguments of fit.
CASES = {
    "pca": (lt.PCA, {"n_components": 2}, (ROWS,)),
    "cca": (lt.CCA, {"n_components": 2}, (ROWS[:, :2], ROWS[:, 2:])),
    "spherical": (lt.SphericalGaussianMixture, {"n_components": 2}, (ROWS,)),
    "diagonal": (lt.DiagonalGaussianMixture, {"n_components": 2}, (ROWS,)),
    "full": (lt.GaussianMixture, {"n_components": 2}, (ROWS,)),
    "product": (lt.ProductMixture, {"n_components": 2}, (ROWS,)),
    "pearson": (lt.PearsonMixture, {}, (LINE,)),
    "views": (lt.MultiViewMixture, {"n_components": 2}, (VIEWS,)),
    "ica": (lt.ICA, {"n_components": 2}, (SOURCES,)),
}
every = pytest.mark.parametrize("name", CASES)


def make(name, **settings):
    kind, given, _ = CASES[name]
    return kind(**{**given, "random_state": 0, **settings})


def each(function, data):
    """A function of every array of the data."""
    return [
        [function(view) for view in item] if isinstance(item, list) else function(item)
        for item in data
    ]


def values(model):
    """Fitted arrays by name."""
    found = {}
    for name in sorted(type(model)._fitted_names):
        value = getattr(model, name, None)
        arrays = value if isinstance(value, list) else [value]
        if all(isinstance(array, np.ndarray) for array in arrays):
            found[name] = [array.copy() for array in arrays]
    return found


def equal(one, other, tol=0.0):
    assert one.keys() == other.keys()
    assert one
    for name, arrays in one.items():
        for a, b in zip(arrays, other[name], strict=True):
            assert np.allclose(a, b, rtol=tol, atol=tol), name


@every
def test_a_fit_that_fails_changes_nothing(name):
    data = CASES[name][2]
    model = make(name).fit(*data)
    before, width = values(model), model.n_features_in_
    wide = each(lambda x: np.full((10, x.shape[1] + 1), np.inf), data)
    with pytest.raises(InvalidInputError):
        model.fit(*wide)
    equal(before, values(model))
    assert model.n_features_in_ == width
    model.partial_fit(*data)
    fresh = make(name)
    with pytest.raises(InvalidInputError):
        fresh.partial_fit(*wide)
    assert not hasattr(fresh, "n_features_in_")


@every
def test_an_interrupted_fit_changes_nothing(name):
    data = CASES[name][2]
    model = make(name).fit(*data)
    before = values(model)

    class Interrupted:
        """A source that the user interrupts on its second pass."""

        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes > 2:
                raise KeyboardInterrupt
            yield data[0] if len(data) == 1 else tuple(data)

    with pytest.raises(KeyboardInterrupt):
        model.fit(Interrupted())
    equal(before, values(model))


@every
def test_too_few_samples_are_no_attribute_yet(name):
    data = CASES[name][2]
    model = make(name).partial_fit(*each(lambda x: x[:1], data))
    for attribute in type(model)._fitted_names:
        hasattr(model, attribute)
    model.partial_fit(*each(lambda x: x[1:], data))
    # The first row of a principal component analysis is its centre: equal up to rounding.
    equal(values(make(name).partial_fit(*data)), values(model), 1e-10)


@every
def test_workers_of_workers_of_workers(name):
    data = CASES[name][2]
    half = each(lambda x: x[::2], data)
    model = make(name).fit(*data)
    alike, workers = make(name).fit(*data), [model]
    for _ in range(4):
        workers.append(workers[-1].spawn().partial_fit(*half))
        alike.partial_fit(*half)
    for worker in workers[1:]:
        model.merge(worker)
    equal(values(alike), values(model), 1e-6)


@pytest.mark.parametrize("name", [*CASES, "points"])
def test_the_layout_of_samples_changes_no_bit(name):
    kind, given, data = CASES.get(name, (lt.GaussianHMM, {"n_components": 2}, (ROWS,)))
    one, other = (
        kind(**given).set_params(random_state=0).fit(*each(layout, data))
        for layout in (np.ascontiguousarray, np.asfortranarray)
    )
    for attribute, arrays in values(one).items():
        for a, b in zip(arrays, values(other)[attribute], strict=True):
            assert np.array_equal(a, b), attribute


@every
def test_a_fit_tells_its_callback_and_is_ended_by_it(name):
    told = []
    model = make(name).fit(*CASES[name][2], callback=lambda step, number: told.append(step))
    assert told

    def stop(step, number):
        raise KeyboardInterrupt

    before = values(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*CASES[name][2], callback=stop)
    equal(before, values(model))
    with pytest.raises(KeyboardInterrupt):
        (fresh := make(name)).fit(*CASES[name][2], callback=stop)
    assert not hasattr(fresh, "n_features_in_")


@pytest.mark.parametrize("name", ["spherical", "full", "views"])
def test_warnings_point_at_the_caller(name):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make(name, max_iter=1, tol=1e-12).fit(*CASES[name][2])
    assert len(found) == 1
    assert issubclass(found[0].category, ConvergenceWarning)
    assert issubclass(found[0].category, sklearn.exceptions.ConvergenceWarning)
    assert found[0].filename == __file__


def test_a_stream_holds_no_copy_of_a_long_batch():
    rows = np.random.default_rng(0).standard_normal((400_000, 10))
    rows[::2] += 8
    for model in (lt.PCA(2), lt.SphericalGaussianMixture(2, random_state=0, refine=0)):
        sklearn.base.clone(model).partial_fit(
            rows[:3000]
        )  # what is compiled or imported at first is no copy
        tracemalloc.start()
        model.partial_fit(rows)
        first = tracemalloc.get_traced_memory()[1]
        model.partial_fit(rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert max(first, peak) < rows.nbytes / 2


def test_single_rows_stream_in_linear_time():
    model = lt.SphericalGaussianMixture(2, random_state=0)
    for row in ROWS:
        model.partial_fit(row[None])
    assert len(model._stream.held) <= 1 + np.log2(len(ROWS))
    equal(values(make("spherical").fit(ROWS)), values(model))


# Fitted attributes that scale with the data, and their power.
POWERS = {"means_": 1, "covariances_": 2, "variances_": 2, "explained_variance_": 2}
POWERS |= {"weights_": 0, "explained_variance_ratio_": 0, "correlations_": 0, "mixing_": 1}


def in_batches(data):
    """The same data as a source: views and pairs stay together."""
    parts = [slice(0, 40), slice(40, None)]
    if len(data) > 1:
        return [[tuple(x[part] for x in data) for part in parts]]
    if isinstance(data[0], list):
        return [[[view[part] for view in data[0]] for part in parts]]
    return [[data[0][part] for part in parts]]


@every
@pytest.mark.parametrize("as_given", [list, in_batches])
@pytest.mark.parametrize("exponent", [-300, -200, -160, -100, -50, 50, 100, 155, 300])
def test_scale_is_a_unit_or_refused(name, exponent, as_given):
    data, unit = CASES[name][2], 10.0**exponent
    settings = {"reg_covar": 0.0} if "reg_covar" in make(name).get_params() else {}
    try:
        found = values(make(name, **settings).fit(*as_given(each(lambda x: x * unit, data))))
    except InvalidInputError as error:
        assert "flows" in str(error)  # noqa: PT017
        return
    expected = values(make(name, **settings).fit(*data))
    for attribute in POWERS.keys() & expected.keys():
        for a, b in zip(expected[attribute], found[attribute], strict=True):
            for _ in range(POWERS[attribute]):
                b = b / unit
            assert np.allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(a).max()), attribute


@every
@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_weights_of_any_size_count_samples(name, weight):
    """Beyond ten billion samples only rounding could tell how many there are."""
    data = CASES[name][2]
    count = len(data[0][0]) if isinstance(data[0], list) else len(data[0])
    try:
        found = values(make(name).fit(*data, sample_weight=np.full(count, weight)))
    except (InvalidInputError, lt.NotIdentifiableError) as error:
        assert weight < 1, error  # noqa: PT017
        assert "weight" in str(error)  # noqa: PT017
        return
    many = values(make(name).fit(*data, sample_weight=np.full(count, 1e40)))
    found.pop("singular_values_", None)
    for attribute in found:
        for a, b in zip(many[attribute], found[attribute], strict=True):
            assert np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True), attribute


@every
@pytest.mark.parametrize("weight", [1e-320, 1e-300, 1e300])
def test_weights_beyond_floating_point_are_refused(name, weight):
    data = CASES[name][2]
    count = len(data[0][0]) if isinstance(data[0], list) else len(data[0])
    with pytest.raises(InvalidInputError, match=r"sample_weight\[0\] is"):
        make(name).fit(*data, sample_weight=np.full(count, weight))
