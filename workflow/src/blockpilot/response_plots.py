"""The figures of single requests: how long responses are, and labels live beside replayed ones.

Style and promises are those of `plots`. Tables come by decode variant (T0, T1, ...), a panel each;
paths and title mean the same everywhere: see `plot_lengths`. A group keeps its colour and marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from blockpilot.plots import (
    BLACK,
    GREY,
    SETTINGS,
    group_styles,
    label_left,
    save_figure,
    share_legend,
    variant_panels,
)
from blockpilot.statistics import wilson_interval

Tables = Mapping[str, pd.DataFrame]


def plot_lengths(tables: Tables, path_svg: str | Path, path_png: str | Path, title: str) -> None:
    """Draw which share of the responses has ended by so many tokens, a line per group.

    A line reaches from the shortest to the longest response. What a limit cut off has not ended:
    such a line stops below 100 %, with a hollow mark. The bands are Wilson's intervals of the
    share at each length, as if responses were independent.

    Args:
        tables: Decode variant to the frame of `texts.length_counts`.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
    """
    styles = group_styles(name for table in tables.values() for name in table["group"])
    longest = max(table["output_tokens"].max() for table in tables.values())
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.4, height=4.2)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            for group, own in table.groupby("group", sort=False):
                _draw_lengths(axes, own, group, styles[group])
            _mark_limit(axes, table)
            axes.set_title(f"decode {decode}, n = {table['count'].sum()}")
            axes.set_xlabel("response (tokens)")
            _explain_lengths(axes)
        panels[0].set(xlim=(0, 1.03 * longest), ylim=(0, 102))
        label_left(panels, "responses that have ended (%)")
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_agreement(tables: Tables, path_svg: str | Path, path_png: str | Path, title: str) -> None:
    """Draw tau of each labelled pair as replayed against tau as decoded.

    Args:
        tables: Decode variant to the frame of `replay_control.pair_table`.
    """
    styles = group_styles(name for table in tables.values() for name in table["group"])
    largest = max(table[["tau_live", "tau_replay"]].max().max() for table in tables.values())
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=3.0, height=3.7)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            axes.axline((0, 0), slope=1, color=GREY, linewidth=1, zorder=0, label="the same tau")
            _draw_pairs(axes, table, styles)
            equal = f"{table['is_equal'].sum()} of {len(table)}"
            axes.set_title(f"decode {decode}\n{equal} pairs have the same rounds")
            axes.set_xlabel("tau, decoded live (tokens per round)")
            axes.set_aspect("equal")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(5, integer=True))
        panels[0].set(xlim=(0, 1.06 * largest), ylim=(0, 1.06 * largest))
        label_left(panels, "tau, replayed (tokens per round)")
        share_legend(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def _draw_lengths(axes: Axes, rows: pd.DataFrame, group: str, style: tuple[str, str]) -> None:
    colour, marker = style
    total, is_cut = rows["count"].sum(), rows["stop_reason"] == "length"
    cut, longest = rows.loc[is_cut, "count"].sum(), rows["output_tokens"].max()
    ended = rows[~is_cut].groupby("output_tokens")["count"].sum().cumsum()
    tokens = [rows["output_tokens"].min(), *ended.index, longest]
    share = np.array([0, *ended, total - cut]) / total
    low, high = wilson_interval(share, total)
    band = {"step": "post", "color": colour, "alpha": 0.12, "linewidth": 0}
    axes.fill_between(tokens, 100 * low, 100 * high, **band)
    lost = f"{100 * cut / total:.1f} % cut off" if cut else "none cut off"
    axes.plot(tokens, 100 * share, drawstyle="steps-post", color=colour, linewidth=1.4,
              marker=marker, markersize=4, markevery=0.12,
              label=f"{group} (n = {total}, {lost})")  # fmt: skip
    if cut:
        hollow = {"marker": marker, "markersize": 7, "markerfacecolor": "white", "color": colour}
        axes.plot(longest, 100 * share[-1], clip_on=False, zorder=3, **hollow)


def _mark_limit(axes: Axes, rows: pd.DataFrame) -> None:
    limits = rows.loc[rows["stop_reason"] == "length", "output_tokens"]
    if len(limits):
        several = "" if limits.nunique() == 1 else "at most "
        label = f"limit: {several}{limits.max()} tokens"
        axes.axvline(limits.max(), color=GREY, linestyle=":", linewidth=1.2, label=label)


def _explain_lengths(axes: Axes) -> None:
    handles, _ = axes.get_legend_handles_labels()
    handles.append(Patch(color=GREY, alpha=0.3, linewidth=0, label="95 % at each length (Wilson)"))
    # Below the panel: counts differ from panel to panel, and inside they would hide lines.
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    axes.legend(handles=handles, ncols=2, **place)


def _draw_pairs(axes: Axes, pairs: pd.DataFrame, styles: Mapping[str, tuple[str, str]]) -> None:
    for group, own in pairs.groupby("group", sort=False):
        colour, marker = styles[group]
        style = {"marker": marker, "s": 26, "linewidths": 0.8, "alpha": 0.75, "label": group}
        axes.scatter(
            own["tau_live"], own["tau_replay"], facecolor="none", edgecolor=colour, **style
        )
    other = pairs[~pairs["is_equal"]]
    if len(other):
        style = {"marker": "o", "s": 90, "facecolor": "none", "edgecolor": BLACK}
        axes.scatter(other["tau_live"], other["tau_replay"], label="different rounds", **style)
