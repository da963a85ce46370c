"""`fit(..., checkpoint=folder)`: a fit that was ended, at any moment, goes on where it was.

A fit is a deterministic program over its folds: run again, it takes the folds that are done from
the folder, and the one that was under way from its last saved leaf. At most a fiftieth of the time
is spent on saving: what a fold gave waits in memory until a save is due, and all that waits is
written as one file.
"""

from __future__ import annotations

import hashlib
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse

import latensor
from latensor.estimation.files import can_be_stored
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.sources.partitions import Shard
from latensor.sources.shards import Source
from latensor.value_files import encode, read_value, write_value
from latensor.whole_files import PathLike

# Time before a save, in multiples of what it takes: with fingerprints, what is kept in memory and
# sizes that are asked for, a fourth of it, no more than a fiftieth in all.
_SPARING = 64
# What a save is expected to take: a flush to a slow disk (s), and its bytes (s each: 14 to 18 MB
# took 0.2 to 0.35 s on a busy machine).
_FIRST_COST = 0.01
_PACE = 2e-8
# Settings that change nothing but time and what is told.
_WITHOUT_EFFECT = ("callback", "n_jobs", "verbose")
_KIND = "checkpoint"


class Checkpoint:
    """The journal of a fit that saves no more often than a fiftieth of the time allows.

    Every file is whole or not there, whenever the run was ended.

    Parameters
    ----------
    folder : made if it does not exist
    fingerprint : dict of plain values that tells one fit from another

    Raises
    ------
    InvalidInputError, if the folder holds the checkpoint of another fit.
    """

    def __init__(self, folder: PathLike, fingerprint: dict[str, Any]) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"checkpoint={str(folder)!r} cannot be made: {error.strerror}"
            ) from error
        arrays: dict[str, Any] = {}
        found, path = {"tree": encode(fingerprint, arrays), "arrays": arrays}, self._path("fit")
        if not path.exists():
            write_value(path, found, _KIND)
        elif not _equal(read_value(path, _KIND).value, found):
            raise InvalidInputError(
                f"checkpoint={str(folder)!r} holds the checkpoint of another fit (other settings, "
                "other data or another version): give another folder, or remove this one"
            )
        self._waiting: dict[str, Any] = {}
        # States of loops that wait to be written, with the folds before and at their end.
        self._states: dict[str, tuple[int, int, Any]] = {}
        # The number of the last fold before the present loop, and of the last fold.
        self._begun = self._n_folds = 0
        # When the last save ended, what it took, and the time after it that the next one is due.
        self._last, self._cost, self._wait = time.monotonic(), 0.0, _SPARING * _FIRST_COST
        # Which file holds a fold: files are named by the folds that they begin and end with.
        self._files = sorted(self._folder.glob("folds *.npz"))
        self._open: tuple[Any, dict[str, Any]] = (None, {})

    def get(self, key: str) -> Any:
        """The message of a fold that is done, or None."""
        self._n_folds = _number(key)
        number = key.partition(" ")[0]
        for path in self._files:
            first, last = path.stem.split()[1:]
            if first <= number <= last:
                if self._open[0] != path:
                    self._open = path, read_value(path, _KIND).value
                return self._open[1].get(key)
        return None

    def put(self, key: str, message: object) -> None:
        """Keep the message of a fold."""
        self._waiting[key] = message
        if self.is_due:
            self.write()

    def committed(self, name: str) -> Any:
        """Begin a loop: the state that it has committed last, or None."""
        self._begun = self._n_folds
        path = self._path(f"state {name}")
        return read_value(path, _KIND).value if path.exists() else None

    def commit(self, name: str, state: object) -> None:
        """Keep the state of a loop in place of the folds that have led to it."""
        self._waiting = {k: m for k, m in self._waiting.items() if _number(k) <= self._begun}
        self._states[name] = self._begun, self._n_folds, state
        if self.is_due:
            self.write()

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed for a save like the last one, or for those that wait."""
        return time.monotonic() - self._last >= self._wait

    def write(self, partial: dict[str, Any] | None = None) -> None:
        """Write all that waits, and the state of a fold that is under way.

        What would take more than its part of the time since the last save waits on.
        """
        begin = time.monotonic()
        states = [state for _, _, state in self._states.values()]
        expected = _FIRST_COST + _PACE * _bytes_of([self._waiting, states, partial])
        self._wait = _SPARING * max(self._cost, expected)
        if not self.is_due:
            return
        # Folds of a loop stand in files of their own, which the state of the loop replaces.
        for inside in (False, True):
            held = {k: m for k, m in self._waiting.items() if (_number(k) > self._begun) is inside}
            if held:
                numbers = [key.partition(" ")[0] for key in held]
                path = self._path(f"folds {min(numbers)} {max(numbers)}")
                write_value(path, held, _KIND)
                self._files.append(path)
        self._waiting = {}
        for name, (begun, last, state) in self._states.items():
            write_value(self._path(f"state {name}"), state, _KIND)
            self._drop(begun, last)
        self._states = {}
        if partial is not None:
            write_value(self._path("partial"), partial, _KIND)
        self._last = time.monotonic()
        self._cost = self._last - begin
        self._wait = _SPARING * max(self._cost, _FIRST_COST)

    def _drop(self, begun: int, last: int) -> None:
        """Forget the folds after one number, up to another."""
        for path in list(self._files):
            first, end = map(int, path.stem.split()[1:])
            if begun < first and end <= last:
                path.unlink(missing_ok=True)
                self._files.remove(path)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npz"

    def part(self, key: str) -> Part:
        """What is saved of the fold that is under way."""
        return Part(self, key)

    def partial(self, key: str) -> dict[str, Any] | None:
        """The last saved state of a fold, None where it had none."""
        path = self._path("partial")
        if not path.exists():
            return None
        found: dict[str, Any] = read_value(path, _KIND).value
        return found if found["key"] == key else None


class Part:
    """A fold under way, as the local engine saves it: shards done, and leaves of the next."""

    def __init__(self, checkpoint: Checkpoint, key: str) -> None:
        self._checkpoint, self._key = checkpoint, key

    @property
    def is_due(self) -> bool:
        """Whether it is time to save."""
        return self._checkpoint.is_due

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last."""
        return self._checkpoint.partial(self._key)

    def save(self, state: dict[str, Any]) -> None:
        """Keep a state, made of plain values and arrays."""
        self._checkpoint.write({**state, "key": self._key})


