"""Packages whose names are imported on first use: a fit waits for nothing that it does not need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str | None], *more: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    Parameters
    ----------
    package : its name
    homes : names of the API, and the module within the package that defines each; None for a name
        that is itself a module
    more : names of the API that the package has without this
    """
    names = sorted([*homes, *more])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value: Any = import_module(f"{package}.{home or name}")
        value = getattr(value, name) if home else value
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: names, names


def functions_first(package: str, homes: Mapping[str, str | None]) -> None:
    """Keep functions of a package from being hidden by its modules of the same name.

    Python sets a module as an attribute of its package when it is imported.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if homes.get(name) is None or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package


@contextmanager
def postponed(module: str) -> Iterator[None]:
    """Let imports within the block that only bind `module`, a submodule that loads lazily, wait.

    Its package must offer it as an attribute that is imported on first use, as SciPy offers
    `scipy.stats`: whoever wrote `import scipy.stats` then gets it when an attribute is asked for.
    `from scipy.stats import ...` within the block imports it at once.
    """
    if module in sys.modules:
        yield
        return
    placeholder = ModuleType(module)

    def loaded(name: str) -> Any:
        if sys.modules.get(module) is placeholder:
            del sys.modules[module]
        return getattr(import_module(module), name)

    placeholder.__getattr__ = loaded  # type: ignore[method-assign]
    sys.modules[module] = placeholder
    try:
        yield
    finally:
        if sys.modules.get(module) is placeholder:
            del sys.modules[module]
