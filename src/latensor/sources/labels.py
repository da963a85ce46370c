"""Documents in partitions with what stands beside them: dates, groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.partitioned_documents import TextReader
from latensor.sources.partitions import Partitioned
from latensor.sources.records import Layout, columns_of, pieces_as
from latensor.sources.shards import Parts, Source


@dataclass(frozen=True, eq=False)
class LabelledShard:
    """One partition as batches of pairs: documents, and their labels (n, l) as texts.

    Attributes
    ----------
    pieces : re-iterable of columns by name
    layout : Layout, with `labels`
    name : str, what error messages call the partition
    """

    pieces: Iterable[Any]
    layout: Layout
    name: str

    def __iter__(self) -> Iterator[Any]:
        for piece in self.pieces:
            columns = columns_of(piece)
            names = self.layout.labels or ()
            labels = np.empty((len(columns[names[0]]), len(names)), dtype=object)
            for number, name in enumerate(names):
                labels[:, number] = columns[name]
            for documents in pieces_as(columns, Kind.DOCUMENTS, self.layout):
                yield documents, labels


@dataclass(frozen=True, eq=False)
class LabelReader:
    """Batches of documents with labels as parts (counts, labels), or as labels alone.

    Attributes
    ----------
    counts : TextReader, or None where the documents do not matter
    """

    counts: TextReader | None = None

    def __call__(self, given: Any) -> Parts | None:
        documents, labels = given
        if not len(labels):
            return None
        if self.counts is None:
            return (labels,), np.ones(len(labels))
        found = self.counts(documents)
        assert found is not None
        return (*found[0], labels), found[1]


def labelled(given: Partitioned, engine: Any, counts: TextReader | None = None) -> Source:
    """Partitions of documents with their labels, as a source for a fold."""
    if not given.layout.labels:
        raise InvalidInputError("no column of labels was named: give labels=[...]")
    pairs = zip(given.parts, given.names, strict=True)
    shards = tuple(LabelledShard(part, given.layout, name) for part, name in pairs)
    return Source(Kind.DOCUMENTS, shards, LabelReader(counts), engine=engine, partitioned=True)
