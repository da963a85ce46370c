"""The file: whole or not at all."""

import os
from pathlib import Path

import pytest

from latensor.exceptions import InvalidInputError
from latensor.report import topic_report, write_report

from .pages import full_page

PAGE = full_page(3)


@pytest.mark.parametrize("kind", [str, Path])
def test_the_file_holds_the_page(tmp_path, kind):
    path = tmp_path / "report.html"
    assert write_report(PAGE, kind(path)) == path
    assert path.read_bytes() == topic_report(PAGE).encode()
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_name_alone_goes_into_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_report(PAGE, "report.html")
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, raised):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*arguments):
        raise raised

    monkeypatch.setattr(os, call, fail)
    expected = KeyboardInterrupt if raised is KeyboardInterrupt else InvalidInputError
    with pytest.raises(expected):
        write_report(PAGE, path)
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_text() == "old"


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    write_report(PAGE, link)
    assert link.is_symlink()
    assert target.read_bytes() == topic_report(PAGE).encode()


def test_a_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "other").write_text("x")
    write_report(PAGE, tmp_path / "report.html")
    modes = {os.stat(tmp_path / name).st_mode for name in ("other", "report.html")}
    assert len(modes) == 1


def test_places_that_cannot_hold_a_file_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"folder .*missing' does not exist"):
        write_report(PAGE, tmp_path / "missing" / "report.html")
    with pytest.raises(InvalidInputError, match="is a folder: give a file"):
        write_report(PAGE, tmp_path)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        write_report(PAGE, fifo)
    assert os.listdir(tmp_path) == ["pipe"]
