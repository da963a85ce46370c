"""Sequences as callers give them: rows one after the other, and how long each sequence is."""

from __future__ import annotations

import hashlib
import numbers
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import is_array, to_host
from latensor.estimation.samples import counts_nothing
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import as_weights

# A state has a past and a future only where a row stands before and one after.
SHORTEST = 3
# Numbers of symbols that look like names rather than like 0..d-1.
_MANY_KINDS, _KINDS_PER_ROW = 1_000_000, 100


def read_lengths(lengths: object, n_rows: int, *, shortest: int = 1) -> Any:
    """The lengths (s,) of the sequences, one of all rows by default.

    Parameters
    ----------
    lengths : sequence of integers that sum to `n_rows`, or None
    n_rows : int
    shortest : int, the fewest rows that a sequence may have
    """
    if lengths is None:
        found = np.array([n_rows], dtype=np.int64)
    else:
        given = np.asarray(to_host(lengths) if is_array(lengths) else lengths)
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.number) or not given.size:
            raise InvalidInputError(
                f"lengths must be a list of the lengths of the sequences, got {lengths!r:.80}"
            )
        if (given != np.floor(given)).any() or (given < 1).any():
            raise InvalidInputError(
                f"lengths must hold integers of at least 1, got {given.min()} as the smallest"
            )
        found = given.astype(np.int64)
    if found.sum() != n_rows:
        raise InvalidInputError(
            f"lengths sum to {found.sum()}, but X has {n_rows} rows: give the length of every "
            "sequence, in the order in which they stand in X"
        )
    if (found < shortest).any():
        first = int(np.argmax(found < shortest))
        raise InvalidInputError(
            f"sequence {first} has {found[first]} row(s): fitting needs at least {shortest} rows a "
            "sequence, one with a row before and one after it; join or drop shorter ones"
        )
    return found


def weighted_sequences(rows: Any, lengths: Any, sample_weight: object) -> tuple[Any, Any, Any]:
    """Rows, lengths (s,) and weights (s,) of different sequences; no weights where all are one.

    Equal sequences are kept once, with the sum of their weights: whatever comes after sees no
    difference between a weight and a repetition. Those of weight zero are left out. Sequences of
    one weight stand together, in their order, for the kernels to go over them in one stride.
    """
    if sample_weight is None:
        given = np.ones(len(lengths))
    else:
        given = _read_weights(sample_weight, len(rows), len(lengths))
    weights = np.bincount(_first_equal(rows, lengths), given, minlength=len(lengths))
    order = np.argsort(weights, kind="stable")
    order = order[weights[order] > 0]
    if not np.array_equal(order, np.arange(len(lengths))):
        starts, sizes = (np.cumsum(lengths) - lengths)[order], lengths[order]
        rows = rows[np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())]
        lengths, weights = sizes, weights[order]
    return rows, lengths, None if (weights == 1).all() else weights


def _read_weights(sample_weight: object, n_rows: int, n_sequences: int) -> Any:
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(n_sequences, sample_weight, dtype=np.float64)
    given = np.asarray(to_host(sample_weight) if is_array(sample_weight) else sample_weight)
    if given.shape == (n_rows,) != (n_sequences,):
        raise InvalidInputError(
            f"sample_weight holds one number per row ({n_rows}): give one per sequence "
            f"({n_sequences}), a chain has no weights for its rows"
        )
    weights = as_weights(sample_weight, n_sequences, "sample_weight")
    if not weights.any():
        raise InvalidInputError("sample_weight is zero for every sequence: give a positive one")
    return weights


def _first_equal(rows: Any, lengths: Any) -> Any:
    """For every sequence the number (s,) of the first one with the same rows."""
    if len(lengths) == 1:
        return np.zeros(1, dtype=np.int64)
    seen: dict[bytes, int] = {}
    starts = np.cumsum(lengths) - lengths
    found = [
        seen.setdefault(_digest(rows[start : start + length]), number)
        for number, (start, length) in enumerate(
            zip(starts.tolist(), lengths.tolist(), strict=True)
        )
    ]
    return np.array(found, dtype=np.int64)


