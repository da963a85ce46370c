"""How far moments of samples and tensors of noise stray, in spectral norm (monograph 6.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError


def gaussian_norm_bound(shape: Sequence[int], failure: float = 0.01) -> float:
    """What the spectral norm of a tensor of standard normal entries stays below (Corollary 6.1).

    sum_m sqrt(d_m) + sqrt(2 log(1 / failure)), with probability 1 - `failure` at least: the mean is
    at most the sum by comparison with a sum of independent linear forms (Sudakov and Fernique), and
    the norm is a function of the entries with Lipschitz constant one.

    Parameters
    ----------
    shape : dimensions
    failure : float in (0, 1)
    """
    _check_probability(failure)
    dimensions = [check_positive_int(d, "shape") for d in shape]
    return sum(map(sqrt, dimensions)) + sqrt(2.0 * log(1.0 / failure))


def cross_moment_rate(dimension: int, n_samples: int) -> float:
    """The order of the error of a third cross moment of n samples with unit noise (Corollary 6.2).

    sqrt(d / n) + d^(3/2) / n, without constants and logarithms: the first term as printed, the
    second one as it is needed for n below d^2 (see the errata of the page on theory).

    Parameters
    ----------
    dimension : int, of every view
    n_samples : int
    """
    d = check_positive_int(dimension, "dimension")
    n = check_positive_int(n_samples, "n_samples")
    return sqrt(d / n) + d * sqrt(d) / n


def _check_probability(failure: float) -> None:
    if not 0.0 < failure < 1.0:
        raise InvalidInputError(f"failure={failure!r} must be a probability between 0 and 1")
