"""Sums over units as values: what every moment and every expected statistic is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, mixed
from latensor.value_files import storable

# Additive numbers and arrays by name, possibly nested.
Tree = Any


def plus(a: Tree, b: Tree) -> Tree:
    """Two trees of sums added, neither changed; None stands for nothing seen."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict):
        return {name: plus(value, b[name]) for name, value in a.items()}
    return a + b


def times(a: Tree, factor: float) -> Tree:
    """A tree of sums with every unit counted `factor` times."""
    if a is None:
        return None
    if isinstance(a, dict):
        return {name: times(value, factor) for name, value in a.items()}
    return a * factor


def upper_triangle(matrix: Any) -> Any:
    """Symmetric matrices (..., d, d) without what symmetry repeats, (..., d (d + 1) / 2)."""
    return matrix[(..., *np.triu_indices(matrix.shape[-1]))]


def symmetric_matrix(packed: Any) -> Any:
    """The symmetric matrices (..., d, d) of upper triangles."""
    size = int(np.sqrt(2 * packed.shape[-1]))
    found = np.empty((*packed.shape[:-1], size, size), packed.dtype)
    rows, columns = np.triu_indices(size)
    found[..., rows, columns] = packed
    found[..., columns, rows] = packed
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two frames hold equal values, arrays compared entry by entry."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if scipy.sparse.issparse(a):
        return bool(a.shape == b.shape and (a != b).nnz == 0)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)


@dataclass(frozen=True, eq=False)
class Folded:
    """Base of what a fold fills: a monoid over batches.

    A value, picklable, of a frame (settings such as basis, centre and parameters) and of what was
    seen. `update` may use the memory of `self` again, which belongs to the fold; `merge` changes
    neither side; both are associative and commutative up to rounding.
    """

    # Whether `update` is cheaper on a whole leaf of blocks than on each of them.
    joins_blocks: ClassVar[bool] = False
    # Whether `update` shares its work among threads (`inner_threads`): where the sums are large, a
    # fold then fills one accumulator in place, and none for every thread.
    threads_inside: ClassVar[bool] = False

    def empty(self) -> Self:
        """The same frame, nothing seen."""
        raise NotImplementedError

    def update(self, batch: Batch) -> Self:
        """With the units of a batch."""
        raise NotImplementedError

    def merge(self, other: Self) -> Self:
        """With what another of the same frame has seen."""
        raise NotImplementedError

    def scaled(self, factor: float) -> Self:
        """With every unit counted so many times."""
        raise NotImplementedError

    def message(self) -> Tree:
        """What was seen, without the frame: all that travels and is stored."""
        raise NotImplementedError

    def received(self, message: Tree) -> Self:
        """The same frame with what was seen elsewhere."""
        raise NotImplementedError

    def snapshot(self) -> Tree:
        """What was seen, so that going on from it after `received` gives the same bits."""
        return self.message()


@dataclass(frozen=True, eq=False)
class Sums(Folded):
    """Plain additive arrays under a frame, which are all other fields.

    A subclass says what one batch adds (`summed`) and what all of it amounts to (`finalize`).
    """

    sums: Tree = field(default=None, kw_only=True, repr=False)

    def summed(self, batch: Batch) -> dict[str, Any]:
        """What the units of a batch add."""
        raise NotImplementedError(f"{type(self).__name__} must say what a batch adds")

    def finalize(self) -> Any:
        """The moment of everything seen; pure."""
        return self.seen()

    def seen(self) -> dict[str, Any]:
        """The sums, or an error where there are none."""
        if self.sums is None:
            raise InvalidInputError("no sample has been seen yet: give at least one")
        sums: dict[str, Any] = self.sums
        return sums

    def empty(self) -> Self:
        return replace(self, sums=None)

    def update(self, batch: Batch) -> Self:
        return replace(self, sums=plus(self.sums, self.summed(batch)))

    def merge(self, other: Self) -> Self:
        if not same(self.empty(), other.empty()):
            raise InvalidInputError(
                f"two {type(self).__name__} were summed in different coordinates: start the second "
                "worker with spawn() of the first"
            )
        return replace(self, sums=plus(self.sums, other.sums))

    def scaled(self, factor: float) -> Self:
        return replace(self, sums=times(self.sums, factor))

    def message(self) -> Tree:
        return self.sums

    def received(self, message: Tree) -> Self:
        return replace(self, sums=message)


@dataclass(frozen=True, eq=False)
class Closing(Sums):
    """Sums that become smaller once a partition has been gone over, and travel as what they become.

    `closed` is a function of the sums alone, and closed sums are added as they are, so that it does
    not matter where partitions meet. Sums of which one is closed are closed before they are added.
    """

    @property
    def is_closed(self) -> bool:
        """Whether these are sums as they travel."""
        raise NotImplementedError

    def closed(self) -> Self:
        """The sums as they travel."""
        raise NotImplementedError

    def opened(self, batch: Batch) -> Self:
        """With the units of a batch, of sums that are not closed."""
        return replace(self, sums=plus(self.sums, self.summed(batch)))

    def update(self, batch: Batch) -> Self:
        return self.merge(self.empty().opened(batch)) if self.is_closed else self.opened(batch)

    def merge(self, other: Self) -> Self:
        one: Any = self
        if self.sums is not None and other.sums is not None and self.is_closed != other.is_closed:
            one, other = self.closed(), other.closed()
        return super(Closing, one).merge(other)  # type: ignore[return-value]

    def message(self) -> Tree:
        return self.closed().sums

    def snapshot(self) -> Tree:
        return self.sums


@storable
@dataclass(frozen=True, eq=False)
class Joint(Folded):
    """Several accumulators filled in one pass."""

    members: Mapping[str, Any]

    @property
    def joins_blocks(self) -> bool:  # type: ignore[override]
        return any(member.joins_blocks for member in self.members.values())

    @property
    def threads_inside(self) -> bool:  # type: ignore[override]
        return any(m.threads_inside for m in self.members.values())

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def without(self, *names: str) -> Joint:
        """All but these."""
        return Joint({n: m for n, m in self.members.items() if n not in names})

    def _each(self, function: Callable[..., Any], *others: Mapping[str, Any]) -> Joint:
        return Joint({n: function(m, *(o[n] for o in others)) for n, m in self.members.items()})

    def empty(self) -> Joint:
        return self._each(lambda m: m.empty())

    def update(self, batch: Batch) -> Joint:
        return self._each(lambda m: m.update(batch))

    def merge(self, other: Joint) -> Joint:
        return self._each(lambda m, o: m.merge(o), other.members)

    def scaled(self, factor: float) -> Joint:
        return self._each(lambda m: m.scaled(factor))

    def message(self) -> Tree:
        return {n: m.message() for n, m in self.members.items()}

    def snapshot(self) -> Tree:
        return {n: m.snapshot() for n, m in self.members.items()}

    def received(self, message: Tree) -> Joint:
        return self._each(lambda m, o: m.received(o), message)


@storable
@dataclass(frozen=True, eq=False)
class Grouped(Folded):
    """The same accumulator for every group of units: halves, cross-validation, a bootstrap.

    Units are drawn into groups by their numbers, not by their content: equal rows are still
    independent.
    """

    joins_blocks: ClassVar[bool] = True
    groups: tuple[Any, ...]
    seed: int

    @property
    def threads_inside(self) -> bool:  # type: ignore[override]
        return bool(self.groups[0].threads_inside)

    @classmethod
    def of(cls, inner: Any, n_groups: int, seed: int) -> Grouped:
        """Empty groups of one accumulator."""
        return cls((inner.empty(),) * n_groups, seed)

    def _each(self, function: Callable[..., Any], *others: Any) -> Grouped:
        return replace(self, groups=tuple(map(function, self.groups, *others)))

    def empty(self) -> Grouped:
        return self._each(lambda g: g.empty())

    def update(self, batch: Batch) -> Grouped:
        marks = mixed(batch.keys, self.seed) % np.uint64(len(self.groups))
        order = np.argsort(marks, kind="stable")
        edges = np.searchsorted(marks[order], np.arange(len(self.groups) + 1))
        parts = [batch.take(order[edges[g] : edges[g + 1]]) for g in range(len(self.groups))]
        return self._each(lambda g, part: g.update(part) if len(part) else g, parts)

    def merge(self, other: Grouped) -> Grouped:
        return self._each(lambda g, o: g.merge(o), other.groups)

    def scaled(self, factor: float) -> Grouped:
        return self._each(lambda g: g.scaled(factor))

    def resampled(self, counts: Any) -> Any:
        """One accumulator in which group g counts counts[g] times."""
        used = [(g, float(c)) for g, c in zip(self.groups, counts, strict=True) if c]
        total = used[0][0].scaled(used[0][1])
        for group, count in used[1:]:
            total = total.merge(group.scaled(count))
        return total

    def message(self) -> Tree:
        return [g.message() for g in self.groups]

    def snapshot(self) -> Tree:
        return [g.snapshot() for g in self.groups]

    def received(self, message: Tree) -> Grouped:
        return self._each(lambda g, m: g.received(m), message)


@dataclass(frozen=True, eq=False)
class Mapped(Folded):
    """An accumulator of what a picklable function makes of every batch."""

    inner: Any
    function: Callable[[Batch], Batch]

    @property
    def joins_blocks(self) -> bool:  # type: ignore[override]
        return bool(self.inner.joins_blocks)

    @property
    def threads_inside(self) -> bool:  # type: ignore[override]
        return bool(self.inner.threads_inside)

    def empty(self) -> Mapped:
        return replace(self, inner=self.inner.empty())

    def update(self, batch: Batch) -> Mapped:
        made = self.function(batch)
        return replace(self, inner=self.inner.update(made)) if len(made) else self

    def merge(self, other: Mapped) -> Mapped:
        return replace(self, inner=self.inner.merge(other.inner))

    def scaled(self, factor: float) -> Mapped:
        return replace(self, inner=self.inner.scaled(factor))

    def message(self) -> Tree:
        return self.inner.message()

    def snapshot(self) -> Tree:
        return self.inner.snapshot()

    def received(self, message: Tree) -> Mapped:
        return replace(self, inner=self.inner.received(message))
