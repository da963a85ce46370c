"""Fitting a hidden Markov model to sequences that come in batches, in a few passes over them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays import generator
from latensor.estimation.hmm.sequence_input import joined, sequence_batch
from latensor.estimation.hmm.stream import SequenceStream
from latensor.estimation.sample_source import SampleBatches
from latensor.exceptions import InvalidInputError
from latensor.moments.sequences import SequenceSample


class SequenceSources:
    """What `fit` does with a source.

    A model gives `_read_part(X, first)` (rows of a pass that still learns what they look like) and
    `_surveyed_stream(source, n_components, rng)` (an empty SequenceStream from such a pass), and
    the hooks of `HiddenMarkovModel`.
    """

    # Rows read into memory, or kept to climb on.
    _row_limit: ClassVar[int] = 100_000
    refine: Any
    random_state: Any
    _stream: SequenceStream
    _read: Any
    _begin: Any
    _prepared: Any
    _fit_rows: Any
    _settle: Any
    _states_wanted: Any
    _sequences_of: Any

    def _fit_source(self, given: Any, lengths: object, sample_weight: object) -> Self:
        if lengths is not None or sample_weight is not None:
            raise InvalidInputError(
                "lengths and sample_weight cannot be matched to a source: give tuples "
                "(rows, lengths, sample_weight) in place of batches"
            )
        source = SampleBatches(given, self._read_first, _n_rows)
        held, complete = source.head(self._row_limit)
        if complete:
            fitted: Self = self._fit_rows(*joined(held))
            return fitted
        del held
        self._begin()
        rng = generator(self.random_state)
        self._stream = self._surveyed_stream(source, self._states_wanted(), rng)
        sample = SequenceSample(self._row_limit)
        source = source.read_by(self._read_again)
        for (rows, sizes), weights in source:
            prepared = self._prepared(rows)
            self._stream.count(prepared, sizes, weights)
            sample.update(prepared, sizes, weights)
        self._stream.fix(self._states_wanted())
        for (rows, sizes), weights in source:
            self._stream.look(self._prepared(rows), sizes, weights)
        self._settle(*sample.finalize(), rng)
        return self

    def _read_first(self, batch: Any, first: bool) -> tuple[Any, Any] | None:
        """A batch ((rows, lengths), weights) of a pass that still learns what rows look like."""
        parts = sequence_batch(batch)
        if parts is None:
            return None
        rows = self._read_part(parts[0], first)
        rows, sizes, weights = self._sequences_of(rows, *parts[1:], enough=False)
        return (rows, sizes), weights

    def _read_again(self, batch: Any, first: bool) -> tuple[Any, Any] | None:
        parts = sequence_batch(batch)
        if parts is None:
            return None
        rows = self._read(parts[0], reset=False)
        rows, sizes, weights = self._sequences_of(rows, *parts[1:], enough=False)
        return (rows, sizes), weights

    def _surveyed_stream(
        self, source: SampleBatches, n_components: int | None, rng: np.random.Generator
    ) -> SequenceStream:
        raise NotImplementedError(f"{type(self).__name__} must say what it must know of a source")

    def _read_part(self, X: object, first: bool) -> Any:
        return self._read(X, reset=first)


def _n_rows(samples: Any) -> int:
    return len(samples[0])
