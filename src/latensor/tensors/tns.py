"""FROSTT files: one line per nonzero, its indices and its value, as text (`.tns`, `.tns.gz`).

Files are read in blocks, so that memory holds the numbers and never the text. Large blocks go
through a kernel that reads plain lines; whatever it does not know goes, line by line, through
`_read_line`, which either reads it or says what is wrong with it. Small files need no kernel.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.tensors.coordinates import check_shape
from latensor.tensors.sparse import SparseTensor
from latensor.whole_files import whole_stream

_BLOCK_BYTES = 1 << 24
# Below this size a file is read faster than the kernel can be loaded.
_KERNEL_BYTES = 1 << 17
_LONGEST_LINE = 1 << 20
_WRITTEN_ROWS = 1 << 16
_HEADER = re.compile(rb"#\s*latensor\s+shape=([0-9,]+)\s+index_base=([01])\s*$")


def read_tns(
    path: str | os.PathLike[str], shape: object | None = None, index_base: int | None = None
) -> SparseTensor:
    """A sparse tensor from a FROSTT file, plain or compressed by gzip.

    Parameters
    ----------
    path : file with lines `i j k value` of numbers between blanks; blank lines and comments
        from `#` on are skipped. Compression is told from the content, not the name.
    shape : one dimension per mode; None takes it from the comment that `write_tns` leaves, or
        else the smallest that holds all indices
    index_base : 0 or 1, the first index of a mode. None takes it from that comment, or else
        detects it: 0 where an index 0 occurs anywhere, 1 otherwise.

    Returns
    -------
    SparseTensor of float64, entries given more than once summed

    Raises
    ------
    FileNotFoundError, and InvalidInputError for what is not such a file, with the line.

    Examples
    --------
    >>> import latensor as lt
    >>> import os, tempfile
    >>> tensor = lt.SparseTensor([[0, 0, 1], [2, 3, 0]], [1.5, -1.0], (3, 4, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "tensor.tns")
    ...     lt.write_tns(tensor, path)
    ...     print(lt.read_tns(path).shape)
    (3, 4, 2)
    """
    indices, values, dimensions, base = _read(path, shape, index_base)
    try:
        return SparseTensor(indices, values, dimensions)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{os.fspath(path)}, indices counted from {base}: {error}"
        ) from error


def read_tns_entries(
    path: str | os.PathLike[str], shape: object | None = None, index_base: int | None = None
) -> tuple[Any, Any, tuple[int, ...]]:
    """The lines of a FROSTT file as (coordinates, values, shape), for `lt.complete`.

    Zeros are kept, as values that were observed, and so are entries given more than once.

    Parameters
    ----------
    path, shape, index_base : as in `read_tns`
    """
    indices, values, dimensions, _ = _read(path, shape, index_base)
    if dimensions is None:
        dimensions = tuple(int(column.max()) + 1 for column in indices.T)
    return indices, values, dimensions


def _read(
    path: str | os.PathLike[str], shape: object | None, index_base: int | None
) -> tuple[Any, Any, tuple[int, ...] | None, int]:
    """Indices counted from 0, values, the shape where it is known, and how the file counts."""
    if index_base is not None and not _is_base(index_base):
        raise InvalidInputError(f"index_base={index_base!r} must be 0, 1 or None to detect it")
    name = os.fspath(path)
    if os.path.isdir(name):
        raise InvalidInputError(f"{name} is a directory: give a .tns or .tns.gz file")
    dimensions = None if shape is None else check_shape(shape)
    reader = _Reader(name, index_base, dimensions)
    with _opened(name) as stream:
        for block in _blocks(stream, name):
            reader.read(block)
    indices, values = reader.collected()
    if dimensions is None and reader.header is not None:
        dimensions = reader.header[0]
    if not len(values):
        if dimensions is None:
            raise InvalidInputError(
                f"{name} holds no entries: give the shape if it stands for a zero tensor"
            )
        return np.zeros((0, len(dimensions)), np.int64), values, dimensions, 0
    base = reader.base
    if base is None:
        base = 0 if min(int(column.min()) for column in indices.T) == 0 else 1
    return indices - base, values, dimensions, base


class _Reader:
    """The state of reading one file: numbers so far, line count, what the header told."""

    def __init__(
        self, name: str, index_base: int | None, shape: tuple[int, ...] | None = None
    ) -> None:
        self.name = name
        self.shape = shape
        self.base = index_base
        self.header: tuple[tuple[int, ...], int] | None = None
        self.lines = 0
        self.columns = 0
        self.first_line = 0
        self._base_known = index_base is not None
        self._indices: list[Any] = []
        self._values: list[Any] = []

    def collected(self) -> tuple[Any, Any]:
        """All indices and values read."""
        if not self._values:
            return np.zeros((0, 1), np.int64), np.zeros(0)
        return np.concatenate(self._indices), np.concatenate(self._values)

    def read(self, block: bytes) -> None:
        """Read a block of whole lines."""
        at, patience = 0, 1
        while at < len(block):
            large = len(block) - at >= _KERNEL_BYTES
            if large and self.columns:
                end = self._read_fast(block, at)
                # Where the kernel finds nothing to read, it is asked less and less often.
                patience = 1 if end > at else 2 * patience
                at = end
            at = self._read_slowly(block, at, patience if large else None)

    def _read_fast(self, block: bytes, at: int) -> int:
        """Plain lines from `at` by the kernel; where it stopped."""
        from latensor.tensors._kernels import read_lines

        text = np.frombuffer(block, np.uint8)
        most = int(np.count_nonzero(text[at:] == ord("\n"))) + 1
        indices = np.empty((most, self.columns - 1), np.int64)
        values = np.empty(most)
        hard = np.empty((most, 3), np.int64)
        powers = 10.0 ** np.arange(23)
        rows, noted, lines, end = read_lines(text, powers, at, indices, values, hard)
        try:
            for row, begin, stop in hard[:noted].tolist():
                values[row] = _number(block[begin:stop])
        except ValueError:
            return self._read_slowly(block, at)
        indices, values = indices[:rows], values[:rows]
        low = rows and indices.min() < (self.base or 0)
        if low or self._beyond(indices) or not np.isfinite(values).all():
            return self._read_slowly(block, at)
        self.lines += lines
        fits = rows and indices.max() < 2**31
        self._indices.append(indices.astype(np.int32) if fits else indices.copy())
        self._values.append(values.copy())
        return int(end)

    def _beyond(self, indices: Any) -> bool:
        """Whether indices read by the kernel need a second look, line by line."""
        if not len(indices):
            return False
        highest = indices.max(axis=0)
        limits = [self._limit(column) for column in range(len(highest))]
        return bool((highest > np.array(limits)).any())

    def _limit(self, column: int) -> int:
        """The largest index that a column may hold, as far as that is known."""
        if self.shape is None or len(self.shape) != self.columns - 1:
            return 2**53 - 1
        return self.shape[column] - 1 + (1 if self.base is None else self.base)

    def _read_slowly(self, block: bytes, at: int, entries: int | None = None) -> int:
        """Lines from `at` one by one, up to a number of entries; where it stopped."""
        indices: list[list[int]] = []
        values: list[float] = []
        while at < len(block) and len(values) != entries:
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end + 1
            self.lines += 1
            entry = self._read_line(block[at:end])
            at = end
            if entry is not None:
                indices.append(entry[0])
                values.append(entry[1])
        if values:
            self._indices.append(np.array(indices, np.int64))
            self._values.append(np.array(values))
        return at

    def _read_line(self, line: bytes) -> tuple[list[int], float] | None:
        """The indices and the value of a line, or None if it holds a comment or nothing."""
        content, mark, _ = line.partition(b"#")
        if mark and not content.strip():
            self._read_header(line)
        if b"\r" in content.rstrip(b"\r\n"):
            raise self._error(line, "has a carriage return within: lines must end in LF or CRLF")
        words = content.split()
        if not words:
            return None
        if not self.columns:
            if len(words) < 2:
                raise self._error(line, "has one column: an entry is its indices and its value")
            self.columns, self.first_line = len(words), self.lines
        if len(words) != self.columns:
            raise self._error(
                line,
                f"has {len(words)} columns, but line {self.first_line} has {self.columns}",
            )
        indices = [self._read_index(line, column, word) for column, word in enumerate(words[:-1])]
        try:
            value = _number(words[-1])
        except ValueError:
            raise self._error(line, f"has the value {_shown(words[-1])}, not a number") from None
        if not np.isfinite(value):
            raise self._error(line, f"has the value {_shown(words[-1])}: values must be finite")
        return indices, value

    def _read_index(self, line: bytes, column: int, word: bytes) -> int:
        try:
            number = _number(word)
            index = int(word) if word.isdigit() else int(number)
        except (ValueError, OverflowError):
            raise self._error(
                line, f"has {_shown(word)} in column {column + 1}, not an index"
            ) from None
        if index != number and not word.isdigit():
            raise self._error(
                line, f"has {_shown(word)} in column {column + 1}, not a whole number"
            )
        if index < (self.base or 0):
            raise self._error(
                line,
                f"has index {index} in column {column + 1}: indices count from {self.base or 0}",
            )
        if index > self._limit(column):
            large = index >= 2**53
            known = "it is too large" if large else f"the shape is {self.shape}"
            raise self._error(line, f"has index {index} in column {column + 1}: {known}")
        return index

    def _read_header(self, line: bytes) -> None:
        found = _HEADER.match(line.strip())
        if found is None or self.header is not None or self.columns:
            return
        try:
            self.header = check_shape([int(d) for d in found[1].split(b",") if d]), int(found[2])
        except InvalidInputError as error:
            raise self._error(line, f"has a header that cannot be used ({error})") from error
        if not self._base_known:
            self.base = self.header[1]

    def _error(self, line: bytes, fault: str) -> InvalidInputError:
        return InvalidInputError(f"line {self.lines} of {self.name} {fault}: {_shown(line)}")


def _is_base(index_base: object) -> bool:
    return type(index_base) is int and index_base in (0, 1)


def _number(word: bytes) -> float:
    """Python's float, exactly rounded, without the underscores that only Python knows."""
    if b"_" in word:
        raise ValueError
    return float(word)


def _shown(text: bytes) -> str:
    decoded = text.strip().decode("utf-8", "replace")
    return repr(decoded if len(decoded) <= 80 else decoded[:77] + "...")


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    """The text of a file as a stream of bytes, decompressed where it begins like gzip."""
    with open(name, "rb") as stream:
        if stream.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=stream, mode="rb") as text:
                yield text
        else:
            yield stream


