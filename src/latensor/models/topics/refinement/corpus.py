"""The documents of a refinement in memory, and which documents are held out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.models.topics.refinement.documents import Documents, read_documents
from latensor.moments.batch import Batch
from latensor.moments.documents import capped, without
from latensor.moments.sums import Folded, Tree
from latensor.value_files import storable

# Enough documents to tell differences of 0.1 % between passes, and few enough that the start hardly
# misses them: with a tenth, topics of BBC and Reuters end 1 % worse, with 3 % noise decides.
_HELD_OUT_FRACTION = 0.05
_MOST_HELD_OUT_TOKENS = 200_000
# With fewer the noise decides: ten passes over everything end 0.2 % better on Reuters, 0.6 % on
# 6000 titles.
_FEWEST_HELD_OUT_TOKENS = 4000


@storable
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

    def mask(self, batch: Any) -> Array:
        """(n,) bool, which documents of a (n, V) sparse batch are held out."""
        if self.limit == 0:
            return np.zeros(batch.shape[0], bool)
        found: Array = _as_given(batch).keys(self.seed) < np.uint64(self.limit)
        return found


@dataclass(frozen=True, eq=False)
class HeldOutKeys(Folded):
    """Chooses documents that shall decide how long topics are refined, before topics are made.

    A twentieth of the documents, fewer where that is more than 200,000 tokens, none where a
    twentieth of all tokens is less than 4000. Starting topics must come from the others: topics
    that have seen a document predict it too well, and every pass over other documents then seems
    to make them worse.

    Attributes
    ----------
    seed : int
    keys, lengths : of the documents below the limit: all that is needed to lower it
    limit : int
    n_tokens : float, of all documents
    """

    seed: int
    keys: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    lengths: Array = field(default_factory=lambda: np.empty(0))
    limit: int = int(_HELD_OUT_FRACTION * 2.0**64)
    n_tokens: float = 0.0

    def empty(self) -> HeldOutKeys:
        return HeldOutKeys(self.seed)

    def update(self, batch: Batch) -> Self:
        documents = _as_given(batch.rows)
        return self._with(documents.keys(self.seed), documents.lengths, self.limit, None)

    def merge(self, other: Self) -> Self:
        return self._with(other.keys, other.lengths, other.limit, other.n_tokens)

    def _with(self, keys: Array, lengths: Array, limit: int, n_tokens: float | None) -> Self:
        total = float(lengths.sum()) if n_tokens is None else n_tokens
        limit = min(self.limit, limit)
        keys, lengths = (
            np.concatenate([self.keys, keys]),
            np.concatenate([self.lengths, lengths]),
        )
        below = keys < np.uint64(limit)
        keys, lengths = keys[below], lengths[below]
        if lengths.sum() > _MOST_HELD_OUT_TOKENS:
            order = np.argsort(keys, kind="stable")
            keys, lengths = keys[order], lengths[order]
            last = int(np.searchsorted(np.cumsum(lengths), _MOST_HELD_OUT_TOKENS))
            limit = max(int(keys[last]), 1)
            below = keys < np.uint64(limit)
            keys, lengths = keys[below], lengths[below]
        return replace(
            self, keys=keys, lengths=lengths, limit=limit, n_tokens=self.n_tokens + total
        )

    def finalize(self) -> HeldOut:
        """The choice."""
        held = float(self.lengths.sum())
        enough = _HELD_OUT_FRACTION * self.n_tokens >= _FEWEST_HELD_OUT_TOKENS
        usable = enough and 0 < held <= self.n_tokens / 2
        return HeldOut(self.seed, self.limit if usable else 0)

    def message(self) -> Tree:
        return self.keys, self.lengths, self.limit, self.n_tokens

    def received(self, message: Tree) -> Self:
        keys, lengths, limit, n_tokens = message
        return replace(self, keys=keys, lengths=lengths, limit=limit, n_tokens=n_tokens)


def hold_out(counts: Any, seed: int) -> HeldOut:
    """The choice of `HeldOutKeys` for documents (n, V) in memory."""
    n = len(_as_given(counts))
    batch = Batch((counts,), np.ones(n), np.arange(n, dtype=np.uint64))
    return HeldOutKeys(seed).update(batch).finalize()


@dataclass(frozen=True, eq=False)
class Selected(Folded):
    """An accumulator that only documents held out reach, or only the others.

    Attributes
    ----------
    inner : accumulator
    choice : HeldOut
    held_out : bool, which of the two
    caps : (V,) what the counts of every word are capped at on the way, or None
    """

    inner: Any
    choice: HeldOut
    held_out: bool = False
    caps: Any = None

    @property
    def threads_inside(self) -> bool:  # type: ignore[override]
        return bool(self.inner.threads_inside)

    def empty(self) -> Self:
        return replace(self, inner=self.inner.empty())

    def update(self, batch: Batch) -> Self:
        if self.held_out:
            batch = batch.take(np.flatnonzero(self.choice.mask(batch.rows)))
        elif self.choice.limit:
            batch = without(batch, self.choice)
        if self.caps is not None:
            batch = capped(batch, self.caps)
        return replace(self, inner=self.inner.update(batch)) if len(batch) else self

    def merge(self, other: Self) -> Self:
        return replace(self, inner=self.inner.merge(other.inner))

    def scaled(self, factor: float) -> Self:
        return replace(self, inner=self.inner.scaled(factor))

    def message(self) -> Tree:
        return self.inner.message()

    def snapshot(self) -> Tree:
        return self.inner.snapshot()

    def received(self, message: Tree) -> Self:
        return replace(self, inner=self.inner.received(message))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in memory, to train on and held out.

    Attributes
    ----------
    documents : Documents
    is_held_out : (n,) bool
    """

    documents: Documents
    is_held_out: Array

    @property
    def held_out(self) -> Documents:
        """The documents that are held out."""
        return self.documents.take(np.flatnonzero(self.is_held_out))

    @property
    def n_tokens(self) -> float:
        """The number of tokens, weights counted."""
        return self.documents.n_tokens


def read_corpus(counts: Any, topics: Array, weights: Any, choice: HeldOut) -> Corpus:
    """Documents over the words of the topics, checked."""
    dtype = topics.dtype
    if weights is not None:
        weights = np.asarray(weights, dtype)
        if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
            raise InvalidInputError(
                "document_weights must be a vector of finite numbers, none of them negative"
            )
        n = counts.shape[0] if scipy.sparse.issparse(counts) else len(counts)
        if len(weights) != n:
            raise InvalidInputError(
                f"document_weights has {len(weights)} entries for {n} documents"
            )
    documents = read_documents(counts, topics.shape[1], dtype, weights)
    if choice.limit:
        return Corpus(documents, documents.keys(choice.seed) < np.uint64(choice.limit))
    return Corpus(documents, np.zeros(len(documents), bool))


def _as_given(batch: Any) -> Documents:
    """A batch in its own precision: the choice of documents does not depend on it."""
    single = getattr(batch, "dtype", None) == np.float32
    return read_documents(batch, None, np.float32 if single else np.float64)
