"""fit, partial_fit, merge, spawn: written once, for every model.

An estimator class stores its parameters, names their ranges and its fitted attributes, and builds
the frozen model of its settings (`_model`). All that touches data goes through `learn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array
from latensor.engines import Engine, LocalEngine
from latensor.estimation.checkpoint import Checkpoint, checkpoint_of
from latensor.estimation.collection_inference import answer_collections
from latensor.estimation.convergence import warn_unconverged
from latensor.estimation.files import SavedEstimator
from latensor.estimation.learn import Learned, learn, streamed
from latensor.estimation.model import Answer, Effort, Frame, Model
from latensor.estimation.parameter_intervals import Bootstrap, ParameterInterval, resample
from latensor.estimation.parameters import check_parameters, parameter_ranges
from latensor.estimation.row_input import read_new, row_source
from latensor.estimation.run import Counted, Run, seed_of
from latensor.estimation.selection import with_halves
from latensor.estimation.stream import Stream
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.sums import Joint
from latensor.sources.collections import as_partitioned
from latensor.sources.shards import Source
from latensor.whole_files import PathLike

# Parameters that say how a fit runs, not what is fitted.
_NOT_OF_THE_MODEL = frozenset(
    {"random_state", "n_jobs", "verbose", "warm_start", "callback", "max_iter", "tol", "n_init"}
)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two settings are equal; arrays by their entries."""
    if hasattr(one, "shape") or hasattr(other, "shape"):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    return one is other or bool(one == other)


class UndeterminedAttributeError(AttributeError, NotIdentifiableError):
    """A fitted attribute that the data do not determine: `hasattr` says no, an access says why."""


class UnusableAttributeError(AttributeError, InvalidInputError):
    """A fitted attribute that samples so far cannot give: too few, or out of range."""


Method = TypeVar("Method", bound=Callable[..., Any])
# What needs that more samples can follow those that were seen.
_OF_STREAMS = ("partial_fit", "merge", "spawn")


def while_open(method: Method) -> Method:
    """A method that is there as long as more samples can follow, as scikit-learn asks of one."""
    return available_if(lambda self: self._check_open() is None)(method)  # type: ignore[no-any-return]


