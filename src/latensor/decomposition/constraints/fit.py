"""CP under constraints: one column after the other, each by an exact proximal step.

With Gamma the Hadamard product of the other Gram matrices and M the mttkrp, the loss in column r of
a factor A is gamma_rr |a - v|^2 + penalty(a), v = (m_r - sum_s gamma_sr a_s) / gamma_rr over
s != r, up to a constant. Its minimum is the proximal step of the constraint, so that no step raises
the loss and every column is exactly feasible (hierarchical alternating least squares). Missing
entries are replaced by those of the present model before each sweep, which bounds the loss from
above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, check_mode, is_complex, like, to_host
from latensor.decomposition.auto import Automatic
from latensor.decomposition.constraints.values import (
    Constraint,
    FewComponents,
    Nonnegative,
    Simplex,
    Sparse,
)
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.masked import Observed, observe
from latensor.decomposition.optimize.problem import DenseProblem, Problem
from latensor.decomposition.optimize.solves import hadamard_of_others
from latensor.decomposition.optimize.sweeps import MOMENTUM, balanced, faster
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    check_limits,
    component_order,
    refuse_rank,
    starting_factors,
)
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor

# Rounds over the columns of one factor before the next mode: they cost little beside the mttkrp.
_ROUNDS = 4
# Sweeps after which the better of the starts goes on alone.
_TRIAL = 15


@dataclass(frozen=True)
class _Free:
    """No constraint: the column of least squares."""

    signed = True
    penalized = False

    def nearest(self, column: Any, weight: float) -> Any:
        return column

    def penalty(self, column: Any) -> float:
        return 0.0

    def holds(self, column: Any) -> bool:
        return True


@dataclass(frozen=True)
class ConstrainedFit:
    """Fit a CP tensor whose columns are unimodal, monotone, smooth, sparse, ... in some modes.

    Begins from the free and the nonnegative fit, made feasible, and sweeps over the modes with
    extrapolation. A penalty acts on columns of the size of the data: where there is one, the
    columns of modes without one have unit norm during the fit.

    Parameters
    ----------
    constraints : dict from mode to a value of `lt.constraints`
    nonnegative : bool, or the modes that are nonnegative where they have no constraint
    tol : float, stop when the loss falls by less than this fraction, three times in a row
    target : float, stop as soon as the relative residual (penalties included) is at most this
    max_iter : int, sweeps
    """

    constraints: Mapping[int, Constraint] = field(default_factory=dict)
    nonnegative: bool | tuple[int, ...] = False
    tol: float = 1e-8
    target: float | None = None
    max_iter: int = 1000

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)
        if not isinstance(self.constraints, Mapping):
            raise InvalidInputError(
                f"constraints={self.constraints!r} must be a dictionary from modes to values of "
                "lt.constraints, such as {0: lt.constraints.Unimodal()}"
            )
        for mode, value in self.constraints.items():
            if isinstance(value, type) or not isinstance(value, Constraint):
                raise InvalidInputError(
                    f"constraints[{mode!r}]={value!r} must be a value of lt.constraints, such as "
                    "lt.constraints.Unimodal()"
                )

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
        *,
        init: object = None,
        mask: object = None,
    ) -> Decomposition:
        """Decompose `tensor`; see `latensor.decompose` for the arguments."""
        rank = refuse_rank(rank)
        data = as_tensor(tensor)
        if is_complex(data.reference):
            raise InvalidInputError("constraints need a real tensor, but this one is complex")
        reference = data.reference
        if isinstance(data, DenseTensor):
            data = DenseTensor(np.ascontiguousarray(to_host(data.array)))
        by_mode = self._by_mode(len(data.shape))
        sweeps = _sweeps(data, mask, by_mode)
        total = sweeps.squared_norm
        monitor = Monitor(total, self.target, self.max_iter, callback)
        floor = (10 * np.finfo(float).eps) ** 2 * total
        trial = StoppingRule(self.tol, _TRIAL, 3, max(floor, monitor.target_loss()))
        points: list[_Point] = []
        for start in self._starts(data, rank, rng, init, mask):
            point = sweeps.start(start)
            points.append(iterate(sweeps.extrapolated, point, trial)[0] if init is None else point)
            if monitor.reached(points[-1].loss):
                break
        point = min(points, key=lambda p: p.loss)

        def assemble(state: _Point) -> CPTensor:
            return _assembled(reference, state.factors, by_mode)

        rule = StoppingRule(
            self.tol, self.max_iter, 3, floor, proof="extrapolation", persistent=True
        )
        point, status = iterate(sweeps.extrapolated, point, rule, monitor, assemble)
        residual = monitor.relative(point.loss - sweeps.penalty(point.factors))
        history = np.array(monitor.history)
        return Decomposition(assemble(point), residual, len(history), status, history)

    def _by_mode(self, order: int) -> list[Constraint]:
        found: list[Constraint] = [_Free()] * order
        bounded = range(order) if self.nonnegative is True else self.nonnegative or ()
        for mode in bounded:
            found[check_mode(mode, order, "nonnegative")] = Nonnegative()
        for mode, value in self.constraints.items():
            found[check_mode(mode, order, "constraints")] = value
        return found

    def _starts(
        self,
        data: Contractible,
        rank: int,
        rng: np.random.Generator,
        init: object,
        mask: object,
    ) -> Iterator[Sequence[Array]]:
        """Transposed factors to begin with: those given, or of the free and nonnegative fits."""
        shape = tuple(data.shape)
        if init is not None:
            yield balanced(starting_factors(init, shape, rank, len(shape) - 1))
            return
        for nonnegative in (False, True):
            fit = Automatic(nonnegative=nonnegative, tol=1e-5, thorough=False)
            given: dict[str, Any] = {} if mask is None else {"mask": mask}
            result = fit(data, rank, rng, **given)
            yield balanced(starting_factors(result, shape, rank, len(shape) - 1))


def refuse_beside_constraints(
    algorithm: object, symmetric: object, ridge: float, fixed_modes: Sequence[int]
) -> None:
    """Refuse what a fit under constraints does not have, and say what to do."""
    options: dict[str, Any] = {
        "algorithm": None if algorithm == "auto" else algorithm,
        "symmetric": symmetric or None,
        "ridge": ridge or None,
        "fixed_modes": tuple(fixed_modes) or None,
    }
    for name, value in options.items():
        if value is not None:
            raise InvalidInputError(
                f"{name}={value!r} cannot be combined with constraints: leave one of them out"
            )


@dataclass(frozen=True)
class _Point:
    """Feasible transposed factors (rank, d), the loss, and what extrapolation needs."""

    factors: tuple[Array, ...]
    loss: float
    previous: tuple[Array, ...] | None = None
    momentum: float = MOMENTUM


def _sweeps(data: Contractible, mask: object, by_mode: Sequence[Constraint]) -> _Sweeps:
    """The problem on the host, with penalties in units of the data where they ask for it."""
    observed = None
    if mask is not None:
        if not isinstance(data, DenseTensor):
            raise InvalidInputError(
                f"constraints with a mask need a dense tensor, not a {type(data).__name__}"
            )
        observed = observe(data, mask)
    problem: Problem = as_problem(data) if observed is None else observed
    scale = float(np.sqrt(problem.squared_norm))
    kept = tuple(
        replace(c, strength=c.strength * scale)
        if isinstance(c, Sparse | FewComponents) and scale
        else c
        for c in by_mode
    )
    return _Sweeps(problem, observed, kept, any(c.penalized for c in kept))


@dataclass(frozen=True)
class _Sweeps:
    """Sweeps over the modes of a problem, column by column."""

    problem: Problem
    observed: Observed | None
    by_mode: tuple[Constraint, ...]
    bounded: bool

    @property
    def squared_norm(self) -> float:
        """The squared norm of the (observed) data."""
        return self.problem.squared_norm

    def penalty(self, factors: Sequence[Array]) -> float:
        """All that the columns are charged."""
        pairs = zip(self.by_mode, factors, strict=True)
        return sum(c.penalty(row) for c, f in pairs if c.penalized for row in f)

    def start(self, factors: Sequence[Array]) -> _Point:
        """The feasible point next to given factors, each column with its better sign."""
        found = []
        signs = np.ones(len(factors[0]))
        for constraint, factor in zip(self.by_mode, factors, strict=True):
            rows = factor.copy()
            for j, row in enumerate(factor):
                if constraint.signed:
                    rows[j] = _direction(constraint, row)
                else:
                    both = [_direction(constraint, sign * row) for sign in (1.0, -1.0)]
                    better = int(np.linalg.norm(both[1]) > np.linalg.norm(both[0]))
                    rows[j] = both[better]
                    signs[j] *= -1.0 if better else 1.0
            found.append(rows)
        # What was turned an odd number of times is turned back in a mode that may be.
        for constraint, rows in zip(self.by_mode, found, strict=True):
            if constraint.signed:
                rows *= signs[:, None]
                break
        prepared = self._prepared(found)
        return _Point(prepared, self.loss(prepared))

    def _prepared(self, factors: Sequence[Array]) -> tuple[Array, ...]:
        """Unit columns in modes without a penalty where there is one; else equal norms."""
        if not self.bounded:
            return balanced(factors)
        result = [f.copy() for f in factors]
        taker = next(m for m, c in enumerate(self.by_mode) if c.penalized)
        for mode, constraint in enumerate(self.by_mode):
            if not constraint.penalized:
                lengths = np.linalg.norm(result[mode], axis=1)
                safe = np.where(lengths > 0, lengths, 1.0)
                result[mode] = result[mode] / safe[:, None]
                result[taker] = result[taker] * safe[:, None]
        return tuple(result)

    def loss(self, factors: Sequence[Array]) -> float:
        """Squared residual over the observed entries, and penalties."""
        if self.observed is not None:
            rest = self.observed.explicit_loss(factors)
        else:
            explicit = self.problem.explicit_loss([self.problem.native(f) for f in factors])
            if explicit is None:
                grams = [f @ f.T for f in factors]
                product = to_host(self.problem.products(factors).mttkrp(0))
                model = float(np.prod(grams, axis=0).sum())
                inner = float(np.vdot(product, factors[0]))
                explicit = max(self.squared_norm - 2.0 * inner + model, 0.0)
            rest = explicit
        return rest + self.penalty(factors)

    def _completed(self, factors: Sequence[Array]) -> Problem:
        """The tensor with entries of the model in place of what was not observed."""
        if self.observed is None:
            return self.problem
        model = -DenseProblem(np.zeros(self.observed.shape), 0.0).residual(factors)
        model[self.observed.coordinates] = self.observed.entries
        return DenseProblem(model)

    def sweep(self, factors: Sequence[Array]) -> tuple[Array, ...]:
        """Every column of every mode once or a few times; feasible whatever came in."""
        problem = self._completed(factors)
        rows = [f.copy() for f in factors]
        products = problem.products([problem.native(f) for f in rows])
        grams = [f @ f.T for f in rows]
        for mode, constraint in enumerate(self.by_mode):
            product = to_host(products.mttkrp(mode)).astype(np.float64, copy=False)
            gamma = hadamard_of_others(grams, mode)
            unit = self.bounded and not constraint.penalized
            rows[mode] = _columns(constraint, gamma, product, rows[mode], unit)
            grams[mode] = rows[mode] @ rows[mode].T
            products.replace(mode, problem.native(rows[mode]))
        return self._prepared(rows) if not self.bounded else tuple(rows)

    def extrapolated(self, point: _Point) -> _Point:
        """A sweep that starts ahead of `point`, kept where it ends lower; else a plain one."""
        if point.previous is not None:
            step = point.momentum
            pairs = zip(point.factors, point.previous, strict=True)
            reached = self.sweep([f + step * (f - p) for f, p in pairs])
            loss = self.loss(reached)
            if loss < point.loss:
                return _Point(reached, loss, point.factors, faster(step))
            point = replace(point, momentum=0.5 * step)
        reached = self.sweep(point.factors)
        loss = self.loss(reached)
        if loss > point.loss:  # by rounding
            return replace(point, previous=None)
        return _Point(reached, loss, point.factors, point.momentum)


def _columns(
    constraint: Constraint, gamma: Array, product: Array, rows: Array, unit: bool
) -> Array:
    """One factor by proximal steps on its columns; the first makes each of them feasible."""
    rows = rows.copy()
    for _ in range(_ROUNDS):
        before = rows.copy()
        for j in range(len(rows)):
            weight = float(gamma[j, j])
            if weight <= 0.0:
                rows[j] = constraint.nearest(rows[j], 1.0)
                continue
            target = rows[j] + (product[j] - gamma[j] @ rows) / weight
            found = constraint.nearest(target, weight)
            if unit:
                # On a cone the best column of unit norm is the nearest one, rescaled.
                length = float(np.linalg.norm(found))
                found = found / length if length > 0 else constraint.nearest(rows[j], 1.0)
            rows[j] = found
        if np.linalg.norm(rows - before) <= 1e-3 * np.linalg.norm(rows):
            break
    return rows


def _direction(constraint: Constraint, row: Array) -> Array:
    # A weight so large that penalties do not act: only the shape is of interest here.
    return constraint.nearest(row, 1e12)


def _assembled(
    reference: Array, factors: Sequence[Array], by_mode: Sequence[Constraint]
) -> CPTensor:
    """Unit columns (of unit sum for a simplex) by decreasing weight.

    Only columns whose negative is as good are turned, so that their largest entry is positive.
    """
    weights = np.ones(len(factors[0]))
    rows = []
    for constraint, factor in zip(by_mode, factors, strict=True):
        lengths = np.linalg.norm(factor, axis=1)
        if isinstance(constraint, Simplex):
            lengths = factor.sum(axis=1)
        scale = np.where(lengths > 0, lengths, 1.0)
        if constraint.signed:
            largest = np.take_along_axis(factor, np.abs(factor).argmax(axis=1)[:, None], axis=1)
            scale = scale * np.where(largest[:, 0] < 0, -1.0, 1.0)
        weights = weights * np.where(lengths > 0, scale, 0.0)
        rows.append(factor / scale[:, None])
    order = component_order(np.abs(weights), rows[0])
    columns = tuple(like(np.ascontiguousarray(row[order].T), reference) for row in rows)
    return CPTensor(like(weights[order], reference), columns)
