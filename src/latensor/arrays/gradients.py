"""Derivatives that the caller's library cannot find by itself: results of iterations on the host.

An iteration that is followed step by step has the derivative of its steps, not of its result, and
one that runs on the host has none. Here a function is evaluated without being followed, and its
rule for cotangents is handed to PyTorch or JAX.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from latensor.arrays.library import Array, is_complex, is_traced, library_name, like, to_host
from latensor.exceptions import InvalidInputError

# Host cotangents of the outputs, in; host cotangent of the input, out. For complex arrays in the
# sense dL = Re sum conj(cotangent) d(array), which is what PyTorch calls the gradient.
VectorJacobian: TypeAlias = Callable[[Sequence[Any]], Any]


def requires_gradient(value: object) -> bool:
    """Whether a PyTorch tensor is being followed, or a JAX array stands for numbers not known."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return bool(value.requires_grad and torch.is_grad_enabled())
    return is_traced(value)


@contextmanager
def without_gradient() -> Iterator[None]:
    """A block in which PyTorch follows nothing, so that its results do not require gradients."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.no_grad():
        yield


def detached(value: Any) -> Any:
    """An array, or a tensor that holds arrays, with the same numbers and without gradients.

    Arrays that modes share stay shared. What holds no array that is followed comes back as it is.
    """
    torch = sys.modules.get("torch")
    return value if torch is None else _detached(value, torch.Tensor, {})


def _detached(value: Any, kind: Any, known: dict[int, Any]) -> Any:
    if id(value) in known:
        return known[id(value)]
    result = value
    if isinstance(value, kind):
        result = value.detach() if value.requires_grad else value
    elif isinstance(value, tuple):
        parts = tuple(_detached(item, kind, known) for item in value)
        changed = any(new is not old for new, old in zip(parts, value, strict=True))
        result = parts if changed else value
    elif type(value).__module__.startswith("latensor.") and hasattr(value, "__dict__"):
        held = {name: _detached(item, kind, known) for name, item in vars(value).items()}
        if any(held[name] is not item for name, item in vars(value).items()):
            result = copy.copy(value)
            vars(result).update(held)
    known[id(value)] = result
    return result


def differentiate(
    compute: Callable[[Array], tuple[Array, ...]],
    argument: Array,
    vector_jacobian: VectorJacobian,
    name: str,
) -> tuple[Array, ...]:
    """The values of `compute(argument)`, with a rule for their gradients.

    Parameters
    ----------
    compute : function of the detached argument, whose values are arrays of the same library
    argument : PyTorch tensor that requires gradients, or JAX array inside `jax.grad`
    vector_jacobian : rule that is called after `compute`; may raise where there is no derivative
    name : str, what error messages call the function
    """
    if library_name(argument) == "torch":
        return _by_torch(compute, argument, vector_jacobian)
    return _by_jax(compute, argument, vector_jacobian, name)


def _by_torch(
    compute: Callable[[Array], tuple[Array, ...]], argument: Array, rule: VectorJacobian
) -> tuple[Array, ...]:
    import torch

    class Rule(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, followed: Array) -> tuple[Array, ...]:
            values = compute(followed.detach())
            context.shapes = [(value.shape, value.dtype) for value in values]
            return values

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(context: Any, *cotangents: Array) -> Array:
            return like(rule([to_host(cotangent) for cotangent in cotangents]), argument.detach())

    values: tuple[Array, ...] = Rule.apply(argument)
    return values


def _by_jax(
    compute: Callable[[Array], tuple[Array, ...]], argument: Array, rule: VectorJacobian, name: str
) -> tuple[Array, ...]:
    import jax

    shape, dtype = argument.shape, argument.dtype
    turn = np.conj if is_complex(argument) else np.asarray

    def evaluate(values: Array) -> tuple[Array, ...]:
        if is_traced(values):
            raise InvalidInputError(
                f"{name} was called inside jax.jit or jax.vmap, where no numbers are known yet and "
                "iterations cannot run: call it outside; jax.grad without jax.jit is fine"
            )
        return compute(values)

    # JAX's cotangents of complex arrays are the conjugates: dL = Re sum cotangent d(array).
    def on_host(*cotangents: Array) -> Any:
        return np.asarray(turn(rule([turn(to_host(c)) for c in cotangents])), dtype=dtype)

    def backward(_: None, cotangents: tuple[Array, ...]) -> tuple[Array]:
        if not any(is_traced(cotangent) for cotangent in cotangents):
            return (like(on_host(*cotangents), cotangents[0]),)
        result = jax.ShapeDtypeStruct(shape, dtype)
        return (jax.pure_callback(on_host, result, *cotangents, vmap_method="sequential"),)

    function = jax.custom_vjp(evaluate)
    function.defvjp(lambda values: (evaluate(values), None), backward)
    values: tuple[Array, ...] = function(argument)
    return values
