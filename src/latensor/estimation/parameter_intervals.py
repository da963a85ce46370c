"""Intervals for the parameters of a fitted model: a bootstrap of groups of units, by one fold.

Of moments alone, resampled groups are read off anew; where such a read-off is biased, those of
units drawn from the fitted model show by how much. Of a refined fit, the EM step of resampled
statistics shows where their optimum lies: with J the Jacobian of an EM step at its fixed point, a
step v stands for a move of (I - J)^-1 v. No refit, no label switching. Where refinement is no
maximum of a likelihood, refits of halves of the units show how much it varies, and where it is
biased, refits of units drawn from the fitted model by how much.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from latensor.arrays import Array, check_positive_int
from latensor.estimation.learn import learn
from latensor.estimation.model import Answer, Effort, Frame, Model
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.batch import Batch, mixed
from latensor.moments.sums import Grouped, Joint
from latensor.refinement.em import Fold
from latensor.refinement.family import Family, Statistics

_FEWEST_GROUPS = 5
# The values that parameters can take.
REAL = (-np.inf, np.inf)
PROBABILITY = (0.0, 1.0)
NOT_NEGATIVE = (0.0, np.inf)
# Up to so many parameters the Jacobian of EM is formed: two passes over the sample for each.
_DENSE = 300
# Beyond, blocks of a Krylov space, each of as many passes as there are groups.
_KRYLOV_BLOCKS = 8
_KRYLOV_RESIDUAL = 0.01
# Step of the differences, in packed units: the root of the cube of rounding.
_DIFFERENCE = float(np.finfo(np.float64).eps ** (1 / 3))


@dataclass(frozen=True)
class ParameterInterval:
    """Ends of an interval for every entry of a parameter.

    Attributes
    ----------
    low, high : arrays of the parameter's shape, or lists of such where the parameter is a list
    """

    low: Any
    high: Any


@dataclass(frozen=True)
class Bootstrap:
    """The settings of a bootstrap, checked."""

    level: float
    n_resamples: int
    n_groups: int

    @classmethod
    def of(cls, level: float, n_resamples: int, n_groups: int) -> Bootstrap:
        """The settings as the caller gave them, or an error that names the bad one."""
        if not isinstance(level, numbers.Real) or not 0 < level < 1:
            raise InvalidInputError(f"level={level!r} must lie between 0 and 1, for example 0.95")
        n_groups = check_positive_int(n_groups, "n_groups")
        if n_groups < _FEWEST_GROUPS:
            raise InvalidInputError(
                f"n_groups={n_groups} must be at least {_FEWEST_GROUPS}: fewer do not tell how "
                "much they differ"
            )
        return cls(float(level), check_positive_int(n_resamples, "n_resamples"), n_groups)

    def counts(self, rng: np.random.Generator) -> Array:
        """How often every group counts in every resample, (n_resamples, n_groups)."""
        even = np.full(self.n_groups, 1 / self.n_groups)
        return rng.multinomial(self.n_groups, even, self.n_resamples).astype(np.float64)

    @property
    def widening(self) -> float:
        """What makes up for the spread of few groups being estimated, as Student's t does."""
        few = stdtrit(self.n_groups - 1, (1 + self.level) / 2) / ndtri((1 + self.level) / 2)
        return float(few * np.sqrt(self.n_groups / (self.n_groups - 1)))

    def ends(self, middle: Array, moves: Array, values: tuple[float, float]) -> ParameterInterval:
        """The interval around an estimate, from the moves (n_resamples, ...) of resamples."""
        tails = [(1 - self.level) / 2, (1 + self.level) / 2]
        low, high = np.quantile(moves, tails, axis=0) * self.widening + middle
        return ParameterInterval(np.clip(low, *values), np.clip(high, *values))


def resample(
    run: Run,
    model: Model[Any],
    frame: Frame,
    answer: Answer[Any],
    settings: Bootstrap,
    ranges: Mapping[str, tuple[float, float]],
    match_by: str,
) -> dict[str, ParameterInterval]:
    """Intervals for the parameters of an answer.

    Parameters
    ----------
    run : on the units that the model was fitted to
    model, frame, answer : the fit
    settings : of the bootstrap
    ranges : parameters that get intervals, and the values they can take
    match_by : the parameter by which components of resamples are told apart
    """
    center: Mapping[str, Array] = model.parameters(frame, model.presented(frame, answer.state))
    if answer.n_iter and model.n_refits:
        return _by_refits(run, model, frame, answer, settings, center, ranges, match_by)
    if answer.statistics is None:
        drawn = _by_moments(run, model, frame, answer, settings, center, match_by)
        if model.n_draws:
            center, drawn = _unbiased(run, model, frame, answer, center, drawn, match_by)
    else:
        order = model.order(frame, answer.state)
        drawn = [
            model.parameters(frame, model.permuted(state, order))
            for state in _by_statistics(run, model, frame, answer, settings)
        ]
    return {
        name: settings.ends(
            center[name], np.stack([d[name] for d in drawn[1:]]) - drawn[0][name], values
        )
        for name, values in ranges.items()
    }


