import numpy as np
import pytest

from latensor.estimation.hmm.portfolio import Start, _best, _promise
from latensor.refinement.hmm import Climb


def climbed(*history):
    return Climb(None, history[-1], len(history), False, tuple(map(float, history)))


@pytest.mark.parametrize(
    ("history", "ahead", "expected"),
    [
        ((-5.0,), 2.0, -5.0),
        ((-5.0, -4.0), 2.0, -2.0),
        ((-9.0, -5.0, -4.0, -3.0, -2.0), 1.0, 1.0),
        # A step back is not counted.
        ((-5.0, -4.0, -4.5, -4.0), 2.0, -2.0),
    ],
)
def test_promise_is_the_pace_carried_on(history, ahead, expected):
    assert _promise(history, ahead) == pytest.approx(expected)


def test_the_highest_stays_beside_the_most_promising():
    starts = [Start(name, None) for name in ("high", "rising", "fast", "slow")]
    found = {
        "high": climbed(-2.0, -2.0, -2.0, -2.0),
        "rising": climbed(-6.0, -5.0, -4.0, -3.0),
        "fast": climbed(-9.0, -7.0, -5.0, -3.5),
        "slow": climbed(-9.0, -9.0, -9.0, -9.0),
    }
    assert [start.name for start in _best(starts, found, 2)] == ["high", "rising", "fast"]
    assert np.isfinite(_promise(found["slow"].history, 6.0))
