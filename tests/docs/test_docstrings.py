"""Every public name has an example, and every example runs."""

from __future__ import annotations

import doctest
import inspect
import warnings
from typing import Any

import pytest

import latensor as lt

NAMES = [name for name in lt.__all__ if name not in ("__version__", "constraints")]
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _text(name: str) -> str:
    value: Any = getattr(lt, name)
    return inspect.getdoc(value) or ""


def test_every_public_name_has_an_example() -> None:
    assert [name for name in NAMES if ">>>" not in _text(name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    example = doctest.DocTestParser().get_doctest(_text(name), {}, name, None, 0)
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=lines.append)
    assert not result.failed, "".join(lines)
