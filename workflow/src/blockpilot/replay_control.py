"""Replayed labels beside decoded ones: whether they agree, and what each of them costs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.groups import (
    REQUEST,
    columns_of,
    count_tokens,
    locate,
    prompt_weights,
    ratio_by_prompt,
    split_groups,
    with_group,
    with_tau,
)

LIVE, REPLAY = "live", "replay"
TOTAL = "total"
PARTS = ("trajectories", "context", "blocks")  # of replay, in the order of the work
MS_PER_S = 1000


def agreement_table(
    control: pd.DataFrame,
    prompts: pd.DataFrame,
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how well replayed rounds agree with decoded ones.

    Args:
        control: CONTROL rows: each (prompt_id, seed, block_size) once live and once replayed.
        prompts: As for `draft_verify_table`, as are the arguments below.

    Returns:
        Per group: num_pairs, of which equal_pairs have the same rounds; mismatch_share;
        num_rounds_live; equal_text ("live rows with the text of ar / live rows compared with
        it", empty without any); tau_live and tau_replay, the tau_mean over pairs.

    Raises:
        BlockPilotError: If a pair lacks one of the methods, or there are others.
    """
    pairs = _pair_methods(with_tau(count_tokens(locate(control, prompts, out_of_domain))))
    table: list[dict] = []
    for group, members in split_groups(pairs, out_of_domain).items():
        everyone, weights = prompt_weights(members, resamples, seed)
        equal = int(members["is_equal"].sum())
        row = {"group": group, "num_pairs": len(members), "equal_pairs": equal}
        row |= {"mismatch_share": 1 - equal / len(members)}
        row |= {"num_rounds_live": int(members["num_rounds"].sum())}
        texts = members["equals_ar"].dropna().astype(bool)
        row["equal_text"] = f"{texts.sum()}/{len(texts)}" if len(texts) else ""
        for name, end in (("tau_live", ""), ("tau_replay", "_replay")):
            names = f"tau{end}", f"has_tau{end}"
            row |= columns_of(name, ratio_by_prompt(members, *names, everyone, weights))
        table.append(row)
    return pd.DataFrame(table)


def pair_table(
    control: pd.DataFrame, prompts: pd.DataFrame, out_of_domain: Sequence[str] = ()
) -> pd.DataFrame:
    """Return every labelled pair: its tau when decoded and when replayed.

    Arguments and errors are those of `agreement_table`.

    Returns:
        group (domain or out-of-domain data set), prompt_id, seed, block_size, tau_live,
        tau_replay and is_equal (the same rounds).
    """
    pairs = _pair_methods(with_tau(count_tokens(locate(control, prompts, out_of_domain))))
    key = [*REQUEST, "block_size"]
    pairs = with_group(pairs.sort_values(key), out_of_domain)
    pairs = pairs.rename(columns={"tau": "tau_live"})
    return pairs[["group", *key, "tau_live", "tau_replay", "is_equal"]].reset_index(drop=True)


def cost_table(cost: pd.DataFrame) -> pd.DataFrame:
    """Return what a label cost: milliseconds per request and block size, part by part.

    Args:
        cost: COST rows of both methods. All rows of a method carry the counts of what the whole
            method labelled, so that its parts add up.

    Returns:
        Rows of method and part, a part "total" last: num_requests, num_block_sizes, total_s,
        label_ms; on the totals `speedup_of_replay`, the ratio to the total of replay.

    Raises:
        BlockPilotError: If a method is missing, or its rows differ in their counts.
    """
    parts = [_cost_of(cost[cost["method"] == method], method) for method in (LIVE, REPLAY)]
    table = pd.concat(parts, ignore_index=True)
    is_total = table["part"] == TOTAL
    replayed = table.loc[is_total & (table["method"] == REPLAY), "label_ms"].iloc[0]
    return table.assign(speedup_of_replay=(table["label_ms"] / replayed).where(is_total))


def part_size(part: str) -> int | None:
    """Return the block size that a part of live labelling stands for; None for other parts."""
    match = re.fullmatch(r"(?:b = )?(\d+)", part)
    return int(match[1]) if match else None


def _pair_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the live rows with tau and has_tau of their replay, and whether they are equal."""
    key = [*REQUEST, "block_size"]
    methods = rows.groupby(key)["method"].agg(lambda names: sorted(names))
    wrong = methods[methods.map(lambda names: names != [LIVE, REPLAY])]
    if len(wrong):
        where = "methods of prompt {!r}, seed {}, block size {}".format(*wrong.index[0])
        raise bad_input(where, wrong.iloc[0], "live and replay, once each", "Run the other one.")
    replayed = rows.loc[rows["method"] == REPLAY, [*key, "num_committed", "tau", "has_tau"]]
    pairs = rows[rows["method"] == LIVE].merge(replayed, on=key, suffixes=("", "_replay"))
    rounds = zip(pairs["num_committed"], pairs["num_committed_replay"], strict=True)
    return pairs.assign(is_equal=[list(live) == list(replay) for live, replay in rounds])


def _cost_of(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """Return a method's rows of the cost table, the total last."""
    counts = rows[["num_requests", "num_block_sizes"]].drop_duplicates()
    if len(counts) != 1:
        found = counts.to_numpy().tolist()
        allowed = "one pair, what the whole method labelled"
        remedy = "Time both methods on the same sample."
        raise bad_input(f"(num_requests, num_block_sizes) of {method}", found, allowed, remedy)
    parts = rows.sort_values("part", key=lambda names: names.map(_part_order), kind="stable")
    parts = parts[["method", "part", *counts.columns, "total_s"]]
    total = parts.iloc[[0]].assign(part=TOTAL, total_s=parts["total_s"].sum())
    table = pd.concat([parts, total])
    labels = table["num_requests"] * table["num_block_sizes"]
    return table.assign(label_ms=table["total_s"] * MS_PER_S / labels)


def _part_order(part: str) -> tuple[int, int]:
    """Named parts come first, in the order of the work, then block sizes, ascending."""
    size = part_size(part)
    if size is not None:
        return len(PARTS) + 1, size
    return (PARTS.index(part) if part in PARTS else len(PARTS)), 0
