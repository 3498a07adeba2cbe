"""The figures of the selector: its training, what it predicts, and what that loses.

Style and promises are those of `plots`. Tables come by decode variant (T0, T1, ...), a panel or a
column of panels each; paths and title mean the same everywhere: see `plot_training`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, floor
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from blockpilot.groups import AVERAGE
from blockpilot.plots import (
    BLACK,
    COLOURS,
    GREY,
    SETTINGS,
    column_panels,
    group_styles,
    label_left,
    save_figure,
    share_legend,
    variant_panels,
)
from blockpilot.predictions import regret_table

Tables = Mapping[str, pd.DataFrame]
TEST = "test"
# Split, colour, marker and line.
CURVES = (("train", COLOURS[0], "s", "-"), ("validation", COLOURS[1], "^", "--"))
SHARES = LinearSegmentedColormap.from_list("shares", ["#FFFFFF", COLOURS[0]])
# From this share of a row on, black figures are hard to read.
DARK_SHARE = 0.55


def plot_training(tables: Tables, path_svg: str | Path, path_png: str | Path, title: str) -> None:
    """Draw loss and accuracy against the epoch, a column of panels per decode variant.

    Args:
        tables: Decode variant to the frame of `predictions.training_table`; without its columns
            chance and NAME_majority the lines of reference are left out.
        path_svg: Vector figure.
        path_png: The same, 150 dpi.
        title: Of the whole figure.
    """
    with mpl.rc_context(SETTINGS):
        figure, rows = column_panels(len(tables), width=3.1, height=6.0, share_y="row")
        for losses, accuracies, (decode, table) in zip(*rows, tables.items(), strict=True):
            _draw_losses(losses, table)
            _draw_accuracies(accuracies, table)
            counts = "n = {} train, {} validation".format(*_last(table, "n_train", "n_validation"))
            losses.set_title(f"decode {decode}\n{counts}")
            accuracies.set_xlabel("epoch")
            accuracies.xaxis.get_major_locator().set_params(integer=True)
        rows[0][0].set_ylabel("loss (cross-entropy, nats)")
        rows[0][0].set_ylim(bottom=0)
        rows[1][0].set_ylabel("accuracy (%)")
        rows[1][0].set_ylim(0, 102)
        share_legend(figure, rows[1], columns=1 if len(tables) == 1 else 3)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_confusion(
    tables: Tables, path_svg: str | Path, path_png: str | Path, title: str, **bootstrap: int
) -> None:
    """Draw how often each size was predicted for each best size; out-of-domain prompts left out.

    Args:
        tables: Decode variant to the frame of `predictions.prediction_table`.
        bootstrap: resamples and seed of `predictions.regret_table`.
    """
    sizes = _sizes(tables.values())
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=4.0, height=4.3)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            _draw_confusion(axes, _inside(table), sizes)
            axes.set_title(_heading(decode, table, _describe_accuracy, bootstrap))
            axes.set_xlabel("predicted block size")
        label_left(panels, "best block size B* (the smallest of ties)")
        panels[0].set_xticks(sizes)
        panels[0].set_yticks(sizes)
        scale = ScalarMappable(Normalize(0, 100), SHARES)
        bar = figure.colorbar(scale, ax=panels, shrink=0.6, label="share of the row (%)")
        bar.outline.set_linewidth(0.5)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def plot_predicted(
    tables: Tables, path_svg: str | Path, path_png: str | Path, title: str, **bootstrap: int
) -> None:
    """Draw every test prompt's tau at the predicted size against the oracle's.

    Out-of-domain prompts are hollow and grey, and enter no number.

    Args:
        tables: Decode variant to the frame of `predictions.prediction_table`.
        bootstrap: resamples and seed of `predictions.regret_table`.
    """
    styles = _group_styles(tables.values())
    with mpl.rc_context(SETTINGS):
        figure, panels = variant_panels(len(tables), width=3.8, height=4.8)
        for axes, (decode, table) in zip(panels, tables.items(), strict=True):
            _draw_predicted(axes, table[table["split"] == TEST], styles)
            axes.set_title(_heading(decode, table, _describe_regret, bootstrap))
            axes.set_xlabel("tau of the oracle (bound; tokens per round)")
        label_left(panels, "tau at the predicted size (tokens per round)")
        limits = _tau_limits(tables.values())
        panels[0].set(xlim=limits, ylim=limits)
        # The same ticks on both axes, whatever the shape of the panels.
        for axis in (panels[0].xaxis, panels[0].yaxis):
            axis.set_major_locator(MaxNLocator(6, integer=True))
        share_legend(figure, panels, columns=2 if len(panels) == 1 else 3)
        figure.suptitle(title)
        save_figure(figure, path_svg, path_png)


def _last(table: pd.DataFrame, *names: str) -> list:
    return [table[name].iloc[-1] for name in names]


def _draw_losses(axes: Axes, table: pd.DataFrame) -> None:
    for split, colour, marker, line in CURVES:
        _draw_epochs(axes, table, f"{split}_loss", colour, marker=marker, linestyle=line)
    if "chance" in table:
        _draw_reference(axes, -np.log(_last(table, "chance")[0]), GREY, "", "-.")


def _draw_accuracies(axes: Axes, table: pd.DataFrame) -> None:
    percent = table.assign(
        **{name: 100 * table[name] for name in table if name.endswith("_accuracy")}
    )
    for split, colour, marker, line in CURVES:
        style = {"marker": marker, "linestyle": line, "label": split}
        _draw_epochs(axes, percent, f"{split}_accuracy", colour, **style)
    for split, colour, *_ in CURVES:
        if f"{split}_majority" in table:
            label = f"always training's most frequent size, {split}"
            share = _last(table, f"{split}_majority")[0]
            _draw_reference(axes, 100 * share, colour, label, ":")
    if "chance" in table:
        _draw_reference(axes, 100 * _last(table, "chance")[0], GREY, "guessing", "-.")


def _draw_epochs(axes: Axes, table: pd.DataFrame, name: str, colour: str, **style: object) -> None:
    # A marker per epoch would hide the line.
    every = max(1, len(table) // 8)
    axes.plot(
        table["epoch"], table[name], color=colour, markersize=4, linewidth=1.4, markevery=every,
        **style,
    )  # fmt: skip


def _draw_reference(axes: Axes, height: float, colour: str, label: str, line: str) -> None:
    if np.isfinite(height):
        axes.axhline(height, color=colour, linestyle=line, linewidth=1.2, label=label or None)


def _inside(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["split"] == TEST) & ~table["is_out_of_domain"]]


def _sizes(tables: Collection[pd.DataFrame]) -> list[int]:
    columns = ["best_block_size", "predicted_block_size"]
    found = np.concatenate([table[columns].to_numpy().ravel() for table in tables])
    return list(range(int(found.min()), int(found.max()) + 1))


def _draw_confusion(axes: Axes, rows: pd.DataFrame, sizes: Sequence[int]) -> None:
    counts = pd.crosstab(rows["best_block_size"], rows["predicted_block_size"])
    counts = counts.reindex(index=sizes, columns=sizes, fill_value=0)
    totals = counts.sum(axis=1)
    for best in sizes:
        for predicted in sizes:
            count = counts.loc[best, predicted]
            share = count / max(1, totals[best])
            corner = (predicted - 0.5, best - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=SHARES(share), edgecolor="white"))
            colour = "white" if share > DARK_SHARE else BLACK if count else GREY
            axes.text(predicted, best, count, ha="center", va="center", color=colour)
        right = Rectangle((best - 0.5, best - 0.5), 1, 1, facecolor="none", edgecolor=BLACK)
        # Above the cells that are drawn later.
        axes.add_patch(right).set_zorder(1.5)
    ends = sizes[0] - 0.5, sizes[-1] + 0.5
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _heading(
    decode: str,
    table: pd.DataFrame,
    describe: Callable[[pd.Series], str],
    bootstrap: Mapping[str, int],
) -> str:
    rows = _inside(table)
    heading = f"decode {decode}, {AVERAGE}, n = {len(rows)}"
    if rows.empty:
        return heading
    return f"{heading}\n{describe(regret_table(rows, TEST, **bootstrap).iloc[0])}"


def _describe_accuracy(found: pd.Series) -> str:
    text = f"accuracy {_interval(found, 'accuracy', '.0f', 100)} %"
    if not found["n_clear"]:
        return f"{text}\nall are ties"
    clear = _interval(found, "accuracy_clear", ".0f", 100)
    return f"{text}\nwithout ties {clear} %, n = {found['n_clear']}"


def _describe_regret(found: pd.Series) -> str:
    share = f"{100 * found['share_without_regret']:.0f} % on the diagonal"
    return f"mean regret {_interval(found, 'regret', '.2f')} tokens per round\n{share}"


def _interval(found: pd.Series, name: str, digits: str, factor: float = 1) -> str:
    value, *ends = (factor * found[f"{name}{end}"] for end in ("", "_low", "_high"))
    interval = f" [{ends[0]:{digits}}, {ends[1]:{digits}}]" if np.isfinite(ends).all() else ""
    return f"{value:{digits}}{interval}"


def _group_styles(tables: Collection[pd.DataFrame]) -> dict[str, dict]:
    """Return the style of every group's points, the same in all panels."""
    named = pd.concat([table[["group", "is_out_of_domain"]] for table in tables])
    named = named.drop_duplicates("group").set_index("group")["is_out_of_domain"]
    styles = {}
    for group, (colour, marker) in group_styles(named.index[~named]).items():
        look = {"facecolor": colour, "edgecolor": colour, "marker": marker, "alpha": 0.5}
        styles[group] = look | {"zorder": 2, "label": group}
    for group in named.index[named]:
        look = {"facecolor": "none", "edgecolor": GREY, "marker": "o", "alpha": 0.7, "zorder": 1}
        styles[group] = look | {"label": f"{group} (out of domain, in no number)"}
    return styles


def _draw_predicted(axes: Axes, rows: pd.DataFrame, styles: Mapping[str, dict]) -> None:
    for group, style in styles.items():
        own = rows[rows["group"] == group]
        axes.scatter(own["tau_oracle"], own["tau_predicted"], s=18, linewidth=0.7, **style)
    axes.axline((1, 1), slope=1, color=BLACK, linewidth=0.8, zorder=0, label="as the oracle")
    axes.set_aspect("equal")


def _tau_limits(tables: Collection[pd.DataFrame]) -> tuple[int, int]:
    columns = ["tau_predicted", "tau_oracle"]
    taus = np.concatenate([t.loc[t["split"] == TEST, columns].to_numpy().ravel() for t in tables])
    # Whole numbers, with room for markers; a run may have no test prompt.
    low, high = (taus.min(), taus.max()) if len(taus) else (1, 2)
    return floor(low - 0.1), ceil(high + 0.1)
