"""Checks of generated text: does it loop, stop, calculate and parse?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from blockpilot.pocket.arithmetic import final_answer
from blockpilot.pocket.programs import parses
from blockpilot.texts import loops


def is_correct(domain: str, response: str, reference: str) -> bool | None:
    """Return whether a response is right, as far as a program can tell; None for prose."""
    if domain == "arithmetic":
        return final_answer(response) == final_answer(reference)
    if domain == "code":
        return parses(response)
    return None


def text_quality(rows: Sequence[dict]) -> dict[str, dict[str, float]]:
    """Summarise responses per domain.

    Args:
        rows: Each with domain, output_ids, stop_reason, response and reference texts.

    Returns:
        Per domain: n, median_tokens, loop_share, stop_share, correct_share (None for prose).
    """
    summary = {}
    for domain in sorted({row["domain"] for row in rows}):
        own = [row for row in rows if row["domain"] == domain]
        correct = [is_correct(domain, row["response"], row["reference"]) for row in own]
        summary[domain] = {
            "n": len(own),
            "median_tokens": median(len(row["output_ids"]) for row in own),
            "loop_share": sum(loops(row["output_ids"]) for row in own) / len(own),
            "stop_share": sum(row["stop_reason"] == "stop" for row in own) / len(own),
            "correct_share": None if domain == "prose" else sum(correct) / len(own),
        }
    return summary
