"""Arrays in .npy and .npz files, read without trusting them.

NumPy's own reader believes a header: it allocates what the header declares and lets a dozen kinds
of errors out. Here the sizes are compared with what the file holds before anything is allocated,
Python objects are never read, and whatever is damaged is an InvalidInputError.
"""

from __future__ import annotations

import ast
import contextlib
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from math import prod
from typing import IO, Any, Self

import numpy as np

from latensor.exceptions import InvalidInputError

_MAGIC = b"\x93NUMPY"
# Bytes of the length of a header, and its encoding, by the version of the format.
_VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf-8")}
# As in NumPy: longer literals can exhaust the parser's stack.
_LONGEST_HEADER = 10_000
_KINDS = "biufcSUMm"
_CHUNK = 1 << 20
_LARGEST_CODE_POINT = 0x10FFFF


class DamagedFileError(InvalidInputError):
    """A file that is not what it should be; the text says in which way, without its name."""


class NotAnArrayError(DamagedFileError):
    """A file that holds something else from its first byte on."""


class ObjectsError(DamagedFileError):
    """A file whose values cannot be read without running code, or are no plain numbers or text."""


@contextlib.contextmanager
def damage_explained(name: str) -> Iterator[None]:
    """Let only InvalidInputError leave a block that reads a file called `name`, if it exists."""
    try:
        yield
    except FileNotFoundError:
        raise
    except ObjectsError as error:
        raise InvalidInputError(f"{name} {error}: expected an array of numbers") from error
    except NotAnArrayError as error:
        raise InvalidInputError(f"{name} is not a NumPy file, whatever its name says") from error
    except DamagedFileError as error:
        raise InvalidInputError(f"{name} is damaged or truncated: {error}") from error
    except InvalidInputError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"{name} cannot be read: {reason}") from error
    except Exception as error:
        # Damage shows in zipfile, zlib, struct, json and ast in more ways than can be listed.
        reason = str(error) or type(error).__name__
        raise InvalidInputError(f"{name} is damaged or truncated: {reason}") from error


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file to read: a pipe would wait for ever, and a device has no end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        kind = "a folder" if os.path.isdir(path) else "no regular file"
        raise InvalidInputError(f"{os.fspath(path)} is {kind}: expected a file")
    return open(path, "rb")


