from __future__ import annotations

import os

import pytest

from blockpilot.job_costs import job_costs

HEAD = "s\th:m:s\tmax_rss\n"


def write(path, seconds, memory, end_s) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{HEAD}{seconds}\t0:00:00\t{memory}\n")
    os.utime(path, (end_s, end_s))


@pytest.fixture
def folder(tmp_path):
    # Seconds 90 to 100 and 95 to 105 overlap; 200 to 201 is another call.
    write(tmp_path / "train/T0.tsv", 10.0, 700.5, 100)
    write(tmp_path / "train/T1.tsv", 10.0, 800.5, 105)
    write(tmp_path / "plot.tsv", 1.0, "-", 201)
    return tmp_path


def test_seconds_and_memory_are_per_rule(folder) -> None:
    costs = job_costs(folder)
    assert costs["rule_s"] == {"plot": 1.0, "train": 20.0}
    assert costs["rule_mb"] == {"train": 800.5}


def test_the_wall_clock_counts_neither_overlaps_nor_pauses(folder) -> None:
    assert job_costs(folder)["wall_s"] == 15 + 1


def test_a_run_without_jobs_took_nothing(tmp_path) -> None:
    assert job_costs(tmp_path) == {"rule_s": {}, "rule_mb": {}, "wall_s": 0.0}
