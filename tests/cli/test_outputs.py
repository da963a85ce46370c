"""Files of the commands: written before anything is printed, never over something precious."""

import atexit
import gc
import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import numba
import numpy as np
import pytest
from click.testing import CliRunner

import latensor.whole_files
from latensor.cli import main

WORDS = ["été", "naïve", "ωmega", "lamp", "chair", "table"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a text whose words few encodings know, rows and a tensor."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[3 * (i % 2) :][:3], 9)) + f" № Ω{i}" for i in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = rng.standard_normal((60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="größe,Ω", encoding="utf-8")
    np.save(tmp_path / "tensor.npy", np.einsum("i,j,k->ijk", *rng.standard_normal((3, 4))))
    gaps = np.einsum("i,j,k->ijk", *rng.standard_normal((3, 6)))
    gaps[0, 0, 0] = np.nan
    np.save(tmp_path / "gaps.npy", gaps)
    return tmp_path


FIGURE = ["o/components.png"] if importlib.util.find_spec("matplotlib") else []
COMMANDS = {
    "topics": (
        ["topics", "texts.txt", "--topics", "2", "--out", "r.html", "--save", "m.npz"],
        ["m.npz", "r.html"],
    ),
    "fit": (
        ["fit", "spherical", "rows.csv", "--components", "2", "--out", "o", "--no-figure"],
        ["o/labels.csv", "o/parameters.json", "o/parameters.npz", "o/summary.json"],
    ),
    "decompose": (
        ["decompose", "tensor.npy", "--rank", "1", "--out", "o"],
        [*FIGURE, "o/decomposition.npz", "o/summary.json"],
    ),
    "complete": (
        ["complete", "gaps.npy", "--rank", "1", "--out", "o"],
        [*FIGURE, "o/completion.npz", "o/summary.json"],
    ),
    "demo": (
        ["demo", "--limit", "3", "--topics", "2", "--out", "o"],
        ["o/docstrings.jsonl", "o/topics.html"],
    ),
}


def replace_work(monkeypatch, work):
    """Let what takes time in the commands be something else."""
    places = {
        "topics": ["learn", "apply_model"],
        "fit": ["execute", "fit_shards"],
        "decompose": ["_execute"],
        "complete": ["_fit"],
        "demo": ["collect_docstrings", "image_demo"],
    }
    for command, names in places.items():
        for name in names:
            monkeypatch.setattr(import_module(f"latensor.cli.{command}"), name, work)


def run_on(stream, arguments, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as ended:
        main(arguments, prog_name="latensor")
    return ended.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_costs_no_file(folder, monkeypatch, command):
    arguments, files = COMMANDS[command]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream:
        assert run_on(stream, arguments, monkeypatch) == 141
    assert all(os.path.getsize(folder / name) for name in files)


@pytest.mark.parametrize(
    "command, encoding", [*((command, "ascii") for command in COMMANDS), ("topics", "cp1252")]
)
def test_an_encoding_without_the_characters_costs_nothing(folder, monkeypatch, command, encoding):
    arguments, files = COMMANDS[command]
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors="strict")
    assert run_on(stream, arguments, monkeypatch) == 0
    stream.flush()
    assert all(os.path.getsize(folder / name) for name in files)
    shown = written.getvalue().decode(encoding)
    assert re.search("Saved in o|The report is in", shown)
    if command == "topics":
        assert ("été" in shown) == (encoding == "cp1252")
        assert "?" in shown


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_behind_the_output_costs_no_file(folder, monkeypatch, capsys):
    arguments, files = COMMANDS["fit"]
    with open("/dev/full", "w") as stream:
        assert run_on(stream, arguments, monkeypatch) == 2
    assert "No space left" in capsys.readouterr().err
    assert all(os.path.getsize(folder / name) for name in files)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", ["--help", "--version", "fit --list", "topics --help"])
def test_a_full_disk_behind_what_options_print_is_named(arguments):
    command = f"{sys.executable} -m latensor {arguments} > /dev/full"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "Error: No space left on device\n")


