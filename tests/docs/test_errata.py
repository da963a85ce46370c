"""The page of errata: each has its check, and what it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
ENTRIES = re.split(r"\n(?=- )", re.sub(r"\n## .*", "", PAGE))[1:]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[:30])
def test_every_erratum_has_its_check(entry):
    # The lines of Python run as all examples of the documentation do.
    named = re.findall(r"\*Checked by\* `([^`]+)`", entry)
    assert ">>>" in entry or named or "*Checked by reading the proof again.*" in entry
    for path in named:
        assert (ROOT / path).exists(), path


def test_most_are_computed():
    read = sum("reading the proof" in entry for entry in ENTRIES)
    assert read < len(ENTRIES) / 3