def _equal(one: Any, other: Any) -> bool:
    """Whether two encoded values are the same, bit for bit."""
    if one["tree"] != other["tree"] or set(one["arrays"]) != set(other["arrays"]):
        return False
    pairs = [(one["arrays"][name], array) for name, array in other["arrays"].items()]
    return all((a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) for a, b in pairs)


def _bytes_of(value: object) -> int:
    """The bytes of all arrays of a value."""
    arrays: dict[str, Any] = {}
    encode(value, arrays)
    return sum(array.nbytes for array in arrays.values())


def _number(key: str) -> int:
    return int(key.partition(" ")[0])


def checkpoint_of(estimator: Any, source: Source, folder: PathLike) -> Checkpoint:
    """The checkpoint of a fit in a folder, checked against settings, data and versions."""
    if isinstance(estimator.random_state, bool) or not isinstance(
        estimator.random_state, int | np.integer
    ):
        raise InvalidInputError(
            f"checkpoint={str(folder)!r} needs an integer random_state, got "
            f"{estimator.random_state!r}: a fit goes on where it was only if its random numbers do"
        )
    settings = {
        name: value if can_be_stored(value) else repr(type(value))
        for name, value in estimator.get_params(deep=False).items()
        if name not in _WITHOUT_EFFECT
    }
    fingerprint = {
        "class": type(estimator).__name__,
        "settings": settings,
        "versions": [latensor.__version__, np.__version__, scipy.__version__, platform.machine()],
        "data": fingerprint_of(source),
    }
    return Checkpoint(folder, fingerprint)


def fingerprint_of(source: Source) -> str:
    """A hash of the data: files by name, size and time, data in memory whole, else the first block.

    Every pass checks besides that there are as many units as before.
    """
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{source.kind} {len(source.shards)}".encode())
    parts = [shard.pieces if isinstance(shard, Shard) else shard for shard in source.shards]
    if all(type(part).__name__ == "FilePart" for part in parts):
        found.update(repr(parts).encode())
    elif source.engine is None and all(isinstance(part, list | tuple) for part in parts):
        for number in range(len(parts)):
            for batch in source.batches(number):
                _add(found, batch)
    else:
        _add(found, source.head())
    return found.hexdigest()


def _add(found: Any, batch: Batch) -> None:
    for part in (*batch.parts, batch.weights):
        arrays = [part]
        if isinstance(part, Ragged):
            arrays = [part.rows, part.lengths, part.lead, part.tail]
        elif scipy.sparse.issparse(part):
            arrays = [part.indptr, part.indices, part.data]
        for array in arrays:
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
