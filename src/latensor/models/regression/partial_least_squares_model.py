"""Multilinear partial least squares as one model: of rows in memory, or those of covariances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.decompose import decompose
from latensor.estimation.model import Answer, Frame
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.models.regression.design import DenseDesign, regression_of_moments
from latensor.models.regression.model import TensorModel
from latensor.moments.row_sums import CrossCovarianceSums
from latensor.moments.sums import Folded, Joint
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class PLSState:
    """Components in the units of the data.

    Attributes
    ----------
    patterns : N matrices (d_k, R) of unit columns
    outputs : (q, R), unit columns
    rotations : (D, R), from centred rows to scores
    inner : (R, R), from the scores of X to those of Y
    coef : (D, q)
    x_mean, y_mean : (D,) and (q,)
    scores, y_scores : (n, R) of the training samples; None where they were not kept
    """

    patterns: tuple[Any, ...]
    outputs: Any
    rotations: Any
    inner: Any
    coef: Any
    x_mean: Any
    y_mean: Any
    scores: Any = None
    y_scores: Any = None


class Deflated:
    """Centred X (m, D) and Y (m, q) in units of their own, less what components have taken."""

    def __init__(self, x: Array, y: Array, x_scale: float, y_scale: float) -> None:
        self._x, self.x_scale = x, x_scale
        self._y, self.y_scale = y, y_scale
        self._scores: list[Array] = []
        self._y_scores: list[Array] = []

    def cross(self) -> Array:
        """X'Y (D, q)."""
        return self._x.T @ self._y

    def deflate(self, load: Array, output: Array) -> Array:
        """Takes a component out of both; the coefficients of all scores so far for Y q."""
        self._scores.append(self._x @ load)
        self._y_scores.append(self._y @ output)
        scores = np.stack(self._scores, axis=1)
        solved = np.linalg.lstsq(scores, self._y_scores[-1], rcond=None)[0]
        self._x = self._x - np.outer(self._scores[-1], load)
        self._y = self._y - np.outer(scores @ solved, output)
        return np.asarray(solved)

    def scores(self, roots: Array) -> tuple[Array, Array]:
        """(m, R) each, of X and of Y, whose rows had been multiplied by roots (m, 1)."""
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.stack(self._scores, axis=1) / roots * self.x_scale
            return x, np.stack(self._y_scores, axis=1) / roots * self.y_scale


def _components(
    data: Deflated, dims: Sequence[int], count: int
) -> tuple[list[Array], Array, Array, Array]:
    """Patterns, outputs (q, R), rotations (D, R) and inner coefficients (R, R)."""
    patterns: list[list[Array]] = [[] for _ in dims]
    loads: list[Array] = []
    rotations: list[Array] = []
    outputs: list[Array] = []
    inner = np.zeros((count, count))
    for r in range(count):
        modes = _leading(data.cross().reshape(*dims, -1))
        for pattern, mode in zip(patterns, modes[:-1], strict=True):
            pattern.append(mode)
        load = reduce(np.multiply.outer, modes[:-1]).ravel()
        # Scores of samples as they come: <X, w_r> less what the components before it took.
        rotation = load.copy()
        for before, other in zip(loads, rotations, strict=True):
            rotation -= (before @ load) * other
        loads.append(load)
        rotations.append(rotation)
        outputs.append(modes[-1])
        inner[: r + 1, r] = data.deflate(load, modes[-1])
    stacked = [np.stack(pattern, axis=1) for pattern in patterns]
    return stacked, np.stack(outputs, axis=1), np.stack(rotations, axis=1), inner


@dataclass(frozen=True)
class PLSModel(TensorModel[PLSState]):
    """The settings of multilinear partial least squares."""

    n_components: int

    def at_once(self, run: Run, frame: Frame) -> Answer[PLSState] | None:
        units = run.source.in_memory
        if run.source.original is None or units is None:
            return None
        weights = units.weights
        parts = (np.asarray(part, dtype=np.float64) for part in units.parts)
        x_mean, y_mean = (
            part.mean(axis=0) if (weights == 1).all() else weights @ part / weights.sum()
            for part in parts
        )
        roots = np.sqrt(weights)[:, None]
        (x, x_scale), (y, y_scale) = (
            _scaled((np.asarray(part, dtype=np.float64) - mean) * roots)
            for part, mean in zip(units.parts, (x_mean, y_mean), strict=True)
        )
        data = Deflated(x, y, x_scale, y_scale)
        state = self._state(data, x_mean, y_mean, len(units))
        scores, y_scores = data.scores(roots)
        return Answer(replace(state, scores=scores, y_scores=y_scores))

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"covariances": CrossCovarianceSums(frame["x"], frame["y"])}

    def read_off(self, frame: Frame, moments: Joint, rng: Any) -> Answer[PLSState]:
        known = moments["covariances"].finalize()
        if known.count < 2:
            raise InvalidInputError(f"X has {known.count} sample(s): CPPLS needs a minimum of 2")
        rows = regression_of_moments(known, self.dims, intercept=True)
        assert isinstance(rows.design, DenseDesign)
        x = rows.design.rows.reshape(-1, self._size)
        data = Deflated(x, rows.targets, rows.x_scale, rows.y_scale)
        return Answer(self._state(data, known.x_mean, known.y_mean, known.count))

    def _state(self, data: Deflated, x_mean: Array, y_mean: Array, n_samples: int) -> PLSState:
        if self.n_components > min(n_samples, self._size):
            raise InvalidInputError(
                f"n_components={self.n_components} exceeds the directions that {n_samples} samples "
                f"of {self._size} entries can have: lower n_components, or give more samples"
            )
        patterns, outputs, rotations, inner = _components(data, self.dims, self.n_components)
        with np.errstate(over="ignore", invalid="ignore"):
            inner = inner * (data.y_scale / data.x_scale)
            coef = rotations @ inner @ outputs.T
        if not np.isfinite(coef).all():
            raise InvalidInputError(
                f"coefficients of y (up to {data.y_scale:.1g}) on X (up to {data.x_scale:.1g}) "
                "overflow: give both in units of similar size"
            )
        return PLSState(tuple(patterns), outputs, rotations, inner, coef, x_mean, y_mean)

    def check_resuming(self, answer: Answer[PLSState]) -> None:
        raise InvalidInputError(
            "CPPLS fitted to samples in one array keeps their scores and no covariances: start a "
            "new one and give all batches to partial_fit, or to fit as one source"
        )


def _scaled(centred: Array) -> tuple[Array, float]:
    """Numbers near one, whose squares neither over- nor underflow, and the power of two to them."""
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(centred).max())[1])))
    return centred / scale, scale


def _leading(tensor: Array) -> list[Array]:
    """Unit vectors of the best approximation of rank one; the first entry of any zero tensor."""
    kept = tensor[..., 0] if tensor.shape[-1] == 1 else tensor
    if not kept.any():
        found = [np.eye(d)[0] for d in kept.shape]
    elif kept.ndim == 1:
        found = [kept / np.linalg.norm(kept)]
    elif kept.ndim == 2:
        left, _, right = np.linalg.svd(kept, full_matrices=False)
        sign = 1.0 if left[np.abs(left[:, 0]).argmax(), 0] > 0 else -1.0
        found = [sign * left[:, 0], sign * right[0]]
    else:
        best = decompose(kept, 1).tensor
        factors = [np.asarray(f)[:, 0] for f in best.factors]
        if float(best.weights[0]) < 0:
            factors[0] = -factors[0]
        found = [f / np.linalg.norm(f) for f in factors]
    return found if tensor.shape[-1] > 1 else [*found, np.ones(1)]
