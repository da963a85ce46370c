"""Derivatives of functions of rows, by the automatic differentiation of PyTorch or JAX."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from latensor.arrays.library import Array, is_array, library_name, to_host
from latensor.exceptions import InvalidInputError

# A function of rows (n, d) of one library, each of whose values depends on its own row only.
RowFunction = Callable[[Array], Array]
LIBRARIES = ("torch", "jax")


def check_differentiates(library: object) -> str:
    """The name of a library that differentiates, which is installed."""
    if library not in LIBRARIES:
        raise InvalidInputError(f"library={library!r} must be 'torch' or 'jax'")
    try:
        import_module(str(library))
    except ImportError as error:
        raise InvalidInputError(
            f"library={library!r} is not installed: pip install latensor[{library}]"
        ) from error
    return str(library)


def row_gradient(function: RowFunction, library: str) -> RowFunction:
    """The gradients (n, d) of the values (n,) of a function of rows; can be differentiated again.

    Values depend on their own row only: one reverse pass through their sum gives all gradients.
    """
    if library == "jax":
        import jax

        gradient: RowFunction = jax.grad(lambda rows: function(rows).sum())
        return gradient
    import torch

    def by_torch(rows: Array) -> Array:
        with torch.enable_grad():
            total = function(rows).sum()
            if not total.requires_grad:
                return torch.zeros_like(rows)
            found = torch.autograd.grad(
                total, rows, create_graph=True, allow_unused=True, materialize_grads=True
            )
        return found[0]

    return by_torch


def constant_like(values: Any, rows: Array) -> Array:
    """Host values in the library and precision of rows, which may be followed."""
    if library_name(rows) == "torch":
        return rows.new_tensor(np.asarray(values))
    import jax.numpy as jnp

    return jnp.asarray(values, dtype=rows.dtype)


def evaluate(function: RowFunction, rows: Any, library: str, shape: tuple[int, ...]) -> Any:
    """Host values of a function of host rows (n, d), whose shape is checked."""
    if library == "jax":
        import jax.numpy as jnp

        found = function(jnp.asarray(rows))
    else:
        import torch

        found = function(torch.as_tensor(np.array(rows)).requires_grad_())
    if not is_array(found) or library_name(found) != library:
        raise InvalidInputError(
            f"the function must return a {library} array, got {type(found).__name__}"
        )
    if tuple(found.shape) != shape:
        raise InvalidInputError(
            f"the function must give an array of shape {shape} for rows of shape {rows.shape}, "
            f"got {tuple(found.shape)}"
        )
    return np.asarray(to_host(found), dtype=np.float64)
