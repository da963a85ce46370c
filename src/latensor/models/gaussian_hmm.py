"""Hidden Markov models with Gaussian emissions from moments (monograph 4.3)."""

from __future__ import annotations

import numbers
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays import to_host
from latensor.arrays.randomness import RandomState
from latensor.datasets.sequences import draw_points
from latensor.estimation import read_samples
from latensor.estimation.hmm import HiddenMarkovModel
from latensor.estimation.hmm.cells import POINTS, Cells
from latensor.estimation.hmm.gaussian_states import gaussian_of, random_gaussian
from latensor.estimation.hmm.peer import check_peer, peer_module
from latensor.estimation.hmm.read_off import HiddenStates
from latensor.estimation.hmm.stream import SequenceStream
from latensor.estimation.parameters import Choice, Interval
from latensor.estimation.sample_source import SampleBatches
from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample
from latensor.moments.second import CovarianceAccumulator
from latensor.refinement.hmm import GaussianEmission

KINDS = ("spherical", "diag", "full", "tied")
# Cells per state, and their number where the states are still to be counted.
_CELLS_PER_STATE, _CELLS = 4, 32
# Below this share of the variance of all rows a likelihood has no meaning.
_LEAST = 1e-12
# Magnitudes whose squares, added up, are still numbers.
_LARGEST = 1e150


