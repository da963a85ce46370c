"""Labels of classes as estimators receive them, and what logits say of classes: for any model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from latensor.arrays import Array, is_array, to_host
from latensor.arrays.masked import unmasked
from latensor.estimation.base import while_open
from latensor.estimation.samples import in_library_of
from latensor.exceptions import InvalidInputError
from latensor.sources.shards import Source


def _unknown(label: object, count: int) -> InvalidInputError:
    return InvalidInputError(
        f"y holds the label {label}, which is none of the {count} classes that were given or seen "
        "first: give all of them as classes"
    )


@dataclass(frozen=True)
class Indicators:
    """Labels (n, 1) as columns of zeros and ones: one for two classes, else one per class."""

    values: tuple[float, ...]

    def __call__(self, labels: Any) -> Any:
        """(n, 1) or (n, classes)."""
        if labels.shape[1] != 1:
            raise InvalidInputError(f"y must be one column of labels, it has {labels.shape[1]}")
        found = labels == np.asarray(self.values)
        if not found.any(axis=1).all():
            raise _unknown(f"{labels[~found.any(axis=1)][0, 0]:g}", len(self.values))
        return found[:, 1:].astype(float) if len(self.values) == 2 else found.astype(float)


@dataclass(eq=False, repr=False)
class LabelledEstimator(ClassifierMixin):  # type: ignore[misc]
    """What classifiers over one fit share; stands before the estimator that reads numbers.

    A subclass keeps `classes_` among what the input has set
    (`_input_names`) and gives `_logits`.
    """

    _: KW_ONLY
    classes: Any = None

    @while_open
    def partial_fit(
        self, X: object, y: object = None, sample_weight: object = None, *, classes: object = None
    ) -> Self:
        """Add samples; the first call names all `classes` that will come, if it does not have them.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
        classes : labels, in place of the parameter of the estimator
        """
        return super().partial_fit(X, self._named(y, classes), sample_weight)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ data
    def _named(self, y: object, classes: object) -> object:
        """The targets, once the classes are kept that the first call names."""
        if classes is not None and not self._has_started():
            self._first_classes = np.unique(np.asarray(classes))
        return y

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        labels = None
        if y is not None:
            y = unmasked(y, "y")
            try:
                labels = column_or_1d(to_host(y) if is_array(y) else y, warn=True)
                check_classification_targets(labels)
            except ValueError as error:
                raise InvalidInputError(str(error)) from error
            except TypeError as error:
                kinds = ", ".join(sorted({type(label).__name__ for label in np.asarray(y, object)}))
                raise InvalidInputError(
                    f"y mixes labels of several types ({kinds}): remove missing ones, and give "
                    "all as strings or as numbers"
                ) from error
        if reset:
            self._set_classes(labels, sample_weight)
        if labels is not None:
            labels = self._numbers(labels, sample_weight)
        found: Source = super()._source(X, labels, sample_weight, reset=reset)
        return found

    def _numbers(self, labels: Any, sample_weight: object) -> Any:
        """Labels as numbers: themselves, or their places among the classes."""
        ignored = ~_counted(labels, sample_weight)
        if ignored.any():
            labels = np.where(ignored, self.classes_[0], labels)
        if self._is_numeric():
            return labels
        places = {label: code for code, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in labels.tolist() if label not in places]
        if unknown:
            raise _unknown(repr(unknown[0]), len(places))
        return np.array([places[label] for label in labels.tolist()])

    def _set_classes(self, labels: Any, sample_weight: object) -> None:
        given = self.__dict__.pop("_first_classes", self.classes)
        if given is not None:
            found = np.unique(np.asarray(given))
        elif labels is None:
            raise InvalidInputError(
                "requires y to be passed, but the target y is None; for a source of batches (X, y) "
                "give all labels as classes"
            )
        else:
            found = np.unique(labels[_counted(labels, sample_weight)])
        if len(found) < 2:
            raise InvalidInputError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but y has "
                f"{len(found)} class: {found[:1]}"
            )
        is_text = found.dtype == object and all(isinstance(c, str) for c in found)
        self.classes_ = found.astype(str) if is_text else found

    def _is_numeric(self) -> bool:
        return self.classes_.dtype.kind in "biuf"

    def _accepted_targets(self) -> Callable[[Any], Any]:
        values = self.classes_ if self._is_numeric() else np.arange(len(self.classes_))
        return Indicators(tuple(float(value) for value in values))

    def _n_outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    # ------------------------------------------------------------------ answers
    def _logits(self, X: object) -> tuple[Array, Array]:
        """Samples as the caller gave them, and their logits (n, 1) or (n, classes) on the host."""
        raise NotImplementedError(f"{type(self).__name__} must give logits")

    def decision_function(self, X: object) -> Array:
        """Logits (n,) of the second of two classes, or (n, classes), in the library of `X`."""
        array, logits = self._logits(X)
        return in_library_of(logits[:, 0] if logits.shape[1] == 1 else logits, array)

    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, classes), in the library of `X`."""
        array, logits = self._logits(X)
        if logits.shape[1] == 1:
            found = np.concatenate([expit(-logits), expit(logits)], axis=1)
        else:
            found = softmax(logits, axis=1)
        return in_library_of(found, array)

    def predict_log_proba(self, X: object) -> Array:
        """Logarithms of the probabilities (n, classes), in the library of `X`."""
        array, logits = self._logits(X)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        found = log_softmax(logits, axis=1)
        # What rounds to the probability 1 in the precision of X has the logarithm 0.
        found[to_host(in_library_of(np.exp(found), array)) == 1] = 0.0
        return in_library_of(found, array)

    def predict(self, X: object) -> Any:
        """The likeliest class (n,) of every sample, as a NumPy array of labels."""
        _, logits = self._logits(X)
        codes = (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)
        return self.classes_[codes]


def _counted(labels: Any, sample_weight: object) -> Any:
    """(n,) which samples have a positive weight; all where weights do not fit or none has."""
    if sample_weight is not None:
        known = np.asarray(to_host(sample_weight) if is_array(sample_weight) else sample_weight)
        if known.shape == labels.shape and (known > 0).any():
            return known > 0
    return np.ones(labels.shape, dtype=bool)
