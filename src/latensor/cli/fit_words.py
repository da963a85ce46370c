"""What `latensor fit` has to say: the parameters in a short table, the certificate in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from latensor.cli.findings import say
from latensor.cli.fit_input import Data

# Components that are listed one by one, and the characters that a column of means needs.
_ROWS = 20
_COLUMN = 12
_FEATURES = 3

# The head of a table, and its rows.
Rows = tuple[list[str], list[list[str]]]


def number(value: Any) -> str:
    """A number in few characters."""
    return f"{float(value):.4g}"


def leading(values: Any, names: Sequence[str], count: int = _FEATURES) -> str:
    """The names at the entries of largest magnitude, with these entries."""
    chosen = np.argsort(-np.abs(values), kind="stable")[:count]
    return ", ".join(f"{names[i]}: {float(values[i]):.3g}" for i in chosen)


def _numbered(names: Sequence[str], count: int) -> Sequence[str]:
    return names if len(names) == count else [str(j) for j in range(count)]


def _room(width: int, taken: int) -> int:
    return max((width - taken) // _COLUMN, 1)


def _telling(means: Any, within: Any) -> Any:
    """Features by how far apart their means are, in deviations."""
    return np.argsort(-means.var(axis=0) / np.maximum(within, 1e-300), kind="stable")


def mixture_rows(model: Any, data: Data, width: int) -> Rows:
    """Weights, and the means of the features that differ most between components."""
    several = isinstance(model.means_, list)
    means = np.hstack(model.means_) if several else np.asarray(model.means_)
    variances = np.hstack(model.variances_) if several else np.asarray(model.covariances_)
    if variances.ndim == 3 or getattr(model, "covariance_type", None) == "tied":
        diagonals = np.diagonal(variances, axis1=-2, axis2=-1)
        variances = np.broadcast_to(diagonals, means.shape)
    if variances.ndim == 1:
        variances = variances[:, None]
    spherical = variances.shape[1] == 1
    within = np.broadcast_to(model.weights_ @ variances, means.shape[1:])
    named = _numbered(data.names, means.shape[1])
    room = _room(width, 34 if spherical else 22)
    chosen = np.sort(_telling(means, within)[:room])
    head = ["component", "weight", *(["deviation"] if spherical else [])]
    head += [f"mean {named[i]}" for i in chosen]
    rows = []
    for j, weight in enumerate(model.weights_):
        deviation = [number(np.sqrt(variances[j, 0]))] if spherical else []
        rows.append([str(j), number(weight), *deviation, *(number(means[j, i]) for i in chosen)])
    return head, rows


def cause_rows(model: Any, data: Data, width: int) -> Rows:
    """How often causes are active, and the features that they turn on."""
    named = _numbered(data.names, model.components_.shape[1])
    count = max(_FEATURES, (width - 30) // 14)
    rows = [
        [str(j), number(prior), leading(model.components_[j], named, count)]
        for j, prior in enumerate(model.prior_)
    ]
    return ["cause", "active", "turns on"], rows


def regression_rows(model: Any, data: Data, width: int) -> Rows:
    """Weights, intercepts and noise, and the largest coefficients."""
    named = _numbered(data.names, model.coef_.shape[1])
    rows = [
        [
            str(j),
            number(weight),
            number(model.intercept_[j]),
            number(np.sqrt(model.variances_[j])) if model.link == "identity" else "-",
            leading(model.coef_[j], named),
        ]
        for j, weight in enumerate(model.weights_)
    ]
    return ["component", "weight", "intercept", "noise", "coefficients"], rows


def chain_rows(model: Any, data: Data, width: int) -> Rows:
    """Shares of the rows, how long states stay, and what they emit."""
    count = len(model.startprob_)
    shares = np.bincount(model.predict(*data.arguments), minlength=count) / data.n_rows
    stays = np.diag(model.transmat_)
    runs = 1 / np.maximum(1 - stays, 1e-12)
    head = ["state", "share", "stays", "rows a visit"]
    rows = [
        [str(j), number(share), number(stays[j]), number(runs[j]) if runs[j] < 1e9 else "all"]
        for j, share in enumerate(shares)
    ]
    if hasattr(model, "emissionprob_"):
        named = _numbered(data.names, model.emissionprob_.shape[1])
        head.append("likeliest symbols")
        for row, emission in zip(rows, model.emissionprob_, strict=True):
            row.append(leading(emission, named))
        return head, rows
    means = np.asarray(model.means_)
    within = np.einsum("jaa->ja", np.asarray(model.covars_)).mean(axis=0)
    named = _numbered(data.names, means.shape[1])
    chosen = np.sort(_telling(means, within)[: _room(width, 44)])
    head += [f"mean {named[i]}" for i in chosen]
    for row, mean in zip(rows, means, strict=True):
        row += [number(mean[i]) for i in chosen]
    return head, rows


def source_rows(model: Any, data: Data, width: int) -> Rows:
    """Kurtosis and noise of the sources, and the sensors that hear them best."""
    named = _numbered(data.names, model.mixing_.shape[0])
    rows = []
    for j in range(model.mixing_.shape[1]):
        noise = model.noise_variance_[j]
        heard = leading(model.mixing_[:, j], named)
        shown = number(noise) if np.isfinite(noise) else "unknown"
        rows.append([str(j), number(model.kurtosis_[j]), shown, heard])
    return ["source", "kurtosis", "noise", "strongest in"], rows


def principal_rows(model: Any, data: Data, width: int) -> Rows:
    """Shares of the variance, and the features that make a direction."""
    shares = 100 * np.asarray(model.explained_variance_ratio_)
    named = _numbered(data.names, model.components_.shape[1])
    rows = [
        [str(j), f"{share:.3g} %", f"{total:.4g} %", leading(model.components_[j], named)]
        for j, (share, total) in enumerate(zip(shares, np.cumsum(shares), strict=True))
    ]
    return ["direction", "variance", "together", "features"], rows


def canonical_rows(model: Any, data: Data, width: int) -> Rows:
    """Correlations, and the features that are behind them."""
    n_left, n_right = len(model.x_weights_), len(model.y_weights_)
    named = _numbered(data.names, n_left + n_right)
    rows = [
        [
            str(j),
            number(correlation),
            leading(model.x_loadings_[:, j], named[:n_left], 2),
            leading(model.y_loadings_[:, j], named[n_left:], 2),
        ]
        for j, correlation in enumerate(model.correlations_)
    ]
    return ["pair", "correlation", "in the first view", "in the second"], rows


def print_rows(console: Console, found: Rows) -> None:
    """Print the table, the first rows of many."""
    head, rows = found
    table = Table()
    for place, title in enumerate(head):
        words = any(": " in row[place] for row in rows)
        # What a column of a file is called may look like mark-up.
        table.add_column(Text(title), justify="left" if words else "right", overflow="fold")
    for row in rows[:_ROWS]:
        table.add_row(*map(Text, row))
    console.print(table)
    if len(rows) > _ROWS:
        say(console, f"and {len(rows) - _ROWS} more")
