"""Everything that an estimator has seen, as a value that can be added to, merged and stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.estimation.learn import Learned
from latensor.estimation.model import Answer, Frame
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.sums import Joint
from latensor.value_files import storable

# Workers that one estimator can spawn: each has a range of unit numbers of its own.
_MOST_WORKERS = 256


@storable
@dataclass(frozen=True, eq=False)
class Stream:
    """Units, until there are enough to choose a frame; from then on sums in that frame.

    Attributes
    ----------
    seed : int
    held : units without a frame
    frame : Frame or None
    sums : Joint of moments, of statistics at the pilot and of a sample; None before the frame
    salt : int, the worker's number
    n_spawned : int
    count : int, units seen
    answer : what was found at once, without sums, as long as nothing was added since
    """

    seed: int
    held: tuple[Batch, ...] = ()
    frame: Frame | None = None
    sums: Joint | None = None
    salt: int = 0
    n_spawned: int = 0
    count: int = 0
    answer: Answer[Any] | None = None

    @property
    def all_in_memory(self) -> bool:
        """Whether every unit is at hand: then what was seen is fitted as if at once."""
        if self.sums is None:
            return self.answer is None
        return "sample" in self.sums and self.sums["sample"].is_everything

    def holding(self, units: tuple[Batch, ...]) -> Stream:
        """The stream with more units in memory.

        Batches are joined once they are as long as the one before: log n of them are held.
        """
        held = list(self.held)
        for batch in units:
            held.append(batch)
            while len(held) > 1 and held[-1].extent >= held[-2].extent:
                held[-2:] = [Batch.joined(held[-2:])]
        return replace(self, held=tuple(held), count=self.count + sum(map(len, units)))

    def fixed_by(self, learned: Learned[object], most: int | None = None) -> Stream:
        """The stream that goes on in the frame of a fit, with at most so many of its units."""
        answer = learned.answer
        if learned.moments is None:
            return replace(self, held=(), frame=learned.frame, answer=answer)
        members = dict(learned.moments.members)
        if learned.sample is not None:
            sample = learned.sample if most is None else learned.sample.limited(most)
            if answer.statistics is not None:
                members["statistics"] = answer.statistics
            if answer.statistics is not None or sample.is_everything:
                members["sample"] = replace(sample, below=1.0)
        frame = replace(learned.frame, known={}, pilot=answer.state)
        return replace(self, held=(), frame=frame, sums=Joint(members))

    def spawned(self) -> tuple[Stream, Stream]:
        """The stream itself, and an empty one in the same frame for another worker."""
        if self.n_spawned >= _MOST_WORKERS - 1:
            raise InvalidInputError(f"spawn was called {self.n_spawned} times: call it on workers")
        assert self.sums is not None
        salt = self.salt * _MOST_WORKERS + self.n_spawned + 1
        worker = replace(self, held=(), sums=self.sums.empty(), salt=salt, n_spawned=0, count=0)
        return replace(self, n_spawned=self.n_spawned + 1), worker

    def merged(self, other: Stream) -> Stream:
        """Both together: both hold units, or both have sums that can be added."""
        if self.frame is None or other.frame is None:
            # Both count their units from one number on: those of the second follow the first's.
            moved = [Batch(b.parts, b.weights, b.keys + np.uint64(self.count)) for b in other.held]
            return replace(self, held=(*self.held, *moved), count=self.count + other.count)
        assert self.sums is not None
        assert other.sums is not None
        return replace(self, sums=self.sums.merge(other.sums), count=self.count + other.count)
