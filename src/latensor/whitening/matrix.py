"""Whitening of a second moment, and its principal directions (monograph 2.3, 2.4, 3.4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.arrays import Array, is_traced, machine_epsilon, to_host
from latensor.arrays.factorization import Eigenpairs, leading_eigenpairs
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError, RankDeficientError


@dataclass(frozen=True)
class Whitening:
    """A change of coordinates that turns a second moment M into diag(sign(spectrum)).

    `projection` W (d, rank) whitens: z = W' x has second moment W' M W. `lift` (d, rank) undoes
    it: lift' W = I, and lift W' is the projection onto the span. `spectrum` (rank,) holds the
    eigenvalues of M in decreasing magnitude.
    """

    projection: Array
    lift: Array
    spectrum: Array

    @property
    def rank(self) -> int:
        """The number of whitened coordinates."""
        return int(self.spectrum.shape[0])

    @property
    def condition(self) -> float:
        """The ratio of the largest to the smallest eigenvalue kept, in magnitude."""
        magnitudes = np.abs(to_host(self.spectrum))
        return float(magnitudes[0] / magnitudes[-1])


@with_guests
def whiten(second_moment: object, rank: int) -> Whitening:
    """Coordinates in which a second moment becomes the identity (monograph 2.4, 3.4.3).

    With M = U diag(g) U', keeps the `rank` eigenpairs that are largest in magnitude and returns
    W = U |g|^-1/2, so that W' M W = diag(sign(g)): the identity where M is positive.

    Parameters
    ----------
    second_moment : (d, d) array of any library, SciPy sparse or LinearOperator; symmetric
    rank : int, at most the numerical rank of `second_moment`; JAX arrays that are being traced have
        no numbers yet, and are not checked

    Returns
    -------
    Whitening, with `projection` W (d, rank), `lift` U |g|^1/2 (d, rank) and `spectrum` g.

    Raises
    ------
    RankDeficientError, whose attributes are the `spectrum` found, the `threshold` below which an
    eigenvalue counts as zero and the largest `usable_rank`.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> found = lt.whiten(np.diag([4.0, 1.0, 0.0]), 2)
    >>> found.projection.shape
    (3, 2)
    """
    try:
        spectrum, vectors = leading_eigenpairs(second_moment, rank)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("matrix", "second_moment")) from error
    magnitudes = abs(spectrum)
    if not is_traced(spectrum):
        found = np.abs(to_host(spectrum))
        threshold = vectors.shape[0] * machine_epsilon(spectrum) * float(found[0])
        if not found[-1] > threshold:
            raise _rank_deficient(to_host(spectrum), threshold, rank)
    root = magnitudes**0.5
    return Whitening(vectors / root, vectors * root, spectrum)


def _rank_deficient(spectrum: np.ndarray, threshold: float, rank: int) -> RankDeficientError:
    magnitudes = np.abs(spectrum)
    usable = int((magnitudes > threshold).sum())
    largest = float(magnitudes[0])
    if usable:
        reason = f"eigenvalue {usable + 1} is {magnitudes[usable] / largest:.1e} of the largest"
        remedy = f"lower rank to {usable} or give more samples"
    else:
        reason = "all its eigenvalues are zero"
        remedy = "give samples that vary"
    return RankDeficientError(
        f"rank={rank} exceeds the {usable} directions that second_moment supports ({reason}, "
        f"the threshold is {threshold:.1e}): {remedy}",
        spectrum,
        threshold,
        usable,
    )


def principal_directions(covariance: object, rank: int) -> Eigenpairs:
    """The directions of largest variance, as the columns of an orthonormal matrix (monograph 2.3).

    Parameters
    ----------
    covariance : (d, d) array of any library, SciPy sparse or LinearOperator; symmetric and
        positive semi-definite
    rank : int, at most d

    Returns
    -------
    Eigenpairs, `values` (rank,) the variances in decreasing order and `vectors` (d, rank).
    """
    values, vectors = leading_eigenpairs(covariance, rank)
    smallest, largest = float(values.min()), float(abs(values[0]))
    if smallest < -(machine_epsilon(values) ** 0.5) * largest:
        raise InvalidInputError(
            f"covariance has a negative eigenvalue ({smallest:.2e}, the largest is "
            f"{largest:.2e}): a covariance is positive semi-definite; whiten takes any sign"
        )
    return Eigenpairs(values * (values > 0), vectors)
