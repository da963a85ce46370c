"""What speaks for each rank where entries are missing: how well held-back entries are predicted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.decompose import decompose
from latensor.decomposition.optimize.masked import Observed, observe
from latensor.decomposition.scale import rescaled
from latensor.diagnostics.components import components_of
from latensor.diagnostics.conditioning import sensitivity
from latensor.diagnostics.consistency import degeneracy
from latensor.diagnostics.noise_limit import FIT
from latensor.diagnostics.rank_evidence import RankEvidence
from latensor.exceptions import ConvergenceWarning, InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor

# The fraction of the observed entries that each split holds back.
_HELD_BACK = 0.1
# A rank is beaten by a larger one that predicts better by so many standard errors and by this
# fraction of the squared error.
_STANDARD_ERRORS = 2.0
_WORTH_A_COMPONENT = 1e-2
# Relative error of a prediction that leaves nothing over.
_EXACT = 1e-6


class HeldOutExamination:
    """A tensor with missing entries, fitted at every rank to all observed ones but a few.

    Parameters
    ----------
    data : the tensor, dense or sparse
    mask : of the same shape, True (or stored) where an entry was observed
    n_splits : int, how many times other entries are held back
    rng : generator

    Attributes
    ----------
    scale : float, what the entries were divided by to stay in range
    """

    def __init__(
        self, data: Contractible, mask: object, n_splits: int, rng: np.random.Generator
    ) -> None:
        if n_splits < 1:
            raise InvalidInputError(
                "n_splits=0 leaves nothing to compare ranks by where entries are missing: give 1 "
                "or more"
            )
        given: Any = observe(data, mask)
        scaled: Any
        scaled, self.scale = rescaled(given)
        observed: Observed = scaled
        self.observed = observed
        self.data = data
        self.shape = tuple(data.shape)
        self.coordinates = observed.coordinates
        self.values = observed.entries
        self.entries = len(self.values)
        self.squared_norm = float(np.vdot(self.values, self.values).real)
        self.seed = int(rng.integers(2**62))
        self.splits = self._all_splits(n_splits, rng)
        if not any(len(held) for held in self.splits):
            raise InvalidInputError(
                f"mask leaves {self.entries} observed entries, of which none can be held back "
                "without hiding a slice: choose the rank yourself"
            )
        energies = np.concatenate([np.abs(self.values[held]) ** 2 for held in self.splits])
        self.errors = [energies]

    def _all_splits(self, n_splits: int, rng: np.random.Generator) -> list[Array]:
        """Indices of the observed entries that each split holds back; no two share any."""
        order = rng.permutation(self.entries)
        count = max(int(min(_HELD_BACK, 1.0 / n_splits) * self.entries), 1)
        return [self._without_last(order[i * count : (i + 1) * count]) for i in range(n_splits)]

    def _without_last(self, held: Array) -> Array:
        """Those of the entries to hold back that do not leave a slice without any."""
        kept = np.zeros(self.entries, dtype=bool)
        kept[held] = True
        for index, d in zip(self.coordinates, self.shape, strict=True):
            left = np.bincount(index[~kept], minlength=d)
            kept &= left[index] > 0
        return np.flatnonzero(kept)

    def empty(self) -> RankEvidence:
        """The row of rank zero: all entries are left over."""
        noise = math.sqrt(self.squared_norm / self.entries)
        present = float(self.squared_norm > 0)
        return RankEvidence(
            0, present, None, noise, None, None, 1.0, 0.0, None, None, None, held_out=present
        )

    def row(self, rank: int) -> RankEvidence:
        """Fit the next rank and see how well it predicts what it was not shown."""
        squares, losses, energy, first = [], 0.0, 0.0, None
        for split, held in enumerate(self.splits):
            with warnings.catch_warnings():
                # Of a rank that is too high; what it is worth shows at the entries held back.
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit = decompose(
                    self.data,
                    rank,
                    algorithm=FIT,
                    mask=self._shown(held),
                    random_state=self.seed + 1000 * split + rank,
                )
            first = fit.tensor if first is None else first
            squares.append(np.abs(self.values[held] - self._predicted(fit.tensor, held)) ** 2)
            part = self.squared_norm - float(np.vdot(self.values[held], self.values[held]).real)
            losses, energy = losses + fit.residual**2 * part, energy + part
        assert first is not None
        self.errors.append(np.concatenate(squares))
        shown = energy / self.squared_norm * self.entries
        freedom = shown - len(self.splits) * rank * (sum(self.shape) - len(self.shape) + 1)
        components = components_of(first, "fit")
        return RankEvidence(
            rank,
            math.sqrt(losses / energy),
            None,
            math.sqrt(losses / freedom) if freedom > 0 else None,
            None,
            None,
            sensitivity(components).condition.value,
            degeneracy(components)[0],
            None,
            None,
            None,
            held_out=self._relative(rank),
        )

    def _shown(self, held: Array) -> Observed:
        """The observed entries without those that are held back."""
        kept = np.ones(self.entries, dtype=bool)
        kept[held] = False
        return self.observed.take(np.flatnonzero(kept))

    def _predicted(self, tensor: CPTensor, held: Array) -> Array:
        terms: Array = to_host(tensor.weights)[None, :]
        for factor, index in zip(tensor.factors, self.coordinates, strict=True):
            terms = terms * to_host(factor)[index[held]]
        return terms.sum(axis=1)

    def _relative(self, rank: int) -> float:
        total = float(self.errors[0].sum())
        return math.sqrt(float(self.errors[rank].sum()) / total) if total else 0.0

    def exact(self, row: RankEvidence) -> bool:
        """Whether a fit predicts what it was not shown to rounding."""
        return row.held_out is not None and row.held_out <= _EXACT

    def beaten(self, rank: int) -> bool:
        """Whether some larger rank predicts better by more than chance."""
        return any(self._worse(rank, larger) for larger in range(rank + 1, len(self.errors)))

    def nearly_beaten(self, rank: int) -> bool:
        """Never: two standard errors are a sharp limit."""
        return False

    def _worse(self, rank: int, larger: int) -> bool:
        gains = self.errors[rank] - self.errors[larger]
        mean = float(gains.mean())
        chance = _STANDARD_ERRORS * float(gains.std()) / math.sqrt(len(gains))
        return mean > max(chance, _WORTH_A_COMPONENT * float(self.errors[rank].mean()))


def explained(rows: Sequence[RankEvidence], rank: int, last: int, exact: bool) -> str:
    """Why a rank was proposed from held-back entries, in words."""
    if rank == 0:
        return "No component helps to predict entries that were held back."
    count = f"{rank} component" + ("s predict" if rank > 1 else " predicts")
    error = rows[rank].held_out
    text = f"{count} entries that were held back to {error:.3g} of their size"
    if exact:
        return f"{text}, fewer do not."
    text += "; more do not predict them better."
    if rank == last:
        text = text.replace("; more do not predict them better", "")
        text += f" Raise max_rank={last}: it was the last rank tried and the best."
    return text
