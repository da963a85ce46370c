"""The files that a command leaves behind: whole or not at all, and never over those of others."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from latensor.cli.refusal import Refusal

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Output:
    """A folder in the making.

    Attributes
    ----------
    folder : Path, where files are put together; they move to `target` when all are complete
    target : Path, the folder that the user named
    """

    folder: Path
    target: Path

    def arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays into an .npz file that opens without pickle."""
        with open(self.folder / name, "xb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)

    def summary(self, command: str, content: Mapping[str, Any]) -> None:
        """Write what was done as JSON, with the list of files; call it last."""
        files = sorted([*os.listdir(self.folder), SUMMARY])
        full = {"written_by": command, **content, "files": files}
        text = json.dumps(_strict(full), indent=2, allow_nan=False)
        (self.folder / SUMMARY).write_text(text + "\n", encoding="utf-8")


@contextmanager
def output_folder(target: Path, command: str, names: frozenset[str]) -> Iterator[Output]:
    """A folder whose files appear when the block ends, and not at all if it is left by an error.

    Files of an earlier run of the same command are replaced, and those that the new run does not
    write are removed. If the folder holds a file of one of these names that no such run wrote,
    the command is refused before it starts.

    Parameters
    ----------
    target : the folder to fill; made with its parents if it does not exist
    command : str, what the summary says has written the files
    names : all names that the command may write
    """
    own = _written_before(target, command) & names
    for name in sorted(names - own):
        if (target / name).exists():
            raise Refusal(
                f"{target / name} exists and was not written by {command!r}: move it away, or "
                "choose another folder by --out"
            )
    ancestor = target.absolute()
    while not ancestor.exists():
        ancestor = ancestor.parent
    # On the same file system as the target, so that moving is one step for each file.
    try:
        folder = Path(tempfile.mkdtemp(prefix=".latensor-", dir=ancestor))
    except OSError as error:
        raise Refusal(f"--out={target}: {error.strerror} in {ancestor}") from error
    try:
        yield Output(folder, target)
        made = set(os.listdir(folder))
        target.mkdir(parents=True, exist_ok=True)
        # The summary vouches for the other files, and comes after them.
        for name in sorted(made, key=lambda n: (n == SUMMARY, n)):
            os.replace(folder / name, target / name)
        for name in own - made:
            (target / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written_before(target: Path, command: str) -> frozenset[str]:
    """The names that the summary of an earlier run of the command lists."""
    try:
        content = json.loads((target / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    if not isinstance(content, dict) or content.get("written_by") != command:
        return frozenset()
    files = content.get("files")
    return (
        frozenset(f for f in files if isinstance(f, str))
        if isinstance(files, list)
        else frozenset()
    )


def _strict(value: Any) -> Any:
    """A value in types that strict JSON knows; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _strict(value.tolist())
    if isinstance(value, np.generic):
        return _strict(value.item())
    if isinstance(value, complex):
        return {"real": value.real, "imaginary": value.imag}
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value
