"""Figures for people who would rather look than read (needs the extra `plots`)."""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("figures need matplotlib: install latensor[plots]") from error

from latensor.plots.clusters import clusters
from latensor.plots.communities import communities
from latensor.plots.comparison import comparison
from latensor.plots.components import components
from latensor.plots.compression import compression
from latensor.plots.density import density
from latensor.plots.figures import save
from latensor.plots.history import residual_history
from latensor.plots.networks import causes, regressions
from latensor.plots.parts import low_rank_and_errors, train_ranks
from latensor.plots.picture import picture
from latensor.plots.pictures import images
from latensor.plots.predictions import predictions
from latensor.plots.rank_evidence import rank_evidence
from latensor.plots.sample_sizes import sample_sizes
from latensor.plots.scores import scores
from latensor.plots.signals import signals
from latensor.plots.states import states
from latensor.plots.topic_count import topic_count
from latensor.plots.topics import topics
from latensor.plots.tree import tree

__all__ = [
    "causes",
    "clusters",
    "communities",
    "comparison",
    "components",
    "compression",
    "density",
    "images",
    "low_rank_and_errors",
    "picture",
    "predictions",
    "rank_evidence",
    "regressions",
    "residual_history",
    "sample_sizes",
    "save",
    "scores",
    "signals",
    "states",
    "topic_count",
    "topics",
    "train_ranks",
    "tree",
]
