"""A text file as blocks of whole lines, plain or compressed, in constant memory."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from latensor.exceptions import InvalidInputError

# Told how many bytes of the file have been read, how many it has, and the documents so far.
Progress: TypeAlias = Callable[[int, int, int], object]

_BLOCK_BYTES = 1 << 18
_LONGEST_LINE = 1 << 28
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_FOREIGN = {
    b"BZh": "compressed by bzip2: give it plain or compressed by gzip",
    b"\xfd7zXZ": "compressed by xz: give it plain or compressed by gzip",
    b"PK\x03\x04": "a zip archive, as .docx and .npz are: give the text in it",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
    b"%PDF": "a PDF document: give its text",
}


class Block(NamedTuple):
    """Whole lines of a file: the text, the number of its first line, the bytes read up to here."""

    text: bytes
    line: int
    bytes_read: int


class TextFile:
    """One file of lines, which can be read again and must not change in between.

    Parameters
    ----------
    path : regular file, plain or compressed by gzip, whatever its name
    progress : called with (bytes read, bytes in all, documents) after each block, or None
    """

    def __init__(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        try:
            self.name = os.fsdecode(path)
        except TypeError:
            raise InvalidInputError(
                f"path must name a file, not be a {type(path).__name__}"
            ) from None
        self._progress = progress
        with self._refusals():
            found = os.stat(self.name)
        if stat.S_ISDIR(found.st_mode):
            raise InvalidInputError(f"{self.name} is a directory: give a file")
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInputError(
                f"{self.name} is not a regular file: it is read more than once, so save it first"
            )
        self.size = found.st_size
        self._version = (found.st_size, found.st_mtime_ns)

    def head(self) -> Block:
        """The first block: enough to tell what kind of file this is."""
        first = next(self.blocks(), None)
        if first is None:
            raise InvalidInputError(f"{self.name} is empty: it holds no documents")
        return first

    def blocks(self) -> Iterator[Block]:
        """All lines, in blocks that end with a line; the last one may lack its line end."""
        with self._refusals(), self._opened() as (text, raw):
            line = 1
            for lines in self._whole_lines(text):
                yield Block(lines, line, raw.tell())
                line += lines.count(b"\n")

    def _whole_lines(self, text: Any) -> Iterator[bytes]:
        rest: list[bytes] = []
        held = 0
        first = True
        while block := text.read(_BLOCK_BYTES):
            if first:
                first = False
                self._refuse_foreign(block)
                block = block.removeprefix(_BYTE_ORDER_MARK)
            end = block.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, block[:end]])
                rest, held = [], 0
            rest.append(block[end:])
            held += len(block) - end
            if held > _LONGEST_LINE:
                raise InvalidInputError(
                    f"{self.name} has a line of more than {_LONGEST_LINE:,} bytes: documents "
                    "stand one per line"
                )
        if held:
            yield b"".join(rest)

    def _refuse_foreign(self, block: bytes) -> None:
        for mark, kind in _FOREIGN.items():
            if block.startswith(mark):
                raise InvalidInputError(f"{self.name} is {kind}")
        if b"\r" in block.rstrip() and b"\n" not in block:
            raise InvalidInputError(
                f"{self.name} ends its lines by carriage returns alone: save it with line feeds"
            )
        if b"\0" in block[:4096]:
            raise InvalidInputError(f"{self.name} is not a text file: it holds zero bytes")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """The lines as a stream of bytes, and the stream underneath whose position tells progress.

        Compression is told from the content, not the name.
        """
        with open(self.name, "rb") as raw:
            found = os.fstat(raw.fileno())
            if (found.st_size, found.st_mtime_ns) != self._version:
                raise InvalidInputError(f"{self.name} has changed since it was first read")
            if raw.peek(2)[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=raw, mode="rb") as text:
                    yield text, raw
            elif raw.peek(4)[:4] == _ZSTANDARD:
                with self._from_zstandard(raw) as text:
                    yield text, raw
            else:
                yield raw, raw

    def _from_zstandard(self, raw: Any) -> Any:
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                f"{self.name} is compressed by zstandard, which needs pyarrow (pip install "
                "latensor[parquet]): or give it plain or compressed by gzip"
            ) from error
        return pyarrow.CompressedInputStream(raw, "zstd")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except EOFError:
            raise InvalidInputError(
                f"{self.name} is truncated: its compressed data ends before its end mark"
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(f"{self.name} is damaged: {error}") from error
        except OSError as error:
            raise InvalidInputError(
                f"{self.name} cannot be read: {error.strerror or error}"
            ) from error

    def lines(self, block: Block) -> list[str]:
        """The lines of a block without their ends, from line number `block.line` on."""
        try:
            text = block.text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = block.line + block.text.count(b"\n", 0, error.start)
            byte = block.text[error.start]
            raise self.error(
                line, f"is not UTF-8 text (byte 0x{byte:02x}): save the file as UTF-8"
            ) from None
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        return text.removesuffix("\n").split("\n")

    def report(self, bytes_read: int, documents: int) -> None:
        """Tell the caller's callback how far the reading is."""
        if self._progress is not None:
            self._progress(bytes_read, self.size, documents)

    def error(self, line: int, fault: str, text: str | bytes | None = None) -> InvalidInputError:
        """What is wrong with a line, with an excerpt of it."""
        shown = "" if text is None else f": {excerpt(text)}"
        return InvalidInputError(f"line {line} of {self.name} {fault}{shown}")


def excerpt(text: str | bytes) -> str:
    """The beginning of a line, for an error message."""
    decoded = text[:400].decode("utf-8", "replace") if isinstance(text, bytes) else text[:400]
    decoded = decoded.strip()
    return repr(decoded if len(decoded) <= 80 else decoded[:77] + "...")
