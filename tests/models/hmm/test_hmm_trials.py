import numpy as np
import pytest

from latensor.models.hmm.trials import Start, best_of, promise, relabelled
from latensor.refinement.em import Reached
from latensor.refinement.hmm import CategoricalEmission, HiddenChain


def em_run(*history):
    return Reached(None, history[-1], len(history), False, tuple(map(float, history)))


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
    assert promise(history, ahead) == pytest.approx(expected)


def test_the_highest_stays_beside_the_most_promising():
    starts = [Start(name, None) for name in ("high", "rising", "fast", "slow")]
    found = {
        "high": em_run(-2.0, -2.0, -2.0, -2.0),
        "rising": em_run(-6.0, -5.0, -4.0, -3.0),
        "fast": em_run(-9.0, -7.0, -5.0, -3.5),
        "slow": em_run(-9.0, -9.0, -9.0, -9.0),
    }
    assert [start.name for start in best_of(starts, found, 2)] == ["high", "rising", "fast"]
    assert np.isfinite(promise(found["slow"].history, 6.0))


def test_a_start_takes_the_labels_of_the_given_chain():
    rng = np.random.default_rng(0)
    left_right = np.array([[0.9, 0.1, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.9, 0.1], [0, 0, 0, 1.0]])
    emission = CategoricalEmission(rng.dirichlet(np.ones(5), 4))
    given = HiddenChain(np.eye(4)[0], left_right, emission)
    for _ in range(5):
        order = rng.permutation(4)
        found = relabelled(given.reordered(order), given, np.full(4, 0.25))
        assert np.array_equal(found.emission.probabilities, emission.probabilities)
