"""Choice of the rank where entries are missing, and what a caller is told on the way."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

import latensor as lt
from latensor import CPTensor, InvalidInputError, SparseTensor
from latensor.diagnostics import select_rank

SHAPE = (12, 11, 10)


def planted(rank, noise, seed):
    rng = np.random.default_rng([seed, rank])
    factors = tuple(rng.standard_normal((d, rank)) for d in SHAPE)
    dense = CPTensor(None, factors).to_dense()
    error = rng.standard_normal(SHAPE)
    return dense + noise * np.linalg.norm(dense) / np.linalg.norm(error) * error


def observed(seed, fraction=0.7):
    return np.random.default_rng(seed).random(SHAPE) < fraction


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_ranks_are_found_from_part_of_the_entries(rank, seed):
    tensor, mask = planted(rank, 0.1, seed), observed(seed)
    hidden = np.where(mask, tensor, np.nan)
    hidden.setflags(write=False)
    found = select_rank(hidden, rank + 2, mask=mask, n_splits=1, random_state=seed)
    assert found.rank == rank
    assert found.shape == SHAPE
    assert found.spectra == ()
    errors = [row.held_out for row in found.evidence]
    assert errors[0] == 1.0
    assert 0.05 < errors[rank] < 0.2
    # The noise is a tenth of the norm, per entry.
    assert found.evidence[rank].noise == pytest.approx(0.1 * np.sqrt(np.mean(tensor**2)), rel=0.15)


def test_exact_tensors_need_no_larger_rank():
    found = select_rank(planted(2, 0.0, 0), mask=observed(0), n_splits=1, random_state=0)
    assert found.rank == found.evidence[-1].rank == 2
    assert "fewer do not" in found.reason


@pytest.mark.parametrize("power", [-1000, 990])
def test_the_choice_scales_with_the_tensor(power):
    tensor, mask, scale = planted(1, 0.1, 0)[:5, :6, :7], observed(0)[:5, :6, :7], 2.0**power
    found, scaled = (
        select_rank(t, 2, mask=mask, n_splits=1, random_state=0) for t in (tensor, tensor * scale)
    )
    assert found.rank == scaled.rank
    for row, other in zip(found.evidence, scaled.evidence, strict=True):
        assert other.held_out == pytest.approx(row.held_out, rel=1e-6)
        assert other.noise == pytest.approx(row.noise * scale, rel=1e-6)


def test_noise_has_no_rank():
    noise = np.random.default_rng(0).standard_normal(SHAPE)
    found = select_rank(noise, 2, mask=observed(0), n_splits=1, random_state=0)
    assert found.rank == 0
    assert "No component helps" in found.reason
    zero = select_rank(np.zeros(SHAPE), mask=observed(0), random_state=0)
    assert (zero.rank, len(zero.evidence)) == (0, 1)


def test_a_sparse_tensor_with_a_sparse_mask():
    tensor, mask = planted(2, 0.1, 0), observed(0)
    dense = select_rank(tensor, 2, mask=mask, n_splits=1, random_state=0)
    rows = np.argwhere(mask)
    values = SparseTensor(rows, tensor[mask], SHAPE)
    pattern = SparseTensor(rows, np.ones(len(rows)), SHAPE)
    sparse = select_rank(values, 2, mask=pattern, n_splits=1, random_state=0)
    assert sparse.rank == dense.rank == 2
    assert sparse.evidence[2].held_out == pytest.approx(dense.evidence[2].held_out, rel=0.2)


def test_what_is_printed_and_saved():
    found = select_rank(planted(1, 0.1, 0), 2, mask=observed(0), n_splits=1, random_state=0)
    text = str(found)
    assert "held out" in text
    assert "replicates" not in text
    told = json.loads(json.dumps(found.to_dict()))
    assert told["evidence"][1]["held_out"] == found.evidence[1].held_out


def test_a_seed_gives_the_same_evidence():
    tensor, mask = planted(1, 0.2, 0), observed(0)
    first, second = (
        select_rank(tensor, 2, mask=mask, n_splits=1, random_state=7) for _ in range(2)
    )
    assert first.evidence == second.evidence


@pytest.mark.parametrize("masked", [False, True])
def test_a_callback_sees_every_rank_and_may_stop(masked):
    seen = []

    def watch(row):
        seen.append(row)
        return row.rank == 2

    options = {"mask": observed(0)} if masked else {}
    found = select_rank(
        planted(3, 0.1, 0), 5, n_splits=1, random_state=0, callback=watch, **options
    )
    assert [row.rank for row in seen] == [1, 2]
    # How alike halves are is found out afterwards, where it can matter.
    told = tuple(replace(row, replicability=None) for row in found.evidence[1:])
    assert tuple(replace(row, replicability=None) for row in seen) == told


def test_progress_changes_nothing_and_is_silent_without_a_terminal(capsys):
    tensor = planted(1, 0.1, 0)
    plain = select_rank(tensor, 2, n_splits=0, random_state=0)
    shown = select_rank(tensor, 2, n_splits=0, random_state=0, progress=True)
    assert shown.evidence == plain.evidence
    assert capsys.readouterr().err.strip() == ""


def test_the_line_says_which_rank_was_tried():
    from rich.console import Console

    from latensor.decomposition.progress import watched
    from latensor.diagnostics.rank import _progress_text

    row = select_rank(planted(1, 0.1, 0), 1, n_splits=0, random_state=0).evidence[1]
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with watched(None, True, console, _progress_text) as show:
        assert show(row) is None
    assert "rank 1, relative residual" in stream.getvalue()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((2, 2), dtype=bool)}, "mask has shape"),
        ({"mask": np.ones(SHAPE, dtype=bool), "n_splits": 0}, "n_splits=0"),
        ({"mask": np.full(SHAPE, 0.5)}, "truth values"),
        ({"mask": np.ones(SHAPE, dtype=bool), "max_rank": 0}, "max_rank=0"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InvalidInputError, match=message):
        select_rank(np.ones(SHAPE), **options)


def test_too_few_observed_entries():
    mask = np.eye(3, dtype=bool)[:, :, None] & np.eye(3, dtype=bool)[:, None, :]
    with pytest.raises(InvalidInputError, match="none can be held back"):
        lt.select_rank(np.ones((3, 3, 3)), mask=mask, random_state=0)
