"""How close two components come: the coherence of a factor."""

from __future__ import annotations

from latensor.arrays import check_finite, require_matrix, resolve
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError


@with_guests
def coherence(factor: object) -> float:
    """The largest |cosine| of two different columns, 0 for orthogonal and 1 for parallel ones.

    max_{i /= j} |a_i'a_j| / (|a_i| |a_j|): what conditions on incoherent components ask to be small
    (monograph 7.4); for k random directions in dimension d it is about sqrt(4 log(k) / d).

    Parameters
    ----------
    factor : (d, k) array of any library, k at least 2, columns not zero

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> float(lt.coherence(np.eye(3)))
    0.0
    """
    xp, arrays = resolve(factor=factor)
    matrix = arrays["factor"]
    require_matrix(matrix, "factor")
    if matrix.shape[1] < 2:
        raise InvalidInputError(
            f"factor has {matrix.shape[1]} column: coherence compares two of them"
        )
    # Columns by their largest entry first, so that squares stay in range.
    largest = xp.max(xp.abs(matrix), axis=0)
    if not bool(xp.all(largest > 0)):
        check_finite(largest, factor=matrix)
        raise InvalidInputError("factor has a column of zeros, which has no direction")
    matrix = matrix / largest[None, :]
    units = matrix / xp.linalg.vector_norm(matrix, axis=0)[None, :]
    cosines = xp.abs(xp.matmul(xp.conj(xp.permute_dims(units, (1, 0))), units))
    apart = cosines * (1.0 - xp.eye(cosines.shape[0], dtype=cosines.dtype))
    found = float(xp.max(check_finite(apart, factor=matrix)))
    return min(found, 1.0)
