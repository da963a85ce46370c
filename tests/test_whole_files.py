"""The one writer of files: whole or not at all, regular files only, modes and links kept."""

import errno
import gzip
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

import latensor.whole_files
from latensor.exceptions import InvalidInputError
from latensor.whole_files import PendingFile, check_outputs, whole_stream, whole_text

posix = pytest.mark.skipif(os.name != "posix", reason="modes, pipes and links as POSIX has them")


@pytest.fixture(params=["unnamed", "named", "copied"], autouse=True)
def way(request, monkeypatch):
    """Files without a name, file systems without them, and systems that cannot link them."""
    if request.param == "unnamed" and not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without a name")
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    if request.param == "copied":
        link = os.link

        def refuse(source, *arguments, **options):
            if "/fd/" in str(source):
                raise OSError(errno.EXDEV, "no link")
            link(source, *arguments, **options)

        monkeypatch.setattr(os, "link", refuse)
    return request.param


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_file_takes_its_place_at_the_end(tmp_path):
    target = tmp_path / "table.txt"
    target.write_text("before")
    with whole_text(target) as stream:
        stream.write("after: \u00e9\n")
        stream.flush()
        assert target.read_text() == "before"
    assert target.read_bytes() == "after: \u00e9\n".encode()
    assert listing(tmp_path) == ["table.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError(errno.EIO, "elsewhere")])
def test_an_error_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "table.tns.gz"
    target.write_text("before")

    def interrupted():
        with whole_stream(target) as stream:
            stream.write(b"half" * 100_000)
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        interrupted()
    assert target.read_text() == "before"
    assert listing(tmp_path) == ["table.tns.gz"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_error_at_the_end_leaves_what_was_there(tmp_path, monkeypatch, call, raised):
    target = tmp_path / "table"
    target.write_text("before")

    def fail(*_):
        raise raised

    def write():
        with whole_stream(target) as stream:
            stream.write(b"after")
            monkeypatch.setattr(os, call, fail)

    expected = KeyboardInterrupt if isinstance(raised, KeyboardInterrupt) else InvalidInputError
    with pytest.raises(expected):
        write()
    assert target.read_text() == "before"
    assert listing(tmp_path) == ["table"]


def test_a_full_disk_is_told_with_the_name(tmp_path):
    def write():
        with whole_stream(tmp_path / "table"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InvalidInputError, match=r"table' cannot be written: No space"):
        write()
    assert listing(tmp_path) == []


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_mode_of_a_file_is_kept(tmp_path, mode):
    target = tmp_path / "secret"
    target.write_text("before")
    target.chmod(mode)
    pending = PendingFile(target)
    # Not even in passing can it be read by others.
    assert stat.S_IMODE(os.fstat(pending.stream.fileno()).st_mode) == mode
    pending.stream.write(b"after")
    pending.commit()
    assert target.read_text() == "after"
    assert stat.S_IMODE(target.stat().st_mode) == mode


@posix
@pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="only root gives files away")
def test_the_owner_of_a_file_is_kept(tmp_path):
    target = tmp_path / "theirs"
    target.write_text("before")
    os.chown(target, 1234, 1235)
    with whole_stream(target) as stream:
        stream.write(b"after")
    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 1235)


@posix
def test_new_files_can_be_read_by_whom_the_mask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_stream(tmp_path / "ours") as stream:
            stream.write(b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == 0o640


@posix
@pytest.mark.parametrize("exists", [False, True])
def test_a_link_keeps_pointing_to_what_is_replaced(tmp_path, exists):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real", tmp_path / "link.gz"
    if exists:
        real.write_text("before")
    link.symlink_to(real)
    with whole_stream(link) as stream:
        stream.write(b"content")
    assert link.is_symlink()
    assert gzip.decompress(real.read_bytes()) == b"content"
    assert listing(tmp_path / "far") == ["real"]


def test_equal_content_makes_equal_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        with whole_stream(tmp_path / name) as stream:
            stream.write(b"content")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def special(folder, kind):
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to(os.devnull)
    elif kind == "loop":
        path.symlink_to(path)
    return path


def identity(path):
    """All that tells a file from another, but when it was looked at."""
    found = os.lstat(path)
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns


@posix
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("pipe", "not a regular file"),
        ("socket", "not a regular file"),
        ("device", "not a regular file"),
        ("folder", "is a folder: give a file"),
        ("loop", "cannot be written"),
    ],
)
def test_special_files_are_refused_and_stay(tmp_path, kind, reason, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = special(tmp_path, kind)
    before = identity(path), os.stat(os.devnull).st_mode
    for attempt in (lambda: PendingFile(kind), lambda: check_outputs({"--out": path})):
        with pytest.raises(InvalidInputError, match=reason):
            attempt()
    assert (identity(path), os.stat(os.devnull).st_mode) == before
    assert listing(tmp_path) == [kind]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "is empty"),
        ("no/folder/x", "does not exist"),
        ("name/", "is a folder"),
        ("nul\0", "cannot be written"),
        ("x" * 300, "cannot be written"),
        (7, "must name a file, not be a int"),
        (b"bytes", "must name a file, not be a bytes"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path, monkeypatch, path, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=reason):
        PendingFile(path)
    assert listing(tmp_path) == []


def test_a_pipe_that_appears_meanwhile_is_left_alone(tmp_path):
    pending = PendingFile(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(InvalidInputError, match="is a folder"):
        pending.commit()
    assert listing(tmp_path) == ["x"]


@posix
def test_write_protected_files_and_folders_are_refused(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("before")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InvalidInputError, match="write-protected"):
        PendingFile(tmp_path / "old")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(latensor.whole_files, "_create", refuse)
    with pytest.raises(InvalidInputError, match=r"--save=.*cannot be written: Permission denied"):
        check_outputs({"--save": tmp_path / "new"})


@posix
def test_two_outputs_are_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("new")
    (tmp_path / "folder").symlink_to(tmp_path)
    os.link("file", "hard")
    same = [("file", "./file"), ("file", "link"), ("file", "hard"), ("link", "hard")]
    same += [("new", "dangling"), ("new", "folder/new"), ("file", str(tmp_path / "file"))]
    for one, other in same:
        with pytest.raises(InvalidInputError, match=r"would overwrite --out=.*the same file"):
            check_outputs({"--out": one, "--save": other})
        with pytest.raises(InvalidInputError, match="would overwrite what is read"):
            check_outputs({"--out": one}, [other])
    check_outputs({"--out": "file", "--save": "other", "--third": None}, ["missing"])
    assert (tmp_path / "file").read_text() == "before"
    assert "other" not in listing(tmp_path)


@posix
@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="needs files without a name")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing(tmp_path, way, number):
    if way != "unnamed":
        pytest.skip("another process knows nothing of this way")
    code = (
        "import sys, time; from latensor.whole_files import whole_stream\n"
        f"with whole_stream({str(tmp_path / 'x')!r}) as s:\n"
        "    s.write(b'half' * 100000); s.flush(); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == -number
    finally:
        process.kill()
        process.stdout.close()
    time.sleep(0.01)
    assert listing(tmp_path) == []
