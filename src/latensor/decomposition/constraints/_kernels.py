"""Compiled loops of the constraints: isotonic regression by pooling adjacent violators."""

from __future__ import annotations

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def isotonic_prefixes(
    values: np.ndarray, floor: float, levels: np.ndarray, counts: np.ndarray, errors: np.ndarray
) -> int:
    """The increasing sequence nearest to `values`, and the squared error of that of every prefix.

    Blocks of equal level are kept on a stack; a new value joins those before it while they are
    higher. Levels below `floor` are raised to it, which is the nearest sequence at or above it.

    Parameters
    ----------
    values : (n,) array
    floor : float, least level allowed; -inf for none
    levels, counts : (n,) arrays, overwritten by the blocks of the whole
    errors : (n + 1,) array, overwritten by the squared errors of the first 0, 1, ..., n values

    Returns
    -------
    int, the number of blocks
    """
    n = values.shape[0]
    squares = np.empty(n)
    below = np.empty(n + 1)
    below[0] = 0.0
    errors[0] = 0.0
    blocks = 0
    for i in range(n):
        level = values[i]
        count = 1.0
        # Sum of squared deviations from the level inside the block.
        square = 0.0
        while blocks > 0 and levels[blocks - 1] >= level:
            blocks -= 1
            total = count + counts[blocks]
            gap = level - levels[blocks]
            square += squares[blocks] + gap * gap * count * counts[blocks] / total
            level = levels[blocks] + gap * count / total
            count = total
        levels[blocks] = level
        counts[blocks] = count
        squares[blocks] = square
        lift = max(floor - level, 0.0)
        below[blocks + 1] = below[blocks] + square + count * lift * lift
        blocks += 1
        errors[i + 1] = below[blocks]
    return blocks
