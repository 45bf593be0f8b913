# SPDX-License-Identifier: Apache-2.0
"""Draws panels of lines and marks as SVG text, the same for the same numbers, legible on light and
on dark ground."""
import html
import math
from typing import NamedTuple

WIDTH, HEIGHT = 440, 340  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 34, 46
LEGEND_LINE = 20
COLOURS = {"a": ("#c2410c", "#fb923c"), "b": ("#1d4ed8", "#60a5fa"), "c": ("#15803d", "#4ade80"),
           "d": ("#7e22ce", "#c084fc"), "e": ("#a16207", "#facc15"), "f": ("#0e7490", "#22d3ee"),
           "g": ("#be185d", "#f472b6"), "h": ("#475569", "#94a3b8")}
SHAPES = ("circle", "square", "diamond", "triangle")


class Series(NamedTuple):
    name: str
    points: list[tuple[float, float]]
    is_line: bool


class Panel(NamedTuple):
    title: str
    series: list[Series]


class Axis(NamedTuple):
    """Maps [low, high] to pixels from `start` to `end`."""
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def step_between_ticks(extent: float, most: int) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(extent / most))
    return next(power * factor for factor in (1, 2, 5, 10) if extent <= most * power * factor)


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers, the first at most `low` and the last at least `high`."""
    step = step_between_ticks(high - low, most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, last + 1)]


def style() -> str:
    def rules(shade: int) -> str:
        colours = "".join(f".{key}{{stroke:{pair[shade]};fill:{pair[shade]}}}"
                          for key, pair in COLOURS.items())
        ink, grid = (("#1f2937", "#d1d5db"), ("#e5e7eb", "#4b5563"))[shade]
        return f"text{{fill:{ink}}}.grid{{stroke:{grid}}}.axis{{stroke:{ink}}}{colours}"

    return ("<style>text{font:12px sans-serif}.title{font-size:14px;font-weight:bold}"
            f".line{{fill:none;stroke-width:2}}{rules(0)}"
            f"@media(prefers-color-scheme:dark){{{rules(1)}}}.line{{fill:none}}</style>")


def text(x: float, y: float, content: str, anchor: str = "middle", more: str = "") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
            f"{html.escape(content)}</text>")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def mark(x: float, y: float, colour: str, shape: str) -> str:
    if shape == "circle":
        return f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    corners = {"square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
               "diamond": [(0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)],
               "triangle": [(0, -5), (5, 4), (-5, 4)]}[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{colour}" points="{points}"/>'


def look_of(index: int) -> tuple[str, str]:
    """Colour and shape of the series of that number; shapes that come again are hollow."""
    colour = list(COLOURS)[index % len(COLOURS)]
    is_hollow = index // len(SHAPES) % 2
    return f"{colour} line" if is_hollow else colour, SHAPES[index % len(SHAPES)]


def draw_series(series: Series, look: tuple[str, str], x: Axis, y: Axis) -> list[str]:
    places = [(x.at(a), y.at(b)) for a, b in sorted(series.points)]
    parts = []
    if series.is_line:
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline class="{look[0]} line" points="{path}"/>')
    return parts + [mark(a, b, *look) for a, b in places]


def draw_axes(x: Axis, y: Axis, labels: tuple[str, str]) -> list[str]:
    parts = []
    for value in ticks(x.low, x.high):
        parts += [line(x.at(value), y.start, x.at(value), y.end, "grid"),
                  text(x.at(value), y.start + 16, f"{value:g}")]
    for value in ticks(y.low, y.high):
        parts += [line(x.start, y.at(value), x.end, y.at(value), "grid"),
                  text(x.start - 6, y.at(value) + 4, f"{value:g}", "end")]
    parts += [line(x.start, y.start, x.end, y.start, "axis"),
              line(x.start, y.start, x.start, y.end, "axis")]
    middle = (y.start + y.end) / 2
    turned = f' transform="rotate(-90 {x.start - 42:.1f} {middle:.1f})"'
    return parts + [text((x.start + x.end) / 2, y.start + 36, labels[0]),
                    text(x.start - 42, middle, labels[1], more=turned)]


def draw_panel(panel: Panel, left: float, names: list[str], labels: tuple[str, str]) -> list[str]:
    points = [point for series in panel.series for point in series.points]
    if not points:
        return []
    x_ticks = ticks(0, max(point[0] for point in points))
    y_ticks = ticks(min(0, *(point[1] for point in points)),
                    max(1, *(point[1] for point in points)))
    x = Axis(x_ticks[0], x_ticks[-1], left + LEFT, left + WIDTH - RIGHT)
    y = Axis(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [text((x.start + x.end) / 2, 20, panel.title, more=' class="title"')]
    parts += draw_axes(x, y, labels)
    for series in reversed(panel.series):  # the first lies on top
        parts += draw_series(series, look_of(names.index(series.name)), x, y)
    return parts


def draw_legend(panels: list[Panel], names: list[str]) -> list[str]:
    lines = {series.name for panel in panels for series in panel.series if series.is_line}
    parts = []
    columns = 2 * len(panels)
    for i, name in enumerate(names):
        x = LEFT + (i % columns) * (WIDTH * len(panels) - LEFT) / columns
        y = HEIGHT + 6 + LEGEND_LINE * (i // columns)
        colour, shape = look_of(i)
        if name in lines:
            parts.append(line(x - 10, y, x + 10, y, f"{colour} line"))
        parts += [mark(x, y, colour, shape), text(x + 14, y + 4, name, "start")]
    return parts


def draw(panels: list[Panel], labels: tuple[str, str]) -> str:
    """The panels side by side with one legend; `labels` are those of the axes."""
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    rows = -(-len(names) // (2 * len(panels)))
    width, height = WIDTH * len(panels), HEIGHT + LEGEND_LINE * rows + 4
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}">', style()]
    for i, panel in enumerate(panels):
        parts += draw_panel(panel, i * WIDTH, names, labels)
    return "\n".join([*parts, *draw_legend(panels, names), "</svg>"]) + "\n"
