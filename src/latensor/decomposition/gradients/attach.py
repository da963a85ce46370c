"""Results whose gradients are right: `decompose` and `tucker` for arrays that are being followed.

PyTorch tensors that require gradients and JAX arrays inside `jax.grad` are decomposed without
being followed, and the result gets the rule of the implicit function theorem. Where there is no
derivative, the backward pass says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from latensor.arrays import Array, is_traced, to_host
from latensor.arrays.gradients import differentiate, requires_gradient, without_gradient
from latensor.decomposition.gradients.cp import CPGradient
from latensor.decomposition.gradients.tucker import TuckerGradient
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors.cp import CPTensor
from latensor.tensors.tucker import TuckerTensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Algorithms that end at a stationary point of the squared residual.
_LEAST_SQUARES = {
    "auto", "als", "gauss_newton", "shared_factor",
    "Automatic", "AlternatingLeastSquares", "GaussNewton", "SharedFactor",
}  # fmt: skip


def with_cp_gradient(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`decompose`, for tensors that are being followed too."""
    return _with_gradient(function, _cp_arrays, _cp_rule, _cp_result)


def with_tucker_gradient(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`tucker`, for tensors that are being followed too."""
    return _with_gradient(function, _tucker_arrays, _tucker_rule, _tucker_result)


def _with_gradient(
    function: Callable[Parameters, Result], *parts: Callable[..., Any]
) -> Callable[Parameters, Result]:
    @functools.wraps(function)
    def wrapped(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        tensor = _first(arguments, options)
        if not requires_gradient(tensor):
            return _without_gradient(function, tensor, arguments, options)
        followed: Result = _differentiable(function, arguments, options, *parts)
        return followed

    return wrapped


def _first(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return arguments[0] if arguments else options.get("tensor")


def _without_gradient(
    function: Callable[..., Result],
    tensor: Any,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Result:
    inside = getattr(tensor, "reference", None)
    if inside is not None and is_traced(inside):
        raise InvalidInputError(
            f"tensor is a {type(tensor).__name__} of JAX arrays that are being traced: gradients "
            "are known for dense arrays only, so give its to_dense()"
        )
    with without_gradient():
        return function(*arguments, **options)


def _differentiable(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    arrays: Callable[[Any], tuple[Array, ...]],
    make_rule: Callable[..., Callable[[Sequence[Any]], Any]],
    rebuild: Callable[[Any, Sequence[Array]], Any],
) -> Any:
    options = dict(options)
    tensor = arguments[0] if arguments else options.pop("tensor")
    held: dict[str, Any] = {}

    def compute(values: Array) -> tuple[Array, ...]:
        with without_gradient():
            held["result"] = function(values, *arguments[1:], **options)
        held["tensor"] = to_host(values)
        return arrays(held["result"])

    def rule(cotangents: Sequence[Any]) -> Any:
        if "rule" not in held:
            held["rule"] = make_rule(held["tensor"], held["result"], options)
        return held["rule"](cotangents)

    outputs = differentiate(compute, tensor, rule, f"lt.{function.__name__}")
    return rebuild(held["result"], outputs)


def _cp_arrays(result: Any) -> tuple[Array, ...]:
    free = result.tensor.factors[:1] if result.tensor.is_symmetric else result.tensor.factors
    return (result.tensor.weights, *free)


def _cp_result(result: Any, arrays: Sequence[Array]) -> Any:
    order = len(result.tensor.factors)
    factors = tuple(arrays[1:]) if len(arrays) > 2 else (arrays[1],) * order
    return replace(result, tensor=CPTensor(arrays[0], factors))


def _cp_rule(tensor: Any, result: Any, options: dict[str, Any]) -> Callable[[Sequence[Any]], Any]:
    algorithm = options.get("algorithm", "auto")
    name = algorithm if isinstance(algorithm, str) else type(algorithm).__name__
    if name not in _LEAST_SQUARES:
        raise NotIdentifiableError(
            f"no gradient: {name} does not end at a least-squares solution, whose gradient the "
            "implicit function theorem gives. Use algorithm='auto', AlternatingLeastSquares() or "
            "GaussNewton()"
        )
    if options.get("constraints") or options.get("sparsity"):
        raise NotIdentifiableError(
            "no gradient: solutions under constraints or with a sparse part have kinks. Detach the "
            "tensor, or leave the constraints out"
        )

    def setting(option: str) -> Any:
        return options.get(option) or getattr(algorithm, option, None)

    order = tensor.ndim
    nonnegative = setting("nonnegative") or ()
    modes = tuple(range(order)) if nonnegative is True else tuple(m % order for m in nonnegative)
    fixed = tuple(m % order for m in setting("fixed_modes") or ())
    mask = options.get("mask")
    factors = [to_host(f) for f in result.tensor.factors]
    symmetric = bool(options.get("symmetric")) or name in ("SharedFactor", "shared_factor")
    free = factors[:1] if symmetric else [f for m, f in enumerate(factors) if m not in fixed]
    rule = CPGradient(
        tensor,
        to_host(result.tensor.weights),
        tuple(free),
        None if mask is None else to_host(mask).astype(bool).astype(np.float64),
        float(setting("ridge") or 0.0),
        modes,
        {m: factors[m] for m in fixed},
        symmetric,
        result.status.name,
    )
    if symmetric:
        return rule

    def for_free(cotangents: Sequence[Any]) -> Any:
        # A symmetric result of free factors has one output for all of them: it is none of these.
        kept = [c for m, c in enumerate(cotangents[1:]) if m not in fixed]
        return rule([cotangents[0], *kept])

    return for_free


def _tucker_arrays(result: Any) -> tuple[Array, ...]:
    return (result.tensor.core, *(f for f in result.tensor.factors if f is not None))


def _tucker_result(result: Any, arrays: Sequence[Array]) -> Any:
    found = iter(arrays[1:])
    factors = tuple(None if f is None else next(found) for f in result.tensor.factors)
    return replace(result, tensor=TuckerTensor(arrays[0], factors))


def _tucker_rule(
    tensor: Any, result: Any, options: dict[str, Any]
) -> Callable[[Sequence[Any]], Any]:
    method = options.get("method", "auto")
    for name in ("nonnegative", "mask", "fixed_modes"):
        value = options.get(name)
        if (
            value is not None
            and value is not False
            and not (isinstance(value, tuple) and not value)
        ):
            raise NotIdentifiableError(
                f"no gradient: that of tucker with {name} is not implemented. Detach the tensor, "
                f"or leave {name} out"
            )
    if method not in ("auto", "hooi"):
        raise NotIdentifiableError(
            f"no gradient: method={method!r} does not end at a least-squares solution, whose "
            "gradient the implicit function theorem gives. Use method='hooi'"
        )
    factors = tuple(None if f is None else to_host(f) for f in result.tensor.factors)
    return TuckerGradient(tensor, factors, result.status.name)
