"""`transform`, `predict` and their kin on collections: a collection in, a collection out."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.metaestimators import available_if

from latensor.engines import engine_of
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.collections import as_partitioned, framework_of
from latensor.sources.partitioned_documents import TextReader, WordReader, is_text
from latensor.sources.partitions import Partitioned, Shard
from latensor.sources.records import Layout, pieces_as

# Methods that answer unit by unit.
_PER_UNIT = (
    "transform",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
)


def answer_collections(cls: type) -> None:
    """Let the methods of an estimator class that answer unit by unit take collections, too."""
    for name in _PER_UNIT:
        method = getattr(cls, name, None)
        if method is None or hasattr(method, "_takes_collections"):
            continue
        answer: Any = _taking_collections(name, method)
        # A method that only some instances have stays one.
        condition = getattr(cls.__dict__.get(name), "check", None)
        if condition is not None:
            answer = available_if(condition)(answer)
        setattr(cls, name, answer)


def _taking_collections(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def answer(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(X, Partitioned) or framework_of(X) is not None or _is_list_of_dask(X):
            return collection_of_answers(self, name, X, *arguments, **options)
        return method(self, X, *arguments, **options)

    answer._takes_collections = True  # type: ignore[attr-defined]
    return answer


def _is_list_of_dask(X: Any) -> bool:
    return isinstance(X, list | tuple) and len(X) > 0 and framework_of(X[0]) == "dask"


@dataclass(frozen=True, eq=False)
class UnitInference:
    """What a method of a fitted model says about pieces of partitions; a picklable value.

    Attributes
    ----------
    model : without what only a stream needs
    method : str
    kind, layout : what the units are, and which columns are meant
    """

    model: Any
    method: str
    kind: Kind
    layout: Layout

    def __call__(self, piece: Any) -> Any:
        """The answers for a piece, one after the other."""
        found = [self._answer(batch) for batch in pieces_as(piece, self.kind, self.layout)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def of_shard(self, shard: Shard) -> Any:
        """The answers for a whole partition."""
        return np.concatenate([self._answer(batch) for batch in shard])

    def _answer(self, batch: Any) -> Any:
        method = getattr(self.model, self.method)
        if self.kind is Kind.DOCUMENTS:
            documents = batch[0] if isinstance(batch, tuple) else batch
            if not is_text(documents):
                return method(documents)
            if self.model.vocabulary_ is None:
                raise InvalidInputError("X holds text, but the model knows no words: give counts")
            words = WordReader(self.layout.tokenizer)
            read = TextReader.of(words, self.model.vocabulary_)(documents)
            assert read is not None
            return method(read[0][0])
        if self.kind in (Kind.ROWS, Kind.GRAPH):
            rows = batch[0] if isinstance(batch, tuple) else batch
            if scipy.sparse.issparse(rows) and not self.model._takes_sparse:
                rows = rows.toarray()
            return method(rows)
        if self.kind is Kind.VIEWS or not isinstance(batch, tuple):
            return method(batch)
        return method(*batch[:2])


@dataclass(frozen=True, eq=False)
class PartitionedInference:
    """The answers for partitions that are read here: one array for each, worked out as needed."""

    answers: UnitInference
    shards: tuple[Shard, ...]

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[Any]:
        return map(self.answers.of_shard, self.shards)


def collection_of_answers(model: Any, method: str, X: Any, *arguments: Any, **options: Any) -> Any:
    """Answers as a Dask array or bag, a Spark frame with one more column, or a re-iterable."""
    given, *rest = as_partitioned(X, *arguments[:1])
    if options or len(arguments) > 1 or any(value is not None for value in rest):
        raise InvalidInputError(f"{method} of a collection takes nothing but the collection")
    kind = model._model().kind
    answers = UnitInference(without_stream(model), method, kind, given.layout)
    if given.engine == "local":
        return PartitionedInference(answers, given.shards(kind))
    head = next((h for h in given.heads(kind, 8)), None)
    if head is None:
        raise InvalidInputError("X holds no sample: give at least one")
    example = answers._answer(head)
    holder: Any = engine_of(given)  # of a collection, which alone has answers
    return holder.answers(given, answers, example)


def without_stream(model: Any) -> Any:
    """A model that answers, without sums and samples, which need not travel."""
    for name in model._fitted_names:
        getattr(model, name, None)
    light = copy.copy(model)
    for name in ("_stream", "_answer"):
        light.__dict__.pop(name, None)
    if "callback" in light.__dict__:
        light.callback = None
    return light
