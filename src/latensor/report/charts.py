"""Small charts as SVG, drawn for a width between a phone and a third of a desk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latensor.report.markup import Markup, element
from latensor.report.wording import number

WIDTH, HEIGHT = 400, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 16, 46


@dataclass(frozen=True)
class Scale:
    """From numbers to places on one axis, straight or logarithmic.

    Attributes
    ----------
    low, high : float, the numbers at both ends
    start, end : float, their places
    logarithmic : bool
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of a number; what lies outside stands at the edge."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers inside the axis."""
        if self.logarithmic:
            return _logarithmic_ticks(self.low, self.high, most)
        return _straight_ticks(self.low, self.high, most)


def _straight_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _logarithmic_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = [10.0**i for i in range(first, last + 1, max(1, (last - first) // most + 1))]
    if len(decades) > 2:
        return decades
    fine = [m * 10.0**i for i in range(first - 1, last + 1) for m in (1, 2, 5)]
    inside = [tick for tick in fine if low <= tick <= high]
    return inside if len(inside) > 1 else _straight_ticks(low, high, most)


def _whole(ticks: list[float]) -> list[float]:
    return [tick for tick in ticks if abs(tick - round(tick)) < 1e-9]


def spanned(values: Sequence[float], start: float, end: float, margin: float = 0.06) -> Scale:
    """A straight scale that holds all values, with some air."""
    low, high = min(values), max(values)
    air = margin * (high - low) if high > low else 0.05 * abs(high) or 1.0
    return Scale(low - air, high + air, start, end)


def _axes(across: Scale, up: Scale, across_name: str, up_name: str) -> list[Markup]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick in up.ticks():
        y = up(tick)
        parts += [
            element("path", class_="grid", d=f"M{_LEFT} {y:.1f}H{right}"),
            element("text", number(tick), x=_LEFT - 7, y=y + 4.5, class_="end"),
        ]
    for tick in _whole(across.ticks(6)):
        x = across(tick)
        parts.append(element("text", number(tick), x=x, y=bottom + 19, class_="middle"))
    parts += [
        element("path", class_="axis", d=f"M{_LEFT} {bottom}H{right}"),
        element(
            "text",
            across_name,
            x=(_LEFT + right) / 2,
            y=HEIGHT - 6,
            class_="middle quiet",
        ),
        element("text", up_name, x=_LEFT - 7, y=_TOP - 4, class_="quiet"),
    ]
    return parts


def svg(
    label: str,
    parts: Sequence[Markup],
    width: float = WIDTH,
    height: float = HEIGHT,
    kind: str = "chart",
) -> Markup:
    """A drawing that says what it shows."""
    box = f"0 0 {width} {height:.0f}"
    return element("svg", parts, class_=kind, viewBox=box, role="img", aria_label=label)


def line_chart(
    across: Sequence[float],
    up: Sequence[float],
    chosen: float,
    across_name: str,
    up_name: str,
    label: str,
) -> Markup:
    """A line through points, with one of them marked.

    Parameters
    ----------
    across, up : (m,) numbers, the points from left to right
    chosen : number, which of `across` is marked
    across_name, up_name : str, what the axes show
    label : str, what the chart says, for those who do not see it
    """
    x_scale = spanned(across, _LEFT + 4, WIDTH - _RIGHT, 0.04)
    y_scale = spanned(up, HEIGHT - _BOTTOM, _TOP + 8, 0.1)
    places = [(x_scale(x), y_scale(y)) for x, y in zip(across, up, strict=True)]
    parts = _axes(x_scale, y_scale, across_name, up_name)
    if chosen in across:
        x, y = places[list(across).index(chosen)]
        parts.append(
            element("path", class_="chosen-line", d=f"M{x:.1f} {HEIGHT - _BOTTOM}V{y:.1f}")
        )
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    parts.append(element("path", class_="line", d=d))
    radius = 3.5 if len(places) <= 30 else 2.0
    for (x, y), at, value in zip(places, across, up, strict=True):
        kind = "dot chosen" if at == chosen else "dot"
        name = element("title", f"{across_name} {number(at)}: {number(value)}")
        size = radius + 2.5 if at == chosen else radius
        parts.append(element("circle", name, class_=kind, cx=x, cy=y, r=size))
    return svg(label, parts)


def spectrum_chart(values: Sequence[float], chosen: int, noise: float | None, label: str) -> Markup:
    """Eigenvalues as columns, those that were used apart from the others.

    Where they differ by more than a factor of 30 the scale is logarithmic, and what is not
    positive stands at its foot.

    Parameters
    ----------
    values : (m,) numbers, largest first
    chosen : int, how many were used
    noise : float or None, drawn as a level
    label : str, what the chart says, for those who do not see it
    """
    bottom = HEIGHT - _BOTTOM
    shown = [*values, *([noise] if noise else [])]
    positive = [value for value in shown if value > 0]
    high = max(positive, default=1.0)
    low = min(positive, default=1.0)
    logarithmic = high > 30 * low
    if logarithmic:
        y_scale = Scale(max(low / 1.5, high * 1e-6), high * 1.2, bottom, _TOP + 8, True)
    else:
        y_scale = Scale(min(0.0, *shown), high * 1.08, bottom, _TOP + 8)
    x_scale = Scale(0.5, len(values) + 0.5, _LEFT + 2, WIDTH - _RIGHT)
    parts = _axes(x_scale, y_scale, "eigenvalue", "size, logarithmic" if logarithmic else "size")
    step = (WIDTH - _RIGHT - _LEFT - 2) / len(values)
    width = min(max(0.72 * step, 0.8), 26.0)
    foot = y_scale(max(0.0, y_scale.low))
    for i, value in enumerate(values):
        y = y_scale(value)
        name = element("title", f"eigenvalue {i + 1}: {number(value)}")
        parts.append(
            element(
                "rect",
                name,
                class_="column used" if i < chosen else "column",
                x=x_scale(i + 1) - width / 2,
                y=min(y, foot),
                width=float(width),
                height=max(abs(foot - y), 1.0),
            )
        )
    if noise and noise >= y_scale.low:
        y = y_scale(noise)
        parts += [
            element("path", class_="level", d=f"M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"),
            element("text", "noise", x=WIDTH - _RIGHT, y=y - 5, class_="end level-name"),
        ]
    if chosen <= len(values):
        x = x_scale(chosen + 0.5)
        side, gap = ("end", -6) if x > WIDTH / 2 else ("start", 6)
        parts += [
            element("path", class_="chosen-line", d=f"M{x:.1f} {_TOP}V{bottom}"),
            element("text", f"{chosen} used", x=x + gap, y=_TOP + 12, class_=f"{side} strong"),
        ]
    return svg(label, parts)
