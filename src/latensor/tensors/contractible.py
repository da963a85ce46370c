"""What an algorithm may ask of a tensor: its shape, contractions, mttkrp and norm.

Dense arrays, sparse tensors, CP and Tucker forms and implicit moment tensors all answer these, so
that each algorithm is written once. An algorithm turns what the caller brought into a
`Contractible` by `as_contractible` and, where it visits all modes in turn, works through `sweep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from latensor.arrays import Array
from latensor.tensors.operands import check_factors, check_replacement


@runtime_checkable
class Contractible(Protocol):
    """A tensor T of any kind, known through its contractions.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> isinstance(lt.SparseTensor([[0, 1]], [1.0], (2, 2)), lt.Contractible)
    True
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""

    @property
    def reference(self) -> Array:
        """An array with the library, device and dtype of the tensor's entries."""

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C) (monograph 3.2).

        One operand per mode: a (d, k) matrix turns that mode into one of dimension k, a (d,)
        vector sums it away, None keeps it.
        """

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """The (d_mode, rank) product of the mode-`mode` unfolding with the Khatri-Rao product
        of the conjugates of all `factors` but that of `mode`, whose value is not read.
        """

    def norm(self) -> Any:
        """The Frobenius norm, as a scalar of the tensor's library."""

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """A series of mttkrps that shares work between the modes."""


class Sweep(Protocol):
    """The mttkrps of all modes, while the factors are replaced one by one.

    Asked in natural order, a sweep over all modes costs a dense tensor two contractions.
    """

    def mttkrp(self, mode: int) -> Array:
        """The mttkrp of `mode` with the current factors of the other modes."""

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""


class DirectSweep:
    """A sweep for tensors that have nothing to share between modes."""

    def __init__(self, tensor: Contractible, factors: Sequence[Array]) -> None:
        self._tensor = tensor
        self._factors: list[Any] = check_factors(factors, tensor.shape, None, tensor.reference)[1]

    def mttkrp(self, mode: int) -> Array:
        """The mttkrp of `mode` with the current factors of the other modes."""
        return self._tensor.mttkrp(self._factors, mode)

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        mode, factor = check_replacement(mode, factor, self._factors)
        self._factors[mode] = factor
