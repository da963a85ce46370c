import numpy as np
import pytest

from latensor import plots
from latensor.estimation.selection import Tried
from latensor.exceptions import InvalidInputError
from latensor.models.topics.count import TopicCount

SPECTRUM = np.array([5.0, 2.0, 1.5, 0.1, -0.05])


def test_the_spectrum_alone_where_it_decided():
    figure = plots.topic_count(TopicCount(3, "a gap", spectrum=SPECTRUM, noise=SPECTRUM / 10))
    (axis,) = figure.axes
    np.testing.assert_allclose(axis.lines[0].get_ydata(), SPECTRUM[:4])
    assert axis.lines[1].get_xdata()[0] == 3.5
    assert "3 topics: a gap" in figure.get_suptitle()


def test_perplexities_beside_it_with_the_chosen_one_marked(tmp_path):
    tried = ((2, 30.0), (5, 20.0), (10, 25.0))
    selection = TopicCount(
        5,
        "lowest",
        table=tuple(Tried(k, -np.log(p), 0.1, k, 0.1, 0.0) for k, p in tried),
        spectrum=SPECTRUM,
    )
    figure = plots.topic_count(selection)
    marked = figure.axes[1].lines[1]
    assert marked.get_xdata().tolist() == [5]
    np.testing.assert_allclose(marked.get_ydata(), [20.0])
    assert plots.save(figure, tmp_path / "count.png").stat().st_size > 1000


def test_anything_else_is_refused():
    with pytest.raises(InvalidInputError, match="selection is a str"):
        plots.topic_count("ten")
