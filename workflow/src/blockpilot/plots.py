"""The figures: tau against block size, and speedup by policy; and the style of all figures.

Every call draws on its own figure inside `rc_context`, so that no setting leaks, and writes files
whose bytes depend on the data alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from blockpilot.groups import AVERAGE
from blockpilot.metrics import is_bound
from blockpilot.provenance import atomic_path

# Okabe and Ito's colours, told apart with every common kind of colour blindness. Markers differ
# too, for print in black and white. Yellow is left out: it vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("s", "^", "D", "v", "P", "X", "*")
BLACK, GREY = "#000000", "#999999"
CONTROL = "ar_control"
PNG_DPI = 150
SETTINGS = {
    "svg.hashsalt": "blockpilot",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "legend.fontsize": 8,
    "legend.frameon": False,
}


def plot_tau(
    tables: Mapping[str, pd.DataFrame],
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
) -> None:
    """Draw tau_mean against block size, a line per group, a panel per decode variant.

    Args:
        tables: Decode variant (T0, T1, ...) to the frame of `metrics.tau_by_block_size`.
        trained_block_size: Marked by a dashed line.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
    """
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.4, height=4.4)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            _draw_tau(axes, table, trained_block_size)
            axes.set_title(f"decode {decode}")
        label_left(panels, "tau_mean (committed tokens per round)")
        panels[0].set_ylim(bottom=0)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_speedup(
    summaries: Mapping[str, pd.DataFrame],
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
    group: str = AVERAGE,
) -> None:
    """Draw every policy's speedup over `ar` with its interval, a panel per decode variant.

    Bounds are hollow; the interval of `ar_control` is shaded: differences within it are noise of
    the machine.

    Args:
        summaries: Decode variant to the frame of `metrics.summarise_policies`.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
        group: The group to draw.
    """
    rows = {decode: _speedup_rows(table, group) for decode, table in summaries.items()}
    order = _speedup_order(list(rows.values()))
    with mpl.rc_context(SETTINGS):
        height = 1.4 + 0.27 * len(order)
        figure, panels = variant_panels(len(rows), width=4.4, height=height)
        for axes, (decode, table) in zip(panels, rows.items(), strict=True):
            _draw_speedup(axes, table, order)
            axes.set_title(f"decode {decode}, {group}, n = {largest_count(table['n_timed'])} timed")
        # Set once for the shared axis, or a later panel's intervals would be cut off.
        longest = max(table[["speedup", "speedup_high"]].max().max() for table in rows.values())
        panels[0].set_xlim(0, 1.05 * max(1.0, longest))
        panels[0].set_yticks(range(len(order)), [_policy_label(name) for name in order])
        panels[0].set_ylim(-0.6, len(order) - 0.4)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches, which makes room for all of its text itself."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def make_panels(
    columns: int, width: float, height: float, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row, which share both axes.

    Args:
        columns: Panels per row.
        width: Inches per panel.
        height: Inches of the figure.
        rows: Rows of panels.
    """
    figure = make_figure(1.2 + width * columns, height)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    return figure, list(axes.flat)


def variant_panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure and a panel per decode variant, two side by side.

    Args:
        count: Number of variants.
        width: Inches per panel.
        height: Inches per row of panels.
    """
    columns = min(count, 2)
    rows = -(-count // columns)
    figure, panels = make_panels(columns, width, height * rows, rows)
    for axes in panels:
        axes.tick_params(labelbottom=True)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def column_panels(
    columns: int, width: float, height: float, share_y: str = "none"
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure and two rows of panels, a column per decode variant.

    Args:
        columns: Number of variants.
        width: Inches per column.
        height: Inches of the figure.
        share_y: "row" or "none".
    """
    figure = make_figure(1.4 + width * columns, height)
    panels = figure.subplots(2, columns, sharex=True, sharey=share_y, squeeze=False)
    return figure, [list(row) for row in panels]


def label_left(panels: Sequence[Axes], text: str) -> None:
    """Name the y axis of the leftmost panels of `variant_panels`."""
    for axes in panels[::2]:
        axes.set_ylabel(text)


