import numpy as np
import pytest

from latensor import plots
from latensor.exceptions import InvalidInputError
from latensor.models.topics.count import TopicCount

SPECTRUM = np.array([5.0, 2.0, 1.5, 0.1, -0.05])


def test_the_spectrum_alone_where_it_decided():
    figure = plots.topic_count(TopicCount(3, "a gap", SPECTRUM, SPECTRUM / 10))
    (axis,) = figure.axes
    np.testing.assert_allclose(axis.lines[0].get_ydata(), SPECTRUM[:4])
    assert axis.lines[1].get_xdata()[0] == 3.5
    assert "3 topics: a gap" in figure.get_suptitle()


def test_perplexities_beside_it_with_the_chosen_one_marked(tmp_path):
    selection = TopicCount(5, "lowest", SPECTRUM, SPECTRUM / 10, (2, 5, 10), (30.0, 20.0, 25.0))
    figure = plots.topic_count(selection)
    marked = figure.axes[1].lines[1]
    assert (marked.get_xdata().tolist(), marked.get_ydata().tolist()) == ([5], [20.0])
    assert plots.save(figure, tmp_path / "count.png").stat().st_size > 1000


def test_anything_else_is_refused():
    with pytest.raises(InvalidInputError, match="selection is a str"):
        plots.topic_count("ten")
