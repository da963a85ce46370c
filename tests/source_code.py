"""The modules of the package as syntax trees, parsed once for all tests that walk them."""

import ast
import functools
import gc
from pathlib import Path

import latensor

ROOT = Path(latensor.__file__).parent


@functools.cache
def modules():
    """Every module and stub: its path within the package, and all nodes of its tree."""
    paths = sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")])
    # Half a million objects, none of them garbage: collecting would take twice the time of parsing.
    gc.disable()
    try:
        return tuple(
            (
                path.relative_to(ROOT).as_posix(),
                tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8")))),
            )
            for path in paths
        )
    finally:
        gc.enable()
