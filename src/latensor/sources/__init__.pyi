"""The API for type checkers; at run time names load lazily, see `__init__.py`."""

from latensor.sources.alignment import read_alignment as read_alignment
from latensor.sources.batches import BatchSource as BatchSource
from latensor.sources.collections import from_dask as from_dask
from latensor.sources.collections import from_spark as from_spark
from latensor.sources.files import read_column as read_column
from latensor.sources.files import read_documents as read_documents
from latensor.sources.matrix import MatrixSource as MatrixSource
from latensor.sources.partitions import Partitioned as Partitioned
from latensor.sources.partitions import partitions as partitions
from latensor.sources.shard_files import shards as shards
from latensor.sources.source import DocumentSource as DocumentSource
from latensor.sources.source import as_source as as_source
from latensor.sources.temporary_copy import TemporaryCopy as TemporaryCopy
from latensor.sources.texts import as_text_source as as_text_source
from latensor.sources.tree import Tree as Tree
from latensor.sources.tree import robinson_foulds as robinson_foulds
