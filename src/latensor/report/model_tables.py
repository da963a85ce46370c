"""What a model has found, as the rows of a short table: printed, and on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from latensor.arrays import to_host
from latensor.decomposition.mode_labels import ModeLabels

# The characters that a column of means needs, and the features and leaves that a line can bear.
_COLUMN = 12
_FEATURES = 3
_LEAVES = 4
_WORDS = 8

# The head of a table, and its rows.
Rows = tuple[list[str], list[list[str]]]
Names = Sequence[str]
_UNLABELLED = ModeLabels(None, None)


def number(value: Any) -> str:
    """A number in few characters, real or complex."""
    return f"{value if np.iscomplexobj(value) else float(value):.4g}"


def leading(values: Any, names: Sequence[str], count: int = _FEATURES) -> str:
    """The names at the entries of largest magnitude, with these entries.

    Those of less than a thousandth of the largest have none of the digits that are shown.
    """
    sizes = np.abs(values)
    chosen = np.argsort(-sizes, kind="stable")[:count]
    chosen = chosen[~(sizes[chosen] < np.max(sizes, initial=0.0) / 1000)]
    return ", ".join(f"{names[i]}: {values[i]:.3g}" for i in chosen)


def _numbered(names: Sequence[str], count: int) -> Sequence[str]:
    return names if len(names) == count else [str(j) for j in range(count)]


def _room(width: int, taken: int) -> int:
    return max((width - taken) // _COLUMN, 1)


def _telling(means: Any, within: Any) -> Any:
    """Features by how far apart their means are, in standard deviations."""
    return np.argsort(-means.var(axis=0) / np.maximum(within, 1e-300), kind="stable")


def mixture_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
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
    named = _numbered(names, means.shape[1])
    room = _room(width, 34 if spherical else 22)
    head = ["component", "weight", *(["standard deviation"] if spherical else [])]
    rows = []
    for j, weight in enumerate(model.weights_):
        deviation = [number(np.sqrt(variances[j, 0]))] if spherical else []
        rows.append([str(j), number(weight), *deviation])
    return _with_means(head, rows, means, within, named, room)


def _with_means(
    head: list[str], rows: list[list[str]], means: Any, within: Any, names: Names, room: int
) -> Rows:
    """A table with the means of the features that differ most, and how many others there are."""
    count = means.shape[1] if means.shape[1] <= room else max(room - 1, 1)
    chosen = np.sort(_telling(means, within)[:count])
    others = means.shape[1] - len(chosen)
    head = [*head, *(f"mean {names[i]}" for i in chosen), *([f"{others} more"] if others else [])]
    shown = [[*map(number, mean[chosen]), *(["..."] if others else [])] for mean in means]
    return head, [[*row, *more] for row, more in zip(rows, shown, strict=True)]


def cause_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """How often causes are active, and the features that they turn on."""
    named = _numbered(names, model.components_.shape[1])
    count = max(_FEATURES, (width - 30) // 14)
    rows = [
        [str(j), number(prior), leading(model.components_[j], named, count)]
        for j, prior in enumerate(model.prior_)
    ]
    return ["cause", "active", "turns on"], rows


def regression_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Weights, intercepts and noise, and the largest coefficients."""
    named = _numbered(names, model.coef_.shape[1])
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


def unit_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """What hidden units add to the outputs, their intercepts, and their largest weights."""
    named = _numbered(names, model.components_.shape[1])
    rows = [
        [
            str(j),
            ", ".join(number(value) for value in model.coefs_[1][j][:3]),
            number(model.intercepts_[0][j]),
            leading(weights, named),
        ]
        for j, weights in enumerate(model.components_)
    ]
    return ["unit", "output", "intercept", "weights"], rows


