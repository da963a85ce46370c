"""Hidden Markov models with Gaussian emissions from moments (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array, to_host
from latensor.datasets.sequences import draw_points, draw_states
from latensor.diagnostics.evidence import fewest_observed
from latensor.estimation.model import Answer, Frame, Search
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY, REAL
from latensor.estimation.parameters import AT_LEAST_ZERO, Choice, parameter
from latensor.estimation.run import Run
from latensor.estimation.samples import read_samples
from latensor.exceptions import InvalidInputError
from latensor.models.hmm.base import HiddenMarkovEstimator, Letters
from latensor.models.hmm.gaussian_states import gaussian_of, random_gaussian
from latensor.models.hmm.model import ChainModel
from latensor.models.hmm.quantization import POINTS, Quantization
from latensor.models.hmm.rows_alone import gains_over_joined
from latensor.models.hmm.sequence_input import PointReader, merged_equal, within_range
from latensor.moments.batch import Batch
from latensor.moments.sequences import PointSums
from latensor.moments.sums import Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.families.covariances import (
    COVARIANCE_TYPES,
    as_matrices,
    cholesky,
    shape_of,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.hmm import GaussianEmission, HiddenChain
from latensor.sources.rows import RowReader

# Cells per state, and their number where the states are still to be counted.
_CELLS_PER_STATE, _CELLS = 4, 32


@dataclass(frozen=True)
class PointModel(ChainModel):
    """The settings of a hidden Markov model with Gaussian emissions."""

    covariance_type: str
    min_covar: float
    n_features: int
    letters: ClassVar[str] = "stmc"
    # Transitions read off cells are biased.
    n_draws: ClassVar[int] = 25

    def gains_alone(self, frame: Frame, chain: HiddenChain, learned: Batch, others: Batch) -> Array:
        means, found = chain.emission.means, chain.emission.covariances
        covariances = as_matrices(self.covariance_type, found, *means.shape)
        before, rows = (np.asarray(part.rows.rows, dtype=np.float64) for part in (learned, others))
        posteriors = self.responsibilities(frame, chain, learned)
        return gains_over_joined(means, covariances, (before, posteriors), rows, others.sizes)

    def survey_code(self, run: Run) -> dict[str, Any]:
        first = run.source.head().rows.rows
        known = ~np.isnan(first)
        centre = np.where(known, first, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        found = run.fold(
            "points", Joint({"points": PointSums(centre), "sample": Sample(POINTS, run.seed)})
        )
        spread, sample = found["points"].finalize(), merged_equal(found["sample"].in_order())
        never = np.flatnonzero(spread.counts == 0)
        if len(never):
            raise InvalidInputError(
                f"column {never[0]} of X was never observed, it holds NaN only: leave it out"
            )
        wanted = (
            _CELLS
            if isinstance(self.n_components, str)
            else _CELLS_PER_STATE * int(self.n_components)
        )
        weights = sample.rows.row_weights(sample.weights)
        cells = Quantization.around(
            spread.mean,
            spread.deviation,
            sample.rows.rows,
            max(min(wanted, int(spread.weight) // 3), 2),
            self.covariance_type == "spherical",
            run.rng("cells"),
            None if (weights == 1).all() else weights,
            self.covariance_type in ("full", "tied"),
        )
        family = GaussianFamily.scaled(
            self.covariance_type, cells.center, cells.scale, self.min_covar
        )
        return {"code": cells, "family": family}

    def sample_size(self, frame: Frame) -> int:
        return self.rows_in_memory(self.row_limit, self.n_features)

    def design(self, frame: Frame) -> GaussianFamily:
        family: GaussianFamily = frame["family"]
        return family

    def emission_of(
        self, frame: Frame, states: Any, symbols: Any, noise: float
    ) -> GaussianEmission:
        return gaussian_of(states, frame["family"], noise)

    def random_emission(
        self, frame: Frame, k: int, units: Batch, rng: np.random.Generator
    ) -> GaussianEmission:
        rows = frame["code"].standardize(units.rows.rows)
        return random_gaussian(k, rows, frame["family"], rng)

    def vectors(self, emission: Any) -> Array:
        found: Array = emission.state.means
        return found

    def observables(self, frame: Frame, rows: Any, emission: Any) -> tuple[Array, Array]:
        family = frame["family"]
        return (rows - family.centre) * family.transform, emission.state.means

    def emission_with(self, frame: Frame, emission: Any) -> GaussianEmission:
        if not {"m", "c"} & set(self.given):
            found: GaussianEmission = emission
            return found
        known = {} if emission is None else self.emission_parameters(frame, emission)
        means = self.given.get("m", known.get("means"))
        covariances = self.given.get("c", known.get("covariances"))
        outer = MixtureState(np.ones(frame["count"]), means, covariances)
        return GaussianEmission(frame["family"], frame["family"].inside(outer))

    def emission_parameters(self, frame: Frame, emission: Any) -> dict[str, Array]:
        return {"means": emission.means, "covariances": emission.covariances}

    def evidence(
        self, frame: Frame, search: Search[HiddenChain], answer: Answer[HiddenChain]
    ) -> dict[str, Any]:
        found, units = super().evidence(frame, search, answer), search.sample
        missing = np.isnan(units.rows.rows)
        if missing.any():
            assert answer.state is not None
            owned = self.responsibilities(frame, answer.state, units)
            owned = owned * np.sqrt(units.rows.row_weights(units.weights))[:, None]
            found["n_observed"] = fewest_observed(owned, ~missing, self.covariance_type)
        return found

    def drawn_like(
        self, frame: Frame, state: HiddenChain, like: Batch, rng: np.random.Generator
    ) -> Batch:
        states = draw_states(rng, state.startprob, state.transmat, like.rows.lengths)
        factors = cholesky(state.emission.matrices())
        points = draw_points(rng, state.emission.means, factors, states)
        return Batch((replace(like.rows, rows=points),), like.weights, like.keys)


@dataclass(eq=False, repr=False)
class GaussianHMM(HiddenMarkovEstimator):
    """States behind sequences of points, each with a Gaussian of its own (monograph 4.3).

    A hidden chain moves from state to state by `transmat_` and every state emits points of its
    mean and covariance. Points are coded as the cells of k-means,
    whose moments determine the states as for `CategoricalHMM`, also where there are more states
    than dimensions; means and covariances are then read off the points themselves, and refined by
    EM (Baum and Welch, with extrapolated steps).

    Parameters
    ----------
    n_components : int, states, or "auto": the most that both halves of the sequences find, one
        where the order of rows tells nothing (`selection_`)
    covariance_type : "spherical", "diag", "full" or "tied" (one matrix for all states)
    min_covar : float, added to every variance, in the squared unit of X, at most that fraction of
        the variance of all rows
    init_params : letters of the parameters that fit finds starting values for: s(tartprob),
        t(ransmat), m(eans), c(ovars); the others start from the attributes as set before fit
    params : letters of the parameters that EM changes
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of passes of EM; 0 is the answer of the moments alone
    views : "auto" for both, "lag" for neighbouring rows or "window" for averages over many
    max_iter : int, passes of EM over the sample in memory; 0 keeps the starting values
    tol : float, EM ends where its last two steps promise that all to come gain less than this, in
        log-likelihood per row
    verbose : int, above 0 to print every pass over the data
    random_state : seed of the cells, the decomposition and the random starts
    n_jobs : int, threads; None for all processors. The answer is the same for any number

    Attributes
    ----------
    startprob_ : (k,), how sequences begin; one more start, by the average of all rows, is counted
    transmat_ : (k, k), rows sum to one
    means_ : (k, p), states by decreasing stationary probability, or in the order of the starting
        values
    covariances_ : (k,) "spherical", (k, p) "diag", (k, p, p) "full", (p, p) "tied"
    covars_ : (k, p, p) matrices for every kind, as in hmmlearn
    n_components_, n_iter_ : int
    converged_ : bool, whether EM ended by itself; None for refine=0
    history_ : log-likelihood per row before every pass
    certificate_ : HMMCertificate
    selection_ : Selection, where n_components="auto"

    Notes
    -----
    `fit(X, lengths)`, `score`, `decode`, `predict`, `predict_proba`, `sample`, `aic` and `bic` are
    those of hmmlearn; `to_hmmlearn` and `from_hmmlearn` convert. Probabilities of zero among the
    starting values stay zero. NaN stands for an entry that was not observed: its likelihood is the
    marginal one, exactly. `partial_fit` streams whole sequences, `fit` goes over a source of
    batches, and both take weights of sequences. `intervals` says how well the parameters are known.

    Examples
    --------
    >>> import latensor as lt
    >>> sequences = lt.datasets.make_gaussian_hmm(5_000, 2, 3, separation=6.0, random_state=0)
    >>> model = lt.GaussianHMM(3, random_state=0).fit(sequences.X, sequences.lengths)
    >>> model.means_.shape, model.covars_.shape
    ((3, 2), (3, 2, 2))
    """

    covariance_type: str = parameter("diag", Choice(COVARIANCE_TYPES))
    _: KW_ONLY
    min_covar: float = parameter(1e-6, AT_LEAST_ZERO)
    init_params: str = parameter("stmc", Letters("stmc"))
    params: str = parameter("stmc", Letters("stmc"))

    _fitted_names = HiddenMarkovEstimator._fitted_names | {"means_", "covariances_"}
    _letters = {  # noqa: RUF012
        "s": "startprob_",
        "t": "transmat_",
        "m": "means_",
        "c": "covariances_",
    }
    _peer, _peer_settings = "GaussianHMM", ("covariance_type",)

    @property
    def _intervals_of(self) -> Any:  # type: ignore[override]
        spread = NOT_NEGATIVE if self.covariance_type in ("spherical", "diag") else REAL
        ranges = {"startprob": PROBABILITY, "transmat": PROBABILITY, "means": REAL}
        return {**ranges, "covariances": spread}, "means"

    def _model(self) -> PointModel:
        return PointModel(
            self.n_components,
            self.views,
            self.algorithm,
            self._row_limit,
            self.params,
            self._given_start(),
            self.covariance_type,
            self.min_covar,
            self.n_features_in_,
        )

    def _starting_values(self) -> dict[str, Array]:
        found = super()._starting_values()
        k, kind = self.n_components, self.covariance_type
        if "m" in found and (found["m"].ndim != 2 or len(found["m"]) != k):
            raise InvalidInputError(f"means_ has shape {found['m'].shape}: expected ({k}, p)")
        if "c" in found:
            shape = shape_of(kind, int(k), found["c"].shape[-1])
            if found["c"].shape != shape:
                raise InvalidInputError(
                    f"covariances_ has shape {found['c'].shape}: covariance_type={kind!r} with "
                    f"{k} states takes {shape}"
                )
        return found

    def _read_rows(self, X: object, *, reset: bool, is_batch: bool = False) -> Any:
        if not reset and "n_features_in_" not in self.__dict__:
            self.n_features_in_ = int(np.shape(self.means_)[1])
        samples = read_samples(self, X, reset=reset)
        if scipy.sparse.issparse(samples):
            raise InvalidInputError(
                f"GaussianHMM needs dense data, X is sparse of shape {samples.shape}: "
                "give X.toarray()"
            )
        for letter, values in self._given_start().items():
            width = values.shape[-1]
            wanted = letter == "m" or (letter == "c" and self.covariance_type != "spherical")
            if reset and wanted and width != self.n_features_in_:
                raise InvalidInputError(
                    f"{self._letters[letter]} is of {width} features, X of {self.n_features_in_}"
                )
        return within_range(to_host(samples))

    def _reader(self) -> Callable[[Any], Any]:
        names = getattr(self, "feature_names_in_", None)
        return PointReader(
            RowReader(
                self.n_features_in_,
                type(self).__name__,
                None if names is None else tuple(map(str, names)),
                allows_missing=True,
            )
        )

    def _emission(self) -> GaussianEmission:
        means = np.asarray(self.means_, dtype=np.float64)
        covariances = np.asarray(self.covariances_, dtype=np.float64)
        return GaussianEmission.of(means, covariances, self.covariance_type)

    @property
    def covars_(self) -> Any:
        """The covariances (k, p, p) as matrices, whatever their kind."""
        return self._emission().matrices()

    @covars_.setter
    def covars_(self, values: Any) -> None:
        found = np.array(values, dtype=np.float64)
        if self.covariance_type == "spherical" and found.ndim and found.size == len(found):
            # One number for every state, in any shape, as hmmlearn takes it.
            found = found.reshape(len(found))
        if found.ndim == 3 and self.covariance_type != "full":
            diagonals = np.einsum("jaa->ja", found)
            found = {"spherical": diagonals[:, 0], "diag": diagonals, "tied": found[0]}[
                self.covariance_type
            ].copy()
        self.covariances_ = found

    def _draw(self, states: Any, rng: np.random.Generator) -> Any:
        return draw_points(rng, np.asarray(self.means_), cholesky(self.covars_), states)
