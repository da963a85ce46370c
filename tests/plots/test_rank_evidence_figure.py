"""The evidence for a rank is drawn as it is, with the proposal marked."""

import math
from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import latensor as lt
from latensor.diagnostics import RankEvidence, RankSelection, select_rank
from latensor.plots import rank_evidence

from .layout import no_global_state, overlapping, panels


def row(rank, **known):
    """Evidence of which only the residual and the condition are known, by default."""
    values = dict.fromkeys(field.name for field in fields(RankEvidence))
    values |= {"rank": rank, "residual": 1 / (rank + 1), "condition": 1.0, **known}
    return RankEvidence(**values)


def selection(rows, rank, reason="A reason."):
    return RankSelection(rank, reason, tuple(rows), False, (4, 5, 6), ())


def test_a_selection_is_drawn_with_its_reason():
    rng = np.random.default_rng(0)
    tensor = lt.CPTensor(None, [rng.standard_normal((d, 2)) for d in (7, 8, 9)]).to_dense()
    chosen = select_rank(tensor, random_state=0)
    figure = rank_evidence(chosen)
    assert chosen.rank == 2
    assert figure.get_suptitle().replace("\n", " ").startswith("Proposed rank: 2. ")
    residuals = figure.axes[0].lines
    marks = [line for line in residuals if list(line.get_xdata()) == [2, 2]]
    curves = [line for line in residuals if line.get_linestyle() == "-" and line not in marks]
    assert len(marks) == 1
    np.testing.assert_allclose(
        curves[0].get_ydata(), [evidence.residual for evidence in chosen.evidence]
    )
    assert overlapping(figure) == []
    assert no_global_state()


def test_what_is_unknown_has_no_panel():
    figure = rank_evidence(selection([row(0), row(1), row(2)], 1))
    titles = [axis.get_title().split("\n")[0] for axis in panels(figure)]
    assert titles == ["relative residual", "condition number"]


def test_values_out_of_range_stand_at_the_edge():
    rows = [row(0), row(1, core_consistency=100.0), row(2, core_consistency=-1e9)]
    figure = rank_evidence(selection(rows, 1, reason="Long. " * 80))
    axis = next(a for a in panels(figure) if "consistency" in a.get_title())
    triangles = [line for line in axis.lines if line.get_marker() == "v"]
    np.testing.assert_array_equal(triangles[0].get_xydata(), [[2, 0]])
    assert axis.get_ylim()[0] > -20
    assert overlapping(figure) == []


def test_infinite_condition_is_left_out():
    figure = rank_evidence(selection([row(0), row(1), row(2, condition=math.inf)], 1))
    axis = next(a for a in panels(figure) if "condition" in a.get_title())
    assert all(np.isfinite(line.get_ydata()).all() for line in axis.lines)


def test_other_things_are_refused():
    with pytest.raises(lt.InvalidInputError, match=r"what lt\.select_rank returned, not int"):
        rank_evidence(3)
