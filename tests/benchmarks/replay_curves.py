"""Time and memory of replaying all sizes against the length and the number of texts.

Run as a script it measures one point, read as JSON from a file; `bench_replay.py` does that for
every point. All texts are in one bucket of prompt hashes, so that the token budget alone decides
how many of them run together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from common import decode_requests, draw_prompts, load_embedded_pair, make_row, name_prompts

from blockpilot.pair import Pair
from blockpilot.progress import track
from blockpilot.replay import MEGABYTE, Replay
from blockpilot.sampling import GREEDY
from blockpilot.sweep import sweep_grid

REPLAY = "replay"
MEMORY_MB, TOKEN_BUDGET = 256, 16384  # the workflow's defaults
LENGTHS = (64, 128, 256, 512, 1024)  # tokens, and all that the context has room for
LENGTH_TEXTS = 4
COUNTS = (10, 30, 100, 300, 1000)
REPEATS, ENOUGH_S = 3, 60.0  # replays of a point; no further one after so many seconds
SAMPLE_S = 0.005
WARM_TOKENS = 16
LENGTH_CURVE, COUNT_CURVE = f"answer length, {LENGTH_TEXTS} texts", "number of texts"


def measure_curves(
    pair: Pair, prompts: dict[str, list[int]], max_new_tokens: int, threads: int
) -> list[dict]:
    """Return the rows of both curves."""
    points = length_points(pair) + count_points(pair, prompts, max_new_tokens)
    rows = []
    for curve, value, limit, requests in track(points, description="curves", unit="point"):
        found = run_point(requests, limit, threads)
        seconds = np.array(found["seconds"])
        tokens = requests["output_ids"].map(len).sum()
        setting = f"{curve}={value}"
        rows += [
            make_row(REPLAY, setting, seconds) | {"unit": "s"},
            make_row(REPLAY, setting, seconds / tokens) | {"unit": "s/token"},
            make_row(REPLAY, setting, [found["block_rows"]]) | {"unit": "block rows"},
            make_row(REPLAY, setting, seconds / found["block_rows"]) | {"unit": "s/block row"},
            make_row(REPLAY, setting, [found["peak_mb"]]) | {"unit": "MB"},
        ]
    return rows


def length_points(pair: Pair) -> list[tuple]:
    """Return (curve, value, max_new_tokens, requests) of the curve over lengths.

    Greedy texts are decoded once, without stop ids: a shorter one is a longer one's beginning.
    """
    prompts = name_prompts(draw_prompts(LENGTH_TEXTS))
    longest = pair.target.context_tokens - max(map(len, prompts.values()))
    decoded = decode_requests(pair, prompts, longest, stop_ids=())
    texts = decoded["output_ids"]
    return [
        (LENGTH_CURVE, length, length, decoded.assign(output_ids=texts.str[:length]))
        for length in (*LENGTHS, longest)
    ]


def count_points(pair: Pair, prompts: dict[str, list[int]], max_new_tokens: int) -> list[tuple]:
    """Return the same for the curve over numbers of texts, the prompts' own ones repeated."""
    decoded = decode_requests(pair, prompts, max_new_tokens, pair.stop_ids)
    points = []
    for count in COUNTS:
        repeated = decoded.iloc[np.arange(count) % len(decoded)].reset_index(drop=True)
        repeated["prompt_id"] = list(name_prompts(repeated["input_ids"]))
        points.append((COUNT_CURVE, count, max_new_tokens, repeated))
    return points


def run_point(requests: pd.DataFrame, max_new_tokens: int, threads: int) -> dict:
    """Return what `measure_point` finds in a fresh process."""
    point = {
        "max_new_tokens": max_new_tokens,
        "threads": threads,
        "requests": requests.to_dict("list"),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "point.json"
        path.write_text(json.dumps(point))
        command = [sys.executable, __file__, str(path)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def measure_point(point: dict) -> dict:
    """Return `seconds` of every replay, `peak_mb` of the first, and what they had to draft.

    `block_rows` is block size times rounds, all texts and sizes together.
    """
    pair = load_embedded_pair(point["threads"])
    replay = Replay(pair.target, pair.draft, GREEDY, MEMORY_MB)
    choices = [(size, size) for size in range(1, 2 * pair.draft.config.block_size + 1)]
    requests = pd.DataFrame(point["requests"])

    def run(rows: pd.DataFrame) -> int:
        # Rounds are dropped as they come: what is measured is the replay, not a list of results.
        found = sweep_grid(replay, rows, choices, point["max_new_tokens"], TOKEN_BUDGET)
        return sum(row["draft_size"] * row["num_rounds"] for row in found if row["draft_size"] > 1)

    # What the libraries allocate at their first use is not the replay's.
    run(requests.head(1).assign(output_ids=lambda rows: rows["output_ids"].str[:WARM_TOKENS]))
    seconds, peaks_mb, block_rows = [], [], 0
    while len(seconds) < REPEATS and sum(seconds) < ENOUGH_S:
        clock_s = time.perf_counter()
        grown_mb, block_rows = watch_memory(lambda: run(requests))
        seconds.append(time.perf_counter() - clock_s)
        peaks_mb.append(grown_mb)
    # Later ones partly reuse what the first left allocated.
    return {"seconds": seconds, "peak_mb": peaks_mb[0], "block_rows": block_rows}


def watch_memory(work: Callable[[], int]) -> tuple[float, int]:
    """Return by how many MB the resident memory grows at most during `work`, and its result."""
    start = peak = resident_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(SAMPLE_S):
            peak = max(peak, resident_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        result = work()
    finally:
        done.set()
        thread.join()
    return (peak - start) / MEGABYTE, result


def resident_bytes() -> int:
    """Return this process's resident memory now; Linux only."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(measure_point(json.loads(Path(sys.argv[1]).read_text()))))
