"""Topics on the map: distances kept where a plane can, no circle or label on top of another."""

import numpy as np
import pytest

from latensor.report.arrangement import (
    classical_scaling,
    place_labels,
    radii,
    spread,
    text_width,
)
from latensor.report.topic_map import topic_map

from .pages import full_page


def pairwise(places):
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_points_of_a_plane_come_back(count, rng):
    distances = pairwise(rng.standard_normal((count, 2)))
    places, shown = classical_scaling(distances)
    np.testing.assert_allclose(pairwise(places), distances, atol=1e-7)
    assert shown == pytest.approx(1.0)


def test_the_fraction_shown_is_that_of_two_dimensions():
    # A regular simplex spreads evenly over all of its dimensions.
    _, shown = classical_scaling(1.0 - np.eye(11))
    assert shown == pytest.approx(2 / 10)


def test_topics_that_are_all_the_same_stand_in_the_middle():
    places, shown = classical_scaling(np.zeros((5, 5)))
    np.testing.assert_array_equal(places, 0.0)
    assert shown == 1.0


@pytest.mark.parametrize("width, height", [(780, 540), (360, 650)])
@pytest.mark.parametrize("count", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("kind", ["random", "equal", "line", "outlier"])
def test_circles_do_not_overlap_and_stay_inside(kind, count, width, height, rng):
    places = {
        "random": rng.standard_normal((count, 2)),
        "equal": np.zeros((count, 2)),
        "line": np.stack([np.arange(count), np.zeros(count)], axis=1).astype(float),
        "outlier": np.vstack([rng.standard_normal((count - 1, 2)) * 1e-3, [[100.0, 0.0]]]),
    }[kind]
    radius = radii(rng.dirichlet(np.full(count, 2.0)), width, height, 11.0, 62.0)
    moved = spread(places, radius, width, height, 6.0)
    gaps = pairwise(moved) - radius[:, None] - radius[None] + np.diag(np.full(count, np.inf))
    assert gaps.min() > 0
    assert np.all(moved >= radius[:, None])
    assert np.all(moved <= np.array([width, height]) - radius[:, None])


def test_areas_go_with_fractions():
    radius = radii(np.array([0.4, 0.1]), 780, 540, 5.0, 62.0)
    assert radius[0] / radius[1] == pytest.approx(2.0)
    assert radii(np.zeros(3), 780, 540, 5.0, 62.0) == pytest.approx([62.0] * 3)


def test_labels_cover_neither_circles_nor_each_other(rng):
    count, size = 60, 13.0
    radius = radii(rng.dirichlet(np.full(count, 1.0)), 780, 540, 11.0, 62.0)
    places = spread(rng.standard_normal((count, 2)), radius, 780, 540, 6.0)
    texts = [("lorem", "ipsum dolor", "sit")[i % 3] for i in range(count)]
    labels = place_labels(places, radius, texts, size, 780, 540)
    outside = [(i, label) for i, label in enumerate(labels) if label and not label.inside]
    assert len(outside) > 5
    boxes = []
    for i, label in outside:
        half, rise = text_width(texts[i], size) / 2, size / 2
        box = np.array([label.x - half, label.y - rise, label.x + half, label.y + rise])
        nearest = np.clip(places, box[:2], box[2:])
        away = np.linalg.norm(places - nearest, axis=1) > radius
        assert away.all()
        for other in boxes:
            assert (
                box[0] >= other[2] or other[0] >= box[2] or box[1] >= other[3] or other[1] >= box[3]
            )
        boxes.append(box)


def test_width_of_a_text_knows_wide_and_combining_letters():
    assert text_width("ab", 10.0) == pytest.approx(12.0)
    assert text_width("日本", 10.0) == pytest.approx(21.0)
    assert text_width("e\u0301", 10.0) == text_width("e", 10.0)


@pytest.mark.parametrize("count", [2, 12, 100])
def test_both_drawings_hold_every_topic_once(count):
    markup, shown = topic_map(full_page(count))
    assert markup.count("<svg") == 2
    for number in range(count):
        assert markup.count(f'href="#topic-{number}"') == 2
    assert 0.0 < shown <= 1.0
