"""Sweeps: the rounds of every prompt at every block size, decoded live or replayed.

`live` is the paper's own procedure, one decode per prompt and block size; `replay` counts the same
rounds from the trajectory alone. Both give the same rows. A *request* is a prompt with a seed and
its trajectory: a row with prompt_id, seed, input_ids, output_ids, stop_reason and source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from blockpilot.acceptance import AcceptanceTable, walk
from blockpilot.decode import Generation, generate
from blockpilot.draft import DFlashDraft
from blockpilot.parts import bucket_of
from blockpilot.policies import FixedPolicy, Policy
from blockpilot.progress import track
from blockpilot.replay import Committed, Replay
from blockpilot.rounds import limit_tokens, tau
from blockpilot.sampling import Sampling
from blockpilot.target import Target

REQUEST_COLUMNS = ["prompt_id", "seed", "output_ids", "stop_reason", "source"]
Choice = tuple[int, int]  # (draft size, verified size)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeVariant:
    """How text is decoded: a row of `decode.variants` with `decode.max_new_tokens`."""

    sampling: Sampling
    max_new_tokens: int

    @classmethod
    def from_config(cls, variant: Mapping, max_new_tokens: int) -> DecodeVariant:
        """Return the variant that the configuration describes."""
        return cls(sampling=Sampling.from_variant(variant), max_new_tokens=max_new_tokens)


class Decoder:
    """A loaded pair and a decode variant: turns (prompt, seed, policy) into a `Generation`."""

    def __init__(
        self, target: Target, draft: DFlashDraft, variant: DecodeVariant, stop_ids: Collection[int]
    ) -> None:
        self.target, self.draft, self.variant, self.stop_ids = target, draft, variant, stop_ids

    def __call__(
        self, prompt_ids: list[int], seed: int, policy: Policy, domain: str | None = None
    ) -> Generation:
        """Decode one request."""
        return generate(
            self.target,
            self.draft,
            prompt_ids,
            policy,
            max_new_tokens=self.variant.max_new_tokens,
            stop_ids=self.stop_ids,
            sampling=self.variant.sampling,
            seed=seed,
            domain=domain,
        )


def join_requests(trajectories: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the requests of some trajectories, with all that `prompts` knows of them."""
    return trajectories.merge(prompts, on="prompt_id", validate="many_to_one")


def grid_choices(trained_block_size: int) -> list[Choice]:
    """Return (b, b) for b in 1..2B, and smaller verified sizes behind drafts of B and of 2B."""
    largest = 2 * trained_block_size
    choices = {(size, size) for size in range(1, largest + 1)}
    for draft_size in (trained_block_size, largest):
        choices |= {(draft_size, size) for size in range(1, draft_size)}
    return sorted(choices)


