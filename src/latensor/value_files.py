"""Values in files: trees of plain values, arrays and registered types, without pickle.

A file is an .npz archive that NumPy can open. Its array `header` is JSON:
`{"format": "latensor", "format_version": 2, "latensor_version": ..., "kind": ..., "value": ...,
"digest": ...}`, the last over value and arrays, so that no part can be taken for another.
In the value, null, truth values, finite numbers, text and lists stand for themselves; everything
else is an object with one member that names what it is (`array`, `tuple`, `dict`, `type`, ...).
Arrays stand beside the header as `a0`, `a1`, ...; one that occurs twice is stored once.

Only types that `storable` has registered come out of a file, by name: a file chooses neither what
is imported nor what is called beyond their constructors. Sizes are compared with the file before
anything is allocated, and whatever is wrong with a file is an InvalidInputError.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import scipy.sparse

import latensor
from latensor.array_files import ArrayArchive, damage_explained, write_arrays
from latensor.arrays import is_array, to_host
from latensor.exceptions import InvalidInputError
from latensor.whole_files import PathLike, whole_stream

FORMAT_VERSION = 2
_FORMAT = "latensor"
_HEADER = "header"
# Before version 2 there were topic models only, with a header of another name.
_FIRST_HEADER, _FIRST_FORMAT, TOPIC_MODEL = "description", "latensor topic model", "topic model"
# The kind of file that tensors and decompositions write.
DECOMPOSITION = "decomposition"
_NUMBERS_AND_TEXT = "biufcSU"
# Python raises RecursionError at a thousand calls, and a level takes up to three.
_DEEPEST = 100
# JSON libraries of others read whole numbers up to here exactly.
_LARGEST_INT = 2**53

_types: dict[str, type] = {}
# Attributes that the constructor takes, of classes that do not tell themselves.
_attributes: dict[type, tuple[str, ...]] = {}
# Names of fields in older files.
_renamed: dict[type, Mapping[str, str]] = {}
Class = TypeVar("Class", bound=type)


@overload
def storable(cls: Class) -> Class: ...
@overload
def storable(
    *,
    name: str | None = None,
    fields: tuple[str, ...] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Callable[[Class], Class]: ...


def storable(
    cls: Any = None,
    *,
    name: str | None = None,
    fields: tuple[str, ...] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Any:
    """Let values of a class into files; no other class can come out of one.

    Parameters
    ----------
    cls : dataclass, NamedTuple or Enum. A field that is added later needs a default, so that older
        files can still be read.
    name : str, under which it is stored, for a class that was renamed; default its own name
    fields : of another class, the attributes that its constructor takes by the same names
    renamed : names that fields have in older files, and their present ones
    """
    if cls is None:
        return lambda given: _register(given, name, fields, renamed)
    return _register(cls, name, fields, renamed)


def _register(
    cls: type,
    name: str | None,
    fields: tuple[str, ...] | None,
    renamed: Mapping[str, str] | None,
) -> type:
    known = name or cls.__name__
    if renamed:
        _renamed[cls] = renamed
    is_enum = issubclass(cls, Enum)
    if fields is not None:
        _attributes[cls] = fields
    elif not (dataclasses.is_dataclass(cls) or is_enum or _is_named_tuple(cls)):
        raise TypeError(f"{cls.__name__} is no dataclass, NamedTuple or Enum")
    other = _types.get(known, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"{known} is registered already, by {other.__module__}")
    _types[known] = cls
    return cls


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _stored_name(cls: type) -> str | None:
    return next((name for name, known in _types.items() if known is cls), None)


def encode(value: object, arrays: dict[str, Any], where: str = "value") -> Any:
    """A tree of values as what JSON knows, its arrays apart.

    Arrays of PyTorch and JAX are stored, and come back, as those of NumPy.

    Parameters
    ----------
    value : None, truth values, numbers, text, bytes, NumPy scalars, dtypes and arrays (also of
        objects that can be stored), CSR matrices, lists, tuples and dicts of such, members of
        registered enumerations, and values of registered classes
    arrays : filled by name
    where : what to call `value` in messages

    Raises
    ------
    InvalidInputError, which names the part that cannot be stored.
    """
    return _Encoder(arrays).encode(value, where, 0)


class _Encoder:
    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays
        # The arrays themselves are kept, so that no other can take the same address.
        self._known: dict[int, tuple[object, str]] = {}

    def encode(self, value: Any, where: str, depth: int) -> Any:
        cls = type(value)
        if depth > _DEEPEST:
            raise InvalidInputError(f"{where[:60]}... is nested too deeply, or holds itself")
        if value is None or cls in (bool, str):
            return value
        if cls is int:
            return value if abs(value) <= _LARGEST_INT else {"int": hex(value)}
        if cls is float:
            return value if isfinite(value) else {"float": repr(value)}
        if cls is complex:
            return {"complex": [self.encode(v, where, depth) for v in (value.real, value.imag)]}
        if cls is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.dtype) and value.kind in _NUMBERS_AND_TEXT:
            return {"dtype": value.str}
        if isinstance(value, np.generic):
            return {"scalar": self._scalar(value, where)}
        if cls is list:
            return self._items(value, where, depth)
        if cls is tuple:
            return {"tuple": self._items(value, where, depth)}
        if cls is dict:
            inner = depth + 1
            pairs = [
                [self.encode(k, f"key of {where}", inner), self.encode(v, f"{where}[{k!r}]", inner)]
                for k, v in value.items()
            ]
            return {"dict": pairs}
        if cls in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
            parts = [list(value.shape), value.data, value.indices, value.indptr]
            form = "array" if cls is scipy.sparse.csr_array else "matrix"
            return {"csr": [form, *self._items(parts, where, depth)]}
        if cls in (np.ndarray, np.memmap) or is_array(value):
            return self._array(value, where, depth)
        return self._registered(value, where, depth)

    def _items(self, values: Any, where: str, depth: int) -> list[Any]:
        return [self.encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(values)]

    def _scalar(self, value: Any, where: str) -> list[str]:
        if isinstance(value, np.str_ | np.bytes_):
            text = value.encode("utf-32-le", "surrogatepass") if isinstance(value, str) else value
            return [value.dtype.kind, bytes(text).hex()]
        if value.dtype.kind not in _NUMBERS_AND_TEXT:
            raise InvalidInputError(f"{where} is a {value.dtype} scalar, which cannot be stored")
        return [value.dtype.str, value.tobytes().hex()]

    def _array(self, value: Any, where: str, depth: int) -> Any:
        if type(value) is np.ndarray and value.dtype.kind == "O":
            items = [value[index] for index in np.ndindex(value.shape)]
            return {"objects": [list(value.shape), self._items(items, where, depth)]}
        if isinstance(value, np.ma.MaskedArray):
            raise InvalidInputError(f"{where} is a masked array: store values and mask apart")
        if id(value) not in self._known:
            host = np.asarray(to_host(value))
            if host.dtype.kind not in _NUMBERS_AND_TEXT or not host.dtype.itemsize:
                raise InvalidInputError(
                    f"{where} is an array of {host.dtype} values, which cannot be stored"
                )
            name = f"a{len(self._arrays)}"
            self._known[id(value)] = value, name
            self._arrays[name] = host
        return {"array": self._known[id(value)][1]}

    def _registered(self, value: Any, where: str, depth: int) -> Any:
        cls = type(value)
        name = _stored_name(cls)
        if name is None:
            hint = ": give it as CSR" if scipy.sparse.issparse(value) else ""
            raise InvalidInputError(f"{where} is a {cls.__name__}, which cannot be stored{hint}")
        if isinstance(value, Enum):
            return {"enum": [name, value.name]}
        known = _field_names(cls)
        parts = {n: self.encode(getattr(value, n), f"{where}.{n}", depth + 1) for n in known}
        return {"type": [name, parts]}


def _field_names(cls: Any) -> dict[str, bool]:
    """The fields of a registered class, and whether each has a default."""
    if cls in _attributes:
        return dict.fromkeys(_attributes[cls], False)
    if not dataclasses.is_dataclass(cls):
        return {name: name in cls._field_defaults for name in cls._fields}
    missing = dataclasses.MISSING
    return {
        f.name: f.default is not missing or f.default_factory is not missing
        for f in dataclasses.fields(cls)
        if f.init
    }


def decode(tree: object, arrays: Mapping[str, Any]) -> Any:
    """The value that `encode` has made JSON and arrays of.

    Raises
    ------
    InvalidInputError, for a tree that `encode` does not make.
    """
    try:
        return _decode(tree, arrays, 0)
    except InvalidInputError:
        raise
    except Exception as error:
        # Constructors of registered types, too, meet values that nobody has thought of.
        raise InvalidInputError(f"its value is damaged: {error or type(error).__name__}") from error


def _decode(tree: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    if depth > _DEEPEST:
        raise InvalidInputError("its value is nested too deeply")
    if isinstance(tree, list):
        return [_decode(entry, arrays, depth + 1) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, content),) = tree.items()
    return _READERS[tag](content, arrays, depth)


def _read_scalar(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    kind, digits = content
    raw = bytes.fromhex(digits)
    if kind == "U":
        return np.str_(raw.decode("utf-32-le", "surrogatepass"))
    if kind == "S":
        return np.bytes_(raw)
    dtype = np.dtype(str(kind))
    if dtype.kind not in "biufc" or dtype.itemsize != len(raw):
        raise InvalidInputError("its value holds a scalar of no known type")
    return np.frombuffer(raw, dtype)[0]


def _read_dtype(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    dtype = np.dtype(str(content))
    if dtype.kind not in _NUMBERS_AND_TEXT:
        raise InvalidInputError("its value holds a dtype of neither numbers nor text")
    return dtype


def _read_float(content: Any, arrays: Mapping[str, Any], depth: int) -> float:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[content]


def _read_dict(content: Any, arrays: Mapping[str, Any], depth: int) -> dict[Any, Any]:
    pairs = [[_decode(entry, arrays, depth + 1) for entry in pair] for pair in content]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInputError("its value holds a dict with a key that comes twice")
    return found


def _read_csr(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    form, shape, *parts = content
    shape = tuple(_decode(shape, arrays, depth + 1))
    data, indices, offsets = (_decode(part, arrays, depth + 1) for part in parts)
    if len(shape) != 2 or len(offsets) != shape[0] + 1:
        raise InvalidInputError("its value holds a sparse matrix of another shape than declared")
    make = {"array": scipy.sparse.csr_array, "matrix": scipy.sparse.csr_matrix}[form]
    found = make((data, indices, offsets), shape=shape)
    found.check_format(full_check=True)
    return found


def _read_objects(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    shape, items = content
    found = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        found[i] = _decode(item, arrays, depth + 1)
    return found.reshape(shape)


def _read_enum(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    name, member = content
    cls = _known_type(name)
    if not issubclass(cls, Enum):
        raise InvalidInputError(f"its value holds a {name!r} that is no enumeration")
    return cls[member]


def _read_type(content: Any, arrays: Mapping[str, Any], depth: int) -> Any:
    name, given = content
    cls = _known_type(name)
    earlier = _renamed.get(cls, {})
    given = {earlier.get(n, n): value for n, value in given.items()}
    known = {} if issubclass(cls, Enum) else _field_names(cls)
    missing = {n for n, has_default in known.items() if not has_default} - set(given)
    if missing or set(given) - set(known):
        raise InvalidInputError(
            f"its value holds a {name} with the fields {', '.join(given)}, expected "
            f"{', '.join(known)}"
        )
    return cls(**{n: _decode(value, arrays, depth + 1) for n, value in given.items()})


def _known_type(name: object) -> type:
    if not isinstance(name, str) or name not in _types:
        raise InvalidInputError(f"its value holds a {name!r}, which is no type of latensor")
    return _types[name]


_READERS: dict[str, Callable[[Any, Mapping[str, Any], int], Any]] = {
    "array": lambda content, arrays, depth: arrays[content],
    "bytes": lambda content, arrays, depth: bytes.fromhex(content),
    "complex": lambda content, arrays, depth: complex(
        *(_decode(part, arrays, depth + 1) for part in content)
    ),
    "csr": _read_csr,
    "dict": _read_dict,
    "dtype": _read_dtype,
    "enum": _read_enum,
    "float": _read_float,
    "int": lambda content, arrays, depth: int(content, 16),
    "objects": _read_objects,
    "scalar": _read_scalar,
    "tuple": lambda content, arrays, depth: tuple(
        _decode(entry, arrays, depth + 1) for entry in content
    ),
    "type": _read_type,
}


class Stored(NamedTuple):
    """What a file holds: a value, what kind of thing it describes, and who wrote it."""

    kind: str
    value: Any
    format_version: int
    latensor_version: str


def write_value(path: PathLike, value: object, kind: str) -> Path:
    """Write a value into a file that `read_value` reads, whole or not at all.

    Parameters
    ----------
    path : file to write; an interrupted run leaves the old one or none
    value : see `encode`
    kind : str, what the value describes, by which a reader finds out what to make of it
    """
    arrays: dict[str, Any] = {}
    header = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "latensor_version": latensor.__version__,
        "kind": kind,
        "value": encode(value, arrays),
    }
    header["digest"] = _digest(header["value"], arrays)
    text = _as_json(header)
    with whole_stream(path, gzipped=False) as stream:
        write_arrays(stream, {_HEADER: np.frombuffer(text, np.uint8), **arrays})
    return Path(path)


def _as_json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _digest(tree: object, arrays: Mapping[str, Any]) -> str:
    """A hash of an encoded value and of its arrays by name."""
    found = hashlib.blake2b(_as_json(tree), digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()


def read_value(path: PathLike, what: str = "value") -> Stored:
    """The value in a file that `write_value` has written.

    Parameters
    ----------
    path : file to read
    what : str, what the file should hold, for messages

    Returns
    -------
    Stored. Of a file of format version 1, which held topic models only, the value is the pair of
    its description and its arrays by name.

    Raises
    ------
    InvalidInputError, whatever is wrong with the file.
    """
    try:
        name = f"path={os.fspath(path)!r}"
    except TypeError:
        raise InvalidInputError(f"path must name a file, not be a {type(path).__name__}") from None
    try:
        with ArrayArchive(path, stored_only=True) as archive:
            stored = {key: archive[key] for key in archive.names}
        return _read_stored(stored)
    except FileNotFoundError as error:
        raise InvalidInputError(f"{name} does not exist") from error
    except InvalidInputError as error:
        if isinstance(error, _NewerFormatError):
            raise InvalidInputError(f"{name} {error}") from error
        raise InvalidInputError(f"{name} is not a saved {what}: {error}") from error


class _NewerFormatError(InvalidInputError):
    """A file of a format that is not known yet."""


def _read_stored(stored: dict[str, Any]) -> Stored:
    key = _HEADER if _HEADER in stored else _FIRST_HEADER
    with damage_explained("its header"):
        header = json.loads(stored.pop(key).astype(np.uint8, casting="no").tobytes().decode())
        version, written_by = 1, "0.1"
        if key == _HEADER:
            format, version = header["format"], header["format_version"]
            written_by, kind = str(header["latensor_version"]), header["kind"]
            matches = format == _FORMAT and isinstance(kind, str)
        else:
            matches = header["format"] == _FIRST_FORMAT and header["version"] == 1
            kind = TOPIC_MODEL
        if not matches or type(version) is not int or version < 1:
            raise InvalidInputError("its header is of another format")
        if version > FORMAT_VERSION:
            raise _NewerFormatError(
                f"was written by latensor {written_by} in file format {version}; this is latensor "
                f"{latensor.__version__}, which reads formats up to {FORMAT_VERSION}: update it"
            )
        # Older files have none.
        if "digest" in header and header["digest"] != _digest(header["value"], stored):
            raise InvalidInputError("its parts are not those that were saved together")
        value = decode(header["value"], stored) if key == _HEADER else (header, stored)
    return Stored(kind, value, version, written_by)
