"""Groups of prompts that tables report on, and what every table does with them.

Groups: "average" (all in-domain prompts), every domain, and every out-of-domain data set by name,
which never enters the others. Inside a group, rows are summed per prompt and all statistics share
one set of bootstrap weights over its prompts, so that every comparison is paired.
"""

# Shapes: n = prompts, r = resamples.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.statistics import Estimate, Resampled, bootstrap_weights, ratio

AVERAGE = "average"
REQUEST = ["prompt_id", "seed"]


def locate(
    frame: pd.DataFrame, prompts: pd.DataFrame, out_of_domain: Sequence[str]
) -> pd.DataFrame:
    """Add what `prompts` knows about each row: conversation_id, dataset, domain and split.

    Raises:
        BlockPilotError: If an out-of-domain data set does not occur, a prompt occurs twice, or
            one of the rows is not among the prompts.
    """
    unknown = sorted(set(out_of_domain) - set(prompts["dataset"]))
    if unknown:
        # A misspelt name would silently move its prompts into "average".
        names = sorted(set(prompts["dataset"]))
        raise bad_input("out-of-domain data set", unknown[0], str(names), "Correct the name.")
    wanted = ("conversation_id", "dataset", "domain", "split")
    added = [name for name in wanted if name in prompts and name not in frame]
    if prompts["prompt_id"].duplicated().any():
        twice = prompts.loc[prompts["prompt_id"].duplicated(), "prompt_id"].iloc[0]
        raise bad_input("prompts: prompt_id", twice, "one row per prompt", "Remove the copy.")
    rows = frame.merge(prompts[["prompt_id", *added]], on="prompt_id", how="left")
    lost = rows.loc[rows["conversation_id"].isna(), "prompt_id"]
    if len(lost):
        raise bad_input("prompt_id", lost.iloc[0], "an id of the prompts", "Run snakemake again.")
    return rows


def locate_splits(
    frame: pd.DataFrame,
    prompts: pd.DataFrame,
    splits: Sequence[str],
    out_of_domain: Sequence[str],
) -> pd.DataFrame:
    """Return the located rows of some splits.

    Raises:
        BlockPilotError: As `locate`, or if no row is left.
    """
    rows = locate(frame, prompts, out_of_domain)
    kept = rows[rows["split"].isin(splits)]
    if kept.empty:
        found = str(sorted(set(rows["split"])))
        raise bad_input("splits", list(splits), f"splits with rows: {found}", "Name one of them.")
    return kept


def split_groups(rows: pd.DataFrame, out_of_domain: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the located rows of every group that has any, "average" first.

    Raises:
        BlockPilotError: If a domain or data set has the name of another group.
    """
    inside = rows[~rows["dataset"].isin(out_of_domain)]
    groups = {AVERAGE: inside}
    others = [(name, rows[rows["dataset"] == name]) for name in out_of_domain]
    for name, members in [*inside.groupby("domain", sort=True), *others]:
        if name in groups:
            raise bad_input("group", name, "one use of a name", "Rename the domain or data set.")
        groups[name] = members
    return {name: members for name, members in groups.items() if len(members)}


def with_group(rows: pd.DataFrame, out_of_domain: Sequence[str]) -> pd.DataFrame:
    """Add the group that a located row has for itself: its domain or out-of-domain data set.

    Rows come out in the order of the groups; errors are those of `split_groups`.
    """
    groups = split_groups(rows, out_of_domain).items()
    parts = [own.assign(group=name) for name, own in groups if name != AVERAGE]
    return pd.concat(parts) if parts else rows.assign(group="")


def count_tokens(rows: pd.DataFrame) -> pd.DataFrame:
    """Add num_tokens, the sum of num_committed."""
    return rows.assign(num_tokens=rows["num_committed"].map(lambda row: int(np.sum(row))))


def with_tau(rows: pd.DataFrame) -> pd.DataFrame:
    """Add tau and has_tau (0 or 1) to rows that have num_tokens and num_rounds."""
    # A request that prefill already finished has no round, hence no tau.
    tau = rows["num_tokens"] / rows["num_rounds"].where(rows["num_rounds"] > 0)
    return rows.assign(tau=tau, has_tau=tau.notna().astype(int))


def spent_s(rows: pd.DataFrame) -> pd.Series:
    """Return the seconds of rounds and of choosing a size; NaN where a row was not timed."""
    return rows["decode_s"].astype(float) + rows["select_s"].astype(float)


def check_same_prompts(rows: pd.DataFrame, by: str) -> None:
    """Check that every value of column `by` has the same prompts.

    Raises:
        BlockPilotError: If one lacks prompts that another has.
    """
    _check_same(rows[by], rows["prompt_id"], "prompts")


def check_same_requests(rows: pd.DataFrame, by: str) -> None:
    """Check that every value of column `by` has the same prompts and seeds, each once.

    Raises:
        BlockPilotError: If one lacks requests that another has, or has one twice.
    """
    twice = rows[rows.duplicated([by, *REQUEST])]
    if len(twice):
        where = f"rows of {by} {twice[by].iloc[0]!r} for prompt {twice['prompt_id'].iloc[0]!r}"
        raise bad_input(where, "repeated", "one row per prompt and seed", "Remove the copies.")
    requests = zip(rows["prompt_id"].tolist(), rows["seed"].tolist(), strict=True)
    _check_same(rows[by], pd.Series(list(requests), index=rows.index), "requests")


def _check_same(labels: pd.Series, keys: pd.Series, what: str) -> None:
    everyone = set(keys)
    for name, own in keys.groupby(labels):
        missing = sorted(everyone - set(own))
        if missing:
            raise BlockPilotError(
                f"{labels.name} {name!r} lacks {len(missing)} of {len(everyone)} {what}, first "
                f"{missing[0]!r}; allowed: the same {what} for all. Run the missing ones."
            )


def prompt_weights(
    rows: pd.DataFrame, resamples: int, seed: int
) -> tuple[pd.Index, np.ndarray]:  # [n], [r, n]
    """Return a group's prompts, ascending, and their bootstrap weights, by conversation."""
    conversations = rows.groupby("prompt_id", sort=True)["conversation_id"].first()
    weights = bootstrap_weights(conversations.to_numpy(dtype=str), resamples, seed)
    return conversations.index, weights


def ratio_by_prompt(
    rows: pd.DataFrame, numerator: str, denominator: str, prompts: pd.Index, weights: np.ndarray
) -> Resampled:
    """Return the ratio of two columns' sums; `prompts` and `weights` are the group's.

    Args:
        rows: Rows of all prompts, or of some of them.
        numerator: Column to sum; NaN adds nothing.
        denominator: Column to sum.
        prompts: [n] as from `prompt_weights`.
        weights: [r, n]
    """
    totals = rows.groupby("prompt_id")[[numerator, denominator]].sum()
    totals = totals.reindex(prompts, fill_value=0)
    return ratio(totals[numerator], totals[denominator], weights)


def columns(name: str, estimate: Estimate) -> dict[str, float]:
    """Return an estimate as the columns NAME, NAME_low and NAME_high."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def columns_of(name: str, statistic: Resampled | None) -> dict[str, float]:
    """Return a statistic as the columns of its estimate; NaN if there is none."""
    missing = Estimate(np.nan, np.nan, np.nan)
    return columns(name, missing if statistic is None else statistic.estimate())
