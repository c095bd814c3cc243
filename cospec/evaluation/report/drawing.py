"""Matplotlib figures as inline SVG that follows the page's colours, and as PNG files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from cospec.evaluation.report.text import plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#dfe3e8", "#fefefe"
SERIES = ("#0b6bcb", "#d1480c", "#1a7f4b", "#8a4fbf", "#8a6a00", "#b02a6f", "#4d5866", "#00808a")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: In the SVG every colour gives way to a variable of the page, which knows light and dark.
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--c{index}" for index, colour in enumerate(SERIES)
}
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cospec",
    # Names of methods are not formulas.
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class ChartTable:
    """The numbers of a chart, for those who cannot see it."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """``name`` is the stem of its PNG file; ``description`` stands in for the picture."""

    name: str
    title: str
    description: str
    svg: Markup
    png: bytes
    table: ChartTable | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and marker of one method in every chart: never colour alone."""

    colour: str
    marker: str
    line: str = ""


def styles(names: Sequence[str]) -> dict[str, Style]:
    """A style per name, in order; more names than colours repeat a colour with another marker."""
    unique = dict.fromkeys(names)
    return {
        name: Style(SERIES[i % len(SERIES)], MARKERS[(i + i // len(SERIES)) % len(MARKERS)])
        for i, name in enumerate(unique)
    }


@contextmanager
def new_figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of inches with one pair of axes; draw and `finish` it inside the block."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def finish(figure: Figure, name: str, title: str, description: str, table: ChartTable | None = None) -> Chart:
    """Render both forms; ``name`` must be unique in a page, since it is part of the SVG's ids."""
    svg, png = io.StringIO(), io.BytesIO()
    with warnings.catch_warnings():
        # A name with letters that this font lacks: the browser has others, in the PNG they are boxes.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return Chart(name, title, description, _inline(svg.getvalue(), name), png.getvalue(), table)


def legend_below(figure: Figure, entries: Sequence[tuple[str, Style]]) -> None:
    """Names and styles under the axes, where they hide no point."""
    from matplotlib.lines import Line2D

    names = [plain(shortened(name, 48)) for name, _ in entries]
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, linestyle=style.line, label=name)
        for name, (_, style) in zip(names, entries, strict=True)
    ]
    if handles:
        longest = max(map(len, names))
        columns = 3 if longest <= 20 else 2 if longest <= 28 else 1
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), fontsize=8)


def grid(axes: Axes) -> None:
    """Faint lines behind the data."""
    axes.grid(linewidth=0.8)


def _inline(svg: str, name: str) -> Markup:
    """The <svg> element alone, with ids that no other chart has and colours that are variables."""
    body = svg[svg.index("<svg") :]
    # Its style sheet would be one of the whole page.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'xlink:href="#', f'xlink:href="#{name}-', body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    # The figure's caption and table say what it shows; its hundred text fragments would only be read out one by one.
    return Markup(body.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1))