def group_styles(groups: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker per group, in order of appearance."""
    # Six colours and seven markers pair up anew 42 times.
    styles = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    return dict(zip(dict.fromkeys(groups), styles, strict=False))


def draw_curve(axes: Axes, rows: pd.DataFrame, name: str, colour: str, **style: object) -> None:
    """Draw a column against block_size, its interval as a band.

    Args:
        axes: The panel.
        rows: block_size, NAME, NAME_low and NAME_high.
        name: The column.
        colour: Of line and band.
        style: Of the line: label, marker, linewidth.
    """
    rows = rows.sort_values("block_size")
    ends = rows[f"{name}_low"], rows[f"{name}_high"]
    axes.fill_between(rows["block_size"], *ends, color=colour, alpha=0.15, linewidth=0)
    axes.plot(rows["block_size"], rows[name], color=colour, markersize=4, **style)


def mark_trained(axes: Axes, trained_block_size: int) -> None:
    """Mark the trained block size by a dashed line."""
    axes.axvline(
        trained_block_size, color=GREY, linestyle="--", linewidth=1.2,
        label=f"trained block size B = {trained_block_size}",
    )  # fmt: skip


def _draw_tau(axes: Axes, table: pd.DataFrame, trained_block_size: int) -> None:
    styles = group_styles(name for name in table["group"] if name != AVERAGE)
    for group, own in table.groupby("group", sort=False):
        colour, marker = (BLACK, "o") if group == AVERAGE else styles[group]
        width = 2.2 if group == AVERAGE else 1.2
        label = f"{group} (n = {largest_count(own['n'])})"
        draw_curve(axes, own, "tau_mean", colour, marker=marker, linewidth=width, label=label)
    mark_trained(axes, trained_block_size)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("block size b (tokens, anchor included)")
    # Below the panel: inside, the legend would hide a line.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _speedup_rows(summary: pd.DataFrame, group: str) -> pd.DataFrame:
    return summary[summary["group"] == group].set_index("policy")


def _speedup_order(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Return all policies from the bottom up: those without time, then from slow to fast."""
    order: dict[str, float] = {}
    for table in tables:
        for policy, speedup in table["speedup"].items():
            if np.isnan(order.get(policy, np.nan)):
                order[policy] = speedup
    return sorted(order, key=lambda policy: (np.nan_to_num(order[policy], nan=-1.0), policy))


def _draw_speedup(axes: Axes, table: pd.DataFrame, order: Sequence[str]) -> None:
    for position, policy in enumerate(order):
        if policy in table.index:
            _draw_bar(axes, position, policy, table.loc[policy])
    axes.axvline(1, color=BLACK, linewidth=0.8)
    noise = "\ngrey band: ar measured against itself" if CONTROL in table.index else ""
    axes.set_xlabel(f"speedup over ar (ratio of seconds per token){noise}")


def _draw_bar(axes: Axes, position: int, policy: str, row: pd.Series) -> None:
    if np.isnan(row["speedup"]):
        axes.text(0.02, position, "not timed", va="center", color=GREY, fontsize=8)
        return
    colour = GREY if policy in ("ar", CONTROL) else COLOURS[0]
    face = "none" if is_bound(policy) else colour
    axes.barh(position, row["speedup"], height=0.62, facecolor=face, edgecolor=colour)
    ends = [row["speedup_low"], row["speedup_high"]]
    draw_interval(axes, position, *ends)
    if policy == CONTROL and np.isfinite(ends).all():
        axes.axvspan(*ends, color=GREY, alpha=0.3, linewidth=0)


def _policy_label(policy: str) -> str:
    if policy == CONTROL:
        return f"{policy} (machine noise)"
    return f"{policy} (bound)" if is_bound(policy) else policy


def draw_interval(axes: Axes, position: float, low: float, high: float) -> None:
    """Draw a horizontal interval at a height."""
    # By hand: a percentile interval need not contain the value, which errorbar demands.
    axes.plot(
        [low, high], [position, position], color=BLACK, linewidth=1.4, marker="|", markersize=6
    )


def largest_count(counts: pd.Series) -> str:
    """Return the largest of some counts as text, "0" if there are none."""
    return f"{int(counts.max())}" if len(counts) else "0"


def share_legend(figure: Figure, panels: Sequence[Axes], columns: int | None = None) -> None:
    """Put one legend for all panels below them: inside, it would hide data.

    Args:
        figure: To which the legend is added.
        panels: What they label is listed once.
        columns: Of the legend; one row, or two columns below a single panel, if None.
    """
    entries: dict[str, object] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = columns or (2 if len(panels) == 1 else len(entries))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)


def save_figure(figure: Figure, path_svg: str | Path, path_png: str | Path) -> None:
    """Write a figure as SVG and as PNG of 150 dpi, atomically; equal figures give equal bytes."""
    with atomic_path(path_svg) as temporary:
        # A date in the file would make two equal figures differ.
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    with atomic_path(path_png) as temporary:
        figure.savefig(temporary, format="png", dpi=PNG_DPI)
