"""What regressors and classifiers on tensors share: parameters, targets, fitted tensors."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.base import LatentEstimator
from latensor.estimation.convergence import warn_unconverged
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    FLAG,
    POSITIVE,
    Choice,
    parameter,
)
from latensor.exceptions import InvalidInputError
from latensor.models.regression.fit import Settings
from latensor.models.regression.starts import Rank
from latensor.models.regression.tensor_input import ReadsTensors
from latensor.models.regression.tucker_weights import TuckerWeights
from latensor.models.regression.weights import CPWeights
from latensor.tensors.cp import CPTensor
from latensor.tensors.tucker import TuckerTensor


@dataclass(eq=False, repr=False)
class TensorEstimator(ReadsTensors, LatentEstimator):
    """Base of regressors and classifiers on tensors; a subclass names its rank."""

    _: KW_ONLY
    alpha: float | str = parameter("auto", Choice(("auto",)), AT_LEAST_ZERO)
    fit_intercept: bool = parameter(True, FLAG)
    shape: Any = None
    max_rank: int = parameter(8, AT_LEAST_ONE)
    max_iter: int = parameter(100, AT_LEAST_ONE)
    tol: float = parameter(1e-6, POSITIVE)

    # Nothing is drawn at random: two fits are the same to the last bit.
    random_state: ClassVar[int] = 0
    _takes_sparse = True
    _min_samples = 2
    _fitted_names = frozenset(
        {
            "coef_",
            "intercept_",
            "alpha_",
            "rank_",
            "selection_",
            "n_iter_",
            "shape_",
            "certificate_",
        }
    )

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        """The rank, or None and what cross-validation tries."""
        raise NotImplementedError(f"{type(self).__name__} must read its rank")

    def _settings(self, penalty: str = "weights") -> Settings:
        intercept = bool(self.fit_intercept)
        return Settings(self.alpha, intercept, int(self.max_iter), float(self.tol), penalty)

    def _is_flat(self) -> bool:
        """Whether the weights have no mode of outputs."""
        return self._flat

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        state: Any = answer.state
        self._check_size(state.weights.dense())
        return {
            "coef_": fitted_tensor(state.weights, self._is_flat(), self._dtype),
            "intercept_": state.intercept.astype(self._dtype),
            "alpha_": state.alpha,
            "rank_": state.rank,
            "selection_": state.scores,
            "n_iter_": state.n_iter,
            "shape_": self._dims,
            "certificate_": state.certificate,
        }

    def _warn(self, answer: Answer[Any]) -> None:
        state: Any = answer.state
        if not state.certificate.converged:
            warn_unconverged(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps before the "
                f"loss decreased by less than tol={self.tol:g}: raise max_iter, or alpha"
            )


def cp_rank(rank: object, dims: Sequence[int], n_outputs: int, owner: str) -> int:
    """A rank of CP weights, at most that of any tensor of their shape."""
    sizes = [*dims, n_outputs] if n_outputs > 1 else list(dims)
    limit = math.prod(sizes) // max(sizes)
    if not isinstance(rank, numbers.Integral) or isinstance(rank, bool) or int(rank) < 1:
        raise InvalidInputError(f"rank={rank!r} of {owner} must be an integer of at least 1")
    if int(rank) > limit:
        shape = " x ".join(map(str, sizes))
        raise InvalidInputError(
            f"rank={rank} of {owner} exceeds {limit}, the largest that weights of {shape} can "
            "need: lower rank"
        )
    return int(rank)


def tucker_ranks(ranks: object, dims: Sequence[int], owner: str) -> tuple[int, ...]:
    """Ranks of Tucker weights, one per mode of a sample, none above its dimension."""
    given = [ranks] * len(dims) if isinstance(ranks, numbers.Integral) else ranks
    if not isinstance(given, list | tuple) or len(given) != len(dims):
        raise InvalidInputError(
            f"ranks={ranks!r} of {owner} must be an integer, or one per mode of a sample of "
            f"shape {tuple(dims)}; outputs are not compressed"
        )
    for rank, d in zip(given, dims, strict=True):
        if (
            not isinstance(rank, numbers.Integral)
            or isinstance(rank, bool)
            or not 1 <= int(rank) <= d
        ):
            raise InvalidInputError(
                f"ranks={ranks!r} of {owner} must be integers from 1 to the dimensions "
                f"{tuple(dims)} of a sample"
            )
    return tuple(int(r) for r in given)


@dataclass(eq=False, repr=False)
class CPRank(TensorEstimator):
    """The parameters of models with CP weights."""

    rank: int | str = parameter(1, AT_LEAST_ONE, Choice(("auto",)))

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        if self.rank == "auto":
            return None, cp_candidates(int(self.max_rank), self._dims, n_outputs)
        return cp_rank(self.rank, self._dims, n_outputs, type(self).__name__), ()


@dataclass(eq=False, repr=False)
class TuckerRanks(TensorEstimator):
    """The parameters of models with Tucker weights."""

    ranks: Any = 1

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        if isinstance(self.ranks, str) and self.ranks == "auto":
            return None, tucker_candidates(int(self.max_rank), self._dims)
        return tucker_ranks(self.ranks, self._dims, type(self).__name__), ()


def cp_candidates(max_rank: int, dims: Sequence[int], n_outputs: int) -> tuple[Rank, ...]:
    """Ranks that cross-validation tries."""
    sizes = [*dims, n_outputs] if n_outputs > 1 else list(dims)
    return tuple(range(1, min(max_rank, math.prod(sizes) // max(sizes)) + 1))


def tucker_candidates(max_rank: int, dims: Sequence[int]) -> tuple[Rank, ...]:
    """Equal ranks in all modes, up to their dimensions."""
    found: list[Rank] = []
    for rank in range(1, min(max_rank, max(dims)) + 1):
        each = tuple(min(rank, d) for d in dims)
        if each not in found:
            found.append(each)
    return tuple(found)


def fitted_tensor(weights: CPWeights | TuckerWeights, flat: bool, dtype: Any) -> Any:
    """Weights as a CPTensor or TuckerTensor (d_1, .., d_N), with outputs last unless `flat`."""
    if isinstance(weights, CPWeights):
        factors = [f.astype(dtype) for f in weights.factors]
        scale = np.ones(weights.rank, dtype=dtype)
        if flat:
            scale = weights.output[0].astype(dtype)
        else:
            factors.append(weights.output.astype(dtype))
        return CPTensor(scale, tuple(factors)).canonical()
    core = weights.core.astype(dtype)
    kept: list[Any] = [f.astype(dtype) for f in weights.factors]
    if flat:
        return TuckerTensor(np.ascontiguousarray(core[..., 0]), tuple(kept))
    return TuckerTensor(core, (*kept, None))


def dense_weights(coef: Any, n_features: int) -> Array:
    """(D, q) of a fitted tensor."""
    return np.asarray(coef.to_dense()).reshape(n_features, -1)
