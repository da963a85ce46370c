"""Figures of fitted models: what they show is what was fitted, at any number of components."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import Ellipse
from sklearn.mixture import GaussianMixture

import latensor as lt
from latensor import plots
from latensor.exceptions import InvalidInputError

from .layout import no_global_state, overlapping


def mixture(count, n_features, n_samples=600):
    """A mixture without a fit, by its parameters, and samples of it."""
    rng = np.random.default_rng(count)
    peer = GaussianMixture(count, covariance_type="spherical")
    peer.weights_ = rng.dirichlet(np.full(count, 5.0))
    peer.means_ = 6 * rng.standard_normal((count, n_features))
    peer.covariances_ = rng.uniform(0.5, 2.0, count)
    peer.precisions_cholesky_ = 1 / np.sqrt(peer.covariances_)
    peer.lower_bound_, peer.n_iter_, peer.converged_ = 0.0, 1, True
    model = lt.SphericalGaussianMixture.from_sklearn(peer, random_state=0)
    return model, model.sample(n_samples)[0]


@pytest.mark.parametrize("count, n_features", [(1, 3), (2, 2), (2, 5), (3, 5), (50, 60)])
def test_clusters_have_an_ellipse_and_a_bar_for_every_component(count, n_features):
    model, X = mixture(count, n_features)
    before = X.copy()
    figure = plots.clusters(model, X)
    plane, bars = figure.axes
    ellipses = [patch for patch in plane.patches if isinstance(patch, Ellipse)]
    assert len(ellipses) == len(plane.texts) == count
    assert [text.get_text() for text in plane.texts] == [str(j) for j in range(count)]
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], model.weights_)
    np.testing.assert_array_equal(X, before)
    assert not overlapping(figure)
    assert no_global_state()


def test_two_features_are_drawn_as_they_are_with_ellipses_of_two_deviations():
    model, X = mixture(3, 2)
    figure = plots.clusters(model, X, names=["length", "width"])
    plane = figure.axes[0]
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("length", "width")
    np.testing.assert_allclose(plane.collections[0].get_offsets(), X)
    for ellipse, mean, variance in zip(
        plane.patches, model.means_, model.covariances_, strict=True
    ):
        np.testing.assert_allclose(ellipse.center, mean)
        np.testing.assert_allclose([ellipse.width, ellipse.height], 4 * np.sqrt(variance))


def test_the_plane_is_that_in_which_means_differ():
    X = np.random.default_rng(0).standard_normal((900, 6))
    X[:300, 2] += 20
    X[300:600, 4] += 8
    # A column of large numbers that says nothing must not take an axis.
    X[:, 0] *= 1000
    model = lt.DiagonalGaussianMixture(3, random_state=0).fit(X)
    plane = plots.clusters(model, X, names=list("abcdef")).axes[0]
    assert "+c" in plane.get_xlabel()
    assert "e" in plane.get_ylabel().split("\n")[1]
    assert "a" not in plane.get_xlabel().split("\n")[1]


def test_views_of_numbers_and_symbols_fraction_a_plane():
    sample = lt.datasets.make_multi_view(300, (2, 3, 3), 2, separation=8, random_state=0)
    symbols = np.argmax(sample.views[2], axis=1)
    views = [sample.views[0], sample.views[1], symbols]
    model = lt.MultiViewMixture(2, random_state=0).fit(views)
    figure = plots.clusters(model, views)
    assert len(figure.axes[0].collections[0].get_offsets()) == 300


def test_few_of_many_samples_are_drawn():
    model, X = mixture(2, 3, n_samples=9000)
    figure = plots.clusters(model, X)
    assert len(figure.axes[0].collections[0].get_offsets()) == 4000
    assert "4,000 of 9,000 samples" in figure.axes[0].get_title()


@pytest.mark.parametrize("count", [2, 8, 30])
def test_densities_add_up_to_one(count):
    model, X = mixture(count, 1, n_samples=4000)
    figure = plots.density(model, X[:, 0], name="length")
    (axis,) = figure.axes
    lines = {line.get_label(): line for line in axis.lines}
    total = lines["sum"].get_xydata()
    assert np.trapezoid(total[:, 1], total[:, 0]) == pytest.approx(1, abs=0.02)
    area = sum(bar.get_width() * bar.get_height() for bar in axis.patches)
    assert area == pytest.approx(1)
    assert len(axis.lines) == count + 1
    assert axis.get_xlabel() == "length"
    # One feature of any mixture is drawn the same way.
    assert len(plots.clusters(model, X).axes) == 1


def test_counted_classes_have_a_bar_each():
    values, counts = np.arange(1, 30), np.arange(29) % 7 + 1
    model = lt.PearsonMixture(random_state=0).fit(values, sample_weight=counts)
    (axis,) = plots.density(model, values, sample_weight=counts).axes
    np.testing.assert_allclose([bar.get_height() for bar in axis.patches], counts / counts.sum())


@pytest.fixture(scope="module")
def chains():
    symbols = lt.datasets.make_hmm(500, 6, 2, stay=0.6, random_state=0)
    points = lt.datasets.make_gaussian_hmm(500, 3, 3, n_sequences=5, separation=6, random_state=0)
    line = lt.datasets.make_gaussian_hmm(500, 1, 2, separation=5, random_state=0)
    many = lt.datasets.make_hmm(3000, 60, 40, stay=0.6, random_state=0)
    wide = lt.datasets.make_gaussian_hmm(900, 50, 4, separation=8, random_state=0)
    few = {"refine": 2, "random_state": 0}
    return {
        "symbols": (lt.CategoricalHMM(2, **few).fit(symbols.X), symbols),
        "points": (lt.GaussianHMM(3, **few).fit(points.X, points.lengths), points),
        "line": (lt.GaussianHMM(2, **few).fit(line.X), line),
        "many": (lt.CategoricalHMM(40, **few).fit(many.X), many),
        "wide": (lt.GaussianHMM(4, **few).fit(wide.X), wide),
    }


@pytest.mark.parametrize("kind", ["symbols", "points", "line", "many", "wide"])
def test_states_of_rows_transitions_and_emissions(chains, kind):
    model, sample = chains[kind]
    lengths = sample.lengths if kind == "points" else None
    figure = plots.states(model, sample.X, lengths, n_rows=250)
    rows, path, transitions, emissions = figure.axes[:4]
    decoded = model.predict(sample.X, lengths)[:250]
    (runs,) = (c for c in path.collections if isinstance(c, LineCollection))
    drawn = np.concatenate(
        [np.full(round(b[0] - a[0]), round(a[1])) for a, b in runs.get_segments()]
    )
    np.testing.assert_array_equal(drawn, decoded)
    np.testing.assert_allclose(transitions.images[0].get_array(), model.transmat_)
    assert len(rows.collections[0].get_offsets()) == 250
    if kind == "symbols":
        np.testing.assert_allclose(emissions.images[0].get_array(), model.emissionprob_)
    if kind == "many":
        assert emissions.images[0].get_array().shape == (40, 40)
    # The ends of sequences are marked: 100, 200 of 5 sequences of 100 rows.
    assert len(path.lines) == (2 if kind == "points" else 0)
    assert not overlapping(figure)


def test_symbols_and_features_are_called_by_their_names(chains):
    model, sample = chains["symbols"]
    figure = plots.states(model, sample.X, names=list("uvwxyz"))
    assert [t.get_text() for t in figure.axes[3].get_xticklabels()] == list("uvwxyz")
    model, sample = chains["line"]
    assert plots.states(model, sample.X, names=["depth"]).axes[0].get_ylabel() == "depth"


@pytest.mark.parametrize("count, n_features", [(1, 3), (2, 2), (50, 55)])
def test_every_source_has_a_trace_a_bar_and_a_row(count, n_features):
    mixed = lt.datasets.make_ica(3000, n_features, count, random_state=0)
    model = lt.ICA(count, refine=0, random_state=0).fit(mixed.samples)
    figure = plots.signals(model, mixed.samples, n_rows=200)
    course, bars, mixing = figure.axes[:3]
    assert len(course.lines) == len(bars.patches) == count
    first = course.lines[0].get_ydata()
    expected = model.transform(mixed.samples[:200])[:, 0]
    assert abs(np.corrcoef(first, expected)[0, 1]) == pytest.approx(1)
    shown = mixing.images[0].get_array()
    np.testing.assert_allclose(shown, (model.mixing_ / np.abs(model.mixing_).max(axis=0)).T)
    assert not overlapping(figure)


def test_scores_of_principal_and_canonical_directions():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 2))
    x, y = z @ rng.standard_normal((2, 4)), z @ rng.standard_normal((2, 3))
    x, y = x + 0.1 * rng.standard_normal(x.shape), y + 0.1 * rng.standard_normal(y.shape)
    pca, cca = lt.PCA(3).fit(x), lt.CCA(2).fit(x, y)
    sizes, points = plots.scores(pca, x).axes
    np.testing.assert_allclose(
        [bar.get_height() for bar in sizes.patches], 100 * pca.explained_variance_ratio_
    )
    np.testing.assert_allclose(points.collections[0].get_offsets(), pca.transform(x)[:, :2])
    sizes, points = plots.scores(cca, x, y).axes
    np.testing.assert_allclose([bar.get_height() for bar in sizes.patches], cca.correlations_)
    left, right = cca.transform(x, y)
    offsets = np.column_stack([left[:, 0], right[:, 0]])
    np.testing.assert_allclose(points.collections[0].get_offsets(), offsets)
    assert len(plots.scores(lt.PCA(1).fit(x), x).axes[1].patches) == 40


@pytest.mark.parametrize("draw, message", [
    (lambda m, X: plots.clusters("no", X), "model is a str without weights_"),
    (lambda m, X: plots.clusters(m, X[:, :2]), r"X has shape \(600, 2\): expected \(n, 3\)"),
    (lambda m, X: plots.clusters(m, X, names=["a"]), "names holds 1 names: expected 3"),
    (lambda m, X: plots.density(m, X), "use lt.plots.clusters"),
    (lambda m, X: plots.states(m, X), "fitted hidden Markov model"),
    (lambda m, X: plots.signals(m, X), "fitted lt.ICA"),
    (lambda m, X: plots.scores(m, X), "fitted PCA or CCA"),
    (lambda m, X: plots.scores(lt.CCA(1).fit(X, X[:, :1]), X), "y is missing"),
])  # fmt: skip
def test_anything_else_is_refused(draw, message):
    model, X = mixture(2, 3)
    with pytest.raises(InvalidInputError, match=message):
        draw(model, X)


def test_a_tree_names_its_leaves_and_shows_weak_support():
    data = lt.datasets.make_tree(150, 14, shape="coalescent", random_state=0)
    model = lt.LatentTree(random_state=0, refine=0).fit(data.X)
    figure = plots.tree(model, names=[f"leaf {i}" for i in range(14)])
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {f"leaf {i}" for i in range(14)} <= set(texts)
    weak = [v for v in model.tree_.splits().values() if model.tree_.support[v] < 0.95]
    assert len(texts) - 14 >= len(weak) > 0
    lines = figure.axes[0].collections[0]
    assert isinstance(lines, LineCollection)
    assert len(lines.get_segments()) == len(model.tree_)  # one edge is cut by the root
    star = lt.datasets.make_tree(500, 6, shape="star", random_state=0).X
    assert plots.tree(lt.LatentTree(collapse=0.05, random_state=0).fit(star)).axes
    assert no_global_state()
    with pytest.raises(InvalidInputError, match="LatentTree"):
        plots.tree(object())


@pytest.mark.parametrize("n, k", [(60, 2), (400, 12)])
def test_communities_show_edges_memberships_and_rates(n, k):
    data = lt.datasets.make_block_model(n, k, alpha0=0.1, degree=20, random_state=0)
    model = lt.MixedMembershipBlockModel(k, random_state=0, max_iter=200).fit(data.adjacency)
    figure = plots.communities(model, data.adjacency)
    edges, fractions, rates = figure.axes[:3]
    assert len(edges.collections[0].get_offsets()) == data.adjacency.nnz
    assert len(fractions.collections) == k
    assert len(rates.texts) == (k * k if k <= 10 else 0)
    assert not overlapping(figure)
    assert no_global_state()
    with pytest.raises(InvalidInputError, match="nodes: the model"):
        plots.communities(model, data.adjacency[:10, :10])
    with pytest.raises(InvalidInputError, match="MixedMembershipBlockModel"):
        plots.communities(object(), data.adjacency)
