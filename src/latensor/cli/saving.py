"""The files that a command leaves behind: whole or not at all, and never over those of others."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from latensor.cli.refusal import Refusal
from latensor.diagnostics.findings import plain
from latensor.whole_files import PendingFile, check_folder, check_outputs

SUMMARY = "summary.json"


class Output:
    """The files of a folder in the making, none of which is to be seen before all are complete."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._files: dict[str, PendingFile] = {}

    def open(self, name: str) -> IO[bytes]:
        """A binary stream into a new file."""
        self._files[name] = PendingFile(self._target / name)
        return self._files[name].stream

    def text(self, name: str, text: str) -> None:
        """Write text as UTF-8."""
        self.open(name).write(text.encode("utf-8"))

    def arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays into an .npz file that opens without pickle."""
        np.savez(self.open(name), allow_pickle=False, **arrays)

    def summary(self, command: str, content: Mapping[str, Any]) -> None:
        """Write what was done as JSON, with the list of files; call it last."""
        full = {"written_by": command, **content, "files": sorted([*self._files, SUMMARY])}
        self.text(SUMMARY, json.dumps(plain(full), indent=2, allow_nan=False) + "\n")

    @property
    def names(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted(self._files)

    def commit(self) -> None:
        """Put all files in their places."""
        # The summary vouches for the other files, and comes after them.
        for name in sorted(self._files, key=lambda n: (n == SUMMARY, n)):
            self._files[name].commit()

    def discard(self) -> None:
        """Forget all files that are not in their places."""
        for file in self._files.values():
            file.discard()


@contextmanager
def output_folder(
    target: Path, command: str, names: frozenset[str], inputs: Iterable[Path] = ()
) -> Iterator[Output]:
    """A folder whose files appear when the block ends, and not at all if it is left by an error.

    Files of an earlier run of the same command are replaced, and those that the new run does not
    write are removed. If the folder cannot be written, holds a file of one of these names that no
    such run wrote, or one that is read, the command is refused before it starts.

    Parameters
    ----------
    target : the folder to fill; made with its parents if it does not exist
    command : str, what the summary says has written the files
    names : all names that the command may write
    inputs : files that the command reads
    """
    if target.exists() and not target.is_dir():
        raise Refusal(f"--out={target} is a file: give a folder")
    own = _written_before(target, command) & names
    for name in sorted(names - own):
        if os.path.lexists(target / name):
            raise Refusal(
                f"{target / name} exists and was not written by {command!r}: move it away, or "
                "choose another folder by --out"
            )
    made = _make(target)
    output = Output(target)
    complete = False
    try:
        check_folder(target, f"--out={target}")
        for name in sorted(own):
            check_outputs({"--out": target / name}, inputs)
        yield output
        output.commit()
        for name in own - set(output.names):
            (target / name).unlink(missing_ok=True)
        complete = True
    finally:
        output.discard()
        if not complete:
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _make(target: Path) -> list[Path]:
    """Make a folder with its parents, and tell which of them are new."""
    missing: list[Path] = []
    folder = target.absolute()
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    made: list[Path] = []
    try:
        for folder in missing:
            folder.mkdir()
            made.append(folder)
    except OSError as error:
        for folder in reversed(made):
            folder.rmdir()
        raise Refusal(f"--out={target}: {error.strerror} in {folder.parent}") from error
    return made


def _written_before(target: Path, command: str) -> frozenset[str]:
    """The names that the summary of an earlier run of the command lists."""
    summary = target / SUMMARY
    try:
        # A pipe would wait for somebody to write.
        content = json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else None
    except (OSError, ValueError, RecursionError):
        return frozenset()
    if not isinstance(content, dict) or content.get("written_by") != command:
        return frozenset()
    files = content.get("files")
    return (
        frozenset(f for f in files if isinstance(f, str))
        if isinstance(files, list)
        else frozenset()
    )


def write_columns(stream: IO[bytes], columns: dict[str, Any]) -> None:
    """Columns of one length by name, as CSV."""
    shown = [
        [f"{value:.6g}" if values.dtype.kind == "f" else value for value in values.tolist()]
        for values in map(np.asarray, columns.values())
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*shown, strict=True))
    stream.write(text.getvalue().encode("utf-8"))
