"""Rows with a target as estimators receive them, in memory or in batches, as one source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import is_array, to_host
from latensor.estimation.row_input import numbered, on_host
from latensor.estimation.sample_source import batched_source, check_unmatched, is_matrix
from latensor.estimation.samples import counts_nothing, host_dtype, read_samples, read_weights
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.pairs import PairReader
from latensor.sources.passes import first_filled
from latensor.sources.rows import RowReader
from latensor.sources.shards import Parts, Reader, Source


@dataclass(frozen=True)
class TargetReader:
    """Batches (X, y) or (X, y, weights), whose targets are looked at by the estimator.

    Attributes
    ----------
    pairs : PairReader
    accept : what the estimator makes of targets (n, t), or refuses them by; None for any numbers
    """

    pairs: PairReader
    accept: Any = None

    def __call__(self, given: Any) -> Parts | None:
        found = self.pairs(given)
        if found is None or self.accept is None:
            return found
        (rows, targets), weights = found
        return (rows, self.accept(targets)), weights


def target_source(
    estimator: Any, X: object, y: object, sample_weight: object, *, reset: bool
) -> Source:
    """Rows and targets in memory, or batches (X, y) or (X, y, sample_weight), as a source.

    The estimator's `n_features_in_`, `_n_targets` and `_dtype` are set from the first batch
    (`reset`) or compared.

    Parameters
    ----------
    estimator : with `_accepted_targets()`
    X, y, sample_weight : what the caller gave; y None where X holds batches
    reset : bool, True where the estimator starts anew
    """

    def read(X: object, y: object, reset: bool) -> tuple[Any, Any]:
        return read_pair(estimator, X, y, reset=reset)

    def reader() -> TargetReader:
        names = getattr(estimator, "feature_names_in_", None)
        owner = type(estimator).__name__
        known = None if names is None else tuple(map(str, names))
        rows = RowReader(estimator.n_features_in_, owner, known)
        pairs = PairReader(rows, RowReader(estimator._n_targets, owner))
        return TargetReader(pairs, estimator._accepted_targets())

    return pair_source(estimator, (X, y, sample_weight), is_pair, read, reader, reset)


def pair_source(
    estimator: Any,
    given: tuple[object, object, object],
    is_batch: Callable[[Any], bool],
    read: Callable[[object, object, bool], tuple[Any, Any]],
    reader: Callable[[], Reader],
    reset: bool,
) -> Source:
    """Two arrays of the same samples, or batches of them, as a source.

    Parameters
    ----------
    estimator : with `_accepted_targets()`
    given : X, y and sample_weight as the caller gave them; y None where X holds batches
    is_batch : tells a batch from other lists
    read : X, y and whether the estimator starts anew -> both as arrays, checked
    reader : what reads every batch, once the first is known
    reset : bool, True where the estimator starts anew
    """
    X, y, sample_weight = given

    def begin(batches: Any) -> None:
        check_unmatched(sample_weight, "triples (X, y, sample_weight)")
        if reset:
            first = first_filled(batches, _counts)
            read(first[0], first[1], True)

    source = batched_source(Kind.TARGETED, X, is_batch, begin, reader) if y is None else None
    if source is not None:
        return source
    rows, targets = read(X, y, reset)
    weights = read_weights(sample_weight, rows)
    known = np.ones(rows.shape[0]) if weights is None else weights
    accept, host = estimator._accepted_targets(), on_host(estimator, targets)
    units = numbered((on_host(estimator, rows), host if accept is None else accept(host)), known)
    return replace(Source.of(Kind.TARGETED, units), original=(rows, targets))


def read_pair(estimator: Any, X: object, y: object, *, reset: bool) -> tuple[Any, Any]:
    """Rows (n, d) in the caller's library and targets (n, t) on the host, of the same samples."""
    rows = read_samples(estimator, X, reset=reset)
    targets = read_samples(estimator, y, name="y", reset=False, target=True)
    host = np.asarray(to_host(targets) if is_array(targets) else targets, dtype=np.float64)
    if rows.shape[0] != host.shape[0]:
        raise InvalidInputError(
            f"X has {rows.shape[0]} samples but y has {host.shape[0]}: every row needs a target"
        )
    if reset:
        estimator._n_targets = host.shape[1]
        estimator._dtype = host_dtype(rows)
    elif host.shape[1] != estimator._n_targets:
        raise InvalidInputError(
            f"y has {host.shape[1]} columns, but {type(estimator).__name__} is expecting "
            f"{estimator._n_targets}"
        )
    return rows, host


def _counts(batch: Any) -> bool:
    """Whether a batch holds a sample of positive weight."""
    return bool(batch[0].shape[0]) and not (len(batch) > 2 and counts_nothing(batch[2]))


def is_pair(value: object) -> bool:
    """Whether a value is a batch (X, y) or (X, y, sample_weight)."""
    return isinstance(value, list | tuple) and len(value) in (2, 3) and is_matrix(value[0])
