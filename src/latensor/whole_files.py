"""The one writer of the library: files appear whole or not at all, and only regular files change.

Whatever is written goes through `PendingFile` or one of the two context managers over it. Special
files (devices, pipes, sockets) and folders are refused before anything is done; a link is followed
and stays; an existing file keeps its mode and, where the system allows it, its owner.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from latensor.exceptions import InvalidInputError

PathLike: TypeAlias = str | os.PathLike[str]

# File systems and kernels that know no files without a name.
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
# What only a file that is written to can fail with.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_target(path: PathLike, argument: str = "path") -> Path:
    """The regular file that `path` leads to, through links, whether it exists yet or not.

    Parameters
    ----------
    path : where a file shall be written
    argument : what to call it in messages: the name of an argument or of an option

    Raises
    ------
    InvalidInputError, if `path` is a folder, a device, a pipe or a socket, if its folder does not
    exist, or if the file is write-protected.
    """
    shown = _shown(path, argument)
    name = os.fspath(path)
    if not name:
        raise InvalidInputError(f"{shown} is empty: name a file")
    try:
        target = Path(os.path.realpath(name))
        found: os.stat_result | None = os.stat(target)
    except FileNotFoundError:
        found = None
    except (OSError, ValueError) as error:
        raise _cannot_be_written(shown, error) from error
    if found is None and not target.parent.is_dir():
        raise InvalidInputError(
            f"{shown}: the folder {str(target.parent)!r} does not exist: make it, or give another "
            "path"
        )
    if name.endswith((os.sep, os.altsep or os.sep)) or (found and stat.S_ISDIR(found.st_mode)):
        raise InvalidInputError(
            f"{shown} is a folder: give a file, as {os.path.join(name, 'result')!r}"
        )
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise InvalidInputError(
            f"{shown} is not a regular file but a device, a pipe or a socket: give another path"
        )
    if found is not None and not os.access(target, os.W_OK):
        raise InvalidInputError(f"{shown} is write-protected: give another path")
    return target


def check_outputs(outputs: Mapping[str, PathLike | None], inputs: Iterable[PathLike] = ()) -> None:
    """Refuse, before any work begins, outputs that could not be written or would destroy something.

    Parameters
    ----------
    outputs : name of an argument or option to the file it asks for; None where it was not given
    inputs : files that are read, which no output may replace

    Raises
    ------
    InvalidInputError, as `check_target`; if nothing can be created in a folder; or if two outputs,
    or an output and an input, are the same file, however they are spelled or linked.
    """
    known = {os.path.realpath(path): "" for path in inputs}
    for argument, path in outputs.items():
        if path is None:
            continue
        target = check_target(path, argument)
        for other, owner in known.items():
            if _same_file(target, other):
                replaced = f"{owner}, which is the same file" if owner else "what is read"
                raise InvalidInputError(
                    f"{_shown(path, argument)} would overwrite {replaced}: give another path"
                )
        known[str(target)] = _shown(path, argument)
        check_folder(target.parent, _shown(path, argument))


def check_folder(folder: Path, shown: str) -> None:
    """Refuse a folder in which no file can be created; only trying tells for sure."""
    try:
        descriptor, name = _create(folder)
    except OSError as error:
        raise _cannot_be_written(shown, error) from error
    os.close(descriptor)
    if name is not None:
        name.unlink()


def _same_file(one: Path, other: str) -> bool:
    if os.path.normcase(one) == os.path.normcase(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _shown(path: PathLike, argument: str) -> str:
    try:
        name = os.fspath(path)
    except TypeError:
        name = path  # type: ignore[assignment]
    if not isinstance(name, str):
        raise InvalidInputError(f"{argument} must name a file, not be a {type(path).__name__}")
    return f"{argument}={name}" if argument.startswith("-") else f"{argument}={name!r}"


def _cannot_be_written(shown: str, error: Exception) -> InvalidInputError:
    reason = getattr(error, "strerror", None) or error
    return InvalidInputError(f"{shown} cannot be written: {reason}")


def _create(folder: Path) -> tuple[int, Path | None]:
    """An empty file in a folder, opened, and its name if it needs one.

    Without a name nothing is left behind however the process ends, also by a signal. Not by
    tempfile, whose files only their owner may read.
    """
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(folder, os.O_TMPFILE | flags, 0o666), None
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
    name = _passing_name(folder)
    return os.open(name, os.O_CREAT | os.O_EXCL | flags, 0o666), name


def _passing_name(folder: Path) -> Path:
    return folder / f".latensor-{secrets.token_hex(8)}"


class PendingFile:
    """A file in the making: `commit` puts it in its place at once, `discard` leaves no trace.

    Parameters
    ----------
    path : where the file shall appear; see `check_target` for what is refused
    argument : what to call `path` in messages

    Attributes
    ----------
    stream : binary stream to write to
    """

    def __init__(self, path: PathLike, argument: str = "path") -> None:
        self._target = check_target(path, argument)
        self._shown = _shown(path, argument)
        try:
            descriptor, self._name = _create(self._target.parent)
        except OSError as error:
            raise _cannot_be_written(self._shown, error) from error
        self.stream: IO[bytes] = os.fdopen(descriptor, "w+b")
        try:
            # Before the first byte: what nobody else may read must not be readable in passing.
            self._keep_mode(descriptor)
        except BaseException:
            self.discard()
            raise

    def _keep_mode(self, descriptor: int) -> None:
        try:
            found = os.stat(self._target)
        except FileNotFoundError:
            return
        if hasattr(os, "fchown"):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, found.st_uid, found.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode))

    def commit(self) -> None:
        """Put the file in its place, so that a power cut finds the old one or the new one."""
        try:
            # A pipe or a folder may have appeared there while the content was computed.
            check_target(self._target, "path")
            self.stream.flush()
            os.fsync(self.stream.fileno())
            if self._name is None:
                self._give_name()
            assert self._name is not None
            self.stream.close()
            os.replace(self._name, self._target)
            self._name = None
            _sync_folder(self._target.parent)
        except OSError as error:
            raise _cannot_be_written(self._shown, error) from error
        finally:
            self.discard()

    def explained(self, error: OSError) -> Exception:
        """An error of the stream as what it means for the file; errors of other files as such."""
        return _cannot_be_written(self._shown, error) if error.errno in _FULL else error

    def _give_name(self) -> None:
        name = self._name = _passing_name(self._target.parent)
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            source = f"/proc/self/fd/{self.stream.fileno()}"
            # Only beside a descriptor of a folder does Python follow the link that `source` is.
            os.link(source, name, src_dir_fd=folder, follow_symlinks=True)
        except OSError:
            self.stream.seek(0)
            with open(name, "xb") as copy:
                self._keep_mode(copy.fileno())
                shutil.copyfileobj(self.stream, copy)
                copy.flush()
                os.fsync(copy.fileno())
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Forget what was written; nothing happens after `commit`."""
        with contextlib.suppress(OSError):
            # Closing flushes what is buffered, which fails once more where the disk is full.
            self.stream.close()
        if self._name is not None:
            self._name.unlink(missing_ok=True)
            self._name = None


def _sync_folder(folder: Path) -> None:
    """Make the new name itself last; some systems cannot, and need not be told."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def whole_stream(
    path: PathLike, argument: str = "path", gzipped: bool | None = None
) -> Iterator[IO[bytes]]:
    """A stream of bytes into a file that appears when the block ends well.

    Parameters
    ----------
    path, argument : as for `check_target`
    gzipped : bool, whether to compress, without name and time so that the same content makes the
        same bytes; None where a name that ends in .gz asks for it
    """
    pending = PendingFile(path, argument)
    try:
        if Path(path).suffix == ".gz" if gzipped is None else gzipped:
            with gzip.GzipFile("", "wb", 6, pending.stream, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield pending.stream
        pending.commit()
    except OSError as error:
        raise pending.explained(error) from error
    finally:
        pending.discard()


@contextlib.contextmanager
def whole_text(path: PathLike) -> Iterator[IO[str]]:
    """The same for text in UTF-8, lines ended by a line feed on every system."""
    with whole_stream(path) as stream:
        text: Any = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            yield text
            text.flush()
        finally:
            text.detach()
