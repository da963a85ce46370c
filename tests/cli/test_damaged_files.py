"""Damaged files at the command line: one line that says what is wrong, and nothing else."""

import io

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latensor.cli import main
from latensor.estimation.files import write_value


def refused(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    message = result.stderr.strip().splitlines()
    assert len(message) == 1
    assert "pickle" not in message[0]
    return message[0]


def saved(write, *arrays, **named):
    stream = io.BytesIO()
    write(stream, *arrays, **named)
    return stream.getvalue()


def header(description):
    raw = description.encode()
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + b"\0" * 64


HEADERS = {
    "unfinished": "{'descr': '''",
    "brackets": "(" * 5000,
    "no dict": "3",
    "huge": "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "no type": "{'descr': ',,', 'fortran_order': False, 'shape': (2,)}",
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_of_arrays(tmp_path, case):
    (tmp_path / "x.npy").write_bytes(header(HEADERS[case]))
    for command in (["decompose"], ["fit", "spherical"]):
        message = refused(*command, tmp_path / "x.npy")
        assert "damaged or truncated" in message or "Python objects" in message


WHOLE = {
    "x.npy": saved(np.save, np.ones((2, 3, 4))),
    "x.npz": saved(np.savez, a=np.ones((2, 3, 4)), b=np.ones(5)),
    "packed.npz": saved(np.savez_compressed, a=np.ones((2, 3, 4))),
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_flipped_bits_and_cuts(tmp_path, monkeypatch, name, data):
    content = bytearray(WHOLE[name])
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / name).write_bytes(content)
    for command in (["decompose", "--rank", "1"], ["fit", "pca"], ["fit", "multi-view"]):
        result = CliRunner().invoke(main, [*command, str(tmp_path / name)])
        # Where the damage is harmless the command goes on as with any array.
        assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("ending", ["\r", "\r\n"])
def test_ends_of_lines(tmp_path, ending):
    texts = ["text,n", *(f"sea boat wave,{i}" if i % 2 else f"law court,{i}" for i in range(40))]
    (tmp_path / "x.csv").write_bytes(ending.join(texts).encode())
    if ending == "\r":
        assert "carriage returns alone" in refused("topics", tmp_path / "x.csv", "--topics", 2)
    else:
        result = CliRunner().invoke(main, ["topics", str(tmp_path / "x.csv"), "--topics", "2"])
        assert result.exit_code == 0, result.output
    rows = ["a,b", *(f"{i},{(-1) ** i}" for i in range(30))]
    (tmp_path / "y.csv").write_bytes(ending.join(rows).encode())
    result = CliRunner().invoke(main, ["fit", "pca", str(tmp_path / "y.csv"), "--components", "1"])
    assert result.exit_code == 0, result.output
    assert "30 rows of 2 columns" in result.output


def test_models(tmp_path):
    (tmp_path / "texts.txt").write_text("some words\n" * 9)
    (tmp_path / "text").write_text("no model")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "objects.npz", description=np.array([{}]), allow_pickle=True)
    write_value(tmp_path / "value.npz", {"class": "PCA"}, "estimator")
    for name in ("text", "other.npz", "objects.npz", "value.npz"):
        message = refused("topics", "--apply", tmp_path / name, tmp_path / "texts.txt")
        assert "is not a saved topic model" in message


def test_fractions_begin_when_the_documents_can_be_read(tmp_path):
    texts = ["sea boat wave sail", "law court judge jury"] * 20
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    model = str(tmp_path / "m.npz")
    arguments = ["topics", str(tmp_path / "texts.txt"), "--topics", "2", "--save", model]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    (tmp_path / "bad.txt").write_bytes(b"sea boat\n\xff\xfe bad\n")
    assert "UTF-8" in refused("topics", "--apply", model, tmp_path / "bad.txt")


@pytest.mark.parametrize("command", [["topics"], ["fit", "gaussian"]])
def test_a_damaged_model_is_named_by_its_option(tmp_path, command):
    (tmp_path / "model.npz").write_bytes(b"PK\3\4garbage")
    (tmp_path / "rows.csv").write_text("text,a\nsome words,1\n")
    message = refused(*command, tmp_path / "rows.csv", "--apply", tmp_path / "model.npz")
    assert "--apply=" in message
    assert "path=" not in message


def test_fewer_rows_than_columns_are_told_of_transpose(tmp_path):
    (tmp_path / "wide.csv").write_text("1,2,3,5\n2,3,5,1\n")
    result = CliRunner().invoke(main, ["fit", "pca", str(tmp_path / "wide.csv")])
    assert "2 rows of 4 columns; with --transpose rows and columns change places" in result.output


def test_components_of_a_file_on_its_side_are_refused_at_once(tmp_path):
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).laplace(size=(5, 64_000)))
    result = CliRunner().invoke(main, ["fit", "ica", str(tmp_path / "wide.npy")])
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "needs more of them than the 64000 features, X has 5: give --transpose" in message
    assert "or say --components" in message
