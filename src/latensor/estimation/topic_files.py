"""Topic models in files: arrays and a description as JSON, no pickle, whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from latensor.diagnostics.topic_certificate import TopicCertificate
from latensor.exceptions import InvalidInputError
from latensor.whole_files import whole_stream

_FORMAT = "latensor topic model"
_VERSION = 1


def save_model(model: Any, path: str | os.PathLike[str], arrays: dict[str, Any]) -> Path:
    """Write a fitted model; an interrupted run leaves the old file or none.

    Parameters
    ----------
    model : with plain numbers and strings as parameters
    path : file to write
    arrays : fitted attributes that are arrays, by name
    """
    target = Path(path)
    parameters = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if value is None or isinstance(value, bool | int | float | str)
    }
    description: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": type(model).__name__,
        "parameters": parameters,
        "vocabulary": _names(model),
        "n_documents": model.n_documents_,
        "n_empty_documents": model.n_empty_documents_,
        "n_iter": model.n_iter_,
        "status": model.status_,
    }
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        numbers = {**vars(certificate)}
        arrays = {**arrays, "split_half": numbers.pop("split_half")}
        description["certificate"] = numbers
    text = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)
    with whole_stream(target, gzipped=False) as stream:
        np.savez(stream, allow_pickle=False, description=text, **arrays)
    return target


def _names(model: Any) -> list[str] | None:
    words = getattr(model, "vocabulary_", None)
    if words is None:
        words = getattr(model, "feature_names_in_", None)
    return None if words is None else [str(word) for word in words]


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description and the arrays of a saved model."""
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        description = json.loads(arrays.pop("description").tobytes().decode())
    except FileNotFoundError as error:
        raise InvalidInputError(f"path={name!r} does not exist") from error
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"path={name!r} is not a saved topic model: {error}") from error
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise InvalidInputError(f"path={name!r} is not a saved topic model")
    if description["version"] > _VERSION:
        raise InvalidInputError(
            f"path={name!r} was written by a newer latensor (format {description['version']}, "
            f"this one reads {_VERSION}): update latensor"
        )
    return description, arrays


def restore(model: Any, description: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Give a new model the fitted attributes of a saved one."""
    distances = arrays.pop("split_half", None)
    for name, values in arrays.items():
        setattr(model, f"{name}_", values)
    model.n_components_, model.n_features_in_ = (int(size) for size in model.components_.shape)
    model.vocabulary_ = description["vocabulary"]
    model.n_documents_ = description["n_documents"]
    model.n_empty_documents_ = description["n_empty_documents"]
    model.n_iter_, model.status_ = description["n_iter"], description["status"]
    if "certificate" in description:
        model.certificate_ = TopicCertificate(split_half=distances, **description["certificate"])
