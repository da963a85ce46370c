"""Fitting a hidden Markov model to sequences, written once for all kinds of emissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from latensor.arrays import generator
from latensor.arrays.threads import thread_count
from latensor.datasets.sequences import stationary_distribution
from latensor.estimation.hmm.certificate import HMMCertificate
from latensor.estimation.hmm.intervals import HiddenMarkovIntervals
from latensor.estimation.hmm.moment_starts import MomentStart, moment_starts
from latensor.estimation.hmm.portfolio import Chosen, Start, compete, likeliest
from latensor.estimation.hmm.read_off import HiddenStates
from latensor.estimation.hmm.sequence_input import (
    SHORTEST,
    is_sequence_batch,
    read_lengths,
    weighted_sequences,
)
from latensor.estimation.hmm.source_fit import SequenceSources
from latensor.estimation.hmm.stream import SequenceStream
from latensor.estimation.moment_model import N_COMPONENTS, N_JOBS, REFINE, component_order
from latensor.estimation.parameters import Choice, Range, check_parameters
from latensor.estimation.sample_source import as_batches
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.sequences import DECAYS, Pairs, SequenceSample
from latensor.refinement.hmm import HiddenChain, Sequences, climb

# Random starts beside those of the moments; more where these are weaker than their noise, and for
# so few rows that they cost next to nothing, though never more than three for a state.
_RANDOM, _MORE_RANDOM, _FOR_A_STATE = 5, 8, 3
_FEW_ROWS = 10_000
# The climb of refine="auto": passes at most, and the gain per row below which it ends.
_MOST_PASSES = 300
_TOLERANCE = 2e-7
# Directions of the pair tables below the edge of their noise tell nothing.
_EDGE = 1.0


class Callables:
    """Anything that can be called: an algorithm of `lt.decomposition`."""

    def __contains__(self, value: object) -> bool:
        return callable(value)

    def __str__(self) -> str:
        return "an algorithm of lt.decomposition"


class HiddenMarkovModel(SequenceSources, HiddenMarkovIntervals, BaseEstimator):  # type: ignore[misc]
    """Base of the hidden Markov models: moments, portfolio, climb, and what is asked of a fit.

    A subclass stores its parameters in `__init__` and defines

    _read(X, reset) : rows as symbols (n,) or points (n, p)
    _new_stream(rows, n_components, rng, weights) : an empty SequenceStream
    _surveyed_stream(source, n_components, rng) : the same from a pass over batches
    _prepared(rows) : rows as the stream and the climb take them
    _emission_of(states, symbols, noise) : emissions from what was read off
    _random_emission(k, rows, rng) : emissions of a random start
    _softened(chain) : a start without zeros
    _store(emission), _stored() : emissions to and from the fitted attributes
    _draw(states, rng) : rows for states
    """

    n_components: Any
    algorithm: Any
    refine: Any
    views: str
    random_state: Any
    n_jobs: Any

    _parameters: ClassVar[Mapping[str, Sequence[Range]]] = {
        "n_components": N_COMPONENTS,
        "algorithm": (Choice(("auto",)), Callables()),
        "refine": REFINE,
        "views": (Choice(("auto", "lag", "window")),),
        "n_jobs": N_JOBS,
    }
    _read_off_names: ClassVar[frozenset[str]] = frozenset(
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

    def fit(self, X: object, lengths: object = None, sample_weight: object = None) -> Self:
        """Learn the model from one or many sequences.

        Parameters
        ----------
        X : rows of all sequences, one after the other; or a source: a list of batches, or an
            object whose `__iter__` yields them anew each time. A batch is the rows of one
            sequence, or a tuple (rows, lengths) or (rows, lengths, sample_weight)
        lengths : how many rows each sequence has, in order; None for one sequence
        sample_weight : how often each sequence counts, (n_sequences,); a weight of 2 is the same
            as giving the sequence twice

        Notes
        -----
        A source of up to 100,000 rows is read into memory and gives what its rows give. A longer
        one is gone over twice, for the pairs of symbols and for the windows along the features
        these choose, after one pass that numbers the symbols where `n_features` does not, or that
        finds the cells of points; the climb runs on a sample of its sequences.
        """
        check_parameters(self, self._parameters)
        batches = as_batches(X, is_sequence_batch)
        if batches is not None:
            return self._fit_source(batches, lengths, sample_weight)
        rows = self._read(X, reset=True)
        return self._fit_rows(*self._sequences_of(rows, lengths, sample_weight))

    def _fit_rows(self, rows: Any, sizes: Any, weights: Any) -> Self:
        self._begin()
        rng = generator(self.random_state)
        self._stream = self._new_stream(rows, self._states_wanted(), rng, _each(weights, sizes))
        prepared = self._prepared(rows)
        self._stream.start(prepared, sizes, self._states_wanted(), weights)
        self._settle(prepared, sizes, weights, rng)
        return self

    def partial_fit(self, X: object, lengths: object = None, sample_weight: object = None) -> Self:
        """Add whole sequences; the parameters are read off when they are first asked for.

        The first call fixes the features that moments are taken along (and the number of states
        for n_components="auto"). Unless refine is 0, a sample of the sequences is kept and the
        climb runs on that; after `fit` a stream goes on from the moments alone.

        Parameters
        ----------
        X : rows of all sequences, one after the other
        lengths : how many rows each sequence has, in order; None for one sequence
        sample_weight : how often each sequence counts, (n_sequences,); a weight of 2 is the same
            as giving the sequence twice
        """
        check_parameters(self, self._parameters)
        fresh = "_stream" not in self.__dict__
        rows = self._read(X, reset=fresh)
        rows, sizes, weights = self._sequences_of(rows, lengths, sample_weight)
        if fresh:
            self._begin()
            rng = generator(self.random_state)
            self._stream = self._new_stream(rows, self._states_wanted(), rng, _each(weights, sizes))
            prepared = self._prepared(rows)
            self._stream.start(prepared, sizes, self._states_wanted(), weights)
            if self.refine != 0:
                self._sample = SequenceSample(self._row_limit)
        else:
            prepared = self._prepared(rows)
            self._stream.update(prepared, sizes, weights)
        if "_sample" in self.__dict__:
            self._sample.update(prepared, sizes, weights)
        self._forget()
        return self

    def merge(self, other: Self) -> Self:
        """Add the sequences that another model has seen; `other` is unchanged.

        Exact for models that share their features: see `spawn`.
        """
        name = type(self).__name__
        for role, model in (("self", self), ("other", other)):
            if type(model) is not type(self) or "_stream" not in model.__dict__:
                raise InvalidInputError(f"{role} must be a {name} that has seen sequences")
        if other._stream.n_symbols != self._stream.n_symbols:
            raise InvalidInputError(
                f"other counts {other._stream.n_symbols} kinds of symbols, but self "
                f"{self._stream.n_symbols}: give the second worker those of the first with spawn()"
            )
        self._stream.merge(other._stream)
        if "_sample" in self.__dict__ and "_sample" in other.__dict__:
            self._sample.merge(other._sample)
        else:
            # Half of the sequences would pull the climb towards one of the two models.
            self.__dict__.pop("_sample", None)
        self._forget()
        return self

    def spawn(self) -> Self:
        """An empty model for a second worker, whose sequences can be merged into this one exactly.

        It has the same parameters and the same features, fixed by what this model has seen.
        """
        if "_stream" not in self.__dict__:
            raise InvalidInputError("self must have seen sequences: call partial_fit or fit first")
        worker: Self = clone(self)
        worker.n_features_in_ = self.n_features_in_
        for name in ("n_features_", "feature_names_in_"):
            if name in self.__dict__:
                setattr(worker, name, getattr(self, name))
        worker._stream = self._stream.spawn()
        if worker.refine != 0:
            worker._sample = SequenceSample(worker._row_limit)
        return worker

    def _states_wanted(self) -> int | None:
        return None if self.n_components == "auto" else int(self.n_components)

    def _sequences_of(
        self, rows: Any, lengths: object, sample_weight: object, *, enough: bool = True
    ) -> tuple[Any, Any, Any]:
        """Rows, lengths (s,) and weights (s,) or None, without the sequences of weight zero."""
        sizes = read_lengths(lengths, len(rows), shortest=SHORTEST)
        rows, sizes, weights = weighted_sequences(rows, sizes, sample_weight)
        wanted = self._states_wanted()
        if enough and wanted is not None and len(rows) < wanted:
            raise InvalidInputError(
                f"n_samples={len(rows)} should be at least n_components={wanted}: give more rows "
                "or ask for fewer states"
            )
        return rows, sizes, weights

    def _begin(self) -> None:
        self._forget()
        for name in ("_stream", "_sample"):
            self.__dict__.pop(name, None)

    def _forget(self) -> None:
        for name in type(self)._read_off_names:
            self.__dict__.pop(name, None)

    def _settle(self, rows: Any, lengths: Any, weights: Any, rng: np.random.Generator) -> None:
        """Read the moments off and, where there are rows and refine asks for it, climb."""
        k = self._stream.n_components if self.n_components == "auto" else int(self.n_components)
        pairs = self._stream.pairs.finalize()
        strength = self._stream.strength(k)
        starts: list[MomentStart] = []
        if self._stream.n_components == k:
            starts = self._moment_starts(pairs, rng)
        if (self.refine == 0 or rows is None) and (not starts or strength < _EDGE):
            self._refuse(k, starts, strength)
        n_threads = thread_count(self.n_jobs)
        converged: bool | None = None
        history: tuple[float, ...] = ()
        if rows is None:
            chosen = Chosen(starts[0], starts[0].chain)
        elif self.refine == 0:
            chosen = likeliest([*starts], rows, lengths, n_threads, weights)
        else:
            chosen = self._trials(k, starts, strength, rows, lengths, weights, rng)
        chain = chosen.chain
        if rows is not None and self.refine != 0:
            automatic = self.refine == "auto"
            climbed = climb(
                chain,
                rows,
                Sequences.of(lengths, weights=weights),
                max_iter=_MOST_PASSES if automatic else int(self.refine),
                tol=_TOLERANCE if automatic else 0.0,
                accelerate=automatic,
                n_threads=n_threads,
            )
            chain, converged, history = climbed.chain, climbed.converged, climbed.history
        self._set_chain(chain)
        self.n_iter_ = len(history)
        self.converged_ = converged
        self.history_ = np.array(history)
        state: HiddenStates | None = _states_of(chosen.start, starts)
        self.certificate_ = HMMCertificate(
            n_components=k,
            strength=strength,
            off_diagonal=np.nan if state is None else state.off_diagonal,
            condition=np.nan if state is None else state.condition,
            start=chosen.start.name,
            trials=chosen.trials,
            n_iter=self.n_iter_,
            converged=converged,
            n_rows=int(pairs.n_rows),
            n_sequences=int(pairs.n_sequences),
            constant_features=() if self._stream.cells is None else self._stream.cells.constant,
        )

    def _moment_starts(self, pairs: Pairs, rng: np.random.Generator) -> list[MomentStart]:
        windows = self._stream.windows
        assert windows is not None
        return moment_starts(
            pairs,
            windows.finalize(),
            windows.features,
            self.views,
            self.algorithm,
            self._emission_of,
            rng,
        )

    def _trials(
        self,
        k: int,
        starts: list[MomentStart],
        strength: float,
        rows: Any,
        lengths: Any,
        weights: Any,
        rng: np.random.Generator,
    ) -> Chosen:
        candidates: list[Start] = [*starts]
        automatic, n_threads = self.refine == "auto", self._n_threads()
        sure = strength >= _EDGE and len(rows) > _FEW_ROWS
        count = min(_RANDOM if sure else _MORE_RANDOM, _FOR_A_STATE * k)
        if k > 1 and (automatic or not starts):
            candidates += [self._random_start(k, i, rows, rng) for i in range(count)]
        if automatic and k > 1:
            return compete(candidates, rows, lengths, self._softened, n_threads, weights)
        chosen = likeliest(candidates, rows, lengths, n_threads, weights)
        return Chosen(chosen.start, self._softened(chosen.chain), chosen.trials)

    def _random_start(self, k: int, number: int, rows: Any, rng: np.random.Generator) -> Start:
        # Fast, middling and slow chains in turn.
        stay = (0.0, 0.5, 0.9)[number % 3]
        transmat = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.full(k, 2.0), k)
        chain = HiddenChain(np.full(k, 1 / k), transmat, self._random_emission(k, rows, rng))
        return Start(f"random {number + 1}", chain)

    def _refuse(self, k: int, starts: list[MomentStart], strength: float) -> None:
        condition = min((s.states.condition for s in starts), default=np.inf)
        raise NotIdentifiableError(
            f"the moments cannot tell {k} states apart: the weakest direction they need is "
            f"{strength:.2g} times the edge of the noise of {self._stream.n_symbols} symbols, and "
            f"the moment of past and future has the condition number {condition:.3g}. Lower "
            "n_components, give more rows, or let refine climb the likelihood"
        )

    def _set_chain(self, chain: HiddenChain) -> None:
        occupancy = stationary_distribution(chain.transmat)
        order = component_order(occupancy, self._vectors(chain.emission))
        ordered = chain.reordered(order)
        self.startprob_ = ordered.startprob
        self.transmat_ = ordered.transmat
        self.n_components_ = len(ordered.startprob)
        self._store(ordered.emission)

    def _adopt(self, peer: Any) -> Self:
        """Take over the chain of a fitted model of hmmlearn."""
        self.startprob_ = np.array(peer.startprob_, dtype=np.float64)
        self.transmat_ = np.array(peer.transmat_, dtype=np.float64)
        self.n_components_ = len(self.startprob_)
        return self

    def _decays(self) -> tuple[float, ...]:
        return (0.0,) if self.views == "lag" else DECAYS

    def _n_threads(self) -> int:
        return thread_count(self.n_jobs)

    def __getattr__(self, name: str) -> Any:
        # Reading off costs a decomposition: a stream does it once asked, not once per batch.
        if name in type(self)._read_off_names and "_stream" in self.__dict__:
            rows = lengths = weights = None
            if "_sample" in self.__dict__ and self._sample.pieces:
                rows, lengths, weights = self._sample.finalize()
            if not self._stream.pairs.finalize().n_rows:
                raise AttributeError(f"{type(self).__name__} has seen no sequences yet")
            self._settle(rows, lengths, weights, generator(self.random_state))
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "_stream" in self.__dict__ or "transmat_" in self.__dict__

    def _new_stream(
        self, rows: Any, n_components: int | None, rng: np.random.Generator, weights: Any = None
    ) -> SequenceStream:
        raise NotImplementedError(f"{type(self).__name__} must say which moments it needs")

    def _prepared(self, rows: Any) -> Any:
        return rows

    def _emission_of(self, states: HiddenStates, symbols: Any, noise: float) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say how emissions are read off")

    def _random_emission(self, k: int, rows: Any, rng: np.random.Generator) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must draw emissions at random")

    def _softened(self, chain: HiddenChain) -> HiddenChain:
        return chain

    def _vectors(self, emission: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say what tells its states apart")

    def _store(self, emission: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} must store its emissions")


def _states_of(start: Start, starts: Sequence[MomentStart]) -> HiddenStates | None:
    """The states that a start was made of, or those of the best moments for a random one."""
    if isinstance(start, MomentStart):
        return start.states
    return starts[0].states if starts else None


def _each(weights: Any, lengths: Any) -> Any:
    """The weights (n,) of all rows of weighted sequences."""
    return None if weights is None else np.repeat(weights, lengths)
