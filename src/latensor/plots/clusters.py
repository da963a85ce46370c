"""Clusters on a plane: samples, the ellipses of their components, and how much each weighs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from latensor.arrays import generator, to_host
from latensor.estimation.view_input import read_views
from latensor.exceptions import InvalidInputError
from latensor.plots.colours import apart, checked_model, checked_names, number_ticks, outlined, tidy
from latensor.plots.density import density
from latensor.plots.figures import new_figure

_MOST_POINTS = 4000
# Ellipses reach two standard deviations; more components than this overlap in any plane, and reach
# one.
_ROOMY = 12
# Features that an axis names.
_NAMED = 3


def clusters(model: Any, X: Any, *, names: Sequence[object] | None = None) -> Figure:
    """Draw a mixture: samples by component, ellipses of two standard deviations, and the weights.

    Two features are drawn as they are. Of more, the plane is that in which the means, in units of
    the standard deviations within components, spread the most. One feature is drawn by `density`.
    At most 4000 samples are shown, those with gaps where the model expects them, and with more than
    12 components ellipses of one standard deviation.

    Parameters
    ----------
    model : a fitted mixture, with `weights_`, `means_`, `covariances_` or `variances_`, `predict`
    X : (n, d) samples, or the list of views of a `MultiViewMixture`
    names : what the d features are called (of all views, one after the other)

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("weights_", "means_", "predict"), "mixture")
    weights, means, covariances = components_of(model)
    n_features = means.shape[1]
    named = checked_names(names, n_features, "names", "feature")
    if n_features == 1:
        return density(model, X, name=named[0])
    samples, labels, total = _shown(model, X, n_features)
    plane = _Plane.of(weights, means, variances_of(covariances), samples, named)
    points, centers = plane.points(samples), plane.points(means)
    colours = np.array(apart(centers))
    count = len(weights)
    figure = new_figure(10.0, float(np.clip(4.6 + 0.06 * count, 5.2, 9.0)))
    axis, bars = figure.subplots(1, 2, width_ratios=(3.4, 1.0))
    size = float(np.clip(6000 / len(points), 5.0, 18.0))
    axis.scatter(*points.T, s=size, c=colours[labels], alpha=0.45, linewidths=0, rasterized=True)
    _draw_ellipses(axis, plane, centers, covariances, colours)
    axis.set_xlabel(plane.labels[0])
    axis.set_ylabel(plane.labels[1])
    shown = "" if total == len(points) else f"{len(points):,} of "
    components = "1 component" if count == 1 else f"{count} components"
    reach = "two standard deviations" if count <= _ROOMY else "one standard deviation"
    axis.set_title(f"{components}, {shown}{total:,} samples; ellipses of {reach}", fontsize=10)
    tidy(axis)
    _draw_weights(bars, weights, colours)
    return figure


def components_of(model: Any) -> tuple[Any, Any, Any]:
    """Weights (k,), means (k, d), and variances (k, d) or covariances (k, d, d).

    The views of a `MultiViewMixture` stand side by side.
    """
    several = isinstance(model.means_, list | tuple)
    means = np.hstack(model.means_) if several else np.asarray(model.means_)
    given = np.hstack(model.variances_) if several else np.asarray(model.covariances_)
    if given.ndim == 1:
        given = given[:, None]
    if getattr(model, "covariance_type", None) == "tied":
        given = given[None]
    count, d = means.shape
    shape = (count, d, d) if given.ndim == 3 else (count, d)
    covariances = np.broadcast_to(given, shape).astype(float)
    return np.asarray(model.weights_, dtype=float), means.astype(float), covariances


def variances_of(covariances: Any) -> Any:
    """Variances (k, d) of what `components_of` gives."""
    return np.einsum("jaa->ja", covariances) if covariances.ndim == 3 else covariances


def _shown(model: Any, X: Any, n_features: int) -> tuple[Any, Any, int]:
    """The samples that are drawn, their components, and how many there are in all."""
    if hasattr(model, "view_sizes_"):
        views = read_views(X, model.view_sizes_)
        total = int(views[0].shape[0])
        chosen = _chosen(total)
        kept = [view[chosen] for view in views]
        dense = [view.toarray() if scipy.sparse.issparse(view) else view for view in kept]
        return np.hstack(dense).astype(float), model.predict(kept), total
    rows = np.asarray(to_host(X), dtype=float)
    if rows.ndim != 2 or rows.shape[1] != n_features or not len(rows):
        raise InvalidInputError(f"X has shape {rows.shape}: expected (n, {n_features})")
    kept_rows = rows[_chosen(len(rows))]
    if hasattr(model, "impute"):
        kept_rows = np.asarray(to_host(model.impute(kept_rows)))
    return kept_rows, np.asarray(to_host(model.predict(kept_rows))), len(rows)


