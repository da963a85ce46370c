"""Any model in words and on a page: what was found, a picture, how far to trust it."""

from __future__ import annotations

import base64
import io
import os
import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.report.description import Level, Reproduction
from latensor.report.frame import html_page
from latensor.report.markup import Markup, element, scrolling, section, shorten, table_head
from latensor.report.model_tables import Rows, rows_of
from latensor.report.reproducing import reproducing
from latensor.report.topic_page import installed_versions, page_of
from latensor.report.wording import MARKS, TRUST, class_in_words, number, sentence
from latensor.report.writing import write_report
from latensor.whole_files import whole_text

# Rows that are listed one by one, and characters of a cell in plain text.
_ROWS = 60
_PRINTED = 20
_CELL = 60
# Inches of a figure whose text is still read when it is as wide as a phone.
_READABLE = 7
_LEVELS: dict[str, Level] = {"stable": "good", "uncertain": "caution", "unstable": "bad"}


def model_summary(model: Any) -> str:
    """What a fitted model or a decomposition has found, as text.

    Parameters
    ----------
    model : a fitted estimator of latensor, or a decomposition

    Returns
    -------
    str: the model and its settings, how the fit ended, a table of what was found, and the
    certificate in words
    """
    _check_fitted(model)
    parts = [_headline(model), _text_table(rows_of(model))]
    selection = _selection(model)
    parts += [str(selection)] if selection is not None else []
    certificate = _certificate(model)
    parts += [str(certificate)] if certificate is not None else []
    return "\n\n".join(parts)


def model_report(
    model: Any,
    *data: Any,
    names: Sequence[object] | None = None,
    title: str | None = None,
    reproduction: Reproduction | None = None,
) -> str:
    """One page of HTML about a fitted model or a decomposition that loads nothing.

    Parameters
    ----------
    model : a fitted estimator of latensor, or a decomposition
    *data : what `fit` was given, for the picture
    names : what the features are called; by default what the model knows
    title : str, of the page; by default the name of the model in words
    reproduction : how to get the same again; by default the settings and versions

    Returns
    -------
    str, the HTML
    """
    _check_fitted(model)
    called = _called(model)
    heading = shorten(title or called, 120)
    known = None if names is None else [str(name) for name in names]
    sections = [
        ("overview", "Overview", _overview(model, heading)),
        ("found", "Found", _found(rows_of(model, known, data, width=140))),
        ("picture", "Picture", _picture(model, data, names)),
        ("certificate", "Certificate", _trust(model)),
        ("choice", "How many", _choice(model)),
        ("reproduce", "Reproduce", reproducing(reproduction or _reproduction(model))),
    ]
    present = [(anchor, name, body) for anchor, name, body in sections if body is not None]
    whole = heading if title is None else f"{heading}: {called}"
    return html_page(whole, present, skip=("Skip to what was found", "#found"))


def write_model_report(
    model: Any,
    path: str | os.PathLike[str],
    *data: Any,
    names: Sequence[object] | None = None,
    title: str | None = None,
    reproduction: Reproduction | None = None,
) -> Path:
    """Write the page about a model into a file, whole or not at all: `model.report(path, X)`.

    Topic models have the page of `page_of` and need their documents.

    Parameters
    ----------
    path : file to write
    model, *data, names, title, reproduction : as for `model_report`
    """
    if hasattr(model, "top_words"):
        _check_fitted(model)
        if not data:
            raise InvalidInputError(
                "a page about topics shows them in documents: give what fit was given, "
                "report(path, X)"
            )
        documents = model._read_batches(data[0])
        heading = title or _called(model)
        return write_report(page_of(model, documents, title=heading), path)
    page = model_report(model, *data, names=names, title=title, reproduction=reproduction)
    with whole_text(path) as stream:
        stream.write(page)
    return Path(path)


def _called(model: Any) -> str:
    name = class_in_words(type(model).__name__)
    return "CP Decomposition" if name == "Decomposition" else name


def _check_fitted(model: Any) -> None:
    if hasattr(model, "get_params") and hasattr(model, "fit"):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(model)


def _certificate(model: Any) -> Any:
    found = getattr(model, "certificate_", None)
    return getattr(model, "certificate", None) if found is None else found


def _selection(model: Any) -> Any:
    """Why so many components; None where their number was given."""
    found = getattr(model, "selection_", None)
    return (getattr(model, "selection", None) if found is None else found) or None


