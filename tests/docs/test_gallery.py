"""Every example of the gallery runs and makes a figure."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from matplotlib.figure import Figure

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("plot_*.py"))


def test_there_are_as_many_as_promised() -> None:
    assert len(EXAMPLES) >= 24


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem.removeprefix("plot_"))
def test_example_runs(path: Path) -> None:
    assert isinstance(runpy.run_path(str(path))["figure"], Figure)