def _digest(rows: Any) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=16).digest()


def is_sequence_batch(value: Any) -> bool:
    """Whether an entry of a list is a batch of sequences rather than a row."""
    if isinstance(value, list | tuple):
        return 2 <= len(value) <= 3 and getattr(value[0], "ndim", 0) >= 1
    return getattr(value, "ndim", 0) == 2 or (
        getattr(value, "ndim", 0) == 1 and len(value) >= SHORTEST
    )


def sequence_batch(batch: Any) -> tuple[Any, Any, Any] | None:
    """Rows, lengths and weights of a batch as callers give it; None for one that counts nothing."""
    parts = tuple(batch) if isinstance(batch, list | tuple) else (batch,)
    rows, lengths, weights = (*parts, None, None)[:3]
    if tuple(getattr(rows, "shape", (1,)))[:1] == (0,) or counts_nothing(weights):
        return None
    return rows, lengths, weights


def joined(batches: list[tuple[Any, Any]]) -> tuple[Any, Any, Any]:
    """Rows, lengths and weights of batches ((rows, lengths), weights) as one."""
    rows = np.concatenate([rows for (rows, _), _ in batches])
    lengths = np.concatenate([sizes for (_, sizes), _ in batches])
    if all(weights is None for _, weights in batches):
        return rows, lengths, None
    parts = [np.ones(len(sizes)) if weights is None else weights for (_, sizes), weights in batches]
    return rows, lengths, np.concatenate(parts)


def read_symbols(samples: object, n_symbols: int | None) -> tuple[Any, int]:
    """Symbols (n,) int64 and the number d of their kinds.

    Parameters
    ----------
    samples : (n,) or (n, 1) integers, an array of any library, a list or a frame
    n_symbols : int, what is known about d, or None for one more than the largest symbol
    """
    if scipy.sparse.issparse(samples):
        raise InvalidInputError("X is sparse: give symbols as a dense array of one column")
    array = np.asarray(to_host(samples) if is_array(samples) else samples)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInputError(
            f"X must be one column of symbols, (n,) or (n, 1), got shape {array.shape}"
        )
    if not array.size:
        raise InvalidInputError("X has 0 sample(s), a minimum of 1 is required")
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
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array)
        if bad.any():
            raise InvalidInputError(
                f"X holds {int(bad.sum())} NaN or infinite entries of {array.size}, the first at "
                f"row {int(np.argmax(bad))}: symbols must be integers 0..d-1"
            )
        broken = array != np.floor(array)
        if broken.any():
            first = int(np.argmax(broken))
            raise InvalidInputError(
                f"X holds {int(broken.sum())} fractional entries, the first is {array[first]!r} at "
                f"row {first}: symbols must be integers 0..d-1; for numbers use GaussianHMM"
            )
    lowest, highest = int(array.min()), int(array.max())
    if n_symbols is None and highest >= max(_MANY_KINDS, _KINDS_PER_ROW * array.size):
        raise InvalidInputError(
            f"X holds the symbol {highest} in {array.size} rows: every kind of symbol takes "
            "memory. Number the symbols from 0 (numpy.unique(X, return_inverse=True)[1]), or give "
            "n_features if there are so many kinds"
        )
    limit = n_symbols if n_symbols is not None else highest + 1
    if lowest < 0 or highest >= limit:
        outside = lowest if lowest < 0 else highest
        negative = "Negative values in data: " if lowest < 0 else ""
        raise InvalidInputError(
            f"{negative}X holds the symbol {outside}, outside of 0..{limit - 1}: number the "
            "symbols from 0, and give n_features where later data may hold more of them"
        )
    # Kernels are compiled anew for arrays that may not be written to.
    return np.require(array, dtype=np.int64, requirements=["C", "W"]), limit