def read_npy(path: str | os.PathLike[str]) -> Any:
    """The array of an .npy file.

    Raises
    ------
    InvalidInputError, whatever is wrong with the file; FileNotFoundError, if there is none.
    """
    with damage_explained(os.fspath(path)), open_regular(path) as stream:
        return read_array(stream, os.fstat(stream.fileno()).st_size)


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like an .npz file."""
    with damage_explained(os.fspath(path)), open_regular(path) as stream:
        return stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def read_array(stream: IO[bytes], size: int, trusted: bool = True) -> Any:
    """An array in the .npy format.

    Parameters
    ----------
    stream : binary stream at its beginning
    size : int, bytes that the stream holds, which the array may not exceed
    trusted : bool, whether `size` was measured; else memory grows only with what is read

    Raises
    ------
    DamagedFileError
    """
    dtype, order, shape, begin = _read_header(stream)
    count = prod(shape)
    n_bytes = count * dtype.itemsize
    if n_bytes > size - begin:
        raise DamagedFileError(f"it declares {n_bytes:,} bytes and holds {max(size - begin, 0):,}")
    if trusted:
        buffer: Any = np.empty(n_bytes, np.uint8)
        if stream.readinto(buffer) != n_bytes:  # type: ignore[attr-defined]
            raise DamagedFileError("it ends before its array")
    else:
        buffer = np.frombuffer(_read_exactly(stream, n_bytes), np.uint8)
    if dtype.kind == "U" and (buffer.view(f"{dtype.byteorder}u4") > _LARGEST_CODE_POINT).any():
        raise DamagedFileError("it holds text of characters that do not exist")
    array = buffer.view(dtype)
    try:
        return array.reshape(shape[::-1]).T if order == "F" else array.reshape(shape)
    except ValueError as error:
        raise DamagedFileError(f"it declares the shape {shape}") from error


def _read_exactly(stream: IO[bytes], n_bytes: int) -> bytearray:
    content = bytearray()
    while len(content) < n_bytes:
        chunk = stream.read(min(_CHUNK, n_bytes - len(content)))
        if not chunk:
            raise DamagedFileError("it ends before its array")
        content += chunk
    return content


def _read_header(stream: IO[bytes]) -> tuple[Any, str, tuple[int, ...], int]:
    """The dtype, the order, the shape, and where the values begin."""
    start = stream.read(8)
    if start[:6] != _MAGIC:
        if start and not _MAGIC.startswith(start[:6]):
            raise NotAnArrayError("it begins like no .npy file")
        raise DamagedFileError("it ends within its first bytes")
    if len(start) < 8 or (start[6], start[7]) not in _VERSIONS:
        raise DamagedFileError("its version of the .npy format is not known")
    width, encoding = _VERSIONS[start[6], start[7]]
    length = int.from_bytes(_read_exactly(stream, width), "little")
    if length > _LONGEST_HEADER:
        raise DamagedFileError(f"its header declares {length:,} bytes")
    text = bytes(_read_exactly(stream, length))
    try:
        found = ast.literal_eval(text.decode(encoding).strip())
    except Exception as error:
        raise DamagedFileError("its header cannot be read") from error
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise DamagedFileError("its header is not one of an array")
    shape, fortran = found["shape"], found["fortran_order"]
    sizes = isinstance(shape, tuple) and all(type(d) is int and d >= 0 for d in shape)
    if not sizes or not isinstance(fortran, bool):
        raise DamagedFileError("its header declares no shape")
    return _known_dtype(found["descr"]), "F" if fortran else "C", shape, 8 + width + length


def _known_dtype(description: object) -> Any:
    if isinstance(description, list):
        raise ObjectsError("holds records of fields")
    try:
        dtype = np.dtype(description) if isinstance(description, str) else None
    except Exception as error:
        raise DamagedFileError(f"its values are of no known type ({description!r})") from error
    if dtype is None:
        raise DamagedFileError("its values are of no known type")
    if dtype.hasobject:
        raise ObjectsError("holds Python objects")
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise ObjectsError(f"holds values of type {dtype}")
    if not dtype.itemsize:
        raise DamagedFileError(f"its values are of type {dtype}, of no bytes")
    return dtype


class ArrayArchive:
    """The arrays of an .npz file, each read when it is asked for.

    Parameters
    ----------
    path : file
    stored_only : bool, whether to refuse compression, as of a file that latensor has written: then
        all arrays together are not larger than the file

    Attributes
    ----------
    names : list of str
    """

    def __init__(self, path: str | os.PathLike[str], stored_only: bool = False) -> None:
        self._name = os.fspath(path)
        self._stored_only = stored_only
        with damage_explained(self._name):
            self._stream = open_regular(path)
            try:
                self._open()
            except BaseException:
                self._stream.close()
                raise

    def _open(self) -> None:
        size = os.fstat(self._stream.fileno()).st_size
        start = self._stream.read(6)
        if start == _MAGIC:
            raise InvalidInputError(f"{self._name} holds a single array: name it .npy")
        if start and start[:2] != b"PK":
            raise NotAnArrayError("it begins like no archive")
        self._zip = zipfile.ZipFile(self._stream)
        members = [info for info in self._zip.infolist() if info.filename.endswith(".npy")]
        self._members = {info.filename.removesuffix(".npy"): info for info in members}
        self.names = list(self._members)
        if len(self.names) != len(members):
            raise DamagedFileError("two of its arrays have one name")
        if self._stored_only:
            if any(info.compress_type != zipfile.ZIP_STORED for info in members):
                raise DamagedFileError("its arrays are compressed")
            if sum(info.file_size for info in members) > size:
                raise DamagedFileError(f"its arrays declare more than its {size:,} bytes")

    def __getitem__(self, name: str) -> Any:
        info = self._members[name]
        shown = self._name if name == "header" else f"array {name} of {self._name}"
        with damage_explained(shown), self._zip.open(info) as stream:
            trusted = self._stored_only or info.compress_type == zipfile.ZIP_STORED
            array = read_array(stream, info.file_size, trusted and self._fits(info))
            # Only at the end is the checksum compared.
            if stream.read(1):
                raise DamagedFileError("more follows its values")
            return array

    def _fits(self, info: zipfile.ZipInfo) -> bool:
        return info.file_size <= os.fstat(self._stream.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._stream.close()


def write_arrays(stream: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write arrays as an .npz file, uncompressed; the same arrays make the same bytes.

    Parameters
    ----------
    stream : binary stream that can be written anywhere
    arrays : name to NumPy array of numbers or text
    """
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # A ZipInfo made by hand bears no time.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
