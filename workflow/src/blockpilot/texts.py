"""What prompts and decoded texts are like: how many, how long, how they end, whether they loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from blockpilot.groups import locate, with_group

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


def length_counts(
    trajectories: pd.DataFrame, prompts: pd.DataFrame, out_of_domain: Sequence[str] = ()
) -> pd.DataFrame:
    """Return how many responses of every group have each length and end, all splits together.

    Args:
        trajectories: Rows of a `trajectories` artifact.
        prompts: At least prompt_id, conversation_id, dataset and domain.
        out_of_domain: Names of data sets that get groups of their own.

    Returns:
        group (domain or out-of-domain data set), output_tokens, stop_reason ("stop", or "length"
        where the limit cut a response off) and count.

    Raises:
        BlockPilotError: As `groups.locate`.
    """
    texts = trajectories[["prompt_id", "stop_reason"]]
    texts = texts.assign(output_tokens=trajectories["output_ids"].map(len))
    rows = with_group(locate(texts, prompts, out_of_domain), out_of_domain)
    parts = [
        own.groupby(["group", "output_tokens", "stop_reason"]).size()
        for _, own in rows.groupby("group", sort=False)
    ]
    return pd.concat(parts).rename("count").reset_index()


def describe_datasets(
    prompts: pd.DataFrame, trajectories: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return one row per data set and split: how many prompts there are, and how long they are.

    Args:
        prompts: Rows of all `prompts` artifacts.
        trajectories: Decode variant to the rows of its `trajectories` artifact.

    Returns:
        dataset, split, prompts, conversations, median, p10 and p90 of prompt_tokens, and per
        decode variant DECODE_median_output_tokens.
    """
    key = ["dataset", "split"]
    groups = prompts.assign(tokens=prompts["input_ids"].map(len)).groupby(key)
    table = groups.agg(
        prompts=("prompt_id", "nunique"),
        conversations=("conversation_id", "nunique"),
        median_prompt_tokens=("tokens", "median"),
        p10_prompt_tokens=("tokens", lambda tokens: tokens.quantile(0.1)),
        p90_prompt_tokens=("tokens", lambda tokens: tokens.quantile(0.9)),
    )
    for decode, texts in trajectories.items():
        rows = texts[["prompt_id", "output_ids"]].merge(prompts[["prompt_id", *key]])
        lengths = rows["output_ids"].map(len).groupby([rows[name] for name in key])
        table[f"{decode}_median_output_tokens"] = lengths.median()
    return table.reset_index()
