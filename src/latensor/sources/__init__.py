"""Where data come from: memory, batches of the caller, files, collections of Dask and Spark.

A name is imported on first use: a fit of an array needs no reader of files.
"""

from latensor.lazy import functions_first, lazy_names

# Each public name and the module that defines it.
_HOMES = {
    "read_alignment": "alignment",
    "BatchSource": "batches",
    "from_dask": "collections",
    "from_spark": "collections",
    "read_column": "files",
    "read_documents": "files",
    "MatrixSource": "matrix",
    "Partitioned": "partitions",
    "partitions": "partitions",
    "shards": "shard_files",
    "DocumentSource": "source",
    "as_source": "source",
    "TemporaryCopy": "temporary_copy",
    "as_text_source": "texts",
    "Tree": "tree",
    "robinson_foulds": "tree",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
functions_first(__name__, _HOMES)
