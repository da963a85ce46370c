"""The documents of a polish: in memory where they fit, and the slice of them that is held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.refinement.documents import Documents, padded_width, read_documents, stack

_MOST_BYTES_IN_MEMORY = 2**30
# Enough documents to tell differences of 0.1 % between passes, and few enough that the start hardly
# misses them: with a tenth, topics of BBC and Reuters end 1 % worse, with 3 % noise decides.
_HELD_OUT_SHARE = 0.05
_MOST_HELD_OUT_TOKENS = 200_000
# With fewer the noise decides: ten passes over everything end 0.2 % better on Reuters, 0.6 % on
# 6000 titles.
_FEWEST_HELD_OUT_TOKENS = 4000


@dataclass(frozen=True)
class HeldOut:
    """Which documents are held out: a choice that a document's own words make.

    Equal documents are held out together, and the order of documents changes nothing.

    Attributes
    ----------
    seed : int, of the numbers that documents draw from their words
    limit : int, documents whose number is below are held out; 0 for none
    """

    seed: int
    limit: int

    def mask(self, batch: Any) -> Any:
        """(n,) bool, which documents of a (n, V) sparse batch are held out."""
        return self._mask(_as_given(batch))

    def training(self, batches: Iterable[Any]) -> TrainingBatches:
        """The batches without the documents that are held out, read anew at every iteration."""
        return TrainingBatches(batches, self)

    def _mask(self, documents: Documents) -> Any:
        if self.limit == 0:
            return np.zeros(len(documents), bool)
        return documents.keys(self.seed) < np.uint64(self.limit)


@dataclass(frozen=True)
class TrainingBatches:
    """A re-iterable of the batches of another, without the documents that are held out."""

    batches: Iterable[Any]
    held_out: HeldOut

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            rows = scipy.sparse.csr_array(batch)
            yield rows[np.flatnonzero(~self.held_out.mask(rows))]


def hold_out(batches: Iterable[Any], seed: int) -> HeldOut:
    """Choose documents that shall decide how long topics are polished, before the topics are made.

    A twentieth of the documents, fewer where that is more than 200,000 tokens, none where a
    twentieth of all tokens is less than 4000. Starting topics must come from the others
    (`HeldOut.training`): topics that have seen a document predict it too well, and every pass over
    other documents then seems to make them worse.

    Parameters
    ----------
    batches : re-iterable of (n_b, V) sparse counts, read once
    seed : int
    """
    refuse_one_shot(batches)
    limit = int(_HELD_OUT_SHARE * 2.0**64)
    # Keys and lengths of the documents below the limit: all that is needed to lower it.
    keys = np.empty(0, np.uint64)
    lengths = np.empty(0)
    n_tokens = 0.0
    for batch in batches:
        documents = _as_given(batch)
        fresh = documents.keys(seed)
        below = fresh < np.uint64(limit)
        n_tokens += float(documents.lengths.sum())
        keys = np.concatenate([keys, fresh[below]])
        lengths = np.concatenate([lengths, documents.lengths[below]])
        if lengths.sum() > _MOST_HELD_OUT_TOKENS:
            order = np.argsort(keys, kind="stable")
            keys, lengths = keys[order], lengths[order]
            last = int(np.searchsorted(np.cumsum(lengths), _MOST_HELD_OUT_TOKENS))
            limit = max(int(keys[last]), 1)
            lengths = lengths[keys < np.uint64(limit)]
            keys = keys[keys < np.uint64(limit)]
    held = float(lengths.sum())
    enough = _HELD_OUT_SHARE * n_tokens >= _FEWEST_HELD_OUT_TOKENS
    if not enough or not 0 < held <= n_tokens / 2:
        limit = 0
    return HeldOut(seed, limit)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents to train on and documents held out.

    Attributes
    ----------
    documents : Documents, all of them in their order, where they fit in memory; else None
    held_out : Documents, those that are held out
    is_held_out : (n,) bool in memory; else None
    n_batches, n_documents, n_nonzeros : int; n_tokens : float, weights counted; held-out documents
        are included
    """

    documents: Documents | None
    held_out: Documents
    is_held_out: Any
    n_batches: int
    n_documents: int
    n_nonzeros: int
    n_tokens: float
    _batches: Iterable[Any]
    _weights: Any
    _choice: HeldOut

    def training(self) -> Iterator[Documents]:
        """The documents to train on, batch by batch, read anew."""
        dtype = self.held_out.counts.dtype
        for documents in _read(self._batches, self.held_out.n_features, dtype, self._weights):
            if self._choice.limit:
                yield documents.take(np.flatnonzero(~self._choice._mask(documents)))
            else:
                yield documents


def read_corpus(batches: Iterable[Any], topics: Any, weights: Any, choice: HeldOut) -> Corpus:
    """Read all batches once: keep them where they fit, and keep what is held out."""
    refuse_one_shot(batches)
    n_topics, n_words = topics.shape
    dtype = topics.dtype
    if weights is not None:
        weights = _checked_weights(weights, dtype)
    empty = Documents.of(scipy.sparse.csr_array((0, n_words), dtype=dtype), dtype)
    row = 3 * padded_width(n_topics) * dtype.itemsize
    kept: list[Documents] | None = []
    slices, masks = [empty], [np.zeros(0, bool)]
    n_batches = n_documents = n_nonzeros = 0
    n_tokens = 0.0
    for documents in _read(batches, n_words, dtype, weights):
        n_batches += 1
        n_documents += len(documents)
        n_nonzeros += documents.n_nonzeros
        n_tokens += documents.n_tokens
        mask = choice._mask(documents)
        slices.append(documents.take(np.flatnonzero(mask)))
        if kept is not None:
            kept.append(documents)
            masks.append(mask)
            if n_nonzeros * (4 + dtype.itemsize) + n_documents * row > _MOST_BYTES_IN_MEMORY:
                kept = None
    if weights is not None and len(weights) != n_documents:
        raise InvalidInputError(
            f"document_weights has {len(weights)} entries for {n_documents} documents"
        )
    return Corpus(
        None if kept is None else stack(kept or [empty]),
        stack(slices),
        None if kept is None else np.concatenate(masks),
        n_batches,
        n_documents,
        n_nonzeros,
        n_tokens,
        batches,
        weights,
        choice,
    )


def refuse_one_shot(batches: Iterable[Any]) -> None:
    """Refuse iterators that are empty after one pass."""
    if iter(batches) is batches:
        raise InvalidInputError(
            f"batches is a {type(batches).__name__} that can be read only once: give a list, or an "
            "object whose __iter__ starts anew"
        )


def _read(batches: Iterable[Any], n_words: int, dtype: Any, weights: Any) -> Iterator[Documents]:
    first = 0
    for batch in batches:
        n = batch.shape[0] if len(getattr(batch, "shape", ())) == 2 else 0
        part = None if weights is None else weights[first : first + n]
        if part is not None and len(part) != n:
            raise InvalidInputError(
                f"document_weights has {len(weights)} entries, but there are more documents"
            )
        yield read_documents(batch, n_words, dtype, part)
        first += n


def _as_given(batch: Any) -> Documents:
    """A batch in its own precision: the choice of documents does not depend on it."""
    single = getattr(batch, "dtype", None) == np.float32
    return read_documents(batch, None, np.float32 if single else np.float64)


def _checked_weights(weights: Any, dtype: Any) -> Any:
    weights = np.asarray(weights, dtype)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidInputError(
            "document_weights must be a vector of finite numbers, none of them negative"
        )
    return weights