def chain_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Fractions of the rows (in the long run, without rows), self-transitions, emissions."""
    count = len(model.startprob_)
    if data:
        states = model.predict(*data)
        fractions = np.bincount(states, minlength=count) / len(states)
    else:
        fractions = _long_run(model.transmat_)
    self_transitions = np.diag(model.transmat_)
    runs = 1 / np.maximum(1 - self_transitions, 1e-12)
    head = ["state", "fraction", "self-transition", "mean dwell time"]
    rows = [
        [
            str(j),
            number(fraction),
            number(self_transitions[j]),
            number(runs[j]) if runs[j] < 1e9 else "all",
        ]
        for j, fraction in enumerate(fractions)
    ]
    if hasattr(model, "emissionprob_"):
        named = _numbered(names, model.emissionprob_.shape[1])
        head.append("likeliest symbols")
        for row, emission in zip(rows, model.emissionprob_, strict=True):
            row.append(leading(emission, named))
        return head, rows
    means = np.asarray(model.means_)
    within = np.einsum("jaa->ja", np.asarray(model.covars_)).mean(axis=0)
    named = _numbered(names, means.shape[1])
    return _with_means(head, rows, means, within, named, _room(width, 44))


def _long_run(transmat: Any) -> Any:
    """The stationary distribution (k,); where there are several, the one from equal fractions."""
    fractions = np.full(len(transmat), 1 / len(transmat))
    step = (np.asarray(transmat) + np.eye(len(transmat))) / 2
    for _ in range(64):
        # The square of the lazy chain has the same limits, and gets there in few steps; so would
        # what rounding leaves of the sums of its rows.
        step = step @ step
        step /= step.sum(axis=1, keepdims=True)
    found = fractions @ step
    return found / found.sum()


def source_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Kurtosis and noise of the sources, and the sensors that hear them best."""
    named = _numbered(names, model.mixing_.shape[0])
    rows = []
    for j in range(model.mixing_.shape[1]):
        noise = model.noise_variance_[j]
        sensors = leading(model.mixing_[:, j], named)
        shown = number(noise) if np.isfinite(noise) else "unknown"
        rows.append([str(j), number(model.kurtosis_[j]), shown, sensors])
    return ["source", "kurtosis", "noise", "strongest in"], rows


def principal_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Fractions of the variance, and the features that make a direction."""
    fractions = 100 * np.asarray(model.explained_variance_ratio_)
    named = _numbered(names, model.components_.shape[1])
    rows = [
        [str(j), f"{fraction:.3g} %", f"{total:.4g} %", leading(model.components_[j], named)]
        for j, (fraction, total) in enumerate(zip(fractions, np.cumsum(fractions), strict=True))
    ]
    return ["direction", "variance", "cumulative", "features"], rows


def canonical_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Correlations, and the features that are behind them."""
    n_left, n_right = len(model.x_weights_), len(model.y_weights_)
    named = _numbered(names, n_left + n_right)
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


def community_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Sizes of the communities, and how often their members are linked."""
    sizes = model.membership_.sum(axis=0)
    block = model.block_matrix_
    rows = []
    for j, size in enumerate(sizes):
        others = [block[j, i] for i in range(len(sizes)) if i != j]
        between = number(np.mean(others)) if others else "-"
        rows.append([str(j), f"{size:,.1f}", number(block[j, j]), between])
    return ["community", "nodes", "rate within", "to others"], rows


def tree_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Inner edges, the least supported first: the leaves that they part from the others."""
    tree = model.tree_
    names = _numbered(names, tree.n_observed)
    below = tree.below()
    rows = []
    found = sorted(tree.splits().values(), key=lambda v: (np.nan_to_num(tree.support[v], nan=2), v))
    for v in found:
        side = below[v] if 2 * below[v].sum() <= tree.n_observed else ~below[v]
        parted = [names[i] for i in np.flatnonzero(side).tolist()]
        support = tree.support[v]
        shown = f"{support:.2f}" if np.isfinite(support) else "-"
        shown_leaves = ", ".join(parted[:_LEAVES]) + (", ..." if len(parted) > _LEAVES else "")
        rows.append([shown_leaves, str(len(parted)), number(tree.length[v]), shown])
    return ["edge to", "leaves", "length", "support"], rows


