"""The lifted tensor of order 4 of a symmetric tensor of order 3 (monograph 7.3.1)."""

from __future__ import annotations

from latensor.arrays import Array, check_finite, resolve
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.size import MAX_SIZE, check_size


@with_guests
def lift(tensor: object, *, max_size: int = MAX_SIZE) -> Array:
    """A tensor of order 4 near sum_j |a_j|^2 a_j^(x)4 from T = sum_j a_j^(x)3 (monograph 7.3.1).

    M(T)[i, j, k, l] = sum_m T[m, i, j] T[m, k, l]. What it has beyond the sum,
    sum_{i /= j} <a_i, a_j> a_i (x) a_i (x) a_j (x) a_j, vanishes for orthogonal components and
    grows with their number: as a start it is worth little. The power method on it finds few of
    k = d random components and almost none of more, and the methods for order 4 take the excess
    for noise. `lt.decompose` of the tensor itself does better.

    Parameters
    ----------
    tensor : (d, d, d) array of any library, symmetric
    max_size : int, more entries than this are refused

    Returns
    -------
    (d, d, d, d) array, symmetric within the first and the last pair of modes and between them

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> vector = np.array([1.0, 0.0, 0.0])
    >>> lt.lift(lt.outer([vector] * 3)).shape
    (3, 3, 3, 3)

    Of orthogonal components the lifted decomposition is that of the tensor:

    >>> basis = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0][:, :4]
    >>> lifted = lt.lift(lt.CPTensor(None, [basis] * 3).to_dense())
    >>> found = lt.decompose(lifted, 4, symmetric=True, random_state=0)
    >>> round(lt.match(found, lt.CPTensor(None, [basis] * 4)).score, 6)
    1.0
    """
    xp, arrays = resolve(tensor=tensor)
    array = arrays["tensor"]
    if array.ndim != 3 or len(set(array.shape)) > 1:
        raise InvalidInputError(
            f"tensor has shape {tuple(array.shape)}, but lift is for symmetric tensors of order 3, "
            "whose three dimensions are equal"
        )
    dimension = int(array.shape[0])
    check_size((dimension,) * 4, array.dtype, max_size, "the lifted tensor")
    flat = xp.reshape(array, (dimension, dimension * dimension))
    lifted = xp.reshape(xp.matmul(xp.permute_dims(flat, (1, 0)), flat), (dimension,) * 4)
    return check_finite(lifted, tensor=array)
