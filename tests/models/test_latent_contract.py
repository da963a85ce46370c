"""What every model promises: sources, weights, streams, files, intervals, peers."""

import numpy as np
import pytest
import scipy.sparse

import latensor as lt
from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.exceptions import InvalidInputError
from latensor.sources import MatrixSource

MIXED = lt.datasets.make_spherical_mixture(900, 8, 3, separation=8, random_state=0).samples
VIEWS = lt.datasets.make_multi_view(900, (5, 6, 7), 3, random_state=4).views
SOURCES = lt.datasets.make_ica(2000, 6, 3, noise=0.1, random_state=0).samples
LINE = lt.datasets.make_pearson(900, separation=5, random_state=1).samples
SYMBOLS = make_hmm(4000, 6, 3, n_sequences=40, stay=0.7, concentration=0.3, random_state=0)
POINTS = make_gaussian_hmm(
    3000, 1, 3, n_sequences=30, stay=0.7, means=[[0], [5], [10]], random_state=1
)


# Few rows of networks show no moment above its noise.
pytestmark = pytest.mark.filterwarnings("ignore:neither the second nor the third")
BINARY = lt.datasets.make_noisy_or(900, 20, 3, prior=0.15, density=0.4, random_state=8).samples


LINES = lt.datasets.make_regressions(900, 4, 3, random_state=2)
UNITS = lt.datasets.make_network(900, 3, 2, noise=0.02, random_state=3)
CLASSES = lt.datasets.make_network(900, 3, 1, target="binary", random_state=3)
SITES = lt.datasets.make_tree(900, 5, model="general", n_states=3, random_state=1).X
SENSORS = lt.datasets.make_tree(900, 5, model="gaussian", random_state=1).X
GRAPH = lt.datasets.make_block_model(90, 2, degree=20, random_state=0).adjacency


class Again:
    """Batches that can be gone over any number of times, and how many rows were."""

    def __init__(self, batches):
        self.batches, self.rows = batches, 0

    def __iter__(self):
        for batch in self.batches:
            first = batch
            while isinstance(first, list | tuple):
                first = first[0]
            self.rows += first.shape[0]
            yield batch


def rows(X, weights=None):
    parts = [slice(0, 300), slice(300, 310), slice(310, None)]
    if weights is None:
        return [X[part] for part in parts]
    return [(X[part], weights[part]) for part in parts]


def views(X, weights=None):
    parts = [slice(0, 300), slice(300, 310), slice(310, None)]
    if weights is None:
        return [[view[part] for view in X] for part in parts]
    return [([view[part] for view in X], weights[part]) for part in parts]


def targeted(data, weights=None):
    parts = [slice(0, 300), slice(300, 310), slice(310, None)]
    given = (*data, weights) if weights is not None else data
    return [tuple(values[part] for values in given) for part in parts]


def sequences(data, weights=None):
    cut, edge = 12, int(data.lengths[:12].sum())
    batches = [(data.X[:edge], data.lengths[:cut]), (data.X[edge:], data.lengths[cut:])]
    if weights is None:
        return batches
    return [(*batches[0], weights[:cut]), (*batches[1], weights[cut:])]


def repeated(data, weights):
    """Every sequence as often as its weight says."""
    ends = np.cumsum(data.lengths)
    parts = [
        data.X[end - size : end]
        for end, size, weight in zip(ends, data.lengths, weights, strict=True)
        for _ in range(int(weight))
    ]
    return np.concatenate(parts), np.repeat(data.lengths, weights)


class Case:
    def __init__(self, make, arguments, batches, names, short):
        self.make, self.arguments, self.batches = make, arguments, batches
        self.names, self.short = names, short
        self.fits = {}

    def whole(self, **settings):
        """The fit to all of the arrays at once; nobody may change it."""
        key = tuple(settings.items())
        if key not in self.fits:
            self.fits[key] = self.make(**settings).fit(*self.arguments)
        return self.fits[key]

    def values(self, model):
        found = []
        for name in self.names:
            value = getattr(model, name)
            found += value if isinstance(value, list) else [value]
        return found


def case(model, data, batches, names, short=100, **settings):
    arguments = (data.X, data.lengths) if hasattr(data, "lengths") else (data,)
    if batches is targeted:
        arguments = data

    def make(limit=None, **more):
        kind = model if limit is None else type(model.__name__, (model,), {"_row_limit": limit})
        if model is lt.ProductMixture:
            more.pop("refine", None)
        return kind(random_state=0, **{**settings, **more})

    return Case(make, arguments, lambda weights=None: batches(data, weights), names, short)


