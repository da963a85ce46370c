"""What latensor raises and warns about: two families of errors, one warning."""

from __future__ import annotations

from typing import Any


class InvalidInputError(ValueError):
    """An argument that cannot be used as given; the text names it and says what was expected."""


class NotIdentifiableError(ValueError):
    """Valid input from which the requested answer cannot be determined."""


class RankDeficientError(NotIdentifiableError):
    """A matrix supports fewer directions than were asked for.

    Attributes
    ----------
    spectrum : array of the eigenvalues or singular values that were found
    threshold : float, magnitudes up to this count as zero
    usable_rank : int, the largest rank that can be asked for
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
    """An iteration stopped before it met its tolerance; the result is the best found so far."""
