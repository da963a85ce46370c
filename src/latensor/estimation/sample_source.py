"""Samples in batches that can be gone over again: what `fit` takes where memory is too small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import scipy.sparse

from latensor.arrays import is_array
from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample


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


def is_matrix(value: object) -> bool:
    """Whether a value is a batch of rows rather than a row."""
    return bool(getattr(value, "ndim", 0) == 2)


def is_weighted_matrix(value: object) -> bool:
    """Whether a value is a batch of rows, or a pair of one and its weights."""
    if isinstance(value, list | tuple):
        return len(value) == 2 and is_matrix(value[0])
    return is_matrix(value)


class SampleBatches:
    """Pairs (samples, weights) of a source, as often as they are needed.

    Every pass checks that it is given as many samples as the first. The first whole pass fills
    `sample`, rows that stand for all of them.

    Parameters
    ----------
    given : batches, as `as_batches` returns them
    read : function of a batch and of whether it is the first of all, to (samples, weights);
        None for a batch without a sample
    n_rows : function of samples to their number
    """

    def __init__(
        self,
        given: Any,
        read: Callable[[Any, bool], tuple[Any, Any] | None],
        n_rows: Callable[[Any], int],
    ) -> None:
        self._given, self._read, self._n_rows = given, read, n_rows
        self._is_read = False
        self._total: int | None = None
        self._record: Callable[[Any, Any], object] | None = None

    def head(self, limit: int) -> tuple[list[tuple[Any, Any]], bool]:
        """The first batches, of at most about `limit` samples, and whether these are all."""
        held, count = [], 0
        for samples, weights in self._batches():
            held.append((samples, weights))
            count += self._n_rows(samples)
            if count > limit:
                return held, False
        if not held:
            raise InvalidInputError("X holds no batch with a sample: give at least one")
        return held, True

    def recorded(self, sample: RowSample, as_rows: Callable[[Any], Any]) -> SampleBatches:
        """The same, with the rows of the next whole pass added to a sample."""
        self._record = lambda samples, weights: sample.update(as_rows(samples), weights)
        return self

    def read_by(self, read: Callable[[Any, bool], tuple[Any, Any] | None]) -> SampleBatches:
        """The same batches, read in another way; they must stay as many as they have been."""
        again = SampleBatches(self._given, read, self._n_rows)
        again._total = self._total
        return again

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        record, self._record = self._record, None
        seen = 0
        for samples, weights in self._batches():
            seen += self._n_rows(samples)
            if record is not None:
                record(samples, weights)
            yield samples, weights
        if self._total is None:
            self._total = seen
        elif seen != self._total:
            raise InvalidInputError(
                f"X gave {self._total} samples on the first pass and {seen} now: it must give the "
                "same batches each time"
            )

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        for batch in self._given:
            found = self._read(batch, not self._is_read)
            if found is not None:
                self._is_read = True
                yield found
