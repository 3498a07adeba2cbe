"""Draws the figure of `bench_replay.py` from its table, in the style of `blockpilot.plots`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from replay_curves import (
    COUNT_CURVE,
    LENGTH_CURVE,
    LENGTH_TEXTS,
    MEMORY_MB,
    REPLAY,
    TOKEN_BUDGET,
)

from blockpilot.plots import BLACK, COLOURS, GREY, SETTINGS, draw_interval, save_figure

# The start of a curve's settings, and the axis that its values are on.
CURVES = {
    LENGTH_CURVE: f"answer length (tokens), {LENGTH_TEXTS} texts",
    COUNT_CURVE: f"number of texts (token_budget = {TOKEN_BUDGET})",
}
TIME, MEMORY, WORK = "s", "MB", "block rows"


def draw_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw cost per prompt and, where measured, the curves; `path` gets the figures' endings."""
    curves = {start: curve_of(table, start) for start in CURVES}
    curves = {start: rows for start, rows in curves.items() if len(rows)}
    with mpl.rc_context(SETTINGS):
        rows = [["cost", *[start + unit for start in curves]] for unit in (TIME, MEMORY)]
        figure = Figure(figsize=(4.8 + 3.3 * len(curves), 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplot_mosaic(rows, width_ratios=[1.3, *[1.0] * len(curves)])
        draw_costs(panels["cost"], table)
        for start, rows in curves.items():
            draw_time(panels[start + TIME], *(rows[rows["unit"] == unit] for unit in (TIME, WORK)))
            draw_memory(panels[start + MEMORY], rows[rows["unit"] == MEMORY])
            panels[start + MEMORY].set_xlabel(CURVES[start])
        figure.suptitle("Labels of the embedded pair: replayed or decoded")
        save_figure(figure, path.with_suffix(".svg"), path.with_suffix(".png"))


def curve_of(table: pd.DataFrame, start: str) -> pd.DataFrame:
    """Return the rows of a curve with their place `x` on it."""
    own = table[table["setting"].str.startswith(f"{start}=")]
    return own.assign(x=own["setting"].str.split("=").str[-1].astype(int))


def draw_costs(axes: Axes, table: pd.DataFrame) -> None:
    """Draw seconds per prompt, a bar per set of sizes and system, with the ratio to replay."""
    own = table[(table["unit"] == "s/prompt") & table["ratio"].notna()]
    systems = list(own["system"].unique())
    ticks, position = [], 0.0
    for setting, rows in own.groupby("setting", sort=False):
        begin = position
        for row in rows.itertuples():
            colour = COLOURS[systems.index(row.system)]
            axes.barh(position, row.median, height=0.8, color=colour)
            draw_interval(axes, position, row.low, row.high)
            axes.text(1.03 * row.high, position, f" {describe_cost(row)}", va="center", fontsize=8)
            position += 1
        ticks.append(((begin + position - 1) / 2, setting.replace(", ", "\n")))
        position += 0.8
    axes.set_xlim(0, 2 * own["high"].max())
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.invert_yaxis()
    axes.set_xlabel("seconds per prompt, all sizes together\n(median; line: min to max of chunks)")


def describe_cost(row) -> str:
    """Return the text behind a bar."""
    if row.system == REPLAY:
        return f"{row.system}: {row.median:.2g} s"
    return f"{row.system}: {row.median:.2g} s ({row.ratio:.3g} × {REPLAY})"


def draw_time(axes: Axes, rows: pd.DataFrame, work: pd.DataFrame) -> None:
    """Draw seconds beside what they would be if linear in the x axis or in the drafted rows."""
    x, seconds = rows["x"].to_numpy(), rows["median"].to_numpy()
    axes.plot(x, seconds, color=COLOURS[0], marker="s", markersize=4, label="replay, all sizes")
    for amount, style, label in (
        (x, "--", "slope 1"),
        (work["median"].to_numpy(), ":", "constant per drafted row"),
    ):
        line = amount * np.exp(np.log(seconds / amount).mean())
        axes.plot(x, line, color=GREY, linestyle=style, linewidth=1.4, label=label, zorder=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    mark_points(axes, x)
    axes.set_ylabel("seconds")
    axes.legend(loc="lower right")


def draw_memory(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the growth of memory."""
    axes.plot(rows["x"], rows["median"], color=COLOURS[1], marker="^", markersize=4)
    label = f"memory_mb = {MEMORY_MB}"
    axes.axhline(MEMORY_MB, color=BLACK, linestyle=":", linewidth=1, label=label)
    mark_points(axes, rows["x"])
    axes.set_ylim(0, 1.4 * np.max([*rows["median"], MEMORY_MB]))
    axes.set_ylabel("growth of memory (MB)")
    axes.legend(loc="upper left")


def mark_points(axes: Axes, values: Iterable[int]) -> None:
    """Make the horizontal axis logarithmic, with ticks at the measured values."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(values), [f"{value}" for value in values])
