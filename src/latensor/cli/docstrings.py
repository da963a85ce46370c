"""The documentation of installed Python packages as documents: read, never imported."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NamedTuple

STANDARD_LIBRARY = "the standard library"
# What every installation of latensor has beside it, so that everybody sees the same demo.
PACKAGES = ("numpy", "scipy", "sklearn")

# Tests document themselves; the others belong to somebody else or say nothing in English.
_SKIPPED = frozenset(
    (
        "__pycache__",
        "_vendor",
        "benchmarks",
        "conftest",
        "dist-packages",
        "encodings",
        "ensurepip",
        "externals",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "testing",
        "tests",
        "turtledemo",
    )
)
_FEWEST_WORDS = 10
# Larger files are tables.
_MOST_BYTES = 1_000_000

_SKIPPED_SECTIONS = frozenset(("examples", "example", "references", "see also", "doctest"))
_UNDERLINE = re.compile(r"\s*([-=~^*])\1{2,}\s*")
_GOOGLE_SECTION = re.compile(r"\s*(args|arguments|returns|raises|yields|examples?|notes?):\s*")
_PARAMETER = re.compile(r"\s*[*\w, `\\.]+ ?: ?[^.]*")
_MARKUP = re.compile(
    r":[a-z:]+:`~?([^`]*)`"  # :func:`name` keeps the name
    r"|%\(\w+\)s"  # a place where a template puts other text
    r"|\.\. \w[\w-]*::.*"  # directives
    r"|:math:|:\w+(?: \w+)?:(?= )"  # fields
    r"|https?://\S+"
    r"|[`*|\\]+"
)
_WORD = re.compile(r"[A-Za-z]{3,}")


class Docstring(NamedTuple):
    """What one module, class or function says about itself."""

    name: str
    text: str


def installed_packages() -> dict[str, Path]:
    """The folders of the standard library and of packages that are installed, by name."""
    found = {STANDARD_LIBRARY: Path(sysconfig.get_paths()["stdlib"])}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations)))
    return found


def collect_docstrings(
    packages: Mapping[str, Path],
    progress: Callable[[int, int], object] | None = None,
    *,
    limit: int | None = None,
) -> list[Docstring]:
    """The docstrings in the source files of packages, without headings, tables and examples.

    Docstrings that say the same are taken once, and those of fewer than ten words not at all.

    Parameters
    ----------
    packages : folder of every package by name
    progress : told how many files were read, and how many there are
    limit : int, at most so many files of each package, or None for all
    """
    files = [file for item in packages.items() for file in _files(*item, limit)]
    kept: dict[str, Docstring] = {}
    for number, file in enumerate(files, 1):
        for docstring in _read_file(*file):
            kept.setdefault(docstring.text, docstring)
        if progress is not None:
            progress(number, len(files))
    return list(kept.values())


def _files(package: str, folder: Path, limit: int | None) -> list[tuple[Path, str]]:
    """Source files and the names of their modules, always in the same order."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).with_suffix("").parts
        if any(part in _SKIPPED or part.startswith("test_") for part in inside):
            continue
        names = inside if package == STANDARD_LIBRARY else (package, *inside)
        # The files behind a public module have private names, which are nobody's way to them.
        public = [names[0], *(name for name in names[1:] if not name.startswith("_"))]
        found.append((path, ".".join(public)))
    return found[:limit]


def _read_file(path: Path, module: str) -> list[Docstring]:
    try:
        source = path.read_bytes()
        # Parsing is what takes the time, and many files have nothing to say.
        if len(source) > _MOST_BYTES or not (b'"""' in source or b"'''" in source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        # A file for another version of Python is nothing to stop for.
        return []
    found = []
    for name, text in chain(_written(tree, module), _added(tree, module)):
        plain = plain_text(text)
        if len(_WORD.findall(plain)) >= _FEWEST_WORDS:
            found.append(Docstring(name, plain))
    return found


def _written(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Docstrings of a module, of its classes and functions, and of the methods."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text is not None:
            yield name, text
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _written(child, f"{name}.{child.name}" if name else child.name)


def _added(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Docstrings of compiled functions, which NumPy and SciPy write as `add_newdoc(...)` calls."""
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "add_newdoc":
            continue
        strings = [text for argument in call.args for text in _strings(argument)]
        if len(strings) > 1:
            *names, text = strings
            home = ".".join(module.split(".")[:-1])
            yield ".".join(names if "." in names[0] else (home, *names)), text


def _strings(argument: ast.expr) -> list[str]:
    if isinstance(argument, ast.Tuple):
        return [text for element in argument.elts for text in _strings(element)]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    return []


def plain_text(docstring: str) -> str:
    """The sentences of a docstring: no headings, names of parameters, examples or mark-up."""
    lines = docstring.expandtabs().splitlines()
    kept: list[str] = []
    skipping, in_example, code_indent = False, False, -1
    for number, line in enumerate(lines):
        stripped = line.strip()
        below = lines[number + 1] if number + 1 < len(lines) else ""
        indent = len(line) - len(line.lstrip())
        if stripped and _UNDERLINE.fullmatch(below) and not _UNDERLINE.fullmatch(line):
            skipping = stripped.lower() in _SKIPPED_SECTIONS
            continue
        if stripped and indent <= code_indent:
            code_indent = -1
        if not stripped:
            in_example = False
        elif stripped.startswith(">>>"):
            in_example = True
        if skipping or in_example or code_indent >= 0 or _UNDERLINE.fullmatch(line):
            continue
        if stripped.endswith("::"):
            code_indent = indent
        if _GOOGLE_SECTION.fullmatch(line.lower()) or _is_parameter(line, below):
            continue
        kept.append(line)
    return " ".join(_MARKUP.sub(r" \1 ", "\n".join(kept)).split())


def _is_parameter(line: str, below: str) -> bool:
    """Whether a line is `name : type`, told by the deeper line that follows."""
    deeper = len(below) - len(below.lstrip()) > len(line) - len(line.lstrip())
    return bool(below.strip()) and deeper and _PARAMETER.fullmatch(line) is not None
