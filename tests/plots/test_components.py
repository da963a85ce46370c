"""Components are drawn by mode, in the form that suits the mode, however many there are."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import latensor as lt
from latensor.plots import components, save

from .layout import no_global_state, overlapping, panels


def tensor(shape, rank, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal((d, rank)) for d in shape]
    if dtype is complex:
        factors = [f + 1j * rng.standard_normal(f.shape) for f in factors]
    factors = [f / np.linalg.norm(f, axis=0) for f in factors]
    return lt.CPTensor(np.arange(rank, 0, -1.0), factors)


def row_names(figure):
    return [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]


@pytest.mark.parametrize(
    "shape, rank", [((4, 5, 6), 1), ((40, 3), 12), ((3, 30, 4, 5), 3), ((7,), 2)]
)
def test_one_row_per_component_and_one_column_per_mode(shape, rank):
    figure = components(tensor(shape, rank))
    assert len(panels(figure)) == rank * len(shape)
    names = [axis.get_xlabel() for axis in figure.axes if axis.get_xlabel()]
    assert names == [f"mode {m}" for m in range(len(shape))]
    assert [name.split("\n")[0] for name in row_names(figure)] == [
        f"component {j}" for j in range(rank)
    ]
    assert overlapping(figure) == []
    assert no_global_state()


def test_many_components_fraction_a_row():
    figure = components(tensor((6, 40), 30))
    assert len(panels(figure)) == 9 * 2
    assert row_names(figure)[-1].startswith("22 others")
    maps = [axis for axis in figure.axes if axis.collections and axis.get_ylim()[0] > 20]
    assert len(maps) == 2
    assert overlapping(figure) == []


def test_vectors_are_drawn_as_they_are():
    cp = tensor((4, 3, 5), 2).normalized().sorted()
    figure = components(cp)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights, cp.factors[0][:, 0])
    assert row_names(figure)[0] == f"component 0\nweight {cp.weights[0]:.3g}"


def test_the_form_suits_the_mode():
    x = np.linspace(0, 1, 50)
    smooth = np.column_stack([np.exp(-((x - c) ** 2) / 0.02) for c in (0.3, 0.6)])
    spiky = np.zeros((50, 2))
    spiky[[7, 31], [0, 1]] = 1.0
    short = np.ones((4, 2))
    figure = components((None, [smooth, spiky, short]))
    line, stems, bars = figure.axes[:3]
    assert len(line.lines) == 2
    assert len(stems.collections) == 1
    assert len(bars.patches) == 4
    numbered = components((None, [smooth, spiky, short]), labels={0: 250 + x, 2: list("abcd")})
    first, *_, last = numbered.axes
    np.testing.assert_array_equal(first.lines[1].get_xdata(), 250 + x)
    assert [text.get_text() for text in last.get_xticklabels()] == list("abcd")


def test_many_words_are_named_where_they_matter():
    words = [f"word {i}" for i in range(60)]
    factor = np.zeros((60, 1))
    factor[[11, 42]] = [[3.0], [-4.0]]
    figure = components((None, [factor, np.ones((2, 1))]), labels=[words, None], names=["w", "x"])
    assert figure.axes[0].get_title() == "word 42, word 11"
    assert figure.axes[0].get_xlabel() == "w"


def test_modes_are_chosen(library):
    cp = lt.CPTensor(None, library.arrays(tensor((4, 5, 6), 2).factors))
    figure = components(cp, modes=(2, 0))
    assert [a.get_xlabel() for a in figure.axes if a.get_xlabel()] == ["mode 2", "mode 0"]


def test_complex_vectors_show_both_parts():
    cp = tensor((3, 4, 2), 2, dtype=complex)
    figure = components(cp)
    assert len(figure.axes[0].patches) == 2 * 3
    assert "imaginary" in figure.get_suptitle()


@pytest.mark.parametrize("ranks", [(2, 3, 2), (14, 1, 2)])
def test_directions_of_a_tucker_tensor(ranks):
    rng = np.random.default_rng(0)
    shape = (20, 6, 30)
    factors = [
        np.linalg.qr(rng.standard_normal((d, r)))[0] for d, r in zip(shape, ranks, strict=True)
    ]
    core = rng.standard_normal(ranks)
    figure = components(lt.TuckerTensor(core, factors))
    assert len(panels(figure)) == sum(min(r, 12) for r in ranks)
    fraction = (core[0] ** 2).sum() / (core**2).sum()
    assert figure.axes[0].get_title() == f"{100 * fraction:.1f} %"
    assert overlapping(figure) == []
    whole = components(
        lt.TuckerTensor(lt.multilinear(core, None, None, factors[2].T), (*factors[:2], None))
    )
    assert len([a for a in whole.axes if a.get_xlabel()]) == 2


@pytest.mark.parametrize("cp", [
    lt.CPTensor([0.0, 0.0], [np.zeros((3, 2))] * 3),
    lt.CPTensor([1.0], [np.ones((1, 1))] * 3),
    lt.CPTensor([1e300, 1e-300], [np.ones((30, 2))] * 2),
])  # fmt: skip
def test_extreme_tensors_can_be_drawn(cp, tmp_path):
    assert save(components(cp), tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("arguments, message", [
    ({"modes": (0, 0)}, "modes=\\(0, 0\\) must name at least one mode"),
    ({"modes": ()}, "must name at least one"),
    ({"modes": (3,)}, "modes=3 is out of range"),
    ({"labels": {0: ["a"]}}, "labels of mode 0 have shape \\(1,\\): expected 4"),
    ({"labels": {7: ["a"]}}, "labels=7 is out of range"),
    ({"labels": ["a"]}, "labels must be a mapping from modes, or a sequence of 3"),
    ({"names": "abc"}, "names must be a mapping"),
])  # fmt: skip
def test_bad_arguments_are_explained(arguments, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        components(tensor((4, 5, 6), 2), **arguments)


def test_other_things_are_refused():
    with pytest.raises(lt.InvalidInputError, match="decomposition must be a CPTensor"):
        components(np.ones((2, 2, 2)))
    with pytest.raises(lt.InvalidInputError, match="NaN"):
        components((None, [np.full((2, 1), np.nan), np.ones((2, 1))]))
