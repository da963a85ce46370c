"""What latensor raises and warns about: two families of errors, one warning."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class InvalidInputError(ValueError):
    """An argument that cannot be used as given; the text names it and says what was expected.

    Examples
    --------
    >>> import latensor as lt
    >>> try:
    ...     lt.decompose([[1.0, float("nan")]], 1)
    ... except lt.InvalidInputError as error:
    ...     print("NaN" in str(error))
    True
    """


class InvalidTypeError(InvalidInputError, TypeError):
    """Values of a type that cannot be read; scikit-learn raises a TypeError there."""


class NotIdentifiableError(ValueError):
    """Valid input from which the requested answer cannot be determined.

    Examples
    --------
    >>> import latensor as lt
    >>> issubclass(lt.NotIdentifiableError, ValueError)
    True
    """


class RankDeficientError(NotIdentifiableError):
    """A matrix supports fewer directions than were asked for.

    Attributes
    ----------
    spectrum : array of the eigenvalues or singular values that were found
    threshold : float, magnitudes up to this count as zero
    usable_rank : int, the largest rank that can be asked for

    Examples
    --------
    >>> import latensor as lt
    >>> issubclass(lt.RankDeficientError, lt.NotIdentifiableError)
    True
    """

    def __init__(
        self,
        message: str,
        spectrum: Any = None,
        threshold: float | None = None,
        usable_rank: int | None = None,
    ) -> None:
        super().__init__(message)
        self.spectrum = spectrum
        self.threshold = threshold
        self.usable_rank = usable_rank

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.spectrum, self.threshold, self.usable_rank)


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it met its tolerance; the result is the best found so far.

    Examples
    --------
    >>> import latensor as lt
    >>> import warnings
    >>> warnings.simplefilter("error", lt.ConvergenceWarning)      # to be stopped by one
    >>> warnings.simplefilter("default", lt.ConvergenceWarning)
    """


def warn_caller(message: str, category: type[Warning] = ConvergenceWarning) -> None:
    """A warning that points at the line outside latensor from which it was called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("latensor."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
