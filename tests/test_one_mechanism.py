"""One fit for every model: who may go over batches, and what is written once."""

import ast
import functools
from pathlib import Path

import latensor as lt

ROOT = Path(lt.__file__).parent
# Where data are read and folded; networks are calibrated on batches of their own loaders.
READERS = ("engines", "sources", "datasets", "cli", "nn")
# What goes over batches elsewhere, and why it may.
ALLOWED = {
    "moments/batch.py": "joins batches that are in memory",
    "moments/sketch.py": "the public operator of re-iterable batches, each product one pass",
    "estimation/checkpoint.py": "the fingerprint of data in memory, no sum over units",
}


@functools.cache
def trees():
    paths = sorted(ROOT.rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]


def is_batches(node):
    """Whether an iterable is named like batches of data, or is called such."""
    if isinstance(node, ast.Call):
        wrapped = {"enumerate", "zip", "iter", "list", "tuple", "map"}
        if isinstance(node.func, ast.Name) and node.func.id in wrapped:
            return any(is_batches(argument) for argument in node.args)
        node = node.func
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name.strip("_").removeprefix("read_") in ("batches", "shards", "source")


def loops_over_batches(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and is_batches(node.iter):
            yield node.iter.lineno


def definitions(name):
    """Classes with a method of more than one statement: naming arguments takes one."""
    return [
        (path, node.name)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == name
        if len(method.body) > 2
    ]


def test_nothing_but_engines_and_sources_goes_over_batches():
    found = [
        f"{path}:{line}"
        for path, tree in trees()
        if path.split("/")[0] not in READERS and path not in ALLOWED
        for line in loops_over_batches(tree)
    ]
    assert not found, found


def test_the_check_sees_loops_over_batches():
    for text in (
        "for batch in source: pass",
        "[f(b) for b in source.batches(0)]",
        "for i, (a, b) in enumerate(batches): pass",
        "sum(f(x) for x in self._read_batches(X))",
    ):
        assert list(loops_over_batches(ast.parse(text))), text
    assert not list(loops_over_batches(ast.parse("for block in units.blocks(8): pass")))


def test_partial_fit_merge_and_the_verdict_are_written_once():
    base = ("estimation/base.py", "LatentEstimator")
    assert definitions("partial_fit") == [base]
    assert [each for each in definitions("merge") if each[1].endswith("Estimator")] == [base]
    assert [each for each in definitions("spawn") if each[1].endswith("Estimator")] == [base]
    assert definitions("verdict") == [("diagnostics/findings.py", "Findings")]


def test_expectation_maximization_is_one_loop():
    assert [
        path
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "em"
    ] == ["refinement/em.py"]
