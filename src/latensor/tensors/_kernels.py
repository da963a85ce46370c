"""Numba kernels of sparse tensors: sorting coordinates, contracting fibre trees, reading numbers.

Plain loops over arrays; the checks are done by the callers. The loops over a tree run over tasks
first..last-1 of a partition that is part of the tree, so that the same sums are made in the same
order whichever thread takes which task; they hold no lock and are run from several threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from latensor.arrays._kernels import compiled


def thread_count() -> int:
    """How many threads the caller allows: `numba.set_num_threads` or NUMBA_NUM_THREADS."""
    return int(numba.get_num_threads())


@compiled()
def scatter_rows(
    rows: Any, values: Any, column: int, shift: int, mask: int, rows_out: Any, values_out: Any
) -> None:
    """One stable counting sort of coordinate rows and their values, by digits of one column."""
    starts = np.zeros(mask + 2, np.int64)
    n, order = rows.shape
    for i in range(n):
        starts[((rows[i, column] >> shift) & mask) + 1] += 1
    for b in range(mask):
        starts[b + 1] += starts[b]
    for i in range(n):
        digit = (rows[i, column] >> shift) & mask
        at = starts[digit]
        starts[digit] = at + 1
        for m in range(order):
            rows_out[at, m] = rows[i, m]
        values_out[at] = values[i]


@compiled()
def _add_ones(values: Any, bundles: Any, first: int, last: int, stack: Any, target: Any) -> None:
    """Add to target the sum of value * row, four nonzeros at a time.

    Four at once because each round trip of `target` through memory costs as much as the
    arithmetic of four rows.
    """
    p = first
    while p + 4 <= last:
        v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
        a0, a1 = stack[bundles[p, 0]], stack[bundles[p + 1, 0]]
        a2, a3 = stack[bundles[p + 2, 0]], stack[bundles[p + 3, 0]]
        for r in range(target.size):
            target[r] += v0 * a0[r] + v1 * a1[r] + v2 * a2[r] + v3 * a3[r]
        p += 4
    while p < last:
        v0, a0 = values[p], stack[bundles[p, 0]]
        for r in range(target.size):
            target[r] += v0 * a0[r]
        p += 1


@compiled()
def _add_pairs(values: Any, bundles: Any, first: int, last: int, stack: Any, target: Any) -> None:
    """Add to target the sum of value * product of two rows, four nonzeros at a time."""
    p = first
    while p + 4 <= last:
        v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
        a0, b0 = stack[bundles[p, 0]], stack[bundles[p, 1]]
        a1, b1 = stack[bundles[p + 1, 0]], stack[bundles[p + 1, 1]]
        a2, b2 = stack[bundles[p + 2, 0]], stack[bundles[p + 2, 1]]
        a3, b3 = stack[bundles[p + 3, 0]], stack[bundles[p + 3, 1]]
        for r in range(target.size):
            target[r] += (
                (v0 * a0[r]) * b0[r]
                + (v1 * a1[r]) * b1[r]
                + (v2 * a2[r]) * b2[r]
                + (v3 * a3[r]) * b3[r]
            )
        p += 4
    while p < last:
        v0, a0, b0 = values[p], stack[bundles[p, 0]], stack[bundles[p, 1]]
        for r in range(target.size):
            target[r] += (v0 * a0[r]) * b0[r]
        p += 1


@compiled()
def _add_bundles(
    values: Any, bundles: Any, first: int, last: int, stack: Any, product: Any, target: Any
) -> None:
    """Add to target the sum of value * product of three or more rows."""
    size = bundles.shape[1]
    for p in range(first, last):
        v, a = values[p], stack[bundles[p, 0]]
        b, c = stack[bundles[p, 1]], stack[bundles[p, 2]]
        if size == 3:
            for r in range(target.size):
                target[r] += ((v * a[r]) * b[r]) * c[r]
            continue
        for r in range(target.size):
            product[r] = ((v * a[r]) * b[r]) * c[r]
        for j in range(3, size - 1):
            a = stack[bundles[p, j]]
            for r in range(target.size):
                product[r] *= a[r]
        a = stack[bundles[p, size - 1]]
        for r in range(target.size):
            target[r] += product[r] * a[r]


@compiled()
def tree_mttkrp(
    first: int,
    last: int,
    values: Any,
    bundles: Any,
    pointers: Any,
    closes: Any,
    nodes: Any,
    units: Any,
    positions: Any,
    continued: Any,
    stack: Any,
    out: Any,
    spill: Any,
) -> None:
    """Mttkrp of tasks first..last-1 of a fibre tree; the arrays are described at `FibreTree`.

    A task whose first slice was begun by the task before puts its part of it into `spill`, so
    that each row of `out` is written by one task only.
    """
    depth = positions.shape[1]
    partial = np.zeros((depth, out.shape[1]), out.dtype)
    for task in range(first, last):
        position = positions[task].copy()
        target = spill[task] if continued[task] else out[nodes[position[0]]]
        end = units[task + 1]
        for u in range(units[task], end):
            bottom = target if depth == 1 else partial[depth - 1]
            p, q = pointers[u], pointers[u + 1]
            if bundles.shape[1] == 1:
                _add_ones(values, bundles, p, q, stack, bottom)
            elif bundles.shape[1] == 2:
                _add_pairs(values, bundles, p, q, stack, bottom)
            else:
                _add_bundles(values, bundles, p, q, stack, partial[0], bottom)
            closing = depth if u + 1 == end else closes[u]
            for c in range(closing):
                level = depth - 1 - c
                if level == 0:
                    position[0] += 1
                    if u + 1 < end:
                        target = out[nodes[position[0]]]
                    continue
                upper = target if level == 1 else partial[level - 1]
                lower = partial[level]
                row = stack[nodes[position[level]]]
                for r in range(lower.size):
                    upper[r] += row[r] * lower[r]
                    lower[r] = 0
                position[level] += 1


@compiled()
def tree_contract(
    first: int,
    last: int,
    values: Any,
    bundles: Any,
    pointers: Any,
    closes: Any,
    nodes: Any,
    units: Any,
    positions: Any,
    continued: Any,
    task_origin: int,
    root_origin: int,
    flat: Any,
    shifts: Any,
    widths: Any,
    out: Any,
    spill: Any,
) -> None:
    """Contraction of tasks first..last-1 of a fibre tree with one matrix per level.

    Row i of the matrix of level l stands in `flat` from shifts[l] + i * widths[l]. A fibre is
    summed with the leaf matrix, the result goes by outer product with a row of the matrix above
    to the node there, and so on up to the root, whose numbers fill a row of `out`. The rows of
    `out` count from root node `root_origin`, those of `spill` from task `task_origin`.
    """
    depth = positions.shape[1]
    leaf = widths.size - 1
    sizes = np.ones(leaf + 1, np.int64)
    offsets = np.zeros(leaf + 1, np.int64)
    for level in range(leaf - 1, -1, -1):
        sizes[level] = sizes[level + 1] * widths[level + 1]
    for level in range(1, leaf):
        offsets[level + 1] = offsets[level] + sizes[level]
    partial = np.zeros(offsets[leaf], out.dtype)
    for task in range(first, last):
        position = positions[task].copy()
        target = spill[task - task_origin] if continued[task] else out[position[0] - root_origin]
        end = units[task + 1]
        for u in range(units[task], end):
            for p in range(pointers[u], pointers[u + 1]):
                start = shifts[leaf] + bundles[p, leaf - depth] * widths[leaf]
                bottom = target if leaf == 1 else partial[offsets[leaf - 1] : offsets[leaf]]
                row = flat[start : start + widths[leaf]]
                value = values[p]
                for b in range(bottom.size):
                    bottom[b] += value * row[b]
                if p + 1 < pointers[u + 1]:
                    top = depth
                    while top < leaf and bundles[p, top - depth] == bundles[p + 1, top - depth]:
                        top += 1
                else:
                    top = 0 if u + 1 == end else depth - closes[u]
                for level in range(leaf - 1, top - 1, -1):
                    if level == 0:
                        position[0] += 1
                        if u + 1 < end:
                            target = out[position[0] - root_origin]
                        continue
                    if level < depth:
                        node = nodes[position[level]]
                        position[level] += 1
                    else:
                        node = bundles[p, level - depth]
                    upper = target if level == 1 else partial[offsets[level - 1] : offsets[level]]
                    lower = partial[offsets[level] : offsets[level + 1]]
                    start = shifts[level] + node * widths[level]
                    for a in range(widths[level]):
                        scale = flat[start + a]
                        piece = upper[a * lower.size : (a + 1) * lower.size]
                        for b in range(lower.size):
                            piece[b] += scale * lower[b]
                    lower[:] = 0


_LINE_END, _COMMENT, _POINT = 10, 35, 46  # "\n", "#", "."


@compiled()
def _read_number(text: Any, at: int, stop: int) -> tuple[bool, bool, int, int, int]:
    """A decimal number from `at`: (is one, is negative, digits, power of ten, where it ends).

    `digits` has no trailing zeros. Numbers of more than 18 digits are not read.
    """
    negative = False
    if at < stop and (text[at] == 43 or text[at] == 45):
        negative = text[at] == 45
        at += 1
    digits, power, zeros, seen, used, fraction = 0, 0, 0, 0, 0, False
    while at < stop:
        code = text[at]
        if code == _POINT and not fraction:
            fraction = True
        elif 48 <= code <= 57:
            seen += 1
            power -= fraction
            if code == 48:
                zeros += 1
            else:
                # Zeros before the first digit carry nothing, those in between are made up here.
                steps = (zeros if digits else 0) + 1
                used += steps
                if used > 18:
                    return False, negative, 0, 0, at
                for _ in range(steps):
                    digits *= 10
                digits += code - 48
                zeros = 0
        else:
            break
        at += 1
    if seen == 0:
        return False, negative, 0, 0, at
    if at < stop and (text[at] == 69 or text[at] == 101):
        at += 1
        down = False
        if at < stop and (text[at] == 43 or text[at] == 45):
            down = text[at] == 45
            at += 1
        begin, exponent = at, 0
        while at < stop and 48 <= text[at] <= 57 and exponent < 10000:
            exponent = 10 * exponent + (text[at] - 48)
            at += 1
        if at == begin:
            return False, negative, 0, 0, at
        power += -exponent if down else exponent
    return True, negative, digits, (power + zeros if digits else 0), at


@compiled()
def _split(x: float) -> tuple[float, float]:
    """A number as a sum of two whose products with their like are exact."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


