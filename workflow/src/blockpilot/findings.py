"""Where the best block size lies: every request's B* among 1..2B, and how far it is from B."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from blockpilot.errors import bad_input
from blockpilot.groups import (
    REQUEST,
    check_same_requests,
    columns_of,
    count_tokens,
    locate_splits,
    prompt_weights,
    ratio_by_prompt,
    split_groups,
    with_tau,
)

RADII = (1, 2, 3)
SPLITS = ("train", "validation", "test")
FACTS = ["conversation_id", "dataset", "domain"]


def findings_table(
    grid: pd.DataFrame,
    prompts: pd.DataFrame,
    trained_block_size: int,
    splits: Sequence[str] = SPLITS,
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of requests whose best block size is near the trained one, per group.

    B* is the smallest size with the largest tau among 1..2B; a tie is a request where several
    sizes have it.

    Args:
        grid: GRID rows; those that verify what they draft are read.
        prompts: At least prompt_id, conversation_id, dataset, domain and split.
        trained_block_size: B.
        splits: Splits to keep.
        out_of_domain: Names of data sets that get groups of their own.
        resamples: Bootstrap resamples, drawn with `seed`.
        seed: Of the resamples.

    Returns:
        n (requests with a round), n_ties, n_clear, and for k = 1, 2, 3 with 95 % intervals over
        conversations: share_within_k of all (|B* - B| <= k), share_within_k_clear of those
        without a tie, any_within_k (one of the best sizes is within k).

    Raises:
        BlockPilotError: If a size is missing or sizes were not evaluated on the same requests.
    """
    best = _best_sizes(grid, prompts, trained_block_size, splits, out_of_domain)
    table: list[dict] = []
    for group, members in split_groups(best, out_of_domain).items():
        everyone, weights = prompt_weights(members, resamples, seed)
        n_ties = int(members["is_tie"].sum())
        row = {"group": group, "n": len(members), "n_ties": n_ties}
        row["n_clear"] = len(members) - n_ties
        for k in RADII:
            for name, of in (
                (f"share_within_{k}", "is_request"),
                (f"share_within_{k}_clear", "is_clear"),
                (f"any_within_{k}", "is_request"),
            ):
                share = ratio_by_prompt(members, name, of, everyone, weights)
                row |= columns_of(name, share)
        table.append(row)
    return pd.DataFrame(table)


def finding_distribution(
    grid: pd.DataFrame,
    prompts: pd.DataFrame,
    trained_block_size: int,
    splits: Sequence[str] = SPLITS,
    out_of_domain: Sequence[str] = (),
) -> pd.DataFrame:
    """Return how often each size of 1..2B is B*, per group: count, share and n_ties.

    `n_ties` counts the requests of that size which were ties, given to it for being the smallest.
    Arguments and errors are those of `findings_table`.
    """
    best = _best_sizes(grid, prompts, trained_block_size, splits, out_of_domain)
    table: list[dict] = []
    for group, members in split_groups(best, out_of_domain).items():
        for block_size in range(1, 2 * trained_block_size + 1):
            chosen = members["best_block_size"] == block_size
            row = {"group": group, "block_size": block_size, "count": int(chosen.sum())}
            row["share"] = float(chosen.mean())
            row["n_ties"] = int((chosen & members["is_tie"]).sum())
            table.append(row)
    return pd.DataFrame(table)


def _best_sizes(
    grid: pd.DataFrame,
    prompts: pd.DataFrame,
    trained: int,
    splits: Sequence[str],
    out_of_domain: Sequence[str],
) -> pd.DataFrame:
    """Return a row per request with a round: its best sizes, and what `findings_table` sums."""
    rows = grid[grid["draft_size"] == grid["block_size"]]
    rows = with_tau(count_tokens(locate_splits(rows, prompts, splits, out_of_domain)))
    sizes = np.arange(1, 2 * trained + 1)
    missing = sorted(set(sizes.tolist()) - set(rows["block_size"].tolist()))
    if missing:
        remedy = "Replay it."
        raise bad_input("missing block size", missing[0], f"all of 1 to {sizes[-1]}", remedy)
    check_same_requests(rows, "block_size")
    taus = rows.pivot(index=REQUEST, columns="block_size", values="tau")[sizes].dropna()
    values = taus.to_numpy()
    is_best = values == values.max(axis=1, keepdims=True)
    facts = rows.drop_duplicates(REQUEST)[[*REQUEST, *FACTS]]
    return taus[[]].reset_index().assign(**_label(is_best, sizes, trained)).merge(facts, on=REQUEST)


def _label(
    is_best: np.ndarray,  # [requests, sizes]
    sizes: np.ndarray,  # [sizes]
    trained: int,
) -> dict[str, np.ndarray]:
    best = sizes[is_best.argmax(axis=1)]  # the first, hence smallest, of the best
    is_tie = is_best.sum(axis=1) > 1
    labels = {"best_block_size": best, "is_tie": is_tie, "is_clear": ~is_tie}
    labels["is_request"] = np.ones(len(best), dtype=bool)
    for k in RADII:
        is_near = np.abs(sizes - trained) <= k
        within = np.abs(best - trained) <= k
        labels[f"share_within_{k}"] = within
        labels[f"share_within_{k}_clear"] = within & ~is_tie
        labels[f"any_within_{k}"] = (is_best & is_near).any(axis=1)
    return labels
