"""What a model is to the one fit: its frame, its moments, what is read off them, its likelihood.

A model is a frozen value that names its accumulators and says how parameters are read off them.
It never sees the data itself, only what folds and samples of it give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self

import numpy as np
import scipy
from scipy.special import logsumexp

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import NotIdentifiableError
from latensor.moments.batch import Batch, Kind
from latensor.moments.sums import Folded, Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.em import Fold
from latensor.refinement.family import Family, State, Statistics
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Frame:
    """The coordinates in which moments are summed: fixed once, an explicit value.

    Attributes
    ----------
    values : what a model has chosen, by name: centre, basis, scale, n_components, ...
    known : accumulators of the survey, over all data, that need no second pass
    n_units : float, how many units the survey has seen, 0 where it has not counted them
    pilot : the state at which a stream sums its statistics, None where moments are all
    """

    values: Mapping[str, Any]
    known: Mapping[str, Folded] = field(default_factory=dict)
    n_units: float = 0.0
    pilot: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@storable
@dataclass(frozen=True, eq=False)
class Answer(Generic[State]):
    """What a fit has found, and how it came about.

    Attributes
    ----------
    state : the parameters, None where moments alone do not determine them
    evidence : what the certificate is made of, by name
    doubtful : bool, whether other starts should stand beside the moments
    statistics : Statistics of all data at the state, None for moments only
    n_iter : int, passes of EM
    converged : bool
    start : str, where the parameters come from: "moments", "k-means++", ...
    n_moves : int, split and merge moves on the way
    history : the log-likelihood per sample before every pass of EM
    """

    state: State | None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    doubtful: bool = False
    statistics: Statistics[State] | None = None
    n_iter: int = 0
    converged: bool = True
    start: str = "moments"
    n_moves: int = 0
    history: tuple[float, ...] = ()

    @property
    def log_likelihood(self) -> float:
        """Per sample, of all data; NaN for moments only."""
        return float("nan") if self.statistics is None else self.statistics.value


@dataclass(frozen=True)
class Resumed:
    """What an answer found at once stands for, so that more data can follow.

    Attributes
    ----------
    moments : accumulators, filled
    values : what the frame remembers of it, such as the error that is made
    """

    moments: dict[str, Folded]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Search(Generic[State]):
    """Starts that a model tries on a sample in memory.

    Attributes
    ----------
    sample : Batch, units that stand for all
    fold : goes over them, prepared by `family`
    family : Family
    state : read off the moments, None where they determine nothing
    rng : draws starts
    folds : a pass over some other units in memory, prepared
    evidence : of the read-off
    to_convergence : bool, whether EM goes on until it converges, not for a few passes only
    """

    sample: Batch
    fold: Fold[State]
    family: Family[State]
    state: State | None
    rng: np.random.Generator
    folds: Callable[[Batch], Fold[State]]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    to_convergence: bool = True


@dataclass(frozen=True)
class Start(Generic[State]):
    """Where refinement begins, and how that was found."""

    state: State
    name: str = "moments"
    n_moves: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Model(Generic[State]):
    """What makes one model another; a subclass is a frozen dataclass of checked settings."""

    kind: ClassVar[Kind] = Kind.ROWS
    # Units that a stream holds before it fixes its frame.
    pilot_size: ClassVar[int] = 1
    # Units (of sequences: rows) on which starts are compared.
    search_size: ClassVar[int] = 20_000
    # Numbers of the sample on which EM runs: 128 MB.
    sample_entries: ClassVar[int] = 2**24
    # Units that a fit keeps for a stream that goes on from it; None for all that EM had in memory.
    stream_size: ClassVar[int | None] = None
    # Refits that intervals of a refined answer need; 0 where it maximizes a likelihood, whose
    # statistics say the same. And whether as many of drawn units have to show its bias.
    n_refits: ClassVar[int] = 0
    is_biased: ClassVar[bool] = False
    # Sets of units drawn from the model by which intervals of moments alone show their bias, where
    # the read-off has any that matters.
    n_draws: ClassVar[int] = 0
    # Whether `locally` refines streams too.
    refines_streams: ClassVar[bool] = False

    def is_pilot(self, held: Sequence[Batch]) -> bool:
        """Whether these units are enough for a stream to fix its frame."""
        return sum(batch.extent for batch in held) >= self.pilot_size

    def select(self, run: Run, effort: Effort) -> Selection | None:
        """The number of components where it is left to the data, with the evidence; else None.

        `latensor.estimation.halves.select_by_halves` finds it for every model with a likelihood.
        `learn` fits `with_selection` of it and keeps the evidence as "selection" in the frame.
        """
        return None

    def with_count(self, count: int) -> Self:
        """The same settings with a number of components."""
        return replace(self, n_components=count)  # type: ignore[type-var]

    def with_selection(self, selection: Selection) -> Self:
        """The settings of what was selected."""
        return self.with_count(selection.n_components)

    def log_density(self, frame: Frame, state: State, units: Batch) -> Array:
        """Log p(x, j) (n, k) of every unit and component."""
        family = self.family(frame)
        if family is None:
            raise NotImplementedError(f"{type(self).__name__} must give its densities")
        return family.log_density(state, family.prepare(units))

    def held_out(self, frame: Frame, state: State, units: Batch) -> tuple[Array, Array]:
        """The log-likelihood (n,) of units that were not fitted, and their sizes (n,)."""
        return logsumexp(self.log_density(frame, state, units), axis=1), np.ones(len(units))

    def responsibilities(self, frame: Frame, state: State, units: Batch) -> Array:
        """The probability (m, k) of components given rows, times the root of the row's weight."""
        logs = self.log_density(frame, state, units)
        fractions = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        return np.asarray(fractions * np.sqrt(units.weights)[:, None])

    def survey(self, run: Run, streaming: bool) -> Frame:
        """The frame, by any number of folds; wider for a stream, which sees more data later."""
        raise NotImplementedError(f"{type(self).__name__} must choose its coordinates")

    def moments(self, frame: Frame) -> dict[str, Folded]:
        """Empty accumulators of all that `read_off` needs."""
        raise NotImplementedError(f"{type(self).__name__} must name its moments")

    def read_off(self, frame: Frame, moments: Joint, rng: np.random.Generator) -> Answer[State]:
        """Parameters from moments."""
        raise NotImplementedError(f"{type(self).__name__} must read its parameters off")

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: State
    ) -> Answer[State]:
        """Parameters from resampled moments: the answer that corresponds to `state`."""
        return self.read_off(frame, moments, rng)

    def family(self, frame: Frame) -> Family[State] | None:
        """The likelihood that refinement raises; None where there is none."""
        return None

    def keeps_sample(self, frame: Frame) -> bool:
        """Whether refinement needs units in memory."""
        return self.family(frame) is not None

    def sample_size(self, frame: Frame) -> int:
        """Units on which EM runs in memory."""
        return self.search_size

    def rows_in_memory(self, limit: int, width: int) -> int:
        """As many rows of a width as `sample_entries` hold, at most `limit`."""
        return min(limit, max(self.search_size, self.sample_entries // width))

    def search(self, frame: Frame, search: Search[State]) -> Start[State] | None:
        """The best of other starts, asked for where the read-off is doubtful or gives none."""
        return None

    def review(
        self, frame: Frame, search: Search[State], answer: Answer[State]
    ) -> Start[State] | None:
        """Another start where the optimum itself looks wrong; the likelier of both is kept."""
        return None

    def evidence(
        self, frame: Frame, search: Search[State], answer: Answer[State]
    ) -> Mapping[str, Any]:
        """What a refined answer adds to its evidence, measured on a sample."""
        return {}

    def drawn_like(
        self, frame: Frame, state: State, like: Batch, rng: np.random.Generator
    ) -> Batch:
        """Units drawn from the model, of the sizes and weights of given ones."""
        raise NotImplementedError(f"{type(self).__name__} must draw units")

    def of_parts(self, state: State) -> Self:
        """The settings by which a part of the units is fitted as all of them were."""
        raise NotImplementedError(f"{type(self).__name__} must say how parts of units are fitted")

    def check_streaming(self) -> None:
        """Refuse what can be fitted but not streamed."""

    def check_intervals(self) -> None:
        """Refuse settings that have no intervals."""

    def check_moments(self, frame: Frame, answer: Answer[State]) -> None:
        """Refuse an answer that no refinement follows and that moments do not determine."""
        if answer.state is None:
            raise NotIdentifiableError(
                "moments alone do not determine the model: leave refine at 'auto'"
            )

    def order(self, frame: Frame, state: State) -> Array:
        """The fixed order of the components."""
        raise NotImplementedError(f"{type(self).__name__} must order its components")

    def permuted(self, state: State, order: Array) -> State:
        """A state with its components in another order."""
        found: State = state.permuted(order)  # type: ignore[attr-defined]
        return found

    def parameters(self, frame: Frame, state: State) -> dict[str, Array]:
        """Parameters as users know them, by name without the underscore at the end."""
        raise NotImplementedError(f"{type(self).__name__} must name its parameters")

    def aligned(
        self, frame: Frame, state: State, center: Mapping[str, Array], match_by: str
    ) -> State:
        """A state with its components in the order of given parameters, by the nearest."""
        gaps = center[match_by][:, None] - self.parameters(frame, state)[match_by][None]
        squares = (gaps**2).reshape(*gaps.shape[:2], -1).sum(axis=2)
        return self.permuted(state, scipy.optimize.linear_sum_assignment(squares)[1])

    def presented(self, frame: Frame, state: State) -> State:
        """A state as users meet it: components in their fixed order."""
        return self.permuted(state, self.order(frame, state))

    def resampled_frame(self, frame: Frame, answer: Answer[State], known: Joint) -> Frame:
        """The frame in which moments of resamples are read off; `known` are those of all groups."""
        return frame

    def at_once(self, run: Run, frame: Frame) -> Answer[State] | None:
        """An answer from data in memory that needs no moments; None where there is no such way."""
        return None

    def check_resuming(self, answer: Answer[State]) -> None:
        """Refuse more data after an answer found at once that stands for no moments."""

    def resumed(self, frame: Frame, answer: Answer[State]) -> Resumed:
        """The moments that an answer found at once stands for, so that more data can follow."""
        raise NotImplementedError(f"{type(self).__name__} must say what its answer stands for")

    def locally(self, run: Run, frame: Frame, answer: Answer[State]) -> Answer[State] | None:
        """A faster or more exact refiner of a model's own; None for the common one."""
        return None

    def refined(
        self, run: Run, frame: Frame, answer: Answer[State], sample: Sample, effort: Effort
    ) -> Answer[State] | None:
        """What a likelihood that EM does not raise is refined to; None for EM."""
        return None

    def corrected(
        self, run: Run, frame: Frame, sums: Joint, answer: Answer[State]
    ) -> Answer[State] | None:
        """What a stream makes of its sums; None for corrected EM."""
        return None


@dataclass(frozen=True)
class Effort:
    """How far refinement goes.

    Attributes
    ----------
    refine : "auto" (to convergence) or the number of plain passes; 0 for moments only
    max_iter : int, passes of one run of EM
    tol : float, log-likelihood per sample that may be left to gain
    """

    refine: int | str = "auto"
    max_iter: int = 200
    tol: float = 1e-6
