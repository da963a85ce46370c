"""The commands that the documentation shows do run, and print what it says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "decompose.md"
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = [line[2:] for block in BLOCKS for line in block.splitlines() if line[:2] == "$ "]


@pytest.fixture
def spectra(tmp_path, monkeypatch):
    """The measurements of the page, by the page's own code."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    lines = [line[4:] for line in code.splitlines() if line[:4] in (">>> ", "... ")]
    names = {}
    exec("\n".join(line for line in lines if "tempfile.Temp" not in line and "path" not in line),
         names)  # fmt: skip
    tensor = names["truth"].to_dense() + names["noise"]
    monkeypatch.chdir(tmp_path)
    np.savez("spectra.npz", tensor=tensor, emission=names["emission"])
    return tensor


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_command_of_the_page_runs(spectra, command):
    words = shlex.split(command, comments=True)
    assert words[0] == "latensor"
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.needs("matplotlib")
def test_the_page_shows_what_is_printed(spectra):
    shown = BLOCKS[0].splitlines()
    result = CliRunner().invoke(main, shlex.split(shown[0][2:])[1:])
    printed = " ".join(result.output.split())
    for line in shown[1:]:
        if line.strip() == "...":
            continue
        # Digits beyond the third may differ with the linear algebra at hand.
        short = re.sub(r"(\d\.\d\d)\d+", r"\1", " ".join(line.split()))
        assert short in re.sub(r"(\d\.\d\d)\d+", r"\1", printed)
    assert lt.__version__ in Path("found", "summary.json").read_text()
