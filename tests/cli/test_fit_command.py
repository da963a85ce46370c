"""`latensor fit`: every model and kind of file, the library's own answer out, nothing by half."""

import csv
import json
import shlex
import time

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main
from latensor.cli.fit_models import MODELS

NAMES = [entry.name for entry in MODELS]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **more: CliRunner().invoke(
        main, ["fit", *map(str, arguments)], **more
    )


def table(path, columns):
    """A CSV file of named columns."""
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def named(rows, stem="c"):
    return {f"{stem}{j}": rows[:, j] for j in range(rows.shape[1])}


@pytest.fixture(scope="module")
def planted():
    """By model: the columns of a file, the options, and what the class is fitted to."""
    make = lt.datasets
    spherical = make.make_spherical_mixture(300, 5, 3, separation=8, random_state=0).samples
    diagonal = make.make_diagonal_mixture(600, 9, 2, separation=8, random_state=0).samples
    views = make.make_multi_view(400, (3, 4, 3), 2, separation=8, random_state=0).views
    symbols = make.make_hmm(600, 5, 2, n_sequences=6, stay=0.6, random_state=0)
    points = make.make_gaussian_hmm(400, 2, 2, n_sequences=4, separation=6, random_state=0)
    mixed = make.make_ica(2000, 4, 3, random_state=0).samples
    line = make.make_pearson(400, separation=4, random_state=0).samples
    causes = make.make_noisy_or(600, 12, 2, prior=0.15, density=0.5, random_state=0).samples
    lines = make.make_regressions(400, 3, 2, random_state=0)
    units = make.make_network(600, 3, 2, random_state=0)
    letters = np.array(list("pqrst"))[symbols.X[:, 0]]
    which = np.repeat([f"s{j}" for j in range(6)], symbols.lengths)
    part = np.repeat(np.arange(4), points.lengths)
    grouped = named(views[0], "x") | named(views[1], "y") | named(views[2], "z")
    network = make.make_block_model(80, 2, alpha0=0.1, degree=15, random_state=0)
    edges = np.argwhere(np.triu(network.adjacency.toarray()))
    sites = make.make_tree(300, 6, model="general", random_state=0).X
    return {
        "communities": (
            {"from": edges[:, 0], "to": edges[:, 1]},
            ["--components", "2"],
            (edges,),
        ),
        "tree": (named(sites), [], (sites,)),
        "spherical": (named(spherical), ["--components", "3"], (spherical,)),
        "diagonal": (named(diagonal), ["--components", "2"], (diagonal,)),
        "gaussian": (
            named(spherical),
            ["--components", "3", "--covariance", "tied"],
            (spherical,),
        ),
        "product": (named(diagonal), ["--components", "2"], (diagonal,)),
        "multi-view": (
            grouped,
            ["--components", "2", "--views", "x0-x2:y0-y3:z0,z1,z2"],
            (list(views),),
        ),
        "categorical-hmm": (
            {"which": which, "letter": letters},
            ["--components", "2", "--lengths", "which"],
            (symbols.X, symbols.lengths),
        ),
        "gaussian-hmm": (
            {"part": part} | named(points.X),
            ["--components", "2", "--lengths", "part", "--covariance", "full"],
            (points.X, points.lengths),
        ),
        "ica": (named(mixed), ["--components", "3", "--noise", "gaussian"], (mixed,)),
        "noisy-or": (named(causes), ["--components", "2"], (causes,)),
        "regressions": (
            named(lines.X) | {"price": lines.y},
            ["--components", "2", "--target", "price"],
            (lines.X, lines.y),
        ),
        "network": (
            named(units.X) | {"price": units.y},
            ["--components", "2", "--target", "price"],
            (units.X, units.y),
        ),
        "pearson": (named(line), [], (line,)),
        "pca": (named(spherical), ["--components", "2"], (spherical,)),
        "cca": (grouped, ["--components", "2", "--views", "x0-x2:y0-y3"], tuple(views[:2])),
    }


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_gives_the_answer_of_the_library(run, planted, tmp_path, name):
    columns, options, arguments = planted[name]
    table(tmp_path / "data.csv", columns)
    result = run(name, "data.csv", *options, "--out", "found")
    assert result.exit_code == 0, result.output
    entry = MODELS[NAMES.index(name)]
    chosen = options[options.index("--covariance") + 1] if "--covariance" in options else None
    more = {} if chosen is None else {"covariance_type": chosen}
    count = {"n_components": int(options[1])} if "--components" in options else {}
    model = getattr(lt, entry.model)(**count, **more, random_state=0).fit(*arguments)
    told = strict(tmp_path / "found" / "parameters.json")
    with np.load(tmp_path / "found" / "parameters.npz", allow_pickle=False) as saved:
        for parameter in entry.parameters:
            if not hasattr(model, f"{parameter}_"):
                continue
            expected = getattr(model, f"{parameter}_")
            several = isinstance(expected, list)
            for t, part in enumerate(expected if several else [expected]):
                key = f"{parameter}_{t}" if several else parameter
                np.testing.assert_array_equal(saved[key], part)
                np.testing.assert_allclose(told["parameters"][key], part, rtol=1e-15)
    assert told["certificate"]["verdict"] in result.output
    assert f"Verdict: {told['certificate']['verdict']}" in told["certificate"]["text"]
    assert told["versions"]["latensor"] == lt.__version__
    summary = strict(tmp_path / "found" / "summary.json")
    assert summary["verdict"] == told["certificate"]["verdict"]
    assert sorted(summary["files"]) == sorted(p.name for p in (tmp_path / "found").iterdir())
    assert entry.kind.result in summary["files"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_run_says_of_itself_repeats_it(run, planted, tmp_path, name):
    columns, options, _ = planted[name]
    table(tmp_path / "data.csv", columns)
    assert run(name, "data.csv", *options, "--seed", 3, "--no-figure", "--out", "a").exit_code == 0
    told = strict(tmp_path / "a" / "parameters.json")
    assert not list((tmp_path / "a").glob("*.png"))
    words = shlex.split(told["reproduce"]["command"])
    assert words[:4] == ["latensor", "fit", name, "data.csv"]
    again = [word if word != "a" else "b" for word in words[2:]]
    assert run(*again).exit_code == 0
    arrays = (tmp_path / "a" / "parameters.npz").read_bytes()
    assert (tmp_path / "b" / "parameters.npz").read_bytes() == arrays
    scope = {}
    exec("\n".join(told["reproduce"]["python"]), scope)
    first = MODELS[NAMES.index(name)].parameters[0]
    found = getattr(scope["model"], f"{first}_")
    np.testing.assert_array_equal(found, told["parameters"][first])


def test_labels_are_those_of_the_model(run, planted, tmp_path):
    columns, options, (X,) = planted["spherical"]
    table(tmp_path / "data.csv", columns)
    run("spherical", "data.csv", *options, "--out", "found")
    with open(tmp_path / "found" / "labels.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    model = lt.SphericalGaussianMixture(3, random_state=0).fit(X)
    assert [int(row["component"]) for row in rows] == model.predict(X).tolist()
    chances = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(chances, model.predict_proba(X).max(axis=1), atol=1e-5)
    assert [int(row["row"]) for row in rows] == list(range(len(X)))


def test_states_are_named_by_their_sequences(run, planted, tmp_path):
    columns, options, arguments = planted["categorical-hmm"]
    table(tmp_path / "data.csv", columns)
    result = run("categorical-hmm", "data.csv", *options, "--out", "found")
    with open(tmp_path / "found" / "states.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["sequence"] for row in rows] == columns["which"].tolist()
    model = lt.CategoricalHMM(2, random_state=0).fit(*arguments)
    assert [int(row["state"]) for row in rows] == model.predict(*arguments).tolist()
    # Text is numbered in its order, and called by its name.
    assert strict(tmp_path / "found" / "parameters.json")["features"] == list("pqrst")
    assert "5 kinds: p, q, r, s, t, 6 sequences of 100 rows" in result.output


@pytest.mark.parametrize("name, file", [
    ("ica", "sources.npy"), ("pca", "scores.npy"), ("cca", "scores.npz"),
])  # fmt: skip
def test_sources_and_scores(run, planted, tmp_path, name, file):
    columns, options, arguments = planted[name]
    table(tmp_path / "data.csv", columns)
    run(name, "data.csv", *options, "--out", "found")
    entry = MODELS[NAMES.index(name)]
    model = getattr(lt, entry.model)(int(options[1]), random_state=0).fit(*arguments)
    expected = model.transform(*arguments)
    saved = np.load(tmp_path / "found" / file)
    for key, part in zip("xy", expected, strict=True) if name == "cca" else [(..., expected)]:
        np.testing.assert_array_equal(saved[key], part)


def write(path, rows):
    """The same rows in the format that the name asks for."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows=rows, labels=np.arange(len(rows)))
    else:
        delimiter = {"a.tsv": "\t", "semicolons.csv": ";"}.get(path.name, ",")
        header = "" if "plain" in path.name else delimiter.join("abcde")
        np.savetxt(path, rows, delimiter=delimiter, header=header, comments="")


@pytest.mark.parametrize(
    "file", ["a.csv", "plain.csv", "a.csv.gz", "a.tsv", "semicolons.csv", "a.npy", "a.npz", "A.NPY"]
)
def test_every_kind_of_file(run, planted, tmp_path, file):
    rows = planted["spherical"][2][0]
    if file == "A.NPY":
        with open(tmp_path / file, "wb") as stream:
            np.save(stream, rows)
    else:
        write(tmp_path / file, rows)
    result = run("spherical", file, "--components", 3, "--out", "found", "--no-figure")
    assert result.exit_code == 0, result.output
    assert "300 rows of 5 columns" in result.output
    model = lt.SphericalGaussianMixture(3, random_state=0).fit(rows)
    with np.load(tmp_path / "found" / "parameters.npz") as saved:
        np.testing.assert_array_equal(saved["means"], model.means_)


def test_parquet(run, planted, tmp_path):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    columns, options, (X,) = planted["spherical"]
    pandas.DataFrame({**columns, "word": "x"}).to_parquet(tmp_path / "a.parquet")
    refused = run("spherical", "a.parquet")
    assert "'word' holds no numbers" in refused.output
    result = run("spherical", "a.parquet", *options, "--columns", "c0-c4", "--out", "found")
    assert result.exit_code == 0, result.output
    model = lt.SphericalGaussianMixture(3, random_state=0).fit(X)
    with np.load(tmp_path / "found" / "parameters.npz") as saved:
        np.testing.assert_array_equal(saved["means"], model.means_)


def test_arrays_of_an_archive(run, planted, tmp_path):
    views = planted["multi-view"][2][0]
    X, lengths = planted["gaussian-hmm"][2]
    np.savez(tmp_path / "v.npz", a=views[0], b=views[1], c=views[2], labels=np.arange(400))
    np.savez(tmp_path / "h.npz", x=X, lengths=lengths, ids=np.repeat(list("abcd"), lengths))
    seen = run("multi-view", "v.npz", "--components", 2)
    assert "400 rows in 3 views of 3, 4, 3 columns" in seen.output
    pair = run("cca", "v.npz", "--views", "c:a")
    assert "2 views of 3, 3 columns" in pair.output
    by = {}
    for name in ("lengths", "ids"):
        options = ["--components", 2, "--lengths", name, "--out", name]
        assert run("gaussian-hmm", "h.npz", *options).exit_code == 0
        by[name] = (tmp_path / name / "parameters.npz").read_bytes()
    assert by["lengths"] == by["ids"]


def test_views_of_symbols(run, tmp_path):
    sample = lt.datasets.make_multi_view(900, (3, 4, 5), 2, kind="categorical", random_state=0)
    symbols = [np.argmax(view, axis=1) for view in sample.views]
    words = np.array(list("abc"))[symbols[0]]
    table(tmp_path / "s.csv", {"a": words, "b": symbols[1], "c": symbols[2]})
    options = ["--views", "a:b:c", "--kinds", "categorical,categorical,categorical"]
    result = run("multi-view", "s.csv", *options, "--components", 2, "--out", "found")
    assert result.exit_code == 0, result.output
    model = lt.MultiViewMixture(2, random_state=0).fit(symbols)
    with np.load(tmp_path / "found" / "parameters.npz") as saved:
        np.testing.assert_allclose(saved["means_2"], model.means_[2], rtol=1e-12)


def test_weights_count_rows(run, tmp_path):
    counts = [1, 3, 5, 2, 7, 10, 13, 19, 20, 25, 40, 31, 60, 62, 54,
              74, 84, 86, 96, 85, 75, 47, 43, 24, 19, 9, 5, 0, 1]  # fmt: skip
    table(tmp_path / "crabs.csv", {"class": np.arange(1, 30), "crabs": np.array(counts)})
    result = run("pearson", "crabs.csv", "--weights", "crabs", "--refine", 0, "--out", "found")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "found" / "parameters.npz") as saved:
        np.testing.assert_allclose(saved["means"].ravel(), [19.28, 13.41], atol=0.05)
    assert "2 mixtures meet the first five moments" in result.output


def test_without_out_nothing_is_written(run, planted, tmp_path):
    table(tmp_path / "data.csv", planted["spherical"][0])
    assert run("spherical", "data.csv").exit_code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


def test_the_number_of_components_is_chosen(run, planted, tmp_path):
    table(tmp_path / "data.csv", planted["spherical"][0])
    result = run("spherical", "data.csv", "--components", "auto")
    assert "3 components, chosen from the data" in result.output


def test_the_list_names_every_model(run):
    result = run("--list")
    assert result.exit_code == 0
    for entry in MODELS:
        assert f"{entry.name}  (lt.{entry.model})" in result.output
        assert hasattr(lt, entry.model)


@pytest.mark.parametrize("entry", MODELS, ids=NAMES)
def test_every_option_is_a_parameter_of_its_class(entry):
    known = getattr(lt, entry.model)().get_params()
    for parameter in entry.options.values():
        assert parameter is None or parameter in known
    assert entry.components is None or "n_components" in known


def test_files_of_an_earlier_run_are_replaced_and_those_of_others_kept(run, planted, tmp_path):
    table(tmp_path / "data.csv", planted["spherical"][0])
    out = tmp_path / "out"
    run("spherical", "data.csv", "--out", "out")
    (out / "mine.txt").write_text("mine")
    run("pca", "data.csv", "--out", "out", "--no-figure")
    assert sorted(p.name for p in out.iterdir()) == [
        "mine.txt", "parameters.json", "parameters.npz", "scores.npy", "summary.json",
    ]  # fmt: skip
    other = tmp_path / "other"
    other.mkdir()
    (other / "labels.csv").write_text("theirs")
    result = run("spherical", "data.csv", "--out", "other")
    assert result.exit_code == 2
    assert "was not written by" in result.output
    assert (other / "labels.csv").read_text() == "theirs"


@pytest.mark.parametrize("where", ["fit", "figure"])
def test_an_interrupted_run_leaves_everything_as_it_was(run, planted, tmp_path, monkeypatch, where):
    plots = pytest.importorskip("latensor.plots")
    table(tmp_path / "data.csv", planted["spherical"][0])
    run("spherical", "data.csv", "--out", "out")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    if where == "fit":
        monkeypatch.setattr(lt.DiagonalGaussianMixture, "fit", interrupt)
    else:
        monkeypatch.setattr(plots, "picture", interrupt)
    result = run("diagonal", "data.csv", "--components", 2, "--out", "out")
    assert result.exit_code == 130
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_without_matplotlib_the_numbers_are_saved(run, planted, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "latensor.plots", None)
    monkeypatch.delitem(vars(lt), "plots", raising=False)
    table(tmp_path / "data.csv", planted["spherical"][0])
    result = run("spherical", "data.csv", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "pip install 'latensor[plots]'" in result.output
    assert not list((tmp_path / "out").glob("*.png"))


def test_a_bar_on_a_terminal_and_silence_in_a_pipe(run, planted, tmp_path):
    table(tmp_path / "data.csv", planted["spherical"][0])
    piped = run("spherical", "data.csv").output
    assert "\x1b" not in piped
    assert "\r" not in piped
    shown = run("spherical", "data.csv", env={"FORCE_COLOR": "1", "TERM": "xterm"}).output
    assert "measuring the likelihood" in shown


@pytest.mark.parametrize("width", [20, 40, 200])
def test_names_are_shown_as_they_are_at_any_width(run, planted, tmp_path, width):
    rows = planted["spherical"][2][0][:, :2]
    table(tmp_path / "data.csv", {"[red]": rows[:, 0], "[/]": rows[:, 1]})
    result = run("spherical", "data.csv", "--components", 2, env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    assert width < 200 or "mean [red]" in result.output


def test_a_file_on_its_side(run, planted, tmp_path):
    columns, options, (mixed,) = planted["ica"]
    table(tmp_path / "upright.csv", columns)
    lines = [
        ",".join([name, *(repr(float(v)) for v in values)]) for name, values in columns.items()
    ]
    (tmp_path / "aside.csv").write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "aside.npy", mixed.T)
    told = []
    for file, more in (
        ("upright.csv", []),
        ("aside.csv", ["--transpose"]),
        ("aside.npy", ["--transpose"]),
    ):
        result = run("ica", file, *options, *more, "--no-figure", "--out", f"{file}.found")
        assert result.exit_code == 0, result.output
        assert f"{len(mixed):,} rows of 4 columns" in result.output
        told.append(strict(tmp_path / f"{file}.found" / "parameters.json"))
    assert told[0]["parameters"] == told[1]["parameters"] == told[2]["parameters"]
    assert told[0]["features"] == told[1]["features"]
    assert ".T" in " ".join(told[2]["reproduce"]["python"])


def test_thousands_of_columns_are_read_at_once(run, tmp_path):
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(5, 20_000)))
    start = time.process_time()
    result = run("pca", "wide.npy", "--components", "2")
    assert result.exit_code == 0, result.output
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "model, gap, header",
    [("gaussian", "", ["a,b"]), ("gaussian", "NA", []), ("gaussian-hmm", " null", ["a,b"])],
)
def test_fields_that_were_not_observed(run, tmp_path, model, gap, header):
    X = lt.datasets.make_spherical_mixture(200, 2, 2, separation=9, random_state=0).samples
    X[::7, 1] = np.nan
    lines = [",".join(gap if np.isnan(v) else repr(float(v)) for v in row) for row in X]
    (tmp_path / "gaps.csv").write_text("\n".join([*header, *lines]) + "\n")
    result = run(model, "gaps.csv", "--components", "2", "--out", "found")
    assert result.exit_code == 0, result.output
    assert "29 values not observed" in result.output
    labels = (
        tmp_path / "found" / ("labels.csv" if model == "gaussian" else "states.csv")
    ).read_text()
    assert len(labels.splitlines()) == 201


def test_named_nodes_weights_and_an_adjacency(run, planted, tmp_path):
    edges = planted["communities"][2][0]
    names = np.array([f"n{i:02}" for i in range(80)])
    weights = np.ones(len(edges))
    table(tmp_path / "e.csv", {"a": names[edges[:, 0]], "b": names[edges[:, 1]], "w": weights})
    result = run("communities", "e.csv", "--components", 2, "--weights", "w", "--out", "found")
    assert result.exit_code == 0, result.output
    assert "edges with weights" in result.output
    with open(tmp_path / "found" / "memberships.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    model = lt.MixedMembershipBlockModel(2, random_state=0).fit(edges)
    assert [row["node"] for row in rows] == names.tolist()
    assert [int(row["community"]) for row in rows] == model.labels_.tolist()
    adjacency = np.zeros((80, 80))
    adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1
    np.save(tmp_path / "a.npy", adjacency)
    again = run("communities", "a.npy", "--components", 2, "--out", "again")
    assert again.exit_code == 0, again.output
    first, second = (np.load(tmp_path / f / "parameters.npz") for f in ("found", "again"))
    np.testing.assert_array_equal(first["membership"], second["membership"])
    assert "--weights is for edges" in run("communities", "a.npy", "--weights", "x").output
    assert "has the columns" in run("communities", "e.csv", "--weights", "x").output


def test_sequences_become_a_tree(run, planted, tmp_path):
    sites = planted["tree"][2][0]
    letters = np.array(list("ACGT"))[sites.T]
    text = "".join(f">t{i}\n{''.join(row)}\n" for i, row in enumerate(letters))
    (tmp_path / "s.fasta").write_text(text)
    result = run("tree", "s.fasta", "--out", "found")
    assert result.exit_code == 0, result.output
    assert "6 sequences of 300 sites, symbols ACGT" in result.output
    newick = (tmp_path / "found" / "tree.nwk").read_text()
    model = lt.LatentTree(random_state=0).fit(sites)
    assert newick.strip() == model.newick(
        [f"t{i}" for i in range(6)], support=True, root="midpoint"
    )
    scope = {}
    exec("\n".join(strict(tmp_path / "found" / "parameters.json")["reproduce"]["python"]), scope)
    np.testing.assert_array_equal(scope["model"].leafprob_, model.leafprob_)
    assert "not for FASTA" in run("tree", "s.fasta", "--columns", "0").output
    assert run("tree", "none.fasta").exit_code != 0
    points = lt.datasets.make_tree(200, 5, model="gaussian", shape="star", random_state=0).X
    table(tmp_path / "p.csv", named(points))
    assert run("tree", "p.csv", "--collapse", 0.05, "--out", "points").exit_code == 0
    assert (tmp_path / "points" / "tree.nwk").read_text().count("(") < 4
    assert "--collapse" in run("tree", "p.csv", "--collapse", 2).output


def test_every_option_of_a_model_reaches_it(run, planted, tmp_path):
    table(tmp_path / "n.csv", planted["network"][0])
    options = ("--activation", "tanh", "--scores", "mixture", "--refine", 1, "--components", 2)
    result = run("network", "n.csv", "--target", "price", *options, "--out", "found")
    assert result.exit_code == 0, result.output
    lines = strict(tmp_path / "found" / "parameters.json")["reproduce"]["python"]
    assert any("activation='tanh'" in line and "scores='mixture'" in line for line in lines)


def test_a_page_in_place_of_a_folder(run, tmp_path):
    rng = np.random.default_rng(0)
    table("data.csv", {"left": rng.normal(size=200), "<b>": rng.normal(size=200)})
    result = run("gaussian", "data.csv", "--components", 1, "--out", "page.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "latensor fit gaussian data.csv" in page
    assert "&lt;b&gt;" in page
    assert "mean <b>" not in page
    assert not (tmp_path / "page.html").is_dir()
    assert run("gaussian", "data.csv", "--out", "none/page.html").exit_code == 2


def test_a_saved_model_answers_for_other_rows(run, tmp_path):
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(100, 2)), rng.normal(8, 1, (100, 2))])
    table("data.csv", {"a": rows[:, 0], "b": rows[:, 1]})
    table("more.csv", {"a": np.array([0.0, 8.0]), "b": np.array([0.0, 8.0])})
    options = ("--components", 2, "--save", "model.npz")
    assert run("gaussian", "data.csv", *options).exit_code == 0
    result = run("gaussian", "more.csv", "--apply", "model.npz")
    lines = [line for line in result.stdout.splitlines() if "," in line]
    assert lines[0] == "row,component,probability"
    model = lt.load(tmp_path / "model.npz")
    expected = model.predict(np.array([[0.0, 0.0], [8.0, 8.0]]))
    assert [int(line.split(",")[1]) for line in lines[1:3]] == expected.tolist()
    assert run("gaussian", "more.csv", "--apply", "model.npz", "--out", "l.csv").exit_code == 0
    assert (tmp_path / "l.csv").read_text().splitlines() == lines[:3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("diagonal", "data.csv", "--apply", "model.npz"), "holds a GaussianMixture"),
        (("gaussian", "data.csv", "--apply", "model.npz", "--components", 2), "no place beside"),
        (("gaussian", "data.csv", "--apply", "model.npz", "--out", "x.npy"), "end with .csv"),
        (("gaussian", "data.csv", "--apply", "none.npz"), "none.npz"),
        (("gaussian", "data.csv", "--apply", "model.npz", "--out", "data.csv"), "overwrite"),
        (("tree", "data.csv", "--apply", "model.npz"), "not for tree"),
        (("ica", "data.csv", "--apply", "model.npz"), "--out FILE.npy"),
    ],
)
def test_what_cannot_be_applied(run, arguments, words):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    table("data.csv", {"a": rows[:, 0], "b": rows[:, 1]})
    lt.GaussianMixture(1, random_state=0).fit(rows).save("model.npz")
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
