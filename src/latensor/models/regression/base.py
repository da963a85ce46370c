"""What regressors and classifiers on tensors share: parameters, targets, fitted tensors."""

from __future__ import annotations

import math
import numbers
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


@dataclass(eq=False, repr=False)
class CPRank(TensorEstimator):
    """The parameters of models with CP weights."""

    rank: int | str = parameter(1, AT_LEAST_ONE, Choice(("auto",)))

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        sizes = [*self._dims, n_outputs] if n_outputs > 1 else list(self._dims)
        limit = math.prod(sizes) // max(sizes)
        if self.rank == "auto":
            return None, tuple(range(1, min(int(self.max_rank), limit) + 1))
        if int(self.rank) > limit:
            raise InvalidInputError(
                f"rank={self.rank} of {type(self).__name__} exceeds {limit}, the largest that "
                f"weights of {' x '.join(map(str, sizes))} can need: lower rank"
            )
        return int(self.rank), ()


@dataclass(eq=False, repr=False)
class TuckerRanks(TensorEstimator):
    """The parameters of models with Tucker weights: ranks of the modes of a sample."""

    ranks: Any = 1

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        dims, ranks = self._dims, self.ranks
        if isinstance(ranks, str) and ranks == "auto":
            every = range(1, min(int(self.max_rank), max(dims)) + 1)
            return None, tuple(tuple(min(rank, d) for d in dims) for rank in every)
        shown = f"ranks={ranks!r} of {type(self).__name__} must be"
        given = [ranks] * len(dims) if isinstance(ranks, numbers.Integral) else ranks
        if not isinstance(given, list | tuple) or len(given) != len(dims):
            raise InvalidInputError(
                f"{shown} an integer, or one per mode of a sample of shape {tuple(dims)}; outputs "
                "are not compressed"
            )
        for rank, d in zip(given, dims, strict=True):
            whole = isinstance(rank, numbers.Integral) and not isinstance(rank, bool)
            if not whole or not 1 <= int(rank) <= d:
                raise InvalidInputError(
                    f"{shown} integers from 1 to the dimensions {tuple(dims)} of a sample"
                )
        return tuple(int(rank) for rank in given), ()


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
