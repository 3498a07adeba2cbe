"""Live sweeps: every prompt decoded at one block size, the paper's own procedure for labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pandas as pd

from blockpilot.decode import Generation, generate
from blockpilot.draft import DFlashDraft
from blockpilot.policies import FixedPolicy, Policy
from blockpilot.progress import track
from blockpilot.rounds import tau
from blockpilot.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeVariant:
    """How text is decoded: a row of `decode.variants` with `decode.max_new_tokens`."""

    temperature: float
    sampling: str
    max_new_tokens: int


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
            temperature=self.variant.temperature,
            seed=seed,
            sampling=self.variant.sampling,
            domain=domain,
        )


def sweep_block_size(
    decode: Callable[[list[int], int, Policy], Generation],
    prompts: pd.DataFrame,
    trajectories: pd.DataFrame,
    block_size: int,
) -> Iterator[dict]:
    """Decode every prompt and seed at one block size.

    Args:
        decode: A `Decoder`.
        prompts: Rows of `prompts` artifacts.
        trajectories: The same requests under `ar`.
        block_size: b.

    Yields:
        Rows of the `sweep` artifact.
    """
    input_ids = dict(zip(prompts["prompt_id"], prompts["input_ids"], strict=True))
    policy = FixedPolicy(block_size)
    rows = trajectories[["prompt_id", "seed", "output_ids"]].itertuples(index=False)
    label = f"sweep b={block_size}"
    for row in track(rows, description=label, total=len(trajectories), unit="prompt"):
        result = decode(list(input_ids[row.prompt_id]), row.seed, policy)
        num_tokens = sum(result.num_committed)
        yield {
            "prompt_id": row.prompt_id,
            "seed": row.seed,
            "block_size": block_size,
            "method": "live",
            "num_rounds": len(result.num_committed),
            "num_committed": result.num_committed,
            "tau": tau(result.num_committed),
            "tpot_s": result.decode_s / num_tokens if num_tokens else None,
            "equals_ar": result.output_ids == list(row.output_ids),
        }
