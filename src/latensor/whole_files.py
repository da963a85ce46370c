"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside `path` to write under, which takes its place when the block ends well.

    After an error what was there before is still there, and nothing else. The name keeps the
    ending of `path`; a link keeps pointing to its target, which is what gets replaced.
    """
    target = Path(os.path.realpath(path))
    # Not by tempfile, whose files only their owner may read.
    passing = target.with_name(f".latensor-{secrets.token_hex(8)}{target.suffix}")
    try:
        yield passing
        os.replace(passing, target)
    finally:
        passing.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_stream(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream of bytes into a file that appears when the block ends well.

    What goes to a name that ends in .gz is compressed, without name and time: the same content
    makes the same bytes.
    """
    with whole_file(path) as passing, open(passing, "xb") as raw:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield raw
        # Otherwise a power cut can leave the new name with nothing in it.
        raw.flush()
        os.fsync(raw.fileno())
