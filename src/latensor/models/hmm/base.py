"""Fitting a hidden Markov model to sequences, written once for all kinds of emissions."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array
from latensor.datasets.sequences import check_stochastic
from latensor.estimation.base import LatentEstimator, while_open
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import ParameterInterval
from latensor.estimation.parameters import (
    ALGORITHM,
    AT_LEAST_ZERO,
    N_COMPONENTS,
    VERBOSE,
    Choice,
    Interval,
    RefinementParameters,
    parameter,
)
from latensor.exceptions import InvalidInputError
from latensor.models.hmm.certificate import HMMCertificate
from latensor.models.hmm.hmmlearn_door import Monitor, check_peer, peer_module
from latensor.models.hmm.inference import HiddenMarkovInference
from latensor.models.hmm.model import ROWS_ALONE, ChainModel
from latensor.models.hmm.moment_starts import MomentStart
from latensor.models.hmm.sequence_input import sequence_source
from latensor.moments.batch import Batch, Kind
from latensor.moments.ragged import Ragged
from latensor.sources.sequences import MARGIN
from latensor.sources.shards import Source
from latensor.whole_files import PathLike

# The fewest rows of a block that is resampled: rows depend on their neighbours, and what is not
# much longer than that dependence is not independent of the next one.
SHORTEST_BLOCK = 50


@dataclass(frozen=True)
class Letters:
    """Any string of some letters: which parameters are meant, as in hmmlearn."""

    letters: str

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and set(value) <= set(self.letters)

    def __str__(self) -> str:
        return f"a string of the letters {self.letters!r}"


@dataclass(eq=False, repr=False)
class HiddenMarkovEstimator(RefinementParameters, HiddenMarkovInference, LatentEstimator):
    """Base of the hidden Markov models as users meet them.

    A subclass lists its parameters, and gives `_model`, `_letters` (the attribute
    of every letter of `init_params`), `_read_rows`, `_reader`, and what inference needs.
    """

    n_components: int | str = parameter(1, *N_COMPONENTS)
    _: KW_ONLY
    algorithm: Any = parameter("auto", *ALGORITHM)
    views: str = parameter("auto", Choice(("auto", "lag", "window")))
    max_iter: int = parameter(300, Interval(numbers.Integral, 0))
    tol: float = parameter(5e-7, AT_LEAST_ZERO)
    verbose: int = parameter(0, *VERBOSE)

    init_params: str
    params: str
    _letters: ClassVar[Mapping[str, str]] = {}
    # The class of hmmlearn with these parameters, and the settings that it shares.
    _peer: ClassVar[str]
    _peer_settings: ClassVar[tuple[str, ...]] = ()
    _input_names: ClassVar[tuple[str, ...]] = ("_given_values",)
    # Rows of the sample on which EM runs, at most. Where half of the rows do not see the slowest
    # direction, EM goes over all: 200,000 words took 17 s, and 7 s as one sample.
    _row_limit: ClassVar[int] = 250_000
    # Blocks of rows are cut to be resampled: one for each group will do.
    _units_per_group: ClassVar[int] = 1
    _allows_missing: ClassVar[bool] = True
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "startprob_",
            "transmat_",
            "n_components_",
            "n_iter_",
            "converged_",
            "history_",
            "certificate_",
        }
    )

    def fit(
        self,
        X: object,
        lengths: object = None,
        sample_weight: object = None,
        *,
        callback: Callable[[str, int], object] | None = None,
        checkpoint: PathLike | None = None,
    ) -> Self:
        """Learn the model from one or many sequences.

        Parameters
        ----------
        X : rows of all sequences, one after the other; or a source: a list of batches, or an
            object whose `__iter__` yields them anew each time. A batch is the rows of one
            sequence, or a tuple (rows, lengths) or (rows, lengths, sample_weight). A source is
            fitted as well as its rows in one array are. NaN is an entry that was not observed
        lengths : how many rows each sequence has, in order, or for every row the name of its
            sequence; None for one sequence
        sample_weight : how often each sequence counts, (n_sequences,); a weight of 2 is the same
            as giving the sequence twice
        callback : called with the name and the number of every pass over the data
        checkpoint : folder in which a fit that is ended at any moment leaves what it has done, so
            that the same call goes on from there and ends with the same bits; needs an integer
            random_state

        Notes
        -----
        Sequences longer than 131,072 rows are cut into pieces that see 1,024 rows on both sides.
        """
        told = callback or self._progress()
        return super().fit(X, lengths, sample_weight, callback=told, checkpoint=checkpoint)

    @while_open
    def partial_fit(self, X: object, lengths: object = None, sample_weight: object = None) -> Self:
        """Add whole sequences; parameters are worked out when they are first asked for.

        After `fit` the stream goes on from the fit: what it then gives is refined by all rows.

        Parameters
        ----------
        X, lengths, sample_weight : as for `fit`
        """
        return super().partial_fit(X, lengths, sample_weight)

    @property
    def monitor_(self) -> Monitor:
        """How EM went, as hmmlearn tells it: `history`, `iter`, `converged`, `n_iter`, `tol`."""
        history = (self.history_ * self.certificate_.n_rows).tolist()
        return Monitor(history, self.n_iter_, bool(self.converged_), self.max_iter, self.tol)

    def intervals(
        self,
        X: object,
        lengths: object = None,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for all parameters, by a bootstrap of groups of sequences: one pass over them.

        With fewer than `n_groups` sequences these are cut into blocks of at least 50 rows. The
        intervals of a refined fit are those of its likelihood: resampled statistics, and how far
        the optimum moves with them. Those of moments alone come from resampled moments. A chain
        that stays in a state for longer than a block gets intervals that are too narrow.

        Parameters
        ----------
        X : rows of all sequences, usually those of the fit; sources too
        lengths : how many rows each sequence has, in order; None for one sequence
        level : float between 0 and 1, the fraction of intervals that hold the truth
        n_resamples : int
        n_groups : int

        Returns
        -------
        The fitted attributes, by name without the underscore at the end, -> ParameterInterval of
        that shape; `startprob` only where there are `n_groups` sequences: cut ones do not begin
        """
        found = super().intervals(
            X, lengths, level=level, n_resamples=n_resamples, n_groups=n_groups
        )
        if self._has_few_starts:
            del found["startprob"]
        return found

    def to_hmmlearn(self) -> Any:
        """A fitted model of hmmlearn, of the same name, with these parameters; needs hmmlearn."""
        check_is_fitted(self)
        settings = {name: getattr(self, name) for name in self._peer_settings}
        peer = getattr(peer_module(), self._peer)(len(self.startprob_), init_params="", **settings)
        peer.n_features = self._vectors().shape[1]
        for ours, theirs in self._peer_names().items():
            setattr(peer, theirs, getattr(self, ours).copy())
        return peer

    @classmethod
    def from_hmmlearn(cls, peer: Any) -> Self:
        """A fitted model with the parameters of a fitted one of hmmlearn, of the same name."""
        names = tuple(cls._peer_names().values())
        check_peer(peer, cls._peer, names)
        model = cls(peer.n_components, **{name: getattr(peer, name) for name in cls._peer_settings})
        for name in names:
            setattr(model, name, np.array(getattr(peer, name), dtype=np.float64))
        model.n_components_ = len(model.startprob_)
        model._size_up()
        return model

    @classmethod
    def _peer_names(cls) -> dict[str, str]:
        """What hmmlearn calls the parameters."""
        return {n: "covars_" if n == "covariances_" else n for n in cls._letters.values()}

    def _vectors(self) -> Array:
        """What tells states apart, (k, .): the third parameter."""
        found: Array = getattr(self, tuple(self._letters.values())[2])
        return found

    def _size_up(self) -> None:
        """Set the number of features by the parameters."""
        self.n_features_in_ = self._vectors().shape[1]

    # ------------------------------------------------------------------ inside
    def _begin(self) -> None:
        self._given_values = self._starting_values()
        self._warn_overwritten()

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        return sequence_source(
            X,
            y,
            sample_weight,
            lambda rows, is_batch: self._read_rows(rows, reset=reset, is_batch=is_batch),
            self._reader,
        )

    def _read_rows(self, X: object, *, reset: bool, is_batch: bool = False) -> Any:
        """Rows on the host; of a batch of a source only what it shows about all is taken."""
        raise NotImplementedError(f"{type(self).__name__} must say how rows are read")

    def _reader(self) -> Callable[[Any], Any]:
        raise NotImplementedError(f"{type(self).__name__} must say how batches are read")

    def _divided(self, source: Source, n_groups: int) -> Source:
        """Sequences as blocks of rows, where there are too few of them to be resampled."""
        units = source.in_memory
        self._has_few_starts = False
        if units is None or int((units.rows.lead == 0).sum()) >= n_groups:
            return source
        self._has_few_starts = True
        n_rows = units.extent
        size = n_rows / n_groups
        if size < SHORTEST_BLOCK:
            raise InvalidInputError(
                f"n_groups={n_groups} leaves blocks of {int(size)} rows, at least {SHORTEST_BLOCK} "
                f"are needed: lower n_groups to {max(n_rows // SHORTEST_BLOCK, 1)} or less, or "
                "give more rows"
            )
        rows: Ragged = units.rows
        most = np.maximum(-(-rows.sizes // np.maximum(np.ceil(rows.sizes / size), 1)), 1)
        pieces, owners = rows.cut(most.astype(np.int64), MARGIN)
        keys = np.arange(len(owners), dtype=np.uint64)
        return Source.of(Kind.SEQUENCES, Batch((pieces,), units.weights[owners], keys))

    def _starting_values(self) -> dict[str, Array]:
        """The parameters that were set before fit and that `init_params` leaves alone."""
        found: dict[str, Array] = {
            letter: np.array(self.__dict__[name], dtype=np.float64)
            for letter, name in self._letters.items()
            if letter not in self.init_params and name in self.__dict__
        }
        k = self.n_components
        if found and isinstance(k, str):
            raise InvalidInputError("n_components='auto' takes no starting values: give a number")
        if "s" in found:
            found["s"] = check_stochastic(found["s"][None], (1, int(k)), "startprob_")[0]
        if "t" in found:
            found["t"] = check_stochastic(found["t"], (int(k), int(k)), "transmat_")
        return found

    def _warn_overwritten(self) -> None:
        """Say which parameters were set by hand in vain."""
        if self._has_started() or self.__dict__.get("_is_loaded"):
            return  # they are those of the fit before
        for letter, name in self._letters.items():
            if letter in self.init_params and name in self.__dict__:
                warnings.warn(
                    f"{name} was set before fit and will be overwritten: leave {letter!r} out of "
                    f"init_params={self.init_params!r} to start from it",
                    stacklevel=4,
                )

    def _given_start(self) -> Mapping[str, Array]:
        values: Mapping[str, Array] = self.__dict__.get("_given_values", {})
        return values

    def _progress(self) -> Callable[[str, int], object] | None:
        if not self.verbose:
            return None
        return lambda name, number: print(f"{type(self).__name__}: pass {number} ({name})")

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model: ChainModel = self._model()  # type: ignore[assignment]
        assert answer.state is not None
        state = model.permuted(answer.state, model.order(frame, answer.state))
        found = {f"{name}_": value for name, value in model.parameters(frame, state).items()}
        refined = answer.statistics is not None
        return {
            **found,
            "n_components_": len(state.startprob),
            "n_iter_": answer.n_iter,
            "converged_": answer.converged if refined else None,
            "history_": np.array(answer.history),
            "certificate_": _certificate(answer, frame, self.n_features_in_),
        }


def _certificate(answer: Answer[Any], frame: Frame, width: int) -> HMMCertificate:
    evidence = answer.evidence
    assert answer.state is not None
    starts: Sequence[MomentStart] = evidence["starts"]
    name = answer.start
    if answer.statistics is None and starts:
        name = starts[0].name
    states = next((s.states for s in starts if s.name == name), None)
    if states is None and starts:
        states = starts[0].states
    pairs = evidence["pairs"]
    return HMMCertificate(
        n_components=frame["count"],
        strength=evidence["strength"],
        off_diagonal=np.nan if states is None else states.off_diagonal,
        condition=np.nan if states is None else states.condition,
        start=name,
        trials=dict(evidence.get("trials", {})),
        n_iter=answer.n_iter,
        converged=None if answer.statistics is None else answer.converged,
        n_rows=round(pairs.n_rows),
        n_entries=round(pairs.n_rows) * width,
        n_parameters=answer.state.n_parameters,
        n_sequences=round(pairs.n_sequences),
        constant_features=getattr(frame["code"], "constant", ()),
        dependence=evidence.get("dependence", np.nan),
        n_observed=evidence.get("n_observed", np.inf),
        rows_alone=getattr(frame.values.get("selection"), "tests", {}).get(ROWS_ALONE, np.nan),
    )
