"""Text files with one document per line; a blank line is a document without words."""

from __future__ import annotations

from collections.abc import Iterator

from latensor.sources.stream import TextFile
from latensor.sources.text import Texts


class LineReader:
    """The lines of a file as documents.

    Parameters
    ----------
    file : TextFile
    """

    def __init__(self, file: TextFile) -> None:
        self._file = file

    @property
    def file(self) -> TextFile:
        """The file that is read."""
        return self._file

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        for block in self._file.blocks():
            yield Texts(self._file.lines(block), block.bytes_read)
