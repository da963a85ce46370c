"""Tucker decompositions without negative numbers: parts that add up and never cancel.

min |T - S(A', B', C')| over nonnegative core S and factors A, B, C, one block at a time. A factor
is a nonnegative least-squares problem of size rank, whose right side is the tensor contracted
with the other factors; the core is one on the core's own size. Sweeps start ahead in the direction
of the last change, and one that does not lower the loss is undone, so that the loss never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, like, machine_epsilon, to_host
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.nonnegative import nonnegative_rows
from latensor.decomposition.optimize.problem import multiply_mode, widened
from latensor.decomposition.optimize.sweeps import MOMENTUM, faster
from latensor.decomposition.result import Status
from latensor.decomposition.subspace.compression import unfolding
from latensor.decomposition.tucker.compression import compress, oversampled
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    exact_loss,
    sweep_modes,
    truncate,
)
from latensor.tensors.contractible import Contractible
from latensor.tensors.tucker import TuckerTensor

_CORE_STEPS = 30
_RANDOM_STARTS = 2
_TRIAL_SWEEPS = 15
_FIRST_STAGE_SWEEPS = 200


@dataclass(frozen=True)
class Parts:
    """A nonnegative core and factors with unit columns, on the host in double precision."""

    core: Any
    factors: tuple[Any, ...]
    loss: float
    previous: tuple[Any, ...] | None = None
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class NonnegativeSweeps:
    """How a sweep improves the parts of a tensor.

    Attributes
    ----------
    tensor : what is fitted
    modes : the modes that have a factor
    energy : float, its squared norm
    fixed : the modes whose factors stay as they are
    """

    tensor: Contractible
    modes: tuple[int, ...]
    energy: float
    fixed: tuple[int, ...] = ()

    def sweep(self, parts: Parts) -> Parts:
        """Every factor in turn, then the core; never raises the loss but by rounding."""
        factors: list[Any] = list(parts.factors)
        core = parts.core
        grams = [None if f is None else f.T @ f for f in factors]
        native = [None if f is None else like(f, self.tensor.reference) for f in factors]
        image: Any = None

        def update(mode: int, seen: Array) -> None:
            nonlocal core, image
            host = widened(to_host(seen))
            if mode in self.fixed:
                if mode == self.modes[-1]:
                    image = multiply_mode(host, factors[mode].T, mode)
                return
            rows = unfolding(core, mode)
            others = [None if m == mode else g for m, g in enumerate(grams)]
            gamma = unfolding(_multiplied(core, others), mode) @ rows.T
            solved = nonnegative_rows(gamma, rows @ unfolding(host, mode).T, factors[mode].T)
            # Unit columns keep the blocks on one scale; a vanished column leaves the core as it is.
            norms = np.linalg.norm(solved, axis=1)
            norms[norms == 0.0] = 1.0
            factors[mode] = np.ascontiguousarray((solved / norms[:, None]).T)
            core = _scaled(core, norms, mode)
            grams[mode] = factors[mode].T @ factors[mode]
            native[mode] = like(factors[mode], self.tensor.reference)
            if mode == self.modes[-1]:
                image = multiply_mode(host, factors[mode].T, mode)

        sweep_modes(self.tensor, self.modes, native, update)
        core, loss = _best_core(core, image, grams)
        loss = max(self.energy + loss, 0.0)
        return replace(parts, core=core, factors=tuple(factors), loss=loss)

    def extrapolated(self, parts: Parts) -> Parts:
        """A sweep that starts ahead of `parts`, or a plain one where that does not help."""
        present = (parts.core, *parts.factors)
        if parts.previous is not None:
            step = parts.momentum
            ahead = [
                None if new is None else np.maximum(new + step * (new - old), 0.0)
                for new, old in zip(present, parts.previous, strict=True)
            ]
            reached = self.sweep(replace(parts, core=ahead[0], factors=tuple(ahead[1:])))
            if reached.loss < parts.loss:
                return replace(reached, previous=present, momentum=faster(step))
            parts = replace(parts, momentum=0.5 * step)
        reached = self.sweep(parts)
        if reached.loss > parts.loss:  # only rounding is left
            return replace(parts, previous=None)
        return replace(reached, previous=present)


def _best_core(core: Any, image: Any, grams: Sequence[Any]) -> tuple[Any, float]:
    """Lower <S, H S> - 2 <S, C> over cores S >= 0, with C = T(A, B, C) and H the Grams.

    Accelerated projected gradient steps of length 1 / |H|, restarted whenever they turn uphill.
    Returns the core and the value it reaches.
    """
    length = 1.0
    for gram in grams:
        if gram is not None:
            length *= float(np.linalg.norm(gram, 2))
    product = _multiplied(core, grams)
    value = float(np.vdot(core, product) - 2.0 * np.vdot(core, image))
    if length == 0.0:
        return core, value
    ahead, slope, weight = core, product, 1.0
    for _ in range(_CORE_STEPS):
        candidate = np.maximum(ahead - (slope - image) / length, 0.0)
        turned = _multiplied(candidate, grams)
        reached = float(np.vdot(candidate, turned) - 2.0 * np.vdot(candidate, image))
        if reached >= value:
            if weight == 1.0:
                break
            ahead, slope, weight = core, product, 1.0
            continue
        larger = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * weight**2))
        fraction = (weight - 1.0) / larger
        ahead = candidate + fraction * (candidate - core)
        slope = turned + fraction * (turned - product)
        core, product, value, weight = candidate, turned, reached, larger
    return core, value


def _multiplied(core: Any, matrices: Sequence[Any]) -> Any:
    """The core with every mode multiplied by a symmetric matrix, None for the identity."""
    for mode, matrix in enumerate(matrices):
        if matrix is not None:
            core = multiply_mode(core, matrix, mode)
    return core


def _scaled(core: Any, scale: Any, mode: int) -> Any:
    shape = [1] * core.ndim
    shape[mode] = -1
    return core * scale.reshape(shape)


def nonnegative_fit(
    xp: Namespace,
    tensor: Contractible,
    rule: Truncation,
    rng: np.random.Generator,
    init: TuckerTensor | None,
    tol: float,
    monitor: Monitor,
    scale: float = 1.0,
    fixed: tuple[int, ...] = (),
) -> tuple[TuckerTensor, float, Status]:
    """A nonnegative Tucker decomposition with given ranks.

    Without `init`, several starts are compared on a compressed tensor and the best one is fitted
    to that first; what is recorded is the fit to the tensor itself.

    Parameters
    ----------
    xp, tensor : what is fitted, and its namespace
    rule : Truncation with all ranks fixed
    rng : draws the random starts
    init : where to start, or None
    tol : float, relative decrease of the squared residual that counts as progress
    monitor : keeps the history; its squared norm is that of the tensor
    scale : float, what the tensor was divided by
    fixed : modes whose factors stay as in `init`

    Returns
    -------
    The Tucker tensor in the caller's library and precision, its relative residual, and why the
    iteration ended.
    """
    energy, reference = monitor.squared_norm, tensor.reference
    sweeps = NonnegativeSweeps(tensor, rule.modes, energy, fixed)
    start = _start(xp, tensor, rule, energy, rng, tol) if init is None else _given(init, scale)

    def assemble(parts: Parts) -> Any:
        core, factors = _sorted(parts, fixed)
        native = tuple(None if f is None else like(f, reference) for f in factors)
        return TuckerTensor(like(core * scale, reference), native)

    floor = (10 * machine_epsilon(reference)) ** 2 * energy
    stopping = StoppingRule(
        tol, monitor.budget or 1, 3, floor, proof="extrapolation", persistent=True
    )
    start = sweeps.sweep(start)
    parts, status = iterate(sweeps.extrapolated, start, stopping, monitor, assemble)
    form, loss = assemble(parts), parts.loss
    loss = exact_loss(xp, tensor, form.core / scale, form.factors, loss, energy)
    return form, monitor.relative(loss), status


def _core_shape(shape: tuple[int, ...], rule: Truncation) -> tuple[int, ...]:
    return tuple(rule.ranks.get(m, d) for m, d in enumerate(shape))


def _given(init: TuckerTensor, scale: float) -> Parts:
    factors = tuple(None if f is None else np.array(widened(to_host(f))) for f in init.factors)
    return Parts(widened(to_host(init.core)) / scale, factors, np.inf)


def _start(
    xp: Namespace,
    tensor: Contractible,
    rule: Truncation,
    energy: float,
    rng: np.random.Generator,
    tol: float,
) -> Parts:
    """The best of several starts after a few sweeps, fitted to a compressed tensor."""
    shape = tuple(tensor.shape)
    widths = {m: min(shape[m], oversampled(r)) for m, r in rule.ranks.items()}
    small = compress(xp, tensor, widths, energy, rng)
    sweeps = NonnegativeSweeps(TuckerTensor(small.core, small.bases), rule.modes, energy)
    trial = StoppingRule(0.0, _TRIAL_SWEEPS)
    candidates = []
    for draw in range(1 + _RANDOM_STARTS):
        if draw == 0:
            factors = _leading_parts(xp, small, rule)
        else:
            factors = [
                rng.random((d, rule.ranks[m])) if m in rule.ranks else None
                for m, d in enumerate(shape)
            ]
        point = Parts(np.ones(_core_shape(shape, rule)), tuple(factors), np.inf)
        # One sweep over the factors needs a core that fits their scale: the core goes first.
        point = sweeps.sweep(replace(point, core=_first_core(sweeps.tensor, factors)))
        candidates.append(iterate(sweeps.extrapolated, point, trial)[0])
    best = min(candidates, key=lambda parts: parts.loss)
    stage = StoppingRule(tol, _FIRST_STAGE_SWEEPS, 3)
    return iterate(sweeps.extrapolated, best, stage)[0]


def _first_core(tensor: Contractible, factors: Sequence[Any]) -> Any:
    operands = [None if f is None else like(f, tensor.reference) for f in factors]
    image = widened(to_host(tensor.contract(*operands)))
    grams = [None if f is None else f.T @ f for f in factors]
    start = np.full(image.shape, max(float(image.mean()), 0.0) / max(1.0, _largest(grams)))
    return _best_core(start, image, grams)[0]


def _largest(grams: Sequence[Any]) -> float:
    return float(np.prod([g.sum(axis=1).max() for g in grams if g is not None]))


def _leading_parts(xp: Namespace, small: Subspaces, rule: Truncation) -> list[Any]:
    """The leading directions of every mode, of each the heavier of its two signs.

    What the other sign leaves empty is filled with a small constant: an update by products of
    zeros would never leave it.
    """
    cut = truncate(xp, small.core, rule, float(np.linalg.norm(to_host(small.core))) ** 2)
    factors: list[Any] = []
    for mode, (ours, theirs) in enumerate(zip(small.bases, cut.bases, strict=True)):
        if mode not in rule.ranks:
            factors.append(None)
            continue
        basis = theirs if ours is None else ours if theirs is None else ours @ theirs
        size = rule.ranks[mode]
        columns = np.eye(size) if basis is None else widened(to_host(basis))
        up, down = np.maximum(columns, 0.0), np.maximum(-columns, 0.0)
        heavier = np.linalg.norm(up, axis=0) >= np.linalg.norm(down, axis=0)
        factors.append(np.where(heavier, up, down) + 1e-2 / np.sqrt(columns.shape[0]))
    return factors


def _sorted(parts: Parts, fixed: Sequence[int]) -> tuple[Any, list[Any]]:
    """Core and factors with the slices of the core in decreasing norm, but for fixed modes."""
    core, factors = parts.core, list(parts.factors)
    for mode, factor in enumerate(factors):
        if factor is None or mode in fixed:
            continue
        order = np.argsort(-np.linalg.norm(unfolding(core, mode), axis=1), kind="stable")
        core = np.take(core, order, axis=mode)
        factors[mode] = factor[:, order]
    return core, factors
