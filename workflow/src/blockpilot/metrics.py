"""From rounds and seconds to the tables: acceptance length, time, comparisons, guards.

Every row of a group is summed per prompt first. All policies (or block sizes) of a group then
share one set of bootstrap weights over its prompts, so that every comparison is paired.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.groups import (
    AVERAGE,
    REQUEST,
    check_same_prompts,
    check_same_requests,
    columns,
    count_tokens,
    locate,
    prompt_weights,
    spent_s,
    split_groups,
    with_group,
    with_tau,
)
from blockpilot.statistics import Estimate, Resampled, ratio, wilson_interval

__all__ = [
    "AVERAGE",
    "best_size_distribution",
    "check_leakage",
    "is_bound",
    "summarise_policies",
    "tau_by_block_size",
    "tau_by_prompt",
]

BOUND_PREFIXES = ("oracle", "clairvoyant")
LEARNED_PREFIX = "blockpilot"
# A policy that repeats the oracle this often on this many prompts has seen the answers.
LEAK_SHARE, LEAK_MIN_ROWS = 0.98, 50
SUMS = ["tau", "has_tau", "num_tokens", "num_rounds", "timed_s", "timed_tokens"]


def is_bound(policy: str) -> bool:
    """Return whether the policy is a bound, which knows the outcome and pays nothing."""
    return policy.startswith(BOUND_PREFIXES)


def summarise_policies(
    evaluation: pd.DataFrame,
    prompts: pd.DataFrame,
    resamples: int = 10_000,
    seed: int = 0,
    out_of_domain: Sequence[str] = (),
    split: str = "test",
) -> pd.DataFrame:
    """Return one row per group and policy, with 95 % paired intervals.

    Groups: "average" (all in-domain prompts of the split), every domain, and every out-of-domain
    data set by name, which never enters the others. `n` counts prompts x seeds with a round.

    Args:
        evaluation: EVALUATION rows; a null decode_s marks a row without time.
        prompts: At least prompt_id, conversation_id and dataset.
        resamples: Bootstrap resamples, drawn with `seed`.
        out_of_domain: Names of data sets that no policy was fitted for.

    Raises:
        BlockPilotError: If `ar` or `best_fixed` is missing, or prompts or timed rows differ.
    """
    rows = evaluation[evaluation["split"] == split]
    rows = _measure(locate(rows, prompts, out_of_domain))
    missing = sorted({"ar", "best_fixed"} - set(rows["policy"]))
    if missing:
        raise BlockPilotError(
            f"split {split!r} lacks the policies {missing}, to which the others are compared. "
            "Add them in evaluate.make_policies."
        )
    check_same_prompts(rows, "policy")
    _check_same_timed_rows(rows)
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        table += _summarise_group(group, members, resamples, seed)
    return pd.DataFrame(table)


def tau_by_block_size(
    sweep: pd.DataFrame,
    prompts: pd.DataFrame,
    splits: Sequence[str] = ("test",),
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return tau_mean and tau_pooled per group and block size.

    Arguments are as for `summarise_policies`; `prompts` also needs domain and split.

    Raises:
        BlockPilotError: If block sizes were not swept on the same prompts.
    """
    rows = locate(sweep, prompts, out_of_domain)
    rows = rows[rows["split"].isin(splits)]
    rows = _measure(count_tokens(rows).assign(decode_s=np.nan, select_s=np.nan))
    check_same_prompts(rows, "block_size")
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        statistics = _statistics(members, "block_size", resamples, seed)
        for block_size, own in members.groupby("block_size", sort=True):
            row = {"group": group, "block_size": int(block_size), "n": int(own["has_tau"].sum())}
            for name in ("tau_mean", "tau_pooled"):
                row |= columns(name, statistics[block_size][name].estimate())
            table.append(row)
    return pd.DataFrame(table)


