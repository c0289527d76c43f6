"""Pictures of figures over an axis, as HTML and SVG that need neither script nor style sheet.

The plot stretches with the page, and its text does not: shapes are SVG, and names and numbers are
HTML beside it. Colors have a contrast of at least 3 to 1 on white as on black, so that one picture
does for both.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

BLUE, ORANGE, RED, GREY, GREEN = "#3d7fc4", "#c9731b", "#d0453c", "#82868c", "#3c8f48"
VIOLET = "#9a62c4"
SMALL = "font-size:12px;line-height:16px"
NAME_PX = 132
"""Width of the column of names, left of a plot."""
HEIGHT_PX = 96
STEPS = (1, 2, 5, 10)
TICKS = 4


class Tick(NamedTuple):
    """A value on an axis."""

    at: float
    """Its place, as a share of the axis."""
    text: str


class Sign(NamedTuple):
    """A sign at a place of a plot, in shares of its width and height, from the top left."""

    at: float
    down: float
    sign: str
    color: str
    title: str


def steps(values: np.ndarray, top: float, height: int) -> str:
    """Return the path of an area below steps: one for each value, as wide as all others.

    Values are from 0 on, and NaN is a gap. The value `top` reaches to the top of the plot, whose
    height is in units of its own; a step is one unit wide.
    """
    path, level, width = [f"M0 {height}"], height, 0
    for value in values.tolist():
        share = 0.0 if math.isnan(value) else min(1.0, value / top if top else 0.0)
        here = height - round(share * height)
        if value > 0 and share and here == height:
            here -= 1  # little is more than nothing
        if here != level:
            path += [f"h{width}"] * bool(width) + [f"V{here}"]
            level, width = here, 0
        width += 1
    return "".join([*path, f"h{width}", f"V{height}Z"])


def line(share: float, width: int, height: int) -> str:
    """Return the path of a line at a share of the height."""
    down = min(height - 2, round(height * (1 - share)))
    return f"M0 {down}h{width}v2h-{width}Z"


def plot(shapes: Iterable[tuple[str, str]], width: int, height: int, height_px: int) -> str:
    """Return paths with their colors as a drawing that fills its place."""
    paths = "".join(f'<path d="{path}" fill="{color}"/>' for path, color in shapes)
    return (
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true" '
        f'style="display:block;width:100%;height:{height_px}px">{paths}</svg>'
    )


def row(name: str, drawing: str, marks: Iterable[Sign] = (), title: str = "") -> str:
    """Return a row of a picture: a name, and a plot with marks on it."""
    signs = "".join(
        f'<span title="{escape(mark.title)}" style="position:absolute;left:{100 * mark.at:.2f}%;'
        f"top:{100 * mark.down:.0f}%;transform:translate(-50%,-50%);color:{mark.color};"
        f'font-weight:bold">{mark.sign}</span>'
        for mark in marks
    )
    said = f' title="{escape(title)}"' if title else ""
    return (
        f'<div{said} style="display:flex;align-items:flex-start;margin:1px 0">'
        f'<span style="flex:none;width:{NAME_PX}px;padding-right:8px;box-sizing:border-box;'
        f"text-align:right;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;"
        f'{SMALL}">{escape(name)}</span>'
        f'<div style="position:relative;flex:1;min-width:0;background:{GREY}22">{drawing}{signs}'
        "</div></div>"
    )


def axis(ticks: Sequence[Tick]) -> str:
    """Return the values below the plots of a picture."""
    marks = "".join(
        f'<span style="position:absolute;left:{100 * tick.at:.2f}%;'
        f'transform:translateX({_shift(tick.at)}%);white-space:nowrap">{escape(tick.text)}</span>'
        for tick in ticks
    )
    return (
        f'<div style="position:relative;margin-left:{NAME_PX}px;height:18px;{SMALL}">{marks}</div>'
    )


def legend(parts: Iterable[tuple[str, str]]) -> str:
    """Return what colors stand for; a sign may stand in place of a color's square."""
    each = "".join(
        f'<span style="display:inline-block;margin-right:14px"><span style="color:{color}">'
        f"{'✕' if name.endswith('died') else '■'}</span> {escape(name)}</span>"
        for name, color in parts
    )
    return f'<div style="margin-left:{NAME_PX}px;{SMALL}">{each}</div>'


def figure(title: str, described: str, parts: Iterable[str]) -> str:
    """Return a picture with a title, and with a description for those who do not see it."""
    return (
        f'<figure aria-label="{escape(f"{title}. {described}")}" '
        f'style="margin:0 0 20px"><figcaption style="font-weight:600;margin-bottom:4px">'
        f"{escape(title)}</figcaption>{''.join(parts)}</figure>"
    )


def round_top(value: float) -> float:
    """Return the next round number that is not smaller: the top of an axis."""
    if value <= 0 or math.isnan(value):
        return 1.0
    unit: float = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in STEPS if step * unit >= value * (1 - 1e-9))


def time_ticks(length_s: float) -> Iterator[Tick]:
    """Yield some round times from the start on."""
    step = next(one for one in TIME_STEPS_S if one * TICKS >= length_s)
    for number in range(int(length_s / step) + 1):
        yield Tick(number * step / length_s, _time(number * step))


TIME_STEPS_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(3_600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * 2**days for days in range(16)),
)


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0"
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s and seconds % (unit_s / 2) == 0:
            return f"{seconds / unit_s:g} {unit}"
    return f"{seconds:g} s"


def _shift(at: float) -> int:
    """Return by how much of its width a text is shifted, so that it stays beside its plot."""
    return 0 if at < 0.02 else -100 if at > 0.96 else -50  # noqa: PLR2004 - its ends
