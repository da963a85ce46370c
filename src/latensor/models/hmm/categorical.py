"""Hidden Markov models of symbols from moments (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.datasets.sequences import check_stochastic, draw_symbols
from latensor.estimation.model import Frame
from latensor.estimation.parameter_intervals import PROBABILITY
from latensor.estimation.parameters import AT_LEAST_ONE, Choice, parameter
from latensor.estimation.run import Run
from latensor.models.hmm.base import HiddenMarkovEstimator, Letters
from latensor.models.hmm.model import ChainModel
from latensor.models.hmm.quantization import SymbolCode
from latensor.models.hmm.sequence_input import SymbolReader, read_symbols
from latensor.moments.batch import Batch
from latensor.moments.sequences import LargestSymbol
from latensor.refinement.hmm import CategoricalEmission, HiddenChain, SymbolDesign

# The fraction of the average symbol that a start is mixed with before EM begins.
_SOFT = 0.02
# Symbols whose dependence on the symbol before is looked at.
_INDICATORS = 32


@dataclass(frozen=True)
class SymbolModel(ChainModel):
    """The settings of a hidden Markov model of symbols.

    Attributes
    ----------
    n_symbols : int, or None where the data must tell
    """

    n_symbols: int | None
    letters: ClassVar[str] = "ste"

    def survey_code(self, run: Run) -> dict[str, Any]:
        count = self.n_symbols
        if count is None:
            count = run.fold("symbols", LargestSymbol()).finalize() + 1
        return {"code": SymbolCode(count)}

    def design(self, frame: Frame) -> SymbolDesign:
        return SymbolDesign(frame["code"].n_symbols)

    def emission_of(
        self, frame: Frame, states: Any, symbols: Any, noise: float
    ) -> CategoricalEmission:
        return CategoricalEmission(symbols)

    def random_emission(
        self, frame: Frame, k: int, units: Batch, rng: np.random.Generator
    ) -> CategoricalEmission:
        frequency = self._smooth(frame)
        d = len(frequency)
        drawn = frequency * rng.standard_gamma(1.0, (k, d)) + _SOFT * frequency
        return CategoricalEmission(drawn / drawn.sum(axis=1, keepdims=True))

    def softened(self, frame: Frame, chain: HiddenChain) -> HiddenChain:
        if "e" in self.given:
            return chain
        mixed = (1 - _SOFT) * chain.emission.probabilities + _SOFT * self._smooth(frame)
        return HiddenChain(chain.startprob, chain.transmat, CategoricalEmission(mixed))

    def _smooth(self, frame: Frame) -> Any:
        """The average of all states (d,), without zeros: what was not seen is not impossible."""
        frequency = frame["frequency"]
        return (1 - _SOFT) * frequency + _SOFT / len(frequency)

    def vectors(self, emission: Any) -> Array:
        found: Array = emission.probabilities
        return found

    def observables(self, frame: Frame, rows: Any, emission: Any) -> tuple[Array, Array]:
        """Indicators of the most frequent symbols, each of the same variance.

        Those of all symbols that occur sum to one in every row: the rarest is left out.
        """
        frequency = frame["frequency"]
        n_shown = min(int((frequency > 0).sum()) - 1, _INDICATORS)
        common = np.argsort(-frequency, kind="stable")[:n_shown]
        units = 1 / np.sqrt(frequency[common])
        shown = np.where(rows[:, None] < 0, np.nan, rows[:, None] == common) * units
        return shown, emission.probabilities[:, common] * units

    def emission_with(self, frame: Frame, emission: Any) -> CategoricalEmission:
        found: CategoricalEmission = emission
        return CategoricalEmission(self.given["e"]) if "e" in self.given else found

    def emission_parameters(self, frame: Frame, emission: Any) -> dict[str, Array]:
        return {"emissionprob": emission.probabilities}


@dataclass(eq=False, repr=False)
class CategoricalHMM(HiddenMarkovEstimator):
    """States behind sequences of symbols 0..d-1 (monograph 4.3).

    A hidden chain moves from state to state by `transmat_` and every state emits a symbol by its
    row of `emissionprob_`. Given the state of a row, what comes before, its symbol and what comes
    after are independent: their third moment determines the states, without restarts. Moments of
    neighbouring rows and of averages over many rows are both tried, beside a few random starts,
    and EM (Baum and Welch, with extrapolated steps) refines the best.

    Parameters
    ----------
    n_components : int, states, or "auto": the most that both halves of the sequences find, one
        where the order of rows tells nothing (`selection_`)
    n_features : int, kinds of symbols d; None for one more than the largest
    init_params : letters of the parameters that fit finds starting values for: s(tartprob),
        t(ransmat), e(missionprob); the others start from the attributes as they are set before fit
    params : letters of the parameters that EM changes
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of passes of EM; 0 is the answer of the moments alone
    views : "auto" for both, "lag" for neighbouring rows or "window" for averages over many
    max_iter : int, passes of EM over the sample in memory; 0 keeps the starting values
    tol : float, EM ends where its last two steps promise that all to come gain less than this, in
        log-likelihood per row
    verbose : int, above 0 to print every pass over the data
    random_state : seed of the decomposition and of the random starts
    n_jobs : int, threads; None for all processors. The answer is the same for any number

    Attributes
    ----------
    startprob_ : (k,), how sequences begin; one more start, by the average of all rows, is counted
    transmat_ : (k, k), rows sum to one
    emissionprob_ : (k, d), rows sum to one; states by decreasing stationary probability, or in
        the order of the starting values. Symbols that fit has not seen share one row in each state
    n_components_, n_features_, n_iter_ : int
    converged_ : bool, whether EM ended by itself; None for refine=0
    history_ : log-likelihood per row before every pass
    certificate_ : HMMCertificate
    selection_ : Selection, where n_components="auto"

    Notes
    -----
    `fit(X, lengths)`, `score`, `decode`, `predict`, `predict_proba`, `sample`, `aic` and `bic` are
    those of hmmlearn; `to_hmmlearn` and `from_hmmlearn` convert. Probabilities of zero among the
    starting values stay zero. NaN stands for a symbol that was not observed. `partial_fit` streams
    whole sequences, `fit` goes over a source of batches, and both take weights of sequences.
    `intervals` says how well the parameters are known.

    Examples
    --------
    >>> import latensor as lt
    >>> sequences = lt.datasets.make_hmm(20_000, 10, 3, random_state=0)
    >>> model = lt.CategoricalHMM(3, random_state=0).fit(sequences.X, sequences.lengths)
    >>> model.transmat_.shape, model.emissionprob_.shape
    ((3, 3), (3, 10))
    """

    _: KW_ONLY
    n_features: int | None = parameter(None, Choice((None,)), AT_LEAST_ONE)
    init_params: str = parameter("ste", Letters("ste"))
    params: str = parameter("ste", Letters("ste"))

    _fitted_names = HiddenMarkovEstimator._fitted_names | {"emissionprob_"}
    _same_to_merge = (*HiddenMarkovEstimator._same_to_merge, "n_features_")
    _input_names = (*HiddenMarkovEstimator._input_names, "n_features_")
    _peer = "CategoricalHMM"
    _letters = {"s": "startprob_", "t": "transmat_", "e": "emissionprob_"}  # noqa: RUF012
    _intervals_of = (
        {"startprob": PROBABILITY, "transmat": PROBABILITY, "emissionprob": PROBABILITY},
        "emissionprob",
    )

    def _model(self) -> SymbolModel:
        return SymbolModel(
            self.n_components,
            self.views,
            self.algorithm,
            self._row_limit,
            self.params,
            self._given_start(),
            self.__dict__.get("n_features_"),
        )

    def _starting_values(self) -> dict[str, Array]:
        found = super()._starting_values()
        if "e" in found:
            shape = (int(self.n_components), found["e"].shape[-1])
            found["e"] = check_stochastic(found["e"], shape, "emissionprob_")
        return found

    def _read_rows(self, X: object, *, reset: bool, is_batch: bool = False) -> Any:
        known = self.n_features if reset else self._n_symbols()
        if reset and "e" in self._given_start():
            known = self._given_start()["e"].shape[1]
        symbols, found = read_symbols(X, known)
        if reset:
            self.n_features_in_ = 1
            self.__dict__.pop("n_features_", None)
            # Batches may hold symbols that those before did not: the survey tells.
            if known is not None or not is_batch:
                self.n_features_ = found
        return symbols

    def _reader(self) -> Callable[[Any], Any]:
        return SymbolReader(self.__dict__.get("n_features_"))

    def _attributes(self, answer: Any, frame: Frame) -> dict[str, Any]:
        self.n_features_ = frame["code"].n_symbols
        return super()._attributes(answer, frame)

    def _n_symbols(self) -> int:
        """Kinds of symbols, also of a model whose parameters were set by hand."""
        if "n_features_" in self.__dict__:
            return self.n_features_
        return int(np.shape(self.emissionprob_)[1])

    def _emission(self) -> CategoricalEmission:
        probabilities = np.asarray(self.emissionprob_, dtype=np.float64)
        return CategoricalEmission(np.ascontiguousarray(probabilities))

    def _size_up(self) -> None:
        self.n_features_, self.n_features_in_ = self._n_symbols(), 1

    def _draw(self, states: Any, rng: np.random.Generator) -> Any:
        return draw_symbols(rng, np.asarray(self.emissionprob_), states)[:, None]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.one_d_array = True
        tags.input_tags.positive_only = True
        return tags
