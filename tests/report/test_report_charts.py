"""Charts: what is drawn stands where its number belongs."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.report.charts import HEIGHT, WIDTH, Scale, line_chart, spanned, spectrum_chart


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_scale_keeps_order_and_ends(logarithmic):
    scale = Scale(1.0, 100.0, 10.0, 210.0, logarithmic)
    assert scale(1.0) == pytest.approx(10.0)
    assert scale(100.0) == pytest.approx(210.0)
    assert scale(10.0) == pytest.approx(110.0 if logarithmic else 10.0 + 200.0 * 9 / 99)
    assert scale(0.001) == pytest.approx(10.0)
    assert scale(1e9) == pytest.approx(210.0)


@settings(max_examples=200, deadline=None)
@given(
    low=st.floats(1e-6, 1e6),
    span=st.floats(1e-4, 1e4),
    logarithmic=st.booleans(),
)
def test_ticks_lie_inside_and_are_few(low, span, logarithmic):
    scale = Scale(low, low * (1 + span), 0.0, 1.0, logarithmic)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 10
    assert ticks == sorted(ticks)
    assert all(scale.low * (1 - 1e-6) <= tick <= scale.high * (1 + 1e-6) for tick in ticks)


@pytest.mark.parametrize("values", [[5.0], [0.0], [0.0, 0.0], [-2.0, 3.0], [1e-12, 1e12]])
def test_a_spanned_scale_holds_its_values(values):
    scale = spanned(values, 0.0, 100.0)
    assert scale.low < min(values)
    assert scale.high > max(values)


def coordinates(chart, names):
    return [float(v) for name in names for v in re.findall(rf' {name}="(-?[\d.]+)"', chart)]


@pytest.mark.parametrize(
    "across, up, chosen",
    [
        ([3], [5.0], 3),
        ([0, 1], [5.0, 5.0], 0),
        ([0, 1, 2], [9.0, 1.0, 4.0], 7),
        (list(range(200)), [1.0 / (i + 1) for i in range(200)], 199),
    ],
)
def test_a_line_chart_stays_inside_its_frame(across, up, chosen):
    chart = line_chart(across, up, chosen, "pass", "perplexity", "A <label>")
    assert chart.count("<circle") == len(across)
    assert chart.count("dot chosen") == (chosen in across)
    assert 'aria-label="A &lt;label&gt;"' in chart
    assert all(0 <= x <= WIDTH for x in coordinates(chart, ("x", "cx")))
    assert all(0 <= y <= HEIGHT for y in coordinates(chart, ("y", "cy")))


@pytest.mark.parametrize(
    "values, chosen, noise",
    [
        ([1.0], 1, None),
        ([3.0, 2.0, 1.0], 2, 0.5),
        ([3.0, 2.0, 1.0], 9, 0.0),
        ([1e3, 1.0, 1e-9, 0.0, -1.0], 2, 0.1),
        ([0.0, 0.0], 1, None),
        ([-1.0, -2.0], 1, 0.5),
        ([1.0 / (i + 1) for i in range(400)], 100, 0.004),
    ],
)
def test_a_spectrum_stays_inside_its_frame(values, chosen, noise):
    chart = spectrum_chart(values, chosen, noise, "label")
    assert chart.count("<rect") == len(values)
    assert chart.count("column used") == min(chosen, len(values))
    assert all(0 <= x <= WIDTH for x in coordinates(chart, ("x",)))
    assert all(0 <= y <= HEIGHT for y in coordinates(chart, ("y",)))
    assert "nan" not in chart


def test_columns_of_a_straight_spectrum_are_as_high_as_their_numbers():
    chart = spectrum_chart([4.0, 2.0, 1.0], 2, None, "label")
    high, middle, low = coordinates(chart, ("height",))
    assert high / middle == pytest.approx(2.0, abs=1e-3)
    assert middle / low == pytest.approx(2.0, abs=1e-3)
