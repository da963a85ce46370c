"""Numba kernels of word moments: counts times a matrix, halves by content, moments from sums.

Plain loops over CSR arrays; the checks are done by the callers. Every call works on a range of
rows and writes to its own place, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def mark_halves(indptr: Any, indices: Any, data: Any, marks: Any) -> None:
    """A bit per document drawn from its content: 64-bit mixing of the words and their counts."""
    for document in range(indptr.size - 1):
        state = np.uint64(0x9E3779B97F4A7C15)
        for p in range(indptr[document], indptr[document + 1]):
            word = np.uint64(indices[p]) * np.uint64(0xBF58476D1CE4E5B9)
            count = np.uint64(np.int64(data[p])) * np.uint64(0x94D049BB133111EB)
            state = (state ^ word ^ count) * np.uint64(0xD6E8FEB86659FD93)
            state ^= state >> np.uint64(32)
        state *= np.uint64(0xD6E8FEB86659FD93)
        marks[document] = (state >> np.uint64(63)) == np.uint64(1)


@compiled()
def times_matrix(
    indptr: Any, indices: Any, data: Any, first: int, last: int, matrix: Any, out: Any
) -> None:
    """Rows first..last-1 of a sparse matrix (n, m) times a matrix (m, r), into out (n, r)."""
    width = matrix.shape[1]
    for i in range(first, last):
        row = out[i]
        row[:] = 0
        p = indptr[i]
        stop = indptr[i + 1]
        # Four at once: each round trip of the row through memory costs as much as their sums.
        while p + 4 <= stop:
            a, b, c, d = data[p], data[p + 1], data[p + 2], data[p + 3]
            first_row = matrix[indices[p]]
            second_row = matrix[indices[p + 1]]
            third_row = matrix[indices[p + 2]]
            fourth_row = matrix[indices[p + 3]]
            for j in range(width):
                row[j] += (
                    a * first_row[j] + b * second_row[j] + c * third_row[j] + d * fourth_row[j]
                )
            p += 4
        while p < stop:
            count = data[p]
            other = matrix[indices[p]]
            for j in range(width):
                row[j] += count * other[j]
            p += 1


@compiled()
def add_times_matrix(
    indptr: Any, indices: Any, data: Any, first: int, last: int, matrix: Any, out: Any
) -> None:
    """Add rows first..last-1 of a sparse matrix (n, m) times a matrix (m, r) to out (n, r)."""
    width = matrix.shape[1]
    row = np.zeros(width, matrix.dtype)
    for i in range(first, last):
        if indptr[i] == indptr[i + 1]:
            continue
        row[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            count = data[p]
            other = matrix[indices[p]]
            for j in range(width):
                row[j] += count * other[j]
        place = out[i]
        for j in range(width):
            place[j] += row[j]


@compiled()
def count_triples(indptr: Any, indices: Any, weights: Any, out: Any) -> None:
    """Add the weight of every row to its triples a < b < c of columns, at C(c,3) + C(b,2) + a."""
    for row in range(indptr.size - 1):
        weight = weights[row]
        start = indptr[row]
        for r in range(start + 2, indptr[row + 1]):
            c = indices[r]
            outer = c * (c - 1) * (c - 2) // 6
            for q in range(start + 1, r):
                b = indices[q]
                place = outer + b * (b - 1) // 2
                for p in range(start, q):
                    out[place + indices[p]] += weight
