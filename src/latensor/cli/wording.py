"""What the library says, in the terms of a command."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from latensor.cli.refusal import Refusal
from latensor.exceptions import ConvergenceWarning, InvalidInputError, NotIdentifiableError

# Kinds of warnings that the library gives; those of deprecations are not for the command line.
_TOLD = (ConvergenceWarning, UserWarning)


class Wording:
    """Replaces arguments and functions of the library by the options of a command.

    Parameters
    ----------
    options : what the library writes, as regular expressions, and what the command calls it
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {rf"(?<![\w.]){found}": said for found, said in options.items()}

    def __call__(self, text: object) -> str:
        """A text in the terms of the command."""
        said = str(text)
        for found, option in self._options.items():
            said = re.sub(found, option, said)
        return said

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let errors of the library end the command with a line in its own terms."""
        try:
            yield
        except (InvalidInputError, NotIdentifiableError) as error:
            raise Refusal(self(error)) from error
        except np.linalg.LinAlgError as error:
            raise Refusal(f"the numbers are too large, too small or too alike: {error}") from error

    @contextmanager
    def warnings(self, notes: list[str]) -> Iterator[None]:
        """Collect what the library warns of as notes."""
        with warnings.catch_warnings(record=True) as caught:
            for category in _TOLD:
                warnings.simplefilter("always", category)
            yield
        notes += [self(w.message) for w in caught if w.category in _TOLD]


# Of the file that a model is read from.
MODEL_FILE = Wording({r"path(?==)": "--apply"})
