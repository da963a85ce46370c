"""One fit for every model: survey, moments, read-off, starts, refinement; a function of folds.

A model is a frozen value that names its accumulators and says how parameters are read off them.
It never sees the data itself, only what folds and samples of it give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import NotIdentifiableError
from latensor.moments.batch import Batch, Kind
from latensor.moments.sums import Folded, Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.em import Fold, Reached, Refined, Refinement, em
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
    # Steps of EM that repair the noise of a read-off before other starts stand beside it.
    first_steps: ClassVar[int] = 10
    # Units that a fit keeps for a stream that goes on from it; None for all that EM had in memory.
    stream_size: ClassVar[int | None] = None
    # Refits that intervals of a refined answer need, of resampled and of drawn units each; 0 where
    # it maximizes a likelihood, whose statistics say the same.
    n_refits: ClassVar[int] = 0
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
        raise NotImplementedError(f"{type(self).__name__} must reorder its components")

    def parameters(self, frame: Frame, state: State) -> dict[str, Array]:
        """Parameters as users know them, by name without the underscore at the end."""
        raise NotImplementedError(f"{type(self).__name__} must name its parameters")

    def aligned(
        self, frame: Frame, state: State, center: Mapping[str, Array], match_by: str
    ) -> State:
        """A state with its components in the order of given parameters, by the nearest."""
        gaps = center[match_by][:, None] - self.parameters(frame, state)[match_by][None]
        squares = (gaps**2).reshape(*gaps.shape[:2], -1).sum(axis=2)
        return self.permuted(state, linear_sum_assignment(squares)[1])

    def presented(self, frame: Frame, state: State) -> State:
        """A state as users meet it: components in their fixed order."""
        return self.permuted(state, self.order(frame, state))

    def resampled_frame(self, frame: Frame, answer: Answer[State], known: Joint) -> Frame:
        """The frame in which moments of resamples are read off; `known` are those of all groups."""
        return frame

    def at_once(self, run: Run, frame: Frame) -> Answer[State] | None:
        """An answer from data in memory that needs no moments; None where there is no such way."""
        return None

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


@dataclass(frozen=True, eq=False)
class Learned(Generic[State]):
    """A finished fit: frame, moments (None where none were needed), a sample and the answer."""

    frame: Frame
    moments: Joint | None
    sample: Sample | None
    answer: Answer[State]


def learn(
    run: Run,
    model: Model[State],
    effort: Effort,
    *,
    streaming: bool = False,
    given: State | None = None,
) -> Learned[State]:
    """The whole fit.

    Parameters
    ----------
    run : the data
    model : what is fitted
    effort : how far
    streaming : bool, whether more data will be summed in the frame that is chosen now
    given : where refinement starts, in place of moments and search
    """
    # Numbers of components are compared at their optima, however far the answer is refined.
    whole = effort if effort.refine == 0 else replace(effort, refine="auto")
    selection = model.select(run, whole)
    if selection is not None:
        model = model.with_selection(selection)
    frame = model.survey(run, streaming)
    if selection is not None:
        frame = replace(frame, values={**frame.values, "selection": selection})
    found_at_once = None if streaming else model.at_once(run, frame)
    if found_at_once is not None:
        return Learned(frame, None, None, found_at_once)
    wanted = dict(model.moments(frame))
    missing = {n: m for n, m in wanted.items() if n not in frame.known}
    family = model.family(frame) if effort.refine != 0 else None
    if effort.refine != 0 and model.keeps_sample(frame):
        limit = model.sample_size(frame)
        known = 0.0 if streaming else frame.n_units
        missing["sample"] = Sample.expecting(limit, run.seed, known or np.inf)
    found = run.fold("moments", Joint(missing)).members if missing else {}
    sample = found.get("sample")
    moments = Joint({n: frame.known.get(n, found.get(n)) for n in wanted})
    if streaming and family is None:
        # Sums are all that such a stream needs; it is read off when it is asked.
        return Learned(frame, moments, sample, Answer(None))
    answer = model.read_off(frame, moments, run.rng("read off"))
    local = None
    elsewhere = given is not None or (streaming and not model.refines_streams)
    if effort.refine != 0 and not elsewhere:
        local = model.locally(run, frame, answer)
    if local is not None:
        answer = local
    elif family is not None and sample is not None:
        own = model.refined(run, frame, answer, sample, effort)
        answer = own or _refined(run, model, frame, family, answer, sample, effort, given)
    if answer.statistics is None:
        model.check_moments(frame, answer)
    return Learned(frame, moments, sample, answer)


def _refined(
    run: Run,
    model: Model[State],
    frame: Frame,
    family: Family[State],
    answer: Answer[State],
    sample: Sample,
    effort: Effort,
    given: State | None,
) -> Answer[State]:
    search = _search(run, family, answer, sample, model, effort)
    in_memory = search.fold if len(search.sample) == len(sample.units) else None
    refinement = Refinement(
        lambda start: run.fold("EM", start),
        family,
        in_memory or run.prepared(family, sample.units),
        sample.is_everything,
        effort.max_iter,
        effort.tol,
    )
    start = Start(given, "given") if given is not None else _start(model, frame, search, answer)
    if not isinstance(effort.refine, str):
        refined = refinement.plain(start.state, effort.refine)
        reached = _adopted(answer, start, refined)
    else:
        refined = refinement.converge(start.state)
        reached = _adopted(answer, start, refined)
        other = None if given is not None else model.review(frame, search, reached)
        if other is not None:
            again = refinement.converge(other.state)
            if again.statistics.objective > refined.statistics.objective:
                reached = _adopted(answer, other, again)
            reached = replace(reached, n_iter=refined.n_iter + again.n_iter)
    more = model.evidence(frame, search, reached)
    return replace(reached, evidence={**answer.evidence, **start.evidence, **more})


def _search(
    run: Run,
    family: Family[State],
    answer: Answer[State],
    sample: Sample,
    model: Model[State],
    effort: Effort,
) -> Search[State]:
    units = sample.first(model.search_size)
    return Search(
        units,
        run.prepared(family, units),
        family,
        answer.state,
        run.rng("starts"),
        lambda chosen: run.prepared(family, chosen),
        answer.evidence,
        isinstance(effort.refine, str),
    )


def _start(
    model: Model[State], frame: Frame, search: Search[State], answer: Answer[State]
) -> Start[State]:
    if answer.state is not None and not answer.doubtful:
        return Start(answer.state, answer.start)
    if answer.state is not None and model.first_steps:
        # A read-off stands beside other starts once EM has repaired its noise.
        steps: Reached[State] = em(
            search.fold, search.family, answer.state, max_iter=model.first_steps, prepared=True
        )
        search = replace(search, state=steps.state)
    found = model.search(frame, search)
    if found is not None:
        return found
    if answer.state is None:
        raise NotIdentifiableError("neither moments nor starts give anything to refine")
    return Start(answer.state, answer.start)


def _adopted(answer: Answer[State], start: Start[State], refined: Refined[State]) -> Answer[State]:
    return replace(
        answer,
        state=refined.state,
        statistics=refined.statistics,
        n_iter=refined.n_iter,
        converged=refined.converged,
        start=start.name,
        n_moves=start.n_moves,
        history=refined.history,
    )


def streamed(
    run: Run, model: Model[State], frame: Frame, sums: Joint, effort: Effort
) -> Answer[State]:
    """The answer of a stream: moments read off, and the pilot corrected by all that was seen.

    Statistics at a fixed pilot are sums, which merge exactly; one corrected step from them is
    efficient where the pilot is in the right basin (Le Cam's one-step estimator).

    Parameters
    ----------
    run : on the sample of the stream
    model, frame, effort : as in `learn`
    sums : everything the stream has seen
    """
    moments = sums.without("statistics", "sample")
    answer = model.read_off(frame, moments, run.rng("read off"))
    if "statistics" not in sums:
        model.check_moments(frame, answer)
        return answer
    own = model.corrected(run, frame, sums, answer)
    if own is not None:
        return own
    at, sample = sums["statistics"], sums["sample"]
    family = at.family
    fold = run.prepared(family, sample.units)
    refinement = Refinement(fold, family, fold, True, effort.max_iter, effort.tol)
    state, n_iter = refinement.corrected(at, effort.tol)
    search = _search(run, family, answer, sample, model, effort)
    reached = replace(
        answer, state=state, statistics=replace(at, state=state), n_iter=n_iter, start="stream"
    )
    return replace(reached, evidence={**answer.evidence, **model.evidence(frame, search, reached)})
