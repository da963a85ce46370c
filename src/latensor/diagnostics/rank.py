"""`select_rank`: how many components a tensor supports, with the evidence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.arrays.guests import with_guests
from latensor.decomposition.progress import watched
from latensor.decomposition.scale import rescaled
from latensor.decomposition.setup import as_tensor
from latensor.diagnostics.findings import plain
from latensor.diagnostics.rank_evidence import Examination, RankEvidence
from latensor.diagnostics.rank_held_out import HeldOutExamination, explained
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible

# Ranks tried by default, and how many in a row may explain no more than noise.
_MAX_RANK = 15
_PATIENCE = 3
# Excess kurtosis of what is left over from which on it holds outliers.
_OUTLIERS = 0.5
# What is left over counts as structured above this; white noise stays below 1.
_STRUCTURED = 1.1
# A match score from which on two fits are taken to show the same component.
_REPLICATES = 0.8
_COLUMNS = (
    ("rank", "rank", "{:d}"),
    ("residual", "residual", "{:.4g}"),
    ("held_out", "held out", "{:.4g}"),
    ("signal", "signal", "{:.3g}"),
    ("noise", "noise", "{:.4g}"),
    ("structure", "structure", "{:.2f}"),
    ("replicability", "replicates", "{:.3f}"),
    ("core_consistency", "consistency", "{:.4g}"),
    ("condition", "condition", "{:.3g}"),
    ("component_error", "worst error", "{:.2g}"),
    ("spectrum_gap", "spectrum gap", "{:.3g}"),
)


_MASKED_COLUMNS = frozenset({"rank", "residual", "held_out", "noise", "condition"})
# Which columns are shown, without and with a mask.
_SHOWN = (frozenset(name for name, _, _ in _COLUMNS) - {"held_out"}, _MASKED_COLUMNS)

# Called with every row of evidence; may return True to stop.
Watcher = Callable[[RankEvidence], Any]


@dataclass(frozen=True, eq=False)
class RankSelection:
    """The rank that the evidence supports; `print` it for the table.

    Attributes
    ----------
    rank : int, the proposal; 0 where nothing stands out of the noise
    reason : str, why, in words
    evidence : tuple of RankEvidence, rank 0 first
    structured : bool, whether what the best fit leaves over is more than white noise, so that the
        proposal rests on what replicates in halves of the data
    shape : of the tensor
    spectra : per mode the leading singular values of the unfolding of the compressed tensor;
        none where entries are missing
    """

    rank: int
    reason: str
    evidence: tuple[RankEvidence, ...]
    structured: bool
    shape: tuple[int, ...]
    spectra: tuple[tuple[float, ...], ...]

    def __int__(self) -> int:
        return self.rank

    def __index__(self) -> int:
        return self.rank

    def __repr__(self) -> str:
        tried = f"ranks 0 to {self.evidence[-1].rank} tried"
        return f"RankSelection(rank {self.rank}, {tried})"

    def __str__(self) -> str:
        masked = any(row.held_out is not None for row in self.evidence)
        columns = [column for column in _COLUMNS if column[0] in _SHOWN[masked]]
        table = [[title for _, title, _ in columns]]
        for row in self.evidence:
            cells = [_cell(getattr(row, name), form) for name, _, form in columns]
            table.append(cells)
        widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
        lines = []
        for number, cells in enumerate(table):
            chosen = number > 0 and self.evidence[number - 1].rank == self.rank
            texts = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            lines.append(("> " if chosen else "  ") + "  ".join(texts))
        return "\n".join([f"Proposed rank: {self.rank}. {self.reason}", *lines])

    def to_dict(self) -> dict[str, Any]:
        """The selection as numbers, texts, lists and dictionaries, ready for JSON."""
        fields = dataclasses.fields(self)
        return {field.name: plain(getattr(self, field.name)) for field in fields}


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


@with_guests
def select_rank(
    tensor: object,
    max_rank: int | None = None,
    *,
    mask: object = None,
    n_splits: int = 2,
    random_state: RandomState = None,
    callback: Watcher | None = None,
    progress: bool = False,
) -> RankSelection:
    """How many components a tensor supports, and what speaks for it.

    The tensor is compressed once and fitted at every rank. Of pure noise of variance s^2, no
    component explains more than about c s^2, c = (sum over modes of root d)^2 (Chevet's
    inequality for the spectral norm; simulated for small tensors). The smallest rank is proposed
    for which no larger one explains more than that, if what it leaves over is white noise. Where
    structure or outliers are left instead (smooth backgrounds, scatter, a model that does not
    hold), more components would always seem to help; the proposal is then the largest rank whose
    components come out the same from two random halves of the data. Where entries are missing, a
    tenth of the observed ones is held back in every split, and the smallest rank is proposed that
    predicts these as well as any larger one, to two standard errors.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor, of order 2 or more
    max_rank : int, the largest rank to try. None stops when three ranks in a row explain no more
        than noise and do not come near it, at 15 at the latest, or where half the entries would be
        spent on parameters
    mask : array or SparseTensor of the same shape, True (or stored) where an entry was observed;
        None for all
    n_splits : int, times the tensor is halved (with a mask, times entries are held back); 0 leaves
        replicability out, which saves most of the time
    random_state : int, generator or None
    callback : called with the `RankEvidence` of every rank, as far as it is known while ranks are
        tried; may return True to stop there
    progress : bool, whether to show a line on a terminal while ranks are tried

    Returns
    -------
    RankSelection

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> truth = lt.CPTensor(None, [np.random.default_rng(0).random((d, 2)) for d in (5, 6, 7)])
    >>> lt.select_rank(truth.to_dense(), random_state=0).rank
    2
    """
    data = as_tensor(tensor)
    if len(data.shape) < 2:
        raise InvalidInputError(
            f"tensor has shape {tuple(data.shape)}: a vector is one component, there is no rank "
            "to choose; give a tensor of order 2 or more"
        )
    if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 0:
        raise InvalidInputError(f"n_splits={n_splits!r} must be an integer of at least 0")
    rng = generator(random_state)
    with watched(callback, progress, describe=_progress_text) as watcher:
        if mask is not None:
            return _from_held_out(data, max_rank, mask, n_splits, rng, watcher)
        return _from_noise(data, max_rank, n_splits, rng, watcher)


def _progress_text(row: RankEvidence) -> str:
    return f"rank {row.rank}, relative residual {row.residual:.6g}"


def _from_noise(
    data: Contractible,
    max_rank: int | None,
    n_splits: int,
    rng: np.random.Generator,
    watcher: Watcher | None,
) -> RankSelection:
    limit = min(_MAX_RANK, _largest_rank(data.shape))
    last = limit if max_rank is None else check_positive_int(max_rank, "max_rank")
    examination, scale = _examined(data, last, n_splits, rng)
    rows, unbeaten = _tried(examination, last, max_rank is not None, watcher, scale)
    if examination.squared_norm == 0.0:
        reason = "All entries of the tensor are zero."
        return RankSelection(0, reason, tuple(rows), False, examination.shape, ())
    # Halves are fitted where that can matter: up to the first rank that noise explains, and until
    # several in a row do not replicate.
    missed = 0
    for number, row in enumerate(rows[1 : unbeaten + 2], 1):
        if missed == _PATIENCE:
            break
        score = examination.replicability(row.rank)
        missed = 0 if (score or 0.0) >= _REPLICATES else missed + 1
        rows[number] = dataclasses.replace(row, replicability=score)
    rank, reason, structured = _choose(rows, unbeaten, examination, last)
    spectra = tuple(tuple(float(v) * scale for v in values) for values in examination.spectra)
    return RankSelection(rank, reason, tuple(rows), structured, examination.shape, spectra)


def _from_held_out(
    data: Contractible,
    max_rank: int | None,
    mask: object,
    n_splits: int,
    rng: np.random.Generator,
    watcher: Watcher | None,
) -> RankSelection:
    examination = HeldOutExamination(data, mask, n_splits, rng)
    limit = min(_MAX_RANK, _largest_rank(data.shape, examination.entries))
    last = limit if max_rank is None else check_positive_int(max_rank, "max_rank")
    rows, unbeaten = _tried(examination, last, max_rank is not None, watcher, examination.scale)
    shape = examination.shape
    if examination.squared_norm == 0.0:
        reason = "All observed entries of the tensor are zero."
        return RankSelection(0, reason, tuple(rows), False, shape, ())
    exact = examination.exact(rows[-1])
    rank = rows[-1].rank if exact else unbeaten
    return RankSelection(rank, explained(rows, rank, last, exact), tuple(rows), False, shape, ())


def _tried(
    examination: Examination | HeldOutExamination,
    last: int,
    patient: bool,
    watcher: Watcher | None,
    scale: float = 1.0,
) -> tuple[list[RankEvidence], int]:
    """The rows of all ranks worth trying, and the smallest rank that no larger one beats."""
    rows = [_rescaled(examination.empty(), scale)]
    unbeaten = 0
    if examination.squared_norm == 0.0:
        return rows, unbeaten
    for rank in range(1, last + 1):
        rows.append(_rescaled(examination.row(rank), scale))
        while examination.beaten(unbeaten):
            unbeaten += 1
        stopped = watcher is not None and watcher(rows[-1])
        hopeless = rank - unbeaten >= _PATIENCE and not examination.nearly_beaten(unbeaten)
        enough = hopeless and not patient
        if stopped or enough or examination.exact(rows[-1]):
            break
    return rows, unbeaten


def _examined(
    data: Contractible, last: int, n_splits: int, rng: np.random.Generator
) -> tuple[Examination, float]:
    """The examination of a tensor, and what its entries were divided by to stay in range."""
    smaller, scale = rescaled(data)
    return Examination(smaller, last, n_splits, rng), scale


def _rescaled(row: RankEvidence, scale: float) -> RankEvidence:
    return row if row.noise is None else dataclasses.replace(row, noise=row.noise * scale)


def _largest_rank(shape: Sequence[int], observed: int | None = None) -> int:
    """The largest rank with parameters for at most half of the entries, if that is above three."""
    if len(shape) == 2 and observed is None:
        return min(shape)
    entries = math.prod(shape) if observed is None else observed
    per_component = sum(shape) - len(shape) + 1
    return max(entries // (2 * per_component), min(entries // per_component, 3), 1)


def _choose(
    rows: Sequence[RankEvidence], unbeaten: int, examination: Examination, last: int
) -> tuple[int, str, bool]:
    """The rank, why, and whether what it rests on is replicability."""
    if examination.exact(rows[-1]):
        rank = rows[-1].rank
        return (
            rank,
            f"{_components(rank, 'gives', 'give')} the tensor exactly, fewer do not.",
            False,
        )
    rank = unbeaten
    best = rows[rank]
    if not examination.limit.testable(1):
        return 0, "The tensor has too few entries to tell components from noise.", False
    if rank == 0:
        return 0, "No component stands out of the noise.", False
    outliers = examination.excess_kurtosis(rank)
    structure = best.structure or 0.0
    if structure <= _STRUCTURED and outliers <= _OUTLIERS:
        left = _components(rank, "leaves", "leave")
        reason = f"{left} white noise of {best.noise:.3g} per entry."
        if rank == last:
            reason += f" Raise max_rank={last}: it was the last rank tried and the best."
        return rank, reason, False
    replicable = [
        row.rank for row in rows[1 : rank + 1] if (row.replicability or 0.0) >= _REPLICATES
    ]
    why = f"{structure:.2g} times too large in one direction"
    if structure <= _STRUCTURED:
        why = f"outliers, excess kurtosis {outliers:.2g}"
    found = (
        f"What is left over is not white noise ({why}), so that more components would always "
        "seem to help."
    )
    if replicable:
        chosen = max(replicable)
        most = _components(chosen, "is", "are")
        reason = f"{found} {most} the most that both halves of the data agree on"
        return chosen, f"{reason} (score {rows[chosen].replicability:.3f}).", True
    if all(row.replicability is None for row in rows):
        reason = f"{found} Only the noise estimate was compared: give n_splits of 1 or more."
        return rank, reason, True
    scored = [row for row in rows[1 : rank + 1] if row.replicability is not None]
    chosen = max(scored, key=lambda row: (row.replicability, row.rank)).rank
    return chosen, f"{found} No rank replicates; this one comes nearest.", True


def _components(rank: int, one: str, many: str) -> str:
    return f"One component {one}" if rank == 1 else f"{rank} components {many}"