def _by_moments(
    run: Run,
    model: Model[Any],
    frame: Frame,
    answer: Answer[Any],
    settings: Bootstrap,
    center: Mapping[str, Array],
    match_by: str,
) -> list[Mapping[str, Array]]:
    """Read-offs of all groups and of every resample, components as in the fit."""
    inner = Joint(model.moments(frame))
    grouped = run.fold("groups", Grouped.of(inner, settings.n_groups, run.seed))
    frame = model.resampled_frame(frame, answer, grouped.resampled(np.ones(settings.n_groups)))
    drawn: list[Mapping[str, Array]] = []
    every = [np.ones(settings.n_groups), *settings.counts(run.rng("resamples"))]
    for number, counts in enumerate(every):
        found = model.read_near(frame, grouped.resampled(counts), run.rng("read off"), answer.state)
        if found.state is None:
            if number == 0:
                break
            continue
        drawn.append(model.parameters(frame, model.aligned(frame, found.state, center, match_by)))
    if 2 * len(drawn) < len(every):
        raise NotIdentifiableError(
            f"only {max(len(drawn) - 1, 0)} of {settings.n_resamples} resamples of the moments "
            "determine the model: there are no intervals; give more samples or lower n_components"
        )
    return drawn


def _unbiased(
    run: Run,
    model: Model[Any],
    frame: Frame,
    answer: Answer[Any],
    center: Mapping[str, Array],
    drawn: list[Mapping[str, Array]],
    match_by: str,
) -> tuple[Mapping[str, Array], list[Mapping[str, Array]]]:
    """Estimates less their bias, as m sets of units drawn from the fitted model show it.

    And the resamples, as much further from all groups as the bias is known to, (1 + 1/m)^1/2.
    """
    units, rng = run.fold("groups", _sample(run, model)).in_order(), run.rng("draws")
    found = []
    for _ in range(model.n_draws):
        own = run.on(model.drawn_like(frame, answer.state, units, rng))
        sums = own.fold("groups", Joint(model.moments(frame)))
        state = model.read_near(frame, sums, rng, answer.state).state
        if state is not None:
            state = model.aligned(frame, state, center, match_by)
            found.append(model.parameters(frame, state))
    if 2 * len(found) < model.n_draws:
        return center, drawn
    wider = np.sqrt(1 + 1 / len(found))
    middle = {name: 2 * c - np.mean([f[name] for f in found], axis=0) for name, c in center.items()}
    first = drawn[0]
    return middle, [
        first,
        *({name: first[name] + wider * (d[name] - first[name]) for name in d} for d in drawn[1:]),
    ]


def _by_statistics(
    run: Run, model: Model[Any], frame: Frame, answer: Answer[Any], settings: Bootstrap
) -> list[Any]:
    """The optimum of all groups and of every resample, to first order."""
    assert answer.statistics is not None
    family: Family[Any] = answer.statistics.family
    start = Statistics(family, answer.state)
    found = run.fold(
        "groups",
        Joint(
            {
                "groups": Grouped.of(start, settings.n_groups, run.seed),
                "sample": _sample(run, model),
            }
        ),
    )
    grouped, sample = found["groups"], found["sample"]
    every = [np.ones(settings.n_groups), *settings.counts(run.rng("resamples"))]
    steps = np.stack([family.pack(grouped.resampled(c).maximized()) for c in every])
    moves = (steps - steps[0]).T
    scale = np.abs(moves).max()
    if scale == 0:
        return [answer.state] * len(every)
    fold = run.prepared(family, sample.first(model.search_size))
    moves = undo_step(fold, family, answer.state, moves)
    origin = family.pack(answer.state)
    return [family.unpack(origin + move, answer.state) for move in moves.T]


