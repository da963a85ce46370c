"""The commands that docs/fit.md shows do run, and print what it says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main
from latensor.cli.fit_models import MODELS

PAGE = (Path(__file__).parents[2] / "docs" / "fit.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line[2:] for block in BLOCKS for line in block.splitlines() if line[:2] == "$ "]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    counts = [int(n) for n in re.search(r"counts = \[(.*?)\]", PAGE, re.DOTALL)[1].replace(
        "...", "").split(",")]  # fmt: skip
    assert (len(counts), sum(counts)) == (29, 1000)
    lines = [f"{place},{count}" for place, count in enumerate(counts, 1)]
    Path("crabs.csv").write_text("\n".join(["class,crabs", *lines]) + "\n")
    chain = lt.datasets.make_hmm(300, 4, 2, n_sequences=3, random_state=0)
    words = np.repeat(["one", "two", "three"], chain.lengths)
    letters = np.array(list("pqrs"))[chain.X[:, 0]]
    lines = [f"{word},{letter}" for word, letter in zip(words, letters, strict=True)]
    Path("letters.csv").write_text("\n".join(["word,letter", *lines]) + "\n")
    points = lt.datasets.make_gaussian_hmm(300, 2, 2, n_sequences=3, separation=6, random_state=0)
    np.savez("points.npz", x=points.X, lengths=points.lengths)
    views = lt.datasets.make_multi_view(300, (3, 4, 3), 2, separation=8, random_state=0).views
    names = [f"{stem}{j}" for stem, view in zip("abc", views, strict=True) for j in range(view.shape[1])]  # noqa: E501  # fmt: skip
    np.savetxt("people.csv", np.hstack(views), delimiter=",", header=",".join(names), comments="")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_runs(files, command):
    words = shlex.split(command, comments=True)
    assert words[:2] == ["latensor", "fit"]
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output


@pytest.mark.needs("matplotlib")
def test_the_page_shows_what_is_printed(files):
    shown = BLOCKS[0].splitlines()
    result = CliRunner().invoke(main, shlex.split(shown[0][2:])[1:])
    printed = " ".join(result.output.split())
    for line in shown[1:]:
        if line.strip() != "...":
            assert " ".join(line.split()) in printed


def test_the_page_names_every_model():
    for entry in MODELS:
        assert f"`{entry.name}`" in PAGE
