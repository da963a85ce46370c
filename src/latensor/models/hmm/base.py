"""Fitting a hidden Markov model to sequences, written once for all kinds of emissions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays import Array
from latensor.datasets.sequences import check_stochastic, stationary_distribution
from latensor.estimation.base import LatentEstimator, component_order
from latensor.estimation.learn import Answer, Effort, Frame, Model, Search
from latensor.estimation.learn import Start as Begun
from latensor.estimation.parameter_intervals import ParameterInterval
from latensor.estimation.parameters import N_COMPONENTS, N_JOBS, REFINE, Choice, Interval, Range
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.hmm.certificate import HMMCertificate
from latensor.models.hmm.inference import HiddenMarkovInference
from latensor.models.hmm.moment_starts import MomentStart, moment_starts
from latensor.models.hmm.sequence_input import merged_equal, sequence_source
from latensor.models.hmm.subspace import find_subspace
from latensor.models.hmm.trials import Chosen, Start, compete, likeliest, relabelled
from latensor.moments.batch import Batch, Kind
from latensor.moments.ragged import Ragged
from latensor.moments.sequences import DECAYS, PairSums, WindowSums
from latensor.moments.sums import Folded, Joint
from latensor.refinement.hmm import ChainFamily, HiddenChain
from latensor.sources.sequences import MARGIN
from latensor.sources.shards import Source

# Random starts beside those of the moments; more where these are weaker than their noise, and for
# so few rows that they cost next to nothing, though never more than three for a state.
_RANDOM, _MORE_RANDOM, _FOR_A_STATE = 5, 8, 3
_FEW_ROWS = 10_000
# Directions of the pair tables below the edge of their noise tell nothing.
_EDGE = 1.0
# The fewest rows of a block that is resampled: rows depend on their neighbours, and what is not
# much longer than that dependence is not independent of the next one.
SHORTEST_BLOCK = 50


class Callables:
    """Anything that can be called: an algorithm of `lt.decomposition`."""

    def __contains__(self, value: object) -> bool:
        return callable(value)

    def __str__(self) -> str:
        return "an algorithm of lt.decomposition"


@dataclass(frozen=True)
class Letters:
    """Any string of some letters: which parameters are meant, as in hmmlearn."""

    letters: str

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and set(value) <= set(self.letters)

    def __str__(self) -> str:
        return f"a string of the letters {self.letters!r}"


@dataclass(frozen=True)
class ChainModel(Model[HiddenChain]):
    """Base of the hidden Markov models: which moments, which starts, which likelihood.

    A subclass gives `survey_code` (how rows are counted, by name "code"), `design`, `emission_of`,
    `random_emission`, `softened`, `vectors`, `with_given` and `emission_parameters`.

    Attributes
    ----------
    n_components : int or "auto"
    views : "lag", "window" or "auto" for both
    algorithm : of the decomposition
    row_limit : int, rows of the sample on which EM runs
    updates : letters of the parameters that EM changes
    given : starting values by letter, in the units of the data
    """

    n_components: int | str
    views: str
    algorithm: Any
    row_limit: int
    updates: str
    given: Mapping[str, Array]
    kind: ClassVar[Kind] = Kind.SEQUENCES
    letters: ClassVar[str] = "st"
    # Rows: as many as EM needs to see its slowest direction (two overlapping states).
    pilot_size: ClassVar[int] = 100_000
    search_size: ClassVar[int] = 100_000
    first_steps: ClassVar[int] = 0

    # ------------------------------------------------------------------ what a subclass says
    def survey_code(self, run: Run) -> dict[str, Any]:
        """How rows become symbols, by name "code", and whatever else the frame should hold."""
        raise NotImplementedError(f"{type(self).__name__} must count its rows")

    def design(self, frame: Frame) -> Any:
        """How rows are given to the emissions."""
        raise NotImplementedError(f"{type(self).__name__} must give its coordinates")

    def emission_of(self, frame: Frame, states: Any, symbols: Any, noise: float) -> Any:
        """Emissions from what was read off."""
        raise NotImplementedError(f"{type(self).__name__} must say how emissions are read off")

    def random_emission(self, frame: Frame, k: int, units: Batch, rng: np.random.Generator) -> Any:
        """Emissions of a random start."""
        raise NotImplementedError(f"{type(self).__name__} must draw emissions at random")

    def softened(self, frame: Frame, chain: HiddenChain) -> HiddenChain:
        """A start without zeros that are not meant."""
        return chain

    def vectors(self, emission: Any) -> Array:
        """What tells states apart, (k, .)."""
        raise NotImplementedError(f"{type(self).__name__} must say what tells its states apart")

    def emission_with(self, frame: Frame, emission: Any) -> Any:
        """Emissions with the starting values that were given."""
        raise NotImplementedError(f"{type(self).__name__} must take its starting values")

    def emission_parameters(self, frame: Frame, emission: Any) -> dict[str, Array]:
        """Parameters of the emissions in the units of the data, by name."""
        raise NotImplementedError(f"{type(self).__name__} must name its parameters")

    # ------------------------------------------------------------------ moments
    @property
    def is_given(self) -> bool:
        """Whether all starting values are."""
        return set(self.given) == set(self.letters)

    def survey(self, run: Run, streaming: bool) -> Frame:
        values = self.survey_code(run)
        summed = run.fold("pairs", PairSums(values["code"]))
        pairs = summed.finalize()
        automatic = isinstance(self.n_components, str)
        if not automatic and pairs.n_rows < int(self.n_components):
            raise InvalidInputError(
                f"n_samples={pairs.n_rows:g} should be at least n_components={self.n_components}: "
                "give more rows or ask for fewer states"
            )
        subspace = find_subspace(pairs, None if automatic else int(self.n_components) - 1)
        count = subspace.features.shape[1] + 1 if automatic else int(self.n_components)
        values |= {
            "features": subspace.features,
            "count": count,
            "frequency": pairs.counts / pairs.n_rows,
            "strength": (pairs.n_rows, subspace.strength(count)),
        }
        return Frame(values, {"pairs": summed})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        found: dict[str, Folded] = {"pairs": PairSums(frame["code"])}
        if not self.is_given:
            decays = (0.0,) if self.views == "lag" else DECAYS
            found["windows"] = WindowSums(frame["code"], frame["features"], decays)
        return found

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[HiddenChain]:
        pairs, count = moments["pairs"].finalize(), frame["count"]
        n_rows, strength = frame["strength"]
        if n_rows != pairs.n_rows:
            strength = find_subspace(pairs, count - 1).strength(count)
        starts: list[MomentStart] = []
        windows = moments["windows"].finalize() if "windows" in moments else None
        if windows is not None and windows.weight and frame["features"].shape[1] == count - 1:
            starts = moment_starts(
                pairs,
                windows,
                frame["features"],
                self.views,
                self.algorithm,
                lambda *found: self.emission_of(frame, *found),
                rng,
            )
        evidence = {"strength": strength, "starts": starts, "pairs": pairs}
        if self.is_given:
            return Answer(self.with_given(frame, None), evidence, start="given")
        if not starts:
            return Answer(None, evidence, doubtful=True)
        return Answer(self.with_given(frame, starts[0].chain), evidence, doubtful=True)

    def with_given(self, frame: Frame, chain: HiddenChain | None) -> HiddenChain:
        """A start with the values that were given in place of its own."""
        k = frame["count"]
        startprob = self.given.get("s", np.full(k, 1 / k) if chain is None else chain.startprob)
        transmat = self.given.get("t", np.full((k, k), 1 / k) if chain is None else chain.transmat)
        emission = self.emission_with(frame, None if chain is None else chain.emission)
        found = HiddenChain(startprob, transmat, emission)
        if chain is None or not self.given or not {"s", "t"} & set(self.given):
            return found
        if set(self.given) - {"s", "t"}:
            return found
        # What was found has no labels: those of the given chain are the ones that fit best.
        named = relabelled(chain, found, stationary_distribution(chain.transmat))
        return HiddenChain(startprob, transmat, named.emission)

    def check_moments(self, frame: Frame, answer: Answer[HiddenChain]) -> None:
        pairs, starts = answer.evidence["pairs"], answer.evidence["starts"]
        if pairs.n_missing:
            raise InvalidInputError(
                f"X has {pairs.n_missing:g} rows with missing entries, of which moments know "
                "nothing: leave refine at 'auto'"
            )
        strength, count = answer.evidence["strength"], frame["count"]
        if not self.is_given and (not starts or strength < _EDGE):
            condition = min((s.states.condition for s in starts), default=np.inf)
            raise NotIdentifiableError(
                f"the moments cannot tell {count} states apart: the weakest direction they need is "
                f"{strength:.2g} times the edge of the noise of {frame['code'].n_symbols} symbols, "
                f"and the moment of past and future has the condition number {condition:.3g}. "
                "Lower n_components, give more rows, or leave refine at 'auto' to raise the "
                "likelihood"
            )

    # ------------------------------------------------------------------ likelihood
    def family(self, frame: Frame) -> ChainFamily:
        return ChainFamily(self.design(frame), self.updates)

    def sample_size(self, frame: Frame) -> int:
        return self.row_limit

    def search(self, frame: Frame, search: Search[HiddenChain]) -> Begun[HiddenChain]:
        k, units = frame["count"], merged_equal(search.sample)
        moment: Sequence[MomentStart] = search.evidence["starts"]
        starts: list[Start] = [
            Start(start.name, self.with_given(frame, start.chain)) for start in moment
        ]
        if not moment or (k > 1 and search.to_convergence):
            sure = search.evidence["strength"] >= _EDGE and units.extent > _FEW_ROWS
            number = min(_RANDOM if sure else _MORE_RANDOM, _FOR_A_STATE * k)
            starts += [
                self._random_start(frame, i, units, search.rng) for i in range(max(number, 1))
            ]
        if search.to_convergence and len(starts) > 1:
            chosen = compete(starts, search, units, lambda chain: self.softened(frame, chain))
        else:
            chosen = likeliest(starts, search, units)
            chosen = Chosen(chosen.start, self.softened(frame, chosen.chain), chosen.trials)
        return Begun(chosen.chain, chosen.start.name, evidence={"trials": chosen.trials})

    def _random_start(
        self, frame: Frame, number: int, units: Batch, rng: np.random.Generator
    ) -> Start:
        # Fast, middling and slow chains in turn.
        k, stay = frame["count"], (0.0, 0.5, 0.9)[number % 3]
        transmat = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.full(k, 2.0), k)
        emission = self.random_emission(frame, k, units, rng)
        chain = HiddenChain(np.full(k, 1 / k), transmat, emission)
        return Start(f"random {number + 1}", self.with_given(frame, chain))

    # ------------------------------------------------------------------ what users see
    def order(self, frame: Frame, state: HiddenChain) -> Array:
        if self.given:
            return np.arange(len(state.startprob))
        share = stationary_distribution(state.transmat)
        return np.asarray(component_order(share, self.vectors(state.emission)))

    def permuted(self, state: HiddenChain, order: Array) -> HiddenChain:
        return state.reordered(order)

    def parameters(self, frame: Frame, state: HiddenChain) -> dict[str, Array]:
        return {
            "startprob": state.startprob,
            "transmat": state.transmat,
            **self.emission_parameters(frame, state.emission),
        }


class HiddenMarkovEstimator(HiddenMarkovInference, LatentEstimator):
    """Base of the hidden Markov models as users meet them.

    A subclass stores its parameters in `__init__`, and gives `_model`, `_letters` (the attribute
    of every letter of `init_params`), `_read_rows`, `_reader`, and what inference needs.
    """

    views: str
    algorithm: Any
    init_params: str
    params: str
    verbose: Any
    _letters: ClassVar[Mapping[str, str]] = {}
    _input_names: ClassVar[tuple[str, ...]] = ("_given_values",)
    # Rows of the sample on which EM runs, at most.
    _row_limit: ClassVar[int] = 100_000
    # Blocks of rows are cut to be resampled: one for each group will do.
    _units_per_group: ClassVar[int] = 1
    _allows_missing: ClassVar[bool] = True
    _parameters: ClassVar[Mapping[str, Sequence[Range]]] = {
        "n_components": N_COMPONENTS,
        "algorithm": (Choice(("auto",)), Callables()),
        "refine": REFINE,
        "views": (Choice(("auto", "lag", "window")),),
        "max_iter": (Interval(numbers.Integral, 1),),
        "tol": (Interval(numbers.Real, 0),),
        "verbose": (Interval(numbers.Integral, 0),),
        "n_jobs": N_JOBS,
    }
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

        Notes
        -----
        Sequences longer than 131,072 rows are cut into pieces that see 1,024 rows on both sides.
        """
        self._check_parameters()
        self._given_values = self._starting_values()
        return super().fit(X, lengths, sample_weight, callback=callback or self._told())

    def partial_fit(self, X: object, lengths: object = None, sample_weight: object = None) -> Self:
        """Add whole sequences; parameters are worked out when they are first asked for.

        After `fit` the stream goes on from the fit: what it then gives is refined by all rows.

        Parameters
        ----------
        X, lengths, sample_weight : as for `fit`
        """
        if not self._has_started():
            self._check_parameters()
            self._given_values = self._starting_values()
        return super().partial_fit(X, lengths, sample_weight)

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

    # ------------------------------------------------------------------ inside
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
        found: dict[str, Array] = {}
        for letter, name in self._letters.items():
            if letter in self.init_params:
                continue
            if name not in self.__dict__:
                raise InvalidInputError(
                    f"init_params={self.init_params!r} leaves {name} to you: set it before fit, or "
                    f"add {letter!r} to init_params"
                )
            found[letter] = np.array(self.__dict__[name], dtype=np.float64)
        k = self.n_components
        if found and isinstance(k, str):
            raise InvalidInputError("n_components='auto' takes no starting values: give a number")
        if "s" in found:
            found["s"] = check_stochastic(found["s"][None], (1, int(k)), "startprob_")[0]
        if "t" in found:
            found["t"] = check_stochastic(found["t"], (int(k), int(k)), "transmat_")
        return found

    def _given_start(self) -> Mapping[str, Array]:
        values: Mapping[str, Array] = self.__dict__.get("_given_values", {})
        return values

    def _told(self) -> Callable[[str, int], object] | None:
        if not self.verbose:
            return None
        return lambda name, number: print(f"{type(self).__name__}: pass {number} ({name})")

    def _effort(self) -> Effort:
        return Effort(self.refine, self.max_iter, self.tol)

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
            "certificate_": _certificate(answer, frame),
        }


def _certificate(answer: Answer[Any], frame: Frame) -> HMMCertificate:
    evidence = answer.evidence
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
        n_sequences=round(pairs.n_sequences),
        constant_features=getattr(frame["code"], "constant", ()),
    )