def test_fractions_on_the_output_end_with_their_reader(folder, monkeypatch):
    assert CliRunner().invoke(main, COMMANDS["topics"][0]).exit_code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream:
        assert run_on(stream, ["topics", "--apply", "m.npz", "texts.txt"], monkeypatch) == 141


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("topics texts.txt --save /dev/null", "not a regular file"),
        ("topics texts.txt --out pipe.html", "not a regular file"),
        ("topics texts.txt --save same --out link.html", "would overwrite --out=link.html"),
        ("topics texts.txt --save x.html --out ./x.html", "which is the same file"),
        ("topics texts.txt --save texts.txt", "would overwrite what is read"),
        ("topics texts.txt --stop-words stop --save stop", "would overwrite what is read"),
        ("topics --apply m.npz texts.txt --out m.npz", "would overwrite what is read"),
        ("topics --apply m.npz texts.txt --out pipe.csv", "not a regular file"),
        ("fit spherical rows.csv --out rows.csv", "is a file: give a folder"),
        ("fit spherical rows.csv --out pipes", "not a regular file"),
        ("fit spherical rows.csv --out new --save /dev/null", "not a regular file"),
        ("fit spherical rows.csv --out new --save new/labels.csv", "what a file of --out is"),
        ("fit spherical rows*.csv --save /dev/null", "not a regular file"),
        ("decompose tensor.npy --out /dev/null", "is a file: give a folder"),
        ("decompose o/decomposition.npz --array x --out o", "would overwrite what is read"),
        ("demo --out demo", "not a regular file"),
        ("demo --image china --out demo", "not a regular file"),
    ],
)
def test_what_would_destroy_something_is_refused_before_the_work(
    folder, monkeypatch, arguments, reason
):
    for name in ("pipe.html", "pipe.csv", "pipes/labels.csv", "demo/topics.html", "demo/image.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        os.mkfifo(folder / name)
    listed = '{"written_by": "latensor %s", "files": ["%s", "summary.json"]}'
    (folder / "pipes" / "summary.json").write_text(listed % ("fit", "labels.csv"))
    (folder / "o").mkdir()
    np.savez(folder / "o" / "decomposition.npz", x=np.ones((2, 2, 2)))
    (folder / "o" / "summary.json").write_text(listed % ("decompose", "decomposition.npz"))
    (folder / "same").write_text("old")
    (folder / "link.html").symlink_to("same")
    (folder / "m.npz").write_text("model")
    (folder / "stop").write_text("the")

    def work(*_, **__):
        raise AssertionError("the work has begun")

    replace_work(monkeypatch, work)
    before = {p: p.read_bytes() if p.is_file() else p.lstat().st_mode for p in folder.rglob("*")}
    result = CliRunner().invoke(main, arguments.split())
    assert result.exit_code == 2, result.output
    assert reason in result.stderr
    assert {
        p: p.read_bytes() if p.is_file() else p.lstat().st_mode for p in folder.rglob("*")
    } == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written_is_noticed_before_the_work(folder, monkeypatch, command):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(latensor.whole_files, "_create", refuse)
    replace_work(monkeypatch, None)
    result = CliRunner().invoke(main, COMMANDS[command][0])
    assert result.exit_code == 2, result.output
    assert "Permission denied" in result.stderr
    if command in ("fit", "decompose"):
        assert not (folder / "o").exists()


def test_modes_of_replaced_files_are_kept(folder):
    arguments, files = COMMANDS["decompose"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    for name in files:
        os.chmod(folder / name, 0o600)
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert {os.stat(folder / name).st_mode & 0o777 for name in files} == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_like_an_error(folder, monkeypatch, number):
    before = sorted(p.name for p in folder.rglob("*"))

    def end(*_):
        os.kill(os.getpid(), number)

    replace_work(monkeypatch, end)
    # Under nohup tests begin with a signal that is ignored, and then stays so.
    before_tests = signal.signal(number, signal.SIG_DFL)
    try:
        result = CliRunner().invoke(main, COMMANDS["fit"][0])
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before_tests)
    assert result.exit_code == 128 + number
    assert sorted(p.name for p in folder.rglob("*")) == before


def test_an_interruption_while_importing_is_quiet(monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("latensor.cli.import_module", interrupt)
    result = CliRunner().invoke(main, ["fit", "pca", "x.csv"])
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"


def test_an_interruption_of_the_first_imports_is_quiet(monkeypatch, capsys):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    start = import_module("latensor.__main__").main
    monkeypatch.setitem(sys.modules, "latensor.cli", Interrupted("latensor.cli"))
    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.skipif(shutil.which("head") is None, reason="needs head")
def test_the_shell_gets_its_first_line_and_the_file(folder):
    command = f"{sys.executable} -m latensor topics texts.txt --topics 2 --save m.npz | head -1"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("texts.txt: 60 documents")
    assert ended.stderr == ""
    assert os.path.getsize(folder / "m.npz")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_costs_no_file(folder, closed):
    command = f"{sys.executable} -m latensor topics texts.txt --topics 2 --save m.npz {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("The model is in m.npz" in ended.stdout) == (closed == "2>&-")
    assert os.path.getsize(folder / "m.npz")


def test_no_character_steers_the_terminal(folder):
    os.rename("texts.txt", "a\u202etxt.exe")
    result = CliRunner().invoke(main, ["topics", "a\u202etxt.exe", "--topics", "2"])
    assert result.exit_code == 0, result.output
    assert "\u202e" not in result.output
    assert "\u202e" not in CliRunner().invoke(main, ["topics", "b\u202e"]).output


def test_a_terminal_is_told_of_compiling_once(monkeypatch, capsys):
    from latensor.cli.compiling import NOTICE, announce_compiling

    # Nothing is kept in the cache, so that there is something to compile.
    double, triple = (numba.njit(lambda x, by=by: by * x) for by in (2, 3))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with announce_compiling():
        assert (double(1), triple(1), double(2)) == (2, 3, 4)
    assert capsys.readouterr().err.count(NOTICE) == 1
    with announce_compiling():
        assert double(5) == 10
    assert NOTICE not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with announce_compiling():
        assert double(1.5) == 3.0
    assert NOTICE not in capsys.readouterr().err


def test_a_terminal_is_told_before_a_command_is_imported(monkeypatch, capsys):
    shown = []

    def look(name):
        shown.append(capsys.readouterr().err)
        return import_module(name)

    monkeypatch.setattr("latensor.cli.import_module", look)
    for is_terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda on=is_terminal: on, raising=False)
        assert main.get_command(None, "compile").name == "compile"
        # The word is taken away again.
        shown.append(capsys.readouterr().err.strip(" "))
    assert shown == ["starting ...", "\r            \r", "", ""]


def test_a_process_ends_without_a_last_search_for_garbage(monkeypatch):
    registered = []
    monkeypatch.setattr(atexit, "register", registered.append)
    CliRunner().invoke(main, ["fit", "--list"])
    assert registered == [gc.freeze]
