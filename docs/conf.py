"""How the documentation is built: `make docs`, or `sphinx-build -W docs docs/_build/html`."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import latensor

sys.path.insert(0, str(Path(__file__).parent))

project = "latensor"
author = "The latensor developers"
copyright = "the latensor developers, BSD-3-Clause"
release = version = latensor.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
# PyTorch is no part of what `make docs` installs; with it, its pages and its example are made too.
_TORCH = find_spec("torch") is not None
# The gallery is run on every build; figures are found by docs/gallery_figures.py.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "ignore_pattern": "__init__" if _TORCH else "plot_compress_network",
    "gallery_dirs": "auto_gallery",
    "image_scrapers": ("gallery_figures",),
    "reset_modules": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    # What an example says it prints: a last line that draws has nothing to say.
    "capture_repr": (),
    "within_subsection_order": "FileNameSortKey",
}
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery/*", "api_examples.rst"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["phone.css"]
html_title = f"latensor {release}"

# Docstrings put argument names and code in single backticks.
default_role = "code"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
autosummary_generate = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}

# Where api.md lists the API; see `write_api_pages`.
_MARK = "<!-- API -->"
# Subpackages whose remaining names are public too, as `lt.decomposition.PowerMethod`.
_OPEN = ("moments", "whitening", "decomposition", "plots", "datasets", "sources", "scores", "nn")
_HOMES = tuple(home for home in latensor._HOMES if home != "nn" or _TORCH)


def write_api_pages(app: Any) -> None:
    """Write a page for every public object into docs/api, and none for names that have gone."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = {f"{path}.rst": _page(path, value) for path, value in _objects().items()}
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        target = folder / name
        # Sphinx reads again what is newer than its own copy.
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def _objects() -> dict[str, object]:
    """Every public object by its dotted name."""
    return {path: value for home in _HOMES for path, value in _entries_of(home).items()}


def _entries_of(home: str) -> dict[str, object]:
    module = import_module(f"latensor.{home}")
    entries = {f"latensor.{name}": getattr(latensor, name) for name in latensor._HOMES[home]}
    if home in _OPEN:
        for name in getattr(module, "__all__", ()):
            if name not in latensor._HOMES[home]:
                entries[f"latensor.{home}.{name}"] = getattr(module, name)
    return entries


def _page(path: str, value: object) -> str:
    title = path.replace("latensor.", "lt.", 1)
    links = [_directive(path, value), *_example(path.replace("latensor.", "lt.", 1))]
    chapters = _chapters(path)
    if chapters:
        listed = ", ".join(f":doc:`{chapter} </theory>`" for chapter in chapters)
        links.append(f".. seealso:: In the map of the monograph: {listed}.\n")
    return f"{title}\n{'=' * len(title)}\n\n" + "\n".join(links)


def _example(name: str) -> list[str]:
    """The example of a name of a subpackage, which `api_examples.rst` has under its name."""
    text = (Path(__file__).parent / "api_examples.rst").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^(lt\.[^\n]*)\n-+\n", text)
    titled = zip(parts[1::2], parts[2::2], strict=True)
    imports = ">>> import numpy as np\n>>> import latensor as lt\n"
    return [
        f".. rubric:: Example\n\n{imports}{body.strip()}\n"
        for title, body in titled
        if name in title.split(", ")
    ]


def _chapters(path: str) -> list[str]:
    """The chapters of the map of the monograph that name an object."""
    text = (Path(__file__).parent / "theory.md").read_text(encoding="utf-8")
    name = re.escape(path.removeprefix("latensor."))
    parts = re.split(r"\n## ", text)[1:]
    named = (part for part in parts if re.search(rf"`lt\.{name}\b", part))
    return [part.split(":", 1)[0].strip() for part in named]


def list_api(app: Any, page: str, source: list[str]) -> None:
    """Put the names of `latensor._HOMES` into the API page, one section per subpackage."""
    if page != "api":
        return
    if _MARK not in source[0]:
        raise ValueError(f"api.md lacks the line {_MARK!r}, which the list of names replaces")
    source[0] = source[0].replace(_MARK, "\n".join(map(_section, _HOMES)))


def _section(home: str) -> str:
    module = import_module(f"latensor.{home}")
    summary = (module.__doc__ or "").strip().split("\n\n")[0]
    if not _entries_of(home):
        return ""
    rows = "\n".join(
        f"| [{path.replace('latensor.', 'lt.', 1)}](api/{path}.rst) | {_summary(value)} |"
        for path, value in _entries_of(home).items()
    )
    return f"## latensor.{home}\n\n{summary}\n\n| name | what for |\n|---|---|\n{rows}\n"


