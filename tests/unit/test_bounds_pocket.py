"""Bounds are bounds on every prompt of the default experiment (first turns), one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pocket_cases import load_pocket, render_turns

from blockpilot.acceptance import walk
from blockpilot.bounds import all_choices, best_fixed_choice, clairvoyant
from blockpilot.config import compose_config, swept_block_sizes
from blockpilot.prompts import collect_conversations
from blockpilot.replay import Committed, Replay
from blockpilot.sampling import Sampling
from blockpilot.trajectories import decode_batch

ROOT = Path(__file__).resolve().parents[2]
DOMAINS = ("arithmetic", "code", "prose")
MAX_NEW_TOKENS, BATCH_SIZE = 192, 16


def draw_prompts(count: int | None) -> list[list[int]]:
    """Return the first turns of the default experiment's prompts, `count` per domain or all."""
    datasets = compose_config(ROOT / "conf", "pocket", [])["prompts"]["datasets"]
    texts = []
    for domain in DOMAINS:
        rows = collect_conversations(domain, datasets[domain])[:count]
        texts += [row["turns"][0] for row in rows]
    return render_turns(texts)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, scheme="coupled")],
    ids=["T0", "match", "coupled"],
)
@pytest.mark.parametrize("count", [1, pytest.param(None, marks=pytest.mark.full)])
def test_clairvoyant_oracle_and_best_fixed_are_ordered_on_every_prompt(count, sampling) -> None:
    target, draft, stop_ids = load_pocket("float32")
    replay = Replay(target, draft, sampling)
    prompts = draw_prompts(count)
    candidates = list(range(draft.block_size - 2, draft.block_size + 3))
    sizes = swept_block_sizes(candidates, draft.block_size, None)
    tables = []
    for at in range(0, len(prompts), BATCH_SIZE):
        batch = prompts[at : at + BATCH_SIZE]
        texts = decode_batch(
            target, batch, max_new_tokens=MAX_NEW_TOKENS, stop_ids=stop_ids, sampling=sampling
        )
        committed = [
            Committed(
                prompt_ids=prompt, output_ids=t.output_ids, seed=0, limit_tokens=MAX_NEW_TOKENS
            )
            for prompt, t in zip(batch, texts, strict=True)
        ]
        tables += replay.full(committed, sizes)
    rounds = torch.tensor([[len(walk(table, size)) for size in sizes] for table in tables])
    best_fixed = int(rounds.float().mean(0).argmin())
    for table, own in zip(tables, rounds.tolist(), strict=True):
        bound = clairvoyant(table, all_choices(sizes)).num_rounds
        oracle = best_fixed_choice(table, sizes)[1]
        assert bound <= oracle == min(own) <= own[best_fixed]
    assert len(tables) == len(prompts)
