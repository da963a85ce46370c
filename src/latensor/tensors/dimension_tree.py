"""Mttkrps of all modes that share their work: a dimension tree with memory.

The modes are split in two halves, each half again, down to single modes. The value of a node is
the tensor with all modes outside the node summed against their factors. A node is computed from
its parent, and kept until a factor outside it changes: a sweep over the modes in order touches
the full tensor twice, for any order, where separate mttkrps touch it once per mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latensor.arrays import Array, Namespace, check_finite, check_mode
from latensor.tensors.dense import contract_back, contract_front, sum_back, sum_front, transposed
from latensor.tensors.operands import check_replacement


@dataclass
class _Node:
    value: Array  # (rank, entries of the node's modes)
    versions: tuple[int, ...]  # of all factors when it was computed


class DimensionTree:
    """See the head of this file, and `Sweep` for the protocol.

    Parameters
    ----------
    xp : array namespace
    flat : (entries,) array in row-major order
    shape : of the tensor
    factors : one (d, rank) matrix per mode
    """

    def __init__(
        self, xp: Namespace, flat: Array, shape: tuple[int, ...], factors: Sequence[Array]
    ) -> None:
        self._xp = xp
        self._flat = flat
        self._shape = shape
        self._factors = list(factors)
        self._rows = [transposed(xp, factor) for factor in factors]
        self._versions = [0] * len(shape)
        self._nodes: dict[tuple[int, int], _Node] = {}

    def mttkrp(self, mode: int) -> Array:
        """The mttkrp of `mode` with the current factors of the other modes."""
        mode = check_mode(mode, len(self._shape))
        result = self._xp.permute_dims(self._leaf(mode), (1, 0))
        others = [None if m == mode else factor for m, factor in enumerate(self._factors)]
        return check_finite(
            result, tensor=self._xp.reshape(self._flat, self._shape), factors=others
        )

    def _leaf(self, mode: int) -> Array:
        """The (rank, d) value of a single mode, from the nodes above it."""
        start, stop = 0, len(self._shape)
        if stop == 1:
            return self._xp.ones_like(self._rows[0]) * self._flat[None, :]
        parent: Array | None = None
        while stop - start > 1:
            middle = self._split(start, stop)
            child = (start, middle) if mode < middle else (middle, stop)
            parent = self._value(child, (start, stop), parent)
            start, stop = child
        return parent

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        mode, factor = check_replacement(mode, factor, self._factors)
        self._factors[mode] = factor
        self._rows[mode] = transposed(self._xp, factor)
        self._versions[mode] += 1

    def _split(self, start: int, stop: int) -> int:
        """Where to part a range of modes: both halves together as small as can be."""
        return min(
            range(start + 1, stop),
            key=lambda m: math.prod(self._shape[start:m]) + math.prod(self._shape[m:stop]),
        )

    def _value(self, child: tuple[int, int], own: tuple[int, int], parent: Array | None) -> Array:
        start, stop = child
        outside = tuple(self._versions[:start] + self._versions[stop:])
        node = self._nodes.get(child)
        if node is None or node.versions != outside:
            node = _Node(self._contract(child, own, parent), outside)
            self._nodes[child] = node
        return node.value

    def _contract(
        self, child: tuple[int, int], own: tuple[int, int], parent: Array | None
    ) -> Array:
        xp, size = self._xp, math.prod(self._shape[child[0] : child[1]])
        if child[0] == own[0]:
            away = self._rows[child[1] : own[1]]
            rest = math.prod(self._shape[child[1] : own[1]])
            if parent is None:
                return contract_back(xp, self._flat, rest, away, self._rows)
            return sum_back(xp, parent, size, away)
        away = self._rows[own[0] : child[0]]
        rest = math.prod(self._shape[own[0] : child[0]])
        if parent is None:
            return contract_front(xp, self._flat, rest, away)
        return sum_front(xp, parent, size, away)
