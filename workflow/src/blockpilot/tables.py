"""Tables for people: Markdown and web pages with intervals, CSV with every digit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from blockpilot.metrics import is_bound
from blockpilot.provenance import write_text

REPORTED_HEADING = "Reported by the papers (other models, other hardware; not comparable)"
MS_PER_S = 1000
NUMBER = re.compile(r"[-+]?\d")
# Nothing is fetched and nothing runs: the page is the same on paper, offline and in the report.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 1.5rem; color: #1a1a1a; background: #fff; font: 14px/1.4 system-ui, sans-serif; }}
p, h2 {{ max-width: 60rem; }}
h2 {{ margin: 2.5rem 0 0.5rem; font-size: 1.1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.2rem 0.7rem; text-align: left; white-space: nowrap; }}
th {{ position: sticky; top: 0; background: #fff; box-shadow: inset 0 -2px #1a1a1a;
      vertical-align: bottom; white-space: normal; }}
.number {{ text-align: right; }}
tbody tr:nth-child(even) {{ background: #f5f5f5; }}
tbody tr.start td {{ border-top: 1px solid #999; }}
.reported {{ color: #555; }}
@media print {{
  @page {{ size: landscape; margin: 10mm; }}
  body {{ margin: 0; font-size: 7pt; }}
  th {{ position: static; }}
  th, td {{ padding: 0.1rem 0.4rem; }}
  tr {{ break-inside: avoid; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""
# Column of a summary and its heading, in the order of the main table.
MAIN_COLUMNS = {
    "group": "group",
    "policy": "policy",
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


def write_html(
    frame: pd.DataFrame,
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    caption: str = "",
    reported: Sequence[Mapping[str, object]] = (),
) -> None:
    """Write a table as one web page that needs nothing else, atomically.

    Numbers are aligned to the right, intervals stay on one line, and lines separate blocks of rows,
    such as variants and groups.

    Args:
        frame: The rows; numbers are rendered by `render`, text is kept.
        path: The .html file.
        columns: Names to show and their headings; all columns if None.
        caption: A paragraph above the table.
        reported: Rows of the papers, in a section of their own below the table.
    """
    parts = [f"<p>{escape(caption)}</p>"] if caption else []
    parts.append(_html(render(frame, columns)))
    if reported:
        rows = _html(render(pd.DataFrame(list(reported))))
        heading = f"<h2>{escape(REPORTED_HEADING)}</h2>"
        parts.append(f'<section class="reported">\n{heading}\n{rows}\n</section>')
    write_text(path, PAGE.format(title=escape(Path(path).stem), body="\n".join(parts)))


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV with every digit, atomically; what does not exist is an empty cell."""
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def write_for_people(
    frame: pd.DataFrame,
    csv: str | Path,
    md: str | Path,
    html: str | Path,
    columns: Mapping[str, str] | None = None,
    caption: str = "",
    reported: Sequence[Mapping[str, object]] = (),
    shown: pd.DataFrame | None = None,
) -> None:
    """Write one table three times: every digit as CSV; for people as Markdown and as a web page.

    Args:
        frame: The rows.
        csv: The .csv file, with all columns and nothing of the papers.
        md: The .md file.
        html: The .html file.
        columns: Names that people see and their headings; all columns if None.
        caption: A paragraph above the table, for people.
        reported: Rows of the papers, e.g. of `reported.reported_rows`, for people.
        shown: What people see instead of `frame`, e.g. its `main_table`.
    """
    write_csv(frame, csv)
    rows = frame if shown is None else shown
    write_markdown(rows, md, columns, caption, reported)
    write_html(rows, html, columns, caption, reported)


def read_by_variant(path: str | Path) -> dict[str, pd.DataFrame]:
    """Return a CSV's rows per decode variant, in file order."""
    return split_variants(pd.read_csv(path))


def split_variants(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of a table with a column `decode` per decode variant, in table order."""
    return {name: rows for name, rows in frame.groupby("decode", sort=False)}


def _markdown(text: pd.DataFrame) -> str:
    lines = [list(text.columns), ["---"] * len(text.columns), *text.to_numpy().tolist()]
    # A bar inside a cell would end the cell.
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _html(text: pd.DataFrame) -> str:
    columns = [list(text[name]) for name in text.columns]
    kinds = [' class="number"' if _is_number(column) else "" for column in columns]
    heads = [
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for name, kind in zip(text.columns, kinds, strict=True)
    ]
    lines = ["<table>", f"<thead><tr>{''.join(heads)}</tr></thead>", "<tbody>"]
    leading = columns[: next((i for i, kind in enumerate(kinds) if kind), len(kinds))]
    for *row, starts in zip(*columns, _block_starts(leading, len(text)), strict=True):
        cells = (f"<td{kind}>{escape(c)}</td>" for c, kind in zip(row, kinds, strict=True))
        start = ' class="start"' if starts else ""
        lines.append(f"<tr{start}>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def _block_starts(leading: Sequence[Sequence[str]], num_rows: int) -> list[bool]:
    """Return before which rows to draw a line: where the leading text columns change.

    The last of them varies anyway; so many of the others count that blocks have two rows or more
    on average.
    """
    for width in range(len(leading) - 1, 0, -1):
        keys = list(zip(*leading[:width], strict=True))
        starts = [False, *(above != key for above, key in pairwise(keys))]
        if 2 * (1 + sum(starts)) <= num_rows:
            return starts
    return [False] * num_rows


def _is_number(column: Sequence[str]) -> bool:
    """Return whether a column of text consists of numbers, intervals and counts like 36/36."""
    return all(NUMBER.match(cell) for cell in column if cell)


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
