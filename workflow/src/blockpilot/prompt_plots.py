"""The figures of best sizes: how often each one is best per group, and tau of every prompt.

Style and promises are those of `plots`. Tables come by decode variant (T0, T1, ...); paths and
title mean the same everywhere: see `plot_best_sizes`.
"""

# Shapes: n = requests of a group, s = block sizes.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from blockpilot.comparison_plots import stack_ties
from blockpilot.plots import (
    BLACK,
    GREY,
    SETTINGS,
    make_panels,
    save_figure,
    share_legend,
)

Tables = Mapping[str, pd.DataFrame]
GAP = 0.6  # columns left free where sizes were not swept
SMALL = SETTINGS["legend.fontsize"] + 1  # headings of narrow panels
# Of the heat map: height of a request, of the lowest panel and of all panels, in inches.
REQUEST_IN, LOWEST_IN, ALL_IN = 0.034, 0.7, 8.0
DARK = 0.6  # share of the colour scale below which a mark has to be white
POINTS_PER_IN = 72


def plot_best_sizes(
    tables: Tables,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
) -> None:
    """Draw how often each swept size is the best one, a panel per decode variant and group.

    Args:
        tables: Decode variant to the frame of `metrics.best_size_distribution`.
        trained_block_size: B, marked by a dashed line in the band of the candidates.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
    """
    swept = {decode: table[table["among"] == "swept"] for decode, table in tables.items()}
    candidates = _sizes_of(table[table["among"] == "candidates"] for table in tables.values())
    sizes, groups = _sizes_of(swept.values()), _groups_of(tables.values())
    width = max(2.2, 0.24 * len(sizes), 8 / len(groups))  # the legend's one row needs 9 inches
    with mpl.rc_context(SETTINGS):
        height = 1.4 + 1.9 * len(tables)
        figure, panels = make_panels(len(groups), width, height, rows=len(tables))
        places = [(decode, group) for decode in tables for group in groups]
        for axes, (decode, group) in zip(panels, places, strict=True):
            rows = swept[decode][swept[decode]["group"] == group]
            axes.tick_params(axis="x", which="minor", length=0)
            _mark_sizes(axes, sizes, candidates, trained_block_size)
            _draw_best_sizes(axes, rows, sizes)
            axes.set_title(f"{decode}, {group}, n = {rows['count'].sum()}", fontsize=SMALL)
        _name_sizes(panels[-len(groups) :], sizes, "best block size B* (tokens)")
        highest = max(table["share_high"].max() for table in swept.values())
        panels[0].set_ylim(0, min(104, 106 * highest))
        figure.supylabel("share of requests (%)", fontsize=SETTINGS["font.size"])
        share_legend(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_tau_heatmap(
    tables: Tables,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
) -> None:
    """Draw tau of every request (rows) at every swept size (columns) as a colour.

    A panel per group and decode variant; each is sorted by itself, by best size and then by tau.

    Args:
        tables: Decode variant to the frame of `metrics.tau_by_prompt`.
        trained_block_size: B, named below its column.
    """
    sizes, groups = _sizes_of(tables.values()), _groups_of(tables.values())
    scale = Normalize(vmin=1, vmax=max(1.5, *(table["tau"].max() for table in tables.values())))
    heights = _heights_in([_most_requests(tables.values(), group) for group in groups])
    width = max(2.2, 0.24 * len(sizes), 4.4 / len(tables))
    with mpl.rc_context(SETTINGS):
        height = 1.5 + sum(heights) + 0.28 * len(groups)
        figure, panels = make_panels(len(tables), width, height, rows=len(groups))
        panels[0].get_gridspec().set_height_ratios(heights)
        places = [(group, decode) for group in range(len(groups)) for decode in tables]
        for axes, (group, decode) in zip(panels, places, strict=True):
            rows = tables[decode][tables[decode]["group"] == groups[group]]
            _draw_taus(axes, rows, sizes, scale, heights[group])
            heading = f"{decode}, {groups[group]}, n = {_num_requests(rows)}"
            axes.set_title(heading, fontsize=SMALL)
        bottom = panels[-len(tables) :]
        _name_sizes(bottom, sizes, "block size b (tokens)", trained_block_size)
        panels[0].set(ylim=(1, 0), yticks=[])
        for axes in panels:
            axes.spines[:].set_visible(False)
            axes.tick_params(which="both", length=0)
        figure.supylabel("requests, by B* and then by tau", fontsize=SETTINGS["font.size"])
        colours = ScalarMappable(scale, mpl.colormaps["viridis"])
        label = "tau (committed tokens per round)"
        figure.colorbar(colours, ax=panels, aspect=45, pad=0.01, label=label)
        _explain_marks(figure)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def _groups_of(tables: Iterable[pd.DataFrame]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table["group"]))


