"""The page that maps the monograph to functions: every name on it exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
# A name marked as planned need not exist yet.
PLANNED = set(re.findall(r"planned: `((?:lt|latensor)\.[\w.]+)`", PAGE))
NAMED = {
    name.rstrip(".")
    for code in re.findall(r"`([^`]+)`", PAGE)
    for name in re.findall(r"\b(?:lt|latensor)\.[A-Za-z_][\w.]*", code)
}
CLASSES = {"MomentTensor": "lt", "CPTensor": "lt", "Whitening": "lt.whitening"}


def found(name):
    """The object that a dotted name stands for."""
    parts = name.split(".")
    value = import_module("latensor")
    for place, part in enumerate(parts[1:], start=1):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = import_module(".".join(["latensor", *parts[1 : place + 1]]))
    return value


@pytest.mark.parametrize("name", sorted(NAMED - PLANNED))
def test_the_name_exists(name):
    assert found(name) is not None


def test_attributes_of_classes_exist():
    for owner, attribute in re.findall(r"`(MomentTensor|CPTensor)\.(\w+)", PAGE):
        assert hasattr(found(f"{CLASSES[owner]}.{owner}"), attribute), f"{owner}.{attribute}"


@pytest.mark.parametrize("chapter", [3, 6, 7])
def test_nothing_is_planned_in_these_chapters(chapter):
    text = re.search(rf"## Chapter {chapter}:.*?(?=\n## |\Z)", PAGE, re.DOTALL)
    assert text is not None
    assert "planned" not in text.group()


@pytest.mark.parametrize("chapter", [3, 6, 7])
def test_every_line_of_these_chapters_names_a_function(chapter):
    text = re.search(rf"## Chapter {chapter}:.*?(?=\n## |\Z)", PAGE, re.DOTALL)
    rows = [line for line in text.group().splitlines() if line.startswith("| ")][1:]
    named = r"`[^`]*\b(?:lt|latensor|numpy|MomentTensor|CPTensor|TuckerTensor)\.\w+"
    without = [row for row in rows if not re.search(named, row.rsplit(" | ", 1)[1])]
    assert rows
    assert not without