@compiled()
def _decimal(digits: int, power: int, powers: Any) -> tuple[bool, float]:
    """The number nearest to digits * 10^power, for |power| <= 22, and whether that is certain.

    Computed with about 100 bits; a value too near the middle between two numbers is uncertain.
    """
    scale = powers[abs(power)]
    lead = float(digits)
    tail = float(digits - int(lead))
    near = lead * scale if power >= 0 else lead / scale
    a, b = _split(lead if power >= 0 else near)
    c, d = _split(scale)
    product = near if power >= 0 else near * scale
    error = ((a * c - product) + a * d + b * c) + b * d
    rest = error + tail * scale if power >= 0 else ((lead - product) - error + tail) / scale
    value = near + rest
    left = (near - value) + rest
    doubt = abs(value) * 2.0**-95
    return value + (left + doubt) == value and value + (left - doubt) == value, value


@compiled()
def _is_blank(code: int) -> bool:
    """Whether a byte parts words: tab, vertical tab, form feed, carriage return or space."""
    return code == 32 or code == 9 or 11 <= code <= 13


@compiled()
def _ends_word(code: int) -> bool:
    return code == _LINE_END or _is_blank(code)


@compiled()
def _skip_spaces(text: Any, at: int, stop: int) -> int:
    while at < stop and _is_blank(text[at]):
        at += 1
    return at


