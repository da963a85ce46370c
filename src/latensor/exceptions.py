"""What latensor raises and warns about: two families of errors, one warning."""

from __future__ import annotations


class InvalidInputError(ValueError):
    """An argument that cannot be used as given; the text names it and says what was expected."""


class NotIdentifiableError(ValueError):
    """Valid input from which the requested answer cannot be determined."""


class RankDeficientError(NotIdentifiableError):
    """A matrix supports fewer directions than were asked for."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it met its tolerance; the result is the best found so far."""
