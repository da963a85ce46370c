"""Every model with its data in partitions, for the tests of every engine."""

import functools
import itertools
import os
import signal

import numpy as np
import scipy.sparse

import latensor as lt

MIXED = lt.datasets.make_spherical_mixture(900, 8, 3, separation=8, random_state=0).samples
VIEWS = lt.datasets.make_multi_view(900, (5, 6, 7), 3, random_state=4).views
SIGNALS = lt.datasets.make_ica(2000, 6, 3, noise=0.1, random_state=0).samples
LINE = lt.datasets.make_pearson(900, separation=5, random_state=1).samples
SYMBOLS = lt.datasets.make_hmm(
    4000, 6, 3, n_sequences=40, stay=0.7, concentration=0.3, random_state=0
)
POINTS = lt.datasets.make_gaussian_hmm(
    3000, 1, 3, n_sequences=30, stay=0.7, means=[[0], [5], [10]], random_state=1
)
TOPICS = scipy.sparse.csr_array(lt.datasets.make_topics(1200, 60, 3, random_state=0).counts)
SINGLE = scipy.sparse.csr_array(lt.datasets.make_single_topic(1200, 60, 3, random_state=0).counts)
BINARY = lt.datasets.make_noisy_or(1500, 8, 2, random_state=0).samples
LINES = lt.datasets.make_regressions(900, 4, 2, random_state=0)
TREE = lt.datasets.make_tree(900, 6, random_state=0).X
TENSORS = np.random.default_rng(0).standard_normal((600, 4, 3))
RESPONSES = TENSORS @ np.arange(3.0) @ np.arange(4.0) + TENSORS[:, 0, 0] ** 2
# Labels of which a few are wrong: of classes that can be separated the ridge alone bounds weights.
TENSOR_LABELS = (TENSORS[:, 0, 0] + TENSORS[:, 1, 1] > np.tile([0, 0, 1, -1], 150)).astype(float)
TENSOR_KINDS = TENSOR_LABELS + (TENSORS[:, 2, 2] > np.tile([0.5, 0], 300))
UNITS = lt.datasets.make_network(900, 3, 2, activation="tanh", random_state=0)
LABELS = (UNITS.y > np.median(UNITS.y)).astype(float)
NETWORK = lt.datasets.make_block_model(900, 3, degree=40, random_state=0).adjacency
DIRECTED = lt.datasets.make_block_model(640, 2, degree=20, directed=True, random_state=1).adjacency
WORDS = [f"word{number:02d}" for number in range(60)]


def edges(size, count):
    return list(itertools.pairwise(np.linspace(0, size, count + 1).astype(int)))


def rows(X):
    return lambda count: [[X[a:b]] for a, b in edges(X.shape[0], count)]


def views(count):
    return [[[view[a:b] for view in VIEWS]] for a, b in edges(len(VIEWS[0]), count)]


def pairs(count):
    return [[(MIXED[a:b, :5], MIXED[a:b, 5:])] for a, b in edges(len(MIXED), count)]


def lines(count):
    return [[(LINES.X[a:b], LINES.y[a:b])] for a, b in edges(len(LINES.X), count)]


def tensors(targets):
    return lambda count: [[(TENSORS[a:b], targets[a:b])] for a, b in edges(len(TENSORS), count)]


def labelled_units(count):
    return [[(UNITS.X[a:b], LABELS[a:b])] for a, b in edges(len(UNITS.X), count)]


def hidden_units(count):
    return [[(UNITS.X[a:b], UNITS.y[a:b])] for a, b in edges(len(UNITS.X), count)]


def sequences(data):
    ends = np.append(0, np.cumsum(data.lengths))
    return lambda count: [
        [(data.X[ends[a] : ends[b]], data.lengths[a:b])] for a, b in edges(len(data.lengths), count)
    ]


