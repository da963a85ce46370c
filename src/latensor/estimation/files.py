"""Models in files: without pickle, whole or not at all.

How an estimator is saved. Its class is registered, by `@saved_estimator` or because it is a public
name over `SavedEstimator`; the file holds the name of the class, its settings and its state, all of
them plain values (`latensor.value_files`):

    {"class": "PCA", "settings": {"n_components": 3, ...}, "state": {...}}

The class gives its state by `_saved_state()`, a dict with text as keys, and takes one back by
`_restore_state(state)`. The state comes from a file that anybody may have written: a class takes
out of it the names that it knows, never all that it finds, and checks shapes and types before it
uses them; whatever it raises leaves `load` as an InvalidInputError. Types within a state, as a
certificate, are registered by `storable`. `save_estimator(model, path)` and `load(path)` do the
rest. `SavedEstimator` does all of this for estimators whose fitted attributes are plain values.

Other things are saved under a kind of their own: `write_value(path, value, kind)` writes them, and
`register_kind(kind, restore)` tells `load` what to make of the value.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

import latensor
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.presentation import Presented
from latensor.value_files import DECOMPOSITION, Stored, encode, read_value, write_value
from latensor.whole_files import PathLike

ESTIMATOR = "estimator"
_restorers: dict[str, Callable[[Stored], Any]] = {}
_estimators: dict[str, type] = {}
Class = TypeVar("Class", bound=type)


def register_kind(kind: str, restore: Callable[[Stored], Any]) -> None:
    """Tell `load` how to make something of the value of a file.

    Parameters
    ----------
    kind : str, as given to `write_value`
    restore : function of a Stored; it may raise anything at a value that is damaged
    """
    _restorers[kind] = restore


def saved_estimator(cls: Class) -> Class:
    """Let estimators of a class into files, by its name; see the module for what it needs."""
    other = _estimators.get(cls.__name__, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"{cls.__name__} is registered already, by {other.__module__}")
    _estimators[cls.__name__] = cls
    return cls


def save_estimator(model: Any, path: PathLike, state: dict[str, Any] | None = None) -> Path:
    """Write an estimator into a file that `load` reads.

    Settings that have no plain value (functions, generators of random numbers) are left out: a
    loaded estimator has their defaults.

    Parameters
    ----------
    model : estimator of a class that `saved_estimator` has registered
    path : file to write; an interrupted run leaves the old one or none
    state : what to store in place of `model._saved_state()`
    """
    name = type(model).__name__
    known: Any = _estimators.get(name)
    if known is not type(model):
        raise InvalidInputError(f"a {name} cannot be saved: lt.load would not know its class")
    settings = {n: v for n, v in model.get_params(deep=False).items() if can_be_stored(v)}
    stored = model._saved_state() if state is None else state
    value = {"class": name, "settings": settings, "state": stored}
    return write_value(path, value, ESTIMATOR)


class SavedEstimator(Presented):
    """`save` for estimators that answer from their fitted attributes alone.

    A public class over it is known to `load` by its name. What a stream needs to go on may hold
    samples of the user, and is saved only where that is asked for: otherwise a loaded estimator
    refuses to add to what it has learned (`_check_not_loaded`).
    """

    # Fitted attributes, and what the input has set that answers, and workers that go on, need.
    _fitted_names: ClassVar[frozenset[str]] = frozenset()
    _input_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("latensor.") and cls.__name__ in dir(latensor):
            saved_estimator(cls)

    def _check_found(self) -> None:
        check_is_fitted(self)

    def save(self, path: PathLike, *, resumable: bool = False) -> Path:
        """Write the fitted model into a file that `lt.load` reads, without pickle.

        Settings that have no plain value (functions, generators of random numbers) have their
        defaults in a loaded model, and arrays come back as NumPy arrays.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        resumable : bool, whether to keep the sums, too, that `partial_fit`, `merge`, `spawn` and
            `intervals` go on with. They may hold a sample of the data.
        """
        check_is_fitted(self)
        state = self._saved_state()
        if resumable:
            if "_stream" not in self.__dict__:
                raise InvalidInputError(
                    f"resumable=True: this {type(self).__name__} has no sums to go on with: fit "
                    "it, or save it without"
                )
            state["_stream"] = self.__dict__["_stream"]
        return save_estimator(self, path, state)

    @classmethod
    def _names_of_fit(cls) -> frozenset[str]:
        """Fitted attributes, with the evidence for a number of components left to the data."""
        return cls._fitted_names | {"selection_"}

    def _names_of_input(self) -> tuple[str, ...]:
        return ("n_features_in_", "feature_names_in_", "_dtype", *self._input_names)

    def _saved_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for name in sorted({*self._names_of_fit(), *self._names_of_input()}):
            try:
                state[name] = getattr(self, name)
            except AttributeError as error:
                # Not all models have all of them; but one that the data leave open says why.
                if isinstance(error, NotIdentifiableError | InvalidInputError):
                    raise
        if "_dtype" in state:
            state["_dtype"] = np.dtype(state["_dtype"])
        return state

    def _restore_state(self, state: dict[str, Any]) -> None:
        unknown = set(state) - self._names_of_fit() - {*self._names_of_input(), "_stream"}
        if unknown:
            raise InvalidInputError(f"a {type(self).__name__} has no {sorted(unknown)[0]!r}")
        if type(state["n_features_in_"]) is not int or not isinstance(
            state.get("_dtype", np.dtype(float)), np.dtype
        ):
            raise InvalidInputError("its features are not counted")
        if "_stream" in state:
            self._check_stream(state["_stream"])
        for name, value in state.items():
            setattr(self, name, value)
        self._is_loaded = "_stream" not in state

    def _check_stream(self, stream: object) -> None:
        raise InvalidInputError(f"a {type(self).__name__} has no stream")

    def _check_not_loaded(self, method: str) -> None:
        if self.__dict__.get("_is_loaded"):
            raise InvalidInputError(
                f"{method}: this {type(self).__name__} was loaded from a file, which holds what it "
                "has learned but not the sums to go on with: save with resumable=True, or call fit"
            )


def can_be_stored(value: object) -> bool:
    """Whether a value can stand in a file."""
    try:
        encode(value, {})
    except InvalidInputError:
        return False
    return True


def _restore_estimator(stored: Stored) -> Any:
    model = new_estimator(stored.value["class"], stored.value["settings"])
    model._restore_state(stored.value["state"])
    return model


def new_estimator(name: object, settings: dict[str, Any]) -> Any:
    """An estimator of a registered class that is not fitted, with settings from a file."""
    cls: Any = _estimators.get(name) if isinstance(name, str) else None
    if cls is None:
        raise InvalidInputError(f"it holds a {name!r}, which is no estimator of latensor")
    unknown = set(settings) - set(cls._get_param_names())
    if unknown:
        raise InvalidInputError(f"a {name} has no setting {sorted(unknown)[0]!r}")
    return cls(**settings)


register_kind(ESTIMATOR, _restore_estimator)


def _restore_decomposition(stored: Stored) -> Any:
    from latensor.decomposition import (
        Decomposition,
        Parafac2Decomposition,
        RobustDecomposition,
        TensorPCA,
        TuckerDecomposition,
    )
    from latensor.decomposition.result import Origin, Status
    from latensor.tensors.cp import CPTensor
    from latensor.tensors.parafac2 import Parafac2Tensor
    from latensor.tensors.sparse import SparseTensor
    from latensor.tensors.tensor_train import TensorTrain
    from latensor.tensors.tucker import TuckerTensor

    # The tensor that each decomposition holds; a train is its own.
    tensors: dict[type, type] = {
        Decomposition: CPTensor,
        TuckerDecomposition: TuckerTensor,
        Parafac2Decomposition: Parafac2Tensor,
    }
    found = stored.value
    if isinstance(found, TensorTrain):
        expected: dict[str, Any] = {"residual": float | None}
    elif isinstance(found, RobustDecomposition):
        expected = {"low_rank": CPTensor | TuckerTensor, "sparse": SparseTensor, "noise": float,
                    "residual": float, "n_iter": int, "status": Status,
                    "n_observed": int | None}  # fmt: skip
    elif isinstance(found, TensorPCA):
        numbers = ("strength", "noise", "signal_to_noise", "computational_limit",
                   "statistical_limit", "noise_level")  # fmt: skip
        expected = {"vectors": tuple, **dict.fromkeys(numbers, float)}
    elif type(found) in tensors:
        expected = {"tensor": tensors[type(found)], "residual": float, "n_iter": int,
                    "status": Status, "history": np.ndarray}  # fmt: skip
    else:
        raise InvalidInputError(f"it holds a {type(found).__name__}")
    for name, cls in expected.items():
        if not isinstance(getattr(found, name), cls):
            raise InvalidInputError(f"its {name} is a {type(getattr(found, name)).__name__}")
    if isinstance(found, RobustDecomposition) and found.low_rank.shape != found.sparse.shape:
        raise InvalidInputError("its two parts differ in shape")
    if isinstance(found, TensorPCA):
        for vector in found.vectors or (None,):
            if getattr(vector, "ndim", 0) != 1 or vector.dtype.kind != "f":
                raise InvalidInputError("its vectors are no vectors of real numbers")
    origin = getattr(found, "origin", None)
    if not isinstance(origin, Origin | None) or (origin and type(origin.masked) is not bool):
        raise InvalidInputError(f"its origin is a {type(origin).__name__}")
    history = getattr(found, "history", np.zeros(0))
    if history.ndim != 1 or history.dtype.kind != "f":
        raise InvalidInputError(f"its history has shape {history.shape}")
    return found


register_kind(DECOMPOSITION, _restore_decomposition)


def load(path: PathLike, what: str = "model or decomposition") -> Any:
    """What a method `save` of latensor has written: an estimator or a decomposition.

    No code from the file is run. Arrays come back as NumPy arrays.

    Parameters
    ----------
    path : file to read
    what : str, what the file should hold, for messages

    Raises
    ------
    InvalidInputError, if the file is damaged, holds something else, or was written by a newer
    latensor, which it then names.

    Examples
    --------
    >>> import latensor as lt
    >>> import os, tempfile
    >>> import numpy as np
    >>> model = lt.PCA(1).fit(np.eye(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(os.path.join(folder, "model.npz"))
    ...     print(type(lt.load(path)).__name__)
    PCA
    """
    _import_all()
    stored = read_value(path, what)
    name = f"path={os.fspath(path)!r}"
    restore = _restorers.get(stored.kind)
    if restore is None:
        raise InvalidInputError(
            f"{name} holds a {stored.kind}, not a {what}; it was written by latensor "
            f"{stored.latensor_version}"
        )
    try:
        return restore(stored)
    except Exception as error:
        # A file that is well formed can still hold what no saved object is made of.
        reason = str(error) or type(error).__name__
        raise InvalidInputError(f"{name} is not a saved {what}: {reason}") from error


def _import_all() -> None:
    """Names load lazily, but a file may hold any of them: classes and types are known by name."""
    for package in map(import_module, ("latensor.decomposition", "latensor.models")):
        for name in package.__all__:
            getattr(package, name)
