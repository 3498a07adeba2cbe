"""Invariants 1 and 2 on the shipped pair, in float64: no block size changes the text."""

from __future__ import annotations

import json

import pytest
import torch
from pocket_cases import POCKET, draw_prompts, load_pocket

from blockpilot.decode import generate
from blockpilot.policies import ArPolicy, FixedPolicy
from blockpilot.sampling import Sampling
from blockpilot.trajectories import decode_batch

# Below this, equal greedy text could be luck: float64 differs by about 1e-13 between paths.
LEAST_MARGIN = 1e-9
SMALL, FULL = (4, 32), (40, 192)  # (prompts per domain, new tokens)
GRIDS = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def pair():
    return load_pocket()


def smallest_margin(target, prompt: list[int], text: list[int]) -> float:
    ids = torch.tensor([prompt + text])
    with torch.inference_mode():
        logits = target.head(target.forward(ids).hidden[0, len(prompt) - 1 : -1])
    best = logits.topk(2).values
    return float((best[:, 0] - best[:, 1]).min())


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_block_size_gives_the_text_of_ar(pair, grid, temperature) -> None:
    count, new_tokens = grid
    target, draft, stop_ids = pair
    prompts = draw_prompts(count)
    sizes = range(1, 2 * draft.block_size + 1)
    settings = {"max_new_tokens": new_tokens, "stop_ids": stop_ids}
    settings["sampling"] = Sampling(temperature=temperature)
    batched = decode_batch(target, prompts, **settings, seed=3)
    rounds = tokens = 0
    for prompt, in_batch in zip(prompts, batched, strict=True):
        text = generate(target, None, prompt, ArPolicy(), seed=3, **settings).output_ids
        assert in_batch.output_ids == text
        if temperature == 0:
            assert smallest_margin(target, prompt, text) > LEAST_MARGIN
        for size in sizes if temperature == 0 else (1, 2, 5, 8, 11, 16):
            result = generate(target, draft, prompt, FixedPolicy(size), seed=3, **settings)
            assert result.output_ids == text, (size, prompt)
            rounds += len(result.num_committed) * (size > 1)
            tokens += sum(result.num_committed) * (size > 1)
    # With a draft that is never accepted, all of the above would hold trivially.
    assert tokens > 2 * rounds


def test_the_pair_is_small_and_says_which_goals_it_meets() -> None:
    files = [path for path in POCKET.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25e6
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".jinja", ".md"}
    quality = json.loads((POCKET / "quality.json").read_text())
    assert len(quality["goals"]) >= 14
    for kind in ("target", "draft"):
        card = (POCKET / kind / "README.md").read_text()
        for goal in quality["goals"]:
            assert f"| {goal['goal']} | {goal['allowed']} |" in card
