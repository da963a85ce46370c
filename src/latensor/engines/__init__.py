"""Engines: who goes over the data. One pass is a fold; nothing else loops over batches."""

from latensor.engines.engine import Engine, engine_of
from latensor.engines.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "engine_of"]