GAUSSIAN = ("weights_", "means_", "covariances_")
CHAIN = ("startprob_", "transmat_")
CASES = {
    "spherical": case(lt.SphericalGaussianMixture, MIXED, rows, GAUSSIAN, n_components=3),
    "diagonal": case(lt.DiagonalGaussianMixture, MIXED, rows, GAUSSIAN, n_components=3),
    "product": case(lt.ProductMixture, MIXED, rows, GAUSSIAN, n_components=2),
    "views": case(
        lt.MultiViewMixture, VIEWS, views, ("weights_", "means_", "variances_"), n_components=3
    ),
    "ica": case(lt.ICA, SOURCES, rows, ("components_", "mixing_"), n_components=3),
    "noisy-or": case(
        lt.NoisyOrNetwork, BINARY, rows, ("prior_", "components_", "leak_"), n_components=3
    ),
    "regressions": case(
        lt.MixtureOfRegressions,
        (LINES.X, LINES.y),
        targeted,
        ("weights_", "coef_", "intercept_"),
        n_components=3,
    ),
    "network": case(
        lt.TwoLayerNetwork,
        (UNITS.X, UNITS.y),
        targeted,
        ("components_", "coefs_", "intercepts_"),
        n_components=2,
    ),
    "classes": case(
        lt.TwoLayerClassifier,
        (CLASSES.X, CLASSES.y),
        targeted,
        ("components_", "coefs_", "intercepts_"),
        n_components=1,
        classes=(0, 1),
        alpha=0.1,
    ),
    "tree": case(
        lt.LatentTree, SITES, rows, ("startprob_", "edgeprob_", "leafprob_"), support=None
    ),
    "sensors": case(
        lt.LatentTree, SENSORS, rows, ("correlation_", "mean_", "deviation_"), support=None
    ),
    "pearson": case(lt.PearsonMixture, LINE, rows, GAUSSIAN),
    "symbols": case(
        lt.CategoricalHMM,
        SYMBOLS,
        sequences,
        (*CHAIN, "emissionprob_"),
        n_components=3,
        views="lag",
    ),
    "points": case(
        lt.GaussianHMM,
        POINTS,
        sequences,
        (*CHAIN, "means_", "covariances_"),
        n_components=3,
        views="lag",
    ),
}
every = pytest.mark.parametrize("name", CASES)
# Models on the one fit.
FOLDED = tuple(CASES)
TARGETED = ("regressions", "network", "classes")
# Models whose number of components is not chosen.
GIVEN = ("pearson", "network", "classes")
TREES = ("tree", "sensors")
# Models whose moments are weighed by their noise, which groups of rows by number tell: they depend
# on how rows are numbered, and the optimum of the loss does not.
NUMBERED = ("network", "classes")


def gap(case, one, other):
    return max(
        np.abs(a - b).max() for a, b in zip(case.values(one), case.values(other), strict=True)
    )


@every
@pytest.mark.parametrize("wrap", [list, Again])
def test_a_short_source_is_its_rows(name, wrap):
    case = CASES[name]
    found = case.make(refine=2).fit(wrap(case.batches()))
    assert gap(case, case.whole(refine=2), found) == 0


@every
def test_a_long_source_is_gone_over_twice(name):
    case = CASES[name]
    n_rows = len(case.arguments[0][0]) if name == "views" else len(case.arguments[0])
    whole = case.whole(refine=0)
    source = Again(case.batches())
    found = case.make(case.short, refine=0).fit(source)
    assert gap(case, whole, found) < 1e-9
    passes = {"pearson": 1, "sensors": 1, "points": 3, "symbols": 3, "regressions": 4}.get(name, 2)
    passes = 5 if name in NUMBERED else passes
    # Besides, one look at the first batch and, for a centre, at the first block.
    first = Again(case.batches()[:1])
    list(first)
    sizes = {"ica": 5000, "symbols": 8192, "points": 8192}
    block = min(n_rows, sizes.get(name, 2048)) if name in FOLDED else 0
    assert source.rows <= passes * n_rows + first.rows + block
    if name == "symbols":
        known = Again(case.batches())
        case.make(case.short, refine=0, n_features=6).fit(known)
        assert known.rows <= 2 * n_rows + first.rows


