"""Tables of the topic benchmark: a summary against the best peer, then every method."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.topics_corpora import CORPORA, Corpus
from benchmarks.topics_peers import METHODS, OURS

NEAR = 1.005
ORACLES = {
    "truth": "EM from the true topics",
    "truth_loo": "the same, leaving one out",
}


def median(stored: dict[str, Any], method: str, key: str) -> float:
    """Over the seeds that have this figure; NaN where none has."""
    runs = stored.get("runs", {}).values()
    values = [run[method][key] for run in runs if key in run.get(method, {})]
    return float(np.median(values)) if values else float("nan")


def seconds_to_near(stored: dict[str, Any], method: str) -> float:
    """CPU seconds until a peer first came within half a per cent of its own best perplexity.

    The fraction of the time comes from the validation run, the only one that tries all settings.
    """
    choice = stored.get("choices", {}).get(method)
    if choice is None:
        return float("nan")
    best = min(row["perplexity"] for row in choice["path"])
    near = next(row for row in choice["path"] if row["perplexity"] <= NEAR * best)
    chosen = next(row for row in choice["path"] if row["setting"] == choice["setting"])
    return median(stored, method, "seconds") * near["seconds"] / chosen["seconds"]


def title(method: str) -> tuple[str, str]:
    """How a method and its priors are called."""
    if method in ORACLES:
        return ORACLES[method], "true"
    name, _, ours = method.partition("+")
    if name == OURS:
        return "**latensor**", ""
    return METHODS[name].title, "ours" if ours else "defaults"


def number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else ""


def methods_of(stored: dict[str, Any]) -> list[str]:
    present = {method for run in stored.get("runs", {}).values() for method in run}
    order = [OURS, *(n + p for p in ("+ours", "") for n in METHODS if n != OURS), *ORACLES]
    return [method for method in order if method in present]


def best_peer(stored: dict[str, Any], key: str = "perplexity") -> str | None:
    """The peer with our priors that has the lowest median of a figure."""
    peers = [method for method in methods_of(stored) if method.endswith("+ours")]
    return min(peers, key=lambda method: median(stored, method, key), default=None)


def corpus_table(corpus: Corpus, stored: dict[str, Any]) -> list[str]:
    planted = np.isfinite(median(stored, "truth", "distance"))
    heads = ["method", "priors", "iterations", "perplexity", "NPMI"]
    heads += ["L1"] if planted else []
    heads += ["CPU seconds", "until within 0.5 % of its best", "times ours"]
    n_seeds = len(stored["runs"])
    lines = [
        f"**{corpus.title}**, k = {corpus.n_components}, median of {n_seeds} seeds",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    ours = median(stored, OURS, "seconds")
    for method in methods_of(stored):
        name, priors = title(method)
        setting = stored.get("choices", {}).get(method, {}).get("setting", "")
        seconds = median(stored, method, "seconds") if method not in ORACLES else float("nan")
        cells = [name, priors, str(setting), number(median(stored, method, "perplexity"), ".1f")]
        cells.append(number(median(stored, method, "npmi"), ".3f"))
        if planted:
            cells.append(number(median(stored, method, "distance"), ".3f"))
        cells.append(number(seconds, ".2f"))
        cells.append(number(seconds_to_near(stored, method), ".2f"))
        cells.append(number(seconds / ours, ".3g") if method != OURS else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(rows: dict[str, Any]) -> list[str]:
    lines = [
        "| corpus (k) | ours: perplexity, NPMI, s | best peer with our priors: perplexity, NPMI, s "
        "| perplexity against it | times faster |",
        "|---" * 5 + "|",
    ]

    def figures(stored: dict[str, Any], method: str) -> str:
        parts = [("perplexity", ".1f"), ("npmi", ".3f"), ("seconds", ".2f")]
        return ", ".join(number(median(stored, method, key), form) for key, form in parts)

    for corpus in CORPORA:
        stored = rows.get(corpus.name, {})
        peer = best_peer(stored)
        if peer is None or not np.isfinite(median(stored, OURS, "seconds")):
            continue
        # Ratios seed by seed: the same documents are then on both sides.
        pairs = [(run[OURS], run[peer]) for run in stored["runs"].values() if peer in run]
        excess = float(np.median([a["perplexity"] / b["perplexity"] - 1 for a, b in pairs]))
        faster = float(np.median([b["seconds"] / a["seconds"] for a, b in pairs]))
        lines.append(
            f"| {corpus.title} ({corpus.n_components}) | {figures(stored, OURS)} "
            f"| {title(peer)[0]}: {figures(stored, peer)} | {excess:+.2%} | {faster:.3g} |"
        )
    return lines if len(lines) > 2 else []


def planted_summary(rows: dict[str, Any]) -> list[str]:
    """Distance to the truth beside what EM started there reaches, and time beside tomotopy."""
    heads = ["planted corpus (k)", "ours: L1, s", *(f"{name}: L1" for name in ORACLES.values())]
    heads += ["ours against EM", "tomotopy with our priors: L1, s", "times faster"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for corpus in CORPORA:
        stored = rows.get(corpus.name, {})
        ours, oracle = (median(stored, method, "distance") for method in (OURS, "truth"))
        if not np.isfinite(ours * oracle):
            continue
        seconds, peer = (median(stored, m, "seconds") for m in (OURS, "tomotopy+ours"))
        cells = [f"{corpus.title} ({corpus.n_components})", f"{ours:.3f}, {seconds:.2f}"]
        cells += [number(median(stored, method, "distance"), ".3f") for method in ORACLES]
        cells.append(f"{ours / oracle - 1:+.1%}")
        distance = number(median(stored, "tomotopy+ours", "distance"), ".3f")
        cells += [f"{distance}, {number(peer, '.1f')}", number(peer / seconds, ".3g")]
        lines.append("| " + " | ".join(cells) + " |")
    return ["", *lines] if len(lines) > 2 else []


def render(rows: dict[str, Any]) -> list[str]:
    lines = summary(rows) + planted_summary(rows)
    for corpus in CORPORA:
        if rows.get(corpus.name, {}).get("runs"):
            lines += ["", *corpus_table(corpus, rows[corpus.name])]
    return lines
