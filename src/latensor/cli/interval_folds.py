"""Dates and groups of documents in many files: what whoever holds the files sums of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.cli.column_span import ColumnSpan
from latensor.cli.intervals import Scale, missing, scale_of
from latensor.cli.refusal import Refusal
from latensor.engines import LocalEngine, engine_of
from latensor.estimation.collection_inference import without_stream
from latensor.exceptions import InvalidInputError
from latensor.models.topics.intervals import TopicFractions, fraction_sums, fractions_of
from latensor.moments.batch import Batch
from latensor.moments.sums import Folded, Sums, Tree
from latensor.sources.labels import labelled
from latensor.sources.partitioned_documents import TextReader, WordReader
from latensor.sources.partitions import Partitioned


@dataclass(frozen=True, eq=False)
class SpanSums(Folded):
    """What the columns of labels hold."""

    spans: tuple[ColumnSpan, ...]

    def empty(self) -> SpanSums:
        """Nothing seen."""
        return SpanSums((ColumnSpan(),) * len(self.spans))

    def update(self, batch: Batch) -> SpanSums:
        """With the labels of more documents."""
        columns = batch.rows.T
        return SpanSums(tuple(s.seen(texts) for s, texts in zip(self.spans, columns, strict=True)))

    def merge(self, other: SpanSums) -> SpanSums:
        """With what was seen elsewhere."""
        pairs = zip(self.spans, other.spans, strict=True)
        return SpanSums(tuple(one.merge(more) for one, more in pairs))

    def message(self) -> Tree:
        """What travels."""
        return self.spans

    def received(self, message: Tree) -> SpanSums:
        """What has travelled."""
        return SpanSums(message)


@dataclass(frozen=True, eq=False)
class IntervalSums(Sums):
    """The topics of the documents of every interval and group.

    Attributes
    ----------
    model : fitted topic model
    scales : of the columns of labels
    """

    model: Any
    scales: tuple[Scale, ...]

    def summed(self, batch: Batch) -> dict[str, Any]:
        """What the documents of a batch add, by column."""
        counts, labels = batch.parts
        mixtures = self.model.transform(counts)
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        return {
            str(number): fraction_sums(
                scale.places(labels[:, number]), mixtures, lengths, len(scale.labels)
            )
            for number, scale in enumerate(self.scales)
        }

    def finalize(self) -> list[TopicFractions]:
        """The fractions, by column."""
        sums = self.seen()
        return [
            fractions_of(sums[str(number)], scale.labels)
            for number, scale in enumerate(self.scales)
        ]


class LabelledFiles:
    """The dates and groups of documents in many files, known before anything is learned.

    Parameters
    ----------
    source : Partitioned, whose layout names the labels
    columns : kind, option and name of each of them
    jobs : int or None, threads of the local engine
    """

    def __init__(
        self, source: Partitioned, columns: Sequence[tuple[str, str, str]], jobs: int | None
    ) -> None:
        self._source, self._columns = source, columns
        self._held_by = engine_of(source)
        self._engine = self._held_by or LocalEngine(jobs)
        start = SpanSums((ColumnSpan(),) * len(columns))
        spans = self._engine.fold(labelled(source, self._held_by), start, keep=False).spans
        self.missing = missing(columns, spans)
        self._scales = tuple(
            scale_of(kind, f"{option}={name}", span)
            for (kind, option, name), span in zip(columns, spans, strict=True)
        )

    def fractions(self, model: Any) -> dict[tuple[str, str], TopicFractions]:
        """The topics of every interval and group, by kind and name of the column."""
        words = WordReader(self._source.layout.tokenizer)
        counted = labelled(self._source, self._held_by, TextReader.of(words, model.vocabulary_))
        start = IntervalSums(without_stream(model), self._scales)
        found = self._engine.fold(counted, start, keep=False).finalize()
        keys = [(kind, name) for kind, _, name in self._columns]
        return dict(zip(keys, found, strict=True))


@contextmanager
def options_named(columns: Sequence[tuple[str, str, str]]) -> Iterator[None]:
    """Let an error that names a column say which option it came from."""
    try:
        yield
    except InvalidInputError as error:
        for _, option, name in columns:
            if re.search(rf"has no (column )?{re.escape(repr(name))}", str(error)):
                raise Refusal(f"{error}: choose one with {option}") from None
        raise
