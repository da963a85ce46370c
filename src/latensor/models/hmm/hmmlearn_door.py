"""The door to hmmlearn, whose models ours can become and be made of."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from latensor.exceptions import InvalidInputError


class Monitor(NamedTuple):
    """What hmmlearn's `monitor_` tells of EM.

    Attributes
    ----------
    history : log-likelihood of all rows before every pass
    iter : int, passes of EM
    converged : bool
    n_iter : int, the most passes
    tol : float
    """

    history: list[float]
    iter: int
    converged: bool
    n_iter: int
    tol: float


def peer_module() -> Any:
    """`hmmlearn.hmm`, or an error that says how to get it."""
    try:
        return importlib.import_module("hmmlearn.hmm")
    except ImportError as error:
        raise ImportError("to_hmmlearn needs hmmlearn: pip install hmmlearn") from error


def check_peer(peer: Any, name: str, attributes: tuple[str, ...]) -> None:
    """Refuse what is not a fitted model of hmmlearn of the given name."""
    missing = [attribute for attribute in attributes if not hasattr(peer, attribute)]
    if type(peer).__name__ != name or missing:
        raise InvalidInputError(
            f"peer must be a fitted hmmlearn.hmm.{name}, got {type(peer).__name__}"
            + (f" without {', '.join(missing)}" if missing else "")
        )
