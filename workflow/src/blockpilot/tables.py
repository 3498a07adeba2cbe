"""Tables for people: Markdown with intervals, CSV with every digit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from blockpilot.metrics import is_bound
from blockpilot.provenance import write_text

REPORTED_HEADING = "Reported by the paper (other models, other hardware; not comparable)"
MS_PER_S = 1000
# Column of a summary and its heading, in the order of the main table.
MAIN_COLUMNS = {
    "policy": "policy",
    "group": "group",
    "n": "n",
    "tau_mean": "tau_mean",
    "tau_pooled": "tau_pooled",
    "tpot_ms": "TPOT (ms)",
    "speedup": "speedup over ar",
    "tau_gain_over_best_fixed": "tau gain over best fixed",
    "speedup_over_best_fixed": "speedup over best fixed",
    "gap_closed": "gap closed",
    "equal_text": "text equal to ar",
}


def main_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary of `metrics.summarise_policies` as text, times in milliseconds."""
    frame = summary.copy()
    for end in ("", "_low", "_high"):
        frame[f"tpot_ms{end}"] = frame[f"tpot_s{end}"] * MS_PER_S
    names = [f"{name} (bound)" if is_bound(name) else name for name in frame["policy"]]
    several = {"decode": "decode"} if "decode" in frame else {}
    return render(frame.assign(policy=names), several | MAIN_COLUMNS)


def render(frame: pd.DataFrame, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a frame of text: `columns` maps names to headings (default: all, as they are).

    A column with `_low` and `_high` beside it is rendered as "4.21 [4.10, 4.33]".
    """
    headings = columns or {name: name for name in frame.columns}
    text = {}
    for name, heading in headings.items():
        if f"{name}_low" in frame and f"{name}_high" in frame:
            ends = (frame[f"{name}_low"], frame[f"{name}_high"])
            text[heading] = [_interval(*row) for row in zip(frame[name], *ends, strict=True)]
        else:
            text[heading] = [_cell(value) for value in frame[name]]
    return pd.DataFrame(text, columns=list(headings.values()), dtype=object)


def write_markdown(
    frame: pd.DataFrame,
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    caption: str = "",
    reported: Sequence[Mapping[str, object]] = (),
) -> None:
    """Write a Markdown table, atomically.

    Args:
        frame: The rows; numbers are rendered by `render`, text is kept.
        path: The .md file.
        columns: Names to show and their headings; all columns if None.
        caption: A paragraph above the table.
        reported: Rows of the paper, in a block of their own below the table, so that nobody
            reads them as measured here.
    """
    parts = [caption] if caption else []
    parts.append(_markdown(render(frame, columns)))
    if reported:
        parts += [f"**{REPORTED_HEADING}**", _markdown(render(pd.DataFrame(list(reported))))]
    write_text(path, "\n\n".join(parts) + "\n")


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV with every digit, atomically; what does not exist is an empty cell."""
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def read_by_variant(path: str | Path) -> dict[str, pd.DataFrame]:
    """Return a CSV's rows per decode variant, in file order."""
    return {name: rows for name, rows in pd.read_csv(path).groupby("decode", sort=False)}


def _markdown(text: pd.DataFrame) -> str:
    lines = [list(text.columns), ["---"] * len(text.columns), *text.to_numpy().tolist()]
    # A bar inside a cell would end the cell.
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _cell(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.{_decimals(value)}f}"
    return str(value)


def _interval(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return ""
    if math.isnan(low) or math.isnan(high):
        return _cell(float(value))
    decimals = _decimals(value, low, high)
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _decimals(*values: float) -> int:
    """Return the decimals for about three significant digits of the largest value."""
    largest = max(abs(value) for value in values)
    if largest == 0 or not math.isfinite(largest):
        return 2
    decimals = max(2 - math.floor(math.log10(largest)), 0)
    return min(decimals, 3) if largest >= 0.01 else decimals
