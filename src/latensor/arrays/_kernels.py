"""How kernels are compiled: the one way for the `_kernels` modules of all folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import event

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


class _Listener(event.Listener):  # type: ignore[misc]
    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def on_start(self, event: Any) -> None:
        self._tell()

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def compilations(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` whenever a kernel that the cache does not hold is compiled within the block."""
    listener = _Listener(tell)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
