"""How far topics can be trusted: the certificate of a fit, and intervals by a bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import check_positive_int, generator
from latensor.arrays.randomness import RandomState
from latensor.diagnostics.topic_certificate import (
    TopicCertificate,
    nearest_topics,
    split_half_distances,
)
from latensor.estimation.topic_answers import TopicAnswers
from latensor.estimation.topic_moments import TopicMoments, as_probabilities, topics_from_moments
from latensor.estimation.topic_powers import topics_from_powers
from latensor.estimation.word_subspace import WordSubspace
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.word_powers import WordPowers
from latensor.moments.word_totals import WordTotals


class TopicTrust(TopicAnswers):
    """What the sums of a fit say about its topics, by halves and by replicates."""

    algorithm: Any
    n_components_: int
    refine: int | str
    _sums: Any
    _subspace: WordSubspace
    _moments: TopicMoments
    _totals: WordTotals
    # The Dirichlet concentration, or None where the moments have to tell.
    _concentration: float | None = None

    def _threads(self) -> int:
        raise NotImplementedError

    def _assumed_concentration(self) -> float:
        return 1.0 if self._concentration is None else self._concentration

    def _solve(
        self, sums: Any, moments: Any, rank: int, rng: Any, concentration: float | None
    ) -> TopicMoments:
        if isinstance(moments, WordPowers):
            a = self._assumed_concentration()
            return topics_from_powers(moments, sums.basis, sums.scale, a)
        return topics_from_moments(
            moments,
            sums.basis,
            sums.scale,
            rank,
            rng,
            concentration=concentration,
            algorithm=None if self.algorithm == "auto" else self.algorithm,
        )

    def _certify(self) -> TopicCertificate:
        found, sums = self._moments, self._sums
        rng = generator(self.random_state)
        rank = self.n_components_
        halves = []
        for half in sums.halves():
            try:
                part = self._solve(sums, half, rank, rng, found.concentration)
            except NotIdentifiableError:
                break
            halves.append(as_probabilities(part.topics, self._totals.totals, 0.0))
        whole = as_probabilities(found.topics, self._totals.totals, 0.0)
        distances = np.full(rank, np.nan)
        if len(halves) == 2:
            distances = split_half_distances(whole, *halves)
        spectrum = found.spectrum
        return TopicCertificate(
            eigenvalue_ratio=1 / max(float(self._subspace.noise[rank - 1]), 1e-300),
            split_half=distances[self._matched(whole)],
            off_diagonal=found.off_diagonal,
            condition=float(spectrum[0] / spectrum[rank - 1]),
            effective_size=sums.pairs().effective_size,
            n_documents=self._totals.n_documents,
            n_empty=self._totals.n_empty,
            n_short=self._totals.n_short,
            polished=self._was_polished(),
        )

    def intervals(
        self,
        X: object,
        level: float = 0.9,
        n_replicates: int = 40,
        random_state: RandomState = 0,
    ) -> tuple[Any, Any]:
        """Intervals of the word probabilities of topics, by a bootstrap of the moments.

        Every replicate weights the documents anew and finds the topics of its moments, in the
        subspace of the fit but lifted by its own second moment, without which intervals would be
        three times too narrow. They are normal intervals around the topics of the moments; for
        polished topics, which are nearer to the truth, they are too wide.

        Parameters
        ----------
        X : the documents of the fit
        level : float in (0, 1), share of intervals that should hold the truth
        n_replicates : int, at least 2; one pass over the documents each
        random_state : seed of the weights

        Returns
        -------
        low, high : (k, V) arrays in the order of `components_`
        """
        check_is_fitted(self)
        if not 0 < level < 1:
            raise InvalidInputError(f"level={level} must lie between 0 and 1")
        if check_positive_int(n_replicates, "n_replicates") < 2:
            raise InvalidInputError("n_replicates must be at least 2")
        if "_sums" not in self.__dict__ and "_stream" not in self.__dict__:
            raise InvalidInputError("intervals need a model that was fitted here, not loaded")
        found, sums = self._moments, self._sums
        rng = generator(random_state)
        batches = self._read_batches(X)
        topics = found.topics[self._matched(as_probabilities(found.topics, self._totals.totals, 0))]
        total, squares = np.zeros_like(topics), np.zeros_like(topics)
        for _ in range(n_replicates):
            replicate = type(sums)(sums.basis, sums.scale, sums.cap, self._threads())
            for batch in batches:
                replicate.update(batch, rng.standard_exponential(batch.shape[0]))
            again = self._solve(
                replicate, replicate.finalize(), len(topics), rng, found.concentration
            ).topics
            difference = again[nearest_topics(topics, again)] - topics
            total += difference
            squares += difference**2
        variance = (squares - total**2 / n_replicates) / (n_replicates - 1)
        reach = scipy.stats.norm.ppf((1 + level) / 2) * np.sqrt(np.maximum(variance, 0.0))
        return np.clip(topics - reach, 0.0, 1.0), np.clip(topics + reach, 0.0, 1.0)

    def _was_polished(self) -> bool:
        return self.refine != 0 and "_stream" not in self.__dict__

    def _matched(self, topics: Any) -> Any:
        """Which of the moments' topics became which component."""
        return nearest_topics(self.components_, topics)