def _by_refits(
    run: Run,
    model: Model[Any],
    frame: Frame,
    answer: Answer[Any],
    settings: Bootstrap,
    center: Mapping[str, Array],
    ranges: Mapping[str, tuple[float, float]],
    match_by: str,
) -> dict[str, ParameterInterval]:
    """Estimate - bias -+ t s (1 + 1/m)^1/2: s of refits of halves, the bias of m of drawn units.

    An estimate of a random half of all groups is as far from that of all as that is from the
    truth; no unit is there twice, which tests of a model's assumptions would not expect.
    """
    sample = run.fold("groups", _sample(run, model))
    units, fixed = sample.in_order(), model.of_parts(answer.state)
    rng, few = run.rng("resamples"), min(settings.n_resamples, model.n_refits)

    def refitted(batch: Batch) -> Mapping[str, Array] | None:
        try:
            fit = learn(run.on(batch), fixed, Effort())
        except NotIdentifiableError:
            return None
        assert fit.answer.state is not None
        return model.parameters(
            fit.frame, model.aligned(fit.frame, fit.answer.state, center, match_by)
        )

    size, half = settings.n_groups, settings.n_groups // 2
    groups = (mixed(units.keys, run.seed) % np.uint64(size)).astype(np.int64)
    chosen = (rng.permutation(size)[groups] < half for _ in range(few))
    n_drawn = few if model.is_biased else 0
    drawn = (model.drawn_like(frame, answer.state, units, rng) for _ in range(n_drawn))
    varied, moved = (
        [found for found in map(refitted, parts) if found is not None]
        for parts in ((units.take(np.flatnonzero(each)) for each in chosen), drawn)
    )
    if 2 * len(varied) < few or 2 * len(moved) < n_drawn or few < 2:
        raise NotIdentifiableError(
            f"only {len(varied)} of {few} halves and {len(moved)} of {n_drawn} draws determine the "
            "model: there are no intervals; give more samples, more n_resamples, or lower "
            "n_components"
        )
    quantile = float(stdtrit(len(varied) - 1, (1 + settings.level) / 2))
    quantile *= float(np.sqrt(half / (size - half) * units.weight / sample.weight))
    quantile *= float(np.sqrt(1 + 1 / len(moved))) if moved else 1.0
    found = {}
    for name, values in ranges.items():
        middle = center[name]
        if moved:
            middle = 2 * middle - np.mean([each[name] for each in moved], axis=0)
        width = quantile * np.std([each[name] for each in varied], axis=0, ddof=1)
        found[name] = ParameterInterval(
            np.clip(middle - width, *values), np.clip(middle + width, *values)
        )
    return found


def _sample(run: Run, model: Model[Any]) -> Any:
    from latensor.moments.unit_sample import Sample

    return Sample(model.search_size, run.seed)


def undo_step(fold: Fold[Any], family: Family[Any], state: Any, steps: Array) -> Array:
    """(I - J)^-1 V (p, m) of steps V, J being the Jacobian of an EM step at its fixed point.

    J is formed by differences where there are few parameters; otherwise the solution is sought in
    a block Krylov space of the leading directions of V.

    Parameters
    ----------
    fold : goes over units in memory, prepared
    family, state : the likelihood and its optimum
    steps : (p, m), packed
    """
    origin = family.pack(state)

    def after(vector: Array) -> Array:
        return family.pack(fold(Statistics(family, family.unpack(vector, state), True)).maximized())

    def derivative(direction: Array) -> Array:
        size = _DIFFERENCE / max(float(np.abs(direction).max()), 1e-300)
        ends = [after(origin + sign * size * direction) for sign in (1.0, -1.0)]
        return (ends[0] - ends[1]) / (2 * size)

    count = len(origin)
    if count <= _DENSE:
        rate = np.stack([derivative(unit) for unit in np.eye(count)], axis=1)
        return np.asarray(np.linalg.lstsq(np.eye(count) - rate, steps, rcond=1e-10)[0])
    return _krylov(derivative, steps)


def _krylov(derivative: Callable[[Array], Array], steps: Array) -> Array:
    left, values, right = np.linalg.svd(steps, full_matrices=False)
    kept = values > values[0] * 1e-3
    block = left[:, kept]
    wanted = values[kept, None] * right[kept]
    basis, images = np.empty((len(steps), 0)), np.empty((len(steps), 0))
    for _ in range(_KRYLOV_BLOCKS):
        fresh = np.stack([derivative(column) for column in block.T], axis=1)
        basis, images = np.hstack([basis, block]), np.hstack([images, block - fresh])
        target = left[:, kept]
        found = np.linalg.lstsq(images, target, rcond=1e-10)[0]
        residual = target - images @ found
        if np.linalg.norm(residual) <= _KRYLOV_RESIDUAL * np.linalg.norm(target):
            break
        rest = residual - basis @ (basis.T @ residual)
        directions, sizes, _ = np.linalg.svd(rest, full_matrices=False)
        block = directions[:, sizes > 1e-8 * max(float(sizes[0]), 1e-300)]
        if not block.shape[1]:
            break
    return np.asarray(basis @ (found @ wanted))
