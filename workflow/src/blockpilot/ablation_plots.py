"""The figures of the ablations, one knob each, and of what the selector costs.

Style and promises are those of `plots`. Tables of ablations come by decode variant (T0, T1, ...),
a column of panels each; paths and title mean the same everywhere: see `plot_ablation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from blockpilot.errors import bad_input
from blockpilot.groups import AVERAGE
from blockpilot.plots import (
    BLACK,
    COLOURS,
    GREY,
    SETTINGS,
    column_panels,
    draw_interval,
    largest_count,
    make_figure,
    save_figure,
    share_legend,
)

Tables = Mapping[str, pd.DataFrame]
GAIN, SPEEDUP = "tau_gain_over_best_fixed", "speedup"
SEED_ENDS = ["tau_gain_seeds_low", "tau_gain_seeds_high"]
# How far right of its setting the range of the training seeds is drawn.
SEED_OFFSET = 0.22
# The colour of each part that costs time or memory.
PARTS = {"selector": COLOURS[0], "draft": COLOURS[1], "target": COLOURS[2], "request": GREY}
MEMORY = {"parameters_mb": ("parameters", ""), "activations_mb": ("activations", "////")}


def plot_ablation(
    tables: Tables,
    ablation: str,
    path_svg: str | Path,
    path_png: str | Path,
    title: str,
    group: str = AVERAGE,
) -> None:
    """Draw the gain in tau and the speedup against the settings of one knob.

    Speedups have axes of the same span in all panels, each around its own numbers.

    Args:
        tables: Decode variant to the frame of `ablations.ablation_table`.
        ablation: The knob, such as "radius".
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
        group: The group to draw.

    Raises:
        BlockPilotError: If no table has a row of this knob and group.
    """
    rows = {decode: _select(table, ablation, group) for decode, table in tables.items()}
    values = list(dict.fromkeys(value for own in rows.values() for value in own.index))
    if not values:
        known = sorted({name for table in tables.values() for name in table["ablation"]})
        raise bad_input("ablation", ablation, f"one of {known} with group {group!r}", "Choose it.")
    with mpl.rc_context(SETTINGS):
        # Inches for the names of the settings, side by side.
        width = len(values) * max(0.55, 0.075 * max(map(len, values)))
        figure, (gains, speedups) = column_panels(len(rows), max(2.7, width), height=6.4)
        for upper, lower, (decode, own) in zip(gains, speedups, rows.items(), strict=True):
            _draw_gains(upper, own, values)
            upper.set_title(_gain_title(decode, group, own))
            _draw_speedups(lower, own, values)
            lower.set_title(f"n = {largest_count(own['n_timed'])} timed")
            lower.set_xlabel(ablation)
        gains[0].set_ylabel("gain in tau_mean over best_fixed\n(tokens per round)")
        speedups[0].set_ylabel("speedup over ar\n(ratio of seconds per token)")
        _name_settings(gains + speedups, values, list(rows.values()))
        _set_limits(gains, speedups, list(rows.values()))
        share_legend(figure, gains + speedups, columns=1 if len(rows) == 1 else 2)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_overhead(
    table: pd.DataFrame, path_svg: str | Path, path_png: str | Path, title: str
) -> None:
    """Draw the time and memory of the selector beside those of draft, target and requests.

    Args:
        table: One row per component, in drawing order: component, part ("selector", "draft",
            "target" or "request"), n, median_ms, p10_ms, p90_ms, parameters_mb, activations_mb;
            NaN where a number does not apply.
    """
    times, sizes = table.dropna(subset=["median_ms"]), _memory_rows(table)
    with mpl.rc_context(SETTINGS):
        height = 1.6 + 0.3 * max(len(times), 1.5 * len(sizes))
        figure = make_figure(11, height)
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _draw_times(left, times)
        _draw_memory(right, sizes)
        parts = [part for part in PARTS if part in set(table["part"])]
        handles = [Patch(label=part, facecolor=PARTS[part]) for part in parts]
        handles += [
            Patch(label=label, facecolor="white", edgecolor=BLACK, hatch=hatch)
            for label, hatch in MEMORY.values()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def _select(table: pd.DataFrame, ablation: str, group: str) -> pd.DataFrame:
    own = table[(table["ablation"] == ablation) & (table["group"] == group)]
    return own.assign(value=own["value"].astype(str)).set_index("value")


def _gain_title(decode: str, group: str, rows: pd.DataFrame) -> str:
    count, seeds = largest_count(rows["n"]), largest_count(rows["num_training_seeds"])
    plural = "" if seeds == "1" else "s"
    return f"decode {decode}, {group}\nn = {count}, {seeds} training seed{plural}"


def _draw_gains(axes: Axes, rows: pd.DataFrame, values: Sequence[str]) -> None:
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="--", label="best_fixed")
    _draw_points(axes, rows, GAIN, values)
    places = _places(rows, values) + SEED_OFFSET
    ends = rows[SEED_ENDS].to_numpy(dtype=float)
    style = {"color": COLOURS[1], "linewidth": 0.9, "marker": "o", "markersize": 2.5}
    label = "smallest to largest of the training seeds"
    for place, own in zip(places, ends, strict=True):
        axes.plot([place, place], own, label=label, **style)


def _draw_speedups(axes: Axes, rows: pd.DataFrame, values: Sequence[str]) -> None:
    if rows[SPEEDUP].isna().all():
        axes.text(0.5, 0.5, "not timed", transform=axes.transAxes, ha="center", color=GREY)
        axes.set_yticks([])
        return
    places = _places(rows, values)
    style = {"color": BLACK, "linewidth": 0.8, "linestyle": "--"}
    axes.hlines(rows["speedup_best_fixed"], places - 0.5, places + 0.5, **style)
    _draw_points(axes, rows, SPEEDUP, values)
    for place in places[rows[SPEEDUP].isna()]:
        axes.text(
            place, 0.04, "not timed", transform=axes.get_xaxis_transform(), rotation=90,
            ha="center", va="bottom", color=GREY, fontsize=8,
        )  # fmt: skip


def _places(rows: pd.DataFrame, values: Sequence[str]) -> np.ndarray:
    return np.array([values.index(value) for value in rows.index], dtype=float)


def _draw_points(axes: Axes, rows: pd.DataFrame, name: str, values: Sequence[str]) -> None:
    style = {"color": COLOURS[0], "marker": "s", "markersize": 5, "linewidth": 0}
    places = _places(rows, values)
    axes.plot(places, rows[name], label="value with its 95 % interval", **style)
    ends = rows[[f"{name}_low", f"{name}_high"]].to_numpy(dtype=float)
    for place, own in zip(places, ends, strict=True):
        # By hand: a percentile interval need not contain the value, which errorbar demands.
        axes.plot([place, place], own, color=COLOURS[0], linewidth=1.4, marker="_", markersize=6)


def _name_settings(
    panels: Sequence[Axes], values: Sequence[str], tables: Sequence[pd.DataFrame]
) -> None:
    defaults = {value for own in tables for value in own.index[own["is_default"].astype(bool)]}
    names = [f"{value}\n(default)" if value in defaults else value for value in values]
    for axes in panels:
        axes.set_xticks(range(len(values)), names)
        axes.tick_params(labelbottom=True)
        for value, label in zip(values, axes.get_xticklabels(), strict=True):
            label.set_fontweight("bold" if value in defaults else "normal")
    panels[0].set_xlim(-0.5, len(values) - 0.5)


def _set_limits(
    gains: Sequence[Axes], speedups: Sequence[Axes], tables: Sequence[pd.DataFrame]
) -> None:
    """Give all gains the same axis, and all speedups axes of the same span."""
    low, high = _range(pd.concat(tables), [GAIN, f"{GAIN}_low", f"{GAIN}_high", *SEED_ENDS])
    low, high = min(0, low), max(0, high)
    margin = 0.08 * (high - low) or 0.1
    for axes in gains:
        axes.set_ylim(low - margin, high + margin)
    names = [SPEEDUP, f"{SPEEDUP}_low", f"{SPEEDUP}_high", "speedup_best_fixed"]
    ranges = [_range(own, names) for own in tables]
    half = 0.58 * max(high - low for low, high in ranges) or 0.1
    for axes, (low, high) in zip(speedups, ranges, strict=True):
        axes.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)


def _range(rows: pd.DataFrame, names: Sequence[str]) -> tuple[float, float]:
    numbers = rows[list(names)].to_numpy(dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    return (numbers.min(), numbers.max()) if numbers.size else (0.0, 0.0)


def _memory_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have memory; a part with one row is named by the part alone."""
    rows = table.dropna(subset=list(MEMORY), how="all")
    alone = ~rows["part"].duplicated(keep=False)
    return rows.assign(component=rows["component"].where(~alone, rows["part"]))