def _settings(model: Any) -> dict[str, str]:
    """The settings that differ from the defaults, as text."""
    if not hasattr(model, "get_params"):
        return {}
    plain = type(model)._get_param_names() and _defaults(type(model))
    found = {}
    for name, value in model.get_params(deep=False).items():
        if name not in plain or not _is_same(value, plain[name]):
            found[name] = (
                repr(value) if np.size(value) <= 8 else f"{type(value).__name__} {np.shape(value)}"
            )
    return found


def _defaults(cls: type) -> dict[str, Any]:
    import inspect

    parameters = inspect.signature(cls).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(np.all(one == other)) and type(one) is type(other)
    except (TypeError, ValueError):
        return one is other


def _headline(model: Any) -> str:
    """The model with its settings, and how the fit ended."""
    if not hasattr(model, "get_params"):
        return repr(model)
    settings = ", ".join(f"{name}={value}" for name, value in _settings(model).items())
    return "\n".join([f"{type(model).__name__}({settings})", *_ending(model)])


def _ending(model: Any) -> list[str]:
    """How large the data were and how the fit ended, where the model says so."""
    if not hasattr(model, "get_params"):
        residual = getattr(model, "residual", None)
        words = [] if residual is None else [f"Residual {number(residual)}"]
        words += [str(model.status)] if hasattr(model, "history") else []
        return ["; ".join(words)] if words else []
    words = []
    words += [f"{size} {what}" for what, size in _width(model).items()]
    passes, status = int(getattr(model, "n_iter_", 0) or 0), getattr(model, "status_", None)
    if status is not None:
        words.append(str(status))
    elif passes:
        words.append(f"{passes} {'pass' if passes == 1 else 'passes'} of refinement")
    if getattr(model, "converged_", None) is False:
        words.append("EM had not converged when it ended")
    return ["; ".join(words)] if words else []


def _text_table(found: Rows) -> str:
    head, rows = found
    shown = [[shorten(cell, _CELL) for cell in row] for row in rows[:_PRINTED]]
    widths = [max(map(len, column)) for column in zip(head, *shown, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, *shown]]  # fmt: skip
    if len(rows) > _PRINTED:
        lines.append(f"and {len(rows) - _PRINTED} more")
    return "\n".join(lines)


# ---------------------------------------------------------------------- the parts of the page
def _with_code(text: str) -> list[Markup | str]:
    """Text whose `names` stand between backticks."""
    return [element("code", part) if i % 2 else part for i, part in enumerate(text.split("`"))]


def _overview(model: Any, heading: str) -> Markup:
    certificate = _certificate(model)
    called = _called(model)
    figures = [
        element("div", element("dt", name), element("dd", value))
        for name, value in _figures(model).items()
    ]
    verdict = None
    if certificate is not None:
        level = _LEVELS[certificate.verdict]
        verdict = element(
            "div",
            element(
                "p",
                element("span", MARKS[level], class_="mark", aria_hidden="true"),
                element("strong", certificate.verdict.capitalize()),
                f": {certificate.headline}",
            ),
            class_=f"verdict {level}",
        )
    return element(
        "section",
        element(
            "div",
            element("p", "Report" if heading == called else f"Report: {called}", class_="kicker"),
            element("h1", element("bdi", heading)),
            element("p", _with_code(" ".join(_ending(model))), class_="lead"),
            element("dl", figures, class_="figures") if figures else None,
            verdict,
            class_="opening",
        ),
        id="overview",
        class_="hero",
        aria_label="Overview",
    )


def _width(model: Any) -> dict[str, str]:
    """How many columns the data have, by what they are called."""
    if hasattr(model, "emissionprob_"):
        return {"symbols": f"{model.emissionprob_.shape[1]:,}"}
    if not hasattr(model, "n_features_in_"):
        return {}
    count = model.n_features_in_
    if hasattr(model, "membership_"):
        return {"nodes": f"{count:,}"}
    if hasattr(model, "tree_"):
        return {"leaves": f"{count:,}"}
    if hasattr(model, "y_weights_"):
        return {"features": f"{count:,} and {len(model.y_weights_):,}"}
    return {"feature" if count == 1 else "features": f"{count:,}"}


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def _figures(model: Any) -> dict[str, str]:
    """A few numbers that say how large things are."""
    found: dict[str, str] = {}
    if not hasattr(model, "get_params"):
        return _figures_of_tensor(model)
    count = getattr(model, "n_components_", None) or getattr(model, "n_components", None)
    if isinstance(count, int | np.integer):
        head, rows = rows_of(model)
        noun = head[0] if len(rows) == count else "component"
        found[noun if count == 1 else _plural(noun)] = str(count)
    return found | _width(model)


