"""The published numbers of a run, looked up by table, row and column and printed as text.

Nothing is rounded or guessed silently: what is missing, not unique or empty is an error that names
table, filter and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.tables import render

OUTCOME = re.compile(r"(\d+)(?: of |/)(\d+)$")
RST_ONLY = re.compile(r"^\.\. |:\w+:`|\{\{|\{%|`_|\n\s*\n", re.MULTILINE)
REPUBLISH = "Publish the run again (make publish) or correct the template."

# Wraps what a lookup prints; the tests use it to tell looked-up numbers from written ones.
Mark = Callable[[str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One row of a published table, whose columns it prints.

    A column NAME may have its interval beside it, in NAME_low and NAME_high. Before printing,
    `minus` is subtracted (1 turns a ratio into what it adds) and the rest multiplied by `scale`
    (1000 prints seconds as milliseconds, -1 a gain as a loss).

    Attributes:
        where: The table and the filter, for errors.
        row: Values by column.
        mark: Wraps every printed number.
    """

    where: str
    row: Mapping[str, object]
    mark: Mark = str

    def value(self, column: str) -> float:
        """Return a number, to be computed with.

        Raises:
            BlockPilotError: If the column is missing, empty or not a number.
        """
        value = self._find(column)
        if isinstance(value, str):
            raise bad_input(f"{column} of {self.where}", value, "a number", REPUBLISH)
        return float(value)

    def number(self, column: str, decimals: int, scale: float = 1, minus: float = 0) -> str:
        """Return e.g. "2.40"."""
        return self.mark(_digits((self.value(column) - minus) * scale, decimals))

    def count(self, column: str) -> str:
        """Return a whole number, e.g. "1,013,015"."""
        value = self.value(column)
        if not value.is_integer():
            raise bad_input(f"{column} of {self.where}", value, "a whole number", "Use `number`.")
        return self.mark(_digits(value, 0))

    def interval(
        self, column: str, decimals: int | None = None, scale: float = 1, minus: float = 0
    ) -> str:
        """Return e.g. "2.40 [2.25, 2.54]"; by default with the decimals of the tables."""
        ends = self._ends(column, scale, minus)
        if decimals is not None:
            middle, low, high = (_digits(value, decimals) for value in ends)
            return self.mark(f"{middle} [{low}, {high}]")
        frame = pd.DataFrame([ends], columns=["x", "x_low", "x_high"])
        return self.mark(render(frame, {"x": "x"}).iat[0, 0])

    def percent(self, column: str, decimals: int = 0, minus: float = 0) -> str:
        """Return a share, e.g. "93 %"."""
        return self.mark(_percent(self.value(column) - minus, decimals))

    def percent_interval(self, column: str, decimals: int = 0, minus: float = 0) -> str:
        """Return a share with its interval, e.g. "93 % [89, 97]"."""
        middle, low, high = (_digits(x, decimals) for x in self._ends(column, 100, minus))
        return self.mark(f"{middle} % [{low}, {high}]")

    def text(self, column: str) -> str:
        """Return what the column says, e.g. the date of a benchmark."""
        return self.mark(str(self._find(column)))

    def last_number(self, column: str) -> str:
        """Return the last number of a text, e.g. "8" of "best fixed, b=8"."""
        numbers = re.findall(r"\d+", str(self._find(column)))
        if not numbers:
            raise bad_input(f"{column} of {self.where}", self.row[column], "a number", REPUBLISH)
        return self.mark(numbers[-1])

    def all_of(self, column: str) -> str:
        """Return "all 36" for a text that ends in "36/36" or "36 of 36", "35 of 36" for 35/36."""
        found = OUTCOME.search(str(self._find(column)))
        if not found:
            value = self.row[column]
            raise bad_input(f"{column} of {self.where}", value, "PART/WHOLE", REPUBLISH)
        return self.mark(_all_of(*map(int, found.groups())))

    def _find(self, column: str) -> object:
        if column not in self.row:
            raise bad_input(f"column of {self.where}", column, f"one of {[*self.row]}", REPUBLISH)
        if pd.isna(self.row[column]):
            raise bad_input(f"{column} of {self.where}", self.row[column], "a value", REPUBLISH)
        return self.row[column]

    def _ends(self, column: str, scale: float, minus: float) -> list[float]:
        names = (column, f"{column}_low", f"{column}_high")
        middle, *ends = ((self.value(name) - minus) * scale for name in names)
        return [middle, *sorted(ends)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The files of docs/RUN and the captions of their figures.

    A filter is given as column=value; a list allows any of its values, and a text that ends in
    "*" any that begins like it.
    """

    folder: Path
    captions: Path
    mark: Mark = str
    frames: dict[Path, pd.DataFrame] = field(default_factory=dict, repr=False)

    def cell(self, table: str, /, **filters: object) -> Cell:
        """Return the only row of tables/TABLE.csv that passes the filters."""
        return self._only(f"tables/{table}.csv", filters)

    def extreme(self, table: str, column: str, /, sign: int = 1, **filters: object) -> Cell:
        """Return the row of tables/TABLE.csv with the largest (sign -1: smallest) column."""
        rows = self._rows(f"tables/{table}.csv", filters)
        index = (sign * rows[column]).idxmax()
        return Cell(
            where=f"{table}.csv, row {index}", row=rows.loc[index].to_dict(), mark=self.mark
        )

    def bench(self, table: str, /, **filters: object) -> Cell:
        """Return the only row of bench/TABLE.csv that passes the filters."""
        return self._only(f"bench/{table}.csv", filters)

    def manifest(self, key: str, decimals: int = 0, scale: float = 1) -> str:
        """Return an entry of manifest.json by its dotted name, e.g. "machine.cores"."""
        value = self._entry(key)
        if isinstance(value, str):
            return self.mark(value)
        return Cell(where="manifest.json", row={key: value}, mark=self.mark).number(
            key, decimals, scale
        )

    def rows(self, table: str, /, **filters: object) -> str:
        """Return how many rows of a table pass the filters."""
        return self.mark(_digits(len(self._rows(f"tables/{table}.csv", filters)), 0))

    def total(self, table: str, column: str, /, **filters: object) -> str:
        """Return the sum of a column over the rows that pass the filters."""
        return self.mark(_digits(self._sum(table, column, filters), 0))

    def share(
        self, table: str, part: str, whole: str, /, decimals: int = 0, **filters: object
    ) -> str:
        """Return the sum of one column as a percentage of another's."""
        parts = self._sum(table, part, filters) / self._sum(table, whole, filters)
        return self.mark(_percent(parts, decimals))

    def all_of(self, table: str, part: str, whole: str, /, **filters: object) -> str:
        """Return "all 216" if two columns have the same sum, else e.g. "215 of 216"."""
        parts, wholes = (int(self._sum(table, name, filters)) for name in (part, whole))
        return self.mark(_all_of(parts, wholes))

    def prompts(self, split: str | None = None) -> str:
        """Return the number of in-domain prompts, of one split or all."""
        outside = self._entry("config.prompts.out_of_domain")
        filters = {} if split is None else {"split": split}
        rows = self._rows("tables/datasets.csv", filters)
        return self.mark(_digits(rows.loc[~rows["dataset"].isin(outside), "prompts"].sum(), 0))

    def job_share(self, *rules: str, decimals: int = 0) -> str:
        """Return how much of all jobs' seconds the jobs of some rules took, in percent."""
        spent_s = sum(self._entry(f"rule_s.{rule}") for rule in rules)
        return self.mark(_percent(spent_s / sum(self._entry("rule_s").values()), decimals))

    def job_memory_gb(self) -> str:
        """Return the most memory that a job of the run took, in units of 1000 MB."""
        return self.mark(_digits(max(self._entry("rule_mb").values()) / 1000, 1))

    def ratio(self, numerator: float, denominator: float, decimals: int = 0) -> str:
        """Return the ratio of two cells, given by their `value`."""
        return self.mark(_digits(numerator / denominator, decimals))

    def caption(self, name: str) -> str:
        """Return a figure's caption of the report, one paragraph, as Markdown."""
        path = self.captions / f"{name}.rst"
        text = read_text(path, "Write the caption.").strip()
        if foreign := RST_ONLY.search(text):
            remedy = "README.md shows it, too: one paragraph of words, *emphasis* and ``code``."
            raise bad_input(str(path), foreign.group(), "text that Markdown can show", remedy)
        return text.replace("``", "`")

    def _entry(self, key: str) -> object:
        value = json.loads(read_text(self.folder / "manifest.json", REPUBLISH))
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                allowed = f"one of {sorted(value)}" if isinstance(value, dict) else "no more names"
                raise bad_input(f"{name!r} in manifest.json", key, allowed, REPUBLISH)
            value = value[name]
        return value

    def _sum(self, table: str, column: str, filters: Mapping[str, object]) -> float:
        path = f"tables/{table}.csv"
        rows = self._rows(path, filters)
        cells = (Cell(where=_place(path, filters), row=row) for row in rows.to_dict("records"))
        return sum(cell.value(column) for cell in cells)

    def _only(self, path: str, filters: Mapping[str, object]) -> Cell:
        rows, where = self._rows(path, filters), _place(path, filters)
        if len(rows) > 1:
            raise bad_input(where, f"{len(rows)} rows", "one row", "Add to the filter.")
        return Cell(where=where, row=rows.to_dict("records")[0], mark=self.mark)

    def _rows(self, path: str, filters: Mapping[str, object]) -> pd.DataFrame:
        rows = self._frame(self.folder / path)
        for column, value in filters.items():
            if column not in rows:
                allowed = f"one of {[*rows]}"
                raise bad_input(f"filter of {path}", column, allowed, "Correct the template.")
            rows = rows[_passes(rows[column], value)]
        if rows.empty:
            raise bad_input(_place(path, filters), "0 rows", "one row or more", REPUBLISH)
        return rows

    def _frame(self, path: Path) -> pd.DataFrame:
        if path not in self.frames:
            if not path.is_file():
                raise bad_input("published table", str(path), "a file", REPUBLISH)
            self.frames[path] = pd.read_csv(path)
        return self.frames[path]


def _passes(values: pd.Series, wanted: object) -> pd.Series:
    if isinstance(wanted, str) and wanted.endswith("*"):
        return values.astype(str).str.startswith(wanted[:-1])
    return values.isin(wanted if isinstance(wanted, list) else [wanted])


def _place(path: str, filters: Mapping[str, object]) -> str:
    return f"{path} where {', '.join(f'{k}={v!r}' for k, v in filters.items()) or 'any'}"


def _digits(value: float, decimals: int) -> str:
    return f"{value:z,.{decimals}f}"  # z: what rounds to zero has no sign


def _percent(share: float, decimals: int) -> str:
    return f"{_digits(100 * share, decimals)} %"


def _all_of(part: int, whole: int) -> str:
    return f"all {whole:,}" if part == whole else f"{part:,} of {whole:,}"


def read_text(path: Path, remedy: str) -> str:
    """Return a file's text; `remedy` says what to do where there is none."""
    if not path.is_file():
        raise bad_input("file", str(path), "one that exists", remedy)
    return path.read_text(encoding="utf-8")
