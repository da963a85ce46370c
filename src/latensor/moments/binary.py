"""How often features of binary rows are on: alone, in pairs and in triples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class PairCounts(Sums):
    """How often every pair of features is on together; the diagonal counts single features."""

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows = batch.rows
        if scipy.sparse.issparse(rows):
            weighted = scipy.sparse.diags_array(batch.weights) @ rows
            pairs = np.asarray((rows.T @ weighted).toarray(), dtype=np.float64)
        else:
            rows = np.asarray(rows, dtype=np.float64)
            pairs = rows.T @ (rows * batch.weights[:, None])
        return {"weight": batch.weight, "pairs": pairs, "units": float(len(batch))}


@storable
@dataclass(frozen=True, eq=False)
class TripleCounts(Sums):
    """How often every triple a < b < c of chosen features is on together.

    Entry C(c, 3) + C(b, 2) + a of the sums belongs to the triple, counted among the chosen.

    Attributes
    ----------
    chosen : (m,) columns, increasing
    """

    joins_blocks: ClassVar[bool] = True
    chosen: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        from latensor.moments._kernels import count_triples

        rows = scipy.sparse.csr_array(batch.rows[:, self.chosen])
        rows.eliminate_zeros()
        rows.sort_indices()
        count = len(self.chosen)
        triples = np.zeros(count * (count - 1) * (count - 2) // 6)
        count_triples(
            rows.indptr.astype(np.int64), rows.indices.astype(np.int64), batch.weights, triples
        )
        return {"weight": batch.weight, "triples": triples}