@every
def test_a_long_source_is_refined_on_a_sample(name):
    case = CASES[name]
    limit = 600 if name not in ("symbols", "points", "ica") else 2500
    if name == "ica":
        limit = 1500
    found = case.make(limit).fit(case.batches())
    whole = case.whole()
    assert found.certificate_.verdict == whole.certificate_.verdict
    assert gap(case, whole, found) < 0.6
    if hasattr(found, "n_iter_"):
        assert found.n_iter_ > 0


@every
@pytest.mark.parametrize("long", [False, True])
def test_weights_of_a_source_are_repetitions(name, long):
    case = CASES[name]
    rng = np.random.default_rng(3)
    limit = case.short if long else None
    if name in ("symbols", "points"):
        data = SYMBOLS if name == "symbols" else POINTS
        weights = rng.integers(1, 3, len(data.lengths))
        arguments = repeated(data, weights)
    else:
        size = len(VIEWS[0]) if name == "views" else len(case.arguments[0])
        weights = rng.integers(0, 3, size)
        data = case.arguments[0]
        arguments = (
            ([np.repeat(view, weights, axis=0) for view in data],)
            if name == "views"
            else tuple(np.repeat(values, weights, axis=0) for values in case.arguments)
        )
    refine = "auto" if name in NUMBERED else 0
    limit = None if name in NUMBERED else limit
    found = case.make(limit, refine=refine).fit(case.batches(weights.astype(float)))
    expected = case.make(refine=refine).fit(*arguments)
    assert gap(case, expected, found) < (1e-2 if name in NUMBERED else 1e-8)


@every
def test_batches_of_weight_zero_are_not_there(name):
    case = CASES[name]
    batches = case.batches()
    chains = name in ("symbols", "points")

    def weighted(batch, weight):
        if chains:
            rows, lengths = batch[:2]
            return rows, lengths, np.full(len(lengths), weight)
        if name in TARGETED:
            return *batch, np.full(len(batch[0]), weight)
        return batch, np.full(len(batch[0] if name == "views" else batch), weight)

    nothing = weighted(batches[1], 0.0)
    given = [nothing, *(weighted(batch, 1.0) for batch in batches), nothing]
    refine = "auto" if name in NUMBERED else 0
    found = case.make(refine=refine).fit(Again(given))
    least = 1e-2 if name in NUMBERED else 1e-8
    assert gap(case, case.whole(refine=refine), found) < least


@every
def test_sources_that_cannot_be_used_are_told(name):
    case = CASES[name]
    with pytest.raises(InvalidInputError, match="read only once"):
        case.make().fit(batch for batch in case.batches())
    with pytest.raises(InvalidInputError, match="cannot be matched to a source"):
        case.make().fit(case.batches(), sample_weight=[1.0])
    with pytest.raises(InvalidInputError, match="no batch"):
        case.make().fit(Again([]))

    class Shrinking(Again):
        def __iter__(self):
            yield from self.batches
            self.batches = self.batches[:-1]

    if name not in ("pearson", "sensors"):
        with pytest.raises(InvalidInputError, match="on the first pass"):
            case.make(case.short, refine=0).fit(Shrinking(case.batches()))


@pytest.mark.parametrize("name", [*TREES, *TARGETED])
def test_streams_are_merged_and_go_on_from_files(name, tmp_path):
    case = CASES[name]
    first, *rest = (b if name in TARGETED else (b,) for b in case.batches())
    whole = case.whole(refine=2)
    one = case.make(refine=2).partial_fit(*first)
    other = case.make(refine=2).partial_fit(*rest[0]).partial_fit(*rest[1])
    # Few rows are all held: a stream of them is their fit.
    assert gap(case, whole, one.merge(other)) < 1e-6
    stream = case.make(refine=2).fit(*first)
    worker = stream.spawn().partial_fit(*rest[0]).partial_fit(*rest[1])
    before = case.values(stream)
    stream.merge(worker)
    assert any((a != b).any() for a, b in zip(before, case.values(stream), strict=True))
    again = lt.load(stream.save(tmp_path / "model.npz"))
    assert gap(case, stream, again) == 0


