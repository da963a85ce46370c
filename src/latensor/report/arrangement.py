"""Where topics stand on a map: near each other if alike, and never on top of each other."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import one_blas_thread

Floats = np.ndarray[Any, np.dtype[np.float64]]
_STRETCH = 1.5
_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


def classical_scaling(distances: Floats) -> tuple[Floats, float]:
    """Places in the plane whose distances are as near as possible to given ones.

    Classical multidimensional scaling: with D2 the squared distances and J = I - 11'/k, the two
    leading eigenvectors of -J D2 J / 2, each times the root of its eigenvalue. The sign is fixed by
    the entry of largest magnitude, so that the same distances give the same map.

    Parameters
    ----------
    distances : (k, k) array, symmetric

    Returns
    -------
    places : (k, 2) array
    shown : float, fraction of the variation that two dimensions hold
    """
    size = len(distances)
    squared = distances**2
    means = squared.mean(axis=0)
    gram = -0.5 * (squared - means[:, None] - means[None, :] + squared.mean())
    with one_blas_thread():
        values, vectors = np.linalg.eigh(gram)
    places = np.zeros((size, 2))
    tiny = size * np.finfo(float).eps * max(float(values[-1]), 0.0)
    for axis in range(min(2, size)):
        value = float(values[-1 - axis])
        if value <= tiny:
            break
        vector = vectors[:, -1 - axis]
        # Rounded, so that entries of equal magnitude do not change places from machine to machine.
        largest = int(np.argmax(np.round(np.abs(vector), 9)))
        places[:, axis] = vector * math.sqrt(value) * (1.0 if vector[largest] > 0 else -1.0)
    total = float(values[values > 0].sum())
    shown = float((places**2).sum()) / total if total > tiny else 1.0
    return places, min(shown, 1.0)


def radii(fractions: Floats, width: float, height: float, least: float, most: float) -> Floats:
    """Radii of circles whose area goes with the fraction, together a fifth of the map."""
    ratio = fractions / fractions.max() if fractions.max() > 0 else np.ones_like(fractions)
    largest = math.sqrt(0.2 * width * height / (math.pi * ratio.sum()))
    return np.maximum(np.sqrt(ratio) * min(largest, most), least)


def spread(
    places: Floats, radius: Floats, width: float, height: float, gap: float, sweeps: int = 400
) -> Floats:
    """Places scaled to a map of a given size and moved apart until no circles overlap.

    One axis is stretched by up to a half more than the other where that fills the map. Each sweep
    moves every overlapping pair half of its overlap apart, along the line between them, and
    everything back inside. Where there is room this ends without overlap.

    Parameters
    ----------
    places : (k, 2) array
    radius : (k,) array
    width, height : of the map
    gap : float, distance to keep between two circles, to a quarter of itself
    sweeps : int, at most so many

    Returns
    -------
    (k, 2) array
    """
    edge = radius[:, None] + gap
    extent = np.ptp(places, axis=0)
    room = np.array([width, height]) - 2 * edge.max()
    fitting = np.divide(room, extent, out=np.full(2, np.inf), where=extent > 1e-9)
    scale = np.minimum(fitting, _STRETCH * fitting.min()) if np.isfinite(fitting.min()) else 1.0
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    size = np.array([width, height])
    # A hair off its place each in a direction of its own: circles at one point can part, and
    # circles in a line can leave it.
    angle = _GOLDEN_ANGLE * np.arange(len(radius))
    aside = np.sqrt(np.arange(len(radius)) + 0.5)[:, None] * np.stack(
        [np.cos(angle), np.sin(angle)], axis=1
    )
    moved = (places - middle) * scale + size / 2 + 0.1 * aside
    apart = radius[:, None] + radius[None, :] + gap
    with one_blas_thread():
        for _ in range(sweeps):
            moved = np.clip(moved, edge, size - edge)
            across, down = (moved[:, axis, None] - moved[None, :, axis] for axis in range(2))
            length = np.sqrt(across**2 + down**2)
            overlap = np.maximum(apart - length, 0.0)
            np.fill_diagonal(overlap, 0.0)
            if overlap.max(initial=0.0) < gap / 4:
                break
            push = 0.5 * overlap / np.maximum(length, 1e-9)
            step = moved * push.sum(axis=1, keepdims=True) - push @ moved
            # In a crowd all push at once: nobody goes further than its own size.
            far = np.sqrt((step**2).sum(axis=1, keepdims=True))
            moved = moved + step * np.minimum(1.0, edge / np.maximum(far, 1e-9))
    inside: Floats = np.clip(moved, edge, size - edge)
    return inside


@dataclass(frozen=True)
class Label:
    """A text beside or inside a circle: its middle, and whether it stands inside."""

    x: float
    y: float
    inside: bool


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a font whose letters are rather wide."""
    ems = 0.0
    for letter in text:
        if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Cf"):
            continue
        ems += 1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.6
    return ems * size


def place_labels(
    places: Floats, radius: Floats, texts: list[str], size: float, width: float, height: float
) -> list[Label | None]:
    """For each circle where its text can stand without covering anything; None where nowhere.

    The largest circles choose first: inside if there is room, else below, above, to the right, to
    the left, or slanted.
    """
    found: list[Label | None] = [None] * len(texts)
    boxes: list[tuple[float, float, float, float]] = []
    for i in sorted(range(len(texts)), key=lambda i: (-radius[i], i)):
        half, rise = text_width(texts[i], size) / 2 + 2, size * 0.62
        (x, y), r = places[i], radius[i]
        if 2 * half < 2 * math.sqrt(max(r**2 - (1.6 * size) ** 2, 0.0)):
            found[i] = Label(float(x), float(y + 0.75 * size), True)
            continue
        under, beside, slanted = r + rise + 1, r + half + 3, 0.7 * r + rise
        offsets = [(0.0, under), (0.0, -under), (beside, 0.0), (-beside, 0.0)]
        offsets += [(h * (0.7 * r + half), v * slanted) for h in (1, -1) for v in (1, -1)]
        for dx, dy in offsets:
            box = (x + dx - half, y + dy - rise, x + dx + half, y + dy + rise)
            if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
                continue
            if _covers_circle(box, places, radius, i) or any(_overlap(box, b) for b in boxes):
                continue
            boxes.append(box)
            found[i] = Label(float(x + dx), float(y + dy), False)
            break
    return found


def _covers_circle(
    box: tuple[float, float, float, float], places: Floats, radius: Floats, own: int
) -> bool:
    nearest = np.clip(places, box[:2], box[2:])
    inside = ((places - nearest) ** 2).sum(axis=1) < (radius + 1) ** 2
    inside[own] = False
    return bool(inside.any())


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
