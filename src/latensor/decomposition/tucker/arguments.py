"""What the caller of `tucker` asked for, checked and put in one form."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from latensor.arrays import (
    Array,
    check_mode,
    is_array,
    is_complex,
    like,
    resolve,
    to_host,
)
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.setup import check_limits, truth_values
from latensor.decomposition.tucker.orthogonal import Truncation
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor
from latensor.tensors.interoperability import from_pyttb
from latensor.tensors.tucker import TuckerTensor

Method: TypeAlias = Literal["auto", "sequential", "hosvd", "hooi", "randomized"]
_METHODS = ("auto", "sequential", "hosvd", "hooi", "randomized")


def read_ranks(
    ranks: object, error: object, modes: Sequence[int] | None, shape: tuple[int, ...]
) -> Truncation:
    """The caller's ranks, fractions of energy or target error as a `Truncation`."""
    order = len(shape)
    if modes is None:
        chosen = tuple(range(order))
    else:
        chosen = tuple(check_mode(mode, order, "modes") for mode in modes)
        if len(set(chosen)) < len(chosen) or not chosen:
            raise InvalidInputError(f"modes={modes!r} must name each mode to compress once")
    rising = tuple(sorted(chosen))
    if (ranks is None) == (error is None):
        raise InvalidInputError(
            "give either ranks (an int, a fraction of the energy in (0, 1), or one of these per "
            "mode) or error, a relative error in (0, 1)"
        )
    if error is not None:
        if not _is_fraction(error):
            raise InvalidInputError(f"error={error!r} must be a number in (0, 1)")
        return Truncation(rising, total=float(error) ** 2)  # type: ignore[arg-type]
    if _is_fraction(ranks):
        return Truncation(rising, total=1.0 - float(ranks))  # type: ignore[arg-type]
    entries = _entries(ranks, chosen, modes is not None)
    found: dict[int, int] = {}
    fractions: dict[int, float] = {}
    for i, (mode, entry) in enumerate(zip(chosen, entries, strict=True)):
        name = f"ranks[{i}]" if isinstance(ranks, list | tuple | np.ndarray) else "ranks"
        if _is_fraction(entry):
            fractions[mode] = 1.0 - float(entry)
            continue
        if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer):
            raise InvalidInputError(
                f"{name}={entry!r} must be an integer of at least 1, or a fraction of the energy "
                "in (0, 1)"
            )
        if entry < 1:
            raise InvalidInputError(f"{name}={entry} must be at least 1")
        if entry > shape[mode]:
            fitting = tuple(min(int(entry), shape[m]) for m in chosen)
            advice = f"ranks={fitting}" if name == "ranks" else f"at most {shape[mode]}"
            raise InvalidInputError(
                f"{name}={entry} exceeds the dimension {shape[mode]} of mode {mode} of a tensor "
                f"of shape {shape}: give {advice}"
            )
        found[mode] = int(entry)
    return Truncation(rising, found, fractions)


def _is_fraction(value: object) -> bool:
    return isinstance(value, float | np.floating) and 0.0 < float(value) < 1.0


def _entries(ranks: object, chosen: tuple[int, ...], partial: bool) -> list[Any]:
    if isinstance(ranks, np.ndarray):
        ranks = ranks.tolist()
    if not isinstance(ranks, list | tuple):
        return [ranks] * len(chosen)
    if len(ranks) != len(chosen):
        whose = f"modes={chosen}" if partial else f"a tensor of order {len(chosen)}"
        raise InvalidInputError(
            f"ranks={ranks!r} has {len(ranks)} entries for {whose}: give {len(chosen)}, one per "
            "mode, or a single number for all"
        )
    return list(ranks)


def check_method(
    method: object,
    nonnegative: bool,
    rule: Truncation,
    init: object,
    tol: float | None,
    max_iter: int | None,
    callback: object,
    data: Contractible,
    mask: object = None,
) -> bool:
    """Refuse combinations that would leave an argument without effect; whether to iterate."""
    if method not in _METHODS:
        raise InvalidInputError(f"method={method!r} must be one of {', '.join(_METHODS)}")
    check_limits(0.0 if tol is None else tol, None, max_iter)
    if nonnegative:
        if method != "auto":
            raise InvalidInputError(
                f"method={method!r} has orthonormal factors, which nonnegative ones are not: "
                "leave method out with nonnegative=True"
            )
        if is_complex(data.reference):
            raise InvalidInputError("nonnegative=True needs a real tensor, but this one is complex")
    if (nonnegative or init is not None) and not rule.fixed:
        cause = "nonnegative=True" if nonnegative else "init"
        raise InvalidInputError(f"{cause} needs ranks as integers, one per mode or one for all")
    if mask is not None:
        if nonnegative:
            raise InvalidInputError(
                "mask with nonnegative=True is not offered: leave one of them out, or use "
                "lt.decompose, which has both"
            )
        if method not in ("auto", "hooi") or not rule.fixed:
            raise InvalidInputError(
                "mask needs ranks as integers and method='auto' or 'hooi': missing entries are "
                "completed by iterating"
            )
        if not isinstance(data, DenseTensor):
            raise InvalidInputError(
                f"mask is for dense arrays, but the tensor is a {type(data).__name__}: a sparse "
                "tensor with few observed entries is a task for lt.decompose"
            )
    iterates = nonnegative or method == "hooi" or (method == "auto" and rule.fixed)
    settings = {"init": init, "tol": tol, "max_iter": max_iter, "callback": callback}
    unused = [name for name, value in settings.items() if value is not None]
    if unused and not iterates:
        what = f"method={method!r}" if method != "auto" else "a fraction of the energy or an error"
        raise InvalidInputError(
            f"{what} is met without iterating, which leaves {', '.join(unused)} without effect: "
            "leave out, or use method='hooi'"
        )
    return iterates