def tau_by_prompt(
    sweep: pd.DataFrame,
    prompts: pd.DataFrame,
    out_of_domain: Sequence[str] = (),
    split: str = "test",
) -> pd.DataFrame:
    """Return tau of every request of a split and every block size.

    Arguments are as for `tau_by_block_size`; requests without a round have no tau and no row.

    Returns:
        group (domain or out-of-domain data set), prompt_id, seed, block_size and tau.

    Raises:
        BlockPilotError: If block sizes were not swept on the same requests.
    """
    rows = locate(sweep, prompts, out_of_domain)
    rows = with_tau(count_tokens(rows[rows["split"] == split]))
    check_same_requests(rows, "block_size")
    key = [*REQUEST, "block_size"]
    rows = with_group(rows.dropna(subset=["tau"]).sort_values(key), out_of_domain)
    return rows[["group", *key, "tau"]].reset_index(drop=True)


def best_size_distribution(
    pairs: pd.DataFrame,
    prompts: pd.DataFrame,
    splits: Sequence[str] = ("train", "validation", "test"),
    out_of_domain: Sequence[str] = (),
) -> pd.DataFrame:
    """Return how often each block size is the best of all swept ones and of the candidates.

    `n_ties` counts the rows of that size which were ties, given to it for being the smallest:
    of the objective among "candidates" (as labelled), of tau among "swept". The share has
    Wilson's 95 % interval, which says something even where a size is never the best, with a
    count of conversations: the turns of one are not independent.
    """
    rows = locate(pairs[pairs["split"].isin(splits)], prompts, out_of_domain)
    table: list[dict] = []
    for group, members in split_groups(rows, out_of_domain).items():
        swept_ties = members["tau_by_block_size"].map(_has_tie)
        conversations = members["conversation_id"].nunique()
        for among, sizes, best, ties in (
            ("swept", "block_sizes", "best_block_size_swept", swept_ties),
            ("candidates", "candidates", "best_block_size", members["is_tie"]),
        ):
            for block_size in sorted({int(b) for row in members[sizes] for b in row}):
                chosen = members[best] == block_size
                row = {"group": group, "among": among, "block_size": block_size}
                row |= {"count": int(chosen.sum())}
                share = float(chosen.mean())
                row |= columns("share", Estimate(share, *wilson_interval(share, conversations)))
                row["n_ties"] = int((chosen & ties.astype(bool)).sum())
                table.append(row)
    return pd.DataFrame(table)


def check_leakage(evaluation: pd.DataFrame, pairs: pd.DataFrame, prompts: pd.DataFrame) -> None:
    """Stop a run whose test results cannot be believed.

    Raises:
        BlockPilotError: If test and train share a prompt or a conversation, or if a learned
            policy chooses as the oracle does on >= 98 % of at least 50 test rows without ties.
    """
    splits = [frame[["prompt_id", "split"]] for frame in (evaluation, pairs, prompts)]
    _check_disjoint(pd.concat(splits), "prompt_id")
    _check_disjoint(prompts, "conversation_id")
    key = ["prompt_id", "seed"]
    clear = pairs.loc[~pairs["is_tie"].astype(bool), key]
    rows = evaluation[evaluation["split"] == "test"].dropna(subset=["block_size"]).merge(clear)
    oracle = rows.loc[rows["policy"] == "oracle", [*key, "block_size"]]
    for policy, own in rows[rows["policy"].str.startswith(LEARNED_PREFIX)].groupby("policy"):
        both = own.merge(oracle, on=key, suffixes=("", "_oracle"))
        share = (both["block_size"] == both["block_size_oracle"]).mean()
        if len(both) >= LEAK_MIN_ROWS and share >= LEAK_SHARE:
            raise BlockPilotError(
                f"policy {policy!r} chooses as the oracle does on {share:.1%} of {len(both)} test "
                f"rows without ties; allowed: below {LEAK_SHARE:.0%}. It has seen the test labels: "
                "look for test prompts among its training data."
            )


def _check_disjoint(frame: pd.DataFrame, column: str) -> None:
    test = set(frame.loc[frame["split"] == "test", column])
    shared = sorted(test & set(frame.loc[frame["split"] == "train", column]))
    if shared:
        raise bad_input(
            f"{column} in both train and test ({len(shared)} in all)",
            shared[0],
            "every prompt and conversation in one split",
            "Pin the data set (prompts.datasets.NAME.split) or remove the copies.",
        )


