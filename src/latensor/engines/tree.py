"""The fixed tree in which partitions are merged, whoever has folded them and in what order.

Partition i is leaf (0, i); (level, 2 i) and (level, 2 i + 1) merge into (level + 1, i). This is the
tree of `Merging`, so that partitions give the same bits here and on workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from latensor.arrays.threads import one_blas_thread
from latensor.engines.local import Merging, fill, fold_leaf, leaves
from latensor.moments.batch import Batch

Nodes = dict[tuple[int, int], Any]
# How much longer than equal ones a group of leaves may be.
_LONGEST = 1.1
# Messages that one task merges: few levels, and no worker holds more than so many.
FAN_IN = 8


def fold_blocks(start: Any, blocks: Iterable[Batch], size: int) -> Any:
    """What an accumulator becomes over canonical blocks of one shard, in one thread."""
    with one_blas_thread():
        if start.threads_inside:
            found = fill(start, blocks)
        else:
            merging = Merging()
            for leaf in leaves(iter(blocks), size):
                merging.add(fold_leaf(start, leaf))
            found = merging.total(start)
    # As it will travel: partitions that meet on one worker give the same bits as others.
    return start.received(found.message())


def joined(nodes: Iterable[Mapping[tuple[int, int], Any]]) -> Nodes:
    """Nodes of several workers, neighbours merged as far as they are there."""
    found: Nodes = {}
    waiting = [item for part in nodes for item in part.items()]
    while waiting:
        (level, index), value = waiting.pop()
        neighbour = found.pop((level, index ^ 1), None)
        if neighbour is None:
            found[level, index] = value
            continue
        left, right = (value, neighbour) if index % 2 == 0 else (neighbour, value)
        waiting.append(((level + 1, index // 2), left.merge(right)))
    return found


def total(nodes: Nodes, n_leaves: int, start: Any) -> Any:
    """All leaves merged; those that are not there have seen nothing."""
    values = []
    first = 0
    for level in reversed(range(n_leaves.bit_length())):
        if n_leaves >> level & 1:
            values.append(_at(nodes, level, first >> level))
            first += 1 << level
    present = [value for value in values if value is not None]
    while len(present) > 1:
        present[-2:] = [present[-2].merge(present[-1])]
    return present[0] if present else start.empty()


def _at(nodes: Nodes, level: int, index: int) -> Any:
    if (level, index) in nodes:
        return nodes[level, index]
    if level == 0:
        return None
    left, right = (_at(nodes, level - 1, 2 * index + side) for side in (0, 1))
    if left is None or right is None:
        return right if left is None else left
    return left.merge(right)


def aligned_groups(n_leaves: int, n_groups: int) -> list[range]:
    """Leaves in at most `n_groups` runs of nearly equal length, cut where large subtrees end.

    A run that is a few whole subtrees is sent as a few messages; no run is more than a tenth longer
    than equal ones would be, because all wait for the longest.
    """
    count = min(n_groups, n_leaves)
    equal = n_leaves / count if count else 0.0
    edges = [round(number * equal) for number in range(count + 1)]
    step = 2
    while step < equal:
        wider = [min(round(edge / step) * step, n_leaves) for edge in edges[:-1]] + [n_leaves]
        if max(b - a for a, b in itertools.pairwise(wider)) > _LONGEST * equal:
            break
        edges, step = wider, 2 * step
    return [range(a, b) for a, b in itertools.pairwise(edges) if b > a]