class LatentEstimator(SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Base of every model.

    A subclass lists its parameters (`latensor.estimation.parameters`) and defines

    _fitted_names : the names of its fitted attributes
    _model() : the frozen `Model` of its settings
    _attributes(answer, frame) : fitted attributes by name, components in their fixed order

    and where its units are not rows, `_source`.
    """

    _fitted_names: ClassVar[frozenset[str]] = frozenset()
    _takes_sparse: ClassVar[bool] = False
    _allows_missing: ClassVar[bool] = False
    _min_samples: ClassVar[int] = 1
    # What an error says after targets that are text.
    _for_labels: ClassVar[str] = "; for classes take a classifier"
    # What else the first batch says about the data: a spawned worker knows it too.
    _input_names: ClassVar[tuple[str, ...]] = ()
    # Attributes that two models must share to be merged.
    _same_to_merge: ClassVar[tuple[str, ...]] = ("n_features_in_",)
    # Why no samples can follow those of a fit; "" where they can.
    _closed: ClassVar[str] = ""
    # Units that every group of a bootstrap needs, on average.
    _units_per_group: ClassVar[int] = 2
    # Parameters that have intervals with the values they can take, and what tells components apart.
    _intervals_of: ClassVar[tuple[Mapping[str, tuple[float, float]], str]] = ({}, "")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        answer_collections(cls)

    # ------------------------------------------------------------------ what a model says
    def _model(self) -> Model[Any]:
        raise NotImplementedError(f"{type(self).__name__} must build its model")

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must name what it has found")

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        """Whatever the caller gave as a source, checked."""
        return row_source(self, X, sample_weight, reset=reset)

    def _read_source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        """The same, collections of Dask among them."""
        return self._source(*as_partitioned(X, y, sample_weight), reset=reset)

    def _accepted_rows(self) -> Callable[[Any], Any] | None:
        """What is made of rows as they are read, or refuses them; None for any numbers."""
        return None

    def _accepted_targets(self) -> Callable[[Any], Any] | None:
        """What is made of targets (n, t) as they are read, or refuses them; None for any."""
        return None

    def _divided(self, source: Source, n_groups: int) -> Source:
        """The units that a bootstrap draws from, where those of the source are too few."""
        return source

    def _effort(self) -> Effort:
        return Effort(
            getattr(self, "refine", "auto"),
            getattr(self, "max_iter", Effort.max_iter),
            getattr(self, "tol", Effort.tol),
        )

    def _begin(self) -> None:
        """Keep what is needed of attributes that were set before data came."""

    def _given(self, source: Source) -> Any:
        """A state to start from in place of moments and search; None where none is given."""
        return None

    # ------------------------------------------------------------------ fitting
    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        callback: Callable[[str, int], object] | None = None,
        checkpoint: PathLike | None = None,
    ) -> Self:
        """Learn the model; a fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : (n, d) array or frame; or a source: a list of such batches, or an object whose
            `__iter__` yields them anew each time, gone over in constant memory. A source is fitted
            as well as its rows in one array are
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice. With
            a source, pairs (batch, sample_weight) stand in place of batches
        callback : called with the name and the number of every pass over the data, once with 0
            where data in memory are fitted without; where it has a method `partition`, that is
            called with the name and the fraction of the partitions that are done
        checkpoint : folder in which a fit that is ended at any moment leaves what it has done, so
            that the same call goes on from there and ends with the same bits; needs an integer
            random_state
        """
        self._check_parameters()
        with self._restored_on_failure():
            self._begin()
            source = self._read_source(X, y, sample_weight, reset=True)
            journal = None if checkpoint is None else checkpoint_of(self, source, checkpoint)
            return self._fit_source(source, callback, journal)

    def _fit_source(
        self,
        source: Source,
        callback: Callable[[str, int], object] | None = None,
        journal: Checkpoint | None = None,
    ) -> Self:
        if self._min_samples > 1:
            self._check_count(source.count_up_to(self._min_samples))
        self._forget(everything=True)
        stream = Stream(seed_of(self.random_state))
        run = Run(
            source, stream.seed, engine=self._engine(source), journal=journal, callback=callback
        )
        model = self._model()
        try:
            learned = learn(run, model, self._effort(), given=self._given(source))
        finally:
            run.release()
        count = run.n_units if run.n_folds else len(source.in_memory or ())
        self._stream = replace(stream.fixed_by(learned, model.stream_size), count=count)
        self._adopt(learned.answer, learned.frame)
        self._warn(learned.answer)
        return self

    @while_open
    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add samples; parameters are worked out when they are first asked for.

        After `fit` the stream goes on from the fit: what it then gives is refined by all samples.
        A fit that keeps no sums to go on with has no `partial_fit`, `merge` or `spawn`.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
        """
        self._check_parameters()
        self._check_not_loaded("partial_fit")
        with self._restored_on_failure():
            if not self._has_started():
                self._begin()
            source = self._read_source(X, y, sample_weight, reset=not self._has_started())
            self._model().check_streaming()
            stream: Stream = self.__dict__.get("_stream") or Stream(seed_of(self.random_state))
            try:
                return self._add(source, self._resumed(stream))
            finally:
                self._engine(source).release(source)

    def _add(self, source: Source, stream: Stream) -> Self:
        fresh = source.salted(stream.salt).numbered_from(stream.count)
        if stream.sums is not None:
            seen = self._engine(source).fold(fresh, Counted(stream.sums.empty()))
            sums, count = stream.sums.merge(seen.inner), stream.count + seen.count
            self._stream = replace(stream, sums=sums, count=count)
        elif fresh.reaches(self._model().is_pilot, stream.held):
            self._stream = self._framed(stream, fresh.following(stream.held))
        else:
            self._stream = stream.holding(fresh.owned())
        self._forget()
        return self

    @while_open
    def merge(self, other: Self) -> Self:
        """Add the samples that another model of the same kind has seen; `other` is unchanged.

        Exact for models that share their coordinates (`spawn`), and for those that have not seen
        enough samples yet to choose any.
        """
        name = type(self).__name__
        self._check_not_loaded("merge")
        for role, model in (("self", self), ("other", other)):
            if type(model) is not type(self) or not model._has_started():
                raise InvalidInputError(f"{role} must be a {name} that has seen samples")
        for attribute in self._same_to_merge:
            mine, theirs = getattr(self, attribute), getattr(other, attribute)
            if mine != theirs:
                raise InvalidInputError(
                    f"other has seen {theirs} features, but self {mine}: only models of the same "
                    "features can be merged"
                )
        self._check_alike(other)
        mine, theirs = self._resumed(self._stream), self._resumed(other._stream)
        if mine.frame is None and theirs.frame is not None:
            mine = self._summed(mine, theirs)
        elif theirs.frame is None and mine.frame is not None:
            theirs = self._summed(theirs, mine)
        self._stream = self._fixed(mine.merged(theirs))
        self._forget()
        return self

    def _check_alike(self, other: Self) -> None:
        """Refuse a model of other settings, or of features of other names."""
        mine, theirs = self.get_params(deep=False), other.get_params(deep=False)
        for name in sorted(mine.keys() - _NOT_OF_THE_MODEL):
            if not _is_same(mine[name], theirs[name]):
                raise InvalidInputError(
                    f"other has {name}={theirs[name]!r}, but self {name}={mine[name]!r}: only "
                    "models of the same settings can be merged"
                )
        ours, others = (getattr(model, "feature_names_in_", ()) for model in (self, other))
        for place, (one, two) in enumerate(zip(ours, others, strict=False)):
            if one != two:
                raise InvalidInputError(
                    f"feature {place} of other is {two!r}, but {one!r} of self: only models of the "
                    "same features can be merged"
                )

    @while_open
    def spawn(self) -> Self:
        """An empty model for a second worker, whose samples can be merged into this one exactly.

        It has the same parameters and the same coordinates, which are fixed now if they were not.
        """
        if not self._has_started():
            raise InvalidInputError("self must have seen samples: call partial_fit or fit first")
        self._stream, stream = self._fixed(self._resumed(self._stream), now=True).spawned()
        worker: Self = clone(self)
        for name in self._names_of_input():
            if name in self.__dict__:
                setattr(worker, name, self.__dict__[name])
        worker._stream = stream
        return worker

    def intervals(
        self,
        X: object,
        y: object = None,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for all parameters, by a bootstrap of groups of samples: one pass over them.

        The intervals of a refined fit are those of its likelihood: resampled statistics, and how
        far the optimum moves with them. Those of moments alone come from resampled moments.

        Parameters
        ----------
        X, y : samples of the fitted model, usually those it was fitted to; sources too
        level : float between 0 and 1, the fraction of intervals that hold the truth
        n_resamples : int
        n_groups : int

        Returns
        -------
        The fitted attributes, by name without the underscore at the end, -> ParameterInterval of
        that shape
        """
        check_is_fitted(self)
        settings = Bootstrap.of(level, n_resamples, n_groups)
        source = self._read_source(X, y, None, reset=False)
        if not self._has_started() or not self._intervals_of[0]:
            raise InvalidInputError(
                f"{type(self).__name__} has no intervals"
                if not self._intervals_of[0]
                else "intervals need a model that was learnt by fit or partial_fit"
            )
        self._model().check_intervals()
        answer, frame = self._found()
        source = self._divided(source, settings.n_groups)
        run = Run(source, self._stream.seed, engine=self._engine(source))
        needed = self._units_per_group * settings.n_groups
        count = source.count_up_to(needed)
        if count < needed:
            raise InvalidInputError(
                f"n_groups={n_groups} needs at least {needed} samples, X has {count}"
            )
        ranges, match_by = self._intervals_of
        try:
            return resample(run, self._model(), frame, answer, settings, ranges, match_by)
        finally:
            run.release()

    # ------------------------------------------------------------------ streams
    def _check_open(self) -> None:
        """Refuse samples after those that were seen, where the model cannot take them."""
        if self._closed:
            raise InvalidInputError(self._closed)
        stream = self.__dict__.get("_stream")
        if stream is not None and stream.answer is not None:
            self._model().check_resuming(stream.answer)

    def _resumed(self, stream: Stream) -> Stream:
        """The stream with the sums that an answer found at once stands for."""
        if stream.answer is None or stream.frame is None:
            return stream
        self._model().check_resuming(stream.answer)
        resumed = self._model().resumed(stream.frame, stream.answer)
        frame = replace(stream.frame, values={**stream.frame.values, **resumed.values})
        return replace(stream, frame=frame, sums=Joint(resumed.moments), answer=None)

    def _fixed(self, stream: Stream, now: bool = False) -> Stream:
        """The stream with its coordinates chosen, once it holds enough units to do so."""
        if stream.frame is not None or not (now or self._model().is_pilot(stream.held)):
            return stream
        return self._framed(stream, Source.of(self._model().kind, *stream.held))

    def _framed(self, stream: Stream, source: Source) -> Stream:
        """The stream in coordinates chosen from all units of a source, none of which it holds."""
        run = Run(source, stream.seed, engine=self._engine(source))
        try:
            learned = learn(run, self._model(), self._effort(), streaming=True)
        finally:
            run.release()
        fixed = stream.fixed_by(learned, self._model().stream_size)
        return replace(fixed, count=run.n_units)

    def _summed(self, stream: Stream, framed: Stream) -> Stream:
        """A stream that still holds its units, in the coordinates of another one."""
        assert framed.sums is not None
        kind = self._model().kind
        sums = LocalEngine(self._n_jobs()).fold(Source.of(kind, *stream.held), framed.sums.empty())
        return replace(stream, held=(), frame=framed.frame, sums=sums)

    def _held_run(self, stream: Stream) -> Run:
        units = stream.held
        if stream.sums is not None and "sample" in stream.sums:
            units = (stream.sums["sample"].in_order(),)
        source = Source.of(self._model().kind, *units)
        return Run(source, stream.seed, engine=LocalEngine(self._n_jobs()))

    def _found(self) -> tuple[Answer[Any], Frame]:
        """The answer of all that was seen; looking changes nothing but a cache."""
        if "_answer" not in self.__dict__:
            stream: Stream = self._stream
            run, model = self._held_run(stream), self._model()
            if stream.answer is not None and stream.frame is not None:
                self._answer = stream.answer, stream.frame
            elif stream.all_in_memory:
                learned: Learned[Any] = learn(run, model, self._effort())
                self._answer = learned.answer, learned.frame
            else:
                assert stream.frame is not None
                assert stream.sums is not None
                found = streamed(run, model, stream.frame, stream.sums, self._effort())
                self._answer = found, stream.frame
        answer: tuple[Answer[Any], Frame] = self._answer
        return answer

    def _adopt(self, answer: Answer[Any], frame: Frame) -> None:
        self._answer = answer, frame
        for name, value in self._attributes(answer, frame).items():
            setattr(self, name, value)
        if frame.values.get("selection") is not None:
            self.selection_ = frame["selection"]
            certificate = self.__dict__.get("certificate_")
            # Units that came later were in neither half.
            all_seen = self._stream.count <= frame.values.get("units of selection", 0)
            if certificate is not None and all_seen:
                self.certificate_ = with_halves(certificate, self.selection_)

    def _warn(self, answer: Answer[Any]) -> None:
        if not answer.converged and isinstance(self._effort().refine, str):
            warn_unconverged(
                f"{type(self).__name__} stopped after {answer.n_iter} passes of EM before the "
                f"log-likelihood was within tol={self._effort().tol:g} of its optimum: raise "
                "max_iter, or lower n_components"
            )

    def _check_count(self, count: int) -> None:
        if count < self._min_samples:
            raise InvalidInputError(
                f"X has {count} sample(s) while a minimum of {self._min_samples} is required by "
                f"{type(self).__name__}: give more samples"
            )

    # ------------------------------------------------------------------ inside
    def _check_parameters(self) -> None:
        check_parameters(self, parameter_ranges(type(self)))

    def _n_jobs(self) -> int | None:
        return getattr(self, "n_jobs", None)

    def _engine(self, source: Source) -> Engine:
        found: Engine = source.engine or LocalEngine(self._n_jobs())
        return found

    def _read_new(self, X: object) -> tuple[Array, Any]:
        """Samples for a fitted model: as the caller gave them, and on the host."""
        check_is_fitted(self)
        return read_new(self, X)

    @contextmanager
    def _restored_on_failure(self) -> Iterator[None]:
        """Everything as it was before, where what follows fails or is interrupted.

        All that an estimator holds is replaced, never changed: names are enough.
        """
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _forget(self, everything: bool = False) -> None:
        gone = ("_stream", "_is_loaded") if everything else ()
        for name in ("_answer", *self._names_of_fit(), *gone):
            self.__dict__.pop(name, None)

    def _check_stream(self, stream: object) -> None:
        if not isinstance(stream, Stream):
            raise InvalidInputError(f"its stream is a {type(stream).__name__}")

    def _has_started(self) -> bool:
        return "_stream" in self.__dict__

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_started() or not self._fitted_names.isdisjoint(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_STREAMS:
            try:
                self._check_open()
            except InvalidInputError as error:
                raise UnusableAttributeError(f"{name}: {error}") from error
        if name in type(self)._names_of_fit() and "_stream" in self.__dict__:
            if not self._stream.count:
                raise AttributeError(f"{type(self).__name__} has seen no samples yet: no {name!r}")
            try:
                self._adopt(*self._found())
            except NotIdentifiableError as error:
                raise UndeterminedAttributeError(str(error)) from error
            except InvalidInputError as error:
                raise UnusableAttributeError(str(error)) from error
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        tags.input_tags.allow_nan = self._allows_missing
        return tags


def component_order(weights: Any, vectors: Any) -> Any:
    """The fixed order (k,) of components: by decreasing weight, ties by their first large entry.

    Weights that agree to nine digits tie; then the component whose first entry above half of its
    largest magnitude comes earlier, or is larger at the same place, goes first.

    Parameters
    ----------
    weights : (k,) array
    vectors : (k, d) array, what the components are
    """
    weights = np.asarray(weights, dtype=np.float64)
    vectors = np.asarray(vectors, dtype=np.float64)
    magnitudes = np.abs(vectors)
    large = magnitudes > magnitudes.max(axis=1, keepdims=True) / 2
    first = np.argmax(large, axis=1)
    value = vectors[np.arange(len(vectors)), first]
    largest = float(np.abs(weights).max()) or 1.0
    rounded = np.round(weights / largest, 9)
    return np.lexsort((-value, first, -rounded))
