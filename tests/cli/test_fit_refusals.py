"""What `latensor fit` refuses: one line that says what to do, exit code 2, nothing written."""

import gzip

import numpy as np
import pytest
from click.testing import CliRunner

from latensor.cli import main
from latensor.cli.fit_csv import SeparatedTable
from latensor.cli.fit_tables import find_columns, read_table
from latensor.cli.refusal import Refusal

X = np.random.default_rng(0).normal(size=(60, 3))


def table(path, rows, head="a,b,c"):
    lines = [head] if head else []
    lines += [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def changed(value, row=7, column=1):
    rows = X.tolist()
    rows[row][column] = value
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files that are not what they should be, by name."""
    where = tmp_path_factory.mktemp("files")
    table(where / "good.csv", X)
    table(where / "plain.csv", X, None)
    table(where / "one.csv", X[:1])
    table(where / "text.csv", [["x", *row] for row in X], "name,a,b,c")
    table(where / "nan.csv", changed("nan"))
    table(where / "inf.csv", changed("-inf"))
    table(where / "gap.csv", changed(""))
    table(where / "word.csv", changed("oops"))
    table(where / "ragged.csv", [*X[:5].tolist(), [1.0, 2.0]])
    table(where / "again.csv", [[i // 20 % 2, *row] for i, row in enumerate(X)], "id,a,b,c")
    table(where / "negative.csv", [[i % 4 - 1] for i in range(60)], "s")
    table(where / "const.csv", np.ones((60, 3)))
    table(where / "twice.csv", X, "a,a,c")
    (where / "empty.csv").write_text("")
    (where / "blank.csv").write_text("\n\n")
    (where / "head.csv").write_text("a,b,c\n")
    (where / "latin.csv").write_bytes("a,b\n\xe9,1\n".encode("latin-1"))
    (where / "comma.csv").write_text("a;b\n" + "1,5;2,5\n" * 9)
    packed = gzip.compress((where / "good.csv").read_bytes())
    (where / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    np.save(where / "good.npy", X)
    np.save(where / "complex.npy", X + 1j)
    np.save(where / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(where / "nan.npy", np.where(np.arange(180).reshape(60, 3) == 22, np.nan, X))
    np.savez(where / "two.npz", a=X, b=X)
    np.savez(where / "uneven.npz", a=X, b=X[:50], c=X)
    np.savez(where / "lengths.npz", x=X, bad=[20, 20, 10], none=[60, 0], w=np.ones(59))
    (where / "cut.npz").write_bytes((where / "two.npz").read_bytes()[:300])
    (where / "wrong.parquet").write_bytes(b"PAR1")
    (where / "sheet.xlsx").write_bytes(b"PK")
    (where / "folder.csv").mkdir()
    return where


@pytest.mark.parametrize("arguments, message", [
    ("cca good.csv", "as --views a,b:c,d; "),
    ("multi-view good.csv", "as --views a,b:c,d:e,f; "),
    ("cca good.csv --views a,b:b,c", "--views names b of"),
    ("multi-view two.npz --views a:b:b", "--views names b of"),
    ("spherical good.csv --out=", "the name is empty"),
    ("spherical good.csv --out page.html --no-figure", "--no-figure is for a folder"),
    ("tree good.csv --collapse 2", "--collapse=2.0 must be a number above 0"),
    ("sphericl good.csv", "no model 'sphericl'; did you mean spherical?"),
    ("HMM good.csv", "did you mean categorical-hmm or gaussian-hmm?"),
    ("lda good.csv", "latensor topics"),
    ("qqqq good.csv", "latensor fit --list names them"),
    ("spherical", "Missing argument 'FILE'"),
    ("spherical none.csv", "none.csv: No such file"),
    ("spherical none.npz", "none.npz: No such file"),
    ("multi-view none.npz", "none.npz: No such file"),
    ("spherical folder.csv", "is a folder"),
    ("spherical sheet.xlsx", "unknown kind of file, expected .csv"),
    ("spherical empty.csv", "is empty"),
    ("spherical blank.csv", "is empty"),
    ("spherical head.csv", "no rows"),
    ("spherical one.csv", "1 sample"),
    ("spherical text.csv", "column 'name' holds text ('x' in the first row): choose columns of "
     "numbers by --columns a,b,c"),
    ("spherical good.csv --no-header", "hold text ('a' in the first row)"),
    ("spherical comma.csv", "decimals need a point"),
    ("spherical nan.csv", "1 of 180 values are NaN or infinite, the first in row 7 (line 9), "
     "column 'b'"),
    ("spherical inf.csv", "row 7 (line 9), column 'b'"),
    ("spherical nan.npy", "row 7, column '1'"),
    ("spherical gap.csv", "line 9, column 'b' is empty"),
    ("spherical word.csv", "line 9, column 'b' holds 'oops'"),
    ("spherical ragged.csv", "line 7 has 2 fields, the first line has 3"),
    ("spherical latin.csv", "is not UTF-8"),
    ("spherical cut.csv.gz", "damaged"),
    ("spherical cut.npz", "damaged"),
    ("multi-view cut.npz", "damaged"),
    ("spherical complex.npy", "expected real numbers"),
    ("spherical objects.npy", "Python objects"),
    ("spherical two.npz", "a (60, 3), b (60, 3): say by --array"),
    ("spherical two.npz --array q", "no array 'q'"),
    ("spherical good.csv --array q", "needs an .npz file"),
    ("spherical good.npy --header", "are for CSV files"),
    ("spherical good.csv --columns a,z", "no column 'z', only a, b, c"),
    ("spherical text.csv --columns nam", "did you mean name?"),
    ("spherical good.csv --columns a,a", "names a twice"),
    ("spherical good.csv --columns 0-9", "no column '9'"),
    ("spherical twice.csv --columns a", "several columns 'a'"),
    ("spherical good.csv --components 0", "at least 1, or auto"),
    ("spherical good.csv --components two", "--components=two must be a whole number"),
    ("spherical good.csv --refine x", "--refine=x must be a whole number"),
    ("spherical good.csv --components 61", "--components=61 exceeds the n_samples=60"),
    ("spherical good.csv --components 8 --refine 0", "--components=8 means in 3 dimensions"),
    ("product good.csv --components 3", "about 2 x --components features"),
    ("ica const.csv", "all 60 samples are equal"),
    ("ica good.csv --components 4", "--components=4 exceeds"),
    ("pearson good.csv", "3 columns (a, b, c), one of numbers is needed"),
    ("pearson good.csv --columns a --components 3", "--components=3"),
    ("cca good.csv --views a:b --components auto", "--components='auto'"),
    ("cca good.csv --views a:b:c", "gives 3 views, two are needed"),
    ("multi-view good.csv", "--views is missing"),
    ("multi-view good.csv --views a:b", "three or more are needed"),
    ("multi-view good.csv --views a:b:c --kinds categorical", "whole numbers from 0"),
    ("multi-view uneven.npz", "have 60, 50, 60 rows"),
    ("spherical good.csv --lengths a", "--lengths is not for spherical, but for categorical-hmm"),
    ("ica good.csv --variance common", "--variance is not for ica, but for spherical"),
    ("pca good.csv --refine 3", "--refine is not for pca"),
    ("spherical good.csv --weights a", "numbers from 0 on"),
    ("spherical lengths.npz --weights w", "59 entries, expected one for 60 rows"),
    ("gaussian-hmm good.csv --lengths q", "no column 'q'"),
    ("gaussian-hmm good.csv --components 100", "at least --components=100"),
    ("gaussian-hmm again.csv --lengths id", "sequence 0 begins again in row 40"),
    ("gaussian-hmm lengths.npz --lengths bad", "3 lengths sum to 50, but there are 60 rows"),
    ("gaussian-hmm lengths.npz --lengths none", "whole numbers of at least 1"),
    ("gaussian-hmm lengths.npz --lengths q", "--lengths=q: lengths.npz holds x, bad"),
    ("categorical-hmm negative.csv", "holds -1 in row 0: symbols are text, or whole numbers"),
    ("categorical-hmm good.csv --columns a", "for measurements fit gaussian-hmm"),
    ("categorical-hmm good.csv", "one of symbols is needed"),
    ("spherical good.csv --out good.csv", "is a file: give a folder"),
    ("spherical good.csv --noise loud", "--noise"),
])  # fmt: skip
def test_bad_input_gets_one_line(folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    result = CliRunner().invoke(main, ["fit", *arguments.split()])
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert message in last
    assert "Traceback" not in result.output
    assert sorted(folder.rglob("*")) == before


def test_parquet_without_pyarrow_says_what_to_install(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Refusal, match="pip install pyarrow"):
        read_table(folder / "wrong.parquet", None, None)


@pytest.mark.parametrize("text, names, first", [
    ("a,b\n1,2\n", ("a", "b"), [1, 2]),
    ("1,2\n3,4\n", ("0", "1"), [1, 2]),
    # A column of text without a line of names.
    ("x,1\ny,2\n", ("0", "1"), None),
    ('"","b"\n"r1",2\n', ("0", "b"), None),
    ("\n\na\tb\n\n1\t2\n", ("a", "b"), [1, 2]),
    ("\ufeffa;b\n1;2\n", ("a", "b"), [1, 2]),
    ('"a,1",b\n1,2\n', ("a,1", "b"), [1, 2]),
    ("a\n1\n", ("a",), [1]),
    (" a , b \n 1 , 2 \n", ("a", "b"), [1, 2]),
    ("a,b\r\n1,2\r\n", ("a", "b"), [1, 2]),
    ("1,2", ("0", "1"), [1, 2]),
    # Symbols without a name, and with one.
    ("A\nC\nA\nG\n", ("0",), None),
    ("s\nA\nC\nA\n", ("s",), None),
    ("x,A\ny,C\nx,A\n", ("0", "1"), None),
    ("id,s\nx,A\nx,C\n", ("id", "s"), None),
])  # fmt: skip
def test_lines_of_names_are_told_from_rows(tmp_path, text, names, first):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    found = SeparatedTable(path, None)
    assert found.names == names
    if first is not None:
        assert found.numbers(range(len(names)))[0].tolist() == first


@pytest.mark.parametrize("text, columns", [
    ("a", [0]), ("2", [2]), ("a,c", [0, 2]), ("0-2", [0, 1, 2]), ("a-c", [0, 1, 2]),
    ("x-y,a", [3, 0]), ("c-x-y", [2, 3]), ("7", [4]),
])  # fmt: skip
def test_columns_by_name_number_and_range(tmp_path, text, columns):
    table(tmp_path / "t.csv", [[1, 2, 3, 4, 5]], "a,b,c,x-y,7")
    assert find_columns(SeparatedTable(tmp_path / "t.csv", None), text, "--columns") == columns
