"""Hidden Markov models of symbols from moments (monograph 4.3)."""

from __future__ import annotations

import numbers
from typing import Any, Self

import numpy as np

from latensor.arrays.randomness import RandomState
from latensor.datasets.sequences import draw_symbols
from latensor.estimation.hmm import HiddenMarkovModel
from latensor.estimation.hmm.peer import check_peer, peer_module
from latensor.estimation.hmm.read_off import HiddenStates
from latensor.estimation.hmm.sequence_input import read_symbols
from latensor.estimation.hmm.stream import SequenceStream
from latensor.estimation.parameters import Choice, Interval
from latensor.estimation.sample_source import SampleBatches
from latensor.refinement.hmm import CategoricalEmission, HiddenChain

# The share of the average symbol that a start is mixed with before it is climbed from.
_SOFT = 0.02


class CategoricalHMM(HiddenMarkovModel):
    """States behind sequences of symbols 0..d-1 (monograph 4.3).

    A hidden chain moves from state to state by `transmat_` and every state emits a symbol by its
    row of `emissionprob_`. Given the state of a row, what comes before, its symbol and what comes
    after are independent: their third moment determines the states, without restarts. Moments of
    neighbouring rows and of averages over many rows are both tried, beside a few random starts,
    and the likelihood of the best is climbed (Baum and Welch, with extrapolated steps).

    Parameters
    ----------
    n_components : int, states, or "auto" for as many as the pairs of symbols speak for
    n_features : int, kinds of symbols d; None for one more than the largest
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of passes over the rows; 0 is the answer of the moments alone
    views : "auto" for both, "lag" for neighbouring rows or "window" for averages over many
    random_state : seed of the decomposition and of the random starts
    n_jobs : int, threads; None for all processors. The answer is the same for any number

    Attributes
    ----------
    startprob_ : (k,), how sequences begin; one more start, by the average of all rows, is counted
    transmat_ : (k, k), rows sum to one
    emissionprob_ : (k, d), rows sum to one; states by falling share
    n_components_, n_features_, n_iter_ : int
    converged_ : bool, whether the climb ended by itself; None for refine=0
    history_ : (n_iter_,) log-likelihood per row before every pass
    certificate_ : HMMCertificate

    Notes
    -----
    `fit(X, lengths)`, `score`, `decode`, `predict`, `predict_proba`, `sample`, `aic` and `bic` are
    those of hmmlearn; `to_hmmlearn` and `from_hmmlearn` convert. `partial_fit` streams whole
    sequences along features fixed by the first call, `fit` goes over a source of batches, and
    both take weights of sequences. `intervals` says how well the parameters are known.

    Examples
    --------
    >>> from latensor.datasets.sequences import make_hmm
    >>> sequences = make_hmm(20_000, 10, 3, random_state=0)
    >>> model = CategoricalHMM(3, random_state=0).fit(sequences.X, sequences.lengths)
    >>> model.transmat_.shape, model.emissionprob_.shape
    ((3, 3), (3, 10))
    """

    _parameters = {  # noqa: RUF012
        **HiddenMarkovModel._parameters,
        "n_features": (Choice((None,)), Interval(numbers.Integral, 1)),
    }
    _read_off_names = HiddenMarkovModel._read_off_names | {"emissionprob_"}
    n_features_: int

    def __init__(
        self,
        n_components: int | str = 1,
        *,
        n_features: int | None = None,
        algorithm: Any = "auto",
        refine: int | str = "auto",
        views: str = "auto",
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_features = n_features
        self.algorithm = algorithm
        self.refine = refine
        self.views = views
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _read(self, X: object, *, reset: bool) -> Any:
        known = self.n_features if reset else self.n_features_
        symbols, found = read_symbols(X, known)
        if reset:
            self.n_features_ = found
            self.n_features_in_ = 1
        return symbols

    def _read_part(self, X: object, first: bool) -> Any:
        # Batches may hold symbols that those before did not.
        symbols, found = read_symbols(X, self.n_features)
        self.n_features_ = found if first else max(found, self.n_features_)
        self.n_features_in_ = 1
        return symbols

    def _surveyed_stream(
        self, source: SampleBatches, n_components: int | None, rng: np.random.Generator
    ) -> SequenceStream:
        if self.n_features is None:
            for _ in source:
                pass
        return self._new_stream(None, n_components, rng)

    def _new_stream(
        self, rows: Any, n_components: int | None, rng: np.random.Generator, weights: Any = None
    ) -> SequenceStream:
        return SequenceStream(self.n_features_, None, False, self._n_threads(), self._decays())

    def _emission_of(self, states: HiddenStates, symbols: Any, noise: float) -> CategoricalEmission:
        return CategoricalEmission(symbols)

    def _random_emission(self, k: int, rows: Any, rng: np.random.Generator) -> CategoricalEmission:
        frequency = np.bincount(rows, minlength=self.n_features_) / len(rows)
        drawn = frequency * rng.standard_gamma(1.0, (k, self.n_features_)) + _SOFT * frequency
        return CategoricalEmission(drawn / drawn.sum(axis=1, keepdims=True))

    def _softened(self, chain: HiddenChain) -> HiddenChain:
        counts = self._stream.pairs.finalize().counts
        average = counts / counts.sum()
        mixed = (1 - _SOFT) * chain.emission.probabilities + _SOFT * average
        return HiddenChain(chain.startprob, chain.transmat, CategoricalEmission(mixed))

    def _vectors(self, emission: Any) -> Any:
        return emission.probabilities

    def _store(self, emission: Any) -> None:
        self.emissionprob_ = emission.probabilities

    def _emission_estimates(self, order: Any) -> dict[str, Any]:
        return {"emissionprob": self.emissionprob_[order]}

    def _stored(self, rows: Any) -> tuple[CategoricalEmission, Any]:
        return CategoricalEmission(np.asarray(self.emissionprob_, dtype=np.float64)), rows

    def _draw(self, states: Any, rng: np.random.Generator) -> Any:
        return draw_symbols(rng, self.emissionprob_, states)[:, None]

    def to_hmmlearn(self) -> Any:
        """A fitted `hmmlearn.hmm.CategoricalHMM` with these parameters; needs hmmlearn."""
        peer = peer_module().CategoricalHMM(len(self.startprob_), init_params="")
        peer.n_features = self.emissionprob_.shape[1]
        peer.startprob_, peer.transmat_ = self.startprob_.copy(), self.transmat_.copy()
        peer.emissionprob_ = self.emissionprob_.copy()
        return peer

    @classmethod
    def from_hmmlearn(cls, peer: Any) -> Self:
        """A fitted model with the parameters of a fitted `hmmlearn.hmm.CategoricalHMM`."""
        check_peer(peer, "CategoricalHMM", ("startprob_", "transmat_", "emissionprob_"))
        model = cls(peer.n_components)
        model.emissionprob_ = np.array(peer.emissionprob_, dtype=np.float64)
        model.n_features_, model.n_features_in_ = model.emissionprob_.shape[1], 1
        return model._adopt(peer)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.one_d_array = True
        tags.input_tags.positive_only = True
        return tags
