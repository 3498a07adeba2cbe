"""What every figure has to hold: whole, reproducible, nothing cut off, nothing hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from blockpilot.catalogue import FIGURES

NOWHERE = Path("figure.svg"), Path("figure.png")
PNG_HEADER = b"\x89PNG\r\n\x1a\n"
# The real ones: a shorter title would hide that a narrow figure cuts it off.
TITLES = {name: figure.title for name, figure in FIGURES.items()}
# One panel, and the largest figure of a run.
DECODES = [("T0",), ("T0", "T07", "T1", "T1_coupled")]

# Called with the paths of both files and the decode variants to draw.
Draw = Callable[[Sequence[Path], Sequence[str]], object]


def catch_figures(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[Figure]:
    """Return a list that gets the modules' figures as they are drawn; nothing is written."""
    figures = []

    def keep(figure, path_svg, path_png):
        figure.draw_without_rendering()
        figures.append(figure)

    for module in modules:
        monkeypatch.setattr(module, "save_figure", keep)
    return figures


def legends_of(figure: Figure) -> list[Legend]:
    """Return the legends of the whole figure, then those of its panels."""
    return [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]


def labels_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in legends_of(figure) for text in legend.get_texts()]


def lines_of(axes: Axes) -> dict[str, Line2D]:
    return {line.get_label(): line for line in axes.lines}


def check_written_twice(folder: Path, draw: Draw) -> None:
    """Draw one variant twice: both files whole, the same bytes, no setting left behind."""
    written, before = [], dict(mpl.rcParams)
    for name in ("a", "b"):
        paths = folder / name / "figure.svg", folder / name / "figure.png"
        draw(paths, DECODES[0])
        written.append([path.read_bytes() for path in paths])
    svg, png = written[0]
    assert written[0] == written[1]
    assert svg.rstrip().endswith(b"</svg>") and len(svg) > 5000
    assert b"<dc:date>" not in svg
    assert png.startswith(PNG_HEADER) and len(png) > 5000
    assert sorted(path.suffix for path in (folder / "a").iterdir()) == [".png", ".svg"]
    assert dict(mpl.rcParams) == before


def check_layout(figure: Figure) -> None:
    """Check that a drawn figure has a title, that all of it is seen, and no part hides another."""
    assert figure.get_suptitle()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 >= -0.01 and box.y0 >= -0.01
    assert box.x1 <= width + 0.01 and box.y1 <= height + 0.01
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    check_apart(boxes)
    for axes in figure.axes:
        check_apart(name.get_window_extent() for name in axes.get_xticklabels())
        right = axes.get_window_extent().x1
        assert all(text.get_window_extent().x1 <= right for text in axes.texts)
        check_lines(axes)
    check_legends(figure, min(box.y0 for box in boxes))


def check_apart(boxes: Iterable[Bbox]) -> None:
    """Check that no two boxes share more than a pixel."""
    for one, other in combinations(boxes, 2):
        shared = Bbox.intersection(one, other)
        assert shared is None or min(shared.width, shared.height) <= 1


def check_lines(axes: Axes) -> None:
    """Check that the axes reach as far as their lines of data."""
    limits = np.sort([axes.get_xlim(), axes.get_ylim()], axis=1)
    for line in axes.lines:
        # A line of reference spans the panel, in a transform of its own.
        if line.get_transform() is axes.transData:
            points = line.get_xydata()
            points = points[np.isfinite(points).all(axis=1)]
            assert (limits[:, 0] <= points).all() and (points <= limits[:, 1]).all()


def check_legends(figure: Figure, lowest: float) -> None:
    """Check that legends name a thing once, and lie inside the figure but outside its panels.

    Args:
        figure: As drawn.
        lowest: Where its panels end, in pixels; one legend for all of them is below.
    """
    assert len(figure.legends) <= 1
    for legend in figure.legends:
        assert legend.get_window_extent().y1 <= lowest + 1
    for legend in legends_of(figure):
        place = legend.get_window_extent()
        assert place.x0 >= 0 and place.x1 <= figure.bbox.x1
        assert not any(place.overlaps(axes.get_window_extent()) for axes in figure.axes)
        labels = [text.get_text() for text in legend.get_texts()]
        assert len(labels) == len(set(labels))
