"""Networks with one hidden layer that tell classes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from latensor.arrays import Array, RandomState, is_array, to_host
from latensor.estimation.samples import in_library_of
from latensor.estimation.target_input import target_source
from latensor.exceptions import InvalidInputError
from latensor.models.networks.two_layer import TwoLayerEstimator
from latensor.sources.shards import Source


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
            unknown = labels[~found.any(axis=1)][0, 0]
            raise InvalidInputError(
                f"y holds the label {unknown:g}, which is none of the {len(self.values)} classes "
                "that were given or seen first: give all of them as classes"
            )
        return found[:, 1:].astype(float) if len(self.values) == 2 else found.astype(float)


class TwoLayerClassifier(ClassifierMixin, TwoLayerEstimator):  # type: ignore[misc]
    """Classes told apart by a network with one hidden layer that moments have started.

    The logits are A2 f(A1 x + b1) + b2: of two classes one, of more one per class. Probabilities
    are functions of A1 x: their moments with the score functions of X show the subspace of the
    hidden units exactly, the units only to first order in the logits. L-BFGS on the log loss goes
    on from there, and from random starts inside the subspace until two agree.

    Parameters
    ----------
    n_components, activation, scores, alpha, n_init, refine, tol, max_iter, random_state, n_jobs :
        as for `TwoLayerNetwork`
    classes : the labels, where not all of them are in the first call: needed for sources of
        batches, which hold numbers as labels

    Attributes
    ----------
    classes_ : (classes,) labels
    components_, coefs_, intercepts_, n_components_, n_iter_, converged_, certificate_ : as for
        `TwoLayerNetwork`
    loss_ : float, the mean log loss

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_network(2000, 4, 2, target="binary", random_state=0)
    >>> model = lt.TwoLayerClassifier(2, random_state=0).fit(sample.X, sample.y)
    >>> model.predict_proba(sample.X[:3]).shape
    (3, 2)
    """

    _loss = "log"
    classes_: Any
    _input_names: ClassVar[tuple[str, ...]] = ("_n_targets", "classes_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        activation: str = "sigmoid",
        scores: Any = "gaussian",
        classes: Any = None,
        alpha: float = 1e-4,
        n_init: int = 8,
        refine: int | str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            n_components,
            activation=activation,
            scores=scores,
            alpha=alpha,
            n_init=n_init,
            refine=refine,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        self.classes = classes

    def partial_fit(
        self, X: object, y: object = None, sample_weight: object = None, *, classes: object = None
    ) -> Self:
        """Add samples; the first call names all `classes` that will come, if it does not have them.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
        classes : labels, in place of the parameter of the estimator
        """
        return super().partial_fit(X, self._named(y, classes), sample_weight)

    # ------------------------------------------------------------------ data
    def _named(self, y: object, classes: object) -> object:
        if classes is not None and not self._has_started():
            self._first_classes = np.unique(np.asarray(classes))
        return y

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        if y is None:
            if reset:
                self._set_classes(None)
            return target_source(self, X, None, sample_weight, reset=reset)
        labels = column_or_1d(to_host(y) if is_array(y) else y, warn=True)
        check_classification_targets(labels)
        if reset:
            self._set_classes(labels, sample_weight)
        if not self._is_numeric():
            places = {label: code for code, label in enumerate(self.classes_.tolist())}
            unknown = [label for label in labels.tolist() if label not in places]
            if unknown:
                raise InvalidInputError(
                    f"y holds the label {unknown[0]!r}, which is none of the {len(places)} classes "
                    "that were given or seen first: give all of them as classes"
                )
            labels = np.array([places[label] for label in labels.tolist()])
        return target_source(self, X, labels, sample_weight, reset=reset)

    def _set_classes(self, labels: Any, sample_weight: object = None) -> None:
        given = self.__dict__.pop("_first_classes", self.classes)
        if given is not None:
            found = np.unique(np.asarray(given))
        elif labels is None:
            raise InvalidInputError(
                "requires y to be passed, but the target y is None; for a source of batches (X, y) "
                "give all labels as classes"
            )
        else:
            used = np.ones(labels.shape, dtype=bool)
            if sample_weight is not None:
                known = np.asarray(
                    to_host(sample_weight) if is_array(sample_weight) else sample_weight
                )
                if known.shape == labels.shape and (known > 0).any():
                    used = known > 0
            found = np.unique(labels[used])
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
    def decision_function(self, X: object) -> Array:
        """Logits (n,) of the second of two classes, or (n, classes), in the library of `X`."""
        array, rows = self._read_new(X)
        logits = self._outputs(rows)
        return in_library_of(logits[:, 0] if logits.shape[1] == 1 else logits, array)

    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, classes), in the library of `X`."""
        array, rows = self._read_new(X)
        logits = self._outputs(rows)
        if logits.shape[1] == 1:
            found = np.concatenate([expit(-logits), expit(logits)], axis=1)
        else:
            found = softmax(logits, axis=1)
        return in_library_of(found, array)

    def predict_log_proba(self, X: object) -> Array:
        """Logarithms of the probabilities (n, classes), in the library of `X`."""
        array, rows = self._read_new(X)
        logits = self._outputs(rows)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        found = log_softmax(logits, axis=1)
        # What rounds to the probability 1 in the precision of X has the logarithm 0.
        found[to_host(in_library_of(np.exp(found), array)) == 1] = 0.0
        return in_library_of(found, array)

    def predict(self, X: object) -> Any:
        """The likeliest class (n,) of every sample, as a NumPy array of labels."""
        logits = self._outputs(self._read_new(X)[1])
        codes = (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)
        return self.classes_[codes]