def _measure(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that are summed per prompt; untimed rows add nothing to time."""
    timed = rows["decode_s"].notna()
    spent = spent_s(rows)
    if spent[timed].isna().any():
        policy = rows.loc[timed & spent.isna(), "policy"].iloc[0]
        raise bad_input(f"select_s of {policy}", None, "seconds, 0 if none", "Evaluate it again.")
    return with_tau(rows).assign(
        timed=timed,
        timed_s=spent.where(timed, 0.0),
        timed_tokens=rows["num_tokens"].where(timed, 0),
    )


def _check_same_timed_rows(rows: pd.DataFrame) -> None:
    timed = rows[rows["timed"]].set_index(["prompt_id", "seed"])
    expected = set(timed.index[timed["policy"] == "ar"])
    for policy, own in timed.groupby("policy"):
        if set(own.index) != expected:
            raise BlockPilotError(
                f"policy {policy!r} was timed on {len(own)} rows that are not the {len(expected)} "
                "rows of `ar`; allowed: the same prompts and seeds. Evaluate them together."
            )


def _statistics(
    rows: pd.DataFrame, by: str, resamples: int, seed: int
) -> dict[object, dict[str, Resampled]]:
    """Return tau_mean, tau_pooled and tpot_s of every `by`, all under the same weights."""
    prompts, weights = prompt_weights(rows, resamples, seed)
    totals = rows.groupby([by, "prompt_id"])[SUMS].sum()
    statistics = {}
    for name in rows[by].unique():
        own = totals.loc[name].reindex(prompts)
        statistics[name] = {
            "tau_mean": ratio(own["tau"], own["has_tau"], weights),
            "tau_pooled": ratio(own["num_tokens"], own["num_rounds"], weights),
            "tpot_s": ratio(own["timed_s"], own["timed_tokens"], weights),
        }
    return statistics


def _summarise_group(group: str, rows: pd.DataFrame, resamples: int, seed: int) -> list[dict]:
    statistics = _statistics(rows, "policy", resamples, seed)
    table = []
    for policy, own in rows.groupby("policy", sort=True):
        n_tau, n_timed = int(own["has_tau"].sum()), int(own["timed"].sum())
        row = {"policy": policy, "group": group, "n": n_tau, "n_timed": n_timed}
        for name, estimate in _compare(statistics[policy], statistics).items():
            row |= columns(name, estimate)
        equal = own["equals_ar"].dropna().astype(bool)
        row["equal_text"] = f"{equal.sum()}/{len(equal)}" if len(equal) else ""
        row["is_bound"] = is_bound(policy)
        row["block_size_mean"] = float(_block_sizes(own).mean())
        table.append(row)
    return table


def _compare(
    own: dict[str, Resampled], everyone: dict[object, dict[str, Resampled]]
) -> dict[str, Estimate]:
    ar, best_fixed = everyone["ar"], everyone["best_fixed"]
    gain = own["tau_mean"] - best_fixed["tau_mean"]
    headroom = everyone.get("oracle", best_fixed)["tau_mean"] - best_fixed["tau_mean"]
    is_known = headroom.estimate().excludes(0)
    gap_closed = (gain / headroom).estimate() if is_known else Estimate(np.nan, np.nan, np.nan)
    return {
        "tau_mean": own["tau_mean"].estimate(),
        "tau_pooled": own["tau_pooled"].estimate(),
        "tpot_s": own["tpot_s"].estimate(),
        "speedup": (ar["tpot_s"] / own["tpot_s"]).estimate(),
        "tau_gain_over_best_fixed": gain.estimate(),
        "speedup_over_best_fixed": (best_fixed["tpot_s"] / own["tpot_s"]).estimate(),
        "gap_closed": gap_closed,
    }


def _block_sizes(rows: pd.DataFrame) -> pd.Series:
    """Return each request's block size; for per-round policies, the mean over its rounds."""
    per_round = rows["block_sizes"].map(lambda sizes: np.mean(sizes) if len(sizes) else np.nan)
    return rows["block_size"].astype(float).fillna(per_round.astype(float))


def _has_tie(objective: Sequence[float]) -> bool:
    return int(np.sum(np.asarray(objective) == np.max(objective))) > 1
