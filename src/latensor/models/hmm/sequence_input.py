"""Rows of sequences as estimators receive them: symbols or points, in memory or in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import is_array, read_numpy, to_host
from latensor.arrays.masked import unmasked
from latensor.estimation.sample_source import batched_source
from latensor.estimation.samples import counts_nothing
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.sources.passes import first_filled
from latensor.sources.rows import RowReader
from latensor.sources.sequences import SequenceReader, batch_parts, cut_sequences
from latensor.sources.shards import Source

# Numbers of symbols that look like names rather than like 0..d-1.
_MANY_KINDS, _KINDS_PER_ROW = 1_000_000, 100
# Magnitudes whose squares, added up, are still numbers.
_LARGEST = 1e150
# What stands for a symbol that was not observed.
MISSING = -1


def sequence_source(
    X: object,
    lengths: object,
    sample_weight: object,
    read: Callable[[Any, bool], Any],
    reader: Callable[[], Callable[[Any], Any]],
) -> Source:
    """Rows with lengths, a list of batches or a re-iterable as a source.

    Parameters
    ----------
    X, lengths, sample_weight : what the caller gave
    read : reads rows in memory, and the first batch of a source (True)
    reader : what reads the rows of the batches of a source once the first one is known
    """

    def begin(batches: Any) -> None:
        if lengths is not None or sample_weight is not None:
            raise InvalidInputError(
                "lengths and sample_weight cannot be matched to a source: give tuples "
                "(rows, lengths, sample_weight) in place of batches"
            )
        read(batch_parts(first_filled(batches, _is_filled))[0], True)

    source = batched_source(
        Kind.SEQUENCES, X, is_sequence_batch, begin, lambda: SequenceReader(reader())
    )
    if source is not None:
        return source
    parts, weights = cut_sequences(read(X, False), lengths, sample_weight)
    if not weights.any():
        raise InvalidInputError("sample_weight is zero for every sequence: give a positive one")
    units = Batch(parts, weights, np.arange(len(weights), dtype=np.uint64))
    kept = units if weights.all() else units.take(np.flatnonzero(weights > 0))
    return Source.of(Kind.SEQUENCES, kept)


def _is_filled(given: Any) -> bool:
    rows, _, weights = batch_parts(given)
    return tuple(getattr(rows, "shape", (1,)))[:1] != (0,) and not counts_nothing(weights)


def is_sequence_batch(value: Any) -> bool:
    """Whether an entry of a list is a batch of sequences rather than a row."""
    if isinstance(value, list | tuple):
        return 2 <= len(value) <= 3 and getattr(value[0], "ndim", 0) >= 1
    return getattr(value, "ndim", 0) == 2 or (getattr(value, "ndim", 0) == 1 and len(value) > 1)


@dataclass(frozen=True)
class PointReader:
    """Points of a batch as (n, p) float64."""

    rows: RowReader

    def __call__(self, given: Any) -> Any:
        found = self.rows(given)
        assert found is not None
        return within_range(found[0][0])


def within_range(rows: Any) -> Any:
    """Points as float64 whose squares are numbers, or an error."""
    points = np.asarray(rows, dtype=np.float64)
    reach = float(np.nanmax(np.abs(points), initial=0.0)) if points.size else 0.0
    if reach > _LARGEST:
        raise InvalidInputError(
            f"the squares of X overflow (largest magnitude {reach:.3g}): give the samples in a "
            "smaller unit"
        )
    return points


@dataclass(frozen=True)
class SymbolReader:
    """Symbols of a batch as (n,) int64, of at most `n_symbols` kinds where that is known."""

    n_symbols: int | None

    def __call__(self, given: Any) -> Any:
        return read_symbols(given, self.n_symbols)[0]


def read_symbols(samples: object, n_symbols: int | None) -> tuple[Any, int]:
    """Symbols (n,) int64, -1 for those not observed, and the number d of their kinds.

    Parameters
    ----------
    samples : (n,) or (n, 1) integers, an array of any library, a list or a frame; NaN for a symbol
        that was not observed
    n_symbols : int, what is known about d, or None for one more than the largest symbol
    """
    if scipy.sparse.issparse(samples):
        raise InvalidInputError("X is sparse: give symbols as a dense array of one column")
    samples = unmasked(samples, "X", allows_missing=True)
    array = np.asarray(to_host(samples)) if is_array(samples) else read_numpy(samples, "X")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInputError(
            f"X must be one column of symbols, (n,) or (n, 1), got shape {array.shape}"
        )
    if not array.size:
        raise InvalidInputError("X has 0 sample(s), a minimum of 1 is required")
    array, missing = _as_integers(array)
    if missing is not None and missing.all():
        raise InvalidInputError("X holds NaN only: give at least one symbol")
    seen = array if missing is None else array[~missing]
    lowest, highest = int(np.floor(seen.min())), int(seen.max())
    if n_symbols is None and highest >= max(_MANY_KINDS, _KINDS_PER_ROW * array.size):
        raise InvalidInputError(
            f"X holds the symbol {highest} in {array.size} rows: every kind of symbol takes "
            "memory. Number the symbols from 0 (numpy.unique(X, return_inverse=True)[1]), or give "
            "n_features if there are so many kinds"
        )
    limit = n_symbols if n_symbols is not None else highest + 1
    if lowest < 0 or highest >= limit:
        outside = seen.min() if lowest < 0 else highest
        negative = "Negative values in data: " if lowest < 0 else ""
        raise InvalidInputError(
            f"{negative}X holds the symbol {outside}, outside of 0..{limit - 1}: number the "
            "symbols from 0, and give n_features where later data may hold more of them"
        )
    if missing is not None:
        array = np.where(missing, MISSING, array)
    # Kernels are compiled anew for arrays that may not be written to.
    return np.require(array, dtype=np.int64, requirements=["C", "W"]), limit


def _as_integers(array: Any) -> tuple[Any, Any]:
    """An array (n,) of whole numbers, and where it is missing them, None for nowhere."""
    if array.dtype.kind == "c":
        raise InvalidInputError(f"Complex data not supported: X holds {array.dtype}, not symbols")
    if array.dtype.kind not in "biuf":
        if array.dtype.kind != "O":
            raise InvalidInputError(
                f"X must hold integers 0..d-1, got dtype {array.dtype}: number the symbols first"
            )
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"X must hold integers 0..d-1, got objects ({error}): number the symbols first"
            ) from error
    if array.dtype.kind != "f":
        return array, None
    infinite = np.isinf(array)
    if infinite.any():
        raise InvalidInputError(
            f"X holds {int(infinite.sum())} infinite entries of {array.size}, the first at row "
            f"{int(np.argmax(infinite))}: symbols must be integers 0..d-1, NaN where missing"
        )
    missing = np.isnan(array)
    broken = (array != np.floor(array)) & ~missing
    if broken.any() and not (array < 0).any():
        first = int(np.argmax(broken))
        raise InvalidInputError(
            f"X holds {int(broken.sum())} fractional entries, the first is {array[first]!r} at "
            f"row {first}: symbols must be integers 0..d-1; for numbers use GaussianHMM"
        )
    return array, missing if missing.any() else None


def merged_equal(units: Batch) -> Batch:
    """Different sequences only, in the order of their first occurrence, with weights added up.

    Whatever is drawn from these sees no difference between a weight and a repetition.
    """
    rows = units.rows
    seen: dict[bytes, int] = {}
    edges = np.append(rows.begins, len(rows.rows))
    owners = np.empty(len(units), dtype=np.int64)
    for number in range(len(units)):
        part = np.ascontiguousarray(rows.rows[edges[number] : edges[number + 1]])
        ends = np.array([rows.lead[number], rows.tail[number]])
        digest = hashlib.blake2b(part.tobytes() + ends.tobytes(), digest_size=16).digest()
        owners[number] = seen.setdefault(digest, number)
    first = np.unique(owners)
    if len(first) == len(units):
        return units
    weights = np.bincount(owners, units.weights, minlength=len(units))[first]
    return replace(units.take(first), weights=weights)
