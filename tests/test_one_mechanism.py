"""One fit for every model: who may go over batches, and what is written once."""

import ast
import inspect

import pytest

import latensor as lt
from latensor.estimation.base import LatentEstimator
from source_code import modules

# Where data are read and folded; networks are calibrated on batches of their own loaders.
READERS = ("engines", "sources", "datasets", "cli", "nn")
# What goes over batches elsewhere, and why it may.
ALLOWED = {
    "moments/batch.py": "joins batches that are in memory",
    "moments/sketch.py": "the public operator of re-iterable batches, each product one pass",
    "estimation/checkpoint.py": "the fingerprint of data in memory, no sum over units",
}


def is_batches(node):
    """Whether an iterable is named like batches of data, or is called such."""
    if isinstance(node, ast.Call):
        wrapped = {"enumerate", "zip", "iter", "list", "tuple", "map"}
        if isinstance(node.func, ast.Name) and node.func.id in wrapped:
            return any(is_batches(argument) for argument in node.args)
        node = node.func
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name.strip("_").removeprefix("read_") in ("batches", "shards", "source")


def loops_over_batches(nodes):
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension) and is_batches(node.iter):
            yield node.iter.lineno


# Where `partial_fit` has arguments of other names, which a user, an editor and mypy must see: it
# hands them on in one statement.
SIGNATURES = {
    ("estimation/label_input.py", "LabelledEstimator"): "the first call names all classes",
    ("models/hmm/base.py", "HiddenMarkovEstimator"): "sequences have lengths, as in hmmlearn",
}


def definitions(name):
    """Classes with a method of that name, and the method."""
    return {
        (path, node.name): method
        for path, nodes in modules()
        if path.endswith(".py")
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == name
    }


def estimators():
    """Every public estimator."""
    every = [getattr(lt, name) for name in dir(lt)]
    return [each for each in every if isinstance(each, type) and issubclass(each, LatentEstimator)]


def is_handed_on(method):
    """Whether a method is its docstring and a call of the same method of the next class."""
    documented, handed = method.body
    call = handed.value
    return (
        ast.get_docstring(method) is not None
        and isinstance(documented, ast.Expr)
        and isinstance(handed, ast.Return)
        and ast.unparse(call.func) == f"super().{method.name}"
    )


def test_nothing_but_engines_and_sources_goes_over_batches():
    found = [
        f"{path}:{line}"
        for path, nodes in modules()
        if path.split("/")[0] not in READERS and path not in ALLOWED
        for line in loops_over_batches(nodes)
    ]
    assert not found, found


def test_the_check_sees_loops_over_batches():
    for text in (
        "for batch in source: pass",
        "[f(b) for b in source.batches(0)]",
        "for i, (a, b) in enumerate(batches): pass",
        "sum(f(x) for x in self._read_batches(X))",
    ):
        assert list(loops_over_batches(ast.walk(ast.parse(text)))), text
    harmless = ast.parse("for block in units.blocks(8): pass")
    assert not list(loops_over_batches(ast.walk(harmless)))


def test_partial_fit_merge_spawn_and_the_verdict_are_written_once():
    base = ("estimation/base.py", "LatentEstimator")
    found = definitions("partial_fit")
    assert found.keys() == {base, *SIGNATURES}
    assert all(is_handed_on(found[place]) for place in SIGNATURES)
    classes = {each.__qualname__ for cls in estimators() for each in cls.__mro__}
    for name in ("merge", "spawn"):
        assert [place for place in definitions(name) if place[1] in classes] == [base], name
    assert definitions("verdict").keys() == {("diagnostics/findings.py", "Findings")}


@pytest.mark.parametrize("cls", estimators(), ids=lambda cls: cls.__name__)
def test_partial_fit_shows_the_arguments_of_its_model(cls):
    names = list(inspect.signature(cls.partial_fit).parameters)
    shared = [name for name in inspect.signature(cls.fit).parameters if name in names]
    if not cls._closed:
        assert [name for name in names if name != "classes"] == shared
    assert ("classes" in names) == hasattr(cls, "predict_log_proba")
    assert names[2] == ("lengths" if cls.__name__.endswith("HMM") else "y")
    assert inspect.getdoc(cls.partial_fit)
    asked = set(names) - {"self", "X", "y"}
    routed = set(inspect.signature(cls.set_partial_fit_request).parameters) - {"self"}
    assert routed == asked


def test_expectation_maximization_is_one_loop():
    assert [
        path
        for path, nodes in modules()
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name == "em"
    ] == ["refinement/em.py"]
