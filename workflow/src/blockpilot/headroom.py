"""What choosing block sizes could gain at best: bounds over the best fixed size, per group.

Every request's acceptance table is rebuilt from its stored row and walked: at the best fixed
size, at the request's own best size (oracle), and with the best choice in every round
(clairvoyant). All but the first know the text in advance: bounds, not policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise

import pandas as pd

from blockpilot.acceptance import AcceptanceTable
from blockpilot.bounds import RoundCost, all_choices, clairvoyant, walk_cost
from blockpilot.errors import bad_input
from blockpilot.groups import (
    REQUEST,
    columns_of,
    locate_splits,
    prompt_weights,
    ratio_by_prompt,
    split_groups,
)
from blockpilot.latency import LatencyModel
from blockpilot.rounds import limit_tokens
from blockpilot.statistics import Resampled

ROUNDS, TIME = "rounds", "time"
FIXED = "best_fixed"
# From the dearest to the cheapest: each may choose all that the one before it may.
POLICIES = (FIXED, "oracle", "clairvoyant", "clairvoyant_verify")
FACTS = ["conversation_id", "dataset", "domain"]
REPLAY_AGAIN = "Replay the request again."
CACHED_ROUNDS = 2**18

Coster = Callable[[int], RoundCost | None]  # of prompt tokens


def bounds_table(
    acceptance: pd.DataFrame,
    trajectories: pd.DataFrame,
    prompts: pd.DataFrame,
    *,
    block_sizes: Sequence[int],
    best_fixed: int,
    max_new_tokens: int,
    latency: LatencyModel | None = None,
    splits: Sequence[str] = ("test",),
    out_of_domain: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return tokens per round and modelled seconds per token of the bounds, per group.

    Args:
        acceptance: ACCEPTANCE rows.
        trajectories: TRAJECTORIES rows of the same requests; the vectors are not read.
        prompts: PROMPTS rows.
        block_sizes: Sizes of a draft, and of what is verified.
        best_fixed: The size chosen on training prompts, one of them.
        max_new_tokens: As decoded.
        latency: Without it there is no objective "time".
        splits: Splits to keep.
        out_of_domain: Names of data sets that get groups of their own.
        resamples: Bootstrap resamples, drawn with `seed`.
        seed: Of the resamples.

    Returns:
        Rows of group, objective and policy. Objective "rounds": value is tau_mean; "time": value
        is seconds per committed token, pooled. Every policy is the best for the objective.
        gain_over_best_fixed is the ratio less 1, positive where it is better than best_fixed. n
        counts requests with a round. 95 % intervals are paired, over conversations.

    Raises:
        BlockPilotError: If a request does not fit its trajectory, a block is unknown, or a bound
            is worse than what it bounds.
    """
    rows = locate_splits(acceptance, prompts, splits, out_of_domain)
    costs = request_costs(
        rows[list(acceptance.columns)],
        trajectories,
        prompts,
        block_sizes=block_sizes,
        best_fixed=best_fixed,
        max_new_tokens=max_new_tokens,
        latency=latency,
    )
    check_bounds(costs)
    costs = costs.merge(rows[[*REQUEST, *FACTS]], on=REQUEST)
    table: list[dict] = []
    for group, members in split_groups(costs, out_of_domain).items():
        for objective, own in members.groupby("objective", sort=True):
            for row in _compare(own, objective, resamples, seed):
                table.append({"group": group, "objective": objective} | row)
    return pd.DataFrame(table)


def request_costs(
    acceptance: pd.DataFrame,
    trajectories: pd.DataFrame,
    prompts: pd.DataFrame,
    *,
    block_sizes: Sequence[int],
    best_fixed: int,
    max_new_tokens: int,
    latency: LatencyModel | None = None,
) -> pd.DataFrame:
    """Return what every request costs under every policy and objective.

    Arguments and errors are those of `bounds_table`.

    Returns:
        Rows of prompt_id, seed, objective, policy, num_tokens (committed in rounds) and cost:
        rounds, or modelled seconds.
    """
    if best_fixed not in block_sizes:
        remedy = "Choose the best fixed size among them."
        raise bad_input("best_fixed", best_fixed, f"one of {sorted(block_sizes)}", remedy)
    texts = trajectories[[*REQUEST, "output_ids", "stop_reason"]]
    rows = acceptance.merge(texts, on=REQUEST, how="left")
    rows = rows.merge(prompts[["prompt_id", "input_ids"]], on="prompt_id", how="left")
    for name, artifact in (("output_ids", "trajectories"), ("input_ids", "prompts")):
        lost = rows.loc[rows[name].isna(), "prompt_id"]
        if len(lost):
            raise bad_input("prompt_id", lost.iloc[0], f"a request of the {artifact}", REPLAY_AGAIN)
    costers = _costers(latency)
    found: list[dict] = []
    for row in rows.itertuples():
        table = _table_of(row, max_new_tokens)
        request = {"prompt_id": row.prompt_id, "seed": row.seed, "num_tokens": table.num_anchors}
        for objective, coster in costers.items():
            costs = _policy_costs(table, block_sizes, best_fixed, coster(len(row.input_ids)))
            for policy, cost in costs.items():
                found.append(request | {"objective": objective, "policy": policy, "cost": cost})
    return pd.DataFrame(found)


