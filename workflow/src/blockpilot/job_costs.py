"""What the jobs of a run took, from the files that Snakemake's `benchmark:` writes."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class _Job(NamedTuple):
    rule: str
    seconds: float
    memory_mb: float
    end_s: float


def job_costs(folder: str | Path) -> dict:
    """Return what the jobs of a run took.

    Args:
        folder: `{rule}.tsv`, `{rule}/{decode}.tsv` and deeper.

    Returns:
        rule_s: job seconds per rule; rule_mb: the largest memory of one of its jobs, where
        it was seen; wall_s: seconds in which at least one job ran, so that pauses between
        two calls do not count.
    """
    jobs = [job for path in sorted(Path(folder).rglob("*.tsv")) for job in _read(path, folder)]
    rules = sorted({job.rule for job in jobs})
    seconds = {name: sum(job.seconds for job in jobs if job.rule == name) for name in rules}
    memory = {name: max(job.memory_mb for job in jobs if job.rule == name) for name in rules}
    return {
        "rule_s": {name: round(value, 2) for name, value in seconds.items()},
        "rule_mb": {name: round(value, 1) for name, value in memory.items() if value > 0},
        "wall_s": round(_covered((job.end_s - job.seconds, job.end_s) for job in jobs), 1),
    }


def _read(path: Path, folder: str | Path) -> Iterable[_Job]:
    rule = path.relative_to(folder).parts[0].removesuffix(".tsv")
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            yield _Job(rule, float(row["s"]), _number(row["max_rss"]), path.stat().st_mtime)


def _number(text: str) -> float:
    """Return a number; 0 where a job was too short to be looked at."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of a union of intervals."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered
