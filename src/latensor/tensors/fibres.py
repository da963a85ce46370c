"""Sparse tensors compressed along one mode at a time, for contractions that share prefixes.

Nonzeros are sorted by the mode (or modes) that a contraction keeps, the root, and below it by the
other modes from short to long: nonzeros that agree in many modes stand together, and what
multiplies all of them is applied once. A tree is cut into tasks of equal numbers of nonzeros; the
cuts depend on the tensor alone, and every output row is summed in one order, so that results are
the same, bit for bit, at any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.tensors.coordinates import frozen, sort_rows

# Below this many nonzeros, or multiplications, starting threads costs more than it saves. A visit
# of a nonzero counts as much as eight multiplications.
_PARALLEL_NONZEROS = 100_000
_PARALLEL_WORK = 1 << 24
_VISIT = 8
_TASK_NONZEROS = 1 << 15
_MOST_TASKS = 64
_PORTIONS = 4
# A visit of a node costs about as much as bringing one more row for this many nonzeros.
_NONZEROS_PER_VISIT = 12


@dataclass(frozen=True, eq=False)
class FibreTree:
    """The nonzeros of a tensor as a tree: root nodes, inner nodes, and bundles at the bottom.

    Level 0 is the root, level l from 1 on belongs to the mode levels[l - 1], the last to the
    mode that runs along the fibres. Levels down to depth - 1 are nodes, each visited once. The
    levels below would have nodes with too few nonzeros to be worth a visit: there each nonzero
    brings its own bundle of rows. Indices of all modes are numbered through, mode after mode,
    as rows of one stack of factors, whose last row is ones.

    Attributes
    ----------
    levels : the mode of each level from 1 on; (None,) stands for the row of ones where no mode
        is left below the root
    roots : (root nodes, root modes) their coordinates
    values : (nonzeros,)
    bundles : (nonzeros, levels from `depth` on) rows of the stack
    pointers : (units + 1,) where each unit of nonzeros begins: a node of level depth - 1, or
        a piece of one that a task boundary cut off
    closes : (units,) how many levels of nodes, from the lowest up, end with a unit
    nodes : rows of the nodes of levels 0 to depth - 1, level after level; root nodes are rows
        of the output instead, which for one root mode are their coordinates
    units : (tasks + 1,) where each task begins
    positions : (tasks, depth) the node of each level in which a task begins
    continued : (tasks,) whether a task begins inside a root node
    """

    levels: tuple[int | None, ...]
    roots: Any
    values: Any
    bundles: Any
    pointers: Any
    closes: Any
    nodes: Any
    units: Any
    positions: Any
    continued: Any

    @property
    def tasks(self) -> int:
        """How many pieces the work is cut into."""
        return len(self.continued)

    def _tree(self) -> tuple[Any, ...]:
        return (
            self.values,
            self.bundles,
            self.pointers,
            self.closes,
            self.nodes,
            self.units,
            self.positions,
            self.continued,
        )

    def mttkrp(self, stack: Any, dimension: int) -> Any:
        """The (dimension, rank) mttkrp of the root mode with a stack of all factors."""
        from latensor.tensors._kernels import tree_mttkrp

        out = np.zeros((dimension, stack.shape[1]), stack.dtype)
        spill = np.zeros((self.tasks, stack.shape[1]), stack.dtype)
        tree = self._tree()
        work = self.bundles.size * (stack.shape[1] + _VISIT)
        self._run(
            (0, self.tasks), work, lambda *block: tree_mttkrp(*block, *tree, stack, out, spill)
        )
        for task in np.flatnonzero(self.continued):
            out[self.nodes[self.positions[task, 0]]] += spill[task]
        return out

    def blocks(self, entries: int, size: int) -> list[tuple[int, int]]:
        """Runs of tasks whose root nodes, of `size` numbers each, fill about `entries` numbers."""
        runs: list[tuple[int, int]] = []
        first = 0
        for task in range(1, self.tasks + 1):
            nodes = self.root_nodes((first, task))
            if task == self.tasks or (nodes.stop - nodes.start) * size > entries:
                runs.append((first, task))
                first = task
        return runs

    def root_nodes(self, block: tuple[int, int]) -> slice:
        """The root nodes that a run of tasks, first and one past the last, touches."""
        first, last = block
        if last == self.tasks:
            return slice(int(self.positions[first, 0]), len(self.roots))
        end = int(self.positions[last, 0]) + int(self.continued[last])
        return slice(int(self.positions[first, 0]), end)

    def contract(self, flat: Any, shifts: Any, widths: Any, block: tuple[int, int]) -> Any:
        """The contraction of a run of tasks with one matrix per level.

        Parameters
        ----------
        flat : the numbers of all matrices
        shifts, widths : (levels,) where row i of a matrix stands: shift + i * width, `width` long
        block : first and one past the last task

        Returns
        -------
        (nodes, product of widths) numbers of the root nodes that the run touches
        """
        from latensor.tensors._kernels import tree_contract

        first, last = block
        nodes = self.root_nodes(block)
        size = int(np.prod(widths[1:]))
        out = np.zeros((nodes.stop - nodes.start, size), flat.dtype)
        spill = np.zeros((last - first, size), flat.dtype)
        tree = self._tree()

        def run(start: int, stop: int) -> None:
            tree_contract(start, stop, *tree, first, nodes.start, flat, shifts, widths, out, spill)

        self._run(block, len(self.values) * (size + 8 * _VISIT), run)
        for task in np.flatnonzero(self.continued[first:last]):
            out[int(self.positions[first + task, 0]) - nodes.start] += spill[task]
        return out

    def _run(self, block: tuple[int, int], work: int, run: Callable[[int, int], None]) -> None:
        from latensor.tensors._kernels import thread_count

        first, last = block
        parallel = last - first > 1 and work >= _PARALLEL_WORK
        threads = min(thread_count(), last - first) if parallel else 1
        if threads == 1:
            run(first, last)
            return
        # A few portions per thread: a thread that is held up leaves its part to the others.
        portion = max(1, (last - first) // (_PORTIONS * threads))
        starts = range(first, last, portion)
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(run, s, min(s + portion, last)) for s in starts]:
                done.result()


class Nonzeros:
    """The nonzeros of a tensor, and the trees that contractions have made of them so far.

    Parameters
    ----------
    rows, values : distinct coordinates in lexicographic order and their values; frozen here
    shape : of the tensor
    """

    def __init__(self, rows: Any, values: Any, shape: tuple[int, ...]) -> None:
        rows.flags.writeable = values.flags.writeable = False
        self.rows, self.values, self.shape = rows, values, shape
        self._by_length: tuple[Any, Any] | None = None
        self._trees: dict[tuple[int, ...], FibreTree] = {}

    def __len__(self) -> int:
        return len(self.values)

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def tree(self, *root_modes: int) -> FibreTree:
        """A tree for contractions that keep `root_modes`.

        Trees with one root mode are kept, and the last two with several, between which rounds of
        higher-order orthogonal iteration go to and fro.
        """
        kept = self._trees.get(root_modes)
        if kept is not None:
            return kept
        ordered = self._by_length
        if ordered is None:
            ordered = sort_rows(self.rows, self.values, by_length(self.shape), self.shape)
            self._by_length = ordered
        several = [roots for roots in list(self._trees) if len(roots) > 1]
        if len(root_modes) > 1 and len(several) > 1:
            self._trees.pop(several[0], None)
        tree = self._trees[root_modes] = build_tree(*ordered, self.shape, root_modes)
        if sum(len(roots) == 1 for roots in list(self._trees)) == self.order:
            self._by_length = None
        return tree


def build_tree(
    rows: Any, values: Any, shape: tuple[int, ...], root_modes: Sequence[int]
) -> FibreTree:
    """A tree with `root_modes` at the root and the other modes below, from short to long.

    Parameters
    ----------
    rows, values : distinct coordinates and values, at least one, in the order of the modes
        `by_length(shape)`
    shape : of the tensor
    root_modes : the modes that the contractions keep, at least one
    """
    roots = list(root_modes)
    rest = [mode for mode in by_length(shape) if mode not in roots]
    levels: tuple[int | None, ...] = tuple(rest) or (None,)
    for mode in reversed(roots):
        rows, values = sort_rows(rows, values, [mode], shape)
    nonzeros = len(values)
    changes = _change_levels(rows, roots, levels)
    depth = len(levels)
    while depth > 1 and nonzeros < _NONZEROS_PER_VISIT * np.count_nonzero(changes < depth):
        depth -= 1
    tasks = 1 if nonzeros < _PARALLEL_NONZEROS else min(_MOST_TASKS, nonzeros // _TASK_NONZEROS)
    first = np.arange(tasks) * nonzeros // tasks
    begins = changes < depth
    begins[first] = True
    starts = np.flatnonzero(begins)
    ends = np.append(changes[starts[1:]], np.uint8(0)).astype(np.int64)
    node_starts = [np.flatnonzero(changes <= level) for level in range(depth)]
    ones_row = sum(shape)
    dtype = np.int32 if ones_row <= 2**31 - 1 else np.int64
    offsets = np.concatenate([[0], np.cumsum(shape)])

    def stack_rows(level: int, which: Any) -> Any:
        mode = levels[level - 1]
        if mode is None:
            return np.full(len(rows[which]), ones_row, dtype)
        return rows[which, mode] + dtype(offsets[mode])

    root_rows = rows[node_starts[0]][:, roots]
    numbers = root_rows[:, 0] if len(roots) == 1 else np.arange(len(root_rows))
    nodes = [numbers, *(stack_rows(level, node_starts[level]) for level in range(1, depth))]
    before = np.cumsum([0, *(len(level) for level in nodes)])
    positions = [
        before[level] + np.searchsorted(node_starts[level], first, "right") - 1
        for level in range(depth)
    ]
    bundles = np.empty((nonzeros, len(levels) + 1 - depth), dtype)
    for level in range(depth, len(levels) + 1):
        bundles[:, level - depth] = stack_rows(level, slice(None))
    return FibreTree(
        levels=levels,
        roots=root_rows,
        values=frozen(values),
        bundles=bundles,
        pointers=np.append(starts, nonzeros),
        closes=np.maximum(0, depth - ends).astype(np.uint8),
        nodes=np.concatenate(nodes).astype(dtype),
        units=np.append(np.searchsorted(starts, first), len(starts)),
        positions=np.stack(positions, axis=1),
        continued=changes[first] > 0,
    )


def by_length(shape: tuple[int, ...]) -> list[int]:
    """The modes from short to long, in which nonzeros share the longest prefixes."""
    return sorted(range(len(shape)), key=lambda mode: shape[mode])


def _change_levels(rows: Any, roots: Sequence[int], levels: tuple[int | None, ...]) -> Any:
    """(nonzeros,) the topmost level in which a nonzero differs from the one before it."""
    changes = np.full(len(rows), len(levels), np.uint8)
    later = changes[1:]
    for level in range(len(levels), 0, -1):
        mode = levels[level - 1]
        if mode is not None:
            np.copyto(later, level, where=rows[1:, mode] != rows[:-1, mode])
    for mode in roots:
        np.copyto(later, 0, where=rows[1:, mode] != rows[:-1, mode])
    changes[:1] = 0
    return changes
