"""`latensor complete`: the library's answer from every kind of file, with its held-out error."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main
from latensor.tensors.tns import read_tns_entries

SHAPE, RANK = (12, 10, 8), 2


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["complete", *map(str, arguments)])


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, RANK)) for d in SHAPE]
    factors[0][0] = 0.0  # a slice of observed zeros
    return lt.CPTensor([3.0, 2.0], factors).to_dense()


@pytest.fixture
def observed():
    return np.random.default_rng(1).random(SHAPE) < 0.5


def files_of(truth, observed, folder):
    """The same observed entries in every form, and the arguments that read them."""
    np.save(folder / "gaps.npy", np.where(observed, truth, np.nan))
    np.savez(folder / "both.npz", x=truth, seen=observed)
    lines = [
        f"{i + 1} {j + 1} {k + 1} {float(truth[i, j, k])!r}" for i, j, k in np.argwhere(observed)
    ]
    (folder / "list.tns").write_text("\n".join(lines) + "\n")
    return {
        "nan": [folder / "gaps.npy"],
        "mask": [folder / "both.npz", "--array", "x", "--mask", "seen"],
        "tns": [folder / "list.tns"],
    }


@pytest.mark.parametrize("form", ["nan", "mask", "tns"])
def test_every_form_gives_the_tensor_and_its_error(run, truth, observed, tmp_path, form):
    arguments = files_of(truth, observed, tmp_path)[form]
    places = np.argwhere(~observed)
    np.save(tmp_path / "places.npy", places)
    out = tmp_path / "out"
    result = run(*arguments, "--rank", RANK, "--at", tmp_path / "places.npy", "--out", out)
    assert result.exit_code == 0, result.output
    assert "left out of a fit" in result.output
    assert "Missing entries" in result.output
    arrays = np.load(out / "completion.npz")
    np.testing.assert_allclose(arrays["predicted"], truth[tuple(places.T)], atol=1e-6)
    assert ("completed" in arrays) == (form != "tns")
    if form != "tns":
        np.testing.assert_allclose(arrays["completed"], truth, atol=1e-6)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["written_by"] == "latensor complete"
    assert summary["held_out_error"] < 1e-6


def test_the_rank_is_chosen_by_default(run, truth, observed, tmp_path):
    result = run(*files_of(truth, observed, tmp_path)["nan"])
    assert result.exit_code == 0, result.output
    assert "2 components" in result.output
    assert not list(tmp_path.glob("out*"))


def test_zeros_of_a_list_are_values(tmp_path):
    (tmp_path / "list.tns").write_text("1 1 0\n1 2 3\n2 2 0\n")
    coordinates, values, shape = read_tns_entries(tmp_path / "list.tns")
    assert shape == (2, 2)
    assert values.tolist() == [0.0, 3.0, 0.0]
    assert coordinates.tolist() == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("whole.npy --rank 1", "no missing entry"),
        ("gaps.npy --rank 1 --at places.npy", "--at needs --out"),
        ("list.tns --rank 1 --mask seen.npy", "a line for every observed entry"),
        ("gaps.npy --rank two", "--rank=two"),
        ("absent.npy --rank 1", "absent.npy"),
        ("hidden.npy --rank 1", "slice 2 of mode 0"),
    ],
)
def test_bad_calls_are_refused_in_a_line(
    run, truth, observed, tmp_path, monkeypatch, arguments, message
):
    files_of(truth, observed, tmp_path)
    np.save(tmp_path / "whole.npy", truth)
    np.save(tmp_path / "hidden.npy", np.where(np.arange(12)[:, None, None] == 2, np.nan, truth))
    monkeypatch.chdir(tmp_path)
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_page_in_place_of_a_folder(run, truth, observed, tmp_path):
    np.savez(tmp_path / "gaps.npz", x=np.where(observed, truth, np.nan), hour=np.arange(8.0) / 2)
    page = tmp_path / "page.html"
    arguments = [tmp_path / "gaps.npz", "--rank", RANK]
    result = run(*arguments, "--title", "Gaps & more", "--out", page)
    assert result.exit_code == 0, result.output
    assert page.is_file()
    text = page.read_text(encoding="utf-8")
    assert "Gaps &amp; more" in text
    assert "hour" in text
    assert "latensor complete" in text
    assert f"The page is in {page}" in result.output
    for wrong in (["--at", tmp_path / "gaps.npz", "--out", page], ["--title", "x"]):
        refused = run(*arguments, *wrong)
        assert refused.exit_code == 2
        assert "--out" in refused.output
    again = run(*arguments, "--out", tmp_path / "gaps.npz")
    assert again.exit_code != 0
    assert (tmp_path / "gaps.npz").stat().st_size


def test_labels_of_a_file(run, truth, observed, tmp_path):
    np.save(tmp_path / "gaps.npy", np.where(observed, truth, np.nan))
    lines = [",".join([name, *(f"{name}{i}" for i in range(d))])
             for name, d in zip(("day", "place", "hour"), SHAPE, strict=True)]  # fmt: skip
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    arguments = [tmp_path / "gaps.npy", "--rank", RANK, "--labels", tmp_path / "labels.csv"]
    result = run(*arguments, "--out", out)
    assert result.exit_code == 0, result.output
    assert list(np.load(out / "completion.npz")["labels_2"]) == [f"hour{i}" for i in range(8)]
