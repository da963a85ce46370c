"""Docstrings from source files: what is taken, what is cut, and that nothing is run."""

import pytest

from latensor.cli.docstrings import collect_docstrings, plain_text

LONG = "This sentence about {} holds more than ten words so that it is taken for a document."


def said(about):
    return LONG.format(about)


@pytest.fixture
def package(tmp_path):
    """A small package whose import would be noticed."""
    files = {
        "__init__.py": f'"""{said("packages")}"""\nraise SystemExit("imported")\n',
        "_inner.py": (
            f'class Thing:\n    """{said("things")}"""\n\n'
            f'    def method(self):\n        """{said("methods")}"""\n\n'
            f'        def hidden():\n            """{said("closures")}"""\n\n'
            f'async def coroutine():\n    """{said("waiting")}"""\n\n'
            f'def short():\n    """Too short."""\n\n'
            f'def twin():\n    """{said("methods")}"""\n'
        ),
        "added.py": (
            f'add_newdoc("base.compiled", "name", """{said("compiled code")}""")\n'
            f'add_newdoc("special", """{said("special functions")}""")\n'
            f'add_newdoc("base.compiled", "pair", ("method", """{said("pairs")}"""))\n'
            'add_newdoc("nothing", other)\n'
        ),
        "tests/test_thing.py": f'"""{said("tests")}"""\n',
        "old.py": 'print "another Python"  """x"""\n',
        "binary.py": b'"""\xff\xfe"""\n',
        "mute.py": "x = 1\n",
    }
    for name, content in files.items():
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / "package"


def test_docstrings_are_found_by_name(package):
    told = []
    found = collect_docstrings({"pack": package}, lambda *state: told.append(state))
    assert {d.name: d.text for d in found} == {
        "pack": said("packages"),
        "pack.Thing": said("things"),
        "pack.Thing.method": said("methods"),
        "pack.coroutine": said("waiting"),
        "base.compiled.name": said("compiled code"),
        "pack.special": said("special functions"),
        "base.compiled.pair.method": said("pairs"),
    }
    assert told == [(n, 6) for n in range(1, 7)]


def test_the_order_is_always_the_same_and_a_limit_holds(package):
    found = collect_docstrings({"a": package, "b": package})
    assert found == collect_docstrings({"a": package, "b": package})
    assert all(d.name.split(".")[0] in ("a", "base") for d in found)
    assert [d.name for d in collect_docstrings({"a": package}, limit=1)] == ["a"]


@pytest.mark.parametrize(
    "docstring, expected",
    [
        ("One line.", "One line."),
        (
            "What it does.\n\nParameters\n----------\nx : array_like, optional\n    The input.\n"
            "*args, **kwargs : any\n    More.\n\nReturns\n-------\ny : ndarray\n    The output.",
            "What it does. The input. More. The output.",
        ),
        ("Before.\n\n>>> f(1)\n2\n\nAfter.", "Before. After."),
        ("Before.\n\nExamples\n--------\nA word.\n\n>>> f()\n\nNotes\n-----\nEnd.", "Before. End."),
        ("A.\n\nReferences\n==========\n.. [1] Somebody.", "A."),
        ("Use it so::\n\n    code(here)\n    more\n\nThen rest.", "Use it so:: Then rest."),
        ("See :func:`~numpy.dot` and :class:`Thing`, ``x`` too.",
         "See numpy.dot and Thing , x too."),
        ("A %(before_notes)s text at https://example.org/x now.", "A text at now."),
        ("Do.\n\nArgs:\n    x: the input.\nRaises:\n    never", "Do. x: the input. never"),
        ("Title\n=====\n\nText: with a colon.", "Text: with a colon."),
        ("", ""),
    ],
)  # fmt: skip
def test_sentences_stay_and_the_rest_goes(docstring, expected):
    assert plain_text(docstring) == expected
