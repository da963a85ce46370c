"""What the topic models share: from documents to topics, in passes, streams and merges."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from latensor.arrays import generator
from latensor.arrays.randomness import RandomState
from latensor.arrays.threads import thread_count
from latensor.estimation.documents import Documents, opened
from latensor.estimation.parameters import Choice, Interval, check_parameters
from latensor.estimation.topic_count import choose_count
from latensor.estimation.topic_moments import (
    START_SMOOTHING,
    as_probabilities,
)
from latensor.estimation.topic_powers import power_sums
from latensor.estimation.topic_stream import TopicStream
from latensor.estimation.topic_trust import TopicTrust
from latensor.estimation.word_input import read_counts, read_document_source
from latensor.estimation.word_subspace import (
    LENGTH_CAP,
    SinglePrecision,
    WordSubspace,
    find_subspace,
)
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.word_totals import WordTotals
from latensor.moments.words import WordTripleAccumulator

# Beyond so many topics the whole core is not formed.
_MANY = 100
# Documents that a prior is chosen on.
_JUDGES = 2000

_LEARNED = frozenset(
    {
        "components_",
        "n_components_",
        "certificate_",
        "history_",
        "n_iter_",
        "selection_",
        "spectrum_",
        "status_",
        "stage_seconds_",
    }
)


class TopicModel(TopicTrust):
    """Base of the models whose components are topics: rows of word probabilities.

    A model says how topics are read off the word moments (`_solve`), how they are polished
    (`_polish`), and what a document's mixture is (`_mixtures`).
    """

    _parameters = {  # noqa: RUF012
        "n_components": (Interval(numbers.Integral, 1), Choice(("auto",))),
        "refine": (Interval(numbers.Integral, 0), Choice(("auto",))),
        "topic_word_prior": (Interval(numbers.Real, 0, closed="neither"),),
        "n_jobs": (
            Interval(numbers.Integral, 1),
            Interval(numbers.Integral, -np.inf, -1),
            Choice((None,)),
        ),
    }
    # Whether documents that the moments have not seen decide how long the polish lasts.
    _holds_out = True
    # What is computed when it is first asked for, from the sums of a fit or of a stream.
    _lazy = _LEARNED

    n_components: int | str
    algorithm: Any
    refine: int | str
    topic_word_prior: float
    init: Any
    random_state: RandomState
    n_jobs: int | None
    callback: Callable[[str, float], None] | None

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn the topics of documents.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix; or a source of documents as
            `lt.sources` makes them, which is read once and then kept in memory or, where it is
            larger than that, in a temporary file
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the document twice
        """
        check_parameters(self, self._parameters)
        source, weights = read_document_source(self, X, sample_weight)
        self._forget()
        with opened(source, weights, self.callback) as documents:
            self._check_documents(documents.totals)
            self._learn(documents)
        return self

    def _learn(self, documents: Documents) -> None:
        rng = generator(self.random_state)
        clock = _Clock()
        totals = documents.totals
        self._totals = totals
        if self.n_components == "auto":
            self.selection_ = choose_count(self, documents, rng)
            self.n_components_ = self.selection_.n_components
            clock.stage("number of topics")
        rank = self._rank(documents)
        if self.refine == "auto" and self._holds_out:
            documents.hold_out(int(rng.integers(2**63)))
        if self.init is None:
            subspace = self._find_subspace(documents, rank, rng)
            clock.stage("subspace")
            sums = self._gather(documents, subspace, rng)
            clock.stage("moments")
            self._sums, self._subspace = sums, subspace
            self.spectrum_ = subspace.spectrum
            topics = self._start(sums, rank, totals, rng)
            clock.stage("decomposition")
        else:
            topics = self._given_topics(rank, totals)
        self._finish(topics, documents, rng, clock)
        self.stage_seconds_ = clock.seconds

    def _check_documents(self, totals: WordTotals) -> None:
        self.n_documents_ = totals.n_documents
        self.n_empty_documents_ = totals.n_empty
        if totals.n_tokens == 0:
            raise InvalidInputError(
                f"all {totals.n_documents} documents are empty: give documents with words"
            )

    def _rank(self, documents: Documents) -> int:
        rank = int(self.n_components_ if self.n_components == "auto" else self.n_components)
        used = documents.totals.n_documents - documents.totals.n_empty
        if used < rank:
            raise NotIdentifiableError(
                f"n_components={rank} topics cannot be told apart by {used} documents with words: "
                "lower n_components or give more documents"
            )
        return rank

    def _find_subspace(
        self, documents: Documents, rank: int, rng: np.random.Generator
    ) -> WordSubspace:
        return find_subspace(
            documents.prepared,
            documents.totals,
            rank,
            rng,
            self._threads(),
            self._tick("subspace"),
            concentration=self._assumed_concentration(),
            before_a_polish=self.refine != 0,
        )

    def _gather(
        self, documents: Documents, subspace: WordSubspace, rng: np.random.Generator
    ) -> Any:
        if subspace.basis.shape[1] > _MANY and self.algorithm == "auto":
            a = self._assumed_concentration()
            return power_sums(documents, subspace, a, rng, self._threads())
        sums = WordTripleAccumulator(subspace.basis, subspace.scale, subspace.cap, self._threads())
        tick = self._tick("moments")
        batches = SinglePrecision(documents.prepared) if subspace.noisy else documents.prepared
        for batch, weights in batches():
            sums.update(batch, weights)
            tick()
        return sums

    def _threads(self) -> int:
        return thread_count(self.n_jobs)

    def _length_cap(self, documents: Documents) -> float:
        return LENGTH_CAP * max(documents.totals.mean_length, 1.0)

    def _polish_callback(self) -> Any:
        return None if self.callback is None else self._polish_step

    def _polish_step(self, *_: Any) -> None:
        assert self.callback is not None
        self.callback("polish", np.nan)

    def _tick(self, stage: str) -> Callable[[], None]:
        callback = self.callback
        if callback is None:
            return lambda: None
        return lambda: callback(stage, np.nan)

    def _given_topics(self, rank: int, totals: WordTotals) -> Any:
        topics = np.array(self.init, dtype=np.float64)
        expected = (rank, len(totals.totals))
        if topics.shape != expected:
            raise InvalidInputError(f"init must be topics of shape {expected}, got {topics.shape}")
        if not np.isfinite(topics).all() or (topics < 0).any() or not topics.sum(axis=1).all():
            raise InvalidInputError(
                "init must hold rows of non-negative finite numbers, none of them all zero"
            )
        return topics / topics.sum(axis=1, keepdims=True)

    # ------------------------------------------------------------------ streams

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add a batch of documents, in one pass; topics are found when they are first asked for.

        The first documents are held back until there are enough to fix a subspace; from then on
        only sums are kept. A stream gives the topics of the moments: there are no documents left
        to polish them with.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix
        y : ignored
        sample_weight : (n,) or None
        """
        check_parameters(self, self._parameters)
        if self.n_components == "auto":
            raise InvalidInputError(
                "a stream needs the number of topics before it starts: give n_components as an "
                "integer, or use fit"
            )
        fresh = "_stream" not in self.__dict__
        counts, weights = read_counts(self, X, sample_weight, reset=fresh)
        if fresh:
            self._forget()
            self._stream = TopicStream(
                self.n_features_in_,
                int(self.n_components),
                self._seed(),
                self._threads(),
                concentration=self._assumed_concentration(),
            )
        self._stream.update(counts, weights)
        self._forget_answers()
        return self

    def _seed(self) -> int:
        return int(generator(self.random_state).integers(2**63))

    def spawn(self) -> Self:
        """An empty model that shares this stream's subspace, so that the two can be merged.

        Give it to a second worker, feed both by `partial_fit`, and `merge`.
        """
        if "_stream" not in self.__dict__:
            raise InvalidInputError(
                f"this {type(self).__name__} has no stream to share: call partial_fit first"
            )
        other = type(self)(**self.get_params())
        other.n_features_in_ = self.n_features_in_
        if "feature_names_in_" in self.__dict__:
            other.feature_names_in_ = self.feature_names_in_
        other._stream = self._stream.spawn()
        return other

    def merge(self, other: Self) -> Self:
        """Add the documents that another stream has seen; exact, and `other` is unchanged.

        Both must have been fed by `partial_fit` and share a subspace (`spawn` gives a second
        worker one) or still hold all their documents.
        """
        for name, model in (("self", self), ("other", other)):
            if type(model) is not type(self) or "_stream" not in model.__dict__:
                raise InvalidInputError(
                    f"{name} must be a {type(self).__name__} fed by partial_fit: after fit the "
                    "documents are gone, and topics of two fits cannot be added"
                )
        if other.n_features_in_ != self.n_features_in_:
            raise InvalidInputError(
                f"other has seen {other.n_features_in_} words, but self {self.n_features_in_}: "
                "only streams over the same vocabulary can be merged"
            )
        self._stream.merge(other._stream)
        self._forget_answers()
        return self

    def _read_stream(self) -> None:
        rng = generator(self.random_state)
        stream: TopicStream = self._stream
        self._check_documents(stream.totals)
        self._totals = stream.totals
        sums, subspace = stream.moments(self._threads())
        self._sums, self._subspace = sums, subspace
        self.spectrum_ = subspace.spectrum
        topics = self._start(sums, int(self.n_components), stream.totals, rng)
        self._finish(topics, None, rng, _Clock())
        self.stage_seconds_ = {}

    def _forget(self) -> None:
        self.__dict__.pop("_stream", None)
        self._forget_answers()

    def _forget_answers(self) -> None:
        for name in (*self._lazy, "_sums", "_subspace", "_moments", "_totals"):
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._lazy:
            if name == "certificate_" and "_sums" in self.__dict__:
                self.certificate_ = self._certify()
                return self.certificate_
            if "components_" not in self.__dict__ and "_stream" in self.__dict__:
                self._read_stream()
                return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "components_" in self.__dict__ or "_stream" in self.__dict__

    # ------------------------------------------------------------------ what a model says

    def _refined(self, topics: Any, documents: Documents, rng: np.random.Generator) -> Any:
        """The polished topics."""
        raise NotImplementedError

    def _weigh(self, topics: Any, documents: Documents | None) -> Any:
        """Weights (k,) of the topics, by which they are ordered."""
        raise NotImplementedError

    def _choose_prior(self, unseen: Any) -> None:
        """Settle what the mixtures of documents are found with; nothing unless a model says so."""

    # ------------------------------------------------------------------ from moments to topics

    def _start(self, sums: Any, rank: int, totals: WordTotals, rng: np.random.Generator) -> Any:
        """Topics (k, V) as probabilities, from the moments."""
        self._moments = self._solve(sums, sums.finalize(), rank, rng, self._concentration)
        # What the moments cannot see gets a chance in the polish, and only there.
        smoothing = 0.0 if self.refine == 0 or "_stream" in self.__dict__ else START_SMOOTHING
        return as_probabilities(self._moments.topics, totals.totals, smoothing)

    def _finish(self, topics: Any, documents: Documents | None, rng: Any, clock: _Clock) -> None:
        """Polish the topics on the documents, if any, and set the fitted attributes."""
        self.history_, self.n_iter_ = np.array([]), 1
        self.status_ = "moments only: no polish was asked for"
        if documents is None:
            self.status_ = "moments only: the documents of a stream are gone"
        elif self.refine != 0:
            polished = self._refined(topics.astype(documents.dtype), documents, rng)
            topics = polished.topics.astype(documents.dtype)
            topics /= topics.sum(axis=1, keepdims=True)
            self.history_, self.status_ = polished.history, polished.status
            self.n_iter_ = max(1, polished.n_passes)
            clock.stage("polish")
        unseen = None
        if documents is not None:
            unseen = documents.some_unseen(_JUDGES)
            documents.give_back()
        weights = self._weigh(topics, documents)
        order = np.argsort(-weights, kind="stable")
        self.components_ = np.ascontiguousarray(topics[order])
        self.n_components_ = len(order)
        setattr(self, f"{self._weight_name}_", weights[order])
        self._choose_prior(unseen)
        clock.stage("weights")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        # The closest tag there is to "counts": checks then give whole numbers.
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class _Clock:
    """Wall-clock seconds of the stages, one after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stage(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
