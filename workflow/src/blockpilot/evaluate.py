"""Held-out evaluation: rounds of all test prompts, wall-clock time of a fixed subset."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pandas as pd
import torch

from blockpilot.decode import Generation
from blockpilot.errors import BlockPilotError
from blockpilot.labels import best_fixed_block_size
from blockpilot.policies import ArPolicy, FixedPolicy, Policy, Request, TablePolicy
from blockpilot.progress import track
from blockpilot.rounds import limit_tokens, verified_sizes

CONTROL = "ar_control"  # a second `ar`: what differs from 1.0x is the machine's noise


class Recorded:
    """A policy, maybe under another name, that remembers its calls and its last choice.

    A policy that never ran must not appear in a table.
    """

    def __init__(self, policy: Policy, name: str | None = None) -> None:
        self.policy, self.name = policy, name or policy.name
        self.uses_draft = policy.uses_draft
        self.calls = self.block_size = 0

    def begin(self, request: Request) -> int:
        """Return the policy's block size."""
        self.calls += 1
        self.block_size = self.policy.begin(request)
        return self.block_size


def oracle_policy(pairs: pd.DataFrame, prompts: pd.DataFrame, seed: int) -> TablePolicy:
    """Return the in-sample bound: every prompt at its own B*."""
    ids = dict(zip(prompts["prompt_id"], prompts["input_ids"], strict=True))
    rows = pairs[pairs["seed"] == seed]
    table = {
        tuple(ids[p]): int(b)
        for p, b in zip(rows["prompt_id"], rows["best_block_size"], strict=True)
    }
    return TablePolicy("oracle", table)


def make_policies(
    pairs: pd.DataFrame, prompts: pd.DataFrame, seed: int, swept: list[int], selector: Policy
) -> list[Policy]:
    """Return all policies of the evaluation, for one seed."""
    best = best_fixed_block_size(pairs)
    return [
        ArPolicy(),
        Recorded(ArPolicy(), CONTROL),
        *(FixedPolicy(b) for b in swept),
        FixedPolicy(best, name="best_fixed"),
        selector,
        oracle_policy(pairs, prompts, seed),
    ]


def offline_rows(
    policy: Policy, test: pd.DataFrame, sweep: pd.DataFrame, max_new_tokens: int
) -> Iterator[dict]:
    """Look up the rounds of a once-per-request policy in the sweep; nothing is decoded.

    Args:
        policy: Chooses from p(x) and h(x) as it would after prefill.
        test: Requests: trajectory rows with split, domain and input_ids.
        sweep: Rows of all `sweep` artifacts of this decode variant.
        max_new_tokens: As decoded.

    Yields:
        Rows of the `evaluation` artifact without times.
    """
    index = sweep.set_index(["prompt_id", "seed", "block_size"])
    for row in test.itertuples(index=False):
        size = policy.begin(
            Request(
                prompt_ids=list(row.input_ids),
                prefill_logits=torch.tensor(row.prefill_logits),
                prefill_hidden=torch.tensor(row.prefill_hidden),
                domain=row.domain,
            )
        )
        method, committed, equals = "live", [1] * (len(row.output_ids) - 1), True
        if policy.uses_draft:
            swept = index.loc[(row.prompt_id, row.seed, size)]
            method, committed = swept["method"], list(swept["num_committed"])
            # Replay commits the trajectory by construction: nothing was compared.
            equals = swept["equals_ar"] if method == "live" else None
        most = limit_tokens(len(row.output_ids), row.stop_reason, max_new_tokens)
        sizes = verified_sizes(size, committed, most)
        yield _row(policy, row, size, sizes, committed, equals) | {"method": method}


def time_policies(
    decode: Callable[..., Generation],
    policies: list[Policy],
    timed: pd.DataFrame,
    seed: int,
) -> Iterator[dict]:
    """Decode the timed requests with every policy, interleaved prompt by prompt.

    The order of the policies is shuffled anew for every prompt, so that no policy always runs
    on a warm or a cold machine; one warm-up per policy is thrown away.

    Args:
        decode: A `Decoder`.
        policies: All policies.
        timed: Rows with prompt_id, seed, split, domain, input_ids, output_ids.
        seed: Of the shuffles.

    Yields:
        Rows of the `evaluation` artifact.

    Raises:
        BlockPilotError: If a policy's code was never called.
    """
    counted = [Recorded(policy) for policy in policies]
    first = timed.iloc[0]
    for policy in counted:
        decode(list(first.input_ids), int(first.seed), policy)
        policy.calls = 0
    rng = random.Random(seed)
    requests = timed.itertuples(index=False)
    for row in track(requests, description="time policies", total=len(timed), unit="prompt"):
        for policy in rng.sample(counted, len(counted)):
            result = decode(list(row.input_ids), row.seed, policy, row.domain)
            yield _timed_row(policy, row, result)
    idle = [policy.name for policy in counted if not policy.calls]
    if idle:
        raise BlockPilotError(f"policies {idle} were never called; a row for them would be false")


def _timed_row(policy: Recorded, row, result: Generation) -> dict:
    equals = result.output_ids == list(row.output_ids) if row.source == "ours" else None
    times = {
        "decode_s": result.decode_s,
        "prefill_s": result.prefill_s,
        "select_s": result.select_s,
    }
    sizes, committed = result.block_sizes, result.num_committed
    return _row(policy, row, policy.block_size, sizes, committed, equals) | times


def _row(
    policy, row, block_size: int, sizes: list, committed: list, equals_ar: bool | None
) -> dict:
    return {
        "policy": policy.name,
        "prompt_id": row.prompt_id,
        "seed": row.seed,
        "split": row.split,
        "domain": row.domain,
        "method": "live",
        "block_size": block_size,
        "block_sizes": sizes,
        "num_committed": committed,
        "num_rounds": len(committed),
        "num_tokens": sum(committed),
        "decode_s": None,
        "prefill_s": None,
        "select_s": None,
        "equals_ar": equals_ar,
    }
