"""The figures of comparisons: what is drafted and verified, drafting schemes, and where B* lies.

Style and promises are those of `plots`. Tables come by decode variant (T0, T1, ...), a panel each;
paths, title and group mean the same everywhere: see `plot_draft_verify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from blockpilot.groups import AVERAGE
from blockpilot.plots import (
    BLACK,
    COLOURS,
    GREY,
    SETTINGS,
    draw_curve,
    label_left,
    largest_count,
    make_panels,
    mark_trained,
    save_figure,
    share_legend,
    variant_panels,
)

Tables = Mapping[str, pd.DataFrame]
TAU_LABEL = "tau_mean (committed tokens per round)"
# Column, label, colour and marker of what is drafted.
DRAFTS = (
    ("tau_same", "draft b", BLACK, "o"),
    ("tau_trained", "draft B", COLOURS[0], "s"),
    ("tau_double", "draft 2B", COLOURS[1], "^"),
)
SCHEMES = {"match": (BLACK, "o"), "coupled": (COLOURS[0], "s"), "rejection": (COLOURS[1], "^")}
# How far from B the finding holds that the figure marks.
MARKED_RADIUS = 2


def plot_draft_verify(
    tables: Tables,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
    group: str = AVERAGE,
) -> None:
    """Draw tau_mean against the verified tokens, a line per size of the draft behind them.

    Args:
        tables: Decode variant to the frame of `comparisons.draft_verify_table`.
        trained_block_size: B.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
        group: The group to draw.
    """
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.4, height=4.4)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            rows = table[table["group"] == group]
            for name, label, colour, marker in DRAFTS:
                label = label.replace("2B", f"2B = {2 * trained_block_size}")
                style = {"marker": marker, "linewidth": 1.4, "label": f"{label}, verify b"}
                draw_curve(axes, rows, name, colour, **style)
            mark_trained(axes, trained_block_size)
            axes.set_title(f"decode {decode}, {group}, n = {largest_count(rows['n'])}")
            axes.set_xlabel("verified tokens b (anchor included)")
        label_left(panels, TAU_LABEL)
        _finish_curves(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_schemes(
    tables: Tables,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
) -> None:
    """Draw tau_mean against block size, a line per scheme, a panel per decode variant and group.

    Args:
        tables: Decode variant to the frame of `comparisons.schemes_table`.
        trained_block_size: Marked by a dashed line.
    """
    groups = list(dict.fromkeys(name for table in tables.values() for name in table["group"]))
    count = len(groups)
    with mpl.rc_context(SETTINGS):
        height = 1.2 + 2.4 * len(tables)
        figure, panels = make_panels(count, width=2.5, height=height, rows=len(tables))
        for index, axes in enumerate(panels):
            decode, group = list(tables)[index // count], groups[index % count]
            rows = tables[decode][tables[decode]["group"] == group]
            _draw_schemes(axes, rows)
            mark_trained(axes, trained_block_size)
            axes.set_title(f"{decode}, {group}, n = {largest_count(rows['n'])}")
        for axes in panels[-count:]:
            axes.set_xlabel("block size b (tokens)")
        # One for all rows: a row is lower than the label is long.
        figure.supylabel(TAU_LABEL, fontsize=SETTINGS["font.size"])
        _finish_curves(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_findings(
    distributions: Tables,
    findings: Tables,
    trained_block_size: int,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
    group: str = AVERAGE,
) -> None:
    """Draw how often each size is the best one; what was a tie is hollow.

    Args:
        distributions: Decode variant to the frame of `findings.finding_distribution`.
        findings: Decode variant to the frame of `findings.findings_table`.
        trained_block_size: B, marked by a dashed line in a band of B - 2 to B + 2.
    """
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(distributions), width=4.8, height=4.0)
        for axes, (decode, table) in zip(panels, distributions.items(), strict=True):
            found = findings[decode].set_index("group").loc[group]
            _draw_distribution(axes, table[table["group"] == group], int(found["n"]))
            _mark_finding(axes, trained_block_size)
            heading = f"decode {decode}, {group}, n = {int(found['n'])}"
            heading += f" ({int(found['n_ties'])} ties)"
            axes.set_title(f"{heading}\n{_shares(found)}")
            axes.set_xlabel("best block size B* (the smallest of ties)")
        panels[0].set_xlim(0.3, 2 * trained_block_size + 0.7)
        label_left(panels, "share of requests (%)")
        share_legend(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def stack_ties(axes: Axes, places: ArrayLike, clear: pd.Series, ties: pd.Series) -> None:
    """Draw bars of what was clearly best at a size and, hollow on top, of what was a tie.

    Args:
        axes: The panel.
        places: Where each bar stands.
        clear: Its filled height.
        ties: Its hollow height.
    """
    style = {"width": 0.72, "edgecolor": COLOURS[0], "linewidth": 1}
    hollow = style | {"facecolor": "white", "hatch": "////"}
    hollow["label"] = "ties, counted at the smallest"
    # An empty bar would still have an edge.
    filled = style | {"facecolor": COLOURS[0], "label": "one best size"}
    axes.bar(places, clear.where(clear > 0), **filled)
    axes.bar(places, ties.where(ties > 0), bottom=clear, **hollow)


def _draw_schemes(axes: Axes, rows: pd.DataFrame) -> None:
    for scheme, own in rows.groupby("scheme", sort=False):
        colour, marker = SCHEMES[scheme]
        draw_curve(axes, own, "tau_mean", colour, marker=marker, linewidth=1.4, label=scheme)


def _finish_curves(figure: Figure, panels: Sequence[Axes]) -> None:
    panels[0].set_ylim(bottom=0)
    panels[0].xaxis.get_major_locator().set_params(integer=True)
    share_legend(figure, panels)


def _draw_distribution(axes: Axes, rows: pd.DataFrame, count: int) -> None:
    clear = 100 * (rows["count"] - rows["n_ties"]) / count
    stack_ties(axes, rows["block_size"], clear, 100 * rows["n_ties"] / count)


def _mark_finding(axes: Axes, trained_block_size: int) -> None:
    ends = [trained_block_size + sign * (MARKED_RADIUS + 0.5) for sign in (-1, 1)]
    label = f"B - {MARKED_RADIUS} to B + {MARKED_RADIUS}"
    axes.axvspan(*ends, color=GREY, alpha=0.25, linewidth=0, zorder=0, label=label)
    mark_trained(axes, trained_block_size)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _shares(found: pd.Series) -> str:
    parts = []
    for k in (1, 2, 3):
        value, *ends = (100 * found[f"share_within_{k}{end}"] for end in ("", "_low", "_high"))
        interval = f" [{ends[0]:.0f}, {ends[1]:.0f}]" if np.isfinite(ends).all() else ""
        parts.append(f"±{k}: {value:.0f}{interval} %")
    return "within B " + ",  ".join(parts)
