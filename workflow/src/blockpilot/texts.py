"""What the decoded texts are like: how long, how they end, whether they loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

NGRAM, REPEATS = 8, 4


def loops(token_ids: Sequence[int]) -> bool:
    """Return whether some 8-gram of tokens occurs four times or more."""
    grams = zip(*(token_ids[i:] for i in range(NGRAM)), strict=False)
    return max(Counter(grams).values(), default=0) >= REPEATS


def describe_texts(trajectories: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    """Return one row per data set: n, median length, and the shares that loop and that stop.

    Args:
        trajectories: Rows of a `trajectories` artifact.
        prompts: At least prompt_id and dataset.
    """
    rows = trajectories.merge(prompts[["prompt_id", "dataset"]], on="prompt_id")
    rows = rows.assign(
        tokens=rows["output_ids"].map(len),
        loops=rows["output_ids"].map(lambda ids: loops(list(ids))),
        stops=rows["stop_reason"] == "stop",
    )
    return (
        rows.groupby("dataset")
        .agg(
            n=("tokens", "size"),
            median_output_tokens=("tokens", "median"),
            loop_share=("loops", "mean"),
            stop_share=("stops", "mean"),
            greedy_share=("greedy_share", "mean"),
        )
        .reset_index()
    )
