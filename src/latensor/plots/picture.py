"""`picture`: the figure of any model, found by what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import to_host
from latensor.decomposition.mode_labels import ModeLabels
from latensor.exceptions import InvalidInputError
from latensor.plots.clusters import clusters
from latensor.plots.communities import communities
from latensor.plots.components import components
from latensor.plots.density import density
from latensor.plots.networks import causes, regressions
from latensor.plots.parts import low_rank_and_errors, train_ranks
from latensor.plots.predictions import predictions
from latensor.plots.scores import scores
from latensor.plots.signals import signals
from latensor.plots.states import states
from latensor.plots.topics import topics
from latensor.plots.tree import tree

Names = Sequence[object] | None


def _clusters(model: Any, data: tuple[Any, ...], names: Names, sample_weight: Any = None) -> Figure:
    samples = data[0]
    if getattr(samples, "shape", ())[1:] == (1,):
        name = None if names is None else str(names[0])
        return density(model, samples, sample_weight=sample_weight, name=name)
    return clusters(model, samples, names=names)


def _shared_factors(found: Any, names: Names) -> Figure:
    """The factors that all slices of PARAFAC2 share: those of the slices and of the columns."""
    slices, _, columns = found.factors
    shared = (found.mode_labels or (ModeLabels(None, None),) * 3)[::2]
    names = names or [shared[0].name or "slice", shared[1].name or "column"]
    labels = [own.values for own in shared]
    return components((found.weights, (slices, columns)), labels=labels, names=names)


def _direction(found: Any, names: Names) -> Figure:
    """The vector that the modes share, or one for each."""
    shared = all(vector is found.vectors[0] for vector in found.vectors)
    vectors = found.vectors[:1] if shared else found.vectors
    strength = np.array([found.strength])
    columns = [to_host(vector)[:, None] for vector in vectors]
    return components((strength, columns), names=names)


# What draws a model, and how many arguments of `fit` it cannot do without.
_PICTURES: dict[str, tuple[Callable[..., Figure], int]] = {
    "SphericalGaussianMixture": (_clusters, 1),
    "DiagonalGaussianMixture": (_clusters, 1),
    "GaussianMixture": (_clusters, 1),
    "ProductMixture": (_clusters, 1),
    "PearsonMixture": (_clusters, 1),
    "MultiViewMixture": (_clusters, 1),
    "CategoricalHMM": (lambda m, data, names: states(m, *data, names=names), 1),
    "GaussianHMM": (lambda m, data, names: states(m, *data, names=names), 1),
    "ICA": (lambda m, data, names: signals(m, *data, names=names), 1),
    "PCA": (lambda m, data, names: scores(m, *data[:1]), 1),
    "CCA": (lambda m, data, names: scores(m, *data), 2),
    "MixtureOfRegressions": (lambda m, data, names: regressions(m, *data), 2),
    "MixedMembershipBlockModel": (lambda m, data, names: communities(m, *data[:1]), 1),
    "NoisyOrNetwork": (lambda m, data, names: causes(m, names=names), 0),
    "LatentTree": (lambda m, data, names: tree(m, names=names), 0),
    "LatentDirichletAllocation": (lambda m, data, names: topics(m, names=names), 0),
    "SingleTopic": (lambda m, data, names: topics(m, names=names), 0),
    "Decomposition": (lambda m, data, names: components(m, names=names), 0),
    "TuckerDecomposition": (lambda m, data, names: components(m, names=names), 0),
    "Parafac2Decomposition": (lambda m, data, names: _shared_factors(m, names), 0),
    "RobustDecomposition": (lambda m, data, names: low_rank_and_errors(m), 0),
    "TensorPCA": (lambda m, data, names: _direction(m, names), 0),
    "TensorTrain": (lambda m, data, names: train_ranks(m), 0),
    "RegressorMixin": (lambda m, data, names: predictions(m, *data), 2),
    "ClassifierMixin": (lambda m, data, names: predictions(m, *data), 2),
}


def picture(model: Any, *data: Any, names: Names = None, sample_weight: Any = None) -> Figure:
    """Draw any fitted model of latensor or a decomposition: `model.plot(X)`.

    Parameters
    ----------
    model : a fitted estimator or a decomposition
    *data : what `fit` was given: X, or X and y, or X and lengths
    names : what the features, words or leaves are called; of a decomposition, its modes
    sample_weight : (n,) what the samples count, where a histogram of them is drawn

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    known = [cls.__name__ for cls in type(model).__mro__ if cls.__name__ in _PICTURES]
    if not known:
        raise InvalidInputError(f"model is a {type(model).__name__}, which has no picture")
    draw, needed = _PICTURES[known[0]]
    if len(data) < needed:
        wanted = "X" if needed == 1 else "X, y"
        raise InvalidInputError(
            f"a {type(model).__name__} is drawn with its data: give what fit was given, "
            f"plot({wanted})"
        )
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if draw is _clusters:
        return _clusters(model, data, names, sample_weight)
    return draw(model, data, names)