def _blocks(stream: Any, name: str) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest = b""
    while True:
        try:
            block = stream.read(_BLOCK_BYTES)
        except EOFError:
            raise InvalidInputError(
                f"{name} is truncated: its compressed data ends before its end mark"
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{name} is damaged: {error}") from error
        if not block:
            break
        end = block.rfind(b"\n") + 1
        if end == 0 and len(rest) + len(block) > _LONGEST_LINE:
            raise InvalidInputError(
                f"{name} has a line of more than {_LONGEST_LINE:,} bytes: it is not a .tns file"
            )
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


def write_tns(tensor: SparseTensor, path: str | os.PathLike[str], index_base: int = 1) -> None:
    """A sparse tensor as a FROSTT file, which `read_tns` gives back exactly.

    A comment in the first line holds the shape and the index base. The file appears under its
    name only when it is complete: an interrupted write leaves what was there before.

    Parameters
    ----------
    tensor : real SparseTensor
    path : file to write, compressed if its name ends in .gz
    index_base : 1, as FROSTT has it, or 0

    Examples
    --------
    >>> import latensor as lt
    >>> import os, tempfile
    >>> tensor = lt.SparseTensor([[0, 1]], [2.5], (1, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "tensor.tns.gz")
    ...     lt.write_tns(tensor, path)
    ...     print(lt.read_tns(path).nnz)
    1
    """
    if not isinstance(tensor, SparseTensor):
        raise InvalidInputError(
            f"tensor must be a SparseTensor, not {type(tensor).__name__}: "
            "see SparseTensor.from_dense and SparseTensor.from_scipy"
        )
    if tensor.dtype.kind == "c":
        raise InvalidInputError("tensor is complex: .tns files hold real numbers only")
    if not _is_base(index_base):
        raise InvalidInputError(f"index_base={index_base!r} must be 0 or 1")
    with whole_stream(path) as stream:
        _write_entries(tensor, stream, index_base)


def _write_entries(tensor: SparseTensor, stream: Any, index_base: int) -> None:
    shape = ",".join(str(d) for d in tensor.shape)
    stream.write(f"# latensor shape={shape} index_base={index_base}\n".encode())
    for start in range(0, tensor.nnz, _WRITTEN_ROWS):
        rows = tensor.coordinates[start : start + _WRITTEN_ROWS].astype(np.int64) + index_base
        values = tensor.values[start : start + _WRITTEN_ROWS].astype(np.float64).tolist()
        columns = [map(str, column) for column in rows.T.tolist()]
        lines = map(" ".join, zip(*columns, map(_spelled, values), strict=True))
        stream.write(("\n".join(lines) + "\n").encode())


def _spelled(value: float) -> str:
    """The shortest text that reads back as the same number, without a point if whole."""
    text = repr(value)
    return text.removesuffix(".0")
