"""What is asked of a fitted hidden Markov model: likelihoods, states, samples, criteria."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import check_positive_int, generator
from latensor.arrays.threads import thread_count
from latensor.datasets.sequences import draw_states, stationary_distribution
from latensor.exceptions import InvalidInputError, warn_caller
from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.refinement.hmm import ChainFamily, ChainOnRows, HiddenChain
from latensor.sources.sequences import read_lengths


class HiddenMarkovInference:
    """Scores, states and samples of a model with `startprob_`, `transmat_` and emissions.

    A subclass defines `_read_rows`, `_emission` and `_draw` (rows for states).
    """

    startprob_: Any
    transmat_: Any
    random_state: Any
    n_jobs: Any

    def _on(self, X: object, lengths: object) -> ChainOnRows:
        """The fitted model on rows."""
        check_is_fitted(self)
        rows = self._read_rows(X, reset=False)
        sizes, chain = read_lengths(lengths, len(rows)), self._chain()
        units = Batch((Ragged.of(rows, sizes),), np.ones(len(sizes)), np.arange(len(sizes)))
        prepared = ChainFamily(chain.emission.design).prepare(units)
        _, design, sequences = prepared.parts
        return chain.on(design, sequences, thread_count(self.n_jobs))

    def _chain(self) -> HiddenChain:
        startprob = np.ascontiguousarray(self.startprob_, dtype=np.float64)
        transmat = np.ascontiguousarray(self.transmat_, dtype=np.float64)
        return HiddenChain(startprob, transmat, self._emission())

    def score(self, X: object, lengths: object = None) -> float:
        """The log-likelihood of all rows, summed as hmmlearn does; -inf if one is impossible.

        Parameters
        ----------
        X : rows of all sequences, one after the other
        lengths : how many rows each sequence has, in order; None for one sequence
        """
        with np.errstate(divide="ignore"):
            return self._on(X, lengths).log_likelihood()

    def score_samples(self, X: object, lengths: object = None) -> tuple[float, Any]:
        """The log-likelihood of all rows, and the posterior probabilities (n, k) of the states.

        A sequence that the model calls impossible has the log-likelihood -inf and no posterior: a
        warning says so, and it is cut where it becomes impossible; the part before is told by
        its own rows, the part after begins with all states equally likely.
        """
        chain = self._on(X, lengths)
        found = chain.expect()
        if found.log_likelihood == -np.inf:
            _say_impossible(chain, "they are cut there")
        return found.log_likelihood, found.posteriors

    def predict_proba(self, X: object, lengths: object = None) -> Any:
        """The probabilities (n, k) of the states of every row given its whole sequence.

        Never NaN: see `score_samples` for sequences that the model calls impossible.
        """
        return self.score_samples(X, lengths)[1]

    def decode(
        self, X: object, lengths: object = None, algorithm: str | None = None
    ) -> tuple[float, Any]:
        """The likeliest states (n,) and what they score, as hmmlearn does.

        Parameters
        ----------
        X : rows of all sequences, one after the other
        lengths : how many rows each sequence has, in order; None for one sequence
        algorithm : "viterbi" (the default) for the states that are likeliest together, scored by
            the log of their joint probability with the rows; "map" for the likeliest state of
            every row by itself, scored by the sum of their probabilities
        """
        if algorithm not in (None, "viterbi", "map"):
            raise InvalidInputError(f"algorithm={algorithm!r} must be 'viterbi' or 'map'")
        if algorithm == "map":
            posteriors = self.predict_proba(X, lengths)
            return float(posteriors.max(axis=1).sum()), posteriors.argmax(axis=1)
        chain = self._on(X, lengths)
        value, path = chain.likeliest_path()
        if value == -np.inf:
            _say_impossible(chain, "their states are arbitrary")
        return value, path

    def predict(self, X: object, lengths: object = None) -> Any:
        """The states (n,) that are likeliest together (Viterbi)."""
        return self.decode(X, lengths)[1]

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[Any, Any]:
        """Draw one sequence from the model: its rows and its states (n_samples,).

        Parameters
        ----------
        n_samples : int
        random_state : int, Generator or None for that of the model
        currstate : int, the first state; drawn by default
        """
        check_is_fitted(self)
        rng = generator(self.random_state if random_state is None else random_state)
        start = np.asarray(self.startprob_)
        if currstate is not None:
            if not 0 <= currstate < len(start):
                raise InvalidInputError(
                    f"currstate={currstate!r} must be one of the states 0..{len(start) - 1}"
                )
            start = np.eye(len(start))[currstate]
        length = check_positive_int(n_samples, "n_samples")
        states = draw_states(rng, start, np.asarray(self.transmat_), [length])
        return self._draw(states, rng), states

    def get_stationary_distribution(self) -> Any:
        """The stationary probabilities (k,) of the states in a long sequence."""
        check_is_fitted(self)
        return stationary_distribution(self.transmat_)

    def aic(self, X: object, lengths: object = None) -> float:
        """Akaike's criterion, -2 log-likelihood + 2 parameters; lower is better."""
        return -2 * self.score(X, lengths) + 2 * self._chain().n_parameters

    def bic(self, X: object, lengths: object = None) -> float:
        """The Bayesian criterion, -2 log-likelihood + log(n) parameters; lower is better."""
        check_is_fitted(self)
        n_rows = len(self._read_rows(X, reset=False))
        return -2 * self.score(X, lengths) + float(np.log(n_rows)) * self._chain().n_parameters

    def _read_rows(self, X: object, *, reset: bool, is_batch: bool = False) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say how rows are read")

    def _emission(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must give its emissions back")

    def _draw(self, states: Any, rng: np.random.Generator) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must draw rows")


def _say_impossible(chain: ChainOnRows, what: str) -> None:
    values = chain.sequence_log_likelihoods()
    places = np.flatnonzero(values == -np.inf)
    warn_caller(
        f"{len(places)} of {len(values)} sequences, the first of them number {places[0]}, have "
        f"probability zero under the model: {what}; leave them out, or fit with more of the data",
        UserWarning,
    )