def topic_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Fractions of the topics and their most probable words."""
    fractions = model.alpha_ / model.alpha_.sum() if hasattr(model, "alpha_") else model.weights_
    count = max(_FEATURES, min(_WORDS, (width - 24) // 10))
    named = _numbered(names, model.components_.shape[1])
    rows = []
    for j, fraction in enumerate(fractions):
        chosen = np.argsort(-model.components_[j], kind="stable")[:count]
        rows.append([str(j), f"{100 * fraction:.3g} %", ", ".join(named[i] for i in chosen)])
    return ["topic", "fraction", "words"], rows


def component_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Weights of the components of a CP decomposition, and the largest entries in every mode."""
    factors = [to_host(factor) for factor in result.factors]
    labels = result.mode_labels or [_UNLABELLED] * len(factors)
    numbered = [f"mode {m}" for m in range(len(factors))]
    return _component_table(result, factors, labels, _titles(names, labels, numbered))


def _titles(names: Names, labels: Sequence[ModeLabels], numbered: Sequence[str]) -> Sequence[str]:
    """What modes are called: as they are named here, by their labels, or by number."""
    if len(names) == len(numbered):
        return names
    return [own.name or number for own, number in zip(labels, numbered, strict=True)]


def _component_table(
    result: Any, factors: Sequence[Any], labels: Sequence[ModeLabels], titles: Sequence[str]
) -> Rows:
    places = [
        [str(place) for place in (range(len(factor)) if own.values is None else own.values)]
        for factor, own in zip(factors, labels, strict=True)
    ]
    rows = [
        [str(r), number(weight), *(leading(factor[:, r], own, 2)
                                   for factor, own in zip(factors, places, strict=True))]
        for r, weight in enumerate(to_host(result.weights))
    ]  # fmt: skip
    return ["component", "weight", *titles], rows


def coefficient_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """The components of the weights of a regression on tensors; of other forms the parameters."""
    weights = model.coef_
    if not hasattr(weights, "weights"):
        return parameter_rows(model, names, data, width)
    labels = [_UNLABELLED] * len(weights.factors)
    titles = _titles(names, labels, [f"mode {m}" for m in range(len(labels))])
    return _component_table(weights, [to_host(f) for f in weights.factors], labels, titles)


def slice_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Weights of the components of PARAFAC2, and the slices and columns in which they are large."""
    factors = [to_host(factor) for factor in result.factors[::2]]
    labels = (result.mode_labels or [_UNLABELLED] * 3)[::2]
    titles = _titles((), labels, ["slices", "columns"])
    return _component_table(result, factors, labels, titles)


def core_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Dimensions and ranks of the modes of a Tucker decomposition."""
    tensor = result.tensor
    labels = result.mode_labels or [_UNLABELLED] * len(tensor.shape)
    titles = _titles(names, labels, _numbered((), len(tensor.shape)))
    sizes = zip(titles, tensor.shape, tensor.core.shape, strict=True)
    rows = [[mode, str(size), str(rank)] for mode, size, rank in sizes]
    return ["mode", "dimension", "rank"], rows


