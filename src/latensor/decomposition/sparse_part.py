"""CP plus a sparse component: a few entries of any size that the components need not explain.

Minimizes |X - S - T|^2 over CP tensors T and tensors S of a given number of nonzeros, by turns: the
best S for a T holds the largest entries of X - T, and T is fitted to X - S from where it was. The
loss never rises. It is least trimmed squares: the entries in S do not act on T at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from latensor.arrays import Array, like, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.optimize.iteration import SLOW, TRIAL_STEPS
from latensor.decomposition.result import Decomposition, Status, origin_of
from latensor.decomposition.setup import as_tensor
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor, frobenius
from latensor.tensors.sparse import SparseTensor

# Turns of the two fits; exact tensors with a tenth of gross errors need 40 to reach rounding.
_TURNS = 100
# Decrease of the squared residual, relative, below which a turn counts as the last.
_TOL = 1e-7


Run = Callable[[Array, object, int | None], Decomposition]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def count_of(sparsity: object, shape: tuple[int, ...]) -> int:
    """The number of nonzeros from a number, or from a fraction of all entries."""
    size = prod(shape)
    whole = isinstance(sparsity, int | np.integer) and not isinstance(sparsity, bool)
    if whole and 1 <= sparsity < size:  # type: ignore[operator]
        return int(sparsity)  # type: ignore[call-overload, no-any-return]
    if isinstance(sparsity, float | np.floating) and 0.0 < sparsity < 1.0:
        return max(1, round(float(sparsity) * size))
    raise InvalidInputError(
        f"sparsity={sparsity!r} must be the number of entries of the sparse component, from 1 to "
        f"{size - 1}, or their fraction, between 0 and 1"
    )


def with_sparse_part(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`decompose` with the option `sparsity`: the same fit by turns with a sparse component."""

    @functools.wraps(function)
    def wrapped(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        if options.get("sparsity") is None:
            return function(*arguments, **options)
        given: dict[str, Any] = dict(options)
        sparsity, mask, init = (given.pop(name, None) for name in ("sparsity", "mask", "init"))
        tensor = arguments[0] if arguments else given.pop("tensor")

        def run(values: Array, start: object, most: int | None) -> Any:
            limits = [n for n in (most, given.get("max_iter")) if n is not None]
            call: Any = functools.partial(function, **given)
            call.keywords["max_iter"] = min(limits, default=None)
            return call(values, *arguments[1:], init=start)

        found: Any = _fitted(run, as_tensor(tensor), sparsity, mask, init)
        return found  # type: ignore[no-any-return]

    return wrapped


def _fitted(
    run: Run, data: Contractible, sparsity: object, mask: object, init: object
) -> Decomposition:
    """The better of two starts: from all entries, and from entries cut to a usual size.

    Parameters
    ----------
    run : fits a host array from a start, or None, in so many iterations, or None for the caller's
    data : dense tensor
    sparsity : int or float, see `count_of`
    mask, init : of the caller
    """
    if not isinstance(data, DenseTensor) or mask is not None:
        what = "a mask" if mask is not None else f"a {type(data).__name__}"
        raise InvalidInputError(
            f"sparsity needs a dense tensor of which all entries are observed, not {what}"
        )
    count = count_of(sparsity, tuple(data.shape))
    refuse_nonfinite(data.array, "tensor")
    tensor = np.ascontiguousarray(to_host(data.array))
    if init is not None:
        return _by_turns(run, data, tensor, count, run(tensor, init, None))
    magnitudes = np.abs(tensor)
    # Entries above what all but twice the sparse ones reach are cut to that.
    usual = float(np.quantile(magnitudes, max(1.0 - 2.0 * count / tensor.size, 0.5)))
    phases = np.where(magnitudes > 0, tensor / np.where(magnitudes > 0, magnitudes, 1), 0)
    cut = np.where(magnitudes > usual, usual * phases, tensor).astype(tensor.dtype)
    found = [_by_turns(run, data, tensor, count, run(start, None, None)) for start in (tensor, cut)]
    return min(found, key=lambda result: result.residual)


def _by_turns(
    run: Run, data: DenseTensor, tensor: Any, count: int, result: Decomposition
) -> Decomposition:
    total = float(frobenius(np, tensor)) or 1.0
    history: list[float] = []
    status = Status.MAX_ITER
    best, places = result, np.zeros(0, dtype=np.intp)
    rough = True  # whether the last fit was not meant to converge
    for _ in range(_TURNS):
        rest = tensor - to_host(result.tensor.to_dense())
        before, places = places, _largest(rest, count)
        values = rest.ravel()[places].copy()
        rest.ravel()[places] = 0.0
        residual = float(frobenius(np, rest)) / total
        # The same entries once more after a fit that used up its iterations: what is left is slow.
        same = np.array_equal(before, places)
        swamp = same and not rough and result.status is Status.MAX_ITER
        gain = 1.0 - (residual / history[-1]) ** 2 if history and history[-1] else 1.0
        done = gain <= (SLOW if swamp else _TOL)
        history.append(residual)
        rows = np.stack(np.unravel_index(places, tensor.shape), axis=1)
        best = replace(result, residual=residual, sparse=SparseTensor(rows, values, tensor.shape))
        if (done and not rough) or residual <= 10 * np.finfo(tensor.dtype).eps:
            status = result.status
            break
        if result.status is Status.STOPPED:
            status = Status.STOPPED
            break
        remainder = tensor.copy()
        remainder.ravel()[places] -= values
        # A fit need not converge while turns choose other entries.
        rough = not done and not same
        result = run(remainder, result.tensor, TRIAL_STEPS if rough else None)
    left_in = np.ones(tensor.size, dtype=bool)
    left_in[places] = False
    known = {id(f): like(f, data.reference) for f in best.factors}
    factors = tuple(known[id(f)] for f in best.factors)
    return replace(
        best,
        tensor=CPTensor(like(best.weights, data.reference), factors),
        n_iter=len(history),
        history=np.array(history),
        status=status,
        # For the certificate, entries of the sparse component tell nothing about the others.
        origin=origin_of(data, left_in.reshape(tensor.shape)),
    )


def _largest(rest: Any, count: int) -> Any:
    """Flat places of the `count` entries of largest magnitude, in order."""
    return np.sort(np.argpartition(-np.abs(rest).ravel(), count - 1)[:count])
