"""How many samples a model needs: its own fit, repeated on data drawn from it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.diagnostics.concentration import cross_moment_rate
from latensor.exceptions import InvalidInputError, NotIdentifiableError

# What tells components apart, of which a model has one; and what is compared beside it.
_PLACES = ("means_", "components_", "emissionprob_", "topic_word_")
_OTHERS = (
    "weights_", "alpha_", "covariances_", "variances_", "covars_", "transmat_",
)  # fmt: skip
_SIZES = (300, 1000, 3000, 10000)


@dataclass(frozen=True, eq=False)
class SamplePlan:
    """How the error of each parameter falls with the number of samples.

    Attributes
    ----------
    n_samples : (m,) ints, rising
    errors : dict from parameters to (m, n_repeats) relative errors |p' - p| / |p|
    target : float or None
    required : dict from parameters to the n at which the median error is `target`: with errors
        c / sqrt(n), c from the larger half of the sizes; beyond the largest size it is extrapolated
    rates : dict from parameters to the slope of log error against log n; -1/2 where n is large
        enough for the error to fall as it should, above where it is not, and `required` is then a
        guess
    moment_rate : (m,) floats, `lt.diagnostics.cross_moment_rate` for the dimension of the samples:
        the order, without constants, in which the monograph bounds the error of the third moment
    """

    n_samples: Any
    errors: Mapping[str, Any]
    target: float | None
    required: Mapping[str, int]
    rates: Mapping[str, float]
    moment_rate: Any

    def __str__(self) -> str:
        lines = ["n       " + "  ".join(f"{name:>14}" for name in self.errors)]
        for row, n in enumerate(self.n_samples):
            medians = [float(np.median(e[row])) for e in self.errors.values()]
            lines.append(f"{int(n):<8}" + "  ".join(f"{value:>14.3g}" for value in medians))
        if self.target is not None:
            needed = "  ".join(f"{self.required[name]:>14,}" for name in self.errors)
            lines.append(f"{self.target:<8.3g}{needed}")
        return "\n".join(lines)


def plan(
    model: Any,
    n_samples: Sequence[int] = _SIZES,
    target: float | None = None,
    *,
    n_repeats: int = 3,
    random_state: RandomState = 0,
) -> SamplePlan:
    """How many samples are needed to learn a model with these parameters to a given error.

    Draws samples of several sizes from the model, fits a new one with the same settings to each,
    pairs its components with the true ones, and reports the error of every parameter.

    Parameters
    ----------
    model : estimator that can `sample`, fitted or with parameters that were set by hand: mixtures,
        multi-view mixtures, hidden Markov models (one sequence of n rows), topics (n documents of
        100 words)
    n_samples : sizes to try, each at least 2
    target : float, the relative error to reach
    n_repeats : int, data sets per size
    random_state : int, Generator or None

    Returns
    -------
    SamplePlan; `lt.plots.sample_sizes` draws it

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_spherical_mixture(2000, 5, 2, random_state=0)
    >>> model = lt.SphericalGaussianMixture(2, random_state=0).fit(sample.samples)
    >>> found = lt.plan(model, n_samples=[500, 2000], n_repeats=2)
    >>> type(found).__name__
    'SamplePlan'
    """
    if not hasattr(model, "sample"):
        raise InvalidInputError(
            f"model is a {type(model).__name__}, which cannot draw samples: give a fitted mixture"
        )
    if "n_samples" not in inspect.signature(model.sample).parameters:
        raise InvalidInputError(
            f"model is a {type(model).__name__}, whose samples have no number to plan: give a "
            "fitted mixture, hidden Markov model or topic model"
        )
    place = next((name for name in _PLACES if _value(model, name) is not None), None)
    if place is None and hasattr(model, "certificate_"):
        raise InvalidInputError(
            f"model is a {type(model).__name__}, which has no components to compare: give a "
            "fitted mixture, hidden Markov model or topic model"
        )
    if place is None:
        raise NotFittedError(
            f"model is a {type(model).__name__} without parameters: fit it first, on data like "
            "those that are planned"
        )
    sizes = sorted({check_positive_int(n, "n_samples") for n in n_samples})
    if len(sizes) < 2 or sizes[0] < 2:
        raise InvalidInputError(
            f"n_samples={tuple(n_samples)!r} must hold two or more different sizes of at least 2"
        )
    if target is not None and not target > 0:
        raise InvalidInputError(f"target={target!r} must be a positive relative error")
    repeats = check_positive_int(n_repeats, "n_repeats")
    names = [place, *(name for name in _OTHERS if _value(model, name) is not None)]
    if {"covariances_", "covars_"} <= set(names):
        names.remove("covars_")  # hmmlearn's name for the same numbers
    truth = {name: _value(model, name) for name in names}
    errors = {name: np.empty((len(sizes), repeats)) for name in names}
    # What all components share is not put in their order.
    common = {"covariances_"} if _is_tied(model) else set()
    rng = generator(random_state)
    for row, size in enumerate(sizes):
        for column in range(repeats):
            try:
                fitted = clone(model).fit(_draw(model, size, rng))
            except NotIdentifiableError as error:
                raise NotIdentifiableError(
                    f"{size} samples of this model are too few to fit it: leave that size out of "
                    f"n_samples ({error})"
                ) from error
            found = {name: _value(fitted, name) for name in names}
            if place == "emissionprob_":  # the last symbols may not occur in a sample
                missing = truth[place].shape[1] - found[place].shape[1]
                found[place] = np.pad(found[place], ((0, 0), (0, max(missing, 0))))
            pairing = _paired(truth[place], found[place])
            for name in names:
                per_component = name not in common
                errors[name][row, column] = _error(
                    truth[name], found[name], pairing if per_component else None, name
                )
    half = len(sizes) // 2
    required, rates = {}, {}
    for name in names:
        medians = np.maximum(np.median(errors[name], axis=1), 1e-300)
        rates[name] = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
        constant = float(np.median(medians[half:] * np.sqrt(sizes[half:])))
        if target is not None:
            required[name] = max(int(np.ceil((constant / target) ** 2)), 1)
    dimension = int(np.prod(truth[place].shape[1:])) or 1
    bound = np.array([cross_moment_rate(dimension, n) for n in sizes])
    return SamplePlan(np.array(sizes), errors, target, required, rates, bound)


def _value(model: Any, name: str) -> Any:
    """A parameter as one array with components along the first axis, or None."""
    try:
        value = getattr(model, name, None)
    except (AttributeError, ValueError):
        return None
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return np.concatenate([np.asarray(part, dtype=float) for part in value], axis=-1)
    return np.asarray(value, dtype=float)


def _draw(model: Any, size: int, rng: np.random.Generator) -> Any:
    drawn = model.sample(size, random_state=int(rng.integers(2**31)))
    return drawn[0] if isinstance(drawn, tuple) else drawn


def _paired(truth: Any, found: Any) -> Any:
    """For every true component the one found that lies nearest, each once."""
    if found.shape != truth.shape:
        raise InvalidInputError(
            f"a fit found components of shape {found.shape} where the model has {truth.shape}: "
            "give the model a fixed number of components"
        )
    flat, other = truth.reshape(len(truth), -1), found.reshape(len(found), -1)
    distances = np.linalg.norm(flat[:, None] - other[None], axis=2)
    return scipy.optimize.linear_sum_assignment(distances)[1]


def _is_tied(model: Any) -> bool:
    return getattr(model, "covariance_type", None) == "tied"


def _error(truth: Any, found: Any, pairing: Any, name: str) -> float:
    if pairing is not None and name == "transmat_":
        found = found[pairing][:, pairing]
    elif pairing is not None and found.shape[:1] == (len(pairing),):
        found = found[pairing]
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(found - truth)) / (size if size > 0 else 1.0)