def _chosen(total: int) -> Any:
    if total <= _MOST_POINTS:
        return np.arange(total)
    return np.sort(generator(0).choice(total, _MOST_POINTS, replace=False))


class _Plane:
    """Two directions (d, 2) from a centre (d,), and what the axes are called."""

    def __init__(self, center: Any, directions: Any, labels: tuple[str, str]) -> None:
        self.center = center
        self.directions = directions
        self.labels = labels

    def points(self, rows: Any) -> Any:
        """Coordinates (n, 2) of rows (n, d)."""
        return (rows - self.center) @ self.directions

    @classmethod
    def of(
        cls, weights: Any, means: Any, variances: Any, samples: Any, names: Sequence[str]
    ) -> _Plane:
        if means.shape[1] == 2:
            return cls(np.zeros(2), np.eye(2), (names[0], names[1]))
        center = weights @ means
        within = np.sqrt(weights @ variances)
        scale = np.where(within > 1e-12 * (within.max() or 1.0), within, within.max() or 1.0)
        spread = np.sqrt(weights)[:, None] * (means - center) / scale
        values, vectors = np.linalg.svd(spread, full_matrices=False)[1:]
        rank = min(int((values > 1e-9 * max(values[0], 1e-300)).sum()), 2, len(weights) - 1)
        kept = vectors[:rank]
        fractions = values**2 / max(float((values**2).sum()), 1e-300)
        texts = [f"direction {j}: {100 * fractions[j]:.3g} % of the spread" for j in range(rank)]
        if rank < 2:
            # What the means leave open, the samples fill.
            left = (samples - samples.mean(axis=0)) / scale
            left = left - left @ kept.T @ kept
            kept = np.vstack(
                [kept, np.linalg.svd(left, full_matrices=len(left) < 2)[2][: 2 - rank]]
            )
            texts += [f"direction {j}: where samples vary most" for j in range(rank, 2)]
        signs = np.sign(kept[np.arange(2), np.argmax(np.abs(kept), axis=1)])
        kept = kept * np.where(signs == 0, 1.0, signs)[:, None]
        labels = [f"{text}\n{_leading(row, names)}" for text, row in zip(texts, kept, strict=True)]
        return cls(center, (kept / scale).T, (labels[0], labels[1]))


def _leading(direction: Any, names: Sequence[str]) -> str:
    """The features that make a direction, with their signs."""
    leading = np.argsort(-np.abs(direction), kind="stable")[:_NAMED]
    strong = [i for i in leading if abs(direction[i]) > 0.1 * abs(direction[leading[0]])]
    more = ", ..." if len(names) > len(strong) else ""
    signs = ["+" if direction[i] > 0 else "−" for i in strong]
    return ", ".join(f"{s}{names[i]}" for s, i in zip(signs, strong, strict=True)) + more


def _draw_ellipses(axis: Any, plane: _Plane, centers: Any, covariances: Any, colours: Any) -> None:
    roomy = len(centers) <= _ROOMY
    for j, center in enumerate(centers):
        spread = covariances[j]
        wide = spread.ndim == 2
        spread = spread @ plane.directions if wide else spread[:, None] * plane.directions
        shape = plane.directions.T @ spread
        values, vectors = np.linalg.eigh(shape)
        angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
        across = (4.0 if roomy else 2.0) * np.sqrt(np.maximum(values[::-1], 0.0))
        axis.add_patch(
            Ellipse(
                center,
                across[0],
                across[1],
                angle=angle,
                fill=False,
                color=colours[j],
                linewidth=1.6 if roomy else 0.9,
            )
        )
        axis.annotate(
            str(j),
            center,
            ha="center",
            va="center",
            fontsize=10 if roomy else 8,
            fontweight="bold",
            color=colours[j],
            path_effects=outlined(3.0),
            zorder=5,
        )
    axis.autoscale_view()


def _draw_weights(axis: Any, weights: Any, colours: Any) -> None:
    count = len(weights)
    axis.barh(np.arange(count), weights, color=colours, height=0.75)
    number_ticks(axis, count)
    if count <= 20:
        for j, weight in enumerate(weights):
            axis.annotate(
                f"{weight:.3g}",
                (weight, j),
                textcoords="offset points",
                xytext=(3, 0),
                va="center",
                fontsize=8,
            )
        axis.margins(x=0.25)
    axis.set_ylim(count - 0.4, -0.6)
    axis.set_xlabel("weight")
    axis.set_ylabel("component")
    tidy(axis)
