"""Files in many pieces on the command line, with engines and checkpoints."""

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main

ROWS = lt.datasets.make_spherical_mixture(300, 3, 2, separation=8, random_state=0).samples


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def texts(tmp_path):
    for number in range(3):
        with gzip.open(tmp_path / f"{number}.jsonl.gz", "wt") as file:
            for i in range(60):
                words = "apple pear plum" if i % 2 else "steel iron zinc"
                one, other, _ = words.split()
                more = f" {one}" * (i % 7) + f" {other}" * (i // 7 + number)  # no document twice
                file.write(json.dumps({"text": f"{words} {words}{more}"}) + "\n")
    return tmp_path / "*.jsonl.gz"


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_topics_of_many_files(texts, tmp_path, engine):
    saved = tmp_path / "model.npz"
    options = ("--topics", 2, "--engine", engine, "--save", saved, "--refine", 2)
    found = run("topics", texts, *options, "--checkpoint", tmp_path / "on the way")
    assert found.exit_code == 0, found.output
    assert "3 partitions" in found.output
    assert lt.load(saved).vocabulary_ == ["apple", "iron", "pear", "plum", "steel", "zinc"]
    assert (tmp_path / "on the way" / "fit.npz").exists()


def test_a_report_and_the_number_of_topics_of_many_files(texts, tmp_path):
    page = tmp_path / "page.html"
    found = run("topics", texts, "--topics", "auto", "--refine", 2, "--out", page, "--min-df", 1)
    assert found.exit_code == 0, found.output
    assert "found in both halves" in found.output
    shown = page.read_text()
    assert "apple pear plum apple pear plum" in shown.replace("<mark>", "").replace("</mark>", "")
    assert "the first 180 documents" in shown


def test_rows_of_many_files(tmp_path):
    for number, part in enumerate(np.split(ROWS, 3)):
        np.savetxt(tmp_path / f"{number}.csv", part, delimiter=",", header="a,b,c", comments="")
    saved = tmp_path / "model.npz"
    found = run("fit", "spherical", tmp_path / "*.csv", "--components", 2, "--save", saved)
    assert found.exit_code == 0, found.output
    expected = lt.SphericalGaussianMixture(2, random_state=0).fit(ROWS)
    assert np.abs(lt.load(saved).means_ - expected.means_).max() < 1e-6
    kept = tmp_path / "kept"
    one = ("fit", "spherical", tmp_path / "0.csv", "--components", 2, "--checkpoint", kept)
    assert run(*one).exit_code == 0
    assert run(*one).exit_code == 0
    found = run("fit", "spherical", tmp_path / "1.csv", "--components", 2, "--checkpoint", kept)
    assert found.exit_code != 0
    assert "another fit" in found.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--engine", "ray", "--topics", 2), "--engine='ray' must be 'local'"),
        (("--engine", "dask://127.0.0.1:1", "--topics", 2), "no scheduler answers"),
        (("--out", "page.txt", "--topics", 2), "must end with .html, .htm or .csv"),
    ],
)
def test_what_is_refused(texts, arguments, message, monkeypatch):
    monkeypatch.setattr("latensor.engines.dask._PATIENCE", 0.5)
    found = run("topics", texts, *arguments)
    assert found.exit_code != 0
    assert message in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize("command", [("topics",), ("fit", "spherical")])
def test_a_pattern_that_matches_nothing(tmp_path, command):
    found = run(*command, tmp_path / "*.csv")
    assert found.exit_code == 2
    assert f"FILE='{tmp_path}/*.csv' matches no file" in found.output.replace("\n", "")
