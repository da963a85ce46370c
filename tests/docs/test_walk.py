"""The walk through `lt.decompose` tells what the stages do now."""

import re
import runpy
from pathlib import Path

import pytest

import latensor as lt

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_numbers_of_the_walk_are_those_of_a_run():
    figure = runpy.run_path(str(DOCS / "images" / "walk_figure.py"))
    text = (DOCS / "decompose_walk.md").read_text(encoding="utf-8")
    found, history = figure["stages"]()
    assert [stage for stage, _, _ in found] == re.findall(r"^\| (.*?) \|", text, re.MULTILINE)[2:]
    for stage, _, residual in found:
        told = float(re.search(rf"^\| {stage} .* (\S+) \|$", text, re.MULTILINE)[1])
        assert told == pytest.approx(residual, abs=1e-5)
    whole = lt.decompose(figure["example"](), figure["RANK"], random_state=figure["SEED"])
    assert whole.residual == pytest.approx(history[-1], rel=1e-9)
    for path in re.findall(r"`([a-z_]+/?[a-z_]*(?:/|\.py))`", text):
        assert (Path(lt.__file__).parent / "decomposition" / path).exists(), path
