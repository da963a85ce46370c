"""Files that appear whole or not at all."""

import gzip
import stat

import pytest

from latensor.whole_files import whole_file, whole_stream


def test_the_file_takes_its_place_at_the_end(tmp_path):
    target = tmp_path / "picture.png"
    target.write_text("before")
    with whole_file(target) as passing:
        assert passing.suffix == ".png"
        passing.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "table.tns.gz"
    target.write_text("before")

    def interrupted():
        with whole_stream(target) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_keeps_pointing_to_what_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real", tmp_path / "link.gz"
    link.symlink_to(real)
    with whole_stream(link) as stream:
        stream.write(b"content")
    assert link.is_symlink()
    assert gzip.decompress(real.read_bytes()) == b"content"


def test_files_can_be_read_by_whom_the_mask_allows(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    with whole_stream(tmp_path / "ours") as stream:
        stream.write(b"")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {stat.S_IMODE(ordinary.stat().st_mode)}


def test_equal_content_makes_equal_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        with whole_stream(tmp_path / name) as stream:
            stream.write(b"content")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
