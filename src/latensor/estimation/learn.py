"""One fit for every model: survey, moments, read-off, starts, refinement; a function of folds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from latensor.estimation.model import Answer, Effort, Frame, Model, Search, Start
from latensor.estimation.run import Run
from latensor.exceptions import NotIdentifiableError
from latensor.moments.sums import Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.em import Refined, Refinement
from latensor.refinement.family import Family, State


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
        selected = {"selection": selection, "units of selection": run.n_units}
        frame = replace(frame, values={**frame.values, **selected})
    found_at_once = None if streaming else model.at_once(run, frame)
    if found_at_once is not None:
        if not run.n_folds:
            run.tell("fit")
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
    loops = itertools.count(1)
    in_memory = search.fold if len(search.sample) == len(sample.units) else None
    refinement = Refinement(
        lambda start: run.fold("EM", start),
        family,
        in_memory or run.prepared(family, sample.units),
        sample.is_everything,
        effort.max_iter,
        effort.tol,
        lambda: run.loop(f"EM {next(loops)}"),
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
    reached = replace(reached, evidence={**answer.evidence, **start.evidence})
    more = model.evidence(frame, search, reached)
    return replace(reached, evidence={**reached.evidence, **more})


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
    if answer.state is None or answer.doubtful:
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