class GaussianHMM(HiddenMarkovModel):
    """States behind sequences of points, each with a Gaussian of its own (monograph 4.3).

    A hidden chain moves from state to state by `transmat_` and every state emits points of its
    mean and covariance. Points are coded as cells (quantiles on a line, k-means cells otherwise),
    whose moments determine the states as for `CategoricalHMM`, also where there are more states
    than dimensions; means and covariances are then read off the points themselves, and the
    likelihood is climbed (Baum and Welch, with extrapolated steps).

    Parameters
    ----------
    n_components : int, states, or "auto" for as many as the pairs of cells speak for
    covariance_type : "spherical", "diag", "full" or "tied" (one matrix for all states)
    min_covar : float, added to every variance
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of passes over the rows; 0 is the answer of the moments alone
    views : "auto" for both, "lag" for neighbouring rows or "window" for averages over many
    random_state : seed of the cells, the decomposition and the random starts
    n_jobs : int, threads; None for all processors. The answer is the same for any number

    Attributes
    ----------
    startprob_ : (k,), how sequences begin; one more start, by the average of all rows, is counted
    transmat_ : (k, k), rows sum to one
    means_ : (k, p), states by falling share
    covariances_ : (k,) "spherical", (k, p) "diag", (k, p, p) "full", (p, p) "tied"
    covars_ : (k, p, p) matrices for every kind, as in hmmlearn
    n_components_, n_iter_ : int
    converged_ : bool, whether the climb ended by itself; None for refine=0
    history_ : (n_iter_,) log-likelihood per row, of standardized points, before every pass
    certificate_ : HMMCertificate

    Notes
    -----
    `fit(X, lengths)`, `score`, `decode`, `predict`, `predict_proba`, `sample`, `aic` and `bic` are
    those of hmmlearn; `to_hmmlearn` and `from_hmmlearn` convert. `partial_fit` streams whole
    sequences along cells and features fixed by the first call, `fit` goes over a source of
    batches, and both take weights of sequences. `intervals` says how well the parameters are known.

    Examples
    --------
    >>> from latensor.datasets.sequences import make_gaussian_hmm
    >>> sequences = make_gaussian_hmm(5_000, 2, 3, separation=6.0, random_state=0)
    >>> model = GaussianHMM(3, random_state=0).fit(sequences.X, sequences.lengths)
    >>> model.means_.shape, model.covars_.shape
    ((3, 2), (3, 2, 2))
    """

    _parameters = {  # noqa: RUF012
        **HiddenMarkovModel._parameters,
        "covariance_type": (Choice(KINDS),),
        "min_covar": (Interval(numbers.Real, 0),),
    }
    _read_off_names = HiddenMarkovModel._read_off_names | {"means_", "covariances_"}

    def __init__(
        self,
        n_components: int | str = 1,
        covariance_type: str = "diag",
        *,
        min_covar: float = 1e-6,
        algorithm: Any = "auto",
        refine: int | str = "auto",
        views: str = "auto",
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.min_covar = min_covar
        self.algorithm = algorithm
        self.refine = refine
        self.views = views
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _read(self, X: object, *, reset: bool) -> Any:
        samples = read_samples(self, X, reset=reset)
        if scipy.sparse.issparse(samples):
            raise InvalidInputError(
                f"GaussianHMM needs dense data, X is sparse of shape {samples.shape}: "
                "give X.toarray()"
            )
        rows = np.asarray(to_host(samples), dtype=np.float64)
        reach = max(float(rows.max()), -float(rows.min()))
        if reach > _LARGEST:
            raise InvalidInputError(
                f"the squares of X overflow (largest magnitude {reach:.3g}): give the samples in a "
                "smaller unit"
            )
        return rows

    def _new_stream(
        self, rows: Any, n_components: int | None, rng: np.random.Generator, weights: Any = None
    ) -> SequenceStream:
        count = self._n_cells(n_components, len(rows) if weights is None else int(weights.sum()))
        same = self.covariance_type == "spherical"
        return self._stream_of(Cells.of(rows, count, same, rng, weights))

    def _surveyed_stream(
        self, source: SampleBatches, n_components: int | None, rng: np.random.Generator
    ) -> SequenceStream:
        known, sample = CovarianceAccumulator(), RowSample(POINTS)
        for (rows, lengths), weights in source:
            each = None if weights is None else np.repeat(weights, lengths)
            known.update(rows, each)
            sample.update(rows, each)
        found = known.finalize(host=True)
        count = self._n_cells(n_components, int(found.weight))
        same, deviation = self.covariance_type == "spherical", np.sqrt(np.diag(found.covariance))
        return self._stream_of(
            Cells.around(found.mean, deviation, sample.samples, count, same, rng, sample.weights)
        )

    def _n_cells(self, n_components: int | None, n_rows: int) -> int:
        count = _CELLS if n_components is None else _CELLS_PER_STATE * n_components
        return max(min(count, n_rows // 3), 2)

    def _stream_of(self, cells: Cells) -> SequenceStream:
        products = self.covariance_type in ("full", "tied")
        return SequenceStream(
            len(cells.centers), cells, products, self._n_threads(), self._decays()
        )

    def _prepared(self, rows: Any) -> Any:
        return self._cells().standardize(rows)

    def _cells(self) -> Cells:
        assert self._stream.cells is not None
        return self._stream.cells

    def _floor(self) -> Any:
        return np.maximum(self.min_covar / self._cells().scale ** 2, _LEAST)

    def _emission_of(self, states: HiddenStates, symbols: Any, noise: float) -> GaussianEmission:
        return gaussian_of(states, self.n_features_in_, self.covariance_type, self._floor(), noise)

    def _random_emission(self, k: int, rows: Any, rng: np.random.Generator) -> GaussianEmission:
        return random_gaussian(k, rows, self.covariance_type, self._floor(), rng)

    def _vectors(self, emission: Any) -> Any:
        return emission.means

    def _store(self, emission: Any) -> None:
        cells = self._cells()
        scale = cells.scale
        self.means_ = emission.means * scale + cells.center
        if self.covariance_type == "spherical":
            self.covariances_ = emission.covariances * scale[0] ** 2
        elif self.covariance_type == "diag":
            self.covariances_ = emission.covariances * scale**2
        else:
            self.covariances_ = emission.covariances * np.outer(scale, scale)

    def _emission_estimates(self, order: Any) -> dict[str, Any]:
        tied = self.covariance_type == "tied"
        return {
            "means": self.means_[order],
            "covariances": self.covariances_ if tied else self.covariances_[order],
        }

    def _stored(self, rows: Any) -> tuple[GaussianEmission, Any]:
        # Far from the origin a square would lose the digits that tell states apart.
        means = np.asarray(self.means_, dtype=np.float64)
        center = means.mean(axis=0)
        emission = GaussianEmission(
            means - center, np.asarray(self.covariances_, dtype=np.float64), self.covariance_type
        )
        return emission, None if rows is None else np.ascontiguousarray(rows - center)

    @property
    def covars_(self) -> Any:
        """The covariances (k, p, p) as matrices, whatever their kind."""
        return self._stored(None)[0].matrices()

    def _draw(self, states: Any, rng: np.random.Generator) -> Any:
        return draw_points(rng, self.means_, np.linalg.cholesky(self.covars_), states)

    def to_hmmlearn(self) -> Any:
        """A fitted `hmmlearn.hmm.GaussianHMM` with these parameters; needs hmmlearn."""
        peer = peer_module().GaussianHMM(
            len(self.startprob_), covariance_type=self.covariance_type, init_params=""
        )
        peer.n_features = self.means_.shape[1]
        peer.startprob_, peer.transmat_ = self.startprob_.copy(), self.transmat_.copy()
        peer.means_, peer.covars_ = self.means_.copy(), self.covariances_.copy()
        return peer

    @classmethod
    def from_hmmlearn(cls, peer: Any) -> Self:
        """A fitted model with the parameters of a fitted `hmmlearn.hmm.GaussianHMM`."""
        check_peer(peer, "GaussianHMM", ("startprob_", "transmat_", "means_", "covars_"))
        kind = str(peer.covariance_type)
        model = cls(peer.n_components, kind)
        model.means_ = np.array(peer.means_, dtype=np.float64)
        model.n_features_in_ = model.means_.shape[1]
        matrices = np.array(peer.covars_, dtype=np.float64)
        diagonals = np.einsum("jaa->ja", matrices)
        model.covariances_ = {
            "spherical": diagonals[:, 0].copy(),
            "diag": diagonals.copy(),
            "full": matrices,
            "tied": matrices[0],
        }[kind]
        return model._adopt(peer)