CHAIN = {"n_components": 3, "views": "lag", "random_state": 0}
# The model, its partitions for any number of them, all data at once, attributes to compare, and
# how far a fit of partitions may be from that of all data at once.
CASES = {
    "pca": (lt.PCA, {"n_components": 3}, rows(MIXED), (MIXED,), "components_", 1e-8),
    "cca": (lt.CCA, {}, pairs, (MIXED[:, :5], MIXED[:, 5:]), "x_weights_", 1e-8),
    "spherical": (
        lt.SphericalGaussianMixture,
        {"n_components": 3, "random_state": 0},
        rows(MIXED),
        (MIXED,),
        "means_",
        1e-8,
    ),
    "diagonal": (
        lt.DiagonalGaussianMixture,
        {"n_components": 3, "random_state": 0},
        rows(MIXED),
        (MIXED,),
        "covariances_",
        1e-8,
    ),
    "full": (
        lt.GaussianMixture,
        {"n_components": 3, "random_state": 0},
        rows(MIXED),
        (MIXED,),
        "covariances_",
        1e-6,
    ),
    "product": (
        lt.ProductMixture,
        {"n_components": 2, "random_state": 0},
        rows(MIXED),
        (MIXED,),
        "means_",
        1e-8,
    ),
    "pearson": (lt.PearsonMixture, {"random_state": 0}, rows(LINE), (LINE,), "means_", 1e-8),
    "views": (
        lt.MultiViewMixture,
        {"n_components": 3, "random_state": 0},
        views,
        (VIEWS,),
        "weights_",
        1e-8,
    ),
    "ica": (
        lt.ICA,
        {"n_components": 3, "random_state": 0},
        rows(SIGNALS),
        (SIGNALS,),
        "components_",
        1e-8,
    ),
    "causes": (
        lt.NoisyOrNetwork,
        {"n_components": 2, "random_state": 0},
        rows(BINARY),
        (BINARY,),
        "components_",
        1e-6,
    ),
    "regressions": (
        lt.MixtureOfRegressions,
        {"n_components": 2, "random_state": 0},
        lines,
        (LINES.X, LINES.y),
        "coef_",
        1e-8,
    ),
    "tree": (lt.LatentTree, {"random_state": 0}, rows(TREE), (TREE,), "leafprob_", 1e-4),
    "cp regression": (
        lt.CPRegressor,
        {"rank": 1},
        tensors(RESPONSES),
        (TENSORS, RESPONSES),
        "coef_",
        1e-6,
    ),
    "tucker regression": (
        lt.TuckerRegressor,
        {"ranks": (1, 1)},
        tensors(RESPONSES),
        (TENSORS, RESPONSES),
        "coef_",
        1e-6,
    ),
    "cp classes": (
        lt.CPClassifier,
        {"rank": 2, "classes": (0, 1)},
        tensors(TENSOR_LABELS),
        (TENSORS, TENSOR_LABELS),
        "coef_",
        1e-8,
    ),
    "tucker classes": (
        lt.TuckerClassifier,
        {"ranks": (2, 2), "classes": (0, 1, 2)},
        tensors(TENSOR_KINDS),
        (TENSORS, TENSOR_KINDS),
        "coef_",
        1e-8,
    ),
    "partial least squares": (
        lt.CPPLS,
        {"n_components": 3},
        tensors(np.stack([RESPONSES, TENSOR_KINDS], axis=1)),
        (TENSORS, np.stack([RESPONSES, TENSOR_KINDS], axis=1)),
        "coef_",
        1e-8,
    ),
    "network": (
        lt.TwoLayerNetwork,
        {"n_components": 2, "random_state": 0},
        hidden_units,
        (UNITS.X, UNITS.y),
        "components_",
        0.02,  # where a step lowers the loss by less than tol, not where it ends
    ),
    "network of classes": (
        lt.TwoLayerClassifier,
        {"n_components": 2, "classes": (0.0, 1.0), "random_state": 0},
        labelled_units,
        (UNITS.X, LABELS),
        "components_",
        0.05,  # as above
    ),
    "symbols": (
        lt.CategoricalHMM,
        CHAIN,
        sequences(SYMBOLS),
        (SYMBOLS.X, SYMBOLS.lengths),
        "transmat_",
        1e-5,
    ),
    "points": (
        lt.GaussianHMM,
        CHAIN,
        sequences(POINTS),
        (POINTS.X, POINTS.lengths),
        "means_",
        # Cells are drawn by the numbers of the rows: EM then stops elsewhere within its tolerance.
        1e-3,
    ),
    # The refinement in memory leaves out what a token itself says, and fits a little better.
    "topics": (
        lt.LatentDirichletAllocation,
        {"n_components": 3, "random_state": 0},
        rows(TOPICS),
        (TOPICS,),
        "components_",
        0.05,
    ),
    "communities": (
        lt.MixedMembershipBlockModel,
        {"n_components": 3, "random_state": 0},
        rows(NETWORK),
        (NETWORK,),
        "membership_",
        1e-8,
    ),
    "directed communities": (
        lt.MixedMembershipBlockModel,
        {"n_components": 2, "random_state": 0},
        rows(DIRECTED),
        (DIRECTED,),
        "membership_",
        1e-8,
    ),
    "single": (
        lt.SingleTopic,
        {"n_components": 3, "random_state": 0},
        rows(SINGLE),
        (SINGLE,),
        "components_",
        1e-6,
    ),
}


@functools.cache
def whole(name):
    model, settings, _, everything, attribute, _ = CASES[name]
    return value_of(model(**settings).fit(*everything), attribute)


def fitted(name, count, **source):
    model, settings, parts, _, attribute, _ = CASES[name]
    found = model(**settings).fit(lt.sources.partitions(parts(count), **source))
    return value_of(found, attribute)


def value_of(model, attribute):
    """An attribute as an array."""
    found = getattr(model, attribute)
    return found.to_dense() if hasattr(found, "to_dense") else found


class KillsOnce:
    """A partition whose first reader on a worker dies halfway."""

    def __init__(self, rows, flag, parent):
        self.rows, self.flag, self.parent = rows, flag, parent

    def __iter__(self):
        yield self.rows[:100]
        if os.getpid() != self.parent and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield self.rows[100:]


class Watching:
    """A callback that notes what it is told."""

    def __init__(self):
        self.passes, self.partitions = [], []

    def __call__(self, name, number):
        self.passes.append(name)

    def partition(self, name, fraction):
        self.partitions.append((name, fraction))