def read_mask(mask: Any, data: DenseTensor, rule: Truncation) -> Array | None:
    """Truth values in the shape of the tensor, at least as many true as there are parameters.

    None where all entries are observed.
    """
    host = truth_values(mask, tuple(data.shape))
    ranks = [rule.ranks.get(m, d) for m, d in enumerate(data.shape)]
    needed = prod(ranks) + sum((data.shape[m] - r) * r for m, r in rule.ranks.items())
    observed = int(host.sum())
    if observed < needed:
        raise InvalidInputError(
            f"mask leaves {observed} observed entries for the {needed} free parameters of ranks "
            f"{tuple(ranks)}: at least as many are needed"
        )
    return None if host.all() else like(host.astype(bool), data.array)


def read_fixed(fixed_modes: Sequence[int], init: object, rule: Truncation) -> tuple[int, ...]:
    """The modes whose factors stay as in `init`."""
    order = max(rule.modes) + 1
    fixed = tuple(sorted({check_mode(mode, order, "fixed_modes") for mode in fixed_modes}))
    if fixed and init is None:
        raise InvalidInputError(
            f"fixed_modes={fixed} needs init: a Tucker tensor that holds the factors to keep"
        )
    for mode in fixed:
        if mode not in rule.modes:
            raise InvalidInputError(f"fixed_modes={fixed} names mode {mode}, which has no factor")
    return fixed


def read_init(init: Any, data: Contractible, rule: Truncation, nonnegative: bool) -> TuckerTensor:
    """A Tucker tensor to start from, of the right shape and ranks."""
    if type(init).__module__.split(".")[0] == "pyttb":
        init = from_pyttb(init)
    if hasattr(init, "core") and hasattr(init, "factors"):
        core, factors = init.core, init.factors
    elif isinstance(init, list | tuple) and len(init) == 2 and isinstance(init[1], list | tuple):
        core, factors = init
    elif not nonnegative and isinstance(init, list | tuple) and all(map(is_array, init)):
        # Factors alone, whose spans are all that counts.
        core, factors = like(np.ones([f.shape[-1] for f in init]), data.reference), init
    else:
        alone = "" if nonnegative else ", factors alone"
        raise InvalidInputError(
            f"init must be a TuckerTensor, a Tucker tensor of TensorLy or pyttb{alone}, or a pair "
            f"(core, factors), not {type(init).__name__}"
        )
    given = TuckerTensor(core, tuple(factors))
    xp, arrays = resolve(tensor=data.reference, init=given.core)
    if is_complex(arrays["init"]) and not is_complex(data.reference):
        raise InvalidInputError("init is complex, but the tensor is real")
    ranks = tuple(rule.ranks.get(m, d) for m, d in enumerate(data.shape))
    if given.shape != tuple(data.shape) or given.ranks != ranks:
        raise InvalidInputError(
            f"init has shape {given.shape} and ranks {given.ranks}, but the tensor has shape "
            f"{tuple(data.shape)} and ranks {ranks} were asked for"
        )
    named = {"init.core": given.core}
    for mode, factor in enumerate(given.factors):
        if (factor is None) != (mode not in rule.ranks):
            state = "no factor" if factor is None else "a factor"
            raise InvalidInputError(f"init has {state} for mode {mode}, against modes={rule.modes}")
        named[f"init.factors[{mode}]"] = factor
    for name, array in named.items():
        if array is None:
            continue
        refuse_nonfinite(array, name)
        if nonnegative and (to_host(array) < 0).any():
            raise InvalidInputError(f"{name} holds negative entries, against nonnegative=True")
    dtype = data.reference.dtype
    return TuckerTensor(
        xp.astype(given.core, dtype),
        tuple(None if f is None else xp.astype(f, dtype) for f in given.factors),
    )
