"""Numba kernels of block models: what the edges of a node say about its communities."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def join_pieces(labels: Any, ends: Any, others: Any) -> None:
    """Labels (n,), at most the number of the node, of pieces that edges (m,), (m,) join.

    The label of a piece is its smallest node, before and after.
    """
    for e in range(ends.shape[0]):
        a, b = ends[e], others[e]
        while labels[a] != a:
            labels[a] = labels[labels[a]]
            a = labels[a]
        while labels[b] != b:
            labels[b] = labels[labels[b]]
            b = labels[b]
        if a < b:
            labels[b] = a
        else:
            labels[a] = b
    for i in range(labels.shape[0]):
        labels[i] = labels[labels[i]]


@compiled()
def sum_by_part(
    pointers: Any,
    columns: Any,
    values: Any,
    places: Any,
    part: Any,
    right: Any,
    own: Any,
    others: Any,
) -> None:
    """Sums of A_ij R_j over the nodes j of every part, and of A_ij R_i for the other end.

    Parameters
    ----------
    pointers, columns, values : rows of the adjacency in CSR
    places : (b,), the nodes of the rows; loops are left out
    part : (n,), the part of every node
    right : (n, q) R
    own : (b, parts, q), added to
    others : (n, parts, q), added to where edges have a direction; otherwise of no rows
    """
    directed = others.shape[0] > 0
    for i in range(pointers.shape[0] - 1):
        place = places[i]
        for e in range(pointers[i], pointers[i + 1]):
            j = columns[e]
            if j == place:
                continue
            for l in range(right.shape[1]):  # noqa: E741
                own[i, part[j], l] += values[e] * right[j, l]
            if directed:
                for l in range(right.shape[1]):  # noqa: E741
                    others[j, part[place], l] += values[e] * right[place, l]


@compiled()
def explain_edges(
    pointers: Any,
    columns: Any,
    values: Any,
    places: Any,
    turned: Any,
    weights: Any,
    fractions: Any,
    logs: Any,
    into: Any,
) -> None:
    """Z_i = sum_j A_ij W_j / r_ij (b, k) and sum_j A_ij log r_ij (b,), r_ij = W_i' B W_j.

    Parameters
    ----------
    pointers, columns, values, places : as for `sum_by_part`
    turned : (b, k), B' W_i of the rows
    weights : (n, k) W
    fractions, logs : written
    into : (n, k), A_ij B' W_i / r_ij is added to row j where edges have a direction; otherwise of
        no rows
    """
    k = turned.shape[1]
    directed = into.shape[0] > 0
    for i in range(pointers.shape[0] - 1):
        total = 0.0
        for l in range(k):  # noqa: E741
            fractions[i, l] = 0.0
        for e in range(pointers[i], pointers[i + 1]):
            j = columns[e]
            if j == places[i]:
                continue
            rate = 1e-300
            for l in range(k):  # noqa: E741
                rate += turned[i, l] * weights[j, l]
            scale = values[e] / rate
            for l in range(k):  # noqa: E741
                fractions[i, l] += scale * weights[j, l]
            if directed:
                for l in range(k):  # noqa: E741
                    into[j, l] += scale * turned[i, l]
            total += values[e] * np.log(rate)
        logs[i] = total
