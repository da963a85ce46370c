"""`latensor compile`: afterwards no fit has anything left to compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from latensor.arrays._kernels import compilations
from latensor.cli import main

# All kernels are compiled once: most of a minute.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled() -> None:
    result = CliRunner().invoke(main, ["compile"])
    assert result.exit_code == 0, result.output
    assert "compiled" in result.output


def test_a_second_run_has_nothing_to_do(compiled: None) -> None:
    assert "already" in CliRunner().invoke(main, ["compile"]).output


def _counts() -> Any:
    return lt.datasets.make_topics(200, 2500, 4, random_state=1).counts


@pytest.mark.parametrize(
    "fit",
    [
        lambda: (
            lt.LatentDirichletAllocation(4, random_state=1).fit(_counts()).perplexity(_counts())
        ),
        lambda: lt.SingleTopic(4, random_state=1).fit(_counts()),
        lambda: lt.CategoricalHMM(2, random_state=1).fit(
            lt.datasets.make_hmm(900, 5, 2, random_state=1).X
        ),
        lambda: lt.GaussianHMM(2, random_state=1).fit(
            lt.datasets.make_gaussian_hmm(900, 3, 2, random_state=1).X
        ),
        lambda: lt.ICA(4, random_state=1).fit(lt.datasets.make_ica(500, 4, 4).samples),
        lambda: lt.decompose(
            lt.SparseTensor.from_dense(np.eye(9)[:, :, None] * np.ones(7)), 3, random_state=1
        ),
    ],
    ids=["lda", "single topic", "symbols", "points", "ica", "sparse"],
)
def test_no_fit_compiles_afterwards(compiled: None, fit: Any) -> None:
    count = []
    with compilations(lambda: count.append(1)):
        fit()
    assert not count
