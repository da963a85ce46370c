"""What users of every topic model meet: fitting documents of any kind, streams, certificates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays import Array, RandomState
from latensor.estimation.base import LatentEstimator, UndeterminedAttributeError
from latensor.estimation.checkpoint import Checkpoint
from latensor.estimation.document_input import document_source
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import PROBABILITY
from latensor.estimation.parameters import (
    ALGORITHM,
    N_COMPONENTS,
    N_JOBS,
    POSITIVE,
    REFINE,
    parameter,
)
from latensor.estimation.selection import with_halves
from latensor.exceptions import NotIdentifiableError
from latensor.models.topics.inference import TopicInference
from latensor.models.topics.model import TopicsModel
from latensor.sources.shards import Source
from latensor.whole_files import PathLike


@dataclass(eq=False, repr=False)
class TopicEstimator(TopicInference, LatentEstimator):
    """Base of the models whose components are topics: rows of word probabilities."""

    n_components: int | str = parameter(10, *N_COMPONENTS)
    _: KW_ONLY
    algorithm: Any = parameter("auto", *ALGORITHM)
    refine: int | str = parameter("auto", *REFINE)
    topic_word_prior: float = parameter(0.05, POSITIVE)
    init: Any = None
    random_state: RandomState = None
    n_jobs: int | None = parameter(None, *N_JOBS)
    callback: Callable[[str, float], None] | None = None

    _fitted_names = frozenset(
        {
            "components_",
            "n_components_",
            "n_documents_",
            "n_empty_documents_",
            "certificate_",
            "history_",
            "n_iter_",
            "spectrum_",
            "status_",
            "stage_seconds_",
        }
    )
    _takes_sparse = True
    _intervals_of: ClassVar[tuple[Mapping[str, tuple[float, float]], str]] = (
        {"components": PROBABILITY},
        "components",
    )

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        callback: Callable[[str, int], object] | None = None,
        checkpoint: PathLike | None = None,
    ) -> Self:
        """Learn the topics of documents.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix; or a source of documents as
            `lt.sources` makes them, which is read once and then kept in memory or, where it is
            larger than that, in a temporary file
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the document twice
        callback : called with the name and the number of every pass over the documents
        checkpoint : folder in which a fit that is ended at any moment leaves what it has done, so
            that the same call goes on from there and ends with the same bits; needs an integer
            random_state
        """
        return super().fit(X, y, sample_weight, callback=callback, checkpoint=checkpoint)

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        return document_source(self, X, sample_weight, reset=reset)

    def _fit_source(
        self,
        source: Source,
        callback: Callable[[str, int], object] | None = None,
        journal: Checkpoint | None = None,
    ) -> Self:
        clock = _Clock(self.callback, callback)
        super()._fit_source(source, clock, journal)
        self.stage_seconds_ = clock.seconds
        return self

    def _model(self) -> TopicsModel:
        raise NotImplementedError(f"{type(self).__name__} must build its model")

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        assert answer.state is not None
        state = answer.state.permuted(self._model().order(frame, answer.state))
        topics = state.topics.astype(self._dtype)
        topics /= topics.sum(axis=1, keepdims=True)
        totals = answer.evidence["totals"]
        subspace = answer.evidence.get("subspace")
        found = {
            "components_": topics,
            "n_components_": len(topics),
            f"{self._weight_name}_": state.weights,
            "n_documents_": totals.n_documents,
            "n_empty_documents_": totals.n_empty,
            "n_iter_": max(1, answer.n_iter),
            "history_": np.array(answer.history),
            "status_": answer.evidence["status"],
            "stage_seconds_": {},
        }
        if subspace is not None:
            found["spectrum_"] = subspace.spectrum
        return found

    def __getattr__(self, name: str) -> Any:
        if name != "certificate_" or "_stream" not in self.__dict__:
            if "components_" in self.__dict__:
                # All that there is was set with the topics.
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return super().__getattr__(name)
        try:
            answer, _ = self._found()
            rng = np.random.default_rng([self._stream.seed, 1])
            refined = answer.statistics is not None
            found = self._model().certify(answer.evidence, self._topics(), rng, refined)
        except NotIdentifiableError as error:
            raise UndeterminedAttributeError(str(error)) from error
        if found is None:
            why = "topics that were given by init have no moments to be judged by"
            if self.init is None:
                why = "words of a document tell nothing of each other, and so of no topic"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'certificate_': {why}"
            )
        # The halves of the documents were refined: they say nothing about moments alone.
        chosen = self.__dict__.get("selection_") if refined else None
        self.certificate_ = with_halves(found, chosen)
        return self.certificate_

    def _topics(self) -> Array:
        topics: Array = self.components_
        return topics

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        # The closest tag there is to "counts": checks then give whole numbers.
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class _Clock:
    """Wall-clock seconds of the stages, one after the other; tells whoever wants to know."""

    def __init__(
        self,
        by_stage: Callable[[str, float], object] | None,
        by_pass: Callable[[str, int], object] | None,
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._by_stage, self._by_pass = by_stage, by_pass
        self._last = time.perf_counter()

    def partition(self, name: str, fraction: float) -> None:
        """Told once a partition."""
        if self._by_stage is not None:
            self._by_stage(name, fraction)
        told = getattr(self._by_pass, "partition", None)
        if told is not None:
            told(name, fraction)

    def __call__(self, name: str, number: int) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now
        if self._by_stage is not None:
            self._by_stage(name, np.nan)
        if self._by_pass is not None:
            self._by_pass(name, number)