def check_bounds(costs: pd.DataFrame) -> None:
    """Check on every request that no bound costs more than what it bounds.

    Args:
        costs: As from `request_costs`.

    Raises:
        BlockPilotError: Naming the prompt, if one does.
    """
    by_policy = costs.pivot(index=["objective", *REQUEST], columns="policy", values="cost")
    for dearer, bound in pairwise(POLICIES):
        wrong = by_policy[~(by_policy[bound] <= by_policy[dearer])]
        if len(wrong):
            objective, prompt, seed = wrong.index[0]
            where = f"{objective} of {bound} on prompt {prompt!r}, seed {seed}"
            allowed = f"at most {float(wrong[dearer].iloc[0])}, that of {dearer}"
            remedy = "A bound must not be worse than what it bounds: look for the fault in it."
            raise bad_input(where, float(wrong[bound].iloc[0]), allowed, remedy)


def _table_of(row, max_new_tokens: int) -> AcceptanceTable:
    tokens = len(row.output_ids)
    limit = limit_tokens(tokens, row.stop_reason, max_new_tokens)
    if limit < tokens:
        where, remedy = f"max_new_tokens, prompt {row.prompt_id!r}", "Pass that of the decoding."
        raise bad_input(where, max_new_tokens, f"at least the {tokens} tokens decoded", remedy)
    table = AcceptanceTable.from_row(row.block_sizes, row.accepted, limit)
    if table.num_anchors != tokens - 1:
        where, allowed = f"anchors of prompt {row.prompt_id!r}", f"{tokens - 1}, as its text has"
        raise bad_input(where, table.num_anchors, allowed, REPLAY_AGAIN)
    return table


def _costers(latency: LatencyModel | None) -> dict[str, Coster]:
    """Return, per objective, what gives a request its round cost."""
    costers: dict[str, Coster] = {ROUNDS: lambda prompt_tokens: None}
    if latency is not None:
        # Requests come to the same sizes and contexts again and again.
        round_s = lru_cache(CACHED_ROUNDS)(latency.round_s)
        costers[TIME] = lambda prompt_tokens: partial(_round_s, round_s, prompt_tokens)
    return costers


def _round_s(round_s: RoundCost, prompt_tokens: int, draft: int, verify: int, anchor: int) -> float:
    return round_s(draft, verify, prompt_tokens + anchor)


def _policy_costs(
    table: AcceptanceTable, block_sizes: Sequence[int], best_fixed: int, cost: RoundCost | None
) -> dict[str, float]:
    fixed = {size: walk_cost(table, size, size, cost) for size in block_sizes}
    bounds = [clairvoyant(table, all_choices(block_sizes, shorter), cost) for shorter in (0, 1)]
    costs = fixed[best_fixed], min(fixed.values()), *(bound.cost for bound in bounds)
    return dict(zip(POLICIES, costs, strict=True))


def _compare(rows: pd.DataFrame, objective: str, resamples: int, seed: int) -> Iterator[dict]:
    """Yield one row per policy; all of them are measured under the same weights."""
    prompts, weights = prompt_weights(rows, resamples, seed)
    rows = rows.assign(has_round=(rows["num_tokens"] > 0).astype(int))
    rows["tau"] = rows["num_tokens"] / rows["cost"].where(rows["has_round"] > 0)
    names = ("tau", "has_round") if objective == ROUNDS else ("cost", "num_tokens")
    by_policy = dict(iter(rows.groupby("policy")))
    values = {p: ratio_by_prompt(by_policy[p], *names, prompts, weights) for p in POLICIES}
    for policy, own in values.items():
        better = (own, values[FIXED]) if objective == ROUNDS else (values[FIXED], own)
        gain = _less_one(better[0] / better[1])
        row = {"policy": policy, "n": int(by_policy[policy]["has_round"].sum())}
        yield row | columns_of("value", own) | columns_of("gain_over_best_fixed", gain)


def _less_one(quotient: Resampled) -> Resampled:
    return Resampled(quotient.value - 1, quotient.samples - 1)
