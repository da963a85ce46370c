"""Topic models in files: what is kept of a fit, and what is believed of a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from latensor.diagnostics.topic_certificate import TopicCertificate
from latensor.estimation.files import load, new_estimator, register_kind
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError
from latensor.value_files import TOPIC_MODEL, Stored, storable
from latensor.whole_files import PathLike

_EARLIER = {"polished": "refined"}
storable(renamed=_EARLIER)(TopicCertificate)

_COUNTS = ("n_documents", "n_empty_documents", "n_iter")


def saved_state(model: Any) -> dict[str, Any]:
    """Topics, weights, words and certificate of a fitted model, not what a stream goes on with."""
    return {
        **{name: getattr(model, f"{name}_", None) for name in _array_shapes(model, 0, 0)},
        "vocabulary": _names(model),
        **{name: int(getattr(model, f"{name}_")) for name in _COUNTS},
        "status": str(model.status_),
        "certificate": getattr(model, "certificate_", None),
        "selection": getattr(model, "selection_", None),
    }


def _names(model: Any) -> list[str] | None:
    words = getattr(model, "vocabulary_", None)
    if words is None:
        words = getattr(model, "feature_names_in_", None)
    return None if words is None else [str(word) for word in words]


def _array_shapes(model: Any, n_components: int, n_features: int) -> dict[str, tuple[int, ...]]:
    """The arrays of a model and their shapes, -1 where any length will do."""
    shapes: dict[str, tuple[int, ...]] = {
        "components": (n_components, n_features),
        model._weight_name: (n_components,),
        "history": (-1,),
        "spectrum": (-1,),
    }
    if "mixture_prior_" in model._fitted_names:
        shapes["mixture_prior"] = (n_components,)
    return shapes


def restore_state(model: Any, state: dict[str, Any]) -> None:
    """Give a new model the fitted attributes of a saved one, after checking each of them."""
    topics = state["components"]
    if not isinstance(topics, np.ndarray) or topics.ndim != 2 or 0 in topics.shape:
        raise InvalidInputError("its topics are no matrix")
    n_components, n_features = (int(size) for size in topics.shape)
    for name, shape in _array_shapes(model, n_components, n_features).items():
        values = state.get(name)
        if values is None and name not in ("components", model._weight_name):
            continue
        expected = tuple(shape)
        if shape == (-1,) and isinstance(values, np.ndarray):
            expected = (values.size,)
        _check_array(values, name, expected)
        setattr(model, f"{name}_", values)
    words = state["vocabulary"]
    if words is not None and (
        not isinstance(words, list)
        or len(words) != n_features
        or not all(isinstance(word, str) for word in words)
    ):
        raise InvalidInputError(f"its vocabulary is not one word for each of {n_features} columns")
    numbers = {name: state[name] for name in _COUNTS}
    if any(type(number) is not int or number < 0 for number in numbers.values()):
        raise InvalidInputError(f"{', '.join(numbers)} are no counts")
    if not isinstance(state["status"], str):
        raise InvalidInputError("its status is no text")
    selection = state.get("selection")
    if selection is not None:
        if not isinstance(selection, Selection) or selection.n_components != n_components:
            raise InvalidInputError("its selection is none of its number of topics")
        str(selection)
        model.selection_ = selection
    certificate = state.get("certificate")
    if certificate is not None:
        _check_certificate(certificate, n_components)
        model.certificate_ = certificate
    for name, number in numbers.items():
        setattr(model, f"{name}_", number)
    model.n_components_, model.n_features_in_ = n_components, n_features
    model.vocabulary_, model.status_ = words, state["status"]


def _check_array(values: Any, name: str, shape: tuple[int, ...]) -> None:
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != shape:
        kind = getattr(values, "dtype", type(values).__name__)
        found = f"{kind} of shape {values.shape}" if isinstance(values, np.ndarray) else kind
        raise InvalidInputError(f"{name} is {found}, expected real numbers of shape {shape}")
    record = name in ("history", "spectrum")
    if not record and not (np.isfinite(values).all() and (values >= 0).all()):
        raise InvalidInputError(f"{name} holds numbers that are negative or not finite")


def _check_certificate(certificate: Any, n_components: int) -> None:
    """Refuse a certificate that could not put its findings into words."""
    if not isinstance(certificate, TopicCertificate):
        raise InvalidInputError("its certificate is none of topics")
    distances = certificate.split_half
    if not isinstance(distances, np.ndarray) or distances.shape != (n_components,):
        raise InvalidInputError("its certificate is one of another number of topics")
    str(certificate)


def load_topics(cls: type, path: PathLike) -> Any:
    """A topic model of a class, from a file."""
    model = load(path, "topic model")
    if type(model) is not cls:
        name = type(model).__name__
        raise InvalidInputError(
            f"path={os.fspath(path)!r} holds a {name}, not a {cls.__name__}: load it by lt.load"
        )
    return model


def _restore_first_format(stored: Stored) -> Any:
    """A model of format version 1: settings and counts in a description, arrays beside it."""
    if stored.format_version != 1:
        raise InvalidInputError(f"it is a topic model of format {stored.format_version}")
    description, arrays = stored.value
    model = new_estimator(description["model"], description["parameters"])
    numbers = description.get("certificate")
    state = {
        **{name: arrays.get(name) for name in _array_shapes(model, 0, 0)},
        **{name: description[name] for name in ("vocabulary", "status", *_COUNTS)},
    }
    if numbers is not None:
        found = {_EARLIER.get(name, name): value for name, value in numbers.items()}
        state["certificate"] = TopicCertificate(split_half=arrays["split_half"], **found)
    model._restore_state(state)
    return model


register_kind(TOPIC_MODEL, _restore_first_format)