def robust_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Dimensions, ranks and gross errors of robust PCA, mode by mode."""
    places = np.asarray(result.sparse.coordinates)
    ranks = result.rank if isinstance(result.rank, tuple) else (result.rank,) * 2
    titles = _numbered(names, len(ranks))
    rows = []
    for mode, (size, rank) in enumerate(zip(result.low_rank.shape, ranks, strict=True)):
        counts = np.bincount(places[:, mode], minlength=size)
        slices = np.argsort(-counts, kind="stable")[:_FEATURES]
        most = ", ".join(f"{i}: {counts[i]:,}" for i in slices if counts[i])
        rows.append([titles[mode], str(size), str(rank), most or "-"])
    return ["mode", "dimension", "rank", "most gross errors in slices"], rows


def direction_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """The largest entries of the vectors of tensor PCA."""
    titles = _numbered(names, len(result.vectors))
    rows = []
    shared = all(vector is result.vectors[0] for vector in result.vectors)
    for mode, vector in enumerate(result.vectors[: 1 if shared else None]):
        numbers = [str(i) for i in range(len(vector))]
        rows.append(["all" if shared else titles[mode], leading(to_host(vector), numbers)])
    return ["mode", "largest entries"], rows


def train_rows(result: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """Dimensions of the cores of a tensor train, and how many numbers each holds."""
    titles = _numbered(names, len(result.cores))
    rows = [
        [mode, str(core.shape[1]), f"{core.shape[0]}, {core.shape[2]}", f"{core.size:,}"]
        for mode, core in zip(titles, map(to_host, result.cores), strict=True)
    ]
    return ["mode", "dimension", "ranks", "numbers"], rows


def parameter_rows(model: Any, names: Names, data: Sequence[Any], width: int) -> Rows:
    """The fitted parameters of any model: what each is called, its shape and its values if few."""
    rows = []
    for name in sorted(vars(model)):
        value = vars(model)[name]
        if not name.endswith("_") or name.startswith("_") or name in _NOT_FOUND:
            continue
        if isinstance(value, bool | str):
            rows.append([name, "", str(value)])
        elif isinstance(value, int | float | np.number):
            rows.append([name, "", number(value)])
        elif isinstance(value, np.ndarray):
            few = (
                ", ".join(map(number, value.ravel()[:_FEATURES]))
                if value.dtype.kind in "iuf"
                else ""
            )
            more = ", ..." if value.size > _FEATURES else ""
            rows.append([name, " x ".join(map(str, value.shape)), few + more if few else ""])
        elif hasattr(value, "shape"):
            rows.append([name, " x ".join(map(str, value.shape)), type(value).__name__])
    return ["parameter", "shape", "values"], rows


# Attributes that are no parameter: what the input was, and evidence that is shown apart.
_NOT_FOUND = frozenset(
    {"feature_names_in_", "n_features_in_", "certificate_", "selection_", "history_", "n_iter_"}
)
_TABLES: dict[str, Callable[[Any, Names, Sequence[Any], int], Rows]] = {
    "SphericalGaussianMixture": mixture_rows,
    "DiagonalGaussianMixture": mixture_rows,
    "GaussianMixture": mixture_rows,
    "ProductMixture": mixture_rows,
    "PearsonMixture": mixture_rows,
    "MultiViewMixture": mixture_rows,
    "CategoricalHMM": chain_rows,
    "GaussianHMM": chain_rows,
    "ICA": source_rows,
    "NoisyOrNetwork": cause_rows,
    "MixtureOfRegressions": regression_rows,
    "TwoLayerNetwork": unit_rows,
    "TwoLayerClassifier": unit_rows,
    "CPRegressor": coefficient_rows,
    "CPClassifier": coefficient_rows,
    "PCA": principal_rows,
    "CCA": canonical_rows,
    "MixedMembershipBlockModel": community_rows,
    "LatentTree": tree_rows,
    "LatentDirichletAllocation": topic_rows,
    "SingleTopic": topic_rows,
    "Decomposition": component_rows,
    "TuckerDecomposition": core_rows,
    "Parafac2Decomposition": slice_rows,
    "RobustDecomposition": robust_rows,
    "TensorPCA": direction_rows,
    "TensorTrain": train_rows,
}


def rows_of(
    model: Any, names: Names | None = None, data: Sequence[Any] = (), width: int = 100
) -> Rows:
    """What a fitted model has found: the head and the rows of a table, all of them text.

    Parameters
    ----------
    model : a fitted estimator or a decomposition
    names : what the features are called; by default what the model knows, else numbers
    data : what it was fitted to, X first; fractions of states are then those of the rows
    width : int, characters that there is room for
    """
    tables = (_TABLES[cls.__name__] for cls in type(model).__mro__ if cls.__name__ in _TABLES)
    # Modes can be named by their numbers, some of them: figures do that.
    known = None if isinstance(names, Mapping) else names
    for attribute in ("feature_names_in_", "vocabulary_"):
        known = getattr(model, attribute, None) if known is None else known
    return next(tables, parameter_rows)(
        model, [str(name) for name in (() if known is None else known)], data, width
    )
