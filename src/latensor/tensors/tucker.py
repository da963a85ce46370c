"""A tensor in Tucker form: a core with one factor per mode (monograph 3.2, equation 3.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from latensor.arrays import Array, Namespace, check_finite, describe, is_complex, matmul, resolve
from latensor.arrays.guests import holds_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import DirectSweep, Sweep
from latensor.tensors.dense import DenseTensor, contract_modes, norm_of_product
from latensor.tensors.operands import check_factors, check_operands
from latensor.tensors.size import MAX_SIZE, check_size
from latensor.value_files import storable


@storable
@holds_guests
@dataclass(frozen=True, eq=False, repr=False)
class TuckerTensor:
    """T = S(A', B', C') with a core S and factors A, B, C.

    Parameters
    ----------
    core : array with one mode per factor
    factors : one (dimension, core dimension) matrix per mode, or None where the mode is not
        compressed and the core holds it whole

    Unpacks like TensorLy's pair: `core, factors = tucker`.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> tensor = lt.TuckerTensor(np.ones((2, 2)), (np.eye(3)[:, :2], np.eye(4)[:, :2]))
    >>> tensor.shape, tensor.ranks
    ((3, 4), (2, 2))
    """

    core: Array
    factors: tuple[Array | None, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.factors, list | tuple):
            raise InvalidInputError("factors must be a sequence of matrices, one per mode")
        if self.core is None:
            raise InvalidInputError("core is None: an array with one mode per factor is needed")
        named = {f"factors[{m}]": factor for m, factor in enumerate(self.factors)}
        _, arrays = resolve(core=self.core, **named)
        core = arrays["core"]
        if core.ndim == 0 or 0 in core.shape:
            raise InvalidInputError(f"core must have modes, none of them empty: {describe(core)}")
        if core.ndim != len(self.factors):
            raise InvalidInputError(
                f"{len(self.factors)} factors given for a core of order {core.ndim}: "
                "give one per mode, None for a mode that is not compressed"
            )
        for m, name in enumerate(named):
            factor = arrays[name]
            if factor is None:
                continue
            if factor.ndim != 2 or factor.shape[0] == 0 or factor.shape[1] != core.shape[m]:
                raise InvalidInputError(
                    f"{name} must be a matrix with {core.shape[m]} columns, "
                    f"as mode {m} of the core, got {describe(factor)}"
                )
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "factors", tuple(arrays[name] for name in named))

    def __iter__(self) -> Iterator[Any]:
        return iter((self.core, self.factors))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.core, self.factors)[index]

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.shape)
        core = " x ".join(str(d) for d in self.ranks)
        return f"TuckerTensor({shape}, core {core}, {describe(self.core).split(', shape')[0]})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(
            int(core_dimension if factor is None else factor.shape[0])
            for core_dimension, factor in zip(self.core.shape, self.factors, strict=True)
        )

    @property
    def ranks(self) -> tuple[int, ...]:
        """The dimensions of the core."""
        return tuple(int(d) for d in self.core.shape)

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.factors)

    @property
    def reference(self) -> Array:
        """The core: its library, device and dtype are the tensor's."""
        return self.core

    @property
    def _namespace(self) -> Namespace:
        return resolve(core=self.core)[0]

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C); see `Contractible.contract`."""
        xp = self._namespace
        given = check_operands(operands, self.shape, self.core)
        inner: list[Array | None] = []
        for factor, operand in zip(self.factors, given, strict=True):
            turned = None if factor is None else xp.permute_dims(factor, (1, 0))
            if turned is None or operand is None:
                inner.append(turned if operand is None else operand)
            else:
                inner.append(matmul(xp, turned, operand))
        result = contract_modes(xp, self.core, inner)
        return check_finite(result, core=self.core, factors=self.factors, operands=given)

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product, computed on the core; see `Contractible.mttkrp`."""
        xp = self._namespace
        mode, given = check_factors(factors, self.shape, mode, self.core)
        inner = [
            theirs if ours is None or theirs is None else matmul(xp, _adjoint(xp, ours), theirs)
            for ours, theirs in zip(self.factors, given, strict=True)
        ]
        part = DenseTensor(self.core, "core").mttkrp(inner, mode)
        own = self.factors[mode]
        return part if own is None else matmul(xp, own, part)

    def norm(self) -> Any:
        """The Frobenius norm, computed on the core."""
        xp = self._namespace
        given = [f for f in self.factors if f is not None]

        def norm(core: Array, *parts: Array) -> Array:
            rest = iter(parts)
            factors = [None if f is None else next(rest) for f in self.factors]
            return _norm(xp, core, factors)

        result = norm_of_product(xp, [self.core, *given], norm)
        return check_finite(result, core=self.core, factors=self.factors)

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """Mttkrps for all modes, each computed on the core."""
        return DirectSweep(self, factors)

    def to_dense(self, max_size: int = MAX_SIZE) -> Array:
        """The tensor with all its entries, refused where there are more than `max_size`."""
        check_size(self.shape, self.core.dtype, max_size, "the dense array")
        return self.contract(*([None] * self.order))

    def to_tensorly(self) -> Any:
        """The same tensor as `tensorly.tucker_tensor.TuckerTensor` (imports TensorLy)."""
        from latensor.tensors.interoperability import tucker_to_tensorly

        return tucker_to_tensorly(self)

    def to_pyttb(self) -> Any:
        """The same tensor as `pyttb.ttensor` (imports pyttb)."""
        from latensor.tensors.interoperability import tucker_to_pyttb

        return tucker_to_pyttb(self)


def _adjoint(xp: Namespace, factor: Array) -> Array:
    turned = xp.permute_dims(factor, (1, 0))
    return xp.conj(turned) if is_complex(turned) else turned


def _norm(xp: Namespace, core: Array, factors: Sequence[Array | None]) -> Array:
    grams = [None if f is None else matmul(xp, _adjoint(xp, f), f) for f in factors]
    turned = [None if g is None else xp.permute_dims(g, (1, 0)) for g in grams]
    image = contract_modes(xp, core, turned)
    conjugated = xp.conj(core) if is_complex(core) else core
    square = xp.sum(conjugated * image)
    square = xp.real(square) if is_complex(square) else square
    return xp.sqrt(xp.where(square < 0, xp.zeros_like(square), square))
