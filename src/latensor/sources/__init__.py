"""Where documents come from: memory, batches of the caller, files; always as batches of counts."""

from latensor.sources.batches import BatchSource
from latensor.sources.files import read_documents
from latensor.sources.matrix import MatrixSource
from latensor.sources.source import DocumentSource, as_source
from latensor.sources.spool import Spool

__all__ = [
    "BatchSource",
    "DocumentSource",
    "MatrixSource",
    "Spool",
    "as_source",
    "read_documents",
]
