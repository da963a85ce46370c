"""Rows with a target as estimators receive them, in memory or in batches, as one source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import is_array, to_host
from latensor.engines import engine_of
from latensor.estimation.row_input import check_unmatched, numbered, on_host
from latensor.estimation.sample_source import as_batches, is_matrix
from latensor.estimation.samples import counts_nothing, host_dtype, read_samples, read_weights
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.pairs import PairReader
from latensor.sources.partitions import Partitioned
from latensor.sources.passes import first_filled
from latensor.sources.rows import RowReader
from latensor.sources.shards import Parts, Source


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
    parts = X if isinstance(X, Partitioned) and y is None else None
    batches = as_batches(X, _is_pair) if y is None else None
    if parts is not None:
        batches = parts.heads(Kind.TARGETED)
    if batches is None:
        rows, targets = read_pair(estimator, X, y, reset=reset)
        weights = read_weights(sample_weight, rows)
        known = np.ones(rows.shape[0]) if weights is None else weights
        units = numbered((on_host(estimator, rows), _accepted(estimator, targets)), known)
        return replace(Source.of(Kind.TARGETED, units), original=(rows, targets))
    check_unmatched(sample_weight)
    if reset:
        first = first_filled(batches, _counts)
        read_pair(estimator, first[0], first[1], reset=True)
    names = getattr(estimator, "feature_names_in_", None)
    owner = type(estimator).__name__
    readers = PairReader(
        RowReader(
            estimator.n_features_in_, owner, None if names is None else tuple(map(str, names))
        ),
        RowReader(estimator._n_targets, owner),
    )
    reader = TargetReader(readers, estimator._accepted_targets())
    if parts is not None:
        return parts.source(Kind.TARGETED, reader, engine_of(parts))
    copies = not isinstance(batches, list | tuple)
    return Source(Kind.TARGETED, (batches,), reader, copies=copies)


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


def _accepted(estimator: Any, targets: Any) -> Any:
    accept = estimator._accepted_targets()
    return targets if accept is None else accept(targets)


def _counts(batch: Any) -> bool:
    """Whether a batch holds a sample of positive weight."""
    return bool(batch[0].shape[0]) and not (len(batch) > 2 and counts_nothing(batch[2]))


def _is_pair(value: object) -> bool:
    """Whether a value is a batch (X, y) or (X, y, sample_weight)."""
    return isinstance(value, list | tuple) and len(value) in (2, 3) and is_matrix(value[0])
