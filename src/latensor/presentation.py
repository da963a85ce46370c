"""`summary`, `plot` and `report`: what every estimator and every decomposition offers to a reader.

Pictures and pages stand above the models in the layers of the library; they are imported when they
are asked for.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any


class Presented:
    """Words, a picture and a page about what was found."""

    def _check_found(self) -> None:
        """Refuse to show what was not found yet."""

    def summary(self) -> str:
        """What was found and how far to trust it, as text: settings, a table, the certificate."""
        found: str = import_module("latensor.report").model_summary(self)
        return found

    def plot(self, *data: Any, names: Any = None) -> Any:
        """Draw what was found, as a matplotlib Figure (needs the extra `plots`).

        Parameters
        ----------
        *data : what `fit` was given: X, or X and y, or X and lengths; trees, causes, topics and
            decompositions are drawn without
        names : what the features are called; by default what the model knows
        """
        self._check_found()
        return import_module("latensor.plots").picture(self, *data, names=names)

    def report(
        self, path: str | os.PathLike[str], *data: Any, names: Any = None, title: str | None = None
    ) -> Path:
        """Write one page of HTML: what was found, a picture, the certificate, how to reproduce it.

        The page loads nothing; the file is whole or not there. Pictures need the extra `plots`.

        Parameters
        ----------
        path : file to write
        *data : what `fit` was given; without it the page has no picture of the data
        names : what the features are called; by default what the model knows
        title : str, of the page; by default the name of the model
        """
        write = import_module("latensor.report").write_model_report
        written: Path = write(self, path, *data, names=names, title=title)
        return written
