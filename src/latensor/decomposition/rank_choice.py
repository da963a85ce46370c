"""`rank="auto"`: the rank that the data support, or a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latensor.arrays import RandomState
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors.contractible import Contractible

if TYPE_CHECKING:
    from latensor.diagnostics.rank import RankSelection


def select_rank_for(
    data: Contractible, rank: str, mask: object, random_state: RandomState
) -> RankSelection:
    """What `lt.select_rank` proposes for a tensor.

    Raises
    ------
    NotIdentifiableError, where no component stands out of the noise.
    """
    if rank != "auto":
        raise InvalidInputError(f"rank={rank!r} must be an integer of at least 1, or 'auto'")
    # A look upward, as for certificates: the diagnostics choose ranks by decomposing.
    from latensor.diagnostics.rank import select_rank

    selection = select_rank(data, mask=mask, random_state=random_state)
    if selection.rank < 1:
        raise NotIdentifiableError(
            f"rank='auto' found no component: {selection.reason} Give the rank, if one is expected"
        )
    return selection
