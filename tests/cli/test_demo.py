"""The command line: what it prints, what it writes, what it refuses."""

import pytest
from click.testing import CliRunner

import latensor
from latensor.cli import main


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_help_shows_the_commands_and_an_example(run):
    assert "latensor demo" in run("--help").output
    assert "Example: latensor demo" in run("demo", "-h").output
    assert latensor.__version__ in run("--version").output


def test_demo_writes_one_picture(run, tmp_path):
    pytest.importorskip("matplotlib")
    result = run("demo", "--out", str(tmp_path / "made" / "here"))
    assert result.exit_code == 0, result.output
    assert "427 x 640 x 3" in result.output
    assert "CP of rank 50" in result.output
    assert "Tucker 44 x 44 x 3" in result.output
    assert [p.name for p in (tmp_path / "made" / "here").iterdir()] == ["image.png"]
    assert (tmp_path / "made" / "here" / "image.png").read_bytes()[:4] == b"\x89PNG"


def test_wrong_arguments_are_explained(run, tmp_path):
    result = run("demo", "--image", "cat")
    assert result.exit_code == 2
    assert "china" in result.output
    (tmp_path / "file").write_text("")
    assert run("demo", "--out", str(tmp_path / "file")).exit_code == 2
    assert run("nothing").exit_code == 2
