"""The figures: tau against block size, and speedup by policy.

Every call draws on its own figure inside `rc_context`, so that no setting leaks, and writes files
whose bytes depend on the data alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from blockpilot.metrics import AVERAGE, is_bound
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
        figure, panels = _panels(len(tables), width=4.4, height=4.4)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            _draw_tau(axes, table, trained_block_size)
            axes.set_title(f"decode {decode}")
        panels[0].set_ylabel("tau_mean (committed tokens per round)")
        panels[0].set_ylim(bottom=0)
        figure.suptitle(title)
        _save(figure, path_svg, path_png)


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
        figure, panels = _panels(len(rows), width=4.4, height=height)
        for axes, (decode, table) in zip(panels, rows.items(), strict=True):
            _draw_speedup(axes, table, order)
            axes.set_title(f"decode {decode}, {group}, n = {_count(table['n_timed'])} timed")
        # Set once for the shared axis, or a later panel's intervals would be cut off.
        longest = max(table[["speedup", "speedup_high"]].max().max() for table in rows.values())
        panels[0].set_xlim(0, 1.05 * max(1.0, longest))
        panels[0].set_yticks(range(len(order)), [_policy_label(name) for name in order])
        panels[0].set_ylim(-0.6, len(order) - 0.4)
        figure.suptitle(title)
        _save(figure, path_svg, path_png)


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(1.2 + width * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, count, sharex=True, sharey=True, squeeze=False)
    return figure, list(axes[0])


def _draw_tau(axes: Axes, table: pd.DataFrame, trained_block_size: int) -> None:
    # Six colours and seven markers pair up anew 42 times.
    styles = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    for group, own in table.groupby("group", sort=False):
        own = own.sort_values("block_size")
        colour, marker = (BLACK, "o") if group == AVERAGE else next(styles)
        axes.fill_between(
            own["block_size"], own["tau_mean_low"], own["tau_mean_high"],
            color=colour, alpha=0.15, linewidth=0,
        )  # fmt: skip
        axes.plot(
            own["block_size"], own["tau_mean"], color=colour, marker=marker, markersize=4,
            linewidth=2.2 if group == AVERAGE else 1.2,
            label=f"{group} (n = {_count(own['n'])})",
        )  # fmt: skip
    axes.axvline(
        trained_block_size, color=GREY, linestyle="--", linewidth=1.2,
        label=f"trained block size B = {trained_block_size}",
    )  # fmt: skip
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
    # Drawn by hand: a percentile interval need not contain the value, which errorbar demands.
    axes.plot(ends, [position, position], color=BLACK, linewidth=1.4, marker="|", markersize=6)
    if policy == CONTROL and np.isfinite(ends).all():
        axes.axvspan(*ends, color=GREY, alpha=0.3, linewidth=0)


def _policy_label(policy: str) -> str:
    if policy == CONTROL:
        return f"{policy} (machine noise)"
    return f"{policy} (bound)" if is_bound(policy) else policy


def _count(counts: pd.Series) -> str:
    return f"{int(counts.max())}" if len(counts) else "0"


def _save(figure: Figure, path_svg: str | Path, path_png: str | Path) -> None:
    with atomic_path(path_svg) as temporary:
        # A date in the file would make two equal figures differ.
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    with atomic_path(path_png) as temporary:
        figure.savefig(temporary, format="png", dpi=PNG_DPI)