def first_per_domain(requests: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return all rows of every domain's first `count` prompts in the order of their hashes."""
    ids = requests.drop_duplicates("prompt_id").sort_values("prompt_id")
    chosen = set(ids.groupby("domain").head(count)["prompt_id"])
    own = requests[requests["prompt_id"].isin(chosen)]
    return own.sort_values("prompt_id", kind="stable", ignore_index=True)


def sweep_live(
    decode: Callable[[list[int], int, Policy], Generation],
    requests: pd.DataFrame,
    block_sizes: Sequence[int],
) -> list[list[dict]]:
    """Decode every request at every block size; return the rows of `sweep`, a list per size."""
    rows: list[list[dict]] = [[] for _ in block_sizes]
    with track(description="live", total=len(requests) * len(rows), unit="pair") as bar:
        for request in requests.itertuples(index=False):
            for block_size, own in zip(block_sizes, rows, strict=True):
                own.append(live_row(decode, request, block_size))
                bar.update()
    return rows


def live_row(decode: Callable, request, block_size: int) -> dict:
    """Decode one request at one block size; return its row of `sweep`."""
    policy = FixedPolicy(block_size)
    result = decode(list(request.input_ids), request.seed, policy)
    tokens = sum(result.num_committed)
    is_ours = request.source == "ours"
    return sweep_row(request, block_size, result.num_committed) | {
        "method": "live",
        "tpot_s": result.decode_s / tokens if tokens else None,
        "equals_ar": result.output_ids == list(request.output_ids) if is_ours else None,
    }


def sweep_replay(
    replay: Replay,
    requests: pd.DataFrame,
    block_sizes: Sequence[int],
    max_new_tokens: int,
    token_budget: int,
) -> list[list[dict]]:
    """Replay every request at every block size; return the rows of `sweep`, a list per size."""
    rows: list[list[dict]] = [[] for _ in block_sizes]
    choices = [(size, size) for size in block_sizes]
    for request, table in replay_requests(
        requests, max_new_tokens, token_budget, lambda texts: replay.walks(texts, choices)
    ):
        is_ours = request.source == "ours"
        for block_size, own in zip(block_sizes, rows, strict=True):
            # The committed tokens are the trajectory's by construction.
            facts = {"method": "replay", "tpot_s": None, "equals_ar": True if is_ours else None}
            own.append(sweep_row(request, block_size, walk(table, block_size)) | facts)
    return rows


def sweep_grid(
    replay: Replay,
    requests: pd.DataFrame,
    choices: Sequence[Choice],
    max_new_tokens: int,
    token_budget: int,
) -> Iterator[dict]:
    """Replay every request at every (draft, verified) size; yield the rows of `grid`."""
    for request, table in replay_requests(
        requests, max_new_tokens, token_budget, lambda texts: replay.walks(texts, choices)
    ):
        for draft_size, block_size in choices:
            row = sweep_row(request, block_size, walk(table, draft_size, block_size))
            yield row | {"draft_size": draft_size}


def sweep_row(request, block_size: int, num_committed: list[int]) -> dict:
    """Return what rows of live and replayed sweeps share."""
    return {
        "prompt_id": request.prompt_id,
        "seed": request.seed,
        "block_size": block_size,
        "num_rounds": len(num_committed),
        "num_committed": num_committed,
        "tau": tau(num_committed),
    }


def replay_requests(
    requests: pd.DataFrame,
    max_new_tokens: int,
    token_budget: int,
    tabulate: Callable[[list[Committed]], list[AcceptanceTable]],
) -> Iterator[tuple[object, AcceptanceTable]]:
    """Yield every request and its acceptance table; texts of similar length run together.

    Args:
        requests: Of one bucket of prompt hashes, or of all.
        max_new_tokens: As decoded.
        token_budget: Most context tokens of the texts that run together; at least one text runs.
        tabulate: `Replay.walks` or `Replay.full` of some block sizes.
    """
    for batch in plan_texts(requests, token_budget):
        texts = [
            Committed(
                prompt_ids=list(row.input_ids),
                output_ids=list(row.output_ids),
                seed=int(row.seed),
                limit_tokens=limit_tokens(len(row.output_ids), row.stop_reason, max_new_tokens),
            )
            for row in batch
        ]
        yield from zip(batch, tabulate(texts), strict=True)


def plan_texts(requests: pd.DataFrame, token_budget: int) -> list[list]:
    """Group requests of similar length inside the buckets of their prompt hashes.

    What runs together, and with it every last bit of the results, then depends on a bucket alone.
    """
    batches: list[list] = []
    lengths = requests["input_ids"].map(len) + requests["output_ids"].map(len)
    order = requests.assign(tokens=lengths, bucket=requests["prompt_id"].map(bucket_of))
    for _, members in order.groupby("bucket", sort=True):
        members = members.sort_values(["tokens", "prompt_id", "seed"])
        tokens = token_budget
        for row in members.itertuples(index=False):
            if tokens + row.tokens > token_budget:
                batches.append([])
                tokens = 0
            batches[-1].append(row)
            tokens += row.tokens
    return batches
