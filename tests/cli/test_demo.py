"""`latensor demo`: topics of the documentation at hand, and the photograph of the monograph."""

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import latensor
from latensor.cli import main
from latensor.cli.docstrings import STANDARD_LIBRARY, installed_packages


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_help_shows_the_commands_and_an_example(run):
    assert "latensor demo" in run("--help").output
    assert "latensor demo --topics auto" in run("demo", "-h").output
    assert "--limit" not in run("demo", "-h").output
    assert latensor.__version__ in run("--version").output
    commands = run("--help").output.partition("Commands:")[2].strip().splitlines()
    assert [line.split()[0] for line in commands] == list(main.list_commands(None))
    assert not any(line.endswith("...") for line in commands)


def test_a_command_that_is_not_there(run):
    result = run("fitt", "rows.csv")
    assert result.exit_code == 2
    assert "there is no command 'fitt'; did you mean fit?" in result.output
    assert "see latensor --help" in run("wxyz").output


def test_demo_writes_the_report_and_its_documents(run, tmp_path):
    out = tmp_path / "made" / "here"
    result = run("demo", "--out", str(out), "--limit", "25", "--topics", "4")
    assert result.exit_code == 0, result.output
    assert "docstrings of the standard library, NumPy, SciPy and scikit-learn" in result.output
    assert "Verdict" in result.output
    assert sorted(p.name for p in out.iterdir()) == ["docstrings.jsonl", "topics.html"]
    lines = (out / "docstrings.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    assert len(documents) > 300
    assert {"name", "text"} == set(documents[0])
    page = (out / "topics.html").read_text(encoding="utf-8")
    assert sum(f">{document['name']}<" in page for document in documents) >= 6


def test_the_command_it_names_gives_the_same_topics(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run("demo", "--limit", "12", "--topics", "3").output
    command = re.search(r"  latensor (topics .*)", shown)[1].replace("'", "").split()
    again = run(*command).output

    def table(text):
        return [line for line in text.splitlines() if line.startswith("│")]

    assert table(again) == table(shown) != []


def test_packages_are_found_without_importing_them():
    code = (
        "import sys; from latensor.cli.docstrings import installed_packages; "
        "before = set(sys.modules); found = installed_packages(); "
        "assert len(found) == 4, found; "
        "assert not {'sklearn', 'scipy.stats'} & (set(sys.modules) - before)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(installed_packages()) == {STANDARD_LIBRARY, "numpy", "scipy", "sklearn"}


def test_an_interrupted_demo_leaves_no_report(run, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(latensor.LatentDirichletAllocation, "fit", interrupt)
    result = run("demo", "--out", str(tmp_path), "--limit", "2")
    assert result.exit_code == 130
    assert [p.name for p in tmp_path.iterdir()] == ["docstrings.jsonl"]


@pytest.mark.slow
def test_the_photograph_gives_one_picture(run, tmp_path):
    pytest.importorskip("matplotlib")
    result = run("demo", "--image", "china", "--out", str(tmp_path / "made" / "here"))
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
    assert "exclude each other" in run("demo", "--image", "china", "--topics", "3").output
    assert "--topics=0 must be" in run("demo", "--topics", "0").output
    assert run("nothing").exit_code == 2
