"""Where data come from: memory, batches of the caller, files, collections of Dask and Spark."""

from latensor.sources.alignment import read_alignment
from latensor.sources.batches import BatchSource
from latensor.sources.collections import from_dask, from_spark
from latensor.sources.files import read_column, read_documents
from latensor.sources.matrix import MatrixSource
from latensor.sources.partitions import Partitioned, partitions
from latensor.sources.shard_files import shards
from latensor.sources.source import DocumentSource, as_source
from latensor.sources.temporary_copy import TemporaryCopy
from latensor.sources.texts import as_text_source
from latensor.sources.tree import Tree, robinson_foulds

__all__ = [
    "BatchSource",
    "DocumentSource",
    "MatrixSource",
    "Partitioned",
    "TemporaryCopy",
    "Tree",
    "as_source",
    "as_text_source",
    "from_dask",
    "from_spark",
    "partitions",
    "read_alignment",
    "read_column",
    "read_documents",
    "robinson_foulds",
    "shards",
]
