"""The models of `latensor fit`: one line each, and nothing about a model elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from latensor.cli.fit_input import (
    Data,
    Reader,
    read_incomplete,
    read_line,
    read_points,
    read_rows,
    read_symbols,
    read_targets,
)
from latensor.cli.fit_networks import read_edges, read_leaves, write_memberships, write_newick
from latensor.cli.fit_tables import nearest
from latensor.cli.fit_views import read_pair, read_views
from latensor.cli.refusal import Refusal

_ROWS = ("--columns", "--array", "--weights", "--transpose")
_CHAIN = ("--columns", "--array", "--lengths", "--transpose")
_VIEWS = ("--views", "--weights")


@dataclass(frozen=True)
class Kind:
    """What models of a kind share.

    Attributes
    ----------
    noun : what they find, many and one
    result : the file with an answer for every row
    picture : the file with the figure
    write : writes `result`; None for what is asked of rows
    unit : what a log-likelihood is an average over
    count : how many there are; None for the number of components
    """

    noun: tuple[str, str]
    result: str
    picture: str
    write: Callable[[IO[bytes], Any, Data], None] | None = None
    unit: str = "row"
    count: Callable[[Any], int] | None = None


_MIXTURE = Kind(("components", "component"), "labels.csv", "clusters.png")
_LINE = Kind(("components", "component"), "labels.csv", "density.png")
_STATES = Kind(("states", "state"), "states.csv", "states.png")
_SOURCES = Kind(("sources", "source"), "sources.npy", "signals.png")
_COMMUNITIES = Kind(
    ("communities", "community"),
    "memberships.csv",
    "communities.png",
    write_memberships,
    "pair of nodes",
)
_TREE = Kind(
    ("hidden nodes", "hidden node"),
    "tree.nwk",
    "tree.png",
    write_newick,
    count=lambda model: model.tree_.n_hidden,
)
_CAUSES = Kind(("causes", "cause"), "causes.npy", "causes.png")
_REGRESSIONS = Kind(
    ("regressions", "regression"),
    "components.csv",
    "regressions.png",
)
_UNITS = Kind(("hidden units", "hidden unit"), "predictions.csv", "predictions.png")
_PRINCIPAL = Kind(("directions", "direction"), "scores.npy", "scores.png")
_CANONICAL = Kind(
    ("pairs of directions", "pair of directions"),
    "scores.npz",
    "scores.png",
)


@dataclass(frozen=True)
class Entry:
    """A model of the command line.

    Attributes
    ----------
    name : str, as typed
    model : str, the class in `latensor`
    purpose, holds : str, what it is for and what the file must hold
    kind : Kind
    read : how the file is read
    options : the options that it takes beyond those of all models, and the parameter that each
        sets (None for those that say what to read)
    parameters : the fitted parameters that are saved, without their underscore
    components : what --components is unless given; None for the model's own
    counted : the parameter that --components sets
    """

    name: str
    model: str
    purpose: str
    holds: str
    kind: Kind
    read: Reader
    options: dict[str, str | None]
    parameters: tuple[str, ...]
    components: int | str | None = "auto"
    counted: str = "n_components"


def _options(reading: tuple[str, ...], **settings: str) -> dict[str, str | None]:
    """Options that say what to read, and those that set a parameter."""
    found: dict[str, str | None] = dict.fromkeys(reading)
    return {**found, **{f"--{name}": parameter for name, parameter in settings.items()}}


_GAUSSIANS = ("weights", "means", "covariances")
MODELS = (
    Entry(
        "spherical",
        "SphericalGaussianMixture",
        "spherical clusters",
        "columns of numbers",
        _MIXTURE,
        read_rows,
        _options(_ROWS, refine="refine", jobs="n_jobs", variance="variance", method="method"),
        _GAUSSIANS,
    ),
    Entry(
        "diagonal",
        "DiagonalGaussianMixture",
        "clusters with a width of their own in every column",
        "columns of numbers",
        _MIXTURE,
        read_rows,
        _options(_ROWS, refine="refine", jobs="n_jobs", method="method"),
        _GAUSSIANS,
    ),
    Entry(
        "gaussian",
        "GaussianMixture",
        "clusters of any shape (--covariance), from rows that may have gaps",
        "columns of numbers; NaN, NA and empty fields were not observed",
        _MIXTURE,
        read_incomplete,
        _options(_ROWS, jobs="n_jobs", covariance="covariance_type"),
        _GAUSSIANS,
    ),
    Entry(
        "product",
        "ProductMixture",
        "classes whose columns are independent, of any distribution",
        "columns of numbers, 2 or 3 times as many as classes",
        _MIXTURE,
        read_rows,
        _options(_ROWS, jobs="n_jobs", method="method"),
        _GAUSSIANS,
    ),
    Entry(
        "multi-view",
        "MultiViewMixture",
        "classes seen from three or more sides",
        "arrays of an .npz file, or columns in groups (--views)",
        _MIXTURE,
        read_views,
        _options(_VIEWS, kinds="kinds", refine="refine", jobs="n_jobs"),
        ("weights", "means", "variances"),
    ),
    Entry(
        "categorical-hmm",
        "CategoricalHMM",
        "hidden states behind sequences of symbols",
        "one column of symbols: text, or numbers from 0",
        _STATES,
        read_symbols,
        _options(_CHAIN, refine="refine", jobs="n_jobs"),
        ("startprob", "transmat", "emissionprob"),
    ),
    Entry(
        "gaussian-hmm",
        "GaussianHMM",
        "hidden states behind sequences of measurements",
        "columns of numbers, rows in order of time",
        _STATES,
        read_points,
        _options(_CHAIN, refine="refine", jobs="n_jobs", covariance="covariance_type"),
        ("startprob", "transmat", "means", "covariances"),
    ),
    Entry(
        "ica",
        "ICA",
        "independent sources behind their mixtures",
        "a column of numbers per sensor",
        _SOURCES,
        read_rows,
        _options(_ROWS, refine="refine", jobs="n_jobs", noise="noise"),
        ("components", "mixing", "mean", "noise_variance", "kurtosis"),
    ),
    Entry(
        "noisy-or",
        "NoisyOrNetwork",
        "hidden causes that turn features on, as diseases do symptoms",
        "columns of zeros and ones",
        _CAUSES,
        read_rows,
        _options(_ROWS, refine="refine", jobs="n_jobs", binarize="binarize"),
        ("components", "prior", "leak"),
    ),
    Entry(
        "regressions",
        "MixtureOfRegressions",
        "several regressions in one sample",
        "columns of numbers, one of which the others explain (--target)",
        _REGRESSIONS,
        read_targets,
        _options((*_ROWS, "--target"), refine="refine", jobs="n_jobs", link="link"),
        ("weights", "coef", "intercept", "variances"),
    ),
    Entry(
        "network",
        "TwoLayerNetwork",
        "a network with one hidden layer that explains a column",
        "columns of numbers, one of which the others explain (--target)",
        _UNITS,
        read_targets,
        _options(
            (*_ROWS, "--target"),
            refine="refine",
            jobs="n_jobs",
            activation="activation",
            scores="scores",
        ),
        ("components", "coefs", "intercepts"),
        None,
    ),
    Entry(
        "pearson",
        "PearsonMixture",
        "two Gaussians on a line, from six moments",
        "one column of numbers",
        _LINE,
        read_line,
        _options(_ROWS, refine="refine", jobs="n_jobs"),
        _GAUSSIANS,
        None,
    ),
    Entry(
        "pca",
        "PCA",
        "the directions in which rows vary most",
        "columns of numbers",
        _PRINCIPAL,
        read_rows,
        _options(_ROWS),
        ("components", "mean", "explained_variance", "explained_variance_ratio"),
    ),
    Entry(
        "cca",
        "CCA",
        "what two views share",
        "two arrays of an .npz file, or columns in two groups (--views)",
        _CANONICAL,
        read_pair,
        _options(_VIEWS),
        ("correlations", "x_weights", "y_weights", "x_mean", "y_mean"),
        None,
    ),
    Entry(
        "communities",
        "MixedMembershipBlockModel",
        "communities of a network whose nodes may belong to several",
        "an edge in every row: two columns of nodes and, if any, their weight; or an adjacency",
        _COMMUNITIES,
        read_edges,
        _options(("--columns", "--array", "--weights"), refine="refine", jobs="n_jobs"),
        ("membership", "block_matrix", "activity", "alpha"),
        None,
    ),
    Entry(
        "tree",
        "LatentTree",
        "the tree behind the columns of a table, or behind aligned sequences",
        "a column for every leaf, symbols from 0 or measurements; or sequences (.fasta)",
        _TREE,
        read_leaves,
        _options(_ROWS, refine="refine", jobs="n_jobs", collapse="collapse"),
        ("startprob", "edgeprob", "leafprob", "correlation", "mean", "deviation"),
        None,
        "n_states",
    ),
)
# What people type who come from elsewhere.
_MEANT = {
    "gmm": "gaussian, spherical or diagonal",
    "gaussianmixture": "gaussian, spherical or diagonal",
    "kmeans": "spherical",
    "mixture": "gaussian, spherical, diagonal or product",
    "hmm": "categorical-hmm or gaussian-hmm",
    "fastica": "ica",
    "bayesiannetwork": "noisy-or",
    "mixtureofregressions": "regressions",
    "multiview": "multi-view",
    "graph": "communities",
    "mlp": "network",
    "neuralnetwork": "network",
    "sbm": "communities",
    "phylogeny": "tree",
    "lda": "the command latensor topics",
    "topics": "the command latensor topics",
}


def find_model(name: str) -> Entry:
    """The model of a name or of a class, refused with the nearest one."""
    wanted = name.lower().replace("_", "-")
    for entry in MODELS:
        if wanted in (entry.name, entry.model.lower()):
            return entry
    known = [entry.name for entry in MODELS]
    plain = wanted.replace("-", "")
    meant = f"; did you mean {_MEANT[plain]}?" if plain in _MEANT else nearest(wanted, known)
    raise Refusal(f"there is no model {name!r}{meant or '; latensor fit --list names them'}")


def settings_of(entry: Entry, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters that options set; options of other models are refused."""
    for option in given:
        if option not in entry.options:
            others = [other.name for other in MODELS if option in other.options]
            raise Refusal(f"{option} is not for {entry.name}, but for {', '.join(others)}")
    return {
        parameter: given[option]
        for option, parameter in entry.options.items()
        if parameter is not None and option in given
    }
