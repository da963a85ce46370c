"""Why to believe it: certificate, spectrum, refinement and choice of the number of topics."""

from __future__ import annotations

from collections.abc import Sequence

from latensor.diagnostics.findings import counted
from latensor.report.charts import line_chart, spectrum_chart
from latensor.report.description import (
    CountChoice,
    RefinementHistory,
    Spectrum,
    Statement,
    TopicPage,
)
from latensor.report.markup import Markup, element, scrolling, section, table_head
from latensor.report.wording import MARKS, TRUST, number


def certificate(page: TopicPage) -> Markup | None:
    """What was measured, what it means and whether it is good; None where nothing was."""
    if not page.certificate:
        return None
    return section(
        "certificate",
        "How far to trust it",
        element("ul", [_statement(s) for s in page.certificate], class_="statements"),
    )


def _statement(statement: Statement) -> Markup:
    measured = None
    if statement.name or statement.value is not None:
        measured = element(
            "p",
            statement.name,
            " " if statement.name else None,
            element("strong", number(statement.value)) if statement.value is not None else None,
            class_="measured",
        )
    return element(
        "li",
        element("span", MARKS[statement.level], class_="mark", aria_hidden="true"),
        element("span", TRUST[statement.level].capitalize() + ": ", class_="unseen"),
        element("div", element("p", statement.sentence), measured),
        class_=statement.level,
    )


def evidence(page: TopicPage) -> Markup | None:
    """The charts; None where there is nothing to draw."""
    figures = [
        _choice(page.choice) if page.choice else None,
        _spectrum(page.spectrum) if page.spectrum else None,
        _refinement(page.refinement) if page.refinement else None,
    ]
    if not any(figures):
        return None
    return section(
        "evidence",
        "Evidence",
        element("div", figures, class_="figures-row"),
    )


def _figure(title: str, text: str, chart: Markup, table: Markup) -> Markup:
    return element(
        "figure",
        element("figcaption", element("h3", title), element("p", text)),
        chart,
        element(
            "details",
            element("summary", "The numbers"),
            scrolling(title, table),
        ),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], chosen: int | None) -> Markup:
    return element(
        "table",
        table_head(heads),
        element(
            "tbody",
            [
                element(
                    "tr",
                    element("th", row[0], scope="row"),
                    [element("td", cell) for cell in row[1:]],
                    class_="chosen" if i == chosen else None,
                )
                for i, row in enumerate(rows)
            ],
        ),
    )


def _spectrum(spectrum: Spectrum) -> Markup:
    chosen, noise = spectrum.chosen, spectrum.noise
    text = f"{counted(chosen, 'eigenvalue')} of the second moment used."
    if len(spectrum.values) >= chosen and noise:
        ratio = spectrum.values[chosen - 1] / noise
        text += f" The last of them is {number(ratio)} times the noise."
    if len(spectrum.values) > chosen and spectrum.values[chosen] > 0:
        gap = spectrum.values[chosen - 1] / spectrum.values[chosen]
        text += f" It is {number(gap)} times the next one."
    rows = [
        (str(i + 1), number(value), "used" if i < chosen else "left")
        for i, value in enumerate(spectrum.values)
    ]
    return _figure(
        "Spectrum",
        text,
        spectrum_chart(spectrum.values, chosen, noise, f"Spectrum. {text}"),
        _table(("eigenvalue", "size", "use"), rows, chosen - 1),
    )


def _refinement(refinement: RefinementHistory) -> Markup:
    kept = refinement.passes[-1] if refinement.kept is None else refinement.kept
    at = list(refinement.passes).index(kept)
    first, last = refinement.perplexity[0], refinement.perplexity[at]
    text = (
        f"Perplexity of the corpus goes from {number(first)} to {number(last)} in "
        f"{number(kept)} passes over the corpus (lower is better)."
    )
    if at < len(refinement.passes) - 1:
        text += " Later passes did not help; their topics were not kept."
    rows = [
        (number(done), number(value), "kept" if i == at else "")
        for i, (done, value) in enumerate(
            zip(refinement.passes, refinement.perplexity, strict=True)
        )
    ]
    return _figure(
        "Likelihood refinement",
        text,
        line_chart(refinement.passes, refinement.perplexity, kept, "pass", "perplexity", text),
        _table(("pass", "perplexity", ""), rows, at),
    )


def _choice(choice: CountChoice) -> Markup:
    rows = sorted(choice.rows, key=lambda row: row.n_topics)
    counts = [row.n_topics for row in rows]
    text = f"{counted(choice.chosen, 'topic')} chosen."
    if choice.reason:
        text += f" {choice.reason}"
    coherent = any(row.coherence is not None for row in rows)
    heads = ["topics", "held-out perplexity", *(["coherence"] if coherent else [])]
    cells = []
    for row in rows:
        cell = [str(row.n_topics), number(row.perplexity)]
        if coherent:
            cell.append("–" if row.coherence is None else number(row.coherence))
        cells.append(cell)
    return _figure(
        "Number of topics",
        text,
        line_chart(
            counts,
            [row.perplexity for row in rows],
            choice.chosen,
            "topics",
            "held-out perplexity",
            f"Held-out perplexity against the number of topics. {text}",
        ),
        _table(heads, cells, counts.index(choice.chosen) if choice.chosen in counts else None),
    )
