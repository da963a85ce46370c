"""Arrays of libraries that computations do not run on: read on entry, given back on exit.

An eager tensor of TensorFlow is read through NumPy, and what a function returns is of TensorFlow
again, on the device that the first one came from. A decomposition of it is one of NumPy behind a
`GuestView`, which gives its arrays back as they are asked for. Gradients end at the border.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar, cast

import numpy as np

from latensor.arrays.library import read_numpy

_Edge = TypeVar("_Edge", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class GuestLibrary:
    """How the arrays of a library are told, and made of NumPy's.

    Attributes
    ----------
    is_array : whether a value is an array of the library, given its module
    make : an array, of the module, NumPy's values and a device
    """

    is_array: Callable[[Any, object], bool]
    make: Callable[[Any, Any, Any], Any]


def _make_tensor(tensorflow: Any, values: Any, device: Any) -> Any:
    with tensorflow.device(device):
        return tensorflow.convert_to_tensor(values)


LIBRARIES = {
    "tensorflow": GuestLibrary(
        lambda tensorflow, value: isinstance(value, tensorflow.Tensor | tensorflow.Variable),
        _make_tensor,
    )
}


@dataclasses.dataclass(frozen=True)
class Home:
    """Where results go back to: the name of a library that the caller has imported, a device."""

    library: str
    device: Any

    def make(self, values: Any) -> Any:
        """An array of that library on that device."""
        return LIBRARIES[self.library].make(sys.modules[self.library], values, self.device)


class GuestView:
    """A result whose arrays are those of the caller's library; all else is the result's own."""

    __slots__ = ("_home", "_plain")

    def __init__(self, plain: Any, home: Home) -> None:
        object.__setattr__(self, "_plain", plain)
        object.__setattr__(self, "_home", home)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._plain)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value, kind = getattr(self._plain, name), cast(Any, type(self._plain))
        arrays = _says_array(kind, name)
        if callable(value) and not dataclasses.is_dataclass(value):
            return _with_home(value, self._home, arrays)
        return _given_back(value, self._home, arrays)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._plain, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter([_given_back(value, self._home) for value in self._plain])

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, index: Any) -> Any:
        return _given_back(self._plain[_read(index)], self._home)

    def __repr__(self) -> str:
        return f"{self._plain!r} for {self._home.library}"

    def __dir__(self) -> list[str]:
        return dir(self._plain)

    def __reduce__(self) -> Any:
        return GuestView, (self._plain, self._home)


def with_guests(edge: _Edge) -> _Edge:
    """A public function that also takes arrays of guest libraries, and returns the same kind."""

    @functools.wraps(edge)
    def call(*given: Any, **named: Any) -> Any:
        home = _home((given, named)) if _present() else None
        if home is None:
            return edge(*given, **named)
        return _given_back(edge(*_read(given), **_read(named)), home)

    return cast(_Edge, call)


def holds_guests(kind: Any) -> Any:
    """A class of tensors which, made of arrays of a guest library, has them as its own."""

    def new(cls: Any, *given: Any, **named: Any) -> Any:
        home = _home((given, named)) if given and _present() else None
        if home is None:
            return object.__new__(cls)
        return GuestView(cls(*_read(given), **_read(named)), home)

    kind.__new__ = new
    return kind


def _with_home(method: Any, home: Home, arrays: bool) -> Any:
    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        return _given_back(method(*_read(given), **_read(named)), home, arrays)

    return call


def _present() -> bool:
    return any(name in sys.modules for name in LIBRARIES)


def _library(value: object) -> str | None:
    for name, library in LIBRARIES.items():
        module = sys.modules.get(name)
        if module is not None and library.is_array(module, value):
            return name
    return None


def _home(value: Any) -> Home | None:
    """Where the first array of a guest library in some arguments comes from."""
    if type(value) is GuestView:
        return cast(Home, value._home)
    if type(value) in (tuple, list, dict):
        parts = value.values() if type(value) is dict else value
        return next((home for part in parts if (home := _home(part)) is not None), None)
    name = _library(value)
    return None if name is None else Home(name, getattr(value, "device", None))


def _read(value: Any) -> Any:
    """Arguments with arrays of NumPy in place of a guest library's."""
    if type(value) is GuestView:
        return value._plain
    if type(value) is dict:
        return {key: _read(part) for key, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)([_read(part) for part in value])
    name = _library(value)
    return value if name is None else read_numpy(value, f"a tensor of {name}")


def _given_back(value: Any, home: Home, arrays: bool = True) -> Any:
    """A result with floating arrays of the caller's library, where `arrays`; numbers stay."""
    if isinstance(value, np.ndarray):
        return home.make(value) if arrays and value.dtype.kind in "fc" else value
    if isinstance(value, list | tuple):
        parts = [_given_back(part, home, arrays) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    ours = type(value).__module__.split(".")[0] == __name__.split(".")[0]
    if ours and dataclasses.is_dataclass(value) and not isinstance(value, Enum | int):
        return GuestView(value, home)
    return value


@functools.cache
def _says_array(kind: Any, name: str) -> bool:
    """Whether an attribute is declared as `Array`, of the caller's library: a history is not."""
    for base in kind.__mro__:
        found = inspect.get_annotations(base).get(name)
        member = base.__dict__.get(name)
        if isinstance(member, property | functools.cached_property):
            member = member.fget if isinstance(member, property) else member.func
        if found is None and callable(member):
            found = getattr(member, "__annotations__", {}).get("return")
        if found is not None:
            return "Array" in str(found)
    return False
