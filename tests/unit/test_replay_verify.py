"""Replay of rounds that verify less than they drafted, against a loop of whole passes."""

from __future__ import annotations

import pytest
import torch

from blockpilot.acceptance import walk
from blockpilot.replay import Committed, Replay
from blockpilot.rounds import commit, count_accepted, last_block_size
from blockpilot.sampling import GREEDY, Sampler, Sampling
from blockpilot.trajectories import decode_batch

PROMPTS = (0, 4, 6, 9)  # on which the tiny draft has rounds of many lengths
CHOICES = [(8, 2), (8, 3), (8, 5), (8, 8), (6, 4), (6, 5), (5, 1), (3, 2), (4, 4)]
SAMPLINGS = {
    "greedy": GREEDY,
    "match": Sampling(temperature=1.0),
    "coupled": Sampling(temperature=0.7, scheme="coupled", draft_temperature=0.9),
}
NEW_TOKENS, SEED = 22, 3


def naive_rounds(
    pair, sampling: Sampling, text: Committed, stop_ids, draft_size: int, verify_size: int
) -> list[int]:
    """Decode without caches; of each draft only the first tokens are verified."""
    target, draft = pair
    prompt, output, counts = list(text.prompt_ids), list(text.output_ids[:1]), []
    sampler = Sampler(sampling, text.seed, prompt, target.device)
    stopped = output[0] in stop_ids
    while not stopped and len(output) < text.limit_tokens:
        start, remaining = len(prompt) + len(output) - 1, text.limit_tokens - len(output)
        drafted, verified = (last_block_size(b, remaining) for b in (draft_size, verify_size))
        noise = sampler.noise(start + 1, drafted, target.vocab_size)
        context = draft.new_cache(start + drafted)
        seen = torch.tensor([prompt + output[:-1]])
        draft.append_context(target.forward(seen).features, context)
        block = torch.tensor([output[-1]] + [draft.config.mask_token_id] * (drafted - 1))
        positions = torch.arange(start, start + drafted)[None]
        hidden = draft(target.embeddings[block][None], positions, context)
        proposals = sampler.propose(target.head(hidden[0, 1:]), noise, start + 1)
        proposals = proposals[: verified - 1].tolist()
        ids = torch.tensor([prompt + output + proposals])
        logits = target.head(target.forward(ids).hidden[0, start:])
        noise = None if noise is None else noise[:verified]
        posterior = sampling.choose(logits, noise).tolist()
        accepted = count_accepted(proposals, posterior)
        committed, stopped = commit(posterior, accepted, stop_ids, remaining)
        output += committed
        counts.append(len(committed))
    assert output == list(text.output_ids)
    return counts


@pytest.mark.parametrize("name", SAMPLINGS)
def test_walks_that_verify_less_than_was_drafted(name, pair64, prompts) -> None:
    sampling, some = SAMPLINGS[name], [prompts[index] for index in PROMPTS]
    settings = {"max_new_tokens": NEW_TOKENS, "sampling": sampling, "seed": SEED}
    free = decode_batch(pair64.target, some, stop_ids=(), **settings)
    stop_ids = {free[0].output_ids[13]}
    rows = decode_batch(pair64.target, some, stop_ids=stop_ids, **settings)
    assert {row.stop_reason for row in rows} == {"stop", "length"}
    texts = [
        Committed(prompt_ids=prompt, output_ids=row.output_ids, seed=SEED, limit_tokens=NEW_TOKENS)
        for prompt, row in zip(some, rows, strict=True)
    ]
    machine = Replay(*pair64, sampling)
    walks, full = machine.walks(texts, CHOICES), machine.full(texts, range(1, 9))
    different = 0
    for text, walked, whole in zip(texts, walks, full, strict=True):
        for choice in CHOICES:
            expected = naive_rounds(pair64, sampling, text, stop_ids, *choice)
            assert walk(walked, *choice) == expected, choice
            assert walk(whole, *choice) == expected, choice
            different += expected != walk(whole, choice[1])
    assert different >= 1  # a longer draft proposes other tokens, even if fewer are verified