def test_a_graph_is_one_sample(tmp_path):
    make = lambda: lt.MixedMembershipBlockModel(2, random_state=0)  # noqa: E731
    model = make().fit(GRAPH)
    blocks = [GRAPH[:40], GRAPH[40:41], GRAPH[41:]]
    assert np.array_equal(make().fit(blocks).membership_, model.membership_)
    loaded = lt.load(model.save(tmp_path / "model.npz"))
    assert np.array_equal(loaded.predict_proba(GRAPH), model.predict_proba(GRAPH))
    whole = "a network is one sample, whose nodes all depend on each other: call fit on the whole"
    for name, call in {
        "partial_fit": lambda: model.partial_fit(GRAPH),
        "merge": lambda: model.merge(make().fit(GRAPH)),
        "spawn": lambda: model.spawn(),
    }.items():
        with pytest.raises(InvalidInputError, match=f"{name}: {whole}"):
            call()
    with pytest.raises(InvalidInputError, match="no intervals"):
        model.intervals(GRAPH)
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(GRAPH, sample_weight=np.ones(90))


def test_batches_of_other_widths_empty_ones_and_documents():
    model = lt.SphericalGaussianMixture(2, random_state=0)
    with pytest.raises(InvalidInputError, match="expecting 8 features"):
        model.fit([MIXED[:100], MIXED[100:, :5]])
    found = model.fit([MIXED[:0], MIXED, MIXED[:0]]).means_
    assert np.array_equal(found, model.fit(MIXED).means_)
    counts = np.random.default_rng(0).poisson(3.0, (400, 6)).astype(float)
    counts[:200, 0] += 9
    documents = MatrixSource(scipy.sparse.csr_array(counts), batch_size=100)
    found = model.fit(documents).means_
    assert np.abs(found - model.fit(counts.astype(np.float32)).means_).max() < 1e-6


def test_numbers_on_a_line_come_in_batches_of_one_axis():
    line = LINE[:, 0]
    whole = lt.PearsonMixture(random_state=0).fit(line)
    for wrap in (list, Again):
        found = lt.PearsonMixture(random_state=0).fit(wrap([line[:500], line[500:]]))
        assert np.array_equal(found.means_, whole.means_)


@every
def test_the_number_of_components_is_found_in_a_source(name):
    case = CASES[name]
    if name in (*GIVEN, *TREES):
        return
    # One sequence in memory is not enough to tell three states from their half of the others.
    limit = 2500 if name == "symbols" else case.short
    found = case.make(limit, n_components="auto", refine=0 if name == "ica" else 1)
    assert found.fit(Again(case.batches())).n_components_ == 3


WITH_INTERVALS = {
    "spherical": {"weights": (3,), "means": (3, 8), "covariances": (3,)},
    "diagonal": {"weights": (3,), "means": (3, 8), "covariances": (3, 8)},
    "product": {"weights": (2,), "means": (2, 8), "covariances": (2, 8)},
    "views": {"weights": (3,), "means": [(3, 5), (3, 6), (3, 7)], "variances": [(3, 5)]},
    "ica": {"mixing": (6, 3), "components": (3, 6), "kurtosis": (3,)},
    "noisy-or": {"prior": (3,), "components": (3, 20), "leak": (20,)},
    "regressions": {"weights": (3,), "coef": (3, 4), "intercept": (3,), "variances": (3,)},
    "network": {"components": (2, 3)},
    "classes": {"components": (1, 3)},
    "tree": {"startprob": (3,), "edgeprob": (3, 3, 3), "leafprob": (5, 3, 3)},
    "sensors": {"correlation": (8,), "mean": (5,), "deviation": (5,)},
    "pearson": {"weights": (2,), "means": (2, 1), "covariances": (2,)},
    "symbols": {"startprob": (3,), "transmat": (3, 3), "emissionprob": (3, 6)},
    "points": {"startprob": (3,), "transmat": (3, 3), "means": (3, 1), "covariances": (3, 1)},
}


@every
def test_intervals_have_the_shape_of_the_parameters_and_hold_them(name):
    case = CASES[name]
    model = case.whole()
    found = model.intervals(*case.arguments, n_resamples=20, n_groups=20)
    again = model.intervals(*case.arguments, n_resamples=20, n_groups=20)
    assert set(found) == set(WITH_INTERVALS[name])
    inside = []
    for parameter, shape in WITH_INTERVALS[name].items():
        ends = [
            (each.low, each.high) if isinstance(each.low, list) else ([each.low], [each.high])
            for each in (found[parameter], again[parameter])
        ]
        fitted = getattr(model, f"{parameter}_")
        fitted = fitted if isinstance(fitted, list) else [fitted]
        shapes = shape if isinstance(shape, list) else [shape]
        for low, high, value, expected in zip(*ends[0], fitted, shapes, strict=False):
            assert low.shape == high.shape == value.shape == expected
            assert (low <= high).all()
            inside.append(((low <= value) & (value <= high)).mean())
        assert all((a == b).all() for a, b in zip(ends[0][0], ends[1][0], strict=True))
    assert np.mean(inside) > 0.9


