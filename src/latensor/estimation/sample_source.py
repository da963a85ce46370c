"""Samples in batches that can be gone over again: what `fit` takes where memory is too small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import scipy.sparse

from latensor.arrays import is_array
from latensor.engines import engine_of
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.sources.partitions import Partitioned
from latensor.sources.shards import Reader, Source


def as_batches(given: object, is_batch: Callable[[Any], bool]) -> Any:
    """Batches, where that is what the caller gave, or None for samples in memory.

    Parameters
    ----------
    given : a list or tuple of batches, an object whose `__iter__` starts anew each time, or
        whatever else `fit` takes
    is_batch : tells a batch from a row or a view in a list

    Raises
    ------
    InvalidInputError, for an iterator that can be read only once.
    """
    if isinstance(given, list | tuple):
        return given if len(given) and is_batch(given[0]) else None
    if (
        isinstance(given, str | bytes | dict | set | frozenset)
        or scipy.sparse.issparse(given)
        or is_array(given)
        or not hasattr(given, "__iter__")
        or any(hasattr(given, name) for name in ("__array__", "__dataframe__", "shape"))
    ):
        return None
    if iter(given) is given:
        raise InvalidInputError(
            f"X is a {type(given).__name__}, which can be read only once, but fit goes over the "
            "samples twice: give a list of batches, or an object whose __iter__ starts anew; or "
            "call partial_fit with every batch"
        )
    return given


def batched_source(
    kind: Kind,
    X: object,
    is_batch: Callable[[Any], bool],
    begin: Callable[[Any], Batch | None],
    reader: Callable[[], Reader],
) -> Source | None:
    """Batches or partitions as a source; None for samples in memory.

    Parameters
    ----------
    kind : what the batches hold
    X : whatever `fit` takes
    is_batch : tells a batch from a row or a view in a list
    begin : looks at the batches before they are read; gives the first one where it has read it
    reader : what reads every batch, once the first is known
    """
    held = X if isinstance(X, Partitioned) else None
    batches = as_batches(X, is_batch) if held is None else held.heads(kind)
    if batches is None:
        return None
    first = begin(batches)
    if held is not None:
        return held.source(kind, reader(), engine_of(held))
    # A list holds all its batches at once; whatever makes them anew may use one buffer.
    source = Source(kind, (batches,), reader(), copies=not isinstance(batches, list | tuple))
    if first is None:
        return source
    # Kept, so that nobody has to read it again.
    long = len(first) >= kind.block
    return replace(source, first=first.take(slice(0, kind.block)) if long else source.head())


def check_unmatched(
    sample_weight: object, instead: str = "pairs (batch, sample_weight) in place of batches"
) -> None:
    """Refuse weights beside a source."""
    if sample_weight is not None:
        raise InvalidInputError(f"sample_weight cannot be matched to a source: give {instead}")


def is_matrix(value: object) -> bool:
    """Whether a value is a batch of rows rather than a row."""
    return bool(getattr(value, "ndim", 0) == 2)


def is_weighted_matrix(value: object) -> bool:
    """Whether a value is a batch of rows, or a pair of one and its weights."""
    if isinstance(value, list | tuple):
        return len(value) == 2 and is_matrix(value[0])
    return is_matrix(value)
