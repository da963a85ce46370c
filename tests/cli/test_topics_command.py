"""`latensor topics`: every kind of file in, topics and a report out, nothing by half."""

import csv
import gzip
import json
import os
import re
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.cli import main

N_DOCUMENTS, N_TOPICS = 240, 3
NAMES = [f"{theme}{'abcdefghijkl'[j]}" for theme in ("sea", "law", "tea") for j in range(12)]


@pytest.fixture(scope="module")
def texts():
    """Documents of three themes with words of their own, glued by function words."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(N_DOCUMENTS):
        fractions = np.full(N_TOPICS, 0.05)
        fractions[i % N_TOPICS] = 0.9
        themes = rng.choice(N_TOPICS, size=30, p=fractions)
        words = [NAMES[12 * t + int(12 * rng.random() ** 1.3)] for t in themes]
        found.append("The " + " and ".join(words).capitalize() + (" rare" if i == 7 else "") + ".")
    return found


def write(folder, name, texts):
    """The same documents in the format that the name asks for."""
    path = folder / name
    if ".jsonl" in name:
        content = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))
    elif ".csv" in name:
        content = "id,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(texts))
    elif ".uci" in name:
        content = counts_file(texts)
    else:
        content = "\n".join(texts) + "\n"
    (gzip.open if name.endswith(".gz") else open)(path, "wb").write(content.encode())
    return path


def counts_file(texts):
    rows = []
    for i, text in enumerate(texts):
        words = [w.strip(".").lower() for w in text.split()]
        rows += [
            f"{i + 1} {j + 1} {words.count(name)}" for j, name in enumerate(NAMES) if name in words
        ]
    return "\n".join([str(len(texts)), str(len(NAMES)), str(len(rows)), *rows]) + "\n"


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["topics", *map(str, arguments)])


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus"), "corpus.txt", texts)


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    arguments = ["topics", str(corpus), "--topics", "3", "--save", str(path)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    return path


def themes(model):
    """The theme of the best words of every topic, sorted."""
    return sorted(words[0][:3] for words in model.top_words(1))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz", "a.csv", "a.uci"])
def test_every_format_gives_the_same_topics(run, texts, tmp_path, name):
    path = write(tmp_path, name, texts)
    (tmp_path / "words.txt").write_text("\n".join(NAMES))
    out, save = tmp_path / "report.html", tmp_path / "model.npz"
    more = ["--vocab", tmp_path / "words.txt"] if name == "a.uci" else []
    result = run(path, "--topics", 3, "--out", out, "--save", save, *more)
    assert result.exit_code == 0, result.output
    model = lt.LatentDirichletAllocation.load(save)
    assert themes(model) == ["law", "sea", "tea"]
    assert set(model.vocabulary_) == set(NAMES)
    assert "240 documents" in result.output
    assert "Verdict" in result.output
    for stage in ("reading", "subspace", "refinement", "description"):
        assert re.search(rf"{stage} \d+\.\d\d s", result.output)
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert name in page
    assert "240 documents" in page
    assert "--topics 3" in page
    # Texts are shown as they are but for marks; of counts the words.
    page = re.sub("</?mark>", "", page)
    assert any(text[:60] in page for text in texts) == (name != "a.uci")
    assert any(f"{word} ×" in page for word in NAMES) == (name == "a.uci")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        {name, "words.txt", "report.html", "model.npz"}
    )


def test_what_was_left_out_is_said(run, corpus):
    result = run(corpus, "--topics", 3)
    assert "Left out: 2 stop words, 1 words in fewer than 3 documents; 36 words stay" in (
        result.output
    )
    whole = run(corpus, "--topics", 3, "--stop-words", "none", "--min-df", 1, "--max-df", "1.0")
    assert "Left out" not in whole.output


@pytest.mark.parametrize(
    "options, said",
    [
        (["--min-df", "0.9", "--max-df", "1.0", "--stop-words", "none"], "2 words stay"),
        (["--max-features", "10"], "26 less frequent words; 10 words stay"),
        (["--max-df", "100"], "words in more than 100 documents"),
    ],
)
def test_words_are_chosen_as_asked(run, corpus, options, said):
    result = run(corpus, "--topics", 2, "--refine", 0, *options)
    assert said in result.output


def test_stop_words_come_from_a_file(run, corpus, tmp_path):
    (tmp_path / "stop.txt").write_text("seaa\nSEAB\nthe\n")
    result = run(corpus, "--topics", 3, "--stop-words", tmp_path / "stop.txt", "--max-df", "1.0")
    assert "3 stop words" in result.output
    assert "seaa" not in result.output.split("NPMI")[1]


def test_function_words_that_were_given_are_pointed_out(run, corpus, tmp_path):
    (tmp_path / "words.txt").write_text("\n".join([*NAMES, "and"]))
    vocabulary = ["--vocab", tmp_path / "words.txt"]
    advice = "(and): --stop-words english leaves them out"
    assert advice in run(corpus, "--topics", 3, *vocabulary).output
    for choice in ("english", "none"):
        shown = run(corpus, "--topics", 3, *vocabulary, "--stop-words", choice).output
        assert "leaves them out" not in shown
    assert "leaves them out" not in run(corpus, "--topics", 3).output


def test_auto_shows_its_evidence(run, corpus):
    result = run(corpus)
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ topics: (each|no more)", result.output)


def test_options_reach_the_model(run, corpus, tmp_path):
    save = tmp_path / "m.npz"
    result = run(corpus, "--topics", 3, "--refine", 0, "--seed", 5, "--words", 2, "--save", save)
    model = lt.LatentDirichletAllocation.load(save)
    assert (model.refine, model.random_state, model.n_iter_) == (0, 5, 1)
    best = [" ".join(words) for words in model.top_words(2)]
    assert all(words in result.output for words in best)
    assert " ".join(model.top_words(3)[0]) not in result.output


def test_threads_do_not_change_the_answer(run, corpus, tmp_path):
    saved = []
    for jobs in (1, 2):
        run(corpus, "--topics", 3, "--jobs", jobs, "--save", tmp_path / f"{jobs}.npz")
        saved.append(lt.LatentDirichletAllocation.load(tmp_path / f"{jobs}.npz").components_)
    np.testing.assert_array_equal(*saved)


def test_the_report_says_how_to_get_the_same_again(run, corpus, model, tmp_path, monkeypatch):
    from latensor.cli.corpus import Reading
    from latensor.cli.topic_run import Wish, _snippet

    settings = {"min_df": 3, "max_df": 0.5, "stop_words": "english", "max_features": None}
    names = {}
    exec(_snippet(Reading(corpus), settings, Wish(topics=3)), names)
    expected = lt.LatentDirichletAllocation.load(model)
    np.testing.assert_array_equal(names["model"].components_, expected.components_)
    monkeypatch.chdir(tmp_path)
    run(corpus, "--topics", 3, "--out", "a b.html", "--min-df", "0.01")
    page = (tmp_path / "a b.html").read_text(encoding="utf-8")
    command = page.split("<code>latensor topics ")[1].split("</code>")[0].replace("&#x27;", "'")
    words = shlex.split(command.replace("&#39;", "'"))
    assert words == [str(corpus), "--topics", "3", "--min-df", "0.01", "--out", "a b.html"]


def read_fractions(path):
    with open(path, newline="", encoding="utf-8") as stream:
        head, *rows = csv.reader(stream)
    assert head == ["document", "topic_0", "topic_1", "topic_2"]
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    return np.array([[float(fraction) for fraction in row[1:]] for row in rows])


@pytest.mark.parametrize("name", ["new.txt", "new.jsonl", "new.uci"])
def test_a_saved_model_is_applied(run, model, texts, tmp_path, name):
    file = write(tmp_path, name, [*texts[:5], "Nothing known here"])
    (tmp_path / "words.txt").write_text("\n".join(NAMES))
    more = ["--vocab", tmp_path / "words.txt"] if name == "new.uci" else []
    result = run("--apply", model, file, "--out", tmp_path / "m.csv", *more)
    assert result.exit_code == 0, result.output
    assert "3 topics in 6 documents" in result.output
    assert "1 of them hold no word" in result.output
    loaded = lt.LatentDirichletAllocation.load(model)
    place = {word: j for j, word in enumerate(loaded.vocabulary_)}
    counts = np.zeros((6, len(place)))
    for i, text in enumerate(texts[:5]):
        for word in text.lower().strip(".").split():
            if word in place:
                counts[i, place[word]] += 1
    expected = loaded.transform(counts)
    fractions = read_fractions(tmp_path / "m.csv")
    np.testing.assert_allclose(fractions, expected, rtol=2e-6, atol=1e-6)
    result = run("--apply", model, file, "--out", tmp_path / "m.npz", *more)
    with np.load(tmp_path / "m.npz", allow_pickle=False) as saved:
        np.testing.assert_allclose(saved["mixtures"], expected, rtol=1e-6)
    printed = run("--apply", model, file, *more)
    assert printed.stdout == (tmp_path / "m.csv").read_text()


def test_columns_without_names_are_known_by_number(run, texts, tmp_path):
    file = write(tmp_path, "a.uci", texts)
    save = tmp_path / "m.npz"
    # Some columns go, and the others must find each other again.
    assert run(file, "--topics", 3, "--max-features", 30, "--save", save).exit_code == 0
    assert all(word.isdecimal() for word in lt.LatentDirichletAllocation.load(save).vocabulary_)
    assert run("--apply", save, file, "--out", tmp_path / "m.csv").exit_code == 0
    fractions = read_fractions(tmp_path / "m.csv")
    main_topic = fractions.argmax(axis=1)
    assert len({tuple(main_topic[j::3]) for j in range(3)}) == 3
    assert (np.sort(fractions, axis=1)[:, -1] > 0.5).mean() > 0.95
    text = write(tmp_path, "a.txt", texts)
    assert "only by number" in run("--apply", save, text).output


def test_words_with_capitals_are_found_as_they_stand(run, tmp_path, texts):
    (tmp_path / "words.txt").write_text("\n".join(name.upper() for name in NAMES))
    path = write(tmp_path, "a.txt", [text.upper() for text in texts])
    result = run(path, "--topics", 3, "--vocab", tmp_path / "words.txt")
    assert result.exit_code == 0, result.output
    assert "SEA" in result.output


BAD = {
    "missing file": (["{folder}/none.txt"], "cannot be read"),
    "truncated": (["{truncated}"], "truncated"),
    "empty": (["{empty}"], "is empty"),
    "vocabulary too short": (["{uci}", "--vocab", "{short}"], "--vocab holds 2 words"),
    "vocabulary missing": (["{uci}", "--vocab", "{folder}/none"], "cannot be read"),
    "unknown column": (["{jsonl}", "--text-column", "body"], "body"),
    "column of text": (["{text}", "--text-column", "body", "--format", "text"], "--text-column"),
    "unknown long column": (["{text}", "--text-column", "body", "--format", "csv"], " ...'"),
    "title": (["{text}", "--title", "Mine"], "--title is for a report"),
    "more topics than documents": (["{text}", "--topics", "5000"], "lower --topics"),
    "one document": (["{short_line}"], "holds one document"),
    "no topics": (["{text}", "--topics", "0"], "--topics=0 must be"),
    "topics in words": (["{text}", "--topics", "many"], "--topics=many must be"),
    "refine": (["{text}", "--refine", "-1"], "--refine=-1 must be"),
    "min-df": (["{text}", "--min-df", "1.5"], "--min-df=1.5 must be"),
    "too rare": (["{text}", "--min-df", "230", "--max-df", "1.0"], "lower --min-df=230"),
    "no room": (["{text}", "--min-df", "230"], "--max-df=0.5 (120 documents) is below --min-df"),
    "stop words": (["{text}", "--stop-words", "{folder}/none"], "give english, none, or a file"),
    "stop words of numbers": (["{uci}", "--stop-words", "english"], "give --vocab="),
    "pattern": (["{text}", "--token-pattern", "("], "--token-pattern"),
    "too many topics": (["{text}", "--topics", "200"], "--topics=200"),
    "suffix": (["{text}", "--out", "{folder}/report.pdf"], "must end with .html"),
    "no folder": (["{text}", "--out", "{folder}/no/report.html"], "does not exist"),
    "a folder": (["{text}", "--save", "{folder}"], "is a folder"),
    "itself": (["{text}", "--save", "{text}"], "would overwrite"),
    "no model": (["--apply", "{text}", "{text}"], "is not a saved topic model"),
    "missing model": (["--apply", "{folder}/none.npz", "{text}"], "does not exist"),
    "wrong suffix": (["--apply", "{model}", "{text}", "--out", "{folder}/a.txt"], ".csv or .npz"),
    "learning": (["--apply", "{model}", "{text}", "--topics", "3"], "no place beside --apply"),
    "needless words": (["--apply", "{model}", "{text}", "--vocab", "{short}"], "has no place"),
    "other words": (["--apply", "{model}", "{uci}", "--vocab", "{other}"], "no word of the model"),
    "no name": ([""], "the name is empty"),
    "standard input": (["-"], "save it to a file"),
    "no checkpoint": (["{text}", "--topics", "2", "--checkpoint", ""], "the name is empty"),
    "no pattern": (["{text}", "--token-pattern", ""], "must be a regular expression"),
    "no words": (["{signs}"], "takes all between blanks"),
    "other columns": (["--apply", "{model}", "{narrow}"], "words"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(run, texts, model, tmp_path, case):
    arguments, reason = BAD[case]
    files = {
        "folder": tmp_path,
        "model": model,
        "text": write(tmp_path, "text.txt", texts),
        "jsonl": write(tmp_path, "text.jsonl", texts),
        "uci": write(tmp_path, "counts.uci", texts),
        "empty": tmp_path / "empty.txt",
        "truncated": tmp_path / "cut.txt.gz",
        "short": tmp_path / "short.txt",
        "short_line": write(tmp_path, "line.txt", texts[:1]),
        "other": tmp_path / "other.txt",
        "narrow": tmp_path / "narrow.uci",
        "signs": write(tmp_path, "signs.txt", ["\N{FISH}", "\N{GUITAR} \N{FISH}"]),
    }
    files["empty"].write_text("")
    noise = os.urandom(3000).hex()
    files["truncated"].write_bytes(gzip.compress(noise.encode())[:-20])
    files["short"].write_text("sea\nlaw\n")
    files["other"].write_text("\n".join(f"w{j}" for j in range(len(NAMES))))
    files["narrow"].write_text("1\n2\n1\n1 2 3\n")
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    result = run(*(argument.format(**files) for argument in arguments))
    assert result.exit_code == 2, result.output
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("Error: ")
    assert reason in message
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_checkpoint_of_another_fit_is_refused(run, corpus, tmp_path):
    assert run(corpus, "--topics", "2", "--checkpoint", tmp_path / "kept").exit_code == 0
    result = run(corpus, "--topics", "3", "--checkpoint", tmp_path / "kept")
    assert result.exit_code == 2
    assert "--checkpoint=" in result.stderr
    assert "holds the checkpoint of another fit" in result.stderr


@pytest.mark.parametrize("command", ["learn", "apply"])
def test_an_interruption_leaves_everything_as_it_was(
    run, corpus, model, tmp_path, monkeypatch, command
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    method = {"learn": "fit", "apply": "transform"}[command]
    monkeypatch.setattr(lt.LatentDirichletAllocation, method, interrupt)
    options = {
        "learn": [corpus, "--out", tmp_path / "r.html", "--save", tmp_path / "m.npz"],
        "apply": ["--apply", model, corpus, "--out", tmp_path / "m.csv"],
    }[command]
    for name in ("r.html", "m.npz", "m.csv"):
        (tmp_path / name).write_text("old")
    result = run(*options)
    assert result.exit_code == 130
    assert "Traceback" not in result.output
    assert sorted((p.name, p.read_text()) for p in tmp_path.iterdir()) == [
        ("m.csv", "old"), ("m.npz", "old"), ("r.html", "old"),
    ]  # fmt: skip


def test_a_terminal_sees_progress(corpus, monkeypatch):
    from rich.console import Console

    from latensor.cli.corpus import Reading
    from latensor.cli.topic_run import Wish, learn

    monkeypatch.setenv("COLUMNS", "200")
    shown = Console(force_terminal=True, record=True, width=200)
    with shown.capture() as capture:
        learn(Reading(corpus), Wish(topics="auto"), shown, 0)
    assert "describing the topics" in capture.get()


def test_the_meter_tells_the_rate_and_the_stage():
    from rich.progress import Progress

    from latensor.cli.topic_progress import TopicMeter

    progress = Progress(disable=True)
    meter = TopicMeter(progress)
    task = progress.tasks[0]
    with meter.step("reading", "reading"):
        meter.reading(50, 200, 10)
        assert (task.completed, task.total) == (50, 200)
        assert "10 documents, " in task.fields["detail"]
        assert task.fields["detail"].endswith("/s")
    meter.stage("subspace", float("nan"))
    assert (task.description, task.total) == ("finding the subspace of the words", None)
    meter.stage("refinement", 0.25)
    assert (task.description, task.completed) == ("refining", 0.25)
    assert set(meter.seconds) == {"reading"}


def test_help_shows_examples(run):
    shown = run("--help").output
    assert "latensor topics --apply model.npz new.txt --out mixtures.csv" in shown
    assert "[default: auto]" in shown


def test_a_folder_of_texts(run, tmp_path):
    folder = tmp_path / "speeches"
    folder.mkdir()
    subjects = ("cats dogs pets animals", "tensors moments topics words")
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"{subjects[number % 2]} and the {number}")
    out = tmp_path / "report.html"
    result = run(folder, "--topics", 2, "--out", out, "--title", "My <speeches>")
    assert result.exit_code == 0, result.output
    page = out.read_text(encoding="utf-8")
    assert "My &lt;speeches&gt;" in page
    assert ".txt" in page


def test_counts_with_words_lose_function_words(run, tmp_path):
    rng = np.random.default_rng(0)
    words = ["the", "cat", "dog", "tensor", "moment", "and"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    entries = [(d + 1, w + 1, int(rng.integers(1, 4))) for d in range(60) for w in range(6)]
    lines = ["60", "6", str(len(entries)), *(f"{d} {w} {c}" for d, w, c in entries)]
    (tmp_path / "docword.txt").write_text("\n".join(lines))
    call = (tmp_path / "docword.txt", "--vocab", tmp_path / "vocab.txt", "--topics", 2)
    assert "2 stop words" in run(*call).output
    kept = run(*call, "--keep-stop-words")
    assert "stop words;" not in kept.output
    assert " the " in kept.output.replace("\u2502", " ")
    refused = run(*call, "--keep-stop-words", "--stop-words", "english")
    assert refused.exit_code == 2
    assert "exclude each other" in refused.output
