"""Hidden causes and regressions in one sample: what each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import generator, to_host
from latensor.plots.colours import checked_model, checked_names, in_turn, number_ticks, tidy
from latensor.plots.figures import new_figure

_MOST_POINTS = 4000
# Features that have room for their names.
_NAMED = 40


def causes(model: Any, names: Sequence[object] | None = None) -> Figure:
    """Draw a `lt.NoisyOrNetwork`: which features every cause turns on, and how often it is active.

    Features are ordered by the cause that acts most on them; the last row is the leak.

    Parameters
    ----------
    model : a fitted NoisyOrNetwork
    names : of the features

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("components_", "prior_", "leak_"), "NoisyOrNetwork")
    components = np.asarray(model.components_, dtype=float)
    k, d = components.shape
    named = checked_names(names, d, "names", "")
    order = np.lexsort((-components.max(axis=0), components.argmax(axis=0)))
    figure = new_figure(10.0, max(3.0, 1.6 + 0.28 * k))
    acts, often = figure.subplots(1, 2, width_ratios=(3.0, 1.0))
    table = np.vstack([components, np.asarray(model.leak_, dtype=float)[None]])[:, order]
    image = acts.imshow(table, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    figure.colorbar(image, ax=acts, label="probability")
    acts.set_title("how probably a cause turns a feature on", fontsize=10)
    acts.set_yticks(np.arange(k + 1), [*(str(j) for j in range(k)), "leak"], fontsize=8)
    acts.set_ylabel("cause")
    if d <= _NAMED:
        acts.set_xticks(np.arange(d), [named[i] for i in order], rotation=90, fontsize=7)
    else:
        acts.set_xlabel(f"{d} features, by the cause that acts most on them")
    often.barh(np.arange(k), 100 * np.asarray(model.prior_, dtype=float), color=in_turn(k))
    number_ticks(often, k)
    often.invert_yaxis()
    often.set_xlabel("active in % of samples")
    tidy(often)
    return figure


def regressions(model: Any, X: Any, y: Any) -> Figure:
    """Draw a `lt.MixtureOfRegressions`: targets against the component that explains them best.

    Parameters
    ----------
    model : a fitted MixtureOfRegressions
    X, y : (n, d) rows and (n,) targets

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("coef_", "weights_", "predict_proba"), "MixtureOfRegressions")
    y = np.asarray(to_host(y) if hasattr(y, "dtype") else y, dtype=float).ravel()
    chosen = np.arange(len(y))
    if len(y) > _MOST_POINTS:
        chosen = np.sort(generator(0).choice(len(y), _MOST_POINTS, replace=False))
    owners = np.asarray(to_host(model.predict_proba(X, y)))[chosen].argmax(axis=1)
    means = np.asarray(to_host(model.predict(X, by_component=True)))[chosen]
    fitted, k = means[np.arange(len(chosen)), owners], len(model.weights_)
    colours = np.array(in_turn(k))
    figure = new_figure(10.0, 4.6)
    points, fractions = figure.subplots(1, 2, width_ratios=(1.8, 1.0))
    size = float(np.clip(6000 / len(chosen), 5.0, 18.0))
    points.scatter(fitted, y[chosen], s=size, c=colours[owners], alpha=0.5, linewidths=0,
                   rasterized=True)  # fmt: skip
    ends = [float(min(fitted.min(), y[chosen].min())), float(max(fitted.max(), y[chosen].max()))]
    points.plot(ends, ends, color="black", linewidth=0.8)
    points.set_xlabel("mean of the most probable component")
    points.set_ylabel("target")
    points.set_title(f"{len(chosen):,} of {len(y):,} samples", fontsize=10)
    tidy(points)
    fractions.barh(np.arange(k), np.asarray(model.weights_, dtype=float), color=colours)
    number_ticks(fractions, k)
    fractions.invert_yaxis()
    fractions.set_xlabel("weight")
    fractions.set_ylabel("component")
    tidy(fractions)
    return figure
