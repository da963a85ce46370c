"""What the caller brought, as a tensor that algorithms can contract."""

from __future__ import annotations

import sys
from typing import Any

import scipy.sparse
from numpy.lib.npyio import NpzFile

from latensor.arrays.library import refuse_meta
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor


def as_contractible(tensor: Any, name: str = "tensor") -> Contractible:
    """A tensor of any kind adapted to `Contractible`.

    Parameters
    ----------
    tensor : dense array of any library, nested lists, SciPy or PyData sparse array, TensorLy or
        pyttb object, an open .npz archive, or a latensor tensor (returned as it is)
    name : str, what error messages call it
    """
    if is_contractible(tensor):
        return tensor  # type: ignore[no-any-return]
    if scipy.sparse.issparse(tensor):
        from latensor.tensors.sparse import SparseTensor

        return SparseTensor.from_scipy(tensor)
    origin = type(tensor).__module__.split(".")[0]
    if origin == "sparse" and "sparse" in sys.modules:
        from latensor.tensors.sparse import SparseTensor

        return SparseTensor.from_coo(tensor)
    if origin in {"tensorly", "pyttb"}:
        from latensor.tensors.interoperability import from_pyttb, from_tensorly

        converted = from_tensorly(tensor) if origin == "tensorly" else from_pyttb(tensor)
        return as_contractible(converted, name)
    if isinstance(tensor, NpzFile):
        tensor, _ = read_archive(tensor, name)
    refuse_meta(tensor, name)
    return DenseTensor(tensor, name)


def read_archive(archive: Any, name: str = "tensor") -> tuple[Any, dict[str, Any]]:
    """The tensor in an .npz archive, the only array of numbers of largest order, and the others."""
    arrays = {key: archive[key] for key in archive}
    orders = {key: array.ndim for key, array in arrays.items() if array.dtype.kind in "iufc"}
    largest = max(orders.values(), default=0)
    chosen = [key for key, order in orders.items() if order == largest]
    if largest == 0 or len(chosen) > 1:
        listed = ", ".join(f"{key} {array.shape}" for key, array in arrays.items()) or "none"
        raise InvalidInputError(
            f"{name} is an archive of the arrays {listed}: give the one that is the tensor, such "
            f"as {name}[{(chosen or ['x'])[0]!r}]"
        )
    return arrays.pop(chosen[0]), arrays


def is_contractible(tensor: object) -> bool:
    """Whether an object already is a latensor tensor (duck-typed: contract, mttkrp and norm)."""
    return all(hasattr(tensor, method) for method in ("contract", "mttkrp", "norm", "sweep"))


def require_dense(tensor: Any, name: str, purpose: str) -> DenseTensor:
    """A dense tensor, for functions that rearrange entries and have no factored or sparse form."""
    if type(tensor).__module__.split(".")[0] in {"tensorly", "pyttb"}:
        tensor = as_contractible(tensor, name)
    if isinstance(tensor, DenseTensor):
        return tensor
    if is_contractible(tensor):
        raise InvalidInputError(
            f"{name} is a {type(tensor).__name__}, and {purpose} needs a dense array: "
            f"call {name}.to_dense() first if its size {tensor.shape} allows"
        )
    return DenseTensor(tensor, name)
