"""Every public name has an example, and every example runs."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latensor as lt

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Names of subpackages are no attribute of `lt`; their examples stand in a file, shared by those
# that belong together, and `docs/conf.py` puts them on their pages.
_LIST = re.split(r"(?m)^(lt\.[^\n]*)\n-+\n", (DOCS / "api_examples.rst").read_text("utf-8"))
SHARED = dict(zip(_LIST[1::2], _LIST[2::2], strict=True))
OPEN = re.search(r"(?m)^_OPEN = (.*)$", (DOCS / "conf.py").read_text("utf-8"))[1]
NAMES = [name for name in lt.__all__ if name not in ("__version__", "constraints")]
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _text(name: str) -> str:
    value: Any = getattr(lt, name)
    return inspect.getdoc(value) or ""


def test_every_public_name_has_an_example() -> None:
    assert [name for name in NAMES if ">>>" not in _text(name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    _run(name, _text(name), {})


def test_every_name_of_a_subpackage_has_an_example() -> None:
    listed = [name for title in SHARED for name in title.split(", ")]
    assert len(listed) == len(set(listed))
    wanted = []
    for home in ast.literal_eval(OPEN):
        if home == "nn":
            pytest.importorskip("torch")
        module = import_module(f"latensor.{home}")
        own = [name for name in module.__all__ if name not in lt.__all__]
        wanted += [
            f"lt.{home}.{n}" for n in own if ">>>" not in (inspect.getdoc(getattr(module, n)) or "")
        ]
    assert sorted(wanted) == sorted(listed)


@pytest.mark.parametrize("title", SHARED)
def test_shared_examples_run(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in re.findall(r"import (torch|dask)", SHARED[title]):
        pytest.importorskip(library)
    if "from_log_density" in title:
        pytest.importorskip("torch")
    if "lt.plots" in SHARED[title]:
        pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    _run(title, SHARED[title], {"lt": lt, "np": np})


def _run(name: str, text: str, known: dict[str, Any]) -> None:
    example = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=lines.append)
    assert not result.failed, "".join(lines)
