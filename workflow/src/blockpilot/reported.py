"""Figures that the papers report, shown below our own and apart from them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from blockpilot.errors import bad_input

# Columns of workflow/resources/reported.csv that people see, and their headings.
HEADINGS = {
    "source": "reported in",
    "model": "target",
    "temperature": "T",
    "benchmark": "benchmark",
    "system": "system",
    "setting": "setting",
    "speedup": "speedup over ar",
    "tau": "tau",
    "latency_ms": "latency (ms)",
    "memory_gb": "memory (GB)",
    "parameters_b": "parameters (10^9)",
    "seen_in": "seen in",
}
# A second column with this ending holds the other end of a range.
RANGE_END = "_to"


def reported_rows(path: str | Path, table: str) -> list[dict[str, str]]:
    """Return the reported rows that belong below one of our tables.

    Digits are kept as they were printed; columns that no row of the table uses are left out.
    Figures "seen in" summaries were not checked against the paper itself.

    Args:
        path: `workflow/resources/reported.csv`.
        table: `main`, `ablations` or `overhead`.

    Returns:
        Rows of heading to text, for `reported` of `tables.write_html` and its neighbours.

    Raises:
        BlockPilotError: If nothing was reported for this table.
    """
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = frame[frame["table"] == table]
    if rows.empty:
        known = ", ".join(sorted(set(frame["table"])))
        raise bad_input("table", table, known, f"Add its figures to {path}.")
    text = {HEADINGS[name]: _with_range(rows, name) for name in HEADINGS if rows[name].any()}
    return pd.DataFrame(text).to_dict("records")


def _with_range(rows: pd.DataFrame, name: str) -> list[str]:
    ends = rows[name + RANGE_END] if name + RANGE_END in rows else [""] * len(rows)
    pairs = zip(rows[name], ends, strict=True)
    return [f"{value} to {end}" if end else value for value, end in pairs]
