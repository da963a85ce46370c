"""Tucker decompositions in which the factors of some modes are given.

With a given factor A = U M, U an orthonormal basis of its columns, the best fit is that of the
tensor projected on U: what is left to find is a decomposition of T(conj U), whose core, turned by
the pseudo-inverse of A times U, stands beside A itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latensor.arrays import Array, Namespace, like, machine_epsilon, to_host
from latensor.arrays.linear_map import conjugate_transpose
from latensor.arrays.subspace import thin_svd
from latensor.decomposition.tucker.orthogonal import Subspaces, conjugated
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor, contract_modes
from latensor.tensors.size import MAX_SIZE, check_size


@dataclass(frozen=True)
class FixedFactors:
    """The given factors of some modes.

    Attributes
    ----------
    factors : per mode the factor as it was given, None for a mode that is to be fitted
    bases : per mode an orthonormal basis of its columns, in the coordinates of the tensor
    turns : per mode the (rank, basis) matrix from coordinates in the basis to those in the factor
    """

    factors: tuple[Array | None, ...]
    bases: tuple[Array | None, ...]
    turns: tuple[Array | None, ...]

    @classmethod
    def of(
        cls, factors: Sequence[Array | None], fixed: Sequence[int], outer: Subspaces | None
    ) -> FixedFactors:
        """The factors of the modes in `fixed`; dependent columns are allowed.

        Where the tensor is known by a core in the bases of `outer`, it is projected from there.
        """
        kept = tuple(f if m in fixed else None for m, f in enumerate(factors))
        bases: list[Array | None] = []
        turns: list[Array | None] = []
        for factor in kept:
            if factor is None:
                bases.append(None)
                turns.append(None)
                continue
            left, values, right = thin_svd(factor)
            sizes = np.asarray(to_host(values), dtype=np.float64)
            limit = max(factor.shape) * machine_epsilon(factor) * sizes.max(initial=0.0)
            count = max(int((sizes > limit).sum()), 1)
            inverse = like(np.where(sizes > 0, 1.0 / np.where(sizes > 0, sizes, 1.0), 0.0), factor)
            basis, around = left[:, :count], None if outer is None else outer.bases[len(bases)]
            bases.append(basis if around is None else conjugate_transpose(around) @ basis)
            turns.append(right[:, :count] * inverse[None, :count])
        return cls(kept, tuple(bases), tuple(turns))

    def project(self, tensor: Contractible) -> DenseTensor:
        """The tensor in coordinates of the given bases, dense."""
        shape = tuple(
            int(d if basis is None else basis.shape[1])
            for d, basis in zip(tensor.shape, self.bases, strict=True)
        )
        check_size(shape, tensor.reference.dtype, MAX_SIZE, "the tensor seen in the given factors")
        operands = [None if basis is None else conjugated(basis) for basis in self.bases]
        return DenseTensor(tensor.contract(*operands))

    def restore(
        self, xp: Namespace, core: Array, factors: Sequence[Array | None]
    ) -> tuple[Array, tuple[Array | None, ...]]:
        """Core and factors beside the given ones, of a decomposition of the projected tensor."""
        operands = [None if turn is None else xp.permute_dims(turn, (1, 0)) for turn in self.turns]
        core = contract_modes(xp, core, operands)
        return core, tuple(
            theirs if ours is None else ours
            for ours, theirs in zip(self.factors, factors, strict=True)
        )

    def expand(self, xp: Namespace, array: Array) -> Array:
        """An array in coordinates of the given bases as one in those of the tensor."""
        turned = [None if basis is None else conjugate_transpose(basis) for basis in self.bases]
        return contract_modes(xp, array, [None if t is None else conjugated(t) for t in turned])
