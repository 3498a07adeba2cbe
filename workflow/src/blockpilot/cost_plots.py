"""The figures of costs: what a label costs, and what bounds gain over the best fixed size.

Style and promises are those of `plots`. Tables come by decode variant (T0, T1, ...), a panel each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from blockpilot.groups import AVERAGE
from blockpilot.plots import (
    BLACK,
    COLOURS,
    SETTINGS,
    draw_interval,
    largest_count,
    save_figure,
    share_legend,
    variant_panels,
)
from blockpilot.replay_control import LIVE, REPLAY, TOTAL, part_size

Tables = Mapping[str, pd.DataFrame]
OBJECTIVES = {
    "rounds": ("tokens per round", COLOURS[0], "-"),
    "time": ("modelled seconds per token", COLOURS[1], "--"),
}
BOUNDS = ("oracle", "clairvoyant", "clairvoyant_verify")
GAINS = [f"gain_over_best_fixed{end}" for end in ("", "_low", "_high")]
METHODS = (REPLAY, LIVE)
HATCHES = ("", "///", "...", "xxx", "++")


def plot_cost(tables: Tables, path_svg: str | Path, path_png: str | Path, title: str) -> None:
    """Draw what a label costs when it is decoded and when it is replayed, part by part.

    Args:
        tables: Decode variant to the frame of `replay_control.cost_table`.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
    """
    styles = _part_styles(tables.values())
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.4, height=2.6)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            totals = table[table["part"] == TOTAL].set_index("method")
            _draw_costs(axes, table[table["part"] != TOTAL], totals, styles)
            counts = totals.loc[REPLAY, ["num_requests", "num_block_sizes"]]
            sample = "n = {} requests x {} sizes".format(*counts)
            ratio = totals.loc[LIVE, "speedup_of_replay"]
            axes.set_title(f"decode {decode}, live / replay = {ratio:.3g}\n{sample}")
            axes.set_xlabel("ms per label (request and block size)")
        longest = max(table["label_ms"].max() for table in tables.values())
        panels[0].set_xlim(0, 1.25 * longest)  # room for the numbers behind the bars
        panels[0].set_yticks(range(len(METHODS)), METHODS)
        panels[0].set_ylim(-0.6, 1.6)
        columns = 2 if len(panels) == 1 else 4
        figure.legend(handles=_part_legend(styles), loc="outside lower center", ncols=columns)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_bounds(
    tables: Tables,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
    group: str = AVERAGE,
) -> None:
    """Draw the gains of all bounds over the best fixed size; hollow, as bounds are.

    Args:
        tables: Decode variant to the frame of `headroom.bounds_table`.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
        group: The group to draw.
    """
    rows = {
        decode: table[(table["group"] == group) & table["policy"].isin(BOUNDS)]
        for decode, table in tables.items()
    }
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.4, height=3.2)
        for axes, (decode, table) in zip(panels, rows.items(), strict=True):
            _draw_gains(axes, table)
            axes.set_title(f"decode {decode}, {group}, n = {largest_count(table['n'])}")
            axes.set_xlabel("gain over the best fixed block size (%)")
        gains = 100 * pd.concat([table[GAINS] for table in rows.values()])
        lowest, longest = min(0, gains.min().min()), max(1e-9, gains.max().max())
        panels[0].set_xlim(1.1 * lowest, 1.3 * longest)  # room for the numbers behind the bars
        panels[0].set_yticks(range(len(BOUNDS)), [f"{name} (bound)" for name in BOUNDS])
        panels[0].set_ylim(len(BOUNDS) - 0.4, -0.6)
        share_legend(figure, panels)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def _part_styles(tables: Iterable[pd.DataFrame]) -> dict[str, dict]:
    """Return the bar style of every part; block sizes get shades, from light to dark."""
    parts = list(dict.fromkeys(part for table in tables for part in table["part"]))
    sizes = sorted(filter(part_size, parts), key=part_size)
    named = [part for part in parts if part not in sizes and part != TOTAL]
    styles = {}
    for part, colour, hatch in zip(named, cycle(COLOURS), cycle(HATCHES), strict=False):
        # The edge's colour is the hatch's; as a line it would cover a short bar.
        styles[part] = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
    for size, shade in zip(sizes, np.linspace(0.85, 0.35, len(sizes)), strict=True):
        styles[size] = {"facecolor": str(shade), "edgecolor": "white", "linewidth": 0.6}
    return styles


def _part_legend(styles: Mapping[str, dict]) -> list[Patch]:
    sizes = list(filter(part_size, styles))
    handles = [Patch(label=part, **styles[part]) for part in styles if part not in sizes]
    if sizes:
        ends = " to ".join(str(part_size(part)) for part in dict.fromkeys((sizes[0], sizes[-1])))
        label = f"decoding at b = {ends}, left to right"
        handles.append(Patch(label=label, **styles[sizes[len(sizes) // 2]]))
    return handles


def _draw_costs(
    axes: Axes, parts: pd.DataFrame, totals: pd.DataFrame, styles: Mapping[str, dict]
) -> None:
    for position, method in enumerate(METHODS):
        own, left = parts[parts["method"] == method], 0.0
        for part, ms in zip(own["part"], own["label_ms"], strict=True):
            axes.barh(position, ms, left=left, height=0.6, **styles[part])
            left += ms
        text = f" {totals.loc[method, 'label_ms']:.3g} ms"
        if not any(map(part_size, own["part"])):
            # Short parts cannot be read off the bar.
            text += f" = {' + '.join(f'{ms:.3g}' for ms in own['label_ms'])}"
        axes.text(left, position, text, va="center")


def _draw_gains(axes: Axes, rows: pd.DataFrame) -> None:
    objectives = [name for name in OBJECTIVES if name in set(rows["objective"])]
    for index, objective in enumerate(objectives):
        label, colour, line = OBJECTIVES[objective]
        own = rows[rows["objective"] == objective].set_index("policy")[GAINS] * 100
        places = np.arange(len(BOUNDS)) + 0.4 * index - 0.2 * (len(objectives) - 1)
        style = {"facecolor": "none", "edgecolor": colour, "linestyle": line, "label": label}
        axes.barh(places, own.loc[list(BOUNDS), GAINS[0]], height=0.34, **style)
        for place, bound in zip(places, BOUNDS, strict=True):
            draw_interval(axes, place, *own.loc[bound, GAINS[1:]])
            text = f"  {own.loc[bound, GAINS[0]]:+.1f} %"
            axes.text(own.loc[bound].max(), place, text, va="center", fontsize=8)
    axes.axvline(0, color=BLACK, linewidth=0.8)
