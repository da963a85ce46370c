"""`latensor decompose`: every kind of file in, the library's own answer out, nothing by half."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main

SHAPE, RANK = (6, 7, 8), 2


@pytest.fixture
def run():
    return lambda *arguments, **more: CliRunner().invoke(
        main, ["decompose", *map(str, arguments)], **more
    )


@pytest.fixture(scope="module")
def tensor():
    rng = np.random.default_rng(0)
    return lt.CPTensor([3.0, 2.0], [rng.random((d, RANK)) for d in SHAPE]).to_dense()


@pytest.fixture
def file(tensor, tmp_path):
    path = tmp_path / "tensor.npy"
    np.save(path, tensor)
    return path


def write(path, tensor):
    """The same tensor in the format that the name asks for."""
    if path.name.endswith((".tns", ".tns.gz")):
        lt.write_tns(lt.SparseTensor.from_dense(tensor), path)
    elif path.suffix == ".npz":
        np.savez(path, small=np.arange(6.0), tensor=tensor, flags=tensor > 0)
    else:
        with open(path, "wb") as stream:
            np.save(stream, tensor)
    return path


def summary(folder):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads((folder / "summary.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.tns", "a.tns.gz", "A.NPY"])
def test_every_format_gives_the_answer_of_the_library(run, tensor, tmp_path, name):
    path = write(tmp_path / name, tensor)
    out = tmp_path / "made" / "here"
    result = run(path, "--rank", RANK, "--out", out)
    assert result.exit_code == 0, result.output
    given = lt.read_tns(path) if ".tns" in name else tensor
    expected = lt.decompose(given, RANK, random_state=0)
    with np.load(out / "decomposition.npz", allow_pickle=False) as saved:
        assert sorted(saved.files) == ["factor_0", "factor_1", "factor_2", "weights"]
        np.testing.assert_array_equal(saved["weights"], expected.weights)
        for mode in range(3):
            np.testing.assert_array_equal(saved[f"factor_{mode}"], expected.factors[mode])
    told = summary(out)
    assert told["residual"] == expected.residual < 1e-6
    assert told["source"]["shape"] == list(SHAPE)
    assert told["source"]["array"] == ("tensor" if name == "a.npz" else None)
    assert told["certificate"]["verdict"]
    assert sorted(told["files"]) == sorted(p.name for p in out.iterdir())
    assert "Verdict" in result.output
    assert "6 x 7 x 8" in result.output


def test_without_out_nothing_is_written(run, file):
    before = sorted(file.parent.iterdir())
    assert run(file, "--rank", 2).exit_code == 0
    assert sorted(file.parent.iterdir()) == before


def test_the_rank_is_chosen_and_explained(run, file, tmp_path):
    result = run(file, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "Proposed rank: 2" in result.output
    told = summary(tmp_path / "out")
    assert told["ranks"] == [2]
    assert told["rank_selection"]["rank"] == 2


def test_the_rank_is_chosen_from_what_was_observed(run, tensor, tmp_path):
    seen = np.random.default_rng(0).random(tensor.shape) < 0.8
    np.savez(tmp_path / "gaps.npz", tensor=tensor, seen=seen)
    arguments = ("--array", "tensor", "--mask", "seen", "--rank", "auto")
    result = run(tmp_path / "gaps.npz", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "Proposed rank: 2" in result.output
    assert "held out" in result.output
    assert summary(tmp_path / "out")["rank_selection"]["rank"] == 2


def test_noise_has_no_rank(run, tmp_path):
    np.save(tmp_path / "zero.npy", np.zeros((3, 4, 5)))
    result = run(tmp_path / "zero.npy")
    assert result.exit_code == 0, result.output
    assert "take it for noise" in result.output


@pytest.mark.parametrize("asked, core, kept", [
    ("2,2,2", (2, 2, 2), 3),
    ("3", (3, 3, 3), 3),
    ("0.999", None, 3),
    ("2,-,2", (2, 7, 2), 2),
])  # fmt: skip
def test_tucker(run, tensor, file, tmp_path, asked, core, kept):
    result = run(file, "--tucker", asked, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "out" / "decomposition.npz") as saved:
        assert len(saved.files) == kept + 1
        found = lt.TuckerTensor(
            saved["core"],
            [saved.get(f"factor_{m}") for m in range(3)],
        )
    assert core is None or found.ranks == core
    told = summary(tmp_path / "out")
    assert told["kind"] == "tucker"
    error = lt.frobenius_norm(found.to_dense() - tensor) / lt.frobenius_norm(tensor)
    assert error == pytest.approx(told["residual"], abs=1e-7)
    assert error**2 <= 0.001


def test_very_large_entries_are_no_trouble(run, tensor, file):
    np.save(file, 1e200 * tensor)
    usual = run(file, "--tucker", 2)
    assert usual.exit_code == 0, usual.output
    np.save(file, tensor)
    table = [line for line in usual.output.splitlines() if "%" in line]
    assert (
        table[:3]
        == [line for line in run(file, "--tucker", 2).output.splitlines() if "%" in line][:3]
    )


def test_nonnegative_and_seed_are_passed_on(run, tensor, file, tmp_path):
    noisy = tensor + np.random.default_rng(1).standard_normal(SHAPE)
    np.save(file, noisy)
    run(file, "--rank", 3, "--nonnegative", "--seed", 7, "--out", tmp_path / "out")
    expected = lt.decompose(noisy, 3, nonnegative=True, random_state=7)
    with np.load(tmp_path / "out" / "decomposition.npz") as saved:
        np.testing.assert_array_equal(saved["factor_1"], expected.factors[1])
        assert (saved["factor_1"] >= 0).all()
    assert summary(tmp_path / "out")["seed"] == 7


@pytest.mark.parametrize("how", ["mask in npz", "mask file", "missing in npz", "nan"])
def test_missing_entries_are_not_fitted(run, tensor, tmp_path, how):
    observed = np.random.default_rng(2).random(SHAPE) < 0.8
    spoiled = np.where(observed, tensor, np.nan)
    path = tmp_path / "t.npz"
    if how == "mask file":
        path = tmp_path / "t.npy"
        np.save(path, spoiled)
        np.save(tmp_path / "seen.npy", observed.astype(int))
        option = ["--mask", tmp_path / "seen.npy"]
    elif how == "nan":
        np.savez(path, t=spoiled)
        option = ["--missing", "nan"]
    else:
        np.savez(path, t=spoiled, seen=observed.astype(float), gone=~observed)
        option = ["--mask", "seen"] if how == "mask in npz" else ["--missing", "gone"]
        option += ["--array", "t"]
    result = run(path, "--rank", 2, *option, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"{100 * observed.mean():.4g} % observed" in result.output
    with np.load(tmp_path / "out" / "decomposition.npz") as saved:
        found = lt.CPTensor(saved["weights"], [saved[f"factor_{m}"] for m in range(3)])
    # Hidden entries too.
    np.testing.assert_allclose(found.to_dense(), tensor, atol=1e-8 * np.abs(tensor).max())


def test_sparse_archives_of_others_are_understood(run, tensor, tmp_path):
    import scipy.sparse

    matrix = scipy.sparse.random_array((9, 8), density=0.4, rng=0)
    scipy.sparse.save_npz(tmp_path / "matrix.npz", matrix.tocsr())
    result = run(tmp_path / "matrix.npz", "--rank", 1)
    assert result.exit_code == 0, result.output
    assert f"{matrix.nnz} nonzeros" in result.output
    sparse = pytest.importorskip("sparse")
    sparse.save_npz(tmp_path / "cube.npz", sparse.COO.from_numpy(tensor))
    result = run(tmp_path / "cube.npz", "--rank", 2)
    assert "6 x 7 x 8, 336 nonzeros" in result.output, result.output


@pytest.mark.parametrize("mode, shape, ending", [
    ("RGB", (6, 9, 3), "png"),
    ("RGBA", (6, 9, 4), "png"),
    ("L", (6, 9), "tif"),
    ("RGB", (6, 9, 3), "bmp"),
])  # fmt: skip
def test_images(run, tmp_path, mode, shape, ending):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 200, shape).astype(np.uint8)
    image.fromarray(pixels, mode).save(tmp_path / f"picture.{ending}")
    result = run(tmp_path / f"picture.{ending}", "--tucker", 2, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert " x ".join(map(str, shape)) in result.output
    pytest.importorskip("matplotlib")
    assert (tmp_path / "out" / "image.png").read_bytes()[:4] == b"\x89PNG"


def test_an_opaque_image_has_no_opacity(tmp_path):
    image = pytest.importorskip("PIL.Image")
    from latensor.cli.files import read_input

    pixels = np.random.default_rng(0).integers(0, 255, (4, 5, 4)).astype(np.uint8)
    pixels[:, :, 3] = 255
    image.fromarray(pixels, "RGBA").save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_input(tmp_path / "a.png").tensor, pixels[:, :, :3])


def test_figures_are_drawn(run, file, tmp_path):
    pytest.importorskip("matplotlib")
    assert run(file, "--rank", "auto", "--out", tmp_path / "out").exit_code == 0
    figures = {p.name for p in (tmp_path / "out").glob("*.png")}
    assert {"components.png", "rank.png"} <= figures


def test_own_files_are_replaced_and_those_of_others_kept(run, file, tmp_path):
    out = tmp_path / "out"
    assert run(file, "--out", out).exit_code == 0
    (out / "notes.txt").write_text("mine")
    result = run(file, "--tucker", 2, "--out", out)
    assert result.exit_code == 0, result.output
    assert summary(out)["kind"] == "tucker"
    # What the first run drew and the second did not is gone.
    assert not (out / "rank.png").exists()
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["summary.json", "components.png", "decomposition.npz"])
def test_files_of_others_are_never_overwritten(run, file, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"written_by": "somebody else", "files": ["components.png"]}')
    before = (out / name).read_bytes()
    result = run(file, "--rank", 2, "--out", out)
    assert result.exit_code == 2
    assert name in result.output
    assert "was not written by" in result.output
    assert [p.name for p in out.iterdir()] == [name]
    assert (out / name).read_bytes() == before


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_run_leaves_everything_as_it_was(run, file, tmp_path, monkeypatch, existing):
    pytest.importorskip("matplotlib")
    import latensor.plots

    out = tmp_path / "out"
    if existing:
        run(file, "--rank", 1, "--out", out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(latensor.plots, "components", interrupt)
    result = run(file, "--rank", 2, "--out", out)
    assert result.exit_code == 130
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert out.exists() == existing
    assert not list(tmp_path.glob(".latensor*"))


def test_without_matplotlib_the_numbers_are_saved(run, file, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "latensor.plots", None)
    monkeypatch.delitem(vars(lt), "plots", raising=False)
    result = run(file, "--rank", 2, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "pip install 'latensor[plots]'" in result.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "decomposition.npz",
        "summary.json",
    ]


def test_a_bar_on_a_terminal_and_silence_in_a_pipe(run, file):
    piped = run(file, "--rank", 2).output
    assert "\x1b" not in piped
    assert "\r" not in piped
    shown = run(file, "--rank", 2, env={"FORCE_COLOR": "1", "TERM": "xterm"}).output
    assert "\x1b" in shown
    assert "certifying" in shown


def test_help_shows_examples(run):
    text = run("--help").output
    assert "latensor decompose spectra.npy --tucker 0.99" in text
    assert "--missing nan" in text


def damaged(folder):
    """Files that are not what they seem, by name."""
    whole = np.ones((4, 5, 6))
    np.save(folder / "good.npy", whole)
    np.savez(folder / "two.npz", a=whole, b=whole, c=np.ones(3))
    np.savez(folder / "empty.npz")
    np.savez(folder / "words.npz", a=np.array(["x", "y"]))
    np.save(folder / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.save(folder / "scalar.npy", np.float64(3))
    np.save(folder / "hollow.npy", np.ones((3, 0, 2)))
    np.save(folder / "nan.npy", np.where(np.arange(24) == 5, np.nan, 1.0).reshape(2, 3, 4))
    np.save(folder / "half.npy", np.ones((3, 4, 5), np.float16))
    (folder / "cut.npy").write_bytes((folder / "good.npy").read_bytes()[:200])
    (folder / "cut.npz").write_bytes((folder / "two.npz").read_bytes()[:500])
    (folder / "text.npy").write_text("hello, this is no array")
    (folder / "void.npy").write_text("")
    (folder / "text.tns").write_text("1 1 1 2.0\n1 one 1 3.0\n")
    (folder / "gaps.tns").write_text("1 1 500000000 2.0\n2 2 3 3.0\n")
    (folder / "cut.tns.gz").write_bytes(b"\x1f\x8b\x08\x00\x00")
    (folder / "text.png").write_text("no picture")
    (folder / "table.csv").write_text("1,2")
    (folder / "folder.npy").mkdir()
    (folder / "archive.npy").write_bytes((folder / "two.npz").read_bytes())
    (folder / "array.npz").write_bytes((folder / "good.npy").read_bytes())
    hidden = np.ones((4, 5, 6), bool)
    hidden[2] = False
    np.save(folder / "hidden.npy", hidden)


@pytest.mark.parametrize("arguments, message", [
    ("none.npy", "none.npy: No such file"),
    ("none.npz", "none.npz: No such file"),
    ("none.tns", "none.tns: No such file"),
    ("folder.npy", "is a folder"),
    ("table.csv", "unknown kind of file, expected .npy"),
    ("table.csv", "tables are for latensor fit"),
    ("two.npz", "a (4, 5, 6), b (4, 5, 6), c (3,): say which one is the tensor by --array"),
    ("two.npz --array q", "has no array 'q': it holds a, b, c"),
    ("empty.npz", "holds no arrays"),
    ("words.npz --array a", "holds <U1 values: expected numbers"),
    ("objects.npy", "holds Python objects"),
    ("scalar.npy", "has shape ()"),
    ("hollow.npy", "has shape (3, 0, 2)"),
    ("nan.npy --rank 1", "--missing nan leaves out the 1 NaN"),
    ("nan.npy", "the first at (0, 1, 1)"),
    ("half.npy --rank 1", "float16"),
    ("cut.npy", "damaged or truncated"),
    ("cut.npz", "damaged or truncated"),
    ("text.npy", "not a NumPy file"),
    ("void.npy", "damaged or truncated"),
    ("archive.npy", "name it .npz"),
    ("array.npz", "name it .npy"),
    ("text.tns", "line 2"),
    ("gaps.tns --rank 1", "mode 2 has 500,000,000 indices, at most 2 of which have nonzeros"),
    ("cut.tns.gz", "truncated"),
    ("text.png", "cannot be read as an image"),
    ("good.npy --array a", "needs an .npz file"),
    ("good.npy --rank 0", "rank=0 must be an integer of at least 1"),
    ("good.npy --rank 99", "is met exactly: lower --rank"),
    ("good.npy --rank two", "--rank=two must be a whole number, or auto"),
    ("good.npy --rank 1 --tucker 2", "exclude each other"),
    ("good.npy --tucker 2,2", "has 2 entries, but the tensor has 3 modes"),
    ("good.npy --tucker 2,2,9", "exceeds the dimension 6"),
    ("good.npy --tucker a,b", "must be numbers between commas"),
    ("good.npy --tucker=-,-,-", "keeps every mode whole"),
    ("good.npy --tucker=-", "keeps every mode whole"),
    ("good.npy --tucker 1.5", "in (0, 1)"),
    ("good.npy --tucker 2 --ridge 1", "--ridge goes with --rank"),
    ("good.npy --rank 1 --mask none.npy", "--mask=none.npy is not a file"),
    ("good.npy --rank 1 --mask nan.npy", "has shape (2, 3, 4), but the tensor has shape (4, 5, 6)"),
    ("good.npy --rank 1 --mask hidden.npy", "slice 2 of mode 0"),
    ("good.npy --rank 1 --mask a --missing b", "give one of them"),
    ("two.npz --array a --rank 1 --mask z", "neither an array of two.npz nor a file"),
    ("two.npz --array a --rank 1 --mask c", "has shape (3,)"),
    ("good.npy --rank 1 --out table.csv", "is a file"),
])  # fmt: skip
def test_bad_input_gets_one_line(run, tmp_path, monkeypatch, arguments, message):
    damaged(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    result = run(*arguments.split())
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert message in last
    assert "Traceback" not in result.output
    assert sorted(tmp_path.iterdir()) == before


def labels_file(folder, rows):
    path = folder / "modes.csv"
    path.write_text("\n".join(",".join(row) for row in rows))
    return path


def test_labels_and_title_stand_on_the_page(run, file, tmp_path):
    sample = ["sample", *(f"<s{i}>" for i in range(6))]
    names = labels_file(tmp_path, [sample, ["wave"], ["", *(f"t{i}" for i in range(8))]])
    out = tmp_path / "page.html"
    result = run(file, "--rank", 2, "--labels", names, "--title", "My <tensor>", "--out", out)
    assert result.exit_code == 0, result.output
    page = out.read_text()
    assert "My &lt;tensor&gt;" in page
    assert "sample" in page
    assert "&lt;s" in page
    assert "<s0>" not in page
    assert re.search("latensor decompose .* --rank 2 --labels .* --title", page)


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ([["a"], ["b"]], (), "has 2 lines, but the tensor has 3 modes"),
        ([["a", "x"], ["b"], ["c"]], (), "line 1: 1 labels follow the name 'a'"),
        ([["a"], ["b"], ["c"]], ("--title", "x"), "--title is for a page"),
    ],
)
def test_labels_that_do_not_fit_are_refused(run, file, tmp_path, rows, more, message):
    result = run(file, "--labels", labels_file(tmp_path, rows), *more)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_tensor_of_zeros_is_said_to_have_no_signal(run, tmp_path):
    np.save(tmp_path / "zero.npy", np.zeros((4, 5, 6)))
    for asked in (("--rank", 2), ("--tucker", "2,2,2")):
        shown = run(tmp_path / "zero.npy", *asked).output
        assert "Note: there is no signal" in shown
        assert "No signal: the tensor is zero" in shown
        assert "of the energy" not in shown


def test_labels_of_an_archive_and_of_tucker_are_shown_and_saved(run, tmp_path):
    rng = np.random.default_rng(0)
    names = np.array(["[bold]a[/bold]", "b", "c", "d"])
    np.savez(tmp_path / "held.npz", tensor=rng.random((4, 5, 6)), sample=names)
    for option in (("--rank", 1), ("--tucker", 2)):
        out = tmp_path / option[0]
        result = run(tmp_path / "held.npz", *option, "--out", out)
        assert result.exit_code == 0, result.output
        assert "sample" in result.output
        summary = json.loads(next(out.glob("*.json")).read_text())
        assert summary["modes"] == ["sample", "mode 1", "mode 2"]
        with np.load(next(out.glob("*.npz"))) as arrays:
            np.testing.assert_array_equal(arrays["labels_0"], names)
    tensor = np.zeros((4, 5, 6))
    tensor[0] = 1.0
    np.savez(tmp_path / "held.npz", tensor=tensor, sample=names)
    assert "[bold]a[/bold]" in run(tmp_path / "held.npz", "--rank", 1).output
