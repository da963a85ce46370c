"""The line that `progress=True` shows: on a terminal, beside the caller's callback, or nowhere."""

import io

import numpy as np
from rich.console import Console

import latensor as lt
from latensor.decomposition.progress import watched


def tensor():
    return np.random.default_rng(0).standard_normal((5, 6, 7))


def test_the_line_shows_iteration_and_residual_on_a_terminal():
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    seen = []
    with watched(lambda state: seen.append(state.iteration), True, terminal) as watcher:
        found = lt.decompose(tensor(), 2, random_state=0, callback=watcher)
    assert "relative residual" in terminal.file.getvalue()
    assert seen == list(range(1, found.n_iter + 1))


def test_nothing_is_written_without_a_terminal(capsys):
    shown = lt.decompose(tensor(), 2, random_state=0, progress=True)
    silent = lt.decompose(tensor(), 2, random_state=0)
    np.testing.assert_array_equal(shown.weights, silent.weights)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "residual" not in captured.err


def test_the_callback_may_still_stop():
    found = lt.decompose(
        tensor(), 2, random_state=0, progress=True, callback=lambda state: state.iteration == 2
    )
    assert found.status.name == "STOPPED"
    assert found.n_iter == 2