def _figures_of_tensor(found: Any) -> dict[str, str]:
    """Dimensions, what was found in them, and what it leaves."""
    if hasattr(found, "detected"):
        return {
            "dimensions": " × ".join(str(len(vector)) for vector in found.vectors),
            "signal to noise": number(found.signal_to_noise),
            "detected": "yes" if found.detected else "no",
        }
    tensor = getattr(found, "tensor", getattr(found, "low_rank", found))
    figures = {}
    if hasattr(tensor, "shape"):
        figures["dimensions"] = " × ".join(map(str, tensor.shape))
    if hasattr(found, "low_rank"):
        ranks = found.rank if isinstance(found.rank, tuple) else (found.rank,)
        figures["rank"] = " × ".join(map(str, ranks))
        figures["gross errors"] = f"{found.sparse.nnz:,}"
    elif hasattr(found, "cores"):
        figures["numbers"] = f"{found.n_entries:,}"
    elif hasattr(found, "rank"):
        figures["components"] = str(found.rank)
    if found.residual is not None:
        figures["residual"] = number(found.residual)
    return figures


def _found(rows: Rows) -> Markup:
    head, body = rows
    more = len(body) - _ROWS
    return section(
        "found",
        "What was found",
        scrolling(
            "What was found",
            element(
                "table",
                table_head(head),
                element(
                    "tbody",
                    [
                        element(
                            "tr",
                            element("th", element("bdi", row[0]), scope="row"),
                            [element("td", element("bdi", cell)) for cell in row[1:]],
                        )
                        for row in body[:_ROWS]
                    ],
                ),
            ),
        ),
        element("p", f"and {more} more", class_="quiet") if more > 0 else None,
    )


def _picture(model: Any, data: Sequence[Any], names: Any) -> Markup | None:
    """The figure as an image; None where matplotlib is missing or the data would be needed."""
    try:
        plots = import_module("latensor.plots")
    except ImportError:
        return None
    try:
        figure = plots.picture(model, *data, names=names)
    except InvalidInputError:
        if data:
            raise
        return None
    stream = io.BytesIO()
    import_module("latensor.plots.figures").draw(figure, stream, dpi=144)
    encoded = base64.b64encode(stream.getvalue()).decode()
    return section(
        "picture",
        "Picture",
        scrolling(
            "Picture",
            element(
                "img",
                src=f"data:image/png;base64,{encoded}",
                alt=f"{type(model).__name__}: what the table above says, drawn",
                # On a phone these scroll by themselves: made smaller, nobody could read them.
                class_="drawn wide" if figure.get_figwidth() > _READABLE else "drawn",
            ),
        ),
    )


def _trust(model: Any) -> Markup | None:
    certificate = _certificate(model)
    if certificate is None:
        return None
    items = [
        element(
            "li",
            element("span", MARKS[s.level], class_="mark", aria_hidden="true"),
            element("span", TRUST[s.level].capitalize() + ": ", class_="unseen"),
            element(
                "div",
                element("p", element("strong", s.topic[:1].upper() + s.topic[1:])),
                element("p", sentence(s.text)),
            ),
            class_=s.level,
        )
        for s in certificate.statements
    ]
    return section(
        "certificate",
        "How far to trust it",
        element("ul", items, class_="statements"),
        element("p", f"Verdict: {certificate.verdict}.{certificate.closing}", class_="explanation"),
    )


def _choice(model: Any) -> Markup | None:
    selection = _selection(model)
    if selection is None:
        return None
    return section(
        "choice",
        "How many",
        element("pre", str(selection), tabindex="0", role="region", aria_label="How many"),
    )


def _reproduction(model: Any) -> Reproduction:
    settings = _settings(model)
    snippet = ""
    if hasattr(model, "get_params"):
        listed = ", ".join(f"{name}={value}" for name, value in settings.items())
        snippet = "\n".join(
            [
                "import latensor as lt",
                "",
                *textwrap.wrap(f"model = lt.{type(model).__name__}({listed})", 96,
                               subsequent_indent="    "),
                "model.fit(...)  # the same data",
            ]
        )  # fmt: skip
    return Reproduction(snippet=snippet, settings=settings, versions=installed_versions())
