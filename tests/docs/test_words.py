"""Code, messages and pages say what the field says: no word of a private dialect comes back."""

import ast
import functools
import re
from pathlib import Path

import pytest

from source_code import modules

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
SOURCES = sorted(ROOT.glob("src/**/*.py")) + sorted(ROOT.glob("src/**/*.pyi"))
TEXTS = [
    *SOURCES,
    *sorted(ROOT.glob("src/**/*.js")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("docs/**/*.py")),
    *(page for page in PAGES if page.exists()),
]
# Words that mean nothing else here, in prose and as parts of names, with what to say instead.
WORDS = {
    "polish(ed|es|ing)?": "refinement",
    "climb(s|ed|ing)?": "EM, ascent",
    "settle[sd]?|settling": "converge",
    "glances?": "multistart",
    "run-?offs?": "multistart",
    "contest(s|ed|ants?)?": "multistart, method",
    "rivals?": "candidate",
    "crawl(s|ed|ing)?": "swamp",
    "entangled": "two-factor degeneracy",
    "dear": "expensive",
    "heard": "noise detected",
    "drown(s|ed|ing)?": "low SNR",
    "freed": "unconstrained",
    "falling": "decreasing",
    "lottery": "deterministic",
    "spool(s|ed)?": "temporary copy",
    "sharpen(s|ed|ing)?": "refine",
}
PHRASES = {
    r"in the middle\b": "median",
    r"unless told": "by default",
    r"public names": "API reference",
    r"in the dress of": "adapter",
    r"\bone (word|document|object|name|sequence)? ?a line\b": "one per line",
    r"rows a visit": "mean dwell time",
    r"no topic is hidden": "well conditioned",
    r"worth \S+ of equal weight": "effective sample size",
    r"figures beside other libraries": "comparison with other libraries",
    r"round (gaussian )?clusters|clusters that are round": "spherical covariance",
    r"in deviations\b|\b(one|two|three) deviations?\b": "standard deviations",
    # The noun; components, modes and models may share a factor.
    r"\b(a|an|the|this|its|their|own|which|each|every|small|large) shares?\b|\bshares? of\b": (
        "fraction"
    ),
}
# Whole names of modules, folders and classes.
FILES = {"answers", "trust", "powers", "cells", "lanes", "spool", "assembly", "peer"}
FUNCTIONS = {"settled", "sharpened", "followed", "held", "made", "told"}
# Where such a word must stand, and why.
ALLOWED = {"src/latensor/estimation/topic_files.py": "a field as older files call it"}


def parts(name):
    """The words that a name is made of, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


@functools.cache
def texts():
    """Every text by its path."""
    names = {path.relative_to(ROOT).as_posix(): path for path in TEXTS}
    return {name: names[name].read_text(encoding="utf-8") for name in names if name not in ALLOWED}


def lines_with(pattern):
    """Lines of all texts in which a pattern occurs."""
    found = []
    for name, text in texts().items():
        if not pattern.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name}:{number}: {line.strip()[:90]}")
    return found


@pytest.mark.parametrize("word", WORDS)
def test_no_private_word_is_left(word):
    # A name like n_rivals has the word as a part: underscores and digits end words, too.
    pattern = re.compile(rf"(?<![A-Za-z])({word})(?![a-z])", re.IGNORECASE)
    assert lines_with(pattern) == [], f"say {WORDS[word]}"


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_private_phrase_is_left(phrase):
    assert lines_with(re.compile(phrase, re.IGNORECASE)) == [], f"say {PHRASES[phrase]}"


def test_no_name_says_share_for_fraction():
    found = []
    for path, nodes in modules():
        for node in nodes:
            name = (
                getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", "")
            )
            if isinstance(name, str) and "share" in name.lower():
                found += [f"{path}: {name}"] if {"share", "shares"} & set(parts(name)) else []
    assert found == []


def test_files_and_classes_are_named_by_what_they_compute():
    found = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if FILES
        & {word for part in path.relative_to(ROOT).parts for word in parts(Path(part).stem)}
    ]
    for path, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found += [f"{path}: {node.name}"] if FILES & set(parts(node.name)) else []
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{path}: {node.name}"] if node.name.strip("_") in FUNCTIONS else []
    assert found == []


def test_hidden_markov_models_are_not_called_chains():
    # "Markov chains" are what they are, and layers of a network form chains of layers.
    pattern = re.compile(r"(?<!Markov )(?<!are )\bchains\b", re.IGNORECASE)
    found = [line for line in lines_with(pattern) if not line.startswith("src/")]
    assert found == []


def test_the_sources_of_ica_are_described_by_their_noise():
    pattern = re.compile(r"\b_?(silent|together|TOGETHER)\b(?= *[=(:])")
    assert [line for line in lines_with(pattern) if "/models/ica/" in line] == []


def test_percentages_are_written_in_one_way():
    # "8.7 %"; settings of the benchmarks are called "100^3 k5 n1%".
    pattern = re.compile(r"([0-9]|(?<!SPACE)\})%(?=[\s,.;:)\"'|<]|$)|:\.\d%\}", re.MULTILINE)
    found = [line for line in lines_with(pattern) if not line.startswith("docs/benchmarks.md")]
    assert found == [], "say 8.7 %"
