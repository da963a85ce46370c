"""A planted corpus of any size that is never held in memory: drawn anew, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, generator
from latensor.arrays.randomness import RandomState
from latensor.datasets.drawing import (
    Length,
    check_length,
    check_positive,
    check_proportions,
    check_shape,
    check_topics,
    cumulated,
    draw_counts,
    draw_lengths,
    draw_topics,
)
from latensor.datasets.topics import check_exponent
from latensor.exceptions import InvalidInputError


class PlantedDocuments:
    """A source of documents from latent Dirichlet allocation, for corpora larger than memory.

    Every batch has a random stream of its own, derived from the seed and the batch's number, so
    that each iteration gives the same batches in the same order, at the memory of one batch.

    Parameters
    ----------
    n_documents, n_features, n_components : int, documents n, words V and topics k
    topics : (k, V) array of probabilities; drawn as in `make_topics` by default
    batch_size : int, documents a batch; another batch size gives another corpus
    alpha, alpha0, length, lengths, word_exponent, concentration, random_state :
        as for `make_topics`

    Attributes
    ----------
    topics : (k, V) array, the truth
    alpha : (k,) array, the Dirichlet parameters of the mixtures
    vocabulary : None, words have no names
    """

    vocabulary: list[str] | None = None

    def __init__(
        self,
        n_documents: int,
        n_features: int,
        n_components: int,
        *,
        topics: Any = None,
        alpha: Any = None,
        alpha0: float = 1.0,
        length: float = 100.0,
        lengths: Length = "poisson",
        word_exponent: float = 0.8,
        concentration: float = 0.05,
        batch_size: int = 4096,
        random_state: RandomState = None,
    ) -> None:
        self.n_documents, self.n_features, self.n_components = check_shape(
            n_documents, n_features, n_components
        )
        self.batch_size = check_positive_int(batch_size, "batch_size")
        self.alpha = check_proportions(alpha, alpha0, self.n_components)
        self.length, self.lengths = check_length(length, lengths)
        rng = generator(random_state)
        if topics is None:
            self.topics = draw_topics(
                rng,
                self.n_components,
                self.n_features,
                check_exponent(word_exponent),
                check_positive(concentration, "concentration"),
            )
        else:
            self.topics = check_topics(topics)
            if self.topics.shape != (self.n_components, self.n_features):
                raise InvalidInputError(
                    f"topics has shape {self.topics.shape}: expected (n_components, n_features) "
                    f"= {(self.n_components, self.n_features)}"
                )
        self._entropy = [int(word) for word in rng.integers(2**32, size=4)]
        self._edges = cumulated(self.topics)

    def __len__(self) -> int:
        """The number of batches."""
        return -(-self.n_documents // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Batches, each a csr_array (n_b, V) of float32 counts."""
        for number in range(len(self)):
            yield self.batch(number)

    def batch(self, number: int) -> Any:
        """The batch of a given number, counted from 0, without drawing those before it."""
        if not 0 <= number < len(self):
            raise InvalidInputError(f"batch {number} does not exist: there are {len(self)}")
        size = min(self.batch_size, self.n_documents - number * self.batch_size)
        seed = np.random.SeedSequence(self._entropy, spawn_key=(number,))
        rng = np.random.default_rng(seed)
        mixtures = rng.dirichlet(self.alpha, size)
        sizes = draw_lengths(rng, size, self.length, self.lengths)
        return draw_counts(rng, self._edges, rng.multinomial(sizes, mixtures), np.float32)
