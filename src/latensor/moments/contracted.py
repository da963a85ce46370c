"""Contractions of moment tensors as sums over batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.tensors.moment import MomentTensor


@dataclass(frozen=True, eq=False)
class ContractedSums(Sums):
    """What several contractions of a moment tensor add up to, all in one pass.

    Attributes
    ----------
    asked : functions of the moment tensor of a batch, such as `tensors.moment.Contraction`
    modes : the part of a batch that each mode reads
    scales : powers of two by which the parts are divided
    dtype : str, precision of products; sums are in double precision
    """

    asked: tuple[Callable[[MomentTensor], Array], ...]
    modes: tuple[int, ...]
    scales: tuple[float, ...]
    dtype: str

    def summed(self, batch: Batch) -> dict[str, Any]:
        parts = [
            part.astype(self.dtype, copy=False) * (1.0 / scale)
            if scale != 1.0
            else part.astype(self.dtype, copy=False)
            for part, scale in zip(batch.parts, self.scales, strict=True)
        ]
        views = tuple(parts[m] for m in self.modes)
        moment = MomentTensor.of_checked(views, batch.weights.astype(self.dtype))
        found = {str(i): _double(one(moment)) for i, one in enumerate(self.asked)}
        return {"weight": batch.weight, "count": len(batch), **found}

    def finalize(self) -> tuple[float, int, list[Any]]:
        """Total weight, number of samples, and the sums."""
        sums = self.seen()
        found = [sums[str(i)] for i in range(len(self.asked))]
        return float(sums["weight"]), int(sums["count"]), found


@dataclass(frozen=True)
class TermNorms:
    """The norms of the terms w_i x_i (x) x_i (x) x_i of a batch, added up."""

    def __call__(self, moment: MomentTensor) -> Any:
        return np.asarray(moment.sum_of_term_norms())


def _double(array: Any) -> Any:
    return np.asarray(array, dtype=np.float64)