@compiled()
def read_lines(
    text: Any, powers: Any, start: int, indices: Any, values: Any, hard: Any
) -> tuple[int, int, int, int]:
    """Lines of indices and a value from `start` on, up to the first line that is anything else.

    Blank lines and comments are passed over. A value of many digits or a large exponent, whose
    nearest number is uncertain, is noted in `hard` as (row, begin, end) for the caller.

    Returns
    -------
    rows read, values noted, lines passed, where the reading stopped
    """
    stop, order = text.size, indices.shape[1]
    rows, noted, lines, at = 0, 0, 0, start
    while at < stop:
        line = at
        at = _skip_spaces(text, at, stop)
        if at < stop and text[at] != _LINE_END and text[at] != _COMMENT:
            if rows == values.size:
                return rows, noted, lines, line
            for m in range(order):
                good, negative, digits, power, at = _read_number(text, at, stop)
                if not good or negative or power < 0 or power > 18 or at >= stop:
                    return rows, noted, lines, line
                if not _ends_word(text[at]):
                    return rows, noted, lines, line
                for _ in range(power):
                    if digits > 900_000_000_000_000_000:
                        return rows, noted, lines, line
                    digits *= 10
                indices[rows, m] = digits
                at = _skip_spaces(text, at, stop)
            begin = at
            good, negative, digits, power, at = _read_number(text, at, stop)
            value = 0.0
            if good:
                good = -22 <= power <= 22
            if good:
                good, value = _decimal(digits, power, powers)
                values[rows] = -value if negative else value
            if not good:
                while at < stop and not _ends_word(text[at]):
                    at += 1
                hard[noted, 0], hard[noted, 1], hard[noted, 2] = rows, begin, at
                noted += 1
            if at == begin or (at < stop and not _ends_word(text[at])):
                return rows, noted, lines, line
            at = _skip_spaces(text, at, stop)
            if at < stop and text[at] != _LINE_END and text[at] != _COMMENT:
                return rows, noted, lines, line
            rows += 1
        while at < stop and text[at] != _LINE_END:
            at += 1
        at += 1
        lines += 1
    return rows, noted, lines, stop
