"""Timing on a machine that others use too: CPU seconds, methods in turn, medians and ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def in_turn(methods: Mapping[str, Callable[[], object]], seconds: float = 4.0) -> dict[str, float]:
    """Median CPU seconds of each method, called in turn so that all meet the same weather.

    Parameters
    ----------
    methods : names and functions without arguments
    seconds : how long to go on, in all; each is called three times at least, after one warm-up
    """
    for call in methods.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in methods}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 3:
        for name, call in methods.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"
