"""Documents that come once: word moments in a subspace fixed by the first of them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.estimation.word_subspace import WordSubspace, find_subspace, subspace_of_sums
from latensor.exceptions import InvalidInputError
from latensor.moments.documents import prepare_documents
from latensor.moments.word_totals import WordTotals, WordTotalsAccumulator
from latensor.moments.words import WordTripleAccumulator

# Documents held back before the subspace is fixed: words and documents enough that its leading
# directions are those of the whole stream, and still a few hundred megabytes at most.
_FIRST_TOKENS = 4_000_000
_FIRST_DOCUMENTS = 100_000
# Directions beyond the number of topics, which catch what the first documents did not show.
_OVERSAMPLING = 30


class TopicStream:
    """Sums over a stream of documents, from which topics can be read at any time.

    As long as the documents are few they are kept, and the answer is that of a fit. Then the
    subspace is fixed, with more directions than topics, and only sums along it are kept.

    Parameters
    ----------
    n_features, n_components : int
    seed : int, of the subspace's start
    n_threads : int
    concentration : float, of the second moment that the subspace belongs to
    """

    def __init__(
        self,
        n_features: int,
        n_components: int,
        seed: int,
        n_threads: int = 1,
        *,
        concentration: float = 1.0,
    ) -> None:
        self.n_features, self.n_components, self.seed = n_features, n_components, seed
        self.concentration = concentration
        self.n_threads = n_threads
        self._totals = WordTotalsAccumulator(n_features)
        self._held: list[tuple[Any, Any]] = []
        self._sums: WordTripleAccumulator | None = None

    @property
    def totals(self) -> WordTotals:
        """The words and documents so far."""
        return self._totals.finalize()

    def update(self, counts: Any, weights: Any = None) -> Self:
        """Add documents (n, V)."""
        self._totals.update(counts, weights)
        if self._sums is not None:
            self._sums.update(counts, weights)
            return self
        self._held.append((counts, weights))
        totals = self.totals
        if totals.n_tokens >= _FIRST_TOKENS or totals.n_documents >= _FIRST_DOCUMENTS:
            self._fix_subspace()
        return self

    def _fix_subspace(self) -> None:
        batches = self._prepared()
        rank = min(self.n_components + _OVERSAMPLING, self.n_features)
        found = self._subspace(batches, rank)
        self._sums = WordTripleAccumulator(found.basis, found.scale, found.cap, self.n_threads)
        for batch in batches:
            self._sums.update(batch)
        self._held = []

    def _prepared(self) -> list[Any]:
        if not self._held:
            return []
        counts = scipy.sparse.vstack([held for held, _ in self._held], format="csr")
        known = [
            np.ones(held.shape[0]) if weights is None else weights for held, weights in self._held
        ]
        plain = all(weights is None for _, weights in self._held)
        return [prepare_documents(counts, None if plain else np.concatenate(known))]

    def _subspace(self, batches: list[Any], rank: int) -> WordSubspace:
        rng = np.random.default_rng(self.seed)
        return find_subspace(
            lambda: ((batch, None) for batch in batches),
            self.totals,
            rank,
            rng,
            self.n_threads,
            concentration=self.concentration,
            at_least=self.n_components,
        )

    def spawn(self) -> TopicStream:
        """An empty stream in the same subspace, which is fixed now if it was not yet."""
        if self._sums is None:
            self._fix_subspace()
        assert self._sums is not None
        other = TopicStream(
            self.n_features,
            self.n_components,
            self.seed,
            self.n_threads,
            concentration=self.concentration,
        )
        other._sums = WordTripleAccumulator(
            self._sums.basis, self._sums.scale, self._sums.cap, self.n_threads
        )
        return other

    def merge(self, other: TopicStream) -> Self:
        """Add the documents of another stream, where one subspace serves both."""
        if self.n_components != other.n_components:
            raise InvalidInputError(
                f"other looks for {other.n_components} topics, self for {self.n_components}: "
                "only streams with the same n_components can be merged"
            )
        if self._sums is not None and other._sums is not None:
            self._sums.merge(other._sums)
        elif other._sums is not None:
            # Ours are still held: they can be summed in the other's subspace.
            held = self._prepared()
            self._sums = other.spawn()._sums
            assert self._sums is not None
            for batch in held:
                self._sums.update(batch)
            self._sums.merge(other._sums)
            self._held = []
        elif self._sums is not None:
            for batch in other._prepared():
                self._sums.update(batch)
        else:
            self._held = [*self._held, *other._held]
        self._totals.merge(other._totals)
        return self

    def moments(self, n_threads: int) -> tuple[WordTripleAccumulator, WordSubspace]:
        """The sums so far, and the subspace they are taken along."""
        if self._sums is not None:
            return self._sums, subspace_of_sums(self._sums, self.concentration)
        batches = self._prepared()
        found = self._subspace(batches, self.n_components)
        sums = WordTripleAccumulator(found.basis, found.scale, found.cap, n_threads)
        for batch in batches:
            sums.update(batch)
        return sums, found