def _draw_times(axes: Axes, rows: pd.DataFrame) -> None:
    for place, row in enumerate(rows.itertuples()):
        axes.barh(place, row.median_ms, height=0.62, color=PARTS[row.part])
        draw_interval(axes, place, row.p10_ms, row.p90_ms)
        end = np.nanmax([row.median_ms, row.p90_ms])
        axes.text(end, place, f"  {row.median_ms:.3g} ms", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{r.component} (n = {r.n:.0f})" for r in rows.itertuples()])
    _finish_bars(axes, rows[["median_ms", "p10_ms", "p90_ms"]])
    axes.set_xlabel("median ms with p10 to p90, logarithmic axis")
    axes.set_title("time")


def _draw_memory(axes: Axes, rows: pd.DataFrame) -> None:
    for offset, (name, (_, hatch)) in zip((-0.2, 0.2), MEMORY.items(), strict=True):
        for place, row in enumerate(rows.itertuples()):
            size = getattr(row, name)
            if not size > 0:  # a logarithm needs more than nothing
                continue
            colour = PARTS[row.part]
            style = {"facecolor": "white" if hatch else colour, "edgecolor": colour}
            axes.barh(place + offset, size, height=0.36, hatch=hatch, **style)
            axes.text(size, place + offset, f"  {size:.3g} MB", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), rows["component"])
    _finish_bars(axes, rows[list(MEMORY)])
    axes.set_xlabel("MB, logarithmic axis")
    axes.set_title("memory")


def _finish_bars(axes: Axes, numbers: pd.DataFrame) -> None:
    """Set a logarithmic axis from the power of ten below all numbers, with room for text."""
    found = numbers.to_numpy(dtype=float)
    found = found[found > 0]
    low, high = (found.min(), found.max()) if found.size else (1.0, 10.0)
    left = 10.0 ** np.floor(np.log10(0.8 * low))
    axes.set_xscale("log")
    # The text is as long at every scale: its room is a share of the axis.
    axes.set_xlim(left, high * (high / left) ** 0.28)
    axes.set_ylim(axes.get_ylim()[::-1])