def _summary(value: object) -> str:
    """The first line of a docstring, as a cell of a table."""
    first = inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    text = first if callable(value) or isinstance(value, type) else ""
    # Formulas between bars and names that end in an underscore are not Markdown.
    return re.sub(r"([|<>*_])", r"\\\1", text)


def _directive(path: str, value: object) -> str:
    if not isinstance(value, type):
        return f".. {'autofunction' if callable(value) else 'autodata'}:: {path}\n"
    if issubclass(value, BaseException):
        return f".. autoexception:: {path}\n"
    return f".. autoclass:: {path}\n"


def skip_foreign(
    app: Any, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out what a class inherits from other packages, which document it themselves."""
    source = getattr(obj, "fget", None) or getattr(obj, "__func__", obj)
    owner = source if getattr(source, "__module__", None) else getattr(source, "__objclass__", None)
    module = getattr(owner, "__module__", None)
    foreign = module is not None and not module.startswith("latensor")
    return True if foreign or inspect.isbuiltin(source) else None


def adapt_sections(
    app: Any, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Rewrite latensor's short docstring sections into the form that napoleon expects.

    Ours say "name : shape and meaning", with continuation lines indented: all of it becomes the
    description. Paragraphs after the last parameter, which napoleon would read as more of them,
    move before the section.
    """
    start = 0
    while start < len(lines) - 1:
        if not _is_heading(lines, start):
            start += 1
            continue
        rest = range(start + 2, len(lines) - 1)
        stop = next((i for i in rest if _is_heading(lines, i)), len(lines))
        title, body = lines[start].strip(), lines[start + 2 : stop]
        prose: list[str] = []
        if title in ("Parameters", "Attributes"):
            body, prose = _entries(body)
        if title == "Attributes":
            body = _one_name_each(body)
        elif title == "Returns" and not any(line.startswith(" ") for line in body):
            body = [" ".join(line for line in body if line.strip()), ""]
        section = [*prose, lines[start], lines[start + 1], *body]
        lines[start:stop] = section
        start += len(section)


def _entries(body: list[str]) -> tuple[list[str], list[str]]:
    """The entries of a section in napoleon's form, and the prose that follows them."""
    result: list[str] = []
    for i, line in enumerate(body):
        new = bool(line.strip()) and not line.startswith(" ")
        if new and " : " not in line and (i == 0 or not body[i - 1].strip()):
            return [*result, ""], [*body[i:], ""]
        head, colon, meaning = line.partition(" : ")
        result += [head, f"    {meaning}"] if new and colon else [line]
    return result, []


def _one_name_each(body: list[str]) -> list[str]:
    """Entries that share a meaning, apart: napoleon splits those of parameters only."""
    result: list[str] = []
    starts = [i for i, line in enumerate(body) if line.strip() and not line.startswith(" ")]
    for start, stop in itertools.pairwise([*starts, len(body)]):
        for name in body[start].split(", "):
            result += [name, *body[start + 1 : stop]]
    return result


def _is_heading(lines: list[str], i: int) -> bool:
    underline = lines[i + 1].strip()
    return bool(lines[i].strip()) and len(underline) > 2 and set(underline) == {"-"}


def escape_formulas(
    app: Any, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep |g| and components_ in a docstring's prose from being read as reStructuredText."""
    if isinstance(obj, property):
        # Napoleon takes what stands before a colon for the type of the property.
        lines[:] = [*inspect.cleandoc(obj.__doc__ or "").splitlines(), ""]
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example or line.lstrip().startswith(".. "):
            continue
        parts = re.split(r"(`+[^`]*`+)", line)
        for j in range(0, len(parts), 2):
            parts[j] = re.sub(r"(?<!\\)\|", r"\\|", parts[j])
            parts[j] = re.sub(r"(?<=[^\W_])_(?![\w\\`])", r"\\_", parts[j])
        lines[i] = "".join(parts)


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", write_api_pages)
    app.connect("source-read", list_api)
    app.connect("autodoc-skip-member", skip_foreign)
    # One before napoleon (500), one after it, to see what it made of the sections.
    app.connect("autodoc-process-docstring", adapt_sections, priority=100)
    app.connect("autodoc-process-docstring", escape_formulas, priority=900)
