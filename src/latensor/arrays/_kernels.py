"""How kernels are compiled: the one way for the `_kernels` modules of all folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

# Multiplications and additions may be fused, but never reordered: results stay reproducible.
_FUSED = frozenset({"contract"})


def compiled(fastmath: frozenset[str] | set[str] = _FUSED) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles a plain loop, kept on disk where there is a place to write to.

    Kernels hold no lock, so that they can be run from several threads; a division by zero gives
    what NumPy gives.

    Parameters
    ----------
    fastmath : LLVM's names for what the compiler may do with sums and products
    """

    def compile_(function: Callable[..., Any]) -> Any:
        options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return numba.njit(**options)(function)

    return compile_
