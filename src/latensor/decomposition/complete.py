"""`complete`: the CP model of a tensor of which only some entries were observed."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import RandomState, is_array, to_host
from latensor.arrays.guests import with_guests
from latensor.arrays.masked import unmasked
from latensor.decomposition.decompose import decompose
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.optimize.masked import observe_entries
from latensor.decomposition.result import Decomposition
from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import as_contractible
from latensor.tensors.dense import DenseTensor
from latensor.tensors.sparse import SparseTensor


@with_guests
def complete(
    tensor: object,
    rank: int | str,
    *,
    mask: object = None,
    nonnegative: Any = False,
    ridge: float = 0.0,
    tol: float | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    random_state: RandomState = 0,
    callback: Callback | None = None,
    progress: bool = False,
) -> Decomposition:
    """Fill in a tensor from some of its entries, by the CP model that explains them (monograph 7).

    Every start is checked by entries that were left out of its fit, and the answer says how well
    those were met: `held_out_error` is what to expect where nothing was observed. A fit that they
    contradict has the status UNCONFIRMED, whatever its residual. Work and memory grow with the
    number of observed entries; no dense tensor is formed from a list of them.

    About 1.5 d^1.5 k entries of a d x d x d tensor of rank k, and 8 per parameter, are needed in
    practice where they are drawn evenly; 2.5 d^1.5 k are enough.

    Parameters
    ----------
    tensor : array of any library, NaN or masked where an entry is missing; or the triple
        (coordinates, values, shape) of the observed entries: whole numbers (n, order) counted from
        0 with no row twice, real numbers (n,) of which zeros are as good as others, and one
        dimension per mode
    rank : int, at least 1; "auto" takes the one that predicts entries left out best, and the
        result holds what speaks for it as `selection`
    mask : array of truth values, True where an entry was observed; beside an array only
    nonnegative : bool, keep every factor at or above zero; or the modes whose factors to keep so
    ridge : float, penalty on the squared norm of the factors
    tol, target, max_iter, callback, progress : as in `decompose`
    random_state : int, Generator or None for fresh randomness

    Returns
    -------
    Decomposition, with `tensor` (a CPTensor: `.at(coordinates)` gives single entries,
    `.to_dense()` all), `status`, `held_out_error` and `certificate`

    Raises
    ------
    InvalidInputError, for a slice without any observed entry, coordinates twice or out of range,
    NaN among the values. NotIdentifiableError, for fewer entries than parameters.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = lt.CPTensor(None, [rng.random((d, 2)) for d in (12, 13, 14)]).to_dense()
    >>> seen = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> found = lt.complete(seen, 2, random_state=0)
    >>> bool(np.abs(found.tensor.to_dense() - truth).max() < 1e-6)
    True
    """
    options: dict[str, Any] = {
        "nonnegative": nonnegative,
        "ridge": ridge,
        "tol": tol,
        "target": target,
        "max_iter": max_iter,
        "random_state": random_state,
        "callback": callback,
        "progress": progress,
    }
    if _is_triple(tensor):
        if mask is not None:
            raise InvalidInputError(
                "mask goes with an array: (coordinates, values, shape) holds the observed entries"
            )
        observed = observe_entries(*tensor)  # type: ignore[misc]
        rows = np.stack(observed.coordinates, axis=1)
        single = np.asarray(tensor[1]).dtype == np.float32  # type: ignore[index]
        values = observed.entries.astype(np.float32 if single else np.float64)
        data = SparseTensor(rows, values, observed.shape)
        return decompose(data, rank, mask=observed, **options)
    if type(tensor).__module__.split(".")[0] in {"scipy", "sparse", "tensorly", "pyttb"}:
        tensor = as_contractible(tensor)
    if isinstance(tensor, SparseTensor) and mask is None:
        raise InvalidInputError(
            "a sparse tensor does not tell zeros that were observed from entries that were not: "
            "give (coordinates, values, shape) of the observed entries, or a SparseTensor as mask"
        )
    tensor = tensor.array if isinstance(tensor, DenseTensor) else tensor
    tensor = unmasked(tensor, "tensor", allows_missing=True)
    if mask is None:
        mask = _known(tensor)
    return decompose(tensor, rank, mask=mask, **options)


def _is_triple(tensor: object) -> bool:
    if not isinstance(tensor, tuple | list) or len(tensor) != 3 or is_array(tensor):
        return False
    coordinates, _, shape = tensor
    return np.ndim(coordinates) == 2 and np.ndim(shape) == 1 and not np.ndim(shape[0])


def _known(tensor: object) -> Any:
    """True where an array is a number."""
    try:
        array = to_host(tensor) if is_array(tensor) else np.asarray(tensor, dtype=np.float64)
        return ~np.isnan(array)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"tensor must be an array with NaN where an entry is missing, or the triple "
            f"(coordinates, values, shape), not {type(tensor).__name__}"
        ) from None
