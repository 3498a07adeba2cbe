"""What a round costs: measured or hand-written times, interpolated in block size and context.

A latency table has one row per component (`draft`, `verify`, `ar`, `select`), block_size,
context_tokens, batch_size and dtype, with median_s, p10_s, p90_s and the count n of timed runs;
n = 0 marks a value that was written by hand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from blockpilot.errors import BlockPilotError, bad_input

REQUIRED = ("draft", "verify")
POINT = ["component", "context_tokens", "block_size"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyModel:
    """Seconds of a round, from the medians of a latency table at one batch size.

    Linear in block size: constant below the smallest size, beyond the largest along the line
    through the last two. Linear in context: constant beyond both ends.

    Attributes:
        medians_s: {component: {context_tokens: {block_size: seconds}}}, keys ascending.
    """

    medians_s: Mapping[str, Mapping[int, Mapping[int, float]]]
    # Bounds ask for every anchor of every text: contexts and times per component and block size.
    _at_size: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def from_table(cls, frame: pd.DataFrame, batch_size: int = 1) -> LatencyModel:
        """Return the model of a latency table's rows at `batch_size`.

        Raises:
            BlockPilotError: If the batch size does not occur, draft or verify have no rows, a
                median is not positive and finite, or a point occurs twice.
        """
        rows = frame[frame["batch_size"] == batch_size].sort_values(POINT)
        if rows.empty:
            known = ", ".join(str(size) for size in sorted(frame["batch_size"].unique()))
            remedy = "Choose one of these or measure this one."
            raise bad_input("batch_size of the latency table", batch_size, known or "none", remedy)
        _check_rows(rows)
        medians_s: dict = {}
        for row in rows.itertuples():
            sizes = medians_s.setdefault(row.component, {}).setdefault(int(row.context_tokens), {})
            sizes[int(row.block_size)] = float(row.median_s)
        return cls(medians_s=medians_s)

    def draft_s(self, block_size: int, context_tokens: int) -> float:
        """Return the seconds that drafting a block takes; 0 at size 1, which drafts nothing."""
        return 0.0 if block_size == 1 else self._time_s("draft", block_size, context_tokens)

    def verify_s(self, block_size: int, context_tokens: int) -> float:
        """Return the seconds that verifying `block_size` tokens takes, the anchor included."""
        return self._time_s("verify", block_size, context_tokens)

    def round_s(self, draft_size: int, verify_size: int, context_tokens: int) -> float:
        """Return the seconds of a round that drafts and verifies these sizes."""
        drafting_s = self.draft_s(draft_size, context_tokens)
        return drafting_s + self.verify_s(verify_size, context_tokens)

    def ar_s(self, context_tokens: int) -> float:
        """Return the seconds of an autoregressive token.

        Raises:
            BlockPilotError: If the table has no rows of the component ar.
        """
        if "ar" not in self.medians_s:
            raise _missing("ar", self.medians_s)
        return self._time_s("ar", 1, context_tokens)

    def _time_s(self, component: str, block_size: int, context_tokens: int) -> float:
        key = component, block_size
        if key not in self._at_size:
            self._at_size[key] = self._times_by_context(component, block_size)
        contexts, times = self._at_size[key]
        # Plain Python: on single numbers several times faster than np.interp.
        right = bisect_right(contexts, context_tokens)
        if right in (0, len(contexts)):
            return times[0] if right == 0 else times[-1]
        low, high = contexts[right - 1 : right + 1]
        share = (context_tokens - low) / (high - low)
        return times[right - 1] + share * (times[right] - times[right - 1])

    def _times_by_context(self, component: str, block_size: int) -> tuple[list[int], list[float]]:
        """Return a component's contexts and its seconds at this size in each of them."""
        contexts = self.medians_s[component]
        times = [_in_size(block_size, list(m), list(m.values())) for m in contexts.values()]
        if min(times) <= 0:
            where = f"the {component} time extrapolated to block size {block_size}"
            remedy = "Measure larger block sizes; the last two fall."
            raise bad_input(where, min(times), "seconds above 0", remedy)
        return list(contexts), times


def hand_written_table(settings: Mapping, dtype: str) -> list[dict]:
    """Return a latency table's rows of config values; they hold at every context.

    Args:
        settings: draft_ms and verify_ms, mappings of block size (int or str) to milliseconds,
            and optionally ar_ms, milliseconds.
        dtype: Goes into the rows.

    Raises:
        BlockPilotError: If a key is unknown or missing, or a block size is no positive integer.
    """
    keys = {f"{component}_ms" for component in REQUIRED}
    if not keys <= set(settings) <= keys | {"ar_ms"}:
        allowed = "draft_ms, verify_ms and optionally ar_ms"
        raise bad_input("keys of the hand-written latency", list(settings), allowed, "Rename them.")
    rows = [
        _row(component, _block_size(component, key), ms, dtype)
        for component in REQUIRED
        for key, ms in settings[f"{component}_ms"].items()
    ]
    return rows + ([_row("ar", 1, settings["ar_ms"], dtype)] if "ar_ms" in settings else [])


def _in_size(block_size: int, sizes: Sequence[int], times: Sequence[float]) -> float:
    """Return the time at a block size from the times at some sizes, ascending."""
    if block_size <= sizes[-1] or len(sizes) == 1:
        return float(np.interp(block_size, sizes, times))
    slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    return times[-1] + slope * (block_size - sizes[-1])


def _check_rows(rows: pd.DataFrame) -> None:
    for component in REQUIRED:
        if component not in set(rows["component"]):
            raise _missing(component, rows["component"].unique())
    median_s = rows["median_s"].astype(float)
    bad = rows[~(np.isfinite(median_s) & (median_s > 0))]
    if len(bad):
        where, value = f"median_s of {_name(bad.iloc[0])}", float(bad.iloc[0]["median_s"])
        raise bad_input(where, value, "finite seconds above 0", "Measure it again.")
    twice = rows[rows.duplicated(POINT)]
    if len(twice):
        where = f"the number of latency rows of {_name(twice.iloc[0])}"
        raise bad_input(where, "above 1", "one row", "Pass the rows of one dtype and one run.")


def _name(row: pd.Series) -> str:
    return f"{row['component']} (block size {row['block_size']}, context {row['context_tokens']})"


def _missing(component: str, found: Sequence[str] | Mapping) -> BlockPilotError:
    remedy = f"Measure {component} or write it by hand."
    return bad_input(
        "components of the latency table", list(found), f"lists that name {component}", remedy
    )


def _block_size(component: str, key: int | str) -> int:
    if not (str(key).isdecimal() and int(key) >= 1):
        remedy = "Use block sizes as keys."
        raise bad_input(f"a block size of {component}_ms", key, "integers >= 1", remedy)
    return int(key)


def _row(component: str, block_size: int, ms: float, dtype: str) -> dict:
    seconds = float(ms) / 1000
    return {
        "component": component,
        "block_size": block_size,
        "context_tokens": 0,
        "batch_size": 1,
        "dtype": dtype,
        "median_s": seconds,
        "p10_s": seconds,
        "p90_s": seconds,
        "n": 0,
    }