@every
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"level": 1.0}, "level=1.0"),
        ({"n_resamples": 0}, "n_resamples"),
        ({"n_groups": -1}, "n_groups"),
        ({"n_groups": 100_000}, "n_groups=100000"),
    ],
)
def test_intervals_refuse_what_makes_no_sense(name, settings, message):
    case = CASES[name]
    model = case.whole(refine=2)
    with pytest.raises(InvalidInputError, match=message):
        model.intervals(*case.arguments, **settings)


def test_what_moments_do_not_determine_has_no_intervals():
    chain = lt.CategoricalHMM(4, random_state=0).fit(SYMBOLS.X % 2, SYMBOLS.lengths)
    # Moments of neighbours show two states; the likelihood of whole sequences says a little more.
    found = chain.intervals(SYMBOLS.X % 2, SYMBOLS.lengths, n_groups=20)["transmat"]
    assert (found.high - found.low).max() > 0.3


def test_long_sequences_are_cut_into_blocks():
    model = lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X)
    found = model.intervals(SYMBOLS.X, n_resamples=10)
    # One sequence says nothing about how sequences begin.
    assert set(found) == {"transmat", "emissionprob"}
    with pytest.raises(InvalidInputError, match=r"blocks of 20 rows.*lower n_groups to 80"):
        model.intervals(SYMBOLS.X, n_groups=200)


@every
def test_the_number_of_components_is_found_or_given(name):
    case = CASES[name]
    if name in TREES:
        return
    if name in GIVEN:
        with pytest.raises(InvalidInputError, match="n_components='auto'"):
            case.make(n_components="auto").fit(*case.arguments)
        return
    found = case.make(n_components="auto", refine=0 if name == "ica" else 1)
    assert found.fit(*case.arguments).n_components_ == 3


def test_unmixing_goes_to_scikit_learn_and_back():
    from sklearn.decomposition import FastICA

    model = lt.ICA(3, random_state=0).fit(SOURCES)
    peer = model.to_sklearn()
    assert np.abs(peer.transform(SOURCES) - model.transform(SOURCES)).max() < 1e-12
    sources = model.transform(SOURCES)
    back = peer.inverse_transform(sources)
    assert np.abs(back - model.inverse_transform(sources)).max() < 1e-12
    again = lt.ICA.from_sklearn(peer, noise=None)
    for name in ("components_", "mixing_", "mean_"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
    fast = FastICA(3, random_state=0).fit(SOURCES)
    ours = lt.ICA.from_sklearn(fast)
    assert (np.diff(np.linalg.norm(ours.mixing_, axis=0)) <= 0).all()
    unmixed = ours.transform(SOURCES)
    assert (
        np.abs(
            ours.inverse_transform(unmixed) - fast.inverse_transform(fast.transform(SOURCES))
        ).max()
        < 1e-10
    )
    for wrong in (FastICA(2), 7):
        with pytest.raises(InvalidInputError, match=r"fitted FastICA.*without components_"):
            lt.ICA.from_sklearn(wrong)


def test_the_criteria_of_views_are_those_of_a_diagonal_mixture():
    from sklearn.mixture import GaussianMixture

    model = lt.MultiViewMixture(3, random_state=0).fit(VIEWS)
    peer = GaussianMixture(3, covariance_type="diag")
    peer.weights_, peer.means_ = model.weights_, np.hstack(model.means_)
    peer.covariances_ = np.hstack(model.variances_)
    peer.precisions_cholesky_ = 1 / np.sqrt(peer.covariances_)
    together = np.hstack(VIEWS)
    assert model.aic(VIEWS) == pytest.approx(peer.aic(together), rel=1e-10)
    assert model.bic(VIEWS) == pytest.approx(peer.bic(together), rel=1e-10)
    symbols = [np.argmax(view, axis=1) for view in VIEWS]
    coded = lt.MultiViewMixture(2, random_state=0).fit(symbols)
    free = 1 + 2 * (4 + 5 + 6)
    total = coded.score_samples(symbols).sum()
    assert coded.aic(symbols) == pytest.approx(-2 * total + 2 * free, rel=1e-12)
    assert coded.bic(symbols) == pytest.approx(-2 * total + np.log(900) * free, rel=1e-12)