def _sizes_of(tables: Iterable[pd.DataFrame]) -> list[int]:
    return sorted({int(size) for table in tables for size in table["block_size"]})


def _num_requests(rows: pd.DataFrame) -> int:
    return len(rows[["prompt_id", "seed"]].drop_duplicates())


def _most_requests(tables: Iterable[pd.DataFrame], group: str) -> int:
    return max(_num_requests(table[table["group"] == group]) for table in tables)


def _places(sizes: list[int]) -> np.ndarray:  # [s]
    """Return where the columns of the sizes are; sizes that were not swept leave a gap."""
    return np.arange(len(sizes)) + GAP * np.cumsum(np.diff(sizes, prepend=sizes[0]) > 1)


def _name_sizes(
    panels: Iterable[Axes], sizes: list[int], text: str, trained_block_size: int | None = None
) -> None:
    """Name the columns of panels that share their x axis, "..." where sizes were not swept."""
    places = _places(sizes)
    names = [f"{size}\n= B" if size == trained_block_size else f"{size}" for size in sizes]
    gaps = [(a + b) / 2 for a, b in pairwise(places) if b - a > 1]
    for axes in panels:
        axes.set_xticks(places, names)
        axes.set_xticks(gaps, ["…"] * len(gaps), minor=True)
        axes.set_xlim(-0.6, places[-1] + 0.6)
        axes.set_xlabel(text)


def _mark_sizes(
    axes: Axes, sizes: list[int], candidates: list[int], trained_block_size: int
) -> None:
    """Mark B and the candidates behind the bars."""
    low, high = np.interp([candidates[0], candidates[-1]], sizes, _places(sizes))
    label = f"candidates {candidates[0]} to {candidates[-1]}"
    axes.axvspan(low - 0.5, high + 0.5, color=GREY, alpha=0.25, linewidth=0, zorder=0, label=label)
    trained = np.interp(trained_block_size, sizes, _places(sizes))
    label = f"trained block size B = {trained_block_size}"
    axes.axvline(trained, color=GREY, linestyle="--", linewidth=1.2, zorder=0.5, label=label)


def _draw_best_sizes(axes: Axes, rows: pd.DataFrame, sizes: list[int]) -> None:
    rows = rows.set_index("block_size").reindex(sizes)
    percent = 100 * rows[["share", "share_low", "share_high"]]
    ties = 100 * rows["n_ties"] / rows["count"].sum()
    places = _places(sizes)
    stack_ties(axes, places, percent["share"] - ties, ties)
    ends = percent["share_low"], percent["share_high"]
    axes.vlines(places, *ends, color=BLACK, linewidth=1.1, label="95 % interval (Wilson)")


def _heights_in(counts: list[int]) -> np.ndarray:
    """Return the heights of panels with so many requests, in proportion but none too low."""
    return np.maximum(LOWEST_IN, min(REQUEST_IN, ALL_IN / sum(counts)) * np.array(counts))


def _draw_taus(
    axes: Axes, rows: pd.DataFrame, sizes: list[int], scale: Normalize, height_in: float
) -> None:
    """Draw the requests of a panel, each as high as the others, on an axis from 0 to 1."""
    if rows.empty:
        return
    taus = rows.pivot(index=["prompt_id", "seed"], columns="block_size", values="tau")
    taus = taus.reindex(columns=sizes).to_numpy()  # [n, s]
    best = np.nanargmax(taus, axis=1)  # the first, hence smallest, of the best
    order = np.lexsort((-np.nanmax(taus, axis=1), best))
    taus, best, places = taus[order], best[order], _places(sizes)
    # Whole pixels for every run of columns: a vector per cell would make a heavy file.
    for run in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(places) > 1) + 1):
        extent = (places[run[0]] - 0.5, places[run[-1]] + 0.5, 1, 0)
        axes.imshow(taus[:, run], "viridis", scale, aspect="auto", interpolation="none",
                    extent=extent)  # fmt: skip
    is_dark = scale(np.nanmax(taus, axis=1)) < DARK
    heights = (np.arange(len(taus)) + 0.5) / len(taus)
    dot = min(4.0, 0.8 * height_in * POINTS_PER_IN / len(taus))
    for chosen, colour in ((is_dark, "white"), (~is_dark, BLACK)):
        style = {"linestyle": "none", "marker": "o", "markersize": dot, "markeredgewidth": 0}
        axes.plot(places[best[chosen]], heights[chosen], color=colour, **style)


def _explain_marks(figure: Figure) -> None:
    label = "B*, the best size of the request, the smallest of ties (white on dark colours)"
    dot = Line2D([], [], color=BLACK, linestyle="none", marker="o", markersize=4, label=label)
    figure.legend(handles=[dot], loc="outside lower center")
